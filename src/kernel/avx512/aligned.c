/* `aligned` products: int16 panels (aligned.h) multiplied by vpdpwssd, 32 multiply-adds an
 * instruction, and their residuals added in fp32.
 *
 *   sum_k a b = sum_k (ua ia + ra)(ub ib + rb)
 *             = ua ub sum_k ia ib  +  sum ra (ub ib)  +  sum a rb
 *
 * where the last two run over the listed residuals. Rows that integers don't serve (NaN, Inf,
 * extreme scales) and panels with too many residuals are computed from their codes in fp32, fused
 * multiply-adds in order of k.
 *
 * Invariant: an element's value depends on its two panels only, so it's the same for any tiling and
 * any number of threads. */
#include "kernel/gemm_kernels.h"

#include "kernel/avx512/aligned.h"
#include "kernel/avx512/encode.h"
#include "kernel/avx512/gemm.h"

enum {
    MR = OCT_ALIGNED_MR,
    NR = OCT_ALIGNED_NR,
    A_ROWS = OCT_ALIGNED_A_ROWS,
    BLOCK = OCT_MX_BLOCK
};

typedef oct_tile_sums sums;

static void pack_a(const oct_operand *a, int64_t row, int64_t n_rows, int64_t k, int64_t kc,
                   void *panel) {
    oct_aligned_pack(a, row, n_rows, k, kc, panel, A_ROWS);
}

static void pack_b(const oct_operand *b, int64_t row, int64_t n_rows, int64_t k, int64_t kc,
                   void *panel) {
    oct_aligned_pack(b, row, n_rows, k, kc, panel, NR);
}

/* --- integers --- */

/* t[i][j] += a_units[i] * b_units[j] * (sum over n_pairs (at least 1) of pairs of k of
 * a[pair][i] . b[pair][j]), i < MR.
 *
 * In assembly because compilers spill the 28 accumulators of the intrinsics; what it computes is
 *   s = sum_p a[p][i][0] * b[p][j][0] + a[p][i][1] * b[p][j][1] modulo 2^32
 *   t[i][j] = fma((float)s * a_units[i], b_units[j], t[i][j]). */
#define ZERO(n) "vpxord %%zmm" #n ", %%zmm" #n ", %%zmm" #n "\n\t"
#define ROW(offset, spare, first, second)                                                          \
    "vpbroadcastd " #offset "(%[a]), %%zmm" #spare "\n\t"                                          \
    "vpdpwssd %%zmm" #spare ", %%zmm28, %%zmm" #first "\n\t"                                       \
    "vpdpwssd %%zmm" #spare ", %%zmm29, %%zmm" #second "\n\t"
#define ADD_HALF(unit, to, n, b)                                                                   \
    "vcvtdq2ps %%zmm" #n ", %%zmm" #n "\n\t"                                                       \
    "vmulps " #unit "(%[a_units])%{1to16%}, %%zmm" #n ", %%zmm" #n "\n\t"                          \
    "vfmadd213ps " to "(%[t]), %%zmm" #b ", %%zmm" #n "\n\t"                                       \
    "vmovaps %%zmm" #n ", " to "(%[t])\n\t"
#define ADD(unit, to, first, second)                                                               \
    ADD_HALF(unit, #to, first, 28) ADD_HALF(unit, #to "+64", second, 29)

OCT_INLINE void add_chunk(const int16_t *a, const int16_t *b, int64_t n_pairs, const float *a_units,
                          const float *b_units, sums *t) {
    __asm__ volatile(
        ZERO(0) ZERO(1) ZERO(2) ZERO(3) ZERO(4) ZERO(5) ZERO(6) ZERO(7) ZERO(8) ZERO(9) ZERO(
            10) ZERO(11) ZERO(12) ZERO(13) ZERO(14) ZERO(15) ZERO(16) ZERO(17) ZERO(18) ZERO(19)
            ZERO(20) ZERO(21) ZERO(22) ZERO(23) ZERO(24) ZERO(25) ZERO(26) ZERO(
                27) ".p2align 6\n"
                    "1:\n\t"
                    "vmovdqa32 0(%[b]), %%zmm28\n\t"
                    "vmovdqa32 64(%[b]), %%zmm29\n\t"
                    "prefetcht0 2048(%[b])\n\t"
                    "prefetcht0 2112(%[b])\n\t" ROW(0, 30, 0, 1) ROW(4, 31, 2, 3) ROW(8, 30, 4, 5)
                        ROW(12, 31, 6, 7) ROW(16, 30, 8, 9) ROW(20, 31, 10, 11) ROW(24, 30, 12, 13)
                            ROW(28, 31, 14, 15) ROW(32, 30, 16, 17) ROW(36, 31, 18, 19)
                                ROW(40, 30, 20, 21) ROW(44, 31, 22, 23) ROW(48, 30, 24, 25) ROW(
                                    52, 31, 26,
                                    27) "vmovdqa32 128(%[b]), %%zmm28\n\t"
                                        "vmovdqa32 192(%[b]), %%zmm29\n\t"
                                        "prefetcht0 2176(%[b])\n\t"
                                        "prefetcht0 2240(%[b])\n\t" ROW(64, 30, 0, 1) ROW(
                                            68, 31,
                                            2, 3) ROW(72, 30, 4,
                                                      5) ROW(76, 31, 6, 7)
                                            ROW(80, 30, 8,
                                                9) ROW(84, 31, 10,
                                                       11) ROW(88, 30, 12,
                                                               13) ROW(92, 31, 14,
                                                                       15) ROW(96, 30, 16,
                                                                               17) ROW(100, 31, 18,
                                                                                       19) ROW(104,
                                                                                               30,
                                                                                               20,
                                                                                               21)
                                                ROW(108, 31, 22,
                                                    23) ROW(112, 30, 24, 25)
                                                    ROW(116, 31, 26,
                                                        27) "add $128, %[a]\n\t"
                                                            "sub $-256, %[b]\n\t"
                                                            "sub $2, %[n]\n\t"
                                                            "jnz 1b\n\t"
                                                            "vmovaps (%[b_units]), %%zmm28\n\t"
                                                            "vmovaps 64(%[b_units]), "
                                                            "%%zmm29\n\t" ADD(0, 0, 0, 1) ADD(
                                                                4, 128,
                                                                2, 3) ADD(8, 256, 4,
                                                                          5) ADD(12, 384, 6, 7)
                                                                ADD(16, 512, 8,
                                                                    9) ADD(20, 640, 10,
                                                                           11) ADD(24, 768, 12, 13)
                                                                    ADD(28, 896, 14,
                                                                        15) ADD(32, 1024, 16, 17)
                                                                        ADD(36, 1152, 18, 19) ADD(
                                                                            40, 1280, 20, 21)
                                                                            ADD(44, 1408, 22, 23)
                                                                                ADD(48, 1536, 24,
                                                                                    25)
                                                                                    ADD(52, 1664,
                                                                                        26, 27)
        : [a] "+r"(a), [b] "+r"(b), [n] "+r"(n_pairs)
        : [a_units] "r"(a_units), [b_units] "r"(b_units), [t] "r"(t->x)
        : "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
          "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18",
          "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27", "xmm28",
          "xmm29", "xmm30", "xmm31");
}
#undef ZERO
#undef ROW
#undef ADD_HALF
#undef ADD

/* --- a section: LONG_CHUNK of k, whose integers then are in L1 for its residuals --- */

static void add_integers(sums *t, const oct_panel *a, const oct_panel *b, int64_t k, int64_t end,
                         int64_t chunk) {
    for (; k < end; k += chunk)
        add_chunk(a->integers + k * A_ROWS, b->integers + k * NR,
                  (end - k < chunk ? end - k : chunk) / 2, a->units + k / BLOCK * A_ROWS,
                  b->units + k / BLOCK * NR, t);
}

/* t[row of A] += residual * (ub ib). */
static void add_a_residuals(sums *t, const oct_panel *b, const oct_residual **list, int64_t end) {
    static const int32_t up[2] = {16, 0}; /* the first of a pair is the lower half */
    const oct_residual *r = *list;
    for (; r->place < end; r++) {
        const int16_t *pairs = b->integers + (int64_t)(r->place / 2) * 2 * NR;
        const float *units = b->units + (int64_t)(r->place / BLOCK) * NR;
        const __m512 value = _mm512_set1_ps(r->value);
        const __m512i shift = _mm512_set1_epi32(up[r->place % 2]);
#pragma GCC unroll 2
        for (int j = 0; j < NR; j += 16) {
            __m512i x = _mm512_sllv_epi32(_mm512_load_si512(pairs + 2 * j), shift);
            __m512 y = _mm512_cvtepi32_ps(_mm512_srai_epi32(x, 16));
            float *to = t->x[r->row] + j;
            y = _mm512_mul_ps(y, _mm512_load_ps(units + j));
            _mm512_store_ps(to, _mm512_fmadd_ps(value, y, _mm512_load_ps(to)));
        }
    }
    *list = r;
}

/* columns[j] += what the residuals of row j of B add to the tile's column j. */
static void add_b_residuals(float columns[NR][A_ROWS], const oct_panel *a,
                            const oct_residual **list, int64_t end) {
    static const int32_t up[2] = {16, 0};
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000u);
    const oct_residual *r = *list;
    for (; r->place < end; r++) {
        float *to = columns[r->row];
        __m512i both = _mm512_load_si512(a->values + (int64_t)(r->place / 2) * 2 * A_ROWS);
        both = _mm512_sllv_epi32(both, _mm512_set1_epi32(up[r->place % 2]));
        __m512 x = _mm512_castsi512_ps(_mm512_and_si512(both, upper));
        _mm512_store_ps(to, _mm512_fmadd_ps(_mm512_set1_ps(r->value), x, _mm512_load_ps(to)));
    }
    *list = r;
}

static void prefetch_values(const oct_panel *a, const oct_residual *list, int64_t end) {
    for (const oct_residual *r = list; r->place < end; r++)
        _mm_prefetch((const char *)(a->values + (int64_t)(r->place / 2) * 2 * A_ROWS), _MM_HINT_T0);
}

/* t += the transposed columns, times A's scales. */
static void add_columns(sums *t, float columns[NR][A_ROWS], const float *row_scales) {
    const __m512 scales = _mm512_load_ps(row_scales);
    for (int j = 0; j < NR; j += 16) {
        __m512i v[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            v[i] = _mm512_castps_si512(_mm512_mul_ps(_mm512_load_ps(columns[j + i]), scales));
        oct_transpose_16x16(v);
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            float *to = t->x[i] + j;
            _mm512_store_ps(to, _mm512_add_ps(_mm512_load_ps(to), _mm512_castsi512_ps(v[i])));
        }
    }
}

/* Not memset, which takes longer to start than this to run. */
static void set_to_zeros(float x[][16], int64_t n) {
#pragma GCC unroll 8
    for (int64_t i = 0; i < n; i++)
        _mm512_store_ps(x[i], _mm512_setzero_ps());
}

static void multiply_integers(sums *t, const oct_panel *a, const oct_panel *b, int64_t kc) {
    const int64_t padded = (kc + 3) / 4 * 4;
    const int64_t chunk = a->head->chunk < b->head->chunk ? a->head->chunk : b->head->chunk;
    const bool in_b = b->head->n_residuals[0] + b->head->n_residuals[1] > 0;
    /* In order of k / 4: each is where the next section begins. */
    const oct_residual *in_a = a->residuals[0];
    const oct_residual *b_low = b->residuals[0], *b_high = b->residuals[1];
    alignas(64) float columns[NR][A_ROWS];
    set_to_zeros((float(*)[16])t->x, A_ROWS * NR / 16);
    if (in_b)
        set_to_zeros(columns, NR);
    for (int64_t k = 0; k < padded; k += OCT_ALIGNED_LONG_CHUNK) {
        int64_t end = k + OCT_ALIGNED_LONG_CHUNK < padded ? k + OCT_ALIGNED_LONG_CHUNK : padded;
        prefetch_values(a, b_low, end);
        prefetch_values(a, b_high, end);
        add_integers(t, a, b, k, end, chunk);
        add_a_residuals(t, b, &in_a, end);
        add_b_residuals(columns, a, &b_low, end);
        add_b_residuals(columns, a, &b_high, end);
    }
    if (in_b)
        add_columns(t, columns, a->row_scales);
}

/* --- the whole --- */

/* Special rows of A and columns of B. */
static void replace_special(sums *t, const oct_panel *a, const oct_panel *b, int64_t kc) {
    uint32_t a_rows = a->head->special_rows, b_rows = b->head->special_rows;
    sums s;
    oct_aligned_multiply_codes(a, b, kc, &s);
    for (int i = 0; i < MR; i++) {
        uint32_t columns = a_rows >> i & 1 ? 0xffffffffu : b_rows;
        for (int j = 0; j < NR; j += 16)
            _mm512_mask_store_ps(t->x[i] + j, (__mmask16)(columns >> j),
                                 _mm512_load_ps(s.x[i] + j));
    }
}

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

/* Fetched while the integers are multiplied. */
static void prefetch_output(const float *acc, int64_t ld_acc, int64_t n_rows) {
    for (int64_t i = 0; i < n_rows; i++) {
        __builtin_prefetch(acc + i * ld_acc, 1, 2);
        __builtin_prefetch(acc + i * ld_acc + 16, 1, 2);
    }
}

static void multiply(const void *a_panel, const void *b_panel, int64_t kc, float *acc,
                     int64_t ld_acc, int64_t n_rows, int64_t n_cols, oct_accumulate accumulate) {
    /* Panels are only read from here on. */
    const oct_panel a = oct_panel_at((void *)(uintptr_t)a_panel, kc, A_ROWS);
    const oct_panel b = oct_panel_at((void *)(uintptr_t)b_panel, kc, NR);
    sums t;
    prefetch_output(acc, ld_acc, n_rows);
    if (a.head->by_codes || b.head->by_codes) {
        oct_aligned_multiply_codes(&a, &b, kc, &t);
    } else {
        multiply_integers(&t, &a, &b, kc);
        if (a.head->special_rows | b.head->special_rows)
            replace_special(&t, &a, &b, kc);
    }
    add_to(&t, acc, ld_acc, n_rows, n_cols, accumulate);
}

const oct_gemm_kernels oct_gemm_aligned_kernels_avx512 = {
    .MR = MR,
    .NR = NR,
    .MC = MR * 24,
    .NC = NR * 4,
    .k_step = OCT_ALIGNED_STEP,
    .a_bytes_per_k = OCT_PANEL_A_BYTES_PER_K,
    .a_bytes_fixed = OCT_PANEL_BYTES_FIXED(OCT_PANEL_A_BYTES_PER_K),
    .b_bytes_per_k = OCT_PANEL_B_BYTES_PER_K,
    .b_bytes_fixed = OCT_PANEL_BYTES_FIXED(OCT_PANEL_B_BYTES_PER_K),
    .pack_a = pack_a,
    .pack_b = pack_b,
    .multiply = multiply,
    .store = oct_gemm_store_avx512,
};
