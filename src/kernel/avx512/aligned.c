/* `aligned` products: int16 panels (aligned.h) multiplied by vpdpwssd, 32 multiply-adds an
 * instruction, and their residuals added in fp32.
 *
 *   sum_k a b = sum_k (ua ia + ra)(ub ib + rb)
 *             = ua ub sum_k ia ib  +  sum ra ub ib  +  sum (ua ia) rb  +  sum ra rb
 *
 * where the last three run over the listed residuals. Rows that integers don't serve (NaN, Inf,
 * extreme scales) and panels with too many residuals are computed from their codes in fp32, fused
 * multiply-adds in order of k.
 *
 * Invariant: an element's value depends on its two panels only, so it's the same for any tiling and
 * any number of threads. */
#include "kernel/gemm_kernels.h"

#include <string.h>

#include "kernel/avx512/aligned.h"
#include "kernel/avx512/encode.h"
#include "kernel/avx512/gemm.h"
#include "kernel/code_words.h"

enum {
    MR = OCT_ALIGNED_MR,
    NR = OCT_ALIGNED_NR,
    A_ROWS = 16, /* of a panel of A, the last two zero */
    BLOCK = OCT_MX_BLOCK
};

/* The tile of one step. */
typedef struct sums {
    alignas(64) float x[A_ROWS][NR];
} sums;

static void pack_a(const oct_operand *a, int64_t row, int64_t n_rows, int64_t k, int64_t kc,
                   void *panel) {
    oct_aligned_pack(a, row, n_rows, k, kc, panel, A_ROWS);
}

static void pack_b(const oct_operand *b, int64_t row, int64_t n_rows, int64_t k, int64_t kc,
                   void *panel) {
    oct_aligned_pack(b, row, n_rows, k, kc, panel, NR);
}

/* --- integers --- */

/* out[i][j] = sum over n_pairs (at least 1) of pairs of k of a[pair][i] . b[pair][j], i < MR.
 *
 * In assembly because compilers spill the 28 accumulators of the intrinsics; what it computes is
 *   out[i][j] = sum_p a[p][i][0] * b[p][j][0] + a[p][i][1] * b[p][j][1] modulo 2^32. */
#define ZERO(n) "vpxord %%zmm" #n ", %%zmm" #n ", %%zmm" #n "\n\t"
#define ROW(offset, spare, first, second)                                                          \
    "vpbroadcastd " #offset "(%[a]), %%zmm" #spare "\n\t"                                          \
    "vpdpwssd %%zmm" #spare ", %%zmm28, %%zmm" #first "\n\t"                                       \
    "vpdpwssd %%zmm" #spare ", %%zmm29, %%zmm" #second "\n\t"
#define STORE(n, offset) "vmovdqa32 %%zmm" #n ", " #offset "(%[out])\n\t"

static void multiply_pairs(const int16_t *a, const int16_t *b, int64_t n_pairs,
                           int32_t out[MR][NR]) {
    __asm__ volatile(
        ZERO(0) ZERO(1) ZERO(2) ZERO(3) ZERO(4) ZERO(5) ZERO(6) ZERO(7) ZERO(8) ZERO(9) ZERO(
            10) ZERO(11) ZERO(12) ZERO(13) ZERO(14) ZERO(15) ZERO(16) ZERO(17) ZERO(18) ZERO(19)
            ZERO(20) ZERO(21) ZERO(22) ZERO(23) ZERO(24) ZERO(25) ZERO(26) ZERO(
                27) ".p2align 5\n"
                    "1:\n\t"
                    "vmovdqa32 (%[b]), %%zmm28\n\t"
                    "vmovdqa32 64(%[b]), %%zmm29\n\t"
                    "prefetcht0 2048(%[b])\n\t"
                    "prefetcht0 2112(%[b])\n\t" ROW(0, 30, 0, 1) ROW(4, 31, 2, 3) ROW(8, 30, 4, 5)
                        ROW(12, 31, 6, 7) ROW(16, 30, 8, 9) ROW(20, 31, 10, 11) ROW(24, 30, 12, 13)
                            ROW(28, 31, 14, 15) ROW(32, 30, 16, 17) ROW(36, 31, 18, 19)
                                ROW(40, 30, 20, 21) ROW(44, 31, 22, 23) ROW(48, 30, 24, 25) ROW(
                                    52, 31, 26,
                                    27) "add $64, %[a]\n\t"
                                        "sub $-128, %[b]\n\t"
                                        "dec %[n]\n\t"
                                        "jnz 1b\n\t" STORE(
                                            0, 0) STORE(1, 64)
                                            STORE(2, 128) STORE(
                                                3, 192) STORE(4, 256)
                                                STORE(5, 320) STORE(
                                                    6, 384) STORE(7, 448)
                                                    STORE(8, 512) STORE(
                                                        9, 576) STORE(10, 640)
                                                        STORE(11, 704) STORE(12, 768) STORE(13, 832)
                                                            STORE(14, 896) STORE(15, 960) STORE(
                                                                16, 1024) STORE(17, 1088)
                                                                STORE(18,
                                                                      1152) STORE(19, 1216)
                                                                    STORE(20,
                                                                          1280) STORE(21, 1344)
                                                                        STORE(22,
                                                                              1408) STORE(23, 1472)
                                                                            STORE(24, 1536)
                                                                                STORE(25, 1600)
                                                                                    STORE(26, 1664)
                                                                                        STORE(27,
                                                                                              1728)
        : [a] "+r"(a), [b] "+r"(b), [n] "+r"(n_pairs)
        : [out] "r"(out)
        : "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
          "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18",
          "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27", "xmm28",
          "xmm29", "xmm30", "xmm31");
}
#undef ZERO
#undef ROW
#undef STORE

/* The chunk's integer sums, in their units, into the tile. */
OCT_INLINE void add_chunk(sums *t, int32_t sum[MR][NR], const float *a_units,
                          const float *b_units) {
    const __m512 b0 = _mm512_load_ps(b_units), b1 = _mm512_load_ps(b_units + 16);
#pragma GCC unroll 14
    for (int i = 0; i < MR; i++) {
        __m512 u = _mm512_set1_ps(a_units[i]);
        __m512 s0 = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sum[i])), u);
        __m512 s1 = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_load_si512(sum[i] + 16)), u);
        _mm512_store_ps(t->x[i], _mm512_fmadd_ps(s0, b0, _mm512_load_ps(t->x[i])));
        _mm512_store_ps(t->x[i] + 16, _mm512_fmadd_ps(s1, b1, _mm512_load_ps(t->x[i] + 16)));
    }
}

static void add_integers(sums *t, const oct_panel *a, const oct_panel *b, int64_t kc) {
    const int64_t padded = (kc + 3) / 4 * 4;
    int64_t chunk = a->head->chunk < b->head->chunk ? a->head->chunk : b->head->chunk;
    alignas(64) int32_t sum[MR][NR];
    for (int64_t k = 0; k < padded; k += chunk) {
        int64_t n = padded - k < chunk ? padded - k : chunk;
        multiply_pairs(a->integers + k * A_ROWS, b->integers + k * NR, n / 2, sum);
        add_chunk(t, sum, a->units + k / BLOCK * A_ROWS, b->units + k / BLOCK * NR);
    }
}

/* --- residuals --- */

/* Sixteen rows' integers at k, as fp32. */
OCT_INLINE __m512 integers_at(const int16_t *integers, int64_t k, int64_t rows) {
    /* k inside a quad is stored as 0 2 1 3: pairs (0, 2) and (1, 3). */
    int64_t pair = k / 4 * 2 + (k & 1);
    __m512i both = _mm512_load_si512(integers + pair * rows * 2);
    unsigned up = k & 2 ? 0 : 16; /* the earlier one is the lower half */
    return _mm512_cvtepi32_ps(
        _mm512_srai_epi32(_mm512_sll_epi32(both, _mm_cvtsi32_si128((int)up)), 16));
}

static void add_a_residuals(sums *t, const oct_panel *a, const oct_panel *b) {
    for (int64_t i = 0; i < a->head->n_residuals[0]; i++) {
        oct_residual r = a->residuals[0][i];
        const float *units = b->units + r.k / BLOCK * NR;
        __m512 value = _mm512_set1_ps(r.value);
#pragma GCC unroll 2
        for (int j = 0; j < NR; j += 16) {
            __m512 y =
                _mm512_mul_ps(integers_at(b->integers + 2 * j, r.k, NR), _mm512_load_ps(units + j));
            float *to = t->x[r.row] + j;
            _mm512_store_ps(to, _mm512_fmadd_ps(value, y, _mm512_load_ps(to)));
        }
    }
}

/* columns[j] = what the residuals of row j of B add to the tile's column j. */
static void add_b_residuals(float columns[NR][A_ROWS], const oct_panel *a, const oct_panel *b) {
    for (int group = 0; group < 2; group++) {
        for (int64_t i = 0; i < b->head->n_residuals[group]; i++) {
            oct_residual r = b->residuals[group][i];
            __m512 x = _mm512_mul_ps(integers_at(a->integers, r.k, A_ROWS),
                                     _mm512_load_ps(a->units + r.k / BLOCK * A_ROWS));
            float *to = columns[r.row];
            _mm512_store_ps(to, _mm512_fmadd_ps(_mm512_set1_ps(r.value), x, _mm512_load_ps(to)));
        }
    }
}

/* Where both have a residual at the same k. Lists are in order of k / 4. */
static void add_common_residuals(sums *t, const oct_panel *a, const oct_panel *b) {
    for (int group = 0; group < 2; group++) {
        const oct_residual *rb = b->residuals[group], *end = rb + b->head->n_residuals[group];
        for (int64_t i = 0; i < a->head->n_residuals[0] && rb < end; i++) {
            oct_residual ra = a->residuals[0][i];
            while (rb < end && rb->k / 4 < ra.k / 4)
                rb++;
            for (const oct_residual *r = rb; r < end && r->k / 4 == ra.k / 4; r++)
                if (r->k == ra.k)
                    t->x[ra.row][r->row] += ra.value * r->value;
        }
    }
}

static void add_columns(sums *t, float columns[NR][A_ROWS]) {
    for (int j = 0; j < NR; j += 16) {
        __m512i v[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            v[i] = _mm512_load_si512(columns[j + i]);
        oct_transpose_16x16(v);
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            float *to = t->x[i] + j;
            _mm512_store_ps(to, _mm512_add_ps(_mm512_load_ps(to), _mm512_castsi512_ps(v[i])));
        }
    }
}

static void add_residuals(sums *t, const oct_panel *a, const oct_panel *b) {
    bool in_b = b->head->n_residuals[0] + b->head->n_residuals[1] > 0;
    add_a_residuals(t, a, b);
    if (!in_b)
        return;
    alignas(64) float columns[NR][A_ROWS] = {{0}};
    add_b_residuals(columns, a, b);
    add_columns(t, columns);
    add_common_residuals(t, a, b);
}

/* --- from the codes --- */

/* Sixteen rows at k. */
OCT_INLINE __m512 decoded_at(const oct_panel *p, const oct_code_table *table, int64_t k,
                             int64_t rows, int64_t first) {
    __m512i quad = _mm512_load_si512(p->codes + (k / 4 * rows + first) * 4);
    __m512i code = _mm512_and_si512(_mm512_srl_epi32(quad, _mm_cvtsi32_si128((int)(k % 4) * 8)),
                                    _mm512_set1_epi32(0xff));
    return _mm512_mul_ps(oct_decode_lanes(table, code),
                         _mm512_load_ps(p->factors + k / BLOCK * rows + first));
}

/* The whole tile as `exact` would have it, each chunk of OCT_GEMM_K_CHUNK from 0. */
static __attribute__((noinline)) void multiply_codes(sums *t, const oct_panel *a,
                                                     const oct_panel *b, int64_t kc) {
    oct_code_table a_table = oct_code_table_load(oct_code_words(a->head->dtype), a->head->dtype);
    oct_code_table b_table = oct_code_table_load(oct_code_words(b->head->dtype), b->head->dtype);
    memset(t, 0, sizeof *t);
    for (int64_t first = 0; first < kc; first += OCT_GEMM_K_CHUNK) {
        int64_t last = kc - first < OCT_GEMM_K_CHUNK ? kc : first + OCT_GEMM_K_CHUNK;
        sums s = {0};
        for (int64_t k = first; k < last; k++) {
            alignas(64) float x[A_ROWS];
            _mm512_store_ps(x, decoded_at(a, &a_table, k, A_ROWS, 0));
            for (int j = 0; j < NR; j += 16) {
                __m512 y = decoded_at(b, &b_table, k, NR, j);
                for (int i = 0; i < MR; i++)
                    _mm512_store_ps(s.x[i] + j, _mm512_fmadd_ps(_mm512_set1_ps(x[i]), y,
                                                                _mm512_load_ps(s.x[i] + j)));
            }
        }
        for (int i = 0; i < MR; i++)
            for (int j = 0; j < NR; j += 16) {
                __m512 sum = _mm512_load_ps(s.x[i] + j);
                if (first > 0)
                    sum = _mm512_add_ps(_mm512_load_ps(t->x[i] + j), sum);
                _mm512_store_ps(t->x[i] + j, sum);
            }
    }
}

/* Special rows of A and columns of B. */
static void replace_special(sums *t, const oct_panel *a, const oct_panel *b, int64_t kc) {
    uint32_t a_rows = a->head->special_rows, b_rows = b->head->special_rows;
    sums s;
    multiply_codes(&s, a, b, kc);
    for (int i = 0; i < MR; i++) {
        uint32_t columns = a_rows >> i & 1 ? 0xffffffffu : b_rows;
        for (int j = 0; j < NR; j += 16)
            _mm512_mask_store_ps(t->x[i] + j, (__mmask16)(columns >> j),
                                 _mm512_load_ps(s.x[i] + j));
    }
}

/* --- the whole --- */

static void add_to(const sums *t, float *acc, int64_t ld_acc, int64_t n_rows, int64_t n_cols,
                   oct_accumulate accumulate) {
    const __mmask16 mask[2] = {oct_lanes_below(n_cols), oct_lanes_below(n_cols - 16)};
    for (int64_t i = 0; i < n_rows; i++)
        for (int j = 0; j < 2; j++) {
            float *to = acc + i * ld_acc + 16 * j;
            __m512 x = _mm512_load_ps(t->x[i] + 16 * j);
            if (accumulate == OCT_ADD_TO_OUTPUT)
                x = _mm512_add_ps(_mm512_maskz_loadu_ps(mask[j], to), x);
            _mm512_mask_storeu_ps(to, mask[j], x);
        }
}

static void multiply(const void *a_panel, const void *b_panel, int64_t kc, float *acc,
                     int64_t ld_acc, int64_t n_rows, int64_t n_cols, oct_accumulate accumulate) {
    /* Panels are only read from here on. */
    const oct_panel a = oct_panel_at((void *)(uintptr_t)a_panel, kc, A_ROWS);
    const oct_panel b = oct_panel_at((void *)(uintptr_t)b_panel, kc, NR);
    sums t;
    if (a.head->by_codes || b.head->by_codes) {
        multiply_codes(&t, &a, &b, kc);
    } else {
        memset(&t, 0, sizeof t);
        add_integers(&t, &a, &b, kc);
        add_residuals(&t, &a, &b);
        if (a.head->special_rows | b.head->special_rows)
            replace_special(&t, &a, &b, kc);
    }
    add_to(&t, acc, ld_acc, n_rows, n_cols, accumulate);
}

const oct_gemm_kernels oct_gemm_aligned_kernels_avx512 = {
    .MR = MR,
    .NR = NR,
    .MC = MR * 24,
    .NC = NR * 16,
    .k_step = OCT_ALIGNED_STEP,
    .a_bytes_per_k = OCT_PANEL_BYTES_PER_K(A_ROWS),
    .a_bytes_fixed = OCT_PANEL_BYTES_FIXED(A_ROWS),
    .b_bytes_per_k = OCT_PANEL_BYTES_PER_K(NR),
    .b_bytes_fixed = OCT_PANEL_BYTES_FIXED(NR),
    .pack_a = pack_a,
    .pack_b = pack_b,
    .multiply = multiply,
    .store = oct_gemm_store_avx512,
};
