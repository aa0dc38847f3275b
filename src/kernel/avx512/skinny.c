/* `aligned` products of at most eight rows of A: the weights are read once, so they aren't packed.
 * Codes become fp32 registers of 16 of k, four rows of B at a time, and are multiplied at once.
 *
 * A panel of B is only a note of where its rows are. k inside a group of 64 is in the order that
 * decoding leaves it in: register q, lane i holds k = 4 i + order[q]; A is packed alike.
 *
 * Invariant: an element's sum depends on its row of A and its row of B only. */
#include "kernel/gemm_kernels.h"

#include <string.h>

#include "kernel/avx512/encode.h"
#include "kernel/avx512/gemm.h"
#include "kernel/avx512/pack.h"
#include "kernel/avx512/words.h"

enum {
    MR = OCT_SKINNY_ROWS,
    NR = 32,
    STEP = 4096,
    GROUP = 64, /* k decoded together: two blocks */
    BLOCK = OCT_MX_BLOCK
};

typedef struct panel_note {
    oct_operand operand;
    int64_t row, k;
} panel_note;

/* --- decoding --- */

typedef struct decoded {
    __m512 q[4];
} decoded;

OCT_INLINE decoded decode(const oct_word_table *t, __m512i codes, __m512 scale) {
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000u);
    oct_word_pair w = oct_look_up_words(t, codes);
    if (t->zero_is_nan) { /* 0x80 looked up zero */
        __m512i nan = _mm512_maskz_set1_epi8(w.nan_codes, (char)0xff);
        w.even = _mm512_or_si512(w.even, _mm512_slli_epi16(nan, 8));
        w.even = _mm512_or_si512(w.even, _mm512_and_si512(nan, _mm512_set1_epi16(0xff)));
        w.odd = _mm512_or_si512(w.odd, _mm512_srli_epi16(nan, 8));
        w.odd = _mm512_or_si512(w.odd, _mm512_andnot_si512(_mm512_set1_epi16(0xff), nan));
    }
    decoded d;
    d.q[0] = _mm512_castsi512_ps(_mm512_slli_epi32(w.even, 16));
    d.q[1] = _mm512_castsi512_ps(_mm512_and_si512(w.even, upper));
    d.q[2] = _mm512_castsi512_ps(_mm512_slli_epi32(w.odd, 16));
    d.q[3] = _mm512_castsi512_ps(_mm512_and_si512(w.odd, upper));
#pragma GCC unroll 4
    for (int q = 0; q < 4; q++)
        d.q[q] = _mm512_mul_ps(d.q[q], scale);
    return d;
}

/* The factors of the (at most 16) blocks that hold k .. k+n_k-1 of one row; k is a multiple of 32.
 */
OCT_INLINE __m512 block_scales(const oct_operand *x, int64_t row, int64_t k, int64_t n_k) {
    if (x->scaling == OCT_SCALING_TENSOR)
        return _mm512_set1_ps(((const float *)x->scales)[0]);
    if (x->scaling == OCT_SCALING_ROW)
        return _mm512_set1_ps(((const float *)x->scales)[row]);
    __mmask16 blocks = oct_lanes_below((n_k + BLOCK - 1) / BLOCK);
    const uint8_t *scales = x->scales;
    __m128i codes;
    if (x->layout == OCT_K_CONTIGUOUS) {
        int64_t p = x->block_rows == 1 ? row : row / BLOCK;
        codes =
            _mm_mask_loadu_epi8(_mm_set1_epi8(127), blocks, scales + p * x->ld_scales + k / BLOCK);
    } else {
        alignas(16) uint8_t bytes[16];
        for (int64_t b = 0; b < 16; b++)
            bytes[b] = blocks >> b & 1 ? scales[(k / BLOCK + b) * x->ld_scales + row / BLOCK] : 127;
        codes = _mm_load_si128((const __m128i *)bytes);
    }
    return oct_e8m0_lanes(_mm512_cvtepu8_epi32(codes));
}

/* Of group g of them: one for k below 32, one for the others. */
OCT_INLINE __m512 group_scale(__m512 blocks, int g) {
    const __m512i second = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    return _mm512_permutexvar_ps(_mm512_add_epi32(second, _mm512_set1_epi32(2 * g)), blocks);
}

/* --- packing --- */

static __m512i codes_of_row(const oct_operand *x, int64_t row, int64_t k, int64_t n_k) {
    const uint8_t *codes = x->data;
    alignas(64) uint8_t bytes[GROUP] = {0};
    if (x->layout == OCT_K_CONTIGUOUS)
        return _mm512_maskz_loadu_epi8(oct_bytes_below(n_k), codes + row * x->ld + k);
    for (int64_t i = 0; i < GROUP && i < n_k; i++)
        bytes[i] = codes[(k + i) * x->ld + row];
    return _mm512_load_si512(bytes);
}

/* [k / 64][row][4][16] floats. */
static void pack_a(const oct_operand *a, int64_t row, int64_t n_rows, int64_t k, int64_t kc,
                   void *panel) {
    float *to = panel;
    oct_word_table t = oct_word_table_make(a->dtype);
    for (int64_t i = 0; i < kc; i += GROUP)
        for (int64_t r = 0; r < n_rows; r++) {
            __m512 scale = group_scale(block_scales(a, row + r, k + i, kc - i), 0);
            decoded d = decode(&t, codes_of_row(a, row + r, k + i, kc - i), scale);
            for (int q = 0; q < 4; q++)
                _mm512_store_ps(to + (i * MR + r * GROUP) + 16 * q, d.q[q]);
        }
}

static void pack_b(const oct_operand *b, int64_t row, int64_t n_rows, int64_t k, int64_t kc,
                   void *panel) {
    (void)n_rows;
    (void)kc;
    *(panel_note *)panel = (panel_note){.operand = *b, .row = row, .k = k};
}

/* --- multiplying --- */

/* `rows` rows of A by `cols` rows of B, both constants. */
OCT_INLINE void multiply_rows(const float *a, const panel_note *b, int64_t first, int64_t kc,
                              float *acc, int64_t ld_acc, oct_accumulate accumulate, int rows,
                              int cols, bool zero_is_nan) {
    const oct_operand *x = &b->operand;
    const uint8_t *codes = (const uint8_t *)x->data + (b->row + first) * x->ld + b->k;
    oct_word_table t = oct_word_table_make(x->dtype);
    t.zero_is_nan = zero_is_nan;
    __m512 s[MR][4];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < cols; j++)
            s[i][j] = _mm512_setzero_ps();
    for (int64_t k = 0; k < kc; k += 8 * GROUP) {
        __m512 scales[4];
#pragma GCC unroll 4
        for (int j = 0; j < cols; j++)
            scales[j] = block_scales(x, b->row + first + j, b->k + k, kc - k);
        for (int g = 0; g < 8 && k + g * GROUP < kc; g++) {
            int64_t at = k + g * GROUP;
            __mmask64 valid = oct_bytes_below(kc - at);
            const float *from = a + at * MR;
#pragma GCC unroll 4
            for (int j = 0; j < cols; j++) {
                const uint8_t *c = codes + j * x->ld + at;
                _mm_prefetch((const char *)c + 1024, _MM_HINT_T0);
                decoded d =
                    decode(&t, _mm512_maskz_loadu_epi8(valid, c), group_scale(scales[j], g));
#pragma GCC unroll 8
                for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
                    for (int q = 0; q < 4; q++)
                        s[i][j] = _mm512_fmadd_ps(d.q[q], _mm512_load_ps(from + i * GROUP + 16 * q),
                                                  s[i][j]);
            }
        }
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++) {
            float *to = acc + i * ld_acc + first + j;
            float sum = _mm512_reduce_add_ps(s[i][j]);
            *to = accumulate == OCT_ADD_TO_OUTPUT ? *to + sum : sum;
        }
}

typedef void rows_fn(const float *a, const panel_note *b, int64_t first, int64_t kc, float *acc,
                     int64_t ld_acc, oct_accumulate accumulate);

#define ROWS(rows, cols)                                                                           \
    static void rows_##rows##_##cols(const float *a, const panel_note *b, int64_t first,           \
                                     int64_t kc, float *acc, int64_t ld_acc,                       \
                                     oct_accumulate accumulate) {                                  \
        if (b->operand.dtype == OCT_HIF8)                                                          \
            multiply_rows(a, b, first, kc, acc, ld_acc, accumulate, rows, cols, true);             \
        else                                                                                       \
            multiply_rows(a, b, first, kc, acc, ld_acc, accumulate, rows, cols, false);            \
    }
ROWS(1, 4)
ROWS(2, 4) ROWS(3, 4) ROWS(4, 4) ROWS(5, 2) ROWS(6, 2) ROWS(7, 2) ROWS(8, 2) ROWS(1, 1) ROWS(2, 1)
    ROWS(3, 1) ROWS(4, 1) ROWS(5, 1) ROWS(6, 1) ROWS(7, 1) ROWS(8, 1)
#undef ROWS

        static void multiply(const void *a_panel, const void *b_panel, int64_t kc, float *acc,
                             int64_t ld_acc, int64_t n_rows, int64_t n_cols,
                             oct_accumulate accumulate) {
    static rows_fn *const many[MR] = {rows_1_4, rows_2_4, rows_3_4, rows_4_4,
                                      rows_5_2, rows_6_2, rows_7_2, rows_8_2};
    static rows_fn *const one[MR] = {rows_1_1, rows_2_1, rows_3_1, rows_4_1,
                                     rows_5_1, rows_6_1, rows_7_1, rows_8_1};
    const int64_t width = n_rows <= 4 ? 4 : 2;
    int64_t j = 0;
    for (; j + width <= n_cols; j += width)
        many[n_rows - 1](a_panel, b_panel, j, kc, acc, ld_acc, accumulate);
    for (; j < n_cols; j++)
        one[n_rows - 1](a_panel, b_panel, j, kc, acc, ld_acc, accumulate);
}

const oct_gemm_kernels oct_gemm_skinny_kernels_avx512 = {
    .MR = MR,
    .NR = NR,
    .MC = MR,
    .NC = NR * 16,
    .k_step = STEP,
    .a_bytes_per_k = MR * sizeof(float),
    .a_bytes_fixed = (GROUP - 1) * MR * sizeof(float),
    .b_bytes_fixed = sizeof(panel_note),
    .pack_a = pack_a,
    .pack_b = pack_b,
    .multiply = multiply,
    .store = oct_gemm_store_avx512,
};
