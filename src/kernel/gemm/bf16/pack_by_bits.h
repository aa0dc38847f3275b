/* Codes to bf16 words without look-ups, for bf16 panels (VBMI, GFNI).
 *
 * E4M3's and E5M2's normal codes are words but for the place of their bits and for the exponent's
 * bias: a matrix of bits for each byte, and an addition, make them. That's wrong for zeros,
 * subnormals, NaNs and infinities; a third matrix finds them, and whoever finds them looks the
 * codes up after all.
 *
 * Invariant: what isn't reported is exact. */
#ifndef OCT_KERNEL_GEMM_BF16_PACK_BY_BITS_H
#define OCT_KERNEL_GEMM_BF16_PACK_BY_BITS_H

#include "kernel/gemm/bf16/panel_bf16.h"
#include "kernel/vectors_avx512.h"

OCT_INLINE bool oct_bf16_has_bits(oct_dtype format) {
    return format == OCT_E4M3 || format == OCT_E5M2;
}

/* A matrix's byte 7 - i has the bits of a code whose sum is bit i of the result. */
OCT_INLINE oct_bf16_bits oct_bf16_bits_make(oct_dtype format) {
    const bool e4m3 = format == OCT_E4M3;
    /* Mantissa and exponent begin at bit 4 of a word, or at 5; the sign is bit 15. */
    const long long low = e4m3 ? 0x0000000001020408 : 0x0000000000010204;
    const long long high = e4m3 ? 0x1020400000000080 : 0x0810204000000080;
    /* From the top: which neighbours among an exponent's bits differ. None does where it is all
     * zeros or all ones: E4M3 has finite values there, so the lowest exponent bit and the inverted
     * mantissa follow. */
    const long long rank = e4m3 ? 0x0001020408183060 : 0x000000000c183060;
    return (oct_bf16_bits){
        .low = _mm512_set1_epi64(low),
        .high = _mm512_set1_epi64(high),
        .rank = _mm512_set1_epi64(rank),
        .bias = _mm512_set1_epi16((short)((e4m3 ? 127 - 7 : 127 - 15) + OCT_BF16_BIAS) << 7),
    };
}

/* Words of the lower and the upper eight codes of each quarter, `bias` added: the table's less what
 * look-ups subtract. `least` collects ranks. */
OCT_INLINE void oct_bf16_words_by_bits(const oct_bf16_bits *t, __m512i codes, __m512i lower_bias,
                                       __m512i upper_bias, __m512i *lower, __m512i *upper,
                                       __m512i *least) {
    __m512i low = _mm512_gf2p8affine_epi64_epi8(codes, t->low, 0);
    __m512i high = _mm512_gf2p8affine_epi64_epi8(codes, t->high, 0);
    *least = _mm512_min_epu8(*least, _mm512_gf2p8affine_epi64_epi8(codes, t->rank, 0x0e));
    *lower = _mm512_add_epi16(_mm512_unpacklo_epi8(low, high), lower_bias);
    *upper = _mm512_add_epi16(_mm512_unpackhi_epi8(low, high), upper_bias);
}

/* Zeros and subnormals have ranks to 14, E4M3's NaN 16, E5M2's NaNs and infinities 14; normal codes
 * have 18 or more. */
OCT_INLINE bool oct_bf16_all_normal(__m512i least) {
    return _mm512_cmple_epu8_mask(least, _mm512_set1_epi8(16)) == 0;
}

/* Half a block of B, sixteen rows by 32 of k, on its way. Its stages may be spread over other work:
 * the tile unit idles while a long run of the core's own instructions passes. */
typedef struct oct_bf16_half {
    __m512i x[8], y[4]; /* codes by rows: four of i, i + 4, i + 8, i + 12, of each 16 of k; y: pairs
                           of k by rows */
    __m512i bias, least;
    char *tile;
} oct_bf16_half;

OCT_INLINE __m512i oct_bf16_two_rows(const uint8_t *first, const uint8_t *second) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)first)),
                              _mm256_loadu_si256((const __m256i *)second), 1);
}

OCT_INLINE void oct_bf16_half_load(oct_bf16_half *h, const uint8_t *codes, int64_t ld) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const uint8_t *at = codes + i * ld;
        __m512i a = oct_bf16_two_rows(at, at + 4 * ld);
        __m512i b = oct_bf16_two_rows(at + 8 * ld, at + 12 * ld);
        h->x[i] = _mm512_shuffle_i64x2(a, b, 0x88);
        h->x[4 + i] = _mm512_shuffle_i64x2(a, b, 0xdd);
    }
}

/* Half of the packer's next block, which lies before bits_end. */
OCT_INLINE void oct_bf16_half_begin(const oct_bf16_packer *p, int half, oct_bf16_half *h) {
    const oct_operand *b = &p->head.operand;
    const uint8_t *codes =
        (const uint8_t *)b->data + (p->head.row + 16 * half) * b->ld + p->head.k + p->at;
    const int64_t block = p->at / OCT_MX_BLOCK;
    h->bias = _mm512_sub_epi16(p->bits.bias, _mm512_load_si512(p->exponents[half].drop[block]));
    h->least = _mm512_set1_epi8(-1);
    h->tile = (char *)p->panel + OCT_BF16_HEAD_BYTES + (block * 2 + half) * OCT_BF16_TILE_BYTES;
    oct_bf16_half_load(h, codes, b->ld);
}

/* Sixteen of k: row 4 q + i comes to quarter q. */
OCT_INLINE void oct_bf16_half_pairs(oct_bf16_half *h, int piece) {
    const __m512i *x = h->x + 4 * piece;
    __m512i a = _mm512_unpacklo_epi16(x[0], x[1]), b = _mm512_unpacklo_epi16(x[2], x[3]);
    __m512i c = _mm512_unpackhi_epi16(x[0], x[1]), d = _mm512_unpackhi_epi16(x[2], x[3]);
    h->y[0] = _mm512_unpacklo_epi32(a, b);
    h->y[1] = _mm512_unpackhi_epi32(a, b);
    h->y[2] = _mm512_unpacklo_epi32(c, d);
    h->y[3] = _mm512_unpackhi_epi32(c, d);
}

/* Two rows of the tile: of a piece, the m-th two. */
OCT_INLINE void oct_bf16_half_words(oct_bf16_half *h, const oct_bf16_bits *t, int piece, int m) {
    __m512i lower, upper;
    oct_bf16_words_by_bits(t, h->y[m], h->bias, h->bias, &lower, &upper, &h->least);
    char *to = h->tile + piece * (OCT_BF16_TILE_BYTES / 2) + 128 * m;
    _mm512_store_si512(to, lower);
    _mm512_store_si512(to + 64, upper);
}

#endif
