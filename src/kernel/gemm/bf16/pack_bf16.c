/* Packing of bf16 panels: codes to bf16 words by two byte look-ups, MX scales into their exponents;
 * bf16 operands as they are.
 *
 * Invariant: packing is exact but in special rows, which the head names and whose words nobody
 * uses. */
#include "kernel/gemm/bf16/panel_bf16.h"

#include <string.h>

#include "kernel/gemm/bf16/biased_bf16.h"
#include "kernel/gemm/bf16/pack_by_bits.h"
#include "kernel/vectors_avx512.h"
#include "kernel/gemm/avx512/read_rows.h"

enum {
    BLOCK = OCT_MX_BLOCK,
    PIECE = 16, /* k of a unit */
    BIAS = OCT_BF16_BIAS
};

/* --- exponents --- */

/* E8M0 codes of rows row .. row + 15 (127 for those beyond n_rows), block by block. */
static void load_scales(const oct_operand *x, int64_t row, int64_t n_rows, int64_t k,
                        int64_t n_blocks, uint8_t out[OCT_BF16_BLOCKS][16]) {
    const uint8_t *scales = x->scales;
    bool contiguous = x->layout == OCT_K_CONTIGUOUS;
    if (contiguous && x->block_rows == 1 && n_rows >= 16) {
        oct_transpose_scales(x, row, 0xffff, k, n_blocks, out);
        return;
    }
    memset(out, 127, OCT_BF16_BLOCKS * 16);
    for (int64_t b = 0; b < n_blocks; b++)
        for (int64_t r = 0; r < n_rows && r < 16; r++) {
            int64_t p = contiguous ? row + r : k + b * BLOCK;
            int64_t q = contiguous ? k + b * BLOCK : row + r;
            out[b][r] = scales[(x->block_rows == 1 ? p : p / BLOCK) * x->ld_scales + q / BLOCK];
        }
}

static void find_exponents_wide(const oct_operand *x, int64_t row, __mmask16 lanes, int64_t k,
                                float *unit, oct_bf16_exponents *e) {
    __m512 scale = oct_lane_scales(x, row, lanes, k);
    __m512 size = _mm512_abs_ps(scale);
    e->special = (_mm512_cmp_ps_mask(size, _mm512_set1_ps(OCT_BF16_MIN_SCALE), _CMP_NGE_UQ) |
                  _mm512_cmp_ps_mask(size, _mm512_set1_ps(OCT_BF16_MAX_SCALE), _CMP_NLE_UQ)) &
                 lanes;
    for (int b = 0; b < OCT_BF16_BLOCKS; b++)
        _mm512_store_si512(e->drop[b], _mm512_set1_epi16(BIAS << 7));
    _mm512_store_ps(unit, scale);
}

/* The row's exponent is the middle of its scales'. Relative to it scales lie within 2^+-32,
 * elements within 2^-54 .. 2^47 (HiF8 and E5M2 reach furthest), products above 2^-108 and in
 * multiples of 2^-114, and their sum below 2^(95 + 10). A scale byte of 0 is what zeros get, and
 * doesn't count unless there is something else than zeros. */
static void find_exponents(const oct_operand *x, int64_t row, int64_t n_rows, int64_t k, int64_t kc,
                           float *unit, oct_bf16_exponents *e) {
    const int64_t n_blocks = (kc + BLOCK - 1) / BLOCK;
    const __mmask16 lanes = oct_lanes_below(n_rows);
    e->has_zero_scales = 0;
    if (x->scaling != OCT_SCALING_MX) {
        find_exponents_wide(x, row, lanes, k, unit, e);
        return;
    }
    load_scales(x, row, n_rows, k, n_blocks, e->scales);
    /* One less, so that 0, which is ignored, is the largest; only zeros give 255 and then 0. */
    const __m128i one = _mm_set1_epi8(1);
    __m128i below = _mm_set1_epi8(-1), above = _mm_setzero_si128(), least = _mm_set1_epi8(-1);
    for (int64_t b = 0; b < n_blocks; b++) {
        __m128i code = _mm_load_si128((const __m128i *)e->scales[b]);
        below = _mm_min_epu8(below, _mm_sub_epi8(code, one));
        above = _mm_max_epu8(above, code);
        least = _mm_min_epu8(least, code);
    }
    e->has_zero_scales = _mm_testn_epi8_mask(least, least);
    __m512i smallest = _mm512_cvtepu8_epi32(_mm_add_epi8(below, one));
    __m512i largest = _mm512_cvtepu8_epi32(above);
    __m512i middle = _mm512_srli_epi32(_mm512_add_epi32(smallest, largest), 1);
    __mmask16 zeros = _mm512_testn_epi32_mask(largest, largest);
    middle = _mm512_mask_mov_epi32(middle, zeros, _mm512_set1_epi32(127));
    e->special = (_mm512_cmpgt_epu32_mask(_mm512_sub_epi32(largest, smallest),
                                          _mm512_set1_epi32(OCT_BF16_MAX_SPREAD)) |
                  _mm512_cmpgt_epu32_mask(middle, _mm512_set1_epi32(127 + OCT_BF16_MAX_EXPONENT)) |
                  _mm512_cmplt_epu32_mask(middle, _mm512_set1_epi32(127 + OCT_BF16_MIN_EXPONENT)) |
                  _mm512_cmpeq_epu32_mask(largest, _mm512_set1_epi32(255))) &
                 lanes;
    _mm512_store_ps(unit, oct_e8m0_lanes(middle));
    middle = _mm512_add_epi32(middle, _mm512_set1_epi32(BIAS));
    for (int64_t b = 0; b < (n_blocks + 1) / 2 * 2; b++) {
        __m512i code = _mm512_cvtepu8_epi32(_mm_load_si128((const __m128i *)e->scales[b]));
        __m512i d = _mm512_slli_epi32(_mm512_sub_epi32(middle, code), 7);
        _mm512_store_si512(e->drop[b],
                           _mm512_mask_blend_epi16(0xaaaaaaaau, d, _mm512_slli_epi32(d, 16)));
    }
}

/* --- special codes --- */

/* One row's codes of a block, zeros beyond n. */
static __m256i block_codes(const oct_operand *x, int64_t row, int64_t k, int64_t n) {
    const uint8_t *codes = x->data;
    if (x->layout == OCT_K_CONTIGUOUS)
        return _mm256_maskz_loadu_epi8((__mmask32)oct_bytes_below(n), codes + row * x->ld + k);
    alignas(32) uint8_t copy[BLOCK] = {0};
    for (int64_t i = 0; i < n && i < BLOCK; i++)
        copy[i] = codes[(k + i) * x->ld + row];
    return _mm256_load_si256((const __m256i *)copy);
}

static bool has_not_finite(__m256i codes, oct_dtype format) {
    const uint16_t *words = oct_bf16_of_codes(format);
    alignas(32) uint8_t c[BLOCK];
    _mm256_store_si256((__m256i *)c, codes);
    for (int i = 0; i < BLOCK; i++)
        if (words[c[i] & 0x7f] >= 0x7f00 || (format == OCT_HIF8 && c[i] == 0x80))
            return true;
    return false;
}

/* Rows of row .. row + n_rows - 1 (at most 16) that have a code that isn't finite, or one other
 * than zero in a block whose scale is 0. */
static __attribute__((noinline)) uint32_t
rows_with_special_codes(const oct_operand *x, int64_t row, int64_t n_rows, int64_t k, int64_t kc,
                        const oct_bf16_exponents *e, const oct_codes_seen *seen) {
    const bool mx = x->scaling == OCT_SCALING_MX, search = oct_saw_not_finite(seen);
    uint32_t rows = 0;
    for (int64_t r = 0; r < n_rows && r < 16; r++)
        for (int64_t i = 0; i < kc; i += BLOCK) {
            bool zero_scale = mx && e->scales[i / BLOCK][r] == 0;
            if (!zero_scale && !search)
                continue;
            __m256i codes = block_codes(x, row + r, k + i, kc - i);
            bool is_special =
                (zero_scale && _mm256_test_epi8_mask(codes, _mm256_set1_epi8(0x7f))) ||
                (search && has_not_finite(codes, x->dtype));
            rows |= (uint32_t)is_special << r;
        }
    return rows;
}

static void write_head(const oct_operand *x, int64_t row, int64_t n_rows, int64_t k,
                       oct_bf16_head *head) {
    head->operand = *x;
    head->row = row;
    head->n_rows = n_rows;
    head->k = k;
    head->special = 0;
}

/* 64 codes of k of sixteen rows, copied: for rows that aren't all there, or lie strided. */
void oct_bf16_copy_codes(const oct_operand *x, int64_t row, int64_t n_rows, int64_t k, int64_t n_k,
                         uint8_t *out) {
    const __mmask16 lanes = oct_lanes_below(n_rows);
    __m512i v[16];
    if (x->layout == OCT_K_CONTIGUOUS) {
        oct_load_16_rows(x, row, lanes, k, n_k, v);
    } else {
        oct_load_quads_strided(x, row, lanes, k, n_k, v);
        oct_transpose_16x16(v);
    }
    for (int r = 0; r < 16; r++)
        _mm512_store_si512(out + r * OCT_BF16_PAIR, v[r]);
}

/* 64 of k of the sixteen rows that the next panel has there: whether they exist or not, as a
 * prefetch does no harm. */
OCT_INLINE void prefetch_next_panel(const oct_operand *x, int64_t row, int64_t k) {
    if (x->layout != OCT_K_CONTIGUOUS)
        return;
    uintptr_t codes = (uintptr_t)x->data + (uintptr_t)((row + OCT_BF16_ROWS) * x->ld + k);
    for (int64_t r = 0; r < 16; r++)
        _mm_prefetch((const char *)(codes + (uintptr_t)(r * x->ld)), _MM_HINT_T0);
}

/* --- bf16 operands --- */

/* A tile of sixteen rows (those of `lanes`) by 32 of k, zeros beyond n_k: by rows, as A has them,
 * or by pairs of k, as B has them. */
OCT_INLINE void pack_words(const oct_operand *x, int64_t row, __mmask16 lanes, int64_t k,
                           int64_t n_k, bool by_rows, char *tile) {
    const bool contiguous = x->layout == OCT_K_CONTIGUOUS;
    const uint16_t *words =
        (const uint16_t *)x->data + (contiguous ? row * x->ld + k : k * x->ld + row);
    __m512i v[16];
    if (contiguous) {
        const __mmask32 valid = (__mmask32)oct_bytes_below(n_k);
#pragma GCC unroll 16
        for (int r = 0; r < 16; r++) { /* without a branch: rows that aren't used read the first */
            const int64_t used = -(int64_t)(lanes >> r & 1);
            const uint16_t *from = words + (r * x->ld & used);
            v[r] = _mm512_maskz_loadu_epi16(valid & (__mmask32)used, from);
            _mm_prefetch((const char *)from + 512, _MM_HINT_T0); /* too many streams for hardware */
        }
    } else {
        for (int p = 0; p < 16; p++) {
            const bool has_even = 2 * p < n_k, has_odd = 2 * p + 1 < n_k;
            __m256i even = _mm256_maskz_loadu_epi16(has_even ? lanes : 0,
                                                    words + (has_even ? 2 * p * x->ld : 0));
            __m256i odd = _mm256_maskz_loadu_epi16(has_odd ? lanes : 0,
                                                   words + (has_odd ? (2 * p + 1) * x->ld : 0));
            v[p] = _mm512_or_si512(_mm512_cvtepu16_epi32(even),
                                   _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16));
        }
    }
    if (contiguous != by_rows)
        oct_transpose_16x16(v);
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        _mm512_store_si512(tile + 64 * i, v[i]);
}

static void set_units_to_one(oct_bf16_head *head) {
    _mm512_store_ps(head->unit, _mm512_set1_ps(1));
    _mm512_store_ps(head->unit + 16, _mm512_set1_ps(1));
}

static void pack_a_words(const oct_gemm_source *from, oct_bf16_head *head) {
    char *tiles = (char *)head + OCT_BF16_HEAD_BYTES;
    write_head(from->operand, from->row, from->n_rows, from->k, head);
    set_units_to_one(head);
    for (int64_t i = 0; i < from->kc; i += BLOCK)
        for (int64_t half = 0; half < 2; half++) {
            const __mmask16 lanes = oct_lanes_below(from->n_rows - 16 * half);
            pack_words(from->operand, lanes ? from->row + 16 * half : from->row, lanes, from->k + i,
                       from->kc - i, true, tiles + (i / BLOCK * 2 + half) * OCT_BF16_TILE_BYTES);
        }
    if ((from->kc + BLOCK - 1) / BLOCK % 2) /* an even number of blocks */
        memset(tiles + (from->kc + BLOCK - 1) / BLOCK * 2 * OCT_BF16_TILE_BYTES, 0,
               2 * OCT_BF16_TILE_BYTES);
}

/* --- A --- */

/* Sixteen rows by 64 of k. */
OCT_INLINE void pack_a_pair(const oct_biased_decoder *t, const uint8_t *codes, int64_t ld,
                            const oct_bf16_exponents *e, int64_t pair, char *tiles,
                            oct_codes_seen *seen) {
    /* Quarters of 8 codes of the first and of the second block. */
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    for (int r = 0; r < 16; r++) {
        __m512i v = _mm512_permutexvar_epi64(order, _mm512_loadu_si512(codes + r * ld)), first,
                second;
        oct_biased_decode(t, v, _mm512_set1_epi32((int)e->drop[2 * pair][r]),
                          _mm512_set1_epi32((int)e->drop[2 * pair + 1][r]), &first, &second, seen);
        _mm512_store_si512(tiles + 64 * r, first);
        _mm512_store_si512(tiles + 2 * OCT_BF16_TILE_BYTES + 64 * r, second);
    }
}

void oct_bf16_pack_a(const oct_gemm_source *source, void *panel) {
    const oct_operand *a = source->operand;
    const int64_t row = source->row, n_rows = source->n_rows, k = source->k, kc = source->kc;
    oct_bf16_head *head = panel;
    if (a->dtype == OCT_BF16) {
        pack_a_words(source, head);
        return;
    }
    alignas(64) uint8_t copy[16 * OCT_BF16_PAIR];
    oct_bf16_exponents e;
    const oct_bf16_table words = oct_biased_table_make(a->dtype);
    const oct_biased_decoder t = oct_biased_decoder_make(&words);
    write_head(a, row, n_rows, k, panel);
    for (int64_t half = 0; half < 2; half++) {
        const int64_t n = n_rows - 16 * half, from = n > 0 ? row + 16 * half : row;
        oct_codes_seen seen = {_mm512_setzero_si512(), _mm512_setzero_si512()};
        find_exponents(a, from, n, k, kc, head->unit + 16 * half, &e);
        for (int64_t i = 0; i < kc; i += OCT_BF16_PAIR) {
            const uint8_t *codes = (const uint8_t *)a->data + from * a->ld + k + i;
            int64_t ld = a->ld;
            prefetch_next_panel(a, from, k + i);
            if (a->layout != OCT_K_CONTIGUOUS || n < 16 || kc - i < OCT_BF16_PAIR) {
                oct_bf16_copy_codes(a, from, n, k + i, kc - i, copy);
                codes = copy;
                ld = OCT_BF16_PAIR;
            }
            pack_a_pair(&t, codes, ld, &e, i / OCT_BF16_PAIR,
                        (char *)panel + OCT_BF16_HEAD_BYTES + i * 64 + half * OCT_BF16_TILE_BYTES,
                        &seen);
        }
        if (e.has_zero_scales || oct_saw_not_finite(&seen))
            e.special |= rows_with_special_codes(a, from, n, k, kc, &e, &seen);
        head->special |= e.special << (16 * half);
    }
}

/* --- B --- */

/* Row 4 q + i in quarter q. */
OCT_INLINE __m512i load_piece(const uint8_t *codes, int64_t ld, int64_t i) {
    const uint8_t *at = codes + i * ld;
    __m512i x = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)at));
    x = _mm512_mask_broadcast_i32x4(x, 0x00f0, _mm_loadu_si128((const __m128i *)(at + 4 * ld)));
    x = _mm512_mask_broadcast_i32x4(x, 0x0f00, _mm_loadu_si128((const __m128i *)(at + 8 * ld)));
    return _mm512_mask_broadcast_i32x4(x, 0xf000, _mm_loadu_si128((const __m128i *)(at + 12 * ld)));
}

/* Sixteen rows by 16 of k: eight rows of a tile. */
OCT_INLINE void pack_piece(const oct_biased_decoder *t, const uint8_t *codes, int64_t ld,
                           __m512i drop, char *tile, oct_codes_seen *seen) {
    __m512i x0 = load_piece(codes, ld, 0), x1 = load_piece(codes, ld, 1);
    __m512i x2 = load_piece(codes, ld, 2), x3 = load_piece(codes, ld, 3);
    __m512i a = _mm512_unpacklo_epi16(x0, x1), b = _mm512_unpacklo_epi16(x2, x3);
    __m512i c = _mm512_unpackhi_epi16(x0, x1), d = _mm512_unpackhi_epi16(x2, x3);
    /* Pairs of k of four rows, then the next pairs. */
    __m512i y[4] = {_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b),
                    _mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d)};
#pragma GCC unroll 4
    for (int m = 0; m < 4; m++) {
        __m512i first, second;
        oct_biased_decode(t, y[m], drop, drop, &first, &second, seen);
        _mm512_store_si512(tile + 128 * m, first);
        _mm512_store_si512(tile + 128 * m + 64, second);
    }
}

/* The sixteen rows of one half: where they begin, an address inside the operand in any case. */
OCT_INLINE int64_t rows_of_half(const oct_bf16_head *head, int64_t half, int64_t *n) {
    *n = head->n_rows - 16 * half;
    return *n > 0 ? head->row + 16 * half : head->row;
}

void oct_bf16_pack_begin(oct_bf16_packer *p, const oct_gemm_source *from, void *panel) {
    const oct_operand *b = from->operand;
    const int64_t row = from->row, n_rows = from->n_rows, k = from->k, kc = from->kc;
    write_head(b, row, n_rows, k, &p->head);
    p->kc = kc;
    p->at = 0;
    p->end = (kc + OCT_BF16_PAIR - 1) / OCT_BF16_PAIR * OCT_BF16_PAIR;
    p->bits_end = 0;
    p->panel = panel;
    if (b->dtype == OCT_BF16) {
        set_units_to_one(&p->head);
        return;
    }
    for (int64_t half = 0; half < 2; half++) {
        int64_t n, first = rows_of_half(&p->head, half, &n);
        find_exponents(b, first, n, k, kc, p->head.unit + 16 * half, &p->exponents[half]);
        p->uppers[half] = p->nan_codes[half] = _mm512_setzero_si512();
    }
    p->table = oct_biased_table_make(b->dtype);
    if (oct_bf16_has_bits(b->dtype) && b->layout == OCT_K_CONTIGUOUS && n_rows == OCT_BF16_ROWS) {
        p->bits = oct_bf16_bits_make(b->dtype);
        p->bits_end = kc / OCT_BF16_PAIR * OCT_BF16_PAIR;
    }
}

static void pack_b_words(const oct_bf16_packer *p) {
    char *tiles = (char *)p->panel + OCT_BF16_HEAD_BYTES + p->at / BLOCK * 2 * OCT_BF16_TILE_BYTES;
    for (int64_t half = 0; half < 2; half++) {
        int64_t n, row = rows_of_half(&p->head, half, &n);
        pack_words(&p->head.operand, row, oct_lanes_below(n), p->head.k + p->at, p->kc - p->at,
                   false, tiles + half * OCT_BF16_TILE_BYTES);
    }
}

__attribute__((noinline)) void oct_bf16_pack_half(oct_bf16_packer *p, int half) {
    const oct_operand *x = &p->head.operand;
    const int64_t in_pair = p->at & (OCT_BF16_PAIR - 1), pair = p->at - in_pair;
    const oct_biased_decoder t = oct_biased_decoder_make(&p->table);
    char *tile =
        (char *)p->panel + OCT_BF16_HEAD_BYTES + (p->at / BLOCK * 2 + half) * OCT_BF16_TILE_BYTES;
    int64_t n, row = rows_of_half(&p->head, half, &n), ld = x->ld;
    const uint8_t *codes = (const uint8_t *)x->data + row * ld + p->head.k + p->at;
    if (x->layout != OCT_K_CONTIGUOUS || n < 16 || p->kc - pair < OCT_BF16_PAIR) {
        if (in_pair == 0)
            oct_bf16_copy_codes(x, row, n, p->head.k + pair, p->kc - pair, p->copy[half]);
        codes = p->copy[half] + in_pair;
        ld = OCT_BF16_PAIR;
    }
    const __m512i drop = _mm512_load_si512(p->exponents[half].drop[p->at / BLOCK]);
    oct_codes_seen seen = {p->uppers[half], p->nan_codes[half]};
    pack_piece(&t, codes, ld, drop, tile, &seen);
    pack_piece(&t, codes + PIECE, ld, drop, tile + OCT_BF16_TILE_BYTES / 2, &seen);
    p->uppers[half] = seen.uppers;
    p->nan_codes[half] = seen.nan_codes;
}

void oct_bf16_pack_block(oct_bf16_packer *p) {
    const oct_bf16_bits t = p->bits;
    if (p->head.operand.dtype == OCT_BF16)
        pack_b_words(p);
    for (int half = 0; half < 2 && p->head.operand.dtype != OCT_BF16; half++) {
        bool exact = false;
        if (p->at < p->bits_end) {
            oct_bf16_half h;
            oct_bf16_half_begin(p, half, &h);
            for (int piece = 0; piece < 2; piece++) {
                oct_bf16_half_pairs(&h, piece);
#pragma GCC unroll 4
                for (int m = 0; m < 4; m++)
                    oct_bf16_half_words(&h, &t, piece, m);
            }
            exact = oct_bf16_all_normal(h.least);
        }
        if (!exact)
            oct_bf16_pack_half(p, half);
    }
    p->at += BLOCK;
}

void oct_bf16_pack_end(oct_bf16_packer *p) {
    for (int64_t half = 0; half < 2 && p->head.operand.dtype != OCT_BF16; half++) {
        const oct_bf16_exponents *e = &p->exponents[half];
        oct_codes_seen seen = {p->uppers[half], p->nan_codes[half]};
        int64_t n, row = rows_of_half(&p->head, half, &n);
        uint32_t special = e->special;
        if (e->has_zero_scales || oct_saw_not_finite(&seen))
            special |=
                rows_with_special_codes(&p->head.operand, row, n, p->head.k, p->kc, e, &seen);
        p->head.special |= special << (16 * half);
    }
    *(oct_bf16_head *)p->panel = p->head;
}

void oct_bf16_pack_b(const oct_gemm_source *from, void *panel) {
    const oct_operand *b = from->operand;
    const int64_t row = from->row, k = from->k;
    oct_bf16_packer p;
    oct_bf16_pack_begin(&p, from, panel);
    while (p.at < p.end) {
        if (p.at % OCT_BF16_PAIR == 0 && b->dtype != OCT_BF16) {
            prefetch_next_panel(b, row, k + p.at);
            prefetch_next_panel(b, row + 16, k + p.at);
        }
        oct_bf16_pack_block(&p);
    }
    oct_bf16_pack_end(&p);
}
