/* One scale for a tensor or a row, and conversions between fp32 and bf16, in AVX-512.
 *
 * Invariant: loads and stores are masked at the edges; nothing outside the named elements is
 * touched. dtype and format are constants inside the loops. */
#include "kernel/quantize/avx512/quantize_avx512.h"

#include <math.h>
#include <string.h>

#include "kernel/quantize/avx512/mx_blocks.h"
#include "kernel/bf16_of_codes.h"

OCT_INLINE __m512 load(const void *from, oct_dtype dtype, __mmask16 mask) {
    if (dtype == OCT_F32)
        return _mm512_maskz_loadu_ps(mask, from);
    return oct_bf16_lanes(_mm256_maskz_loadu_epi16(mask, from));
}

OCT_INLINE __m512i magnitude_bits(__m512 x) {
    return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
}

OCT_INLINE __m512i amax_bits(const oct_matrix_view *x, oct_dtype dtype) {
    __m512i maxima[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
                         _mm512_setzero_si512()};
    for (int64_t r = 0; r < x->rows; r++) {
        int64_t c = 0;
        for (; c + 64 <= x->cols; c += 64)
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
                maxima[i] = _mm512_max_epu32(
                    maxima[i],
                    magnitude_bits(load(oct_element(x, dtype, r, c + 16 * i), dtype, 0xffff)));
        for (; c < x->cols; c += 16)
            maxima[0] =
                _mm512_max_epu32(maxima[0], magnitude_bits(load(oct_element(x, dtype, r, c), dtype,
                                                                oct_lanes_below(x->cols - c))));
    }
    return _mm512_max_epu32(_mm512_max_epu32(maxima[0], maxima[1]),
                            _mm512_max_epu32(maxima[2], maxima[3]));
}

float oct_amax_avx512(const oct_matrix_view *x) {
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

/* The upper halves of the lanes of a in the low halves, of b in the high halves. */
OCT_INLINE __m512i upper_words(__m512 a, __m512 b) {
    return _mm512_ternarylogic_epi32(_mm512_srli_epi32(_mm512_castps_si512(a), 16),
                                     _mm512_castps_si512(b), _mm512_set1_epi32((int)0xffff0000u),
                                     0xd8);
}

/* HiF8 codes of 64 elements at `from`, of which n are there. */
OCT_INLINE __m512i hif8_64(const char *from, oct_dtype dtype, int64_t n, const divisor *d,
                           bool refine, const oct_hif8_tables *tables) {
    __m512i codes[2];
    if (dtype == OCT_F32) {
        __m512 q[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            __mmask16 mask = oct_lanes_below(n - 16 * i);
            q[i] = divide(_mm512_maskz_loadu_ps(mask, from + 64 * i), d, refine);
        }
        for (int i = 0; i < 2; i++)
            codes[i] = oct_encode_hif8(tables, upper_words(q[i], q[2 + i]));
    } else {
        const oct_odd_bf16_64 w = oct_load_odd_bf16(from, OCT_BF16, n);
        for (int i = 0; i < 2; i++) {
            __m512i odd = _mm512_and_si512(w.words[i], _mm512_set1_epi32((int)0xffff0000u));
            __m512 a = _mm512_castsi512_ps(_mm512_slli_epi32(w.words[i], 16));
            codes[i] =
                oct_encode_hif8(tables, upper_words(divide(a, d, refine),
                                                    divide(_mm512_castsi512_ps(odd), d, refine)));
        }
    }
    __m512i pairs = _mm512_ternarylogic_epi32(codes[0], _mm512_slli_epi16(codes[1], 8),
                                              _mm512_set1_epi16((short)0xff00), 0xd8);
    return oct_order_pairs(pairs, dtype);
}

/* 64 elements at `from`, of which n are there. */
OCT_INLINE __m512i scaled_64(const char *from, oct_dtype dtype, oct_dtype format, int64_t n,
                             const divisor *d, bool refine, const oct_hif8_tables *tables) {
    if (format == OCT_HIF8)
        return hif8_64(from, dtype, n, d, refine, tables);
    const int64_t size = dtype == OCT_F32 ? 4 : 2;
    __m512i code[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) { /* refining may lose the sign of a zero */
        __m512 v = load(from + 16 * i * size, dtype, oct_lanes_below(n - 16 * i));
        __m512 q = divide(v, d, refine);
        code[i] = oct_with_sign(oct_encode_magnitude_or_nan(q, format), refine ? v : q);
    }
    return oct_pack_bytes(code[0], code[1], code[2], code[3]);
}

OCT_INLINE void scaled_all(const oct_matrix_view *x, oct_dtype dtype, oct_dtype format,
                           const divisor *d, bool refine, uint8_t *codes, int64_t ld_codes) {
    const int64_t size = dtype == OCT_F32 ? 4 : 2;
    const oct_hif8_tables tables = oct_hif8_tables_make();
    const bool stream = oct_mx_streams(x, &(oct_mx_output){.codes = codes, .ld_codes = ld_codes});
    for (int64_t r = 0; r < x->rows; r++) {
        const char *from = oct_element(x, dtype, r, 0);
        uint8_t *to = codes + r * ld_codes;
        int64_t c = 0;
        for (; c + 64 <= x->cols; c += 64) {
            oct_prefetch_l1(from + c * size + OCT_AHEAD, 64 * size);
            oct_store_line(
                to + c, scaled_64(from + c * size, dtype, format, 64, d, refine, &tables), stream);
        }
        if (c < x->cols)
            _mm512_mask_storeu_epi8(
                to + c, oct_bytes_below(x->cols - c),
                scaled_64(from + c * size, dtype, format, x->cols - c, d, refine, &tables));
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

void oct_scaled_avx512(const oct_matrix_view *x, oct_dtype format, float scale, uint8_t *codes,
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

void oct_decode_scaled_avx512(const uint8_t *codes, int64_t rows, int64_t cols, int64_t ld_codes,
                              oct_dtype format, float scale, float *y, int64_t ld_y) {
    oct_code_table table = oct_code_table_load(oct_bf16_of_codes(format), format);
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

void oct_f32_to_bf16_avx512(const float *x, int64_t n, uint16_t *y) {
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 mask = oct_lanes_below(n - i);
        _mm256_mask_storeu_epi16(y + i, mask, oct_lanes_bf16(_mm512_maskz_loadu_ps(mask, x + i)));
    }
}

void oct_bf16_to_f32_avx512(const uint16_t *x, int64_t n, float *y) {
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 mask = oct_lanes_below(n - i);
        _mm512_mask_storeu_ps(y + i, mask, oct_bf16_lanes(_mm256_maskz_loadu_epi16(mask, x + i)));
    }
}
