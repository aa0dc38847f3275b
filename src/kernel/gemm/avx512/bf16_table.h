/* 8-bit codes to bf16 words, 64 at a time (VBMI). */
#ifndef OCT_KERNEL_GEMM_AVX512_BF16_TABLE_H
#define OCT_KERNEL_GEMM_AVX512_BF16_TABLE_H

#include "kernel/vectors_avx512.h"
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

#endif
