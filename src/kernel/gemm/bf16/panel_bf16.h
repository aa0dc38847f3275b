/* Packed panels of AMX and AVX512-BF16 kernels: 32 rows of A or B as bf16 tiles of AMX.
 *
 * Every 8-bit value and every power of two is exact in bf16: an element is packed as its value
 * times its MX scale relative to one exponent a row (and step of K), `unit`. */
#ifndef OCT_KERNEL_GEMM_BF16_PANEL_BF16_H
#define OCT_KERNEL_GEMM_BF16_PANEL_BF16_H

#include <stdalign.h>

#include "kernel/gemm/avx512/bf16_table.h"
#include "kernel/gemm/kernels.h"

enum {
    OCT_BF16_ROWS = 32, /* of a panel, of A and of B: two tiles */
    OCT_BF16_STEP = OCT_GEMM_K_CHUNK,
    OCT_BF16_BLOCKS = OCT_BF16_STEP / OCT_MX_BLOCK,
    OCT_BF16_PAIR = 64, /* k of two blocks, which are packed together */
    OCT_BF16_TILE_BYTES = 16 * 64,
    /* Words are made with exponents larger by this, from which 0 .. twice this is subtracted: so
     * that zeros that were looked up stay zeros, saturating. */
    OCT_BF16_BIAS = 32,
    /* Of a row's MX scales in a step: from the smallest to the largest, and what their middle may
     * be, as exponents. Rows beyond are special. */
    OCT_BF16_MAX_SPREAD = 2 * OCT_BF16_BIAS,
    OCT_BF16_MIN_EXPONENT = -60,
    OCT_BF16_MAX_EXPONENT = 20
};
/* The same for a scale of a row or a tensor. */
#define OCT_BF16_MIN_SCALE 0x1p-60f
#define OCT_BF16_MAX_SCALE 0x1p20f

/* A packed panel: this head, then for each block of 32 of k two tiles of 16 rows each
 *   A: 16 rows by 32 of k
 *   B: 16 pairs of k by 16 rows
 * and always an even number of blocks. */
typedef struct oct_bf16_head {
    alignas(64) float unit[OCT_BF16_ROWS]; /* what the row's sum is to be multiplied with */
    oct_operand operand;                   /* for special rows */
    int64_t row, n_rows, k;
    uint32_t special; /* rows with a NaN, an Inf, or scales too far apart or too extreme */
} oct_bf16_head;

#define OCT_BF16_HEAD_BYTES ((sizeof(oct_bf16_head) + 63) / 64 * 64)

/* How scales become exponents: of sixteen rows. */
typedef struct oct_bf16_exponents {
    /* By block and row, in both halves: what is to be subtracted from biased words' exponents. */
    alignas(64) uint32_t drop[OCT_BF16_BLOCKS][16];
    alignas(64) uint8_t scales[OCT_BF16_BLOCKS][16]; /* MX: their E8M0 codes */
    uint32_t special;                                /* rows */
    uint32_t
        has_zero_scales; /* a scale byte of 0, which elements other than zeros shouldn't have */
} oct_bf16_exponents;

/* How codes become words without look-ups: see pack_by_bits.h. */
typedef struct oct_bf16_bits {
    __m512i low, high, rank; /* matrices of bits */
    __m512i bias;            /* words: what a format's exponents lack, and OCT_BF16_BIAS */
} oct_bf16_bits;

typedef struct oct_bf16_sums {
    alignas(64) float x[OCT_BF16_ROWS][OCT_BF16_ROWS];
} oct_bf16_sums;

/* A panel of B on its way: packed block by block of 32 of k, between which the caller may multiply
 * what the panel held before. */
typedef struct oct_bf16_packer {
    oct_bf16_head head;              /* goes to the panel at the end */
    oct_bf16_exponents exponents[2]; /* of each sixteen rows */
    __m512i uppers[2], nan_codes[2]; /* seen so far */
    oct_bf16_table table;
    alignas(64) uint8_t copy[2][16 * OCT_BF16_PAIR]; /* of codes that don't lie row by row */
    int64_t kc, at;                                  /* k of the next block; ends at `end` */
    int64_t end;
    int64_t bits_end; /* blocks before this may be packed half by half, as pack_by_bits.h does */
    oct_bf16_bits bits;
    unsigned char *panel;
} oct_bf16_packer;

/* 64 codes of k of sixteen rows row by row, zeros beyond n_rows and n_k: for rows that aren't all
 * there, or lie strided. */
void oct_bf16_copy_codes(const oct_operand *x, int64_t row, int64_t n_rows, int64_t k, int64_t n_k,
                         uint8_t *out);

void oct_bf16_pack_a(const oct_gemm_source *from, void *panel);
void oct_bf16_pack_b(const oct_gemm_source *from, void *panel);

/* oct_bf16_pack_b in calls of oct_bf16_pack_block until `at` is `end`. The panel's head stays what
 * it was until oct_bf16_pack_end. */
void oct_bf16_pack_begin(oct_bf16_packer *p, const oct_gemm_source *from, void *panel);
void oct_bf16_pack_block(oct_bf16_packer *p);
void oct_bf16_pack_end(oct_bf16_packer *p);

/* Looks up half of the block at `at`: for codes that aren't normal. */
void oct_bf16_pack_half(oct_bf16_packer *p, int half);

/* Rows of A by rows of B from the operands, as `exact` has it; a step is one of its chunks. */
void oct_bf16_multiply_operands(const oct_operand *a, int64_t a_row, int64_t a_rows,
                                const oct_operand *b, int64_t b_row, int64_t b_rows, int64_t k,
                                int64_t kc, oct_bf16_sums *s);

#endif
