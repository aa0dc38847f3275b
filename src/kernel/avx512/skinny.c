/* `aligned` products of at most eight rows of A: the weights are read once, so they aren't packed.
 * Codes become fp32 registers of 16 of k, a few rows of B at a time, and are multiplied at once.
 *
 * A panel of B is only a note of where its rows are. k inside a group of 64 is in the order that
 * decoding leaves it in; A is packed alike.
 *
 * Invariant: an element's sum depends on its row of A and its row of B only. */
#include "kernel/avx512/encode.h"
#include "kernel/avx512/gemm.h"
#include "kernel/avx512/words.h"
#include "kernel/gemm_kernels.h"

enum {
    MR = OCT_SKINNY_ROWS,
    NR = 32,
    STEP = 4096,
    GROUP = 64, /* k decoded together: two blocks */
    BLOCK = OCT_MX_BLOCK,
    SCALES_AT_ONCE = 16 * BLOCK, /* k whose scales are loaded together */
    CHUNK = 1024,                /* k whose sum is begun anew */
    MAX_COLS = 4                 /* rows of B at a time */
};

/* --- decoding --- */

/* 64 of k, in an order of their own. */
typedef struct decoded {
    __m512 q[4];
} decoded;

OCT_INLINE decoded decode(const oct_word_table *t, __m512i codes, __m512 scale) {
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000u);
    const __m512i sign = _mm512_set1_epi8((char)0x80);
    __m512i low = _mm512_permutex2var_epi8(t->low[0], codes, t->low[1]);
    __m512i high = _mm512_permutex2var_epi8(t->high[0], codes, t->high[1]);
    high = _mm512_ternarylogic_epi32(high, codes, sign, 0xf8);
    if (t->zero_is_nan) { /* 0x80 looked up zero */
        __mmask64 nan = _mm512_cmpeq_epi8_mask(codes, sign);
        low = _mm512_mask_set1_epi8(low, nan, (char)0xff);
        high = _mm512_mask_set1_epi8(high, nan, (char)0xff);
    }
    __m512i first = _mm512_unpacklo_epi8(low, high), second = _mm512_unpackhi_epi8(low, high);
    decoded d;
    d.q[0] = _mm512_castsi512_ps(_mm512_slli_epi32(first, 16));
    d.q[1] = _mm512_castsi512_ps(_mm512_and_si512(first, upper));
    d.q[2] = _mm512_castsi512_ps(_mm512_slli_epi32(second, 16));
    d.q[3] = _mm512_castsi512_ps(_mm512_and_si512(second, upper));
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
    __mmask16 blocks = oct_lanes_below((n_k + OCT_MX_BLOCK - 1) / OCT_MX_BLOCK);
    const uint8_t *scales = x->scales;
    __m128i codes;
    if (x->layout == OCT_K_CONTIGUOUS) {
        int64_t p = x->block_rows == 1 ? row : row / OCT_MX_BLOCK;
        codes = _mm_mask_loadu_epi8(_mm_set1_epi8(127), blocks,
                                    scales + p * x->ld_scales + k / OCT_MX_BLOCK);
    } else {
        alignas(16) uint8_t bytes[16];
        for (int64_t b = 0; b < 16; b++)
            bytes[b] = blocks >> b & 1
                           ? scales[(k / OCT_MX_BLOCK + b) * x->ld_scales + row / OCT_MX_BLOCK]
                           : 127;
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

/* A panel of B: where its rows are. */
typedef struct panel_note {
    oct_operand operand;
    int64_t row, k;
} panel_note;

static inline void pack_b(const oct_operand *b, int64_t row, int64_t n_rows, int64_t k, int64_t kc,
                          void *panel) {
    (void)n_rows;
    (void)kc;
    *(panel_note *)panel = (panel_note){.operand = *b, .row = row, .k = k};
}

OCT_INLINE __m512i codes_of_row(const oct_operand *x, int64_t row, int64_t k, int64_t n_k) {
    const uint8_t *codes = x->data;
    alignas(64) uint8_t bytes[GROUP] = {0};
    if (x->layout == OCT_K_CONTIGUOUS)
        return _mm512_maskz_loadu_epi8(oct_bytes_below(n_k), codes + row * x->ld + k);
    for (int64_t i = 0; i < GROUP && i < n_k; i++)
        bytes[i] = codes[(k + i) * x->ld + row];
    return _mm512_load_si512(bytes);
}

/* [k / 64][row][4][16] floats, of n_rows rows. */
static void pack_a(const oct_operand *a, int64_t row, int64_t n_rows, int64_t k, int64_t kc,
                   void *panel) {
    float *to = panel;
    oct_word_table t = oct_word_table_make(a->dtype);
    for (int64_t i = 0; i < kc; i += GROUP)
        for (int64_t r = 0; r < n_rows; r++, to += GROUP) {
            __m512 scale = group_scale(block_scales(a, row + r, k + i, kc - i), 0);
            decoded d = decode(&t, codes_of_row(a, row + r, k + i, kc - i), scale);
            for (int q = 0; q < 4; q++)
                _mm512_store_ps(to + 16 * q, d.q[q]);
        }
}

/* --- multiplying --- */

/* While the code at k of a row's kc codes is read: a little further in the row, or, `beyond`
 * further, at the beginning of what is read after it. */
OCT_INLINE void prefetch_codes(const uint8_t *codes, int64_t k, int64_t kc, int64_t beyond) {
    enum { DISTANCE = 1024 };
    _mm_prefetch((const char *)codes + DISTANCE + (k + DISTANCE < kc ? 0 : beyond), _MM_HINT_T0);
}

/* Some rows of B on their way through the registers. */
typedef struct reading {
    const panel_note *b;
    const uint8_t *codes;
    int64_t first, kc, beyond;
    oct_word_table table;
    __m512 scales[MAX_COLS]; /* of 16 blocks of each row */
} reading;

OCT_INLINE reading begin_reading(const panel_note *b, int64_t first, int64_t kc, int64_t beyond,
                                 bool zero_is_nan) {
    const oct_operand *x = &b->operand;
    reading r = {
        .b = b, .first = first, .kc = kc, .beyond = beyond, .table = oct_word_table_make(x->dtype)};
    r.codes = (const uint8_t *)x->data + (b->row + first) * x->ld + b->k;
    r.table.zero_is_nan = zero_is_nan;
    return r;
}

/* The codes of the group at k of row j, and their factors in *scale. k ascends by groups
 * from 0. */
OCT_INLINE __m512i next_codes(reading *r, int64_t k, int j, __m512 *scale) {
    const oct_operand *x = &r->b->operand;
    const uint8_t *codes = r->codes + j * x->ld + k;
    if (k % SCALES_AT_ONCE == 0)
        r->scales[j] = block_scales(x, r->b->row + r->first + j, r->b->k + k, r->kc - k);
    prefetch_codes(codes, k, r->kc, r->beyond);
    *scale = group_scale(r->scales[j], (int)(k / GROUP % 8));
    return _mm512_maskz_loadu_epi8(oct_bytes_below(r->kc - k), codes);
}

/* `rows` rows of A by `cols` rows of B, both constants. */
OCT_INLINE void multiply_rows(const float *a, const panel_note *b, int64_t first, int64_t kc,
                              int64_t beyond, float *acc, int64_t ld_acc, oct_accumulate accumulate,
                              int rows, int cols, bool zero_is_nan) {
    reading r = begin_reading(b, first, kc, beyond, zero_is_nan);
    __m512 s[MR][MAX_COLS];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < cols; j++)
            s[i][j] = _mm512_setzero_ps();
    for (int64_t k = 0; k < kc; k += GROUP, a += rows * GROUP) {
        decoded d[MAX_COLS];
#pragma GCC unroll 4
        for (int j = 0; j < cols; j++) {
            __m512 scale;
            __m512i codes = next_codes(&r, k, j, &scale);
            d[j] = decode(&r.table, codes, scale);
        }
#pragma GCC unroll 4
        for (int q = 0; q < 4; q++)
#pragma GCC unroll 8
            for (int i = 0; i < rows; i++) {
                __m512 x = _mm512_load_ps(a + i * GROUP + 16 * q);
                __asm__("" : "+v"(x)); /* or each row of B would load it, which takes longer */
#pragma GCC unroll 4
                for (int j = 0; j < cols; j++)
                    s[i][j] = _mm512_fmadd_ps(d[j].q[q], x, s[i][j]);
            }
    }
    /* Unrolled, or the sums would live in memory. */
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < cols; j++) {
            float *to = acc + i * ld_acc + first + j, sum = _mm512_reduce_add_ps(s[i][j]);
            *to = accumulate == OCT_ADD_TO_OUTPUT ? *to + sum : sum;
        }
}

/* Rows of A by some rows of B, from `first` on, for kc of k. */
typedef void rows_fn(const float *a, const panel_note *b, int64_t first, int64_t kc, int64_t beyond,
                     float *acc, int64_t ld_acc, oct_accumulate accumulate);

#define ROWS_FN(rows, cols)                                                                        \
    static void rows_##rows##_##cols(const float *a, const panel_note *b, int64_t first,           \
                                     int64_t kc, int64_t beyond, float *acc, int64_t ld_acc,       \
                                     oct_accumulate accumulate) {                                  \
        if (b->operand.dtype == OCT_HIF8)                                                          \
            multiply_rows(a, b, first, kc, beyond, acc, ld_acc, accumulate, rows, cols, true);     \
        else                                                                                       \
            multiply_rows(a, b, first, kc, beyond, acc, ld_acc, accumulate, rows, cols, false);    \
    }
#define ROWS_FNS(rows, cols) ROWS_FN(rows, cols) ROWS_FN(rows, 1)

ROWS_FNS(1, 4)
ROWS_FNS(2, 4)
ROWS_FNS(3, 2)
ROWS_FNS(4, 2)
ROWS_FNS(5, 2)
ROWS_FNS(6, 2)
ROWS_FNS(7, 2)
ROWS_FNS(8, 2)

#undef ROWS_FNS
#undef ROWS_FN

/* An element's sum is that of chunks of k, each of which leaves eight rows of A in L1. One or two
 * rows stay there whole, so B is read along its rows; else chunk by chunk of the panel. */
static void multiply(const void *a_panel, const void *b_panel, int64_t kc, float *acc,
                     int64_t ld_acc, int64_t n_rows, int64_t n_cols, oct_accumulate accumulate) {
    static rows_fn *const many[MR] = {rows_1_4, rows_2_4, rows_3_2, rows_4_2,
                                      rows_5_2, rows_6_2, rows_7_2, rows_8_2};
    static rows_fn *const one[MR] = {rows_1_1, rows_2_1, rows_3_1, rows_4_1,
                                     rows_5_1, rows_6_1, rows_7_1, rows_8_1};
    const bool along = n_rows <= 2;
    const int64_t width = along ? 4 : 2, step = along ? width : NR;
    panel_note b = *(const panel_note *)b_panel;
    const int64_t ld = b.operand.ld, begin = b.k;
    for (int64_t first = 0; first < n_cols; first += step)
        for (int64_t k = 0; k < kc; k += CHUNK) {
            const float *a = (const float *)a_panel + k * n_rows;
            const int64_t n = kc - k < CHUNK ? kc - k : CHUNK;
            const int64_t end = n_cols - first < step ? n_cols : first + step;
            const int64_t beyond = !along ? width * ld - n : k + n < kc ? 0 : width * ld - kc;
            const oct_accumulate how = k > 0 ? OCT_ADD_TO_OUTPUT : accumulate;
            int64_t j = first;
            b.k = begin + k;
            for (; j + width <= end; j += width)
                many[n_rows - 1](a, &b, j, n, beyond, acc, ld_acc, how);
            for (; j < end; j++)
                one[n_rows - 1](a, &b, j, n, beyond, acc, ld_acc, how);
        }
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
