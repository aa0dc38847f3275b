/* Encoding in AVX-512: fp32 lanes to 8-bit codes, and how codes in lanes become bytes in memory.
 *
 * Invariant: the bits of octet/format.h with saturation, for every input. */
#ifndef OCT_KERNEL_QUANTIZE_AVX512_ENCODE_H
#define OCT_KERNEL_QUANTIZE_AVX512_ENCODE_H

#include "kernel/vectors_avx512.h"
#include "kernel/quantize/hif8_tables.h"

/* The magnitude bits of E4M3 and E5M2 codes in the low bytes of the lanes (the other bytes are
 * garbage, NaN gives the largest value).
 *
 * With E = max(exponent of x, smallest normal exponent) and m mantissa bits, x is rounded to
 * multiples of 2^(E-m) by adding 2^(E-m+23): the low bits of the sum count those multiples, and the
 * code is the count plus E's distance from the smallest normal exponent, shifted. The constant of
 * that distance travels in the low (even) bits of what is added. */
OCT_INLINE __m512i oct_encode_magnitude(__m512 x, oct_dtype format) {
    const int m = format == OCT_E4M3 ? 3 : 2;
    const int smallest = format == OCT_E4M3 ? 127 - 6 : 127 - 14; /* exponent fields */
    const float largest = format == OCT_E4M3 ? 448.0f : 57344.0f;
    const int distance = (256 - (smallest << m & 255)) & 255;
    __m512 a = _mm512_range_ps(x, _mm512_set1_ps(largest), 0x0a); /* min of the magnitudes */
    __m512i e = _mm512_and_si512(_mm512_castps_si512(a), _mm512_set1_epi32(0x7f800000));
    e = _mm512_max_epi32(e, _mm512_set1_epi32(smallest << 23));
    __m512i magic = _mm512_add_epi32(e, _mm512_set1_epi32(((23 - m) << 23) + distance));
    __m512 sum = _mm512_add_ps(a, _mm512_castsi512_ps(magic));
    return _mm512_add_epi32(_mm512_castps_si512(sum), _mm512_srli_epi32(e, (unsigned)(23 - m)));
}

/* Sign into bit 7 of a lane's magnitude bits. */
OCT_INLINE __m512i oct_with_sign(__m512i magnitude, __m512 x) {
    __m512i top = _mm512_srli_epi32(_mm512_castps_si512(x), 24);
    return _mm512_ternarylogic_epi32(magnitude, top, _mm512_set1_epi32(0x80), 0xf8);
}

/* The magnitude bits of any x; NaN gives 0x7f. */
OCT_INLINE __m512i oct_encode_magnitude_or_nan(__m512 x, oct_dtype format) {
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_mask_mov_epi32(oct_encode_magnitude(x, format), nan, _mm512_set1_epi32(0x7f));
}

/* The low bytes of 4 x 16 lanes as 64 bytes in order. */
OCT_INLINE __m512i oct_pack_bytes(__m512i a, __m512i b, __m512i c, __m512i d) {
    const __m512i by_source =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i merged = oct_merge_bytes(a, b, c, d);
    return _mm512_permutexvar_epi32(order, _mm512_shuffle_epi8(merged, by_source));
}

/* --- HiF8: see kernel/quantize/hif8_tables.h --- */

typedef struct oct_hif8_tables {
    /* place: as in kernel/quantize/hif8_tables.h, but the upper byte is the upper byte of the
     * factor that shifts a word's mantissa into the upper half of a product. */
    __m512i half[2], place[2];
} oct_hif8_tables;

OCT_INLINE oct_hif8_tables oct_hif8_tables_make(void) {
    alignas(64) uint16_t half[OCT_HIF8_EXPONENTS], place[OCT_HIF8_EXPONENTS];
    oct_hif8_fill_tables(half, place);
    for (int i = 0; i < OCT_HIF8_EXPONENTS; i++)
        place[i] = (uint16_t)((1 << 16 >> (place[i] >> 8)) | (place[i] & 0xff));
    return (oct_hif8_tables){
        {_mm512_load_si512(half), _mm512_load_si512(half + 32)},
        {_mm512_load_si512(place), _mm512_load_si512(place + 32)},
    };
}

/* 32 HiF8 codes (TA, saturating) in the low bytes of words, the other bytes garbage, from the upper
 * halves of fp32 numbers whose NaNs are quiet. */
OCT_INLINE __m512i oct_encode_hif8(const oct_hif8_tables *tables, __m512i words) {
    const __m512i below = _mm512_set1_epi16(127 - 24);
    __m512i a = _mm512_and_si512(words, _mm512_set1_epi16(0x7fff));
    __mmask32 nan = _mm512_cmpgt_epi16_mask(a, _mm512_set1_epi16(0x7f80));
    a = _mm512_min_epu16(a, _mm512_set1_epi16(0x4700)); /* 2^15, the largest value */
    __m512i e = _mm512_subs_epu16(_mm512_srli_epi16(a, 7), below);
    a = _mm512_add_epi16(a, _mm512_permutex2var_epi16(tables->half[0], e, tables->half[1]));
    e = _mm512_subs_epu16(_mm512_srli_epi16(a, 7), below);
    __m512i place = _mm512_permutex2var_epi16(tables->place[0], e, tables->place[1]);
    __m512i mantissa =
        _mm512_mulhi_epu16(_mm512_and_si512(a, _mm512_set1_epi16(0x7f)),
                           _mm512_and_si512(place, _mm512_set1_epi16((short)0xff00)));
    __m512i code = _mm512_add_epi16(place, mantissa);
    __mmask32 nonzero = _mm512_test_epi16_mask(code, _mm512_set1_epi16(0xff)); /* zero: no sign */
    __m512i sign = _mm512_maskz_srli_epi16(nonzero, words, 8);
    code = _mm512_ternarylogic_epi32(code, sign, _mm512_set1_epi16(0x80), 0xf8);
    return _mm512_mask_mov_epi16(code, nan, _mm512_set1_epi16(0x80));
}

#endif
