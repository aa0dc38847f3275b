/* E4M3 codes to bf16 words without look-ups (GFNI).
 *
 * Normal codes are words but for the place of their bits and for the exponent, 120 more: its upper
 * bit, four times the same inverted, its other bits. So each byte of a word is a matrix of bits and
 * a constant. That's wrong for zeros, subnormals and NaNs; another matrix finds them, and whoever
 * finds them looks the codes up after all.
 *
 * Invariant: what isn't reported is exact. */
#ifndef OCT_KERNEL_GEMM_AVX512_E4M3_BY_BITS_H
#define OCT_KERNEL_GEMM_AVX512_E4M3_BY_BITS_H

#include "kernel/vectors_avx512.h"

/* A matrix's byte 7 - i has the bits of a code whose sum is bit i of the result. */
OCT_INLINE __m512i oct_e4m3_low_bytes(__m512i codes) {
    return _mm512_gf2p8affine_epi64_epi8(codes, _mm512_set1_epi64(0x0000000001020408), 0);
}

OCT_INLINE __m512i oct_e4m3_high_bytes(__m512i codes) {
    return _mm512_gf2p8affine_epi64_epi8(codes, _mm512_set1_epi64(0x1020404040404080), 0x3c);
}

/* The bytes' minimum of `least` and of the codes' ranks. A rank has, from the top, which neighbours
 * among the exponent's bits differ, then the exponent's lowest bit and the mantissa inverted: zeros
 * and subnormals have up to 14, NaN 16, other codes 18 or more. */
OCT_INLINE __m512i oct_e4m3_least_rank(__m512i least, __m512i codes) {
    return _mm512_min_epu8(
        least, _mm512_gf2p8affine_epi64_epi8(codes, _mm512_set1_epi64(0x0001020408183060), 0x0e));
}

OCT_INLINE bool oct_e4m3_all_normal(__m512i least) {
    return _mm512_cmple_epu8_mask(least, _mm512_set1_epi8(16)) == 0;
}

#endif
