/* How the packing kernels read an operand: sixteen rows at a time, with their scales. */
#ifndef OCT_KERNEL_GEMM_AVX512_READ_ROWS_H
#define OCT_KERNEL_GEMM_AVX512_READ_ROWS_H

#include "kernel/vectors_avx512.h"
#include "kernel/gemm.h"

/* E8M0 codes, one a lane, for the block of 32 that holds k of rows row .. row + 15 (those of
 * `lanes`; 127, a scale of 1, elsewhere). */
static inline __m512i oct_lane_scale_codes(const oct_operand *x, int64_t row, __mmask16 lanes,
                                           int64_t k) {
    const uint8_t *scales = x->scales;
    alignas(16) uint8_t code[16];
    int64_t n = (int64_t)_mm_popcnt_u32(lanes);
    for (int64_t r = 0; r < n; r++) {
        int64_t p = x->layout == OCT_K_CONTIGUOUS ? row + r : k;
        int64_t q = x->layout == OCT_K_CONTIGUOUS ? k : row + r;
        code[r] =
            scales[(x->block_rows == 1 ? p : p / OCT_MX_BLOCK) * x->ld_scales + q / OCT_MX_BLOCK];
    }
    for (int64_t r = n; r < 16; r++)
        code[r] = 127;
    return _mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)code));
}

/* The fp32 factors of these rows, whatever the scaling. */
static inline __m512 oct_lane_scales(const oct_operand *x, int64_t row, __mmask16 lanes,
                                     int64_t k) {
    const float *scales = x->scales;
    if (x->scaling == OCT_SCALING_MX)
        return oct_e8m0_lanes(oct_lane_scale_codes(x, row, lanes, k));
    if (x->scaling == OCT_SCALING_TENSOR)
        return _mm512_maskz_mov_ps(lanes, _mm512_set1_ps(scales[0]));
    if (x->scaling == OCT_SCALING_ROW)
        return _mm512_maskz_loadu_ps(lanes, scales + row);
    return _mm512_set1_ps(1);
}

/* The E8M0 codes of up to sixteen blocks of k of an operand whose K is contiguous, transposed: rows
 * row .. row + 15 (those of `lanes`; 127 elsewhere) of block b in codes[b]. */
OCT_INLINE void oct_transpose_scales(const oct_operand *x, int64_t row, __mmask16 lanes, int64_t k,
                                     int64_t n_blocks, uint8_t codes[16][16]) {
    const __mmask16 valid = oct_lanes_below(n_blocks);
    __m128i v[16], t[16];
#pragma GCC unroll 16
    for (int r = 0; r < 16; r++) {
        const bool used = lanes >> r & 1;
        const int64_t p = (used ? row + r : row) / x->block_rows;
        v[r] =
            _mm_mask_loadu_epi8(_mm_set1_epi8(127), used ? valid : 0,
                                (const uint8_t *)x->scales + p * x->ld_scales + k / OCT_MX_BLOCK);
    }
    /* Four rounds of interleaving rows i and i + 8. */
#pragma GCC unroll 4
    for (int round = 0; round < 4; round++) {
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            t[2 * i] = _mm_unpacklo_epi8(v[i], v[i + 8]);
            t[2 * i + 1] = _mm_unpackhi_epi8(v[i], v[i + 8]);
        }
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            v[i] = t[i];
    }
#pragma GCC unroll 16
    for (int b = 0; b < 16; b++)
        _mm_store_si128((__m128i *)codes[b], v[b]);
}

/* 64 codes of k of each of sixteen rows of an 8-bit operand whose K is contiguous; what is beyond
 * `n_k` or not in `lanes` is zero. */
OCT_INLINE void oct_load_16_rows(const oct_operand *x, int64_t row, __mmask16 lanes, int64_t k,
                                 int64_t n_k, __m512i v[16]) {
    const uint8_t *codes = (const uint8_t *)x->data + row * x->ld + k;
    __mmask64 valid = oct_bytes_below(n_k);
#pragma GCC unroll 16
    for (int r = 0; r < 16; r++) { /* without a branch: rows that aren't used read the first */
        const int64_t used = -(int64_t)(lanes >> r & 1);
        const uint8_t *from = codes + (r * x->ld & used);
        v[r] = _mm512_maskz_loadu_epi8(valid & (__mmask64)used, from);
        _mm_prefetch((const char *)from + 512, _MM_HINT_T0); /* too many streams for hardware */
    }
}

/* The same sixteen rows of an operand whose K is strided, as a transpose would leave them: v[j]
 * lane r = codes of k = 4 j .. 4 j + 3. */
OCT_INLINE void oct_load_quads_strided(const oct_operand *x, int64_t row, __mmask16 lanes,
                                       int64_t k, int64_t n_k, __m512i v[16]) {
    const uint8_t *codes = (const uint8_t *)x->data + k * x->ld + row;
    for (int j = 0; j < 16; j++) {
        __m512i c[4];
#pragma GCC unroll 4
        for (int b = 0; b < 4; b++) {
            bool used = 4 * j + b < n_k;
            c[b] = _mm512_cvtepu8_epi32(
                _mm_maskz_loadu_epi8(used ? lanes : 0, used ? codes + (4 * j + b) * x->ld : codes));
        }
        v[j] = oct_merge_bytes(c[0], c[1], c[2], c[3]);
    }
}

/* Codes of sixteen rows as [k / 4][row][4], the last quads padded with zeros to a multiple of 64 k.
 */
OCT_INLINE void oct_gather_codes(const oct_operand *x, int64_t row, __mmask16 lanes, int64_t k,
                                 int64_t kc, uint8_t *codes) {
    for (int64_t i = 0; i < kc; i += 64) {
        __m512i v[16];
        if (x->layout == OCT_K_CONTIGUOUS) {
            oct_load_16_rows(x, row, lanes, k + i, kc - i, v);
            oct_transpose_16x16(v);
        } else {
            oct_load_quads_strided(x, row, lanes, k + i, kc - i, v);
        }
#pragma GCC unroll 16
        for (int j = 0; j < 16; j++)
            _mm512_store_si512(codes + (i / 4 + j) * 64, v[j]);
    }
}

#endif
