/* 8-bit codes to bf16 words, 64 at a time (VBMI). */
#ifndef OCT_KERNEL_GEMM_AVX512_BF16_TABLE_H
#define OCT_KERNEL_GEMM_AVX512_BF16_TABLE_H

#include "kernel/quantize/avx512/encode.h"
#include "kernel/bf16_of_codes.h"

/* bf16 words of codes by two byte look-ups. */
typedef struct oct_bf16_table {
    __m512i low[2], high[2];
    bool zero_is_nan; /* HiF8: 0x80 is NaN */
} oct_bf16_table;

OCT_INLINE oct_bf16_table oct_bf16_table_make(oct_dtype format) {
    const uint16_t *words = oct_bf16_of_codes(format);
    const __m512i even =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
    const __m512i low = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
    const __m512i high = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
    oct_bf16_table t = {.zero_is_nan = format == OCT_HIF8};
    for (int i = 0; i < 2; i++) {
        __m512i a = _mm512_shuffle_epi8(_mm512_loadu_si512(words + 64 * i), even);
        __m512i b = _mm512_shuffle_epi8(_mm512_loadu_si512(words + 64 * i + 32), even);
        t.low[i] = _mm512_permutex2var_epi64(a, low, b);
        t.high[i] = _mm512_permutex2var_epi64(a, high, b);
    }
    return t;
}

/* Words of the even and the odd bytes of 64 codes, and which codes aren't finite. */
typedef struct oct_word_pair {
    __m512i even, odd;
    __mmask64 not_finite, nan_codes; /* the latter: HiF8's NaN, which looks up a zero */
} oct_word_pair;

OCT_INLINE oct_word_pair oct_look_up_words(const oct_bf16_table *t, __m512i codes) {
    __m512i low = _mm512_permutex2var_epi8(t->low[0], codes, t->low[1]);
    __m512i high = _mm512_permutex2var_epi8(t->high[0], codes, t->high[1]);
    oct_word_pair w;
    w.not_finite = _mm512_cmpeq_epi8_mask(high, _mm512_set1_epi8(0x7f));
    w.nan_codes = t->zero_is_nan ? _mm512_cmpeq_epi8_mask(codes, _mm512_set1_epi8((char)0x80)) : 0;
    high = _mm512_ternarylogic_epi32(high, codes, _mm512_set1_epi8((char)0x80), 0xf8);
    const __mmask64 odd_bytes = 0xaaaaaaaaaaaaaaaau;
    w.even = _mm512_mask_mov_epi8(low, odd_bytes, _mm512_slli_epi16(high, 8));
    w.odd = _mm512_mask_mov_epi8(_mm512_srli_epi16(low, 8), odd_bytes, high);
    return w;
}

#endif
