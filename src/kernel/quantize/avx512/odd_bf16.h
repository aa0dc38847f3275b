/* MX scales and codes by 16-bit arithmetic: 32 elements a register.
 *
 * An element is a word: the upper half of its fp32, the last bit also set where anything is cut
 * off (rounding to odd). Eight significant bits of which the last is sticky decide every rounding
 * to four bits or fewer, and every comparison that a scale depends on, as all 24 would; a bf16 is
 * its own word. Scales are powers of two, so scaling is a subtraction from the exponent field.
 *
 * Invariant: the bits of octet/format.h, for blocks that oct_maxima_out_of_range doesn't name.
 * Those (NaN, Inf, or nothing but fp32 numbers below 2^-93) are left to the reference set. */
#ifndef OCT_KERNEL_QUANTIZE_AVX512_ODD_BF16_H
#define OCT_KERNEL_QUANTIZE_AVX512_ODD_BF16_H

#include "kernel/quantize/avx512/encode.h"

/* 64 elements of a row. bf16: words[0] has the first 32, words[1] the others. fp32: lane i of the
 * low halves has element i, of the high halves element 32 + i; 16 + i and 48 + i in words[1]. So
 * a block is a register, or one half of every lane of both. */
typedef struct oct_odd_bf16_64 {
    __m512i words[2];
} oct_odd_bf16_64;

/* Lane i: the words of a (low half) and b (high half). */
OCT_INLINE __m512i oct_round_to_odd(__m512i a, __m512i b) {
    const __mmask32 upper = 0xaaaaaaaau;
    __m512i kept = _mm512_mask_mov_epi16(_mm512_srli_epi32(a, 16), upper, b);
    __m512i cut = _mm512_mask_mov_epi16(a, upper, _mm512_slli_epi32(b, 16));
    return _mm512_or_si512(kept, _mm512_min_epu16(cut, _mm512_set1_epi16(1)));
}

/* n of 64 elements at x are there; the others become zeros. */
OCT_INLINE oct_odd_bf16_64 oct_load_odd_bf16(const void *x, oct_dtype dtype, int64_t n) {
    oct_odd_bf16_64 w;
    if (dtype == OCT_BF16) {
        __mmask64 mask = oct_bytes_below(n);
        w.words[0] = _mm512_maskz_loadu_epi16((__mmask32)mask, x);
        w.words[1] = _mm512_maskz_loadu_epi16((__mmask32)(mask >> 32), (const uint16_t *)x + 32);
        return w;
    }
    __m512i v[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        v[i] = _mm512_maskz_loadu_epi32(oct_lanes_below(n - 16 * i), (const float *)x + 16 * i);
    w.words[0] = oct_round_to_odd(v[0], v[2]);
    w.words[1] = oct_round_to_odd(v[1], v[3]);
    return w;
}

/* Where a column of a register of words comes from: which of 64 elements is half h of lane i of
 * words[w]. */
OCT_INLINE int64_t oct_odd_bf16_element(oct_dtype dtype, int w, int half, int lane) {
    return dtype == OCT_BF16 ? 32 * w + 2 * lane + half : 16 * w + 32 * half + lane;
}

OCT_INLINE __m512i oct_odd_bf16_magnitudes(__m512i words) {
    return _mm512_and_si512(words, _mm512_set1_epi16(0x7fff));
}

/* The largest magnitudes of 64 elements, still to be reduced over lanes: low halves those of the
 * first block, high halves those of the second. */
OCT_INLINE __m512i oct_block_maxima(oct_odd_bf16_64 w, oct_dtype dtype) {
    __m512i a = oct_odd_bf16_magnitudes(w.words[0]), b = oct_odd_bf16_magnitudes(w.words[1]);
    if (dtype == OCT_F32)
        return _mm512_max_epu16(a, b);
    return _mm512_max_epu16(_mm512_unpacklo_epi16(a, b), _mm512_unpackhi_epi16(a, b));
}

/* Word b of the result: the maximum of block b, from 8 results of oct_block_maxima. */
OCT_INLINE __m256i oct_reduce_maxima(__m512i m[8]) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        m[i] = _mm512_max_epu16(_mm512_unpacklo_epi32(m[2 * i], m[2 * i + 1]),
                                _mm512_unpackhi_epi32(m[2 * i], m[2 * i + 1]));
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
        m[i] = _mm512_max_epu16(_mm512_unpacklo_epi64(m[2 * i], m[2 * i + 1]),
                                _mm512_unpackhi_epi64(m[2 * i], m[2 * i + 1]));
    __m512i r = _mm512_max_epu16(_mm512_shuffle_i32x4(m[0], m[1], 0x88),
                                 _mm512_shuffle_i32x4(m[0], m[1], 0xdd));
    r = _mm512_max_epu16(r, _mm512_shuffle_i32x4(r, r, 0xb1));
    return _mm512_castsi512_si256(_mm512_shuffle_i32x4(r, r, 0x08));
}

/* --- scales --- */

/* Everything that depends on format and mode. */
typedef struct oct_mx_rule {
    __m512i rounding; /* added to a maximum so that its exponent field rounds as the mode says */
    __m512i largest_exponent;
    __m512i drop; /* exponent steps from a block's scale down to what rounds to zero */
} oct_mx_rule;

OCT_INLINE oct_mx_rule oct_mx_rule_make(oct_dtype format, oct_scale_mode mode) {
    const bool e4m3 = format == OCT_E4M3;
    /* rceil: up beyond 1.75 2^e, the largest code's significand; even: up where the significand
     * rounds to 2 in the format. */
    int rounding = 0;
    if (mode == OCT_SCALE_RCEIL)
        rounding = 0x80 - 0x61;
    else if (mode == OCT_SCALE_CEIL)
        rounding = 0x7f;
    else if (mode == OCT_SCALE_EVEN)
        rounding = e4m3 ? 1 << 3 : 1 << 4;
    return (oct_mx_rule){_mm512_set1_epi16((short)rounding), _mm512_set1_epi16(e4m3 ? 8 : 15),
                         _mm512_set1_epi16(e4m3 ? 10 : 17)};
}

/* Blocks whose maxima are out of the range of these functions: not finite, or tiny without being
 * zero. */
OCT_INLINE __mmask32 oct_maxima_out_of_range(__m512i maxima) {
    const __m512i low = _mm512_set1_epi16(34 << 7);
    const __m512i range = _mm512_set1_epi16(0x7f80 - (34 << 7));
    return _mm512_mask_cmpge_epu16_mask(_mm512_test_epi16_mask(maxima, maxima),
                                        _mm512_sub_epi16(maxima, low), range);
}

/* E8M0 codes of maxima. */
OCT_INLINE __m512i oct_scales_of_maxima(__m512i maxima, const oct_mx_rule *rule) {
    __m512i e = _mm512_srli_epi16(_mm512_add_epi16(maxima, rule->rounding), 7);
    return _mm512_subs_epu16(e, rule->largest_exponent);
}

/* What oct_encode_odd_bf16 subtracts for a scale code. Zeros may have any. */
OCT_INLINE __m512i oct_encoding_bases(__m512i scales, const oct_mx_rule *rule) {
    __m512i steps = _mm512_subs_epu16(scales, rule->drop);
    return _mm512_slli_epi16(_mm512_max_epu16(steps, _mm512_set1_epi16(1)), 7);
}

/* --- codes --- */

/* Codes in the upper bytes, with a bias on their magnitudes that oct_pair_codes takes off; the
 * lower bytes are garbage.
 *
 * With n the exponent above the base (0: below half of the smallest number, so that zeros, for
 * which the subtraction saturates, are rounded off as a tie there is) and s the significand as
 * 128 .. 255, subnormal codes are s 2^n / 256, rounded. From n = c on, where the exponent field is
 * 1, the code is s 2^c / 256 plus n - c steps of that field: 2^c / 256 times a straight line in t =
 * 128 n + mantissa. The bias makes the largest code the largest number of 16 bits, to which the
 * last addition saturates. */
OCT_INLINE __m512i oct_encode_odd_bf16(__m512i words, __m512i base, oct_dtype format) {
    const int c = format == OCT_E4M3 ? 4 : 3;
    const int bias = 0x7f - (format == OCT_E4M3 ? 0x7e : 0x7b);
    __m512i t = _mm512_subs_epu16(oct_odd_bf16_magnitudes(words), base);
    __m512i n = _mm512_min_epu16(_mm512_srli_epi16(t, 7), _mm512_set1_epi16(c));
    __m512i s =
        _mm512_ternarylogic_epi32(t, _mm512_set1_epi16(0x7f), _mm512_set1_epi16(0x80), 0xea);
    __mmask32 normal = _mm512_cmpge_epu16_mask(t, _mm512_set1_epi16((short)(c << 7)));
    s = _mm512_mask_sub_epi16(s, normal, t, _mm512_set1_epi16((short)((c - 1) << 7)));
    __m512i v = _mm512_sllv_epi16(s, n);
    __mmask32 odd = _mm512_test_epi16_mask(v, _mm512_set1_epi16(0x100)); /* ties to even */
    v = _mm512_mask_add_epi16(v, odd, v, _mm512_set1_epi16(1));
    v = _mm512_adds_epi16(v, _mm512_set1_epi16((short)(0x7f + (bias << 8))));
    return _mm512_ternarylogic_epi32(v, words, _mm512_set1_epi16((short)0x8000), 0xf8);
}

/* Results of oct_encode_odd_bf16 to codes: the low byte of each word from a, the high one from b.
 */
OCT_INLINE __m512i oct_pair_codes(__m512i a, __m512i b, oct_dtype format) {
    const char bias = 0x7f - (format == OCT_E4M3 ? 0x7e : 0x7b);
    __m512i pairs = _mm512_ternarylogic_epi32(_mm512_srli_epi16(a, 8), b,
                                              _mm512_set1_epi16((short)0xff00), 0xd8);
    return _mm512_sub_epi8(pairs, _mm512_set1_epi8(bias));
}

/* Codes in pairs of the words of oct_odd_bf16_64 (words[0]: low bytes) in the order of the
 * elements.
 */
OCT_INLINE __m512i oct_order_pairs(__m512i pairs, oct_dtype dtype) {
    if (dtype == OCT_BF16) {
        const __m512i apart = _mm512_broadcast_i32x4(
            _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
        return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7),
                                        _mm512_shuffle_epi8(pairs, apart));
    }
    const __m512i apart =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
        _mm512_shuffle_epi8(pairs, apart));
}

/* The codes of 64 elements of a row, in order. */
OCT_INLINE __m512i oct_order_codes(__m512i a, __m512i b, oct_dtype dtype, oct_dtype format) {
    return oct_order_pairs(oct_pair_codes(a, b, format), dtype);
}

#endif
