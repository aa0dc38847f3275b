/* `aligned` products in AMX: every 8-bit value and every power of two is exact in bf16, so operands
 * become bf16 tiles, their MX scales relative to one exponent a row (and step of K), and tdpbf16ps
 * multiplies 16x32 by 32x16. Products are exact; only the fp32 accumulation rounds, and none of its
 * terms is lost: it flushes subnormals, but a row's exponents are centred such that no product, nor
 * any difference of products, comes near them.
 *
 * A row of a step that has a NaN, an Inf, or scales too far apart or too extreme for that is
 * special: its elements of C are computed from the operand in fp32, fused multiply-adds in order of
 * k, as `exact` does.
 *
 * Invariant: an element's value depends on its two panels only, so it's the same for any tiling and
 * any number of threads. */
#include "kernel/gemm_kernels.h"

#include <string.h>

#include "kernel/avx512/encode.h"
#include "kernel/avx512/gemm.h"
#include "kernel/avx512/pack.h"
#include "kernel/avx512/words.h"

enum {
    R = 32, /* rows of a panel, of A and of B: two tiles */
    STEP = OCT_GEMM_K_CHUNK,
    BLOCK = OCT_MX_BLOCK,
    PAIR = 64, /* k of two blocks, which are packed together */
    TILE_BYTES = 16 * 64,
    PAIR_BYTES = 4 * TILE_BYTES, /* two k-tiles of two row-tiles */
    MAX_SPREAD = 64,             /* of a row's scales: see relative_exponents */
    CODES_AT_ONCE = 64           /* k of the fp32 panels for special rows */
};

/* A packed panel: this head, then for each 64 of k
 *   A: [k parity][row / 16] tiles of 16 rows by 32 of k (those of one parity, in order)
 *   B: [k parity][row / 16] tiles of 16 pairs (k, k + 2) by 16 rows
 * so that both see K in the order 0 2 4 ... 62, 1 3 5 ... 63. */
typedef struct panel_head {
    alignas(64) float unit[R]; /* what the row's sum is to be multiplied with */
    oct_operand operand;       /* for special rows */
    int64_t row, n_rows, k;
    uint32_t special;
} panel_head;

#define HEAD_BYTES ((sizeof(panel_head) + 63) / 64 * 64)

/* --- packing --- */

/* Adds to the exponents of what isn't zero. */
OCT_INLINE __m512i add_exponents(__m512i words, __m512i exponents) {
    __mmask32 nonzero = _mm512_test_epi16_mask(words, _mm512_set1_epi16(0x7fff));
    return _mm512_mask_add_epi16(words, nonzero, words, exponents);
}

/* Sixteen rows' exponents relative to the row's own, shifted to where bf16 has them, in both halves
 * of a lane; at most STEP / BLOCK blocks. */
typedef struct row_exponents {
    __m512i shifted[STEP / BLOCK];
    __mmask16 ignored[STEP / BLOCK]; /* rows whose scale byte is 0: elements should be zeros */
    __mmask16 special;
} row_exponents;

/* The row's exponent is the middle of its scales'. Relative to it scales lie within 2^+-32,
 * elements within 2^-54 .. 2^47 (HiF8 and E5M2 reach furthest), products above 2^-108 and in
 * multiples of 2^-114, and their sum below 2^(95 + 10). A scale byte of 0 is what zeros get, and
 * doesn't count unless there is something else than zeros. */
OCT_INLINE row_exponents relative_exponents(const oct_operand *x, int64_t row, __mmask16 lanes,
                                            int64_t k, int64_t kc, float unit[16]) {
    const int64_t n_blocks = (kc + BLOCK - 1) / BLOCK;
    row_exponents e = {.special = 0};
    if (x->scaling != OCT_SCALING_MX) {
        __m512 scale = oct_lane_scales(x, row, lanes, k);
        __m512 size = _mm512_abs_ps(scale);
        e.special = (_mm512_cmp_ps_mask(size, _mm512_set1_ps(0x1p-60f), _CMP_NGE_UQ) |
                     _mm512_cmp_ps_mask(size, _mm512_set1_ps(0x1p20f), _CMP_NLE_UQ)) &
                    lanes;
        for (int b = 0; b < STEP / BLOCK; b++)
            e.shifted[b] = _mm512_setzero_si512();
        _mm512_storeu_ps(unit, scale);
        return e;
    }
    __m512i code[STEP / BLOCK];
    __m512i smallest = _mm512_set1_epi32(255), largest = _mm512_setzero_si512();
    for (int64_t b = 0; b < n_blocks; b++) {
        code[b] = oct_lane_scale_codes(x, row, lanes, k + b * BLOCK);
        e.ignored[b] = _mm512_testn_epi32_mask(code[b], code[b]);
        smallest = _mm512_mask_min_epu32(smallest, (__mmask16)~e.ignored[b], smallest, code[b]);
        largest = _mm512_max_epu32(largest, code[b]);
    }
    smallest = _mm512_min_epu32(smallest, largest); /* nothing but zero bytes: 0 and 0 */
    __m512i middle = _mm512_srli_epi32(_mm512_add_epi32(smallest, largest), 1);
    __mmask16 zeros = _mm512_testn_epi32_mask(largest, largest);
    middle = _mm512_mask_mov_epi32(middle, zeros, _mm512_set1_epi32(127));
    e.special = (_mm512_cmpgt_epu32_mask(_mm512_sub_epi32(largest, smallest),
                                         _mm512_set1_epi32(MAX_SPREAD)) |
                 _mm512_cmpgt_epu32_mask(middle, _mm512_set1_epi32(127 + 20)) |
                 _mm512_cmplt_epu32_mask(middle, _mm512_set1_epi32(127 - 60)) |
                 _mm512_cmpeq_epu32_mask(largest, _mm512_set1_epi32(255))) &
                lanes;
    for (int64_t b = 0; b < n_blocks; b++) {
        __m512i d = _mm512_slli_epi32(_mm512_sub_epi32(code[b], middle), 7);
        d = _mm512_and_si512(d, _mm512_set1_epi32(0xffff));
        e.shifted[b] = _mm512_or_si512(d, _mm512_slli_epi32(d, 16));
    }
    for (int64_t b = n_blocks; b < STEP / BLOCK; b++) {
        e.shifted[b] = _mm512_setzero_si512();
        e.ignored[b] = 0;
    }
    _mm512_storeu_ps(unit, oct_e8m0_lanes(middle));
    return e;
}

/* Rows with a bit in `bytes`, four bits a row. */
OCT_INLINE __mmask16 rows_of_quads(__mmask64 bytes) {
    __m512i x = _mm512_movm_epi8(bytes);
    return _mm512_test_epi32_mask(x, x);
}

/* Quads of codes of sixteen rows, v[j] lane r = k of 4 j .. 4 j + 3, from either layout. */
OCT_INLINE void load_quads(const oct_operand *x, int64_t row, __mmask16 lanes, int64_t k,
                           int64_t n_k, __m512i v[16]) {
    if (x->layout == OCT_K_CONTIGUOUS) {
        oct_load_16_rows(x, row, lanes, k, n_k, v);
        oct_transpose_16x16(v);
    } else {
        oct_load_quads_strided(x, row, lanes, k, n_k, v);
    }
}

/* 64 of k of sixteen rows of B. */
OCT_INLINE void pack_b_pair(const oct_word_table *t, const oct_operand *b, int64_t row,
                            __mmask16 lanes, int64_t k, int64_t n_k, row_exponents *e, int64_t pair,
                            char *tiles) {
    __m512i v[16];
    __mmask64 bad = 0;
    __m512i in_ignored = _mm512_setzero_si512();
    load_quads(b, row, lanes, k, n_k, v);
#pragma GCC unroll 16
    for (int j = 0; j < 16; j++) {
        oct_word_pair w = oct_look_up_words(t, v[j]);
        int64_t block = 2 * pair + j / 8;
        bad |= (w.not_finite | w.nan_codes);
        in_ignored = _mm512_mask_or_epi32(in_ignored, e->ignored[block], in_ignored, v[j]);
        _mm512_store_si512(tiles + 64 * j, add_exponents(w.even, e->shifted[block]));
        _mm512_store_si512(tiles + 2 * TILE_BYTES + 64 * j,
                           add_exponents(w.odd, e->shifted[block]));
    }
    e->special |= rows_of_quads(bad) | _mm512_test_epi32_mask(in_ignored, _mm512_set1_epi8(0x7f));
}

/* The same of A: rows are tile rows, so K contiguous needs no transpose, and K strided one more. */
OCT_INLINE void pack_a_pair(const oct_word_table *t, const oct_operand *a, int64_t row,
                            __mmask16 lanes, int64_t k, int64_t n_k, row_exponents *e, int64_t pair,
                            char *tiles) {
    __m512i v[16];
    alignas(64) uint32_t shifted[2][16];
    if (a->layout == OCT_K_CONTIGUOUS) {
        oct_load_16_rows(a, row, lanes, k, n_k, v);
    } else {
        oct_load_quads_strided(a, row, lanes, k, n_k, v);
        oct_transpose_16x16(v);
    }
    _mm512_store_si512(shifted[0], e->shifted[2 * pair]);
    _mm512_store_si512(shifted[1], e->shifted[2 * pair + 1]);
#pragma GCC unroll 16
    for (int r = 0; r < 16; r++) {
        oct_word_pair w = oct_look_up_words(t, v[r]);
        /* Words 0 .. 15 are of the first block. */
        __m512i d = _mm512_mask_set1_epi32(_mm512_set1_epi32((int)shifted[0][r]), 0xff00,
                                           (int)shifted[1][r]);
        uint64_t ignored = (e->ignored[2 * pair] >> r & 1 ? 0xffffffffu : 0) |
                           (e->ignored[2 * pair + 1] >> r & 1 ? 0xffffffff00000000u : 0);
        bool odd_one = (w.not_finite | w.nan_codes) != 0 ||
                       (ignored & _mm512_test_epi8_mask(v[r], _mm512_set1_epi8(0x7f))) != 0;
        e->special |= (__mmask16)(odd_one << r);
        _mm512_store_si512(tiles + 64 * r, add_exponents(w.even, d));
        _mm512_store_si512(tiles + 2 * TILE_BYTES + 64 * r, add_exponents(w.odd, d));
    }
}

typedef enum side { SIDE_A, SIDE_B } side;

OCT_INLINE void pack(const oct_operand *x, int64_t row, int64_t n_rows, int64_t k, int64_t kc,
                     void *panel, side which) {
    panel_head *head = panel;
    char *tiles = (char *)panel + HEAD_BYTES;
    oct_word_table t = oct_word_table_make(x->dtype);
    head->operand = *x;
    head->row = row;
    head->n_rows = n_rows;
    head->k = k;
    head->special = 0;
    for (int half = 0; half < 2; half++) {
        __mmask16 lanes = oct_lanes_below(n_rows - 16 * half);
        int64_t from = lanes ? row + 16 * half : row;
        row_exponents e = relative_exponents(x, from, lanes, k, kc, head->unit + 16 * half);
        for (int64_t i = 0; i < kc; i += PAIR) {
            char *to = tiles + i / PAIR * PAIR_BYTES + half * TILE_BYTES;
            if (which == SIDE_A)
                pack_a_pair(&t, x, from, lanes, k + i, kc - i, &e, i / PAIR, to);
            else
                pack_b_pair(&t, x, from, lanes, k + i, kc - i, &e, i / PAIR, to);
        }
        head->special |= (uint32_t)e.special << (16 * half);
    }
}

static void pack_a(const oct_operand *a, int64_t row, int64_t n_rows, int64_t k, int64_t kc,
                   void *panel) {
    pack(a, row, n_rows, k, kc, panel, SIDE_A);
}

static void pack_b(const oct_operand *b, int64_t row, int64_t n_rows, int64_t k, int64_t kc,
                   void *panel) {
    pack(b, row, n_rows, k, kc, panel, SIDE_B);
}

/* --- multiplying --- */

typedef struct sums {
    alignas(64) float x[R][R];
} sums;

typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes_per_row[16];
    uint8_t rows[16];
} tile_config;

alignas(64) static const tile_config all_tiles_whole = {
    .palette = 1,
    .bytes_per_row = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 16, 16},
};

static void multiply_tiles(const char *a, const char *b, int64_t kc, sums *s) {
    _tile_loadconfig(&all_tiles_whole);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t k = 0; k < kc; k += PAIR) {
        for (int parity = 0; parity < 2; parity++) {
            _tile_loadd(6, b, 64);
            _tile_loadd(4, a, 64);
            _tile_loadd(7, b + TILE_BYTES, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_loadd(5, a + TILE_BYTES, 64);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
            a += 2 * TILE_BYTES;
            b += 2 * TILE_BYTES;
        }
    }
    _tile_stored(0, s->x[0], sizeof s->x[0]);
    _tile_stored(1, s->x[0] + 16, sizeof s->x[0]);
    _tile_stored(2, s->x[16], sizeof s->x[0]);
    _tile_stored(3, s->x[16] + 16, sizeof s->x[0]);
    _tile_release();
}

/* The whole tile from the operands, as `exact` has it; a step is one of its chunks. */
static __attribute__((noinline)) void multiply_operands(const panel_head *a, const panel_head *b,
                                                        int64_t kc, sums *s) {
    alignas(64) float x[CODES_AT_ONCE * R], y[CODES_AT_ONCE * R];
    memset(s, 0, sizeof *s);
    for (int64_t first = 0; first < kc; first += CODES_AT_ONCE) {
        int64_t n = kc - first < CODES_AT_ONCE ? kc - first : CODES_AT_ONCE;
        oct_gemm_pack_32_avx512(&a->operand, a->row, a->n_rows, a->k + first, n, x);
        oct_gemm_pack_32_avx512(&b->operand, b->row, b->n_rows, b->k + first, n, y);
        for (int i = 0; i < R; i++) {
            __m512 s0 = _mm512_load_ps(s->x[i]), s1 = _mm512_load_ps(s->x[i] + 16);
            for (int64_t k = 0; k < n; k++) {
                __m512 v = _mm512_set1_ps(x[k * R + i]);
                s0 = _mm512_fmadd_ps(v, _mm512_load_ps(y + k * R), s0);
                s1 = _mm512_fmadd_ps(v, _mm512_load_ps(y + k * R + 16), s1);
            }
            _mm512_store_ps(s->x[i], s0);
            _mm512_store_ps(s->x[i] + 16, s1);
        }
    }
}

static void replace_special(sums *s, const panel_head *a, const panel_head *b, int64_t kc) {
    sums e;
    multiply_operands(a, b, kc, &e);
    for (int i = 0; i < R; i++) {
        uint32_t columns = a->special >> i & 1 ? 0xffffffffu : b->special;
        for (int j = 0; j < R; j += 16)
            _mm512_mask_store_ps(s->x[i] + j, (__mmask16)(columns >> j),
                                 _mm512_load_ps(e.x[i] + j));
    }
}

static void multiply(const void *a_panel, const void *b_panel, int64_t kc, float *acc,
                     int64_t ld_acc, int64_t n_rows, int64_t n_cols, oct_accumulate accumulate) {
    const panel_head *a = a_panel, *b = b_panel;
    const __mmask16 mask[2] = {oct_lanes_below(n_cols), oct_lanes_below(n_cols - 16)};
    const __m512 unit[2] = {_mm512_load_ps(b->unit), _mm512_load_ps(b->unit + 16)};
    sums s;
    multiply_tiles((const char *)a_panel + HEAD_BYTES, (const char *)b_panel + HEAD_BYTES, kc, &s);
    for (int64_t i = 0; i < n_rows; i++)
        for (int j = 0; j < 2; j++) {
            float *at = s.x[i] + 16 * j;
            __m512 x = _mm512_mul_ps(_mm512_load_ps(at), _mm512_set1_ps(a->unit[i]));
            _mm512_store_ps(at, _mm512_mul_ps(x, unit[j]));
        }
    if (a->special | b->special)
        replace_special(&s, a, b, kc);
    for (int64_t i = 0; i < n_rows; i++)
        for (int j = 0; j < 2; j++) {
            float *to = acc + i * ld_acc + 16 * j;
            __m512 x = _mm512_load_ps(s.x[i] + 16 * j);
            if (accumulate == OCT_ADD_TO_OUTPUT)
                x = _mm512_add_ps(_mm512_maskz_loadu_ps(mask[j], to), x);
            _mm512_mask_storeu_ps(to, mask[j], x);
        }
}

const oct_gemm_kernels oct_gemm_aligned_kernels_amx = {
    .MR = R,
    .NR = R,
    .MC = R * 12,
    .NC = R * 16,
    .k_step = STEP,
    .a_bytes_per_k = R * sizeof(uint16_t),
    .a_bytes_fixed = HEAD_BYTES + (PAIR - 1) * R * sizeof(uint16_t),
    .b_bytes_per_k = R * sizeof(uint16_t),
    .b_bytes_fixed = HEAD_BYTES + (PAIR - 1) * R * sizeof(uint16_t),
    .pack_a = pack_a,
    .pack_b = pack_b,
    .multiply = multiply,
    .store = oct_gemm_store_avx512,
};
