/* 8-bit codes to bf16 words for bf16 panels, with their MX scales in the exponents.
 *
 * Words are looked up with exponents larger by OCT_BF16_BIAS, from which 0 .. 2 OCT_BF16_BIAS is
 * subtracted. Invariant: any zero is looked up as -0, the least of signed words, so that it stays
 * one: subtracting saturates. */
#ifndef OCT_KERNEL_GEMM_BF16_BIASED_BF16_H
#define OCT_KERNEL_GEMM_BF16_BIASED_BF16_H

#include "kernel/gemm/bf16/panel_bf16.h"
#include "kernel/gemm/avx512/e4m3_by_bits.h"

/* What was seen of codes so far. */
typedef struct oct_codes_seen {
    __m512i uppers;    /* all bits of the upper bytes of words */
    __m512i nan_codes; /* HiF8's, as bytes that aren't zero */
} oct_codes_seen;

/* What decoding needs in registers. */
typedef struct oct_biased_decoder {
    oct_bf16_table words;
    __m512i sign;
} oct_biased_decoder;

/* Words as described above; those that aren't finite keep 0x7f as their upper byte, whose bit 5 no
 * other has. */
OCT_INLINE oct_bf16_table oct_biased_table_make(oct_dtype format) {
    oct_bf16_table t = oct_bf16_table_make(format);
    for (int i = 0; i < 2; i++) {
        const __mmask64 zero = _mm512_testn_epi8_mask(t.high[i], t.high[i]);
        const __mmask64 finite = _mm512_cmplt_epu8_mask(t.high[i], _mm512_set1_epi8(0x7f));
        t.high[i] = _mm512_mask_add_epi8(t.high[i], finite, t.high[i],
                                         _mm512_set1_epi8(OCT_BF16_BIAS >> 1));
        t.high[i] = _mm512_mask_set1_epi8(t.high[i], zero, (char)0x80);
    }
    return t;
}

OCT_INLINE oct_biased_decoder oct_biased_decoder_make(const oct_bf16_table *words) {
    __m512i sign = _mm512_set1_epi8((char)0x80);
    __asm__(""
            : "+v"(sign)); /* kept in a register, or the compiler would make it again and again */
    return (oct_biased_decoder){*words, sign};
}

/* 64 codes to words: of the lower and the upper eight codes of each quarter. */
OCT_INLINE void oct_biased_decode(const oct_biased_decoder *t, __m512i codes, __m512i lower_drop,
                                  __m512i upper_drop, __m512i *lower, __m512i *upper,
                                  oct_codes_seen *s) {
    __m512i low = _mm512_permutex2var_epi8(t->words.low[0], codes, t->words.low[1]);
    __m512i high = _mm512_permutex2var_epi8(t->words.high[0], codes, t->words.high[1]);
    s->uppers = _mm512_or_si512(s->uppers, high);
    if (t->words.zero_is_nan)
        s->nan_codes =
            _mm512_or_si512(s->nan_codes, _mm512_movm_epi8(_mm512_cmpeq_epi8_mask(codes, t->sign)));
    high = _mm512_ternarylogic_epi32(high, codes, t->sign, 0xf8);
    *lower = _mm512_subs_epi16(_mm512_unpacklo_epi8(low, high), lower_drop);
    *upper = _mm512_subs_epi16(_mm512_unpackhi_epi8(low, high), upper_drop);
}

/* The same for E4M3's normal codes, with e4m3_by_bits.h's rules: the exponent is 152 more, 120 and
 * OCT_BF16_BIAS. */
OCT_INLINE void oct_biased_decode_e4m3(__m512i codes, __m512i lower_drop, __m512i upper_drop,
                                       __m512i *lower, __m512i *upper) {
    __m512i low = oct_e4m3_low_bytes(codes);
    __m512i high =
        _mm512_gf2p8affine_epi64_epi8(codes, _mm512_set1_epi64(0x1020404040000080), 0x4c);
    *lower = _mm512_subs_epi16(_mm512_unpacklo_epi8(low, high), lower_drop);
    *upper = _mm512_subs_epi16(_mm512_unpackhi_epi8(low, high), upper_drop);
}

OCT_INLINE bool oct_saw_not_finite(const oct_codes_seen *s) {
    return (_mm512_test_epi8_mask(s->uppers, _mm512_set1_epi8(0x20)) |
            _mm512_test_epi8_mask(s->nan_codes, s->nan_codes)) != 0;
}

#endif
