/* Vector helpers that the AVX-512 kernels share: the 16x16 transpose, widening, and the decoding of
 * 8-bit codes and E8M0 scales to fp32.
 *
 * Invariant: every helper is exact (no rounding, no flushing), so that it may be used by the
 * families whose bits are defined. */
#ifndef OCT_KERNEL_VECTORS_AVX512_H
#define OCT_KERNEL_VECTORS_AVX512_H

#include <immintrin.h>
#include <octet/format.h>
#include <octet/tensor.h>

#include <stdalign.h>
#include <stdbool.h>

#include "kernel/inline.h"

#define OCT_LANES 16 /* fp32 lanes of a register */

/* The lowest n lanes, 0 <= n <= 16 (more counts as 16; less than 0 as none). */
static inline __mmask16 oct_lanes_below(int64_t n) {
    if (n <= 0)
        return 0;
    return n >= OCT_LANES ? (__mmask16)0xffff : (__mmask16)((1u << n) - 1);
}

static inline __mmask64 oct_bytes_below(int64_t n) {
    if (n <= 0)
        return 0;
    return n >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << n) - 1;
}

/* v[i] lane j <-> v[j] lane i. */
OCT_INLINE void oct_transpose_16x16(__m512i v[16]) {
    __m512i t[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    /* v[4 g + c]: in each quarter q, column 4 q + c of rows 4 g .. 4 g + 3. */
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        __m512i a = _mm512_shuffle_i32x4(v[c], v[4 + c], 0x88);
        __m512i b = _mm512_shuffle_i32x4(v[c], v[4 + c], 0xdd);
        __m512i d = _mm512_shuffle_i32x4(v[8 + c], v[12 + c], 0x88);
        __m512i e = _mm512_shuffle_i32x4(v[8 + c], v[12 + c], 0xdd);
        t[c] = _mm512_shuffle_i32x4(a, d, 0x88);
        t[4 + c] = _mm512_shuffle_i32x4(b, e, 0x88);
        t[8 + c] = _mm512_shuffle_i32x4(a, d, 0xdd);
        t[12 + c] = _mm512_shuffle_i32x4(b, e, 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        v[i] = t[i];
}

/* Lane j gets the low bytes of lane j of a, b, c, d, in this order from the lowest byte. */
OCT_INLINE __m512i oct_merge_bytes(__m512i a, __m512i b, __m512i c, __m512i d) {
    __m512i ab = _mm512_mask_mov_epi8(_mm512_slli_epi32(b, 8), 0x1111111111111111u, a);
    __m512i cd = _mm512_mask_mov_epi8(_mm512_slli_epi32(d, 24), 0x4444444444444444u,
                                      _mm512_slli_epi32(c, 16));
    return _mm512_mask_blend_epi16(0x55555555u, cd, ab);
}

/* bf16 in the low half of each lane to fp32. */
static inline __m512 oct_bf16_lanes(__m256i bits) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

/* fp32 to bf16: to nearest, ties to even; a NaN keeps its upper half and becomes quiet. */
static inline __m256i oct_lanes_bf16(__m512 x) {
    __m512i bits = _mm512_castps_si512(x);
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x00400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}

/* Every finite value of the 8-bit formats is exact in bf16: the decoded magnitudes of codes
 * 0 .. 127 as 16-bit words, for vpermi2w. HiF8's one NaN, code 0x80, has no magnitude to look up:
 * `nan_of_zero` is xored into lanes whose code is 0x80. */
typedef struct oct_code_table {
    __m512i word[4];
    __m512i nan_of_zero;
} oct_code_table;

static inline oct_code_table oct_code_table_load(const uint16_t words[128], oct_dtype format) {
    oct_code_table table;
    for (int i = 0; i < 4; i++)
        table.word[i] = _mm512_loadu_si512(words + 32 * i);
    table.nan_of_zero = _mm512_set1_epi32(format == OCT_HIF8 ? 0x7fc00000 : 0);
    return table;
}

/* 16 codes, one in the low byte of each lane (the other bytes zero), to fp32. */
static inline __m512 oct_decode_lanes(const oct_code_table *table, __m512i codes) {
    __mmask16 upper = _mm512_test_epi32_mask(codes, _mm512_set1_epi32(0x40));
    __m512i low = _mm512_permutex2var_epi16(table->word[0], codes, table->word[1]);
    __m512i high = _mm512_permutex2var_epi16(table->word[2], codes, table->word[3]);
    __m512i bits = _mm512_slli_epi32(_mm512_mask_mov_epi32(low, upper, high), 16);
    /* bits | (codes << 24 & sign) */
    bits = _mm512_ternarylogic_epi32(bits, _mm512_slli_epi32(codes, 24),
                                     _mm512_set1_epi32((int)0x80000000u), 0xf8);
    __mmask16 zero_code = _mm512_cmpeq_epi32_mask(codes, _mm512_set1_epi32(0x80));
    bits = _mm512_mask_or_epi32(bits, zero_code, bits, table->nan_of_zero);
    return _mm512_castsi512_ps(bits);
}

/* 16 E8M0 codes, one a lane, to fp32. */
static inline __m512 oct_e8m0_lanes(__m512i codes) {
    __m512i bits = _mm512_slli_epi32(codes, 23);
    bits = _mm512_mask_mov_epi32(bits, _mm512_testn_epi32_mask(codes, codes),
                                 _mm512_set1_epi32(0x00400000));
    bits = _mm512_mask_mov_epi32(bits, _mm512_cmpeq_epi32_mask(codes, _mm512_set1_epi32(255)),
                                 _mm512_set1_epi32(0x7fc00000));
    return _mm512_castsi512_ps(bits);
}

#endif
