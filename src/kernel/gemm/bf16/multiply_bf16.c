/* `fast` products by vdpbf16ps (AVX512-BF16): the panels of panel_bf16.h, so every element is
 * exact, times pairs of k in fp32 sums.
 *
 * The instruction computes acc = RN(acc + a1 b1), then acc = RN(acc + a0 b0), each fused, to
 * nearest whatever MXCSR says, and takes subnormals for zeros; a row's exponents are centred
 * (pack_bf16.c) such that neither a product nor a difference of products is one. Every
 * OCT_BF16_STEP of k the sums get their rows' units and are added to a tile in L1: fewer roundings
 * pile up in one sum, and C isn't touched before the end of a step of the driver's.
 *
 * A row with a NaN, an Inf, or scales too far apart or too extreme is special: its elements are
 * computed from the operand in fp32, as `exact` does.
 *
 * Invariant: an element's value depends on its two panels only, so it's the same for any tiling and
 * any number of threads. */
#include "kernel/gemm/avx512/exact_avx512.h"
#include "kernel/gemm/avx512/write_sums.h"
#include "kernel/gemm/bf16/panel_bf16.h"
#include "kernel/vectors_avx512.h"

enum {
    R = OCT_BF16_ROWS,
    PART_ROWS = 11, /* whose sums stay in registers, beside a pair of k of B and of one row of A */
    SEGMENT = OCT_BF16_STEP,
    SEGMENT_BYTES = OCT_BF16_HEAD_BYTES + SEGMENT * R * (int)sizeof(uint16_t),
    N_SEGMENTS = 4,
    STEP = N_SEGMENTS * SEGMENT
};

/* --- packing --- */

/* A panel is those of its segments, one after the other. */
OCT_INLINE void pack(const oct_gemm_source *from, unsigned char *panel, oct_gemm_pack *segment) {
    for (int64_t k = 0; k < from->kc; k += SEGMENT, panel += SEGMENT_BYTES) {
        oct_gemm_source part = *from;
        part.k += k;
        part.kc = from->kc - k < SEGMENT ? from->kc - k : SEGMENT;
        segment(&part, panel);
    }
}

static void pack_a(const oct_gemm_source *from, void *panel) {
    pack(from, panel, oct_bf16_pack_a);
}

static void pack_b(const oct_gemm_source *from, void *panel) {
    pack(from, panel, oct_bf16_pack_b);
}

/* --- multiplying --- */

/* In assembly because compilers spill accumulators or make the broadcast an operand in memory,
 * which costs a tenth of the speed or more. What it computes, for i < rows and a multiple of 16
 * pairs of k, is s[j] = 0; for each pair p: s[j] = RN(s[j] + a[p][1] b[p][j][1]), s[j] = RN(s[j] +
 * a[p][0] b[p][j][0]) t[i][j] = fma(s[j], a_units[i] * b_units[j], t[i][j]) */
/* clang-format off */
#define ZERO(n) "vpxord %%zmm" #n ", %%zmm" #n ", %%zmm" #n "\n\t"
#define ROW(p, offset, spare, first, second)                                                       \
    "vbroadcastss 4*" #p "+" #offset "(%[a]), %%zmm" #spare "\n\t"                                 \
    "vdpbf16ps %%zmm22, %%zmm" #spare ", %%zmm" #first "\n\t"                                      \
    "vdpbf16ps %%zmm23, %%zmm" #spare ", %%zmm" #second "\n\t"
#define END(offset, unit, first, second)                                                           \
    "vbroadcastss " #unit "(%[a_units]), %%zmm24\n\t"                                              \
    "vmulps %%zmm22, %%zmm24, %%zmm25\n\t"                                                         \
    "vmulps %%zmm23, %%zmm24, %%zmm26\n\t"                                                         \
    "vfmadd213ps " #offset "(%[t]), %%zmm25, %%zmm" #first "\n\t"                                  \
    "vfmadd213ps " #offset "+64(%[t]), %%zmm26, %%zmm" #second "\n\t"                              \
    "vmovaps %%zmm" #first ", " #offset "(%[t])\n\t"                                               \
    "vmovaps %%zmm" #second ", " #offset "+64(%[t])\n\t"
#define ZEROS_1 ZERO(0) ZERO(1)
#define ZEROS_2 ZEROS_1 ZERO(2) ZERO(3)
#define ZEROS_3 ZEROS_2 ZERO(4) ZERO(5)
#define ZEROS_4 ZEROS_3 ZERO(6) ZERO(7)
#define ZEROS_5 ZEROS_4 ZERO(8) ZERO(9)
#define ZEROS_6 ZEROS_5 ZERO(10) ZERO(11)
#define ZEROS_7 ZEROS_6 ZERO(12) ZERO(13)
#define ZEROS_8 ZEROS_7 ZERO(14) ZERO(15)
#define ZEROS_9 ZEROS_8 ZERO(16) ZERO(17)
#define ZEROS_10 ZEROS_9 ZERO(18) ZERO(19)
#define ZEROS_11 ZEROS_10 ZERO(20) ZERO(21)
#define ROWS_1(p) ROW(p, 0, 24, 0, 1)
#define ROWS_2(p) ROWS_1(p) ROW(p, 64, 25, 2, 3)
#define ROWS_3(p) ROWS_2(p) ROW(p, 128, 26, 4, 5)
#define ROWS_4(p) ROWS_3(p) ROW(p, 192, 27, 6, 7)
#define ROWS_5(p) ROWS_4(p) ROW(p, 256, 28, 8, 9)
#define ROWS_6(p) ROWS_5(p) ROW(p, 320, 29, 10, 11)
#define ROWS_7(p) ROWS_6(p) ROW(p, 384, 30, 12, 13)
#define ROWS_8(p) ROWS_7(p) ROW(p, 448, 31, 14, 15)
#define ROWS_9(p) ROWS_8(p) ROW(p, 512, 24, 16, 17)
#define ROWS_10(p) ROWS_9(p) ROW(p, 576, 25, 18, 19)
#define ROWS_11(p) ROWS_10(p) ROW(p, 640, 26, 20, 21)
#define ENDS_1 END(0, 0, 0, 1)
#define ENDS_2 ENDS_1 END(128, 4, 2, 3)
#define ENDS_3 ENDS_2 END(256, 8, 4, 5)
#define ENDS_4 ENDS_3 END(384, 12, 6, 7)
#define ENDS_5 ENDS_4 END(512, 16, 8, 9)
#define ENDS_6 ENDS_5 END(640, 20, 10, 11)
#define ENDS_7 ENDS_6 END(768, 24, 12, 13)
#define ENDS_8 ENDS_7 END(896, 28, 14, 15)
#define ENDS_9 ENDS_8 END(1024, 32, 16, 17)
#define ENDS_10 ENDS_9 END(1152, 36, 18, 19)
#define ENDS_11 ENDS_10 END(1280, 40, 20, 21)
#define PAIR(p, rows)                                                                              \
    "vmovaps 64*" #p "(%[b]), %%zmm22\n\t"                                                         \
    "vmovaps 1024+64*" #p "(%[b]), %%zmm23\n\t" ROWS_##rows(p)
_Static_assert(OCT_BF16_TILE_BYTES == 1024, "as above");
#define PART(rows)                                                                                 \
    static void part_##rows(const char *a, const char *b, int64_t n_blocks, const float *a_units,  \
                            const float *b_units, float *t) {                                      \
        __asm__ volatile(                                                                          \
            ZEROS_##rows                                                                           \
            ".p2align 6\n"                                                                         \
            "1:\n\t"                                                                               \
            PAIR(0, rows) PAIR(1, rows) PAIR(2, rows) PAIR(3, rows) PAIR(4, rows) PAIR(5, rows)    \
            PAIR(6, rows) PAIR(7, rows) PAIR(8, rows) PAIR(9, rows) PAIR(10, rows) PAIR(11, rows)  \
            PAIR(12, rows) PAIR(13, rows) PAIR(14, rows) PAIR(15, rows)                            \
            "add $2048, %[a]\n\t"                                                                  \
            "add $2048, %[b]\n\t"                                                                  \
            "sub $1, %[n]\n\t"                                                                     \
            "jnz 1b\n\t"                                                                           \
            "vmovaps (%[b_units]), %%zmm22\n\t"                                                    \
            "vmovaps 64(%[b_units]), %%zmm23\n\t"                                                  \
            ENDS_##rows                                                                            \
            : [a] "+r"(a), [b] "+r"(b), [n] "+r"(n_blocks)                                         \
            : [a_units] "r"(a_units), [b_units] "r"(b_units), [t] "r"(t)                           \
            : "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",      \
              "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16",       \
              "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25",     \
              "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31");                               \
    }
PART(1) PART(2) PART(3) PART(4) PART(5) PART(6) PART(7) PART(8) PART(9) PART(10) PART(11)

typedef void part_fn(const char *a, const char *b, int64_t n_blocks, const float *a_units,
                     const float *b_units, float *t);
static part_fn *const parts[PART_ROWS + 1] = {
    NULL, part_1, part_2, part_3, part_4, part_5, part_6, part_7, part_8, part_9, part_10, part_11,
};
/* clang-format on */

/* Not memset, which takes longer to start than this to run. */
OCT_INLINE void set_to_zeros(oct_bf16_sums *t, int64_t n_rows) {
    for (int64_t i = 0; i < n_rows; i++) {
        _mm512_store_ps(t->x[i], _mm512_setzero_ps());
        _mm512_store_ps(t->x[i] + 16, _mm512_setzero_ps());
    }
}

/* t += two panels of one segment, as many rows as are used in parts of even size. */
static void multiply_segment(const oct_bf16_head *a, const oct_bf16_head *b, int64_t n_rows,
                             int64_t kc, oct_bf16_sums *t) {
    const char *x = (const char *)a + OCT_BF16_HEAD_BYTES;
    const char *y = (const char *)b + OCT_BF16_HEAD_BYTES;
    const int64_t n_blocks = (kc + OCT_BF16_PAIR - 1) / OCT_BF16_PAIR * 2;
    int64_t row = 0;
    for (int64_t n_parts = (n_rows + PART_ROWS - 1) / PART_ROWS; n_parts > 0; n_parts--) {
        const int64_t n = (n_rows - row + n_parts - 1) / n_parts;
        parts[n](x + 64 * row, y, n_blocks, a->unit + row, b->unit, t->x[row]);
        row += n;
    }
}

/* The same where rows are special. */
static __attribute__((noinline)) void multiply_special(const oct_bf16_head *a,
                                                       const oct_bf16_head *b, int64_t n_rows,
                                                       int64_t kc, oct_bf16_sums *t) {
    oct_bf16_sums s, e;
    set_to_zeros(&s, n_rows);
    multiply_segment(a, b, n_rows, kc, &s);
    oct_bf16_multiply_operands(&a->operand, a->row, a->n_rows, &b->operand, b->row, b->n_rows, a->k,
                               kc, &e);
    for (int64_t i = 0; i < n_rows; i++) {
        const uint32_t columns = a->special >> i & 1 ? 0xffffffffu : b->special;
        for (int j = 0; j < R; j += 16) {
            __m512 x = _mm512_mask_mov_ps(_mm512_load_ps(s.x[i] + j), (__mmask16)(columns >> j),
                                          _mm512_load_ps(e.x[i] + j));
            _mm512_store_ps(t->x[i] + j, _mm512_add_ps(_mm512_load_ps(t->x[i] + j), x));
        }
    }
}

/* t = two panels of a whole step. */
static void multiply_pair(const unsigned char *a, const unsigned char *b, int64_t n_rows,
                          int64_t kc, oct_bf16_sums *t) {
    set_to_zeros(t, n_rows);
    for (int64_t k = 0; k < kc; k += SEGMENT, a += SEGMENT_BYTES, b += SEGMENT_BYTES) {
        const oct_bf16_head *x = (const void *)a, *y = (const void *)b;
        const int64_t n = kc - k < SEGMENT ? kc - k : SEGMENT;
        if (x->special | y->special)
            multiply_special(x, y, n_rows, n, t);
        else
            multiply_segment(x, y, n_rows, n, t);
    }
}

static void multiply_block(const oct_gemm_block *block) {
    oct_bf16_sums t;
    for (int64_t i = 0; i < block->n_rows; i += R)
        for (int64_t j = 0; j < block->n_cols; j += R) {
            oct_output o = oct_output_of(block, i, j, R, t.x[0]);
            oct_output_prefetch(&o);
            multiply_pair(block->a + (size_t)(i / R) * block->a_stride,
                          block->b + (size_t)(j / R) * block->b_stride, o.n_rows, block->kc, &t);
            oct_output_write(&o, R);
        }
    if (block->next.n_rows > 0)
        pack_b(&block->next, block->next_panel);
    if (block->output == OCT_OUTPUT_STREAMED)
        _mm_sfence();
}

const oct_gemm_kernels oct_gemm_kernels_bf16 = {
    .MR = R,
    .NR = R,
    .k_step = STEP,
    .a_bytes_per_k = R * sizeof(uint16_t),
    .a_bytes_fixed = N_SEGMENTS * OCT_BF16_HEAD_BYTES + (OCT_BF16_PAIR - 1) * R * sizeof(uint16_t),
    .b_bytes_per_k = R * sizeof(uint16_t),
    .b_bytes_fixed = N_SEGMENTS * OCT_BF16_HEAD_BYTES + (OCT_BF16_PAIR - 1) * R * sizeof(uint16_t),
    .pack_a = pack_a,
    .pack_b = pack_b,
    .multiply_block = multiply_block,
    .store = oct_gemm_store_avx512,
};
