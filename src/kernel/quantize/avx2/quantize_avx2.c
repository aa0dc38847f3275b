/* The quantizers in AVX2. docs/numerics.md has the rules, kernel/quantize.h the shapes.
 *
 * Edges (blocks that are short, fewer than eight columns) pass through padded buffers, so that all
 * arithmetic is on whole registers and nothing outside the named elements is touched. dtype and
 * format are constants inside the loops. */
#include "kernel/quantize.h"

#include <immintrin.h>
#include <math.h>
#include <stdalign.h>
#include <stdbool.h>
#include <string.h>

#include "format/fp8.h"
#include "kernel/bf16_of_codes.h"
#include "kernel/inline.h"
#include "kernel/quantize/hif8_tables.h"

#define NAN_CODE(format) ((format) == OCT_HIF8 ? 0x80 : 0x7f)

enum { BLOCK = OCT_MX_BLOCK, LANES = 8 };

/* --- reading --- */

OCT_INLINE const void *at(const oct_matrix_view *x, oct_dtype dtype, int64_t row, int64_t col) {
    return (const char *)x->data + (row * x->ld + col) * (dtype == OCT_F32 ? 4 : 2);
}

OCT_INLINE __m256 load(const void *from, oct_dtype dtype, int64_t i) {
    if (dtype == OCT_F32)
        return _mm256_loadu_ps((const float *)from + i);
    __m128i bits = _mm_loadu_si128((const __m128i *)(const void *)((const uint16_t *)from + i));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

/* n <= 32 elements as 32 fp32, padded with zeros. */
OCT_INLINE void load_padded(const void *from, oct_dtype dtype, int64_t n, float to[BLOCK]) {
    for (int64_t i = 0; i < BLOCK; i++)
        to[i] = i >= n             ? 0
                : dtype == OCT_F32 ? ((const float *)from)[i]
                                   : oct_bf16_decode(((const uint16_t *)from)[i]);
}

OCT_INLINE __m256i magnitude_bits(__m256 x) {
    return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
}

/* Magnitudes are not negative as integers, so a signed maximum orders them, NaN above Inf. */
OCT_INLINE uint32_t largest_lane(__m256i x) {
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* 2^(127 - code); 0 for a poisoned block, whose codes are overwritten. */
static float inverse_scale(uint8_t code) {
    return code == 255 ? 0 : float_of(code == 254 ? 0x00400000 : (uint32_t)(254 - code) << 23);
}

/* --- encoding --- */

/* E4M3 or E5M2 magnitudes in the low bytes of the lanes (the rest is garbage); the largest value
 * for NaN. x is rounded to multiples of 2^(E-m), E its exponent or the smallest normal one, by
 * adding 2^(E-m+23); the low bits of the sum count those multiples, and E's distance from the
 * smallest is added through the same low bits. */
OCT_INLINE __m256i encode_magnitude(__m256 x, oct_dtype format) {
    const int m = format == OCT_E4M3 ? 3 : 2;
    const int smallest = format == OCT_E4M3 ? 127 - 6 : 127 - 14; /* exponent fields */
    const float largest = format == OCT_E4M3 ? 448.0f : 57344.0f;
    const int distance = (256 - (smallest << m & 255)) & 255;
    __m256 a = _mm256_castsi256_ps(magnitude_bits(x));
    a = _mm256_min_ps(a, _mm256_set1_ps(largest)); /* the second operand where a is NaN */
    __m256i e = _mm256_and_si256(_mm256_castps_si256(a), _mm256_set1_epi32(0x7f800000));
    e = _mm256_max_epi32(e, _mm256_set1_epi32(smallest << 23));
    __m256i magic = _mm256_add_epi32(e, _mm256_set1_epi32(((23 - m) << 23) + distance));
    __m256 sum = _mm256_add_ps(a, _mm256_castsi256_ps(magic));
    return _mm256_add_epi32(_mm256_castps_si256(sum), _mm256_srli_epi32(e, 23 - m));
}

OCT_INLINE __m256i with_sign(__m256i magnitude, __m256 x) {
    __m256i sign =
        _mm256_and_si256(_mm256_srli_epi32(_mm256_castps_si256(x), 24), _mm256_set1_epi32(0x80));
    return _mm256_or_si256(_mm256_and_si256(magnitude, _mm256_set1_epi32(0x7f)), sign);
}

OCT_INLINE __m256i encode_finite(__m256 x, oct_dtype format) {
    return with_sign(encode_magnitude(x, format), x);
}

typedef struct hif8_tables {
    alignas(32) int32_t half[OCT_HIF8_EXPONENTS], place[OCT_HIF8_EXPONENTS];
} hif8_tables;

static void fill_hif8_tables(hif8_tables *t) {
    uint16_t half[OCT_HIF8_EXPONENTS], place[OCT_HIF8_EXPONENTS];
    oct_hif8_fill_tables(half, place);
    for (int i = 0; i < OCT_HIF8_EXPONENTS; i++) {
        t->half[i] = half[i];
        t->place[i] = place[i];
    }
}

/* HiF8, TA and saturating, of any x; on the upper 16 bits, as kernel/quantize/hif8_tables.h has it.
 */
OCT_INLINE __m256i encode_hif8(const hif8_tables *t, __m256 x) {
    const __m256i below = _mm256_set1_epi32(OCT_HIF8_BELOW), zero = _mm256_setzero_si256();
    __m256i bits = _mm256_castps_si256(x);
    __m256i a = _mm256_srli_epi32(magnitude_bits(x), 16);
    a = _mm256_min_epi32(a, _mm256_set1_epi32(0x4700)); /* 2^15, the largest value */
    __m256i e = _mm256_max_epi32(_mm256_sub_epi32(_mm256_srli_epi32(a, 7), below), zero);
    a = _mm256_add_epi32(a, _mm256_i32gather_epi32(t->half, e, 4));
    e = _mm256_max_epi32(_mm256_sub_epi32(_mm256_srli_epi32(a, 7), below), zero);
    __m256i place = _mm256_i32gather_epi32(t->place, e, 4);
    __m256i mantissa = _mm256_srlv_epi32(_mm256_and_si256(a, _mm256_set1_epi32(0x7f)),
                                         _mm256_srli_epi32(place, 8));
    __m256i code = _mm256_add_epi32(_mm256_and_si256(place, _mm256_set1_epi32(0xff)), mantissa);
    __m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80));
    code = _mm256_or_si256(code, _mm256_andnot_si256(_mm256_cmpeq_epi32(code, zero), sign));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(code, _mm256_set1_epi32(0x80), nan);
}

/* Codes of any x. */
OCT_INLINE __m256i encode_any(const hif8_tables *t, __m256 x, oct_dtype format) {
    if (format == OCT_HIF8)
        return encode_hif8(t, x);
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    __m256i magnitude =
        _mm256_blendv_epi8(encode_magnitude(x, format), _mm256_set1_epi32(0x7f), nan);
    return with_sign(magnitude, x);
}

/* 4 x 8 lanes of codes as 32 bytes in order. */
OCT_INLINE __m256i pack_bytes(__m256i a, __m256i b, __m256i c, __m256i d) {
    __m256i bytes = _mm256_packus_epi16(_mm256_packus_epi32(a, b), _mm256_packus_epi32(c, d));
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* --- blocks along a row --- */

OCT_INLINE uint32_t block_maximum(const void *x, oct_dtype dtype) {
    __m256i m = magnitude_bits(load(x, dtype, 0));
    for (int i = LANES; i < BLOCK; i += LANES)
        m = _mm256_max_epi32(m, magnitude_bits(load(x, dtype, i)));
    return largest_lane(m);
}

OCT_INLINE __m256i encode_block(const void *x, oct_dtype dtype, oct_dtype format, float inverse) {
    __m256 f = _mm256_set1_ps(inverse);
    __m256i code[4];
    for (int i = 0; i < 4; i++)
        code[i] = encode_finite(_mm256_mul_ps(load(x, dtype, i * LANES), f), format);
    return pack_bytes(code[0], code[1], code[2], code[3]);
}

/* Codes of n <= 32 elements with a known scale. */
OCT_INLINE void store_block(const void *x, oct_dtype dtype, oct_dtype format, uint8_t scale,
                            int64_t n, uint8_t *codes) {
    alignas(32) float padded[BLOCK];
    alignas(32) uint8_t bytes[BLOCK];
    if (scale == 255) {
        memset(codes, NAN_CODE(format), (size_t)n);
    } else if (n == BLOCK) {
        _mm256_storeu_si256((__m256i *)(void *)codes,
                            encode_block(x, dtype, format, inverse_scale(scale)));
    } else {
        load_padded(x, dtype, n, padded);
        _mm256_store_si256((__m256i *)(void *)bytes,
                           encode_block(padded, OCT_F32, format, inverse_scale(scale)));
        memcpy(codes, bytes, (size_t)n);
    }
}

OCT_INLINE uint32_t maximum_of(const void *x, oct_dtype dtype, int64_t n) {
    float padded[BLOCK];
    if (n == BLOCK)
        return block_maximum(x, dtype);
    load_padded(x, dtype, n, padded);
    return block_maximum(padded, OCT_F32);
}

OCT_INLINE void rows_part(const oct_matrix_view *x, oct_dtype dtype, oct_dtype format,
                          oct_scale_mode mode, const oct_mx_output *out, int64_t row,
                          int64_t n_rows) {
    for (int64_t r = row; r < row + n_rows; r++)
        for (int64_t c = 0; c < x->cols; c += BLOCK) {
            int64_t n = x->cols - c < BLOCK ? x->cols - c : BLOCK;
            const void *from = at(x, dtype, r, c);
            uint8_t scale = oct_mx_scale_code(float_of(maximum_of(from, dtype, n)), format, mode);
            out->scales[r * out->ld_scales + c / BLOCK] = scale;
            store_block(from, dtype, format, scale, n, out->codes + r * out->ld_codes + c);
        }
}

/* --- blocks along a column --- */

/* Eight columns of one block of n_rows <= 32 rows, x in fp32 with 8 columns a row, zeros below. */
OCT_INLINE void quantize_columns(const float x[BLOCK * LANES], oct_dtype format,
                                 oct_scale_mode mode, int64_t n_rows, int64_t n_cols,
                                 uint8_t *codes, int64_t ld_codes, uint8_t *scales,
                                 int64_t ld_scales) {
    alignas(32) uint32_t maxima[LANES], quads[BLOCK / 4][LANES];
    alignas(32) float inverse[LANES];
    uint8_t scale[LANES];
    __m256i m = _mm256_setzero_si256();
    for (int r = 0; r < BLOCK; r++)
        m = _mm256_max_epi32(m, magnitude_bits(_mm256_load_ps(x + r * LANES)));
    _mm256_store_si256((__m256i *)(void *)maxima, m);
    for (int j = 0; j < LANES; j++) {
        scale[j] = oct_mx_scale_code(float_of(maxima[j]), format, mode);
        inverse[j] = inverse_scale(scale[j]);
    }
    const __m256 f = _mm256_load_ps(inverse);
    for (int i = 0; i < BLOCK / 4; i++) {
        __m256i quad = _mm256_setzero_si256();
        for (int b = 3; b >= 0; b--) {
            __m256 v = _mm256_mul_ps(_mm256_load_ps(x + (4 * i + b) * LANES), f);
            quad = _mm256_or_si256(_mm256_slli_epi32(quad, 8), encode_finite(v, format));
        }
        _mm256_store_si256((__m256i *)(void *)quads[i], quad);
    }
    for (int64_t j = 0; j < n_cols; j++) {
        uint32_t column[BLOCK / 4];
        for (int i = 0; i < BLOCK / 4; i++)
            column[i] = quads[i][j];
        scales[j * ld_scales] = scale[j];
        if (scale[j] == 255)
            memset(codes + j * ld_codes, NAN_CODE(format), (size_t)n_rows);
        else
            memcpy(codes + j * ld_codes, column, (size_t)n_rows);
    }
}

OCT_INLINE void cols_part(const oct_matrix_view *x, oct_dtype dtype, oct_dtype format,
                          oct_scale_mode mode, const oct_mx_output *out, int64_t row,
                          int64_t n_rows) {
    alignas(32) float columns[BLOCK * LANES];
    for (int64_t c = 0; c < x->cols; c += LANES) {
        int64_t n_cols = x->cols - c < LANES ? x->cols - c : LANES;
        if (n_rows < BLOCK || n_cols < LANES)
            memset(columns, 0, sizeof columns);
        for (int64_t r = 0; r < n_rows; r++) {
            const void *from = at(x, dtype, row + r, c);
            if (n_cols == LANES)
                _mm256_store_ps(columns + r * LANES, load(from, dtype, 0));
            for (int64_t j = 0; n_cols < LANES && j < n_cols; j++)
                columns[r * LANES + j] = dtype == OCT_F32
                                             ? ((const float *)from)[j]
                                             : oct_bf16_decode(((const uint16_t *)from)[j]);
        }
        quantize_columns(columns, format, mode, n_rows, n_cols,
                         out->codes + c * out->ld_codes + row, out->ld_codes,
                         out->scales + c * out->ld_scales + row / BLOCK, out->ld_scales);
    }
}

/* Bands of 32 rows stay in cache between the two orientations; either may be NULL. */
OCT_INLINE void bands(const oct_matrix_view *x, oct_dtype dtype, oct_dtype format,
                      oct_scale_mode mode, const oct_mx_output *by_rows,
                      const oct_mx_output *by_cols) {
    for (int64_t r = 0; r < x->rows; r += BLOCK) {
        int64_t n_rows = x->rows - r < BLOCK ? x->rows - r : BLOCK;
        if (by_rows)
            rows_part(x, dtype, format, mode, by_rows, r, n_rows);
        if (by_cols)
            cols_part(x, dtype, format, mode, by_cols, r, n_rows);
    }
}

/* --- tiles --- */

OCT_INLINE void tiles(const oct_matrix_view *x, oct_dtype dtype, oct_dtype format,
                      oct_scale_mode mode, const oct_mx_output *out) {
    for (int64_t r = 0; r < x->rows; r += BLOCK)
        for (int64_t c = 0; c < x->cols; c += BLOCK) {
            int64_t n_rows = x->rows - r < BLOCK ? x->rows - r : BLOCK;
            int64_t n = x->cols - c < BLOCK ? x->cols - c : BLOCK;
            uint32_t largest = 0;
            for (int64_t i = r; i < r + n_rows; i++) {
                uint32_t m = maximum_of(at(x, dtype, i, c), dtype, n);
                largest = m > largest ? m : largest;
            }
            uint8_t scale = oct_mx_scale_code(float_of(largest), format, mode);
            out->scales[r / BLOCK * out->ld_scales + c / BLOCK] = scale;
            for (int64_t i = r; i < r + n_rows; i++)
                store_block(at(x, dtype, i, c), dtype, format, scale, n,
                            out->codes + i * out->ld_codes + c);
        }
}

/* --- dispatch: the run-time choices become constants --- */

#define WITH_CONSTANTS(function, ...)                                                              \
    do {                                                                                           \
        if (x->dtype == OCT_F32 && format == OCT_E4M3)                                             \
            function(x, OCT_F32, OCT_E4M3, mode, __VA_ARGS__);                                     \
        else if (x->dtype == OCT_F32)                                                              \
            function(x, OCT_F32, OCT_E5M2, mode, __VA_ARGS__);                                     \
        else if (format == OCT_E4M3)                                                               \
            function(x, OCT_BF16, OCT_E4M3, mode, __VA_ARGS__);                                    \
        else                                                                                       \
            function(x, OCT_BF16, OCT_E5M2, mode, __VA_ARGS__);                                    \
    } while (0)

static void mx_rows(const oct_matrix_view *x, oct_dtype format, oct_scale_mode mode,
                    const oct_mx_output *out) {
    WITH_CONSTANTS(bands, out, NULL);
}

static void mx_cols(const oct_matrix_view *x, oct_dtype format, oct_scale_mode mode,
                    const oct_mx_output *out) {
    WITH_CONSTANTS(bands, NULL, out);
}

static void mx_both(const oct_matrix_view *x, oct_dtype format, oct_scale_mode mode,
                    const oct_mx_output *by_rows, const oct_mx_output *by_cols) {
    WITH_CONSTANTS(bands, by_rows, by_cols);
}

static void mx_tiles(const oct_matrix_view *x, oct_dtype format, oct_scale_mode mode,
                     const oct_mx_output *out) {
    WITH_CONSTANTS(tiles, out);
}

/* --- one scale for the tensor --- */

OCT_INLINE uint32_t largest_bits(const oct_matrix_view *x, oct_dtype dtype) {
    uint32_t largest = 0;
    for (int64_t r = 0; r < x->rows; r++)
        for (int64_t c = 0; c < x->cols; c += BLOCK) {
            int64_t n = x->cols - c < BLOCK ? x->cols - c : BLOCK;
            uint32_t m = maximum_of(at(x, dtype, r, c), dtype, n);
            largest = m > largest ? m : largest;
        }
    return largest;
}

static float amax(const oct_matrix_view *x) {
    uint32_t bits = x->dtype == OCT_F32 ? largest_bits(x, OCT_F32) : largest_bits(x, OCT_BF16);
    return bits >= 0x7f800000 ? INFINITY : float_of(bits);
}

OCT_INLINE __m256i scale_block(const hif8_tables *t, const void *x, oct_dtype dtype,
                               oct_dtype format, __m256 scale) {
    __m256i code[4];
    for (int i = 0; i < 4; i++)
        code[i] = encode_any(t, _mm256_div_ps(load(x, dtype, i * LANES), scale), format);
    return pack_bytes(code[0], code[1], code[2], code[3]);
}

OCT_INLINE void scaled_all(const oct_matrix_view *x, oct_dtype dtype, oct_dtype format, float scale,
                           uint8_t *codes, int64_t ld_codes) {
    hif8_tables t;
    const __m256 s = _mm256_set1_ps(scale);
    alignas(32) float padded[BLOCK];
    alignas(32) uint8_t bytes[BLOCK];
    fill_hif8_tables(&t);
    for (int64_t r = 0; r < x->rows; r++) {
        int64_t c = 0;
        uint8_t *to = codes + r * ld_codes;
        for (; c + BLOCK <= x->cols; c += BLOCK)
            _mm256_storeu_si256((__m256i *)(void *)(to + c),
                                scale_block(&t, at(x, dtype, r, c), dtype, format, s));
        if (c < x->cols) {
            load_padded(at(x, dtype, r, c), dtype, x->cols - c, padded);
            _mm256_store_si256((__m256i *)(void *)bytes,
                               scale_block(&t, padded, OCT_F32, format, s));
            memcpy(to + c, bytes, (size_t)(x->cols - c));
        }
    }
}

OCT_INLINE void scaled_from(const oct_matrix_view *x, oct_dtype dtype, oct_dtype format,
                            float scale, uint8_t *codes, int64_t ld_codes) {
    if (format == OCT_E4M3)
        scaled_all(x, dtype, OCT_E4M3, scale, codes, ld_codes);
    else if (format == OCT_E5M2)
        scaled_all(x, dtype, OCT_E5M2, scale, codes, ld_codes);
    else
        scaled_all(x, dtype, OCT_HIF8, scale, codes, ld_codes);
}

static void scaled(const oct_matrix_view *x, oct_dtype format, float scale, uint8_t *codes,
                   int64_t ld_codes) {
    if (x->dtype == OCT_F32)
        scaled_from(x, OCT_F32, format, scale, codes, ld_codes);
    else
        scaled_from(x, OCT_BF16, format, scale, codes, ld_codes);
}

static void decode_scaled(const uint8_t *codes, int64_t rows, int64_t cols, int64_t ld_codes,
                          oct_dtype format, float scale, float *y, int64_t ld_y) {
    float values[256];
    oct_values_of_codes(format, values);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            y[r * ld_y + c] = values[codes[r * ld_codes + c]] * scale;
}

static void f32_to_bf16(const float *x, int64_t n, uint16_t *y) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        __m256 v = _mm256_loadu_ps(x + i);
        __m256i bits = _mm256_castps_si256(v);
        __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
        __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
        __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
        __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x00400000));
        rounded = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
        __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(rounded, rounded), 0x08);
        _mm_storeu_si128((__m128i *)(void *)(y + i), _mm256_castsi256_si128(words));
    }
    for (; i < n; i++)
        y[i] = oct_bf16_encode(x[i]);
}

static void bf16_to_f32(const uint16_t *x, int64_t n, float *y) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        _mm256_storeu_ps(y + i, load(x, OCT_BF16, i));
    for (; i < n; i++)
        y[i] = oct_bf16_decode(x[i]);
}

const oct_quantize_kernels oct_quantize_kernels_avx2 = {
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
