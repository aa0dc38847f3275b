/* The quantizers in AVX-512. docs/numerics.md has the rules, kernel/quantize.h the shapes.
 *
 * Row blocks: 16 blocks of a row at a time, so that scales are computed 16 a register. Column
 * blocks: 16 columns by 64 rows at a time; four rows' codes merge into one register, and a 16x16
 * transpose of dwords then gives 64 consecutive codes of each column.
 *
 * Invariant: loads and stores are masked at the edges; nothing outside the named elements is
 * touched. dtype and format are constants inside the loops (every function below is inlined
 * into one dispatcher per public kernel). */
#include "kernel/quantize.h"

#include "kernel/avx512/encode.h"
#include "kernel/code_words.h"

#include <math.h>
#include <string.h>

#ifndef STREAM_BYTES
#define STREAM_BYTES (2 << 20)
#endif
enum {
    BLOCK = OCT_MX_BLOCK,
    GROUP = 16 * BLOCK, /* columns whose scales fill a register */
    BAND = 64,          /* rows whose codes fill a cache line of a column */
    STRIP = GROUP       /* columns of a band that stay in cache between the two orientations */
};

/* --- reading --- */

OCT_INLINE const void *at(const oct_matrix_view *x, oct_dtype dtype, int64_t row, int64_t col) {
    return (const char *)x->data + (row * x->ld + col) * (dtype == OCT_F32 ? 4 : 2);
}

OCT_INLINE __m512 load(const void *from, oct_dtype dtype, __mmask16 mask) {
    if (dtype == OCT_F32)
        return _mm512_maskz_loadu_ps(mask, from);
    return oct_bf16_lanes(_mm256_maskz_loadu_epi16(mask, from));
}

OCT_INLINE const void *beyond(const void *from, oct_dtype dtype, int64_t n) {
    return (const char *)from + n * (dtype == OCT_F32 ? 4 : 2);
}

OCT_INLINE __m512i magnitude_bits(__m512 x) {
    return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
}

/* Whether whole cache lines of codes go past the caches: they'd be evicted before they are used,
 * and a store that misses reads the line first. */
OCT_INLINE bool streams(const oct_matrix_view *x, const oct_mx_output *out) {
    return x->rows * x->cols >= STREAM_BYTES &&
           ((uintptr_t)out->codes | (uintptr_t)out->ld_codes) % 64 == 0;
}

/* --- scales --- */

/* E8M0 codes from the magnitude bits of 16 blocks' largest elements: oct_mx_scale. */
static __m512i scale_codes(__m512i amax, oct_dtype format, oct_scale_mode mode) {
    const int emax = format == OCT_E4M3 ? 8 : 15;
    const int mantissa_bits = format == OCT_E4M3 ? 3 : 2;
    const __m512i zero = _mm512_setzero_si512(), one = _mm512_set1_epi32(1);
    const __m512i mantissa_mask = _mm512_set1_epi32(0x7fffff);
    __mmask16 poisoned = _mm512_cmpge_epi32_mask(amax, _mm512_set1_epi32(0x7f800000));
    __m512i code;
    if (mode == OCT_SCALE_RCEIL) {
        const __m512 inverse = _mm512_set1_ps(format == OCT_E4M3 ? 1.0f / 448 : 1.0f / 57344);
        __m512i d = _mm512_castps_si512(_mm512_mul_ps(_mm512_castsi512_ps(amax), inverse));
        code = _mm512_srli_epi32(d, 23);
        /* A subnormal d above 2^-127 has ceiling 2^-126, at most 2^-127 the lowest code. */
        __m512i exact = _mm512_mask_mov_epi32(zero, _mm512_cmpeq_epi32_mask(code, zero),
                                              _mm512_set1_epi32(0x400000));
        __mmask16 up = _mm512_cmpgt_epi32_mask(_mm512_and_si512(d, mantissa_mask), exact);
        code = _mm512_mask_add_epi32(code, up, code, one);
    } else {
        __m512i bits = amax;
        if (mode == OCT_SCALE_EVEN)
            bits = _mm512_add_epi32(bits, _mm512_set1_epi32(1 << (22 - mantissa_bits)));
        code = _mm512_sub_epi32(_mm512_srli_epi32(bits, 23), _mm512_set1_epi32(emax));
        if (mode == OCT_SCALE_CEIL) {
            __mmask16 up = _mm512_test_epi32_mask(bits, mantissa_mask);
            code = _mm512_mask_add_epi32(code, up, code, one);
        }
        code = _mm512_max_epi32(code, zero);
    }
    return _mm512_mask_mov_epi32(code, poisoned, _mm512_set1_epi32(255));
}

/* 2^(127 - code), exact in fp32 for codes below 254; blocks never need a larger one. A poisoned
 * block (255) gets 0: its codes are overwritten. */
OCT_INLINE __m512 inverse_scales(__m512i codes) {
    __m512i e = _mm512_sub_epi32(_mm512_set1_epi32(254), codes);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_max_epi32(e, _mm512_setzero_si512()), 23));
}

OCT_INLINE __mmask16 poisoned_blocks(__m512i codes) {
    return _mm512_cmpeq_epi32_mask(codes, _mm512_set1_epi32(255));
}

/* --- blocks along a row --- */

/* Lane-wise maxima of one block; its 16 lanes are still to be reduced. */
OCT_INLINE __m512i block_maxima(const void *x, oct_dtype dtype, int64_t n) {
    if (dtype == OCT_BF16) {
        __mmask32 mask = n >= 32 ? 0xffffffffu : (1u << n) - 1;
        __m512i w = _mm512_and_si512(_mm512_maskz_loadu_epi16(mask, x), _mm512_set1_epi16(0x7fff));
        return _mm512_slli_epi32(_mm512_max_epu16(w, _mm512_srli_epi32(w, 16)), 16);
    }
    __m512i low = magnitude_bits(load(x, dtype, oct_lanes_below(n)));
    __m512i high = magnitude_bits(load(beyond(x, dtype, 16), dtype, oct_lanes_below(n - 16)));
    return _mm512_max_epu32(low, high);
}

/* Lane b of the result: the largest lane of m[b]. */
OCT_INLINE __m512i reduce_16(__m512i m[16]) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        m[i] = _mm512_max_epu32(_mm512_unpacklo_epi32(m[2 * i], m[2 * i + 1]),
                                _mm512_unpackhi_epi32(m[2 * i], m[2 * i + 1]));
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        m[i] = _mm512_max_epu32(_mm512_unpacklo_epi64(m[2 * i], m[2 * i + 1]),
                                _mm512_unpackhi_epi64(m[2 * i], m[2 * i + 1]));
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
        m[i] = _mm512_max_epu32(_mm512_shuffle_i32x4(m[2 * i], m[2 * i + 1], 0x88),
                                _mm512_shuffle_i32x4(m[2 * i], m[2 * i + 1], 0xdd));
    return _mm512_max_epu32(_mm512_shuffle_i32x4(m[0], m[1], 0x88),
                            _mm512_shuffle_i32x4(m[0], m[1], 0xdd));
}

/* 64 codes of two blocks with the factors first and second; n elements are there. */
OCT_INLINE __m512i encode_64(const void *x, oct_dtype dtype, oct_dtype format, int64_t n,
                             __m512 first, __m512 second, float *staged) {
    __m512i code[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        __m512 v = load(beyond(x, dtype, 16 * i), dtype, oct_lanes_below(n - 16 * i));
        if (staged)
            _mm512_store_ps(staged + 16 * i, v);
        code[i] = oct_encode_finite(_mm512_mul_ps(v, i < 2 ? first : second), format);
    }
    return oct_pack_bytes(code[0], code[1], code[2], code[3]);
}

/* Asks for 64 elements, a few lines at a time between the arithmetic: in one go they'd fill the
 * buffers that loads wait for. */
OCT_INLINE void prefetch_64(const void *x, oct_dtype dtype) {
    for (int i = 0; i < 64 * (dtype == OCT_F32 ? 4 : 2); i += 64)
        _mm_prefetch((const char *)x + i, _MM_HINT_T1);
}

/* What else happens to a group of a row on its way through the registers. */
typedef struct passage {
    bool stream;       /* codes go past the caches */
    const void *ahead; /* where the reading will be soon, to be prefetched; or NULL */
    float *staged;     /* or NULL: a copy of the group in fp32, which stays in cache */
} passage;

/* Up to 16 blocks of one row: n <= GROUP elements. */
OCT_INLINE void quantize_group(const void *x, oct_dtype dtype, oct_dtype format,
                               oct_scale_mode mode, int64_t n, uint8_t *codes, uint8_t *scales,
                               const passage *p) {
    const int64_t n_blocks = (n + BLOCK - 1) / BLOCK;
    __m512i maxima[16];
    if (n == GROUP) {
#pragma GCC unroll 16
        for (int b = 0; b < 16; b++)
            maxima[b] = block_maxima(beyond(x, dtype, b * BLOCK), dtype, BLOCK);
    } else {
        for (int64_t b = 0; b < 16; b++)
            maxima[b] = b < n_blocks
                            ? block_maxima(beyond(x, dtype, b * BLOCK), dtype, n - b * BLOCK)
                            : _mm512_setzero_si512();
    }
    __m512i code = scale_codes(reduce_16(maxima), format, mode);
    alignas(64) float factor[16];
    _mm512_store_ps(factor, inverse_scales(code));
    _mm_mask_storeu_epi8(scales, oct_lanes_below(n_blocks), _mm512_cvtepi32_epi8(code));

    for (int64_t i = 0; i < n; i += 64) {
        if (p->ahead)
            prefetch_64(beyond(p->ahead, dtype, i), dtype);
        __m512i c = encode_64(
            beyond(x, dtype, i), dtype, format, n - i, _mm512_set1_ps(factor[i / BLOCK]),
            _mm512_set1_ps(factor[(i / BLOCK + 1) & 15]), p->staged ? p->staged + i : NULL);
        if (n - i < 64)
            _mm512_mask_storeu_epi8(codes + i, oct_bytes_below(n - i), c);
        else if (p->stream)
            _mm512_stream_si512((__m512i *)(codes + i), c);
        else
            _mm512_storeu_si512(codes + i, c);
    }
    for (unsigned b = poisoned_blocks(code); b; b &= b - 1) {
        int64_t first = __builtin_ctz(b) * BLOCK;
        memset(codes + first, OCT_NAN_CODE(format),
               (size_t)(n - first < BLOCK ? n - first : BLOCK));
    }
}

OCT_INLINE void rows_all(const oct_matrix_view *x, oct_dtype dtype, oct_dtype format,
                         oct_scale_mode mode, const oct_mx_output *out) {
    passage p = {.stream = streams(x, out)};
    for (int64_t r = 0; r < x->rows; r++) {
        for (int64_t c = 0; c < x->cols; c += GROUP) {
            int64_t n = x->cols - c < GROUP ? x->cols - c : GROUP;
            p.ahead = at(x, dtype, r, c + 2 * GROUP);
            quantize_group(at(x, dtype, r, c), dtype, format, mode, n,
                           out->codes + r * out->ld_codes + c,
                           out->scales + r * out->ld_scales + c / BLOCK, &p);
        }
    }
}

/* --- blocks along a column --- */

/* A band of a strip in fp32, so that its columns are read from a few adjacent pages and cache sets
 * whatever the source's stride: power-of-two strides would put a column into one set. Rows that the
 * band lacks are zeros. */
enum { STAGE_LD = STRIP + 16 };
typedef struct stage {
    alignas(64) float x[BAND * STAGE_LD];
} stage;

/* Sixteen columns of one block of 32 rows of a stage: dwords[i] lane j = the codes of rows 4 i ..
 * 4 i + 3 of column j. Returns the E8M0 codes. */
OCT_INLINE __m512i encode_columns(const float *x, oct_dtype format, oct_scale_mode mode,
                                  __m512i dwords[8]) {
    __m512i maxima[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        maxima[i] = _mm512_setzero_si512();
#pragma GCC unroll 32
    for (int r = 0; r < BLOCK; r++)
        maxima[r % 4] =
            _mm512_max_epu32(maxima[r % 4], magnitude_bits(_mm512_load_ps(x + r * STAGE_LD)));
    __m512i amax_bits = _mm512_max_epu32(_mm512_max_epu32(maxima[0], maxima[1]),
                                         _mm512_max_epu32(maxima[2], maxima[3]));
    __m512i scale = scale_codes(amax_bits, format, mode);
    __m512 factor = inverse_scales(scale);
    __mmask16 poisoned = poisoned_blocks(scale);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        __m512i code[4];
#pragma GCC unroll 4
        for (int b = 0; b < 4; b++) {
            __m512 v = _mm512_load_ps(x + (4 * i + b) * STAGE_LD);
            code[b] = oct_encode_finite(_mm512_mul_ps(v, factor), format);
        }
        dwords[i] = _mm512_mask_mov_epi32(oct_merge_bytes(code[0], code[1], code[2], code[3]),
                                          poisoned, _mm512_set1_epi8(OCT_NAN_CODE(format)));
    }
    return scale;
}

/* Sixteen columns (n_cols of them real) of a stage of n_rows rows; `codes` and `scales` are those
 * of the first column and row. */
OCT_INLINE void quantize_columns(const float *x, oct_dtype format, oct_scale_mode mode,
                                 int64_t n_rows, int64_t n_cols, uint8_t *codes, int64_t ld_codes,
                                 uint8_t *scales, int64_t ld_scales, bool stream) {
    __m512i dwords[16];
    alignas(16) uint8_t first[16], second[16];
    __m512i scale = encode_columns(x, format, mode, dwords);
    _mm_store_si128((__m128i *)first, _mm512_cvtepi32_epi8(scale));
    scale = encode_columns(x + BLOCK * STAGE_LD, format, mode, dwords + 8);
    _mm_store_si128((__m128i *)second, _mm512_cvtepi32_epi8(scale));
    oct_transpose_16x16(dwords);
    if (n_rows == BAND && n_cols == 16) {
#pragma GCC unroll 16
        for (int j = 0; j < 16; j++) {
            if (stream)
                _mm512_stream_si512((__m512i *)(codes + j * ld_codes), dwords[j]);
            else
                _mm512_storeu_si512(codes + j * ld_codes, dwords[j]);
            scales[j * ld_scales] = first[j];
            scales[j * ld_scales + 1] = second[j];
        }
        return;
    }
    for (int64_t j = 0; j < n_cols; j++) {
        _mm512_mask_storeu_epi8(codes + j * ld_codes, oct_bytes_below(n_rows), dwords[j]);
        scales[j * ld_scales] = first[j];
        if (n_rows > BLOCK)
            scales[j * ld_scales + 1] = second[j];
    }
}

/* One row of a strip to the stage, as it is. */
OCT_INLINE void stage_row(const void *x, oct_dtype dtype, int64_t n, const void *ahead, float *to) {
    for (int64_t i = 0; i < n; i += 16) {
        if (ahead && (dtype == OCT_F32 || i % 32 == 0))
            _mm_prefetch(beyond(ahead, dtype, i), _MM_HINT_T1);
        _mm512_store_ps(to + i, load(beyond(x, dtype, i), dtype, oct_lanes_below(n - i)));
    }
}

/* The lines of 32 rows at one column. Half of the next band is asked for while this one's columns
 * are encoded, the other half while the first is: so memory is never idle, and a source whose rows
 * all map to the same sets of L2 still fits. */
OCT_INLINE void prefetch_rows(const oct_matrix_view *x, oct_dtype dtype, int64_t row, int64_t col) {
    for (int64_t r = row; r < row + BLOCK && r < x->rows; r++)
        _mm_prefetch(at(x, dtype, r, col), _MM_HINT_T1);
}

/* Columns col .. col+n_cols-1 of rows row .. row+n_rows-1. */
OCT_INLINE void quantize_band(const oct_matrix_view *x, oct_dtype dtype, oct_dtype format,
                              oct_scale_mode mode, const oct_mx_output *by_rows,
                              const oct_mx_output *by_cols, int64_t row, int64_t n_rows,
                              int64_t col, int64_t n_cols, stage *s) {
    const bool stream = streams(x, by_cols);
    passage p = {.stream = by_rows && streams(x, by_rows)};
    for (int64_t r = 0; r < n_rows; r++) {
        const void *from = at(x, dtype, row + r, col);
        p.ahead = r + BLOCK < n_rows ? at(x, dtype, row + r + BLOCK, col) : NULL;
        p.staged = s->x + r * STAGE_LD;
        if (by_rows)
            quantize_group(from, dtype, format, mode, n_cols,
                           by_rows->codes + (row + r) * by_rows->ld_codes + col,
                           by_rows->scales + (row + r) * by_rows->ld_scales + col / BLOCK, &p);
        else
            stage_row(from, dtype, n_cols, p.ahead, p.staged);
    }
    for (int64_t r = n_rows; r < BAND; r++)
        memset(s->x + r * STAGE_LD, 0, STRIP * sizeof(float));
    for (int64_t c = 0; c < n_cols; c += 16) {
        if (dtype == OCT_F32 || c % 32 == 0)
            prefetch_rows(x, dtype, row + BAND, col + c);
        quantize_columns(s->x + c, format, mode, n_rows, n_cols - c < 16 ? n_cols - c : 16,
                         by_cols->codes + (col + c) * by_cols->ld_codes + row, by_cols->ld_codes,
                         by_cols->scales + (col + c) * by_cols->ld_scales + row / BLOCK,
                         by_cols->ld_scales, stream);
    }
}

/* Strip by strip, band by band; by_rows may be NULL. */
OCT_INLINE void walk(const oct_matrix_view *x, oct_dtype dtype, oct_dtype format,
                     oct_scale_mode mode, const oct_mx_output *by_rows,
                     const oct_mx_output *by_cols) {
    stage s;
    for (int64_t c = 0; c < x->cols; c += STRIP)
        for (int64_t r = 0; r < x->rows; r += BAND)
            quantize_band(x, dtype, format, mode, by_rows, by_cols, r,
                          x->rows - r < BAND ? x->rows - r : BAND, c,
                          x->cols - c < STRIP ? x->cols - c : STRIP, &s);
}

/* --- tiles --- */

/* Two tiles, 32 rows by 64 columns at most. */
OCT_INLINE void quantize_tiles(const oct_matrix_view *x, oct_dtype dtype, oct_dtype format,
                               oct_scale_mode mode, const oct_mx_output *out, int64_t row,
                               int64_t n_rows, int64_t col, int64_t n_cols) {
    __m512i maxima[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    for (int64_t r = row; r < row + n_rows; r++) {
        const void *from = at(x, dtype, r, col);
        maxima[0] = _mm512_max_epu32(maxima[0], block_maxima(from, dtype, n_cols));
        if (n_cols > BLOCK)
            maxima[1] = _mm512_max_epu32(
                maxima[1], block_maxima(beyond(from, dtype, BLOCK), dtype, n_cols - BLOCK));
    }
    uint8_t code[2];
    float factor[2];
    for (int i = 0; i < 2; i++) {
        __m512i amax = _mm512_set1_epi32((int)_mm512_reduce_max_epu32(maxima[i]));
        __m512i scale = scale_codes(amax, format, mode);
        code[i] = (uint8_t)_mm512_cvtsi512_si32(scale);
        factor[i] = _mm512_cvtss_f32(inverse_scales(scale));
    }
    uint8_t *scales = out->scales + row / BLOCK * out->ld_scales + col / BLOCK;
    scales[0] = code[0];
    if (n_cols > BLOCK)
        scales[1] = code[1];
    __mmask64 poisoned =
        (code[0] == 255 ? 0xffffffffu : 0) | (code[1] == 255 ? (__mmask64)0xffffffffu << 32 : 0);
    for (int64_t r = row; r < row + n_rows; r++) {
        __m512i c = encode_64(at(x, dtype, r, col), dtype, format, n_cols,
                              _mm512_set1_ps(factor[0]), _mm512_set1_ps(factor[1]), NULL);
        c = _mm512_mask_mov_epi8(c, poisoned, _mm512_set1_epi8(OCT_NAN_CODE(format)));
        _mm512_mask_storeu_epi8(out->codes + r * out->ld_codes + col, oct_bytes_below(n_cols), c);
    }
}

OCT_INLINE void tiles_all(const oct_matrix_view *x, oct_dtype dtype, oct_dtype format,
                          oct_scale_mode mode, const oct_mx_output *out) {
    for (int64_t r = 0; r < x->rows; r += BLOCK)
        for (int64_t c = 0; c < x->cols; c += 64)
            quantize_tiles(x, dtype, format, mode, out, r,
                           x->rows - r < BLOCK ? x->rows - r : BLOCK, c,
                           x->cols - c < 64 ? x->cols - c : 64);
}

/* --- dispatch: the run-time choices become constants --- */

#define WITH_FORMAT(call, dtype)                                                                   \
    if (format == OCT_E4M3) {                                                                      \
        call(dtype, OCT_E4M3);                                                                     \
    } else {                                                                                       \
        call(dtype, OCT_E5M2);                                                                     \
    }
#define WITH_CONSTANTS(call)                                                                       \
    if (x->dtype == OCT_F32) {                                                                     \
        WITH_FORMAT(call, OCT_F32)                                                                 \
    } else {                                                                                       \
        WITH_FORMAT(call, OCT_BF16)                                                                \
    }

static void mx_rows(const oct_matrix_view *x, oct_dtype format, oct_scale_mode mode,
                    const oct_mx_output *out) {
#define CALL(dtype, format) rows_all(x, dtype, format, mode, out)
    WITH_CONSTANTS(CALL)
#undef CALL
}

static void mx_both(const oct_matrix_view *x, oct_dtype format, oct_scale_mode mode,
                    const oct_mx_output *by_rows, const oct_mx_output *by_cols) {
#define CALL(dtype, format) walk(x, dtype, format, mode, by_rows, by_cols)
    WITH_CONSTANTS(CALL)
#undef CALL
}

static void mx_cols(const oct_matrix_view *x, oct_dtype format, oct_scale_mode mode,
                    const oct_mx_output *out) {
#define CALL(dtype, format) walk(x, dtype, format, mode, NULL, out)
    WITH_CONSTANTS(CALL)
#undef CALL
}

static void mx_tiles(const oct_matrix_view *x, oct_dtype format, oct_scale_mode mode,
                     const oct_mx_output *out){
#define CALL(dtype, format) tiles_all(x, dtype, format, mode, out)
    WITH_CONSTANTS(CALL)
#undef CALL
}

/* --- one scale for the tensor --- */

OCT_INLINE __m512i amax_bits(const oct_matrix_view *x, oct_dtype dtype) {
    __m512i maxima[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
                         _mm512_setzero_si512()};
    for (int64_t r = 0; r < x->rows; r++) {
        int64_t c = 0;
        for (; c + 64 <= x->cols; c += 64)
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
                maxima[i] = _mm512_max_epu32(
                    maxima[i], magnitude_bits(load(at(x, dtype, r, c + 16 * i), dtype, 0xffff)));
        for (; c < x->cols; c += 16)
            maxima[0] = _mm512_max_epu32(
                maxima[0],
                magnitude_bits(load(at(x, dtype, r, c), dtype, oct_lanes_below(x->cols - c))));
    }
    return _mm512_max_epu32(_mm512_max_epu32(maxima[0], maxima[1]),
                            _mm512_max_epu32(maxima[2], maxima[3]));
}

static float amax(const oct_matrix_view *x) {
    __m512i maxima = x->dtype == OCT_F32 ? amax_bits(x, OCT_F32) : amax_bits(x, OCT_BF16);
    uint32_t bits = _mm512_reduce_max_epu32(maxima);
    if (bits >= 0x7f800000)
        return INFINITY;
    float result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

/* x / scale, correctly rounded where it matters to an 8-bit code.
 *
 * Division takes 16 cycles a register, so the quotient is refined from the reciprocal: q = x r,
 * then twice q += r (x - q scale), each residual exact by fma. The first step leaves at most one
 * unit in the last place, after which a step with the correctly rounded reciprocal is a correct
 * rounding (Markstein, IBM J. Res. Dev. 34, 1990). That holds while no residual underflows: true
 * for quotients of 2^-24 and more where `scale` is at least 2^-60, and smaller quotients become
 * zero in every format however they are rounded. Large x are first limited to a quotient of 2^17,
 * which saturates in every format. */
typedef struct divisor {
    __m512 scale, reciprocal, limit, lower_limit;
    bool refine;
} divisor;

OCT_INLINE divisor divisor_make(float scale) {
    divisor d;
    d.refine = scale >= 0x1p-60f && scale <= 0x1p60f;
    d.scale = _mm512_set1_ps(scale);
    d.reciprocal = _mm512_set1_ps(1.0f / scale);
    d.limit = _mm512_set1_ps(scale * 0x1p17f);
    d.lower_limit = _mm512_set1_ps(scale * -0x1p17f);
    return d;
}

OCT_INLINE __m512 divide(__m512 x, const divisor *d, bool refine) {
    if (!refine)
        return _mm512_div_ps(x, d->scale);
    /* min and max return their second operand when one is NaN. */
    x = _mm512_max_ps(d->lower_limit, _mm512_min_ps(d->limit, x));
    __m512 q = _mm512_mul_ps(x, d->reciprocal);
    q = _mm512_fmadd_ps(_mm512_fnmadd_ps(q, d->scale, x), d->reciprocal, q);
    return _mm512_fmadd_ps(_mm512_fnmadd_ps(q, d->scale, x), d->reciprocal, q);
}

OCT_INLINE void scaled_all(const oct_matrix_view *x, oct_dtype dtype, oct_dtype format,
                           const divisor *d, bool refine, uint8_t *codes, int64_t ld_codes) {
    oct_hif8_tables tables = oct_hif8_tables_make();
    for (int64_t r = 0; r < x->rows; r++) {
        for (int64_t c = 0; c < x->cols; c += 64) {
            int64_t n = x->cols - c;
            uint8_t *to = codes + r * ld_codes + c;
            __m512 v[4], q[4];
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                __mmask16 mask = oct_lanes_below(n - 16 * i);
                const void *from = at(x, dtype, r, mask ? c + 16 * i : c);
                v[i] = load(from, dtype, mask);
                q[i] = divide(v[i], d, refine);
            }
            if (format == OCT_HIF8) {
                for (int i = 0; i < 2; i++) {
                    __m512i code =
                        oct_encode_hif8(&tables, oct_upper_words(q[2 * i], q[2 * i + 1]));
                    __mmask32 mask = (__mmask32)(oct_bytes_below(n) >> (32 * i));
                    _mm256_mask_storeu_epi8(mask ? to + 32 * i : to, mask,
                                            _mm512_cvtepi16_epi8(code));
                }
            } else {
                __m512i code[4];
#pragma GCC unroll 4
                for (int i = 0; i < 4; i++) /* refining may lose the sign of a zero */
                    code[i] = oct_with_sign(oct_encode_magnitude_or_nan(q[i], format),
                                            refine ? v[i] : q[i]);
                __m512i bytes = oct_pack_bytes(code[0], code[1], code[2], code[3]);
                _mm512_mask_storeu_epi8(to, oct_bytes_below(n), bytes);
            }
        }
    }
}

OCT_INLINE void scaled_from(const oct_matrix_view *x, oct_dtype dtype, oct_dtype format,
                            const divisor *d, uint8_t *codes, int64_t ld_codes) {
    if (!d->refine)
        scaled_all(x, dtype, format, d, false, codes, ld_codes);
    else
        scaled_all(x, dtype, format, d, true, codes, ld_codes);
}

OCT_INLINE void scaled_to(const oct_matrix_view *x, oct_dtype format, const divisor *d,
                          uint8_t *codes, int64_t ld_codes) {
    if (x->dtype == OCT_F32)
        scaled_from(x, OCT_F32, format, d, codes, ld_codes);
    else
        scaled_from(x, OCT_BF16, format, d, codes, ld_codes);
}

static void scaled(const oct_matrix_view *x, oct_dtype format, float scale, uint8_t *codes,
                   int64_t ld_codes) {
    divisor d = divisor_make(scale);
    if (format == OCT_E4M3) {
        scaled_to(x, OCT_E4M3, &d, codes, ld_codes);
    } else if (format == OCT_E5M2) {
        scaled_to(x, OCT_E5M2, &d, codes, ld_codes);
    } else {
        scaled_to(x, OCT_HIF8, &d, codes, ld_codes);
    }
}

static void decode_scaled(const uint8_t *codes, int64_t rows, int64_t cols, int64_t ld_codes,
                          oct_dtype format, float scale, float *y, int64_t ld_y) {
    oct_code_table table = oct_code_table_load(oct_code_words(format), format);
    __m512 factor = _mm512_set1_ps(scale);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < cols; c += 16) {
            __mmask16 mask = oct_lanes_below(cols - c);
            __m128i code = _mm_maskz_loadu_epi8(mask, codes + r * ld_codes + c);
            __m512 v = oct_decode_lanes(&table, _mm512_cvtepu8_epi32(code));
            _mm512_mask_storeu_ps(y + r * ld_y + c, mask, _mm512_mul_ps(v, factor));
        }
    }
}

static void f32_to_bf16(const float *x, int64_t n, uint16_t *y) {
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 mask = oct_lanes_below(n - i);
        _mm256_mask_storeu_epi16(y + i, mask, oct_lanes_bf16(_mm512_maskz_loadu_ps(mask, x + i)));
    }
}

static void bf16_to_f32(const uint16_t *x, int64_t n, float *y) {
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 mask = oct_lanes_below(n - i);
        _mm512_mask_storeu_ps(y + i, mask, oct_bf16_lanes(_mm256_maskz_loadu_epi16(mask, x + i)));
    }
}

const oct_quantize_kernels oct_quantize_kernels_avx512 = {
    .mx_rows = mx_rows,
    .mx_cols = mx_cols,
    .mx_both = mx_both,
    .mx_tiles = mx_tiles,
    .amax = amax,
    .scaled = scaled,
    .decode_scaled = decode_scaled,
    .f32_to_bf16 = f32_to_bf16,
    .bf16_to_f32 = bf16_to_f32,
};
