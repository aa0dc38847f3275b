/* `fast` products of few rows of A in AMX: weights become bf16 words row by row, as they lie,
 * and are the first factor of the tiles, 16 rows by 32 of k; A's few rows are the second. So
 * nothing is transposed but the sums, and a tile of weights costs the same for any number of rows
 * of A.
 *
 * k inside a group of 64 is in the order that
 * decoding leaves it in; A is packed alike. What amx/multiply_amx.c says of exponents and special
 * rows holds here too, for all k of a panel.
 *
 * Invariant: an element's value depends on its row of A and its row of B only. */
#include <string.h>

#include "kernel/gemm/bf16/panel_bf16.h"
#include "kernel/gemm/bf16/biased_bf16.h"
#include "kernel/gemm/amx/tile_config.h"
#include "kernel/gemm/few_rows/unpacked_rows.h"
#include "kernel/gemm/avx512/exact_avx512.h"

enum {
    R = 16, /* rows of A at most, and rows of B at a time */
    NR = 64,
    STEP = 4096,
    BLOCK = OCT_MX_BLOCK,
    GROUP = OCT_BF16_PAIR, /* k decoded together: two blocks, which end in two tiles */
    BIAS = OCT_BF16_BIAS,
    PART = 16, /* blocks */
    TILE_BYTES = OCT_BF16_TILE_BYTES
};

/* --- exponents --- */

/* Of sixteen rows. */
typedef struct exponents {
    alignas(64) float unit[R];        /* what a row's sum is to be multiplied with */
    alignas(64) uint8_t drop[R][128]; /* by block: what is to be subtracted from biased words'
                                         exponents */
    uint32_t special;                 /* rows */
} exponents;

/* The E8M0 codes of a row's 128 blocks; 0 beyond n_blocks. */
typedef struct scale_row {
    __m512i code[2];
} scale_row;

OCT_INLINE scale_row load_scales(const oct_operand *x, int64_t row, int64_t k, int64_t n_blocks) {
    const uint8_t *scales = x->scales;
    if (x->layout == OCT_K_CONTIGUOUS) {
        scales += (x->block_rows == 1 ? row : row / BLOCK) * x->ld_scales + k / BLOCK;
        /* Of the next sixteen rows. */
        _mm_prefetch((const char *)scales + R * x->ld_scales, _MM_HINT_T0);
        _mm_prefetch((const char *)scales + R * x->ld_scales + 64, _MM_HINT_T0);
        return (scale_row){{_mm512_maskz_loadu_epi8(oct_bytes_below(n_blocks), scales),
                            _mm512_maskz_loadu_epi8(oct_bytes_below(n_blocks - 64), scales + 64)}};
    }
    alignas(64) uint8_t copy[128] = {0};
    for (int64_t b = 0; b < n_blocks; b++)
        copy[b] = scales[(k / BLOCK + b) * x->ld_scales + row / BLOCK];
    return (scale_row){{_mm512_load_si512(copy), _mm512_load_si512(copy + 64)}};
}

OCT_INLINE int least_byte(__m512i x) {
    __m256i y = _mm256_min_epu8(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
    __m128i z = _mm_min_epu8(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1));
    z = _mm_min_epu8(z, _mm_srli_epi16(z, 8));
    return _mm_extract_epi16(_mm_minpos_epu16(z), 0) & 0xff;
}

/* Exponents of PART blocks of k as words have them, in both halves of a lane; few at a time, as L1
 * has little place left. */
typedef struct drops {
    alignas(64) uint32_t lane[R][PART];
} drops;

OCT_INLINE void write_drops(const exponents *e, int64_t block, drops *d) {
    for (int i = 0; i < R; i++) {
        __m512i x = _mm512_cvtepu8_epi32(
            _mm_load_si128((const __m128i *)(const void *)(e->drop[i] + block)));
        x = _mm512_slli_epi32(x, 7);
        _mm512_store_si512(d->lane[i], _mm512_or_si512(x, _mm512_slli_epi32(x, 16)));
    }
}

/* Whether a row has a code that isn't finite, or one other than zero in a block whose scale is 0.
 */
static __attribute__((noinline)) bool has_special_code(const oct_operand *x, int64_t row, int64_t k,
                                                       int64_t kc) {
    const uint16_t *words = oct_bf16_of_codes(x->dtype);
    const uint8_t *codes = x->data;
    alignas(64) uint8_t scales[128];
    if (x->scaling == OCT_SCALING_MX) {
        scale_row s = load_scales(x, row, k, (kc + BLOCK - 1) / BLOCK);
        _mm512_store_si512(scales, s.code[0]);
        _mm512_store_si512(scales + 64, s.code[1]);
    } else {
        memset(scales, 127, sizeof scales);
    }
    for (int64_t i = 0; i < kc; i++) {
        uint8_t c =
            codes[x->layout == OCT_K_CONTIGUOUS ? row * x->ld + k + i : (k + i) * x->ld + row];
        uint16_t word = words[c & 0x7f];
        if (word >= 0x7f00 || (x->dtype == OCT_HIF8 && c == 0x80) ||
            (scales[i / BLOCK] == 0 && word != 0))
            return true;
    }
    return false;
}

/* One row's, with MX scales. A scale byte of 0 is what zeros get, and doesn't count unless there is
 * something else than zeros. */
OCT_INLINE void find_row_exponents(const oct_operand *x, int64_t row, int64_t k, int64_t kc, int i,
                                   exponents *e) {
    const int64_t n_blocks = (kc + BLOCK - 1) / BLOCK;
    const __m512i one = _mm512_set1_epi8(1), all = _mm512_set1_epi8(-1);
    const scale_row s = load_scales(x, row, k, n_blocks);
    /* One less, so that 0, which is ignored, is the largest; only zeros give 255 and then 0. */
    const int smallest = (least_byte(_mm512_min_epu8(_mm512_sub_epi8(s.code[0], one),
                                                     _mm512_sub_epi8(s.code[1], one))) +
                          1) &
                         255;
    const int largest =
        255 - least_byte(_mm512_xor_si512(_mm512_max_epu8(s.code[0], s.code[1]), all));
    const int middle = largest ? (smallest + largest) >> 1 : 127;
    bool special = largest - smallest > OCT_BF16_MAX_SPREAD ||
                   middle > 127 + OCT_BF16_MAX_EXPONENT || middle < 127 + OCT_BF16_MIN_EXPONENT ||
                   largest == 255;
    if (!special &&
        ((_mm512_testn_epi8_mask(s.code[0], s.code[0]) & oct_bytes_below(n_blocks)) |
         (_mm512_testn_epi8_mask(s.code[1], s.code[1]) & oct_bytes_below(n_blocks - 64))))
        special = has_special_code(x, row, k, kc);
    e->special |= (uint32_t)special << i;
    const uint32_t bits = (uint32_t)middle << 23;
    memcpy(&e->unit[i], &bits, sizeof bits);
    const __m512i from = _mm512_set1_epi8((char)(middle + BIAS));
    _mm512_store_si512(e->drop[i], _mm512_sub_epi8(from, s.code[0]));
    _mm512_store_si512(e->drop[i] + 64, _mm512_sub_epi8(from, s.code[1]));
}

static void find_exponents(const oct_operand *x, int64_t row, int64_t n_rows, int64_t k, int64_t kc,
                           exponents *e) {
    e->special = 0;
    if (x->scaling == OCT_SCALING_MX) {
        for (int i = 0; i < R && i < n_rows; i++)
            find_row_exponents(x, row + i, k, kc, i, e);
        for (int64_t i = n_rows; i < R; i++) {
            e->unit[i] = 1;
            memset(e->drop[i], 0, sizeof e->drop[i]);
        }
        return;
    }
    for (int64_t i = 0; i < R; i++) {
        const float *scales = x->scales;
        const float unit = i >= n_rows                        ? 1
                           : x->scaling == OCT_SCALING_TENSOR ? scales[0]
                                                              : scales[row + i];
        e->unit[i] = unit;
        e->special |= (uint32_t) !(__builtin_fabsf(unit) >= OCT_BF16_MIN_SCALE &&
                                   __builtin_fabsf(unit) <= OCT_BF16_MAX_SCALE)
                      << i;
        memset(e->drop[i], BIAS, sizeof e->drop[i]);
    }
}

/* --- decoding --- */

/* Sixteen rows by 64 of k that lie row by row. */
typedef struct code_rows {
    const uint8_t *codes;
    int64_t ld, ahead; /* what is fetched meanwhile */
} code_rows;

OCT_INLINE __m512i load_codes(const code_rows *rows, int i) {
    const uint8_t *codes = rows->codes + i * rows->ld;
    _mm_prefetch((const char *)codes + rows->ahead, _MM_HINT_T1);
    return _mm512_loadu_si512(codes);
}

/* drop[0] and drop[1] for the two blocks of a row. */
OCT_INLINE __m512i group_drop(const uint32_t *drop) {
    return _mm512_mask_mov_epi32(_mm512_set1_epi32((int)drop[0]), 0xff00,
                                 _mm512_set1_epi32((int)drop[1]));
}

/* Row i of them to two tiles. */
OCT_INLINE void decode_row(const oct_biased_decoder *t, const code_rows *rows, int i,
                           const uint32_t *drop, char *tiles, oct_codes_seen *seen) {
    const __m512i d = group_drop(drop);
    __m512i lower, upper;
    oct_biased_decode(t, load_codes(rows, i), d, d, &lower, &upper, seen);
    _mm512_store_si512(tiles + 64 * i, lower);
    _mm512_store_si512(tiles + TILE_BYTES + 64 * i, upper);
}

/* The same of E4M3's normal codes; `least` as e4m3_by_bits.h has it. */
OCT_INLINE void decode_normal_row(const code_rows *rows, int i, const uint32_t *drop, char *tiles,
                                  __m512i *least) {
    const __m512i d = group_drop(drop), codes = load_codes(rows, i);
    __m512i lower, upper;
    *least = oct_e4m3_least_rank(*least, codes);
    oct_biased_decode_e4m3(codes, d, d, &lower, &upper);
    _mm512_store_si512(tiles + 64 * i, lower);
    _mm512_store_si512(tiles + TILE_BYTES + 64 * i, upper);
}

/* Where the codes are, or a copy of them where not all are there or they lie strided. */
OCT_INLINE code_rows find_codes(const oct_operand *x, int64_t row, int64_t n_rows, int64_t k,
                                int64_t n_k, uint8_t copy[R * GROUP]) {
    if (x->layout == OCT_K_CONTIGUOUS && n_rows >= R && n_k >= GROUP)
        return (code_rows){(const uint8_t *)x->data + row * x->ld + k, x->ld, R * x->ld};
    oct_bf16_copy_codes(x, row, n_rows, k, n_k, copy);
    return (code_rows){copy, GROUP, 0};
}

/* --- packing --- */

/* Begins a panel of A; then for each 64 of k two tiles, [16 pairs of k][n_rows][2]. */
typedef struct panel_head {
    alignas(64) float unit[R];
    oct_operand operand;
    int64_t row, n_rows;
    uint32_t special;
} panel_head;

static void pack_a(const oct_gemm_source *from, void *panel) {
    const oct_operand *a = from->operand;
    const int64_t row = from->row, n_rows = from->n_rows, k = from->k, kc = from->kc;
    panel_head *head = panel;
    char *to = (char *)panel + sizeof *head;
    exponents e;
    drops d;
    oct_codes_seen seen = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    const oct_bf16_table words = oct_biased_table_make(a->dtype);
    const oct_biased_decoder t = oct_biased_decoder_make(&words);
    const __mmask16 lanes = oct_lanes_below(n_rows);
    find_exponents(a, row, n_rows, k, kc, &e);
    for (int64_t i = 0; i < kc; i += GROUP) {
        alignas(64) char tiles[2][TILE_BYTES];
        alignas(64) uint8_t copy[R * GROUP];
        const code_rows rows = find_codes(a, row, n_rows, k + i, kc - i, copy);
        if (i / BLOCK % PART == 0)
            write_drops(&e, i / BLOCK, &d);
        for (int r = 0; r < R; r++)
            decode_row(&t, &rows, r, &d.lane[r][i / BLOCK % PART], tiles[0], &seen);
        for (int tile = 0; tile < 2; tile++) {
            __m512i v[16];
            for (int r = 0; r < R; r++)
                v[r] = _mm512_load_si512(tiles[tile] + 64 * r);
            oct_transpose_16x16(v);
            for (int pair = 0; pair < 16; pair++, to += 4 * n_rows)
                _mm512_mask_storeu_epi32(to, lanes, v[pair]);
        }
    }
    if (oct_saw_not_finite(&seen))
        for (int r = 0; r < n_rows; r++)
            e.special |= (uint32_t)has_special_code(a, row + r, k, kc) << r;
    memcpy(head->unit, e.unit, sizeof e.unit);
    head->operand = *a;
    head->row = row;
    head->n_rows = n_rows;
    head->special = e.special;
}

/* --- multiplying --- */

/* Tiles 0, 1: sums, 16 rows of B by A's rows; 4, 5: of B; 6, 7: of A. */
static void configure_tiles(int64_t n_rows) {
    const uint16_t a = (uint16_t)(n_rows * 4);
    oct_tile_config c = {.palette = 1,
                         .bytes_per_row = {a, a, a, a, 64, 64, a, a},
                         .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&c);
}

/* Two tiles of B and of A that are to be multiplied. */
typedef struct factors {
    const char *w, *x;
    size_t ld; /* bytes from a row of x to the next */
} factors;

OCT_INLINE void multiply_tiles(const factors *f) {
    _tile_loadd(4, f->w, 64);
    _tile_loadd(6, f->x, f->ld);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, f->w + TILE_BYTES, 64);
    _tile_loadd(7, f->x + 16 * f->ld, f->ld);
    _tile_dpbf16ps(1, 5, 7);
}

/* OCT_BY_BITS: of four rows from i on not all codes are normal. */
static __attribute__((noinline)) void decode_again(const oct_biased_decoder *t,
                                                   const code_rows *rows, int i,
                                                   const uint32_t *drop, char *tiles,
                                                   oct_codes_seen *seen) {
    for (int end = i + 4; i < end; i++)
        decode_row(t, rows, i, drop + i * PART, tiles, seen);
}

/* Decodes sixteen rows, and meanwhile multiplies what was decoded before: the tile unit needs few
 * of the core's instructions. */
OCT_INLINE void decode_and_multiply(const oct_biased_decoder *t, const code_rows *rows,
                                    const uint32_t *drop, char *tiles, oct_codes_seen *seen,
                                    const factors *f, oct_decoding how) {
    __m512i least = _mm512_set1_epi8(-1);
#pragma GCC unroll 16
    for (int i = 0; i < R; i++) {
        if (how == OCT_BY_BITS)
            decode_normal_row(rows, i, drop + i * PART, tiles, &least);
        else
            decode_row(t, rows, i, drop + i * PART, tiles, seen);
        if (how == OCT_BY_BITS && i % 4 == 3) {
            if (__builtin_expect(!oct_e4m3_all_normal(least), 0))
                decode_again(t, rows, i - 3, drop, tiles, seen);
            least = _mm512_set1_epi8(-1);
        }
        if (i == 1)
            _tile_loadd(4, f->w, 64);
        if (i == 3)
            _tile_loadd(6, f->x, f->ld);
        if (i == 5)
            _tile_dpbf16ps(0, 4, 6);
        if (i == 8)
            _tile_loadd(5, f->w + TILE_BYTES, 64);
        if (i == 10)
            _tile_loadd(7, f->x + 16 * f->ld, f->ld);
        if (i == 12)
            _tile_dpbf16ps(1, 5, 7);
    }
}

typedef struct sums {
    alignas(64) float x[R][R]; /* rows of B, of A */
} sums;

/* Sixteen rows of B, of `row` on, by A: into tiles 0 and 1. */
OCT_INLINE void multiply_rows(const char *x, int64_t n_a, const oct_operand *b, int64_t row,
                              int64_t n_rows, int64_t k, int64_t kc, const oct_biased_decoder *any,
                              const exponents *e, oct_codes_seen *seen, oct_decoding how) {
    oct_biased_decoder t = *any;
    t.words.zero_is_nan = how == OCT_LOOKED_UP_HIF8; /* a constant, when this is inlined */
    alignas(64) char ring[2][2 * TILE_BYTES];
    drops d;
    alignas(64) uint8_t copy[R * GROUP];
    factors f = {.w = ring[1], .x = x, .ld = (size_t)n_a * 4};
    memset(ring[1], 0, sizeof ring[1]);
    _tile_zero(0);
    _tile_zero(1);
    for (int64_t i = 0, turn = 0; i < kc; i += GROUP, turn ^= 1) {
        const code_rows rows = find_codes(b, row, n_rows, k + i, kc - i, copy);
        if (i / BLOCK % PART == 0)
            write_drops(e, i / BLOCK, &d);
        decode_and_multiply(&t, &rows, &d.lane[0][i / BLOCK % PART], ring[turn], seen, &f, how);
        f.w = ring[turn];
        f.x = x + i * n_a * 2;
    }
    multiply_tiles(&f);
}

/* The sums in tiles 0 and 1, with their scales. */
static void read_sums(const exponents *e, const panel_head *a, sums *s) {
    sums second;
    const __m512 unit = _mm512_load_ps(a->unit);
    memset(s, 0, sizeof *s);
    memset(&second, 0, sizeof second);
    _tile_stored(0, s->x, sizeof s->x[0]);
    _tile_stored(1, second.x, sizeof s->x[0]);
    for (int i = 0; i < R; i++) {
        __m512 x = _mm512_add_ps(_mm512_load_ps(s->x[i]), _mm512_load_ps(second.x[i]));
        x = _mm512_mul_ps(_mm512_mul_ps(x, _mm512_set1_ps(e->unit[i])), unit);
        _mm512_store_ps(s->x[i], x);
    }
}

/* Special rows' sums, of A's or of B's rows, from the operands. */
static __attribute__((noinline)) void replace_special(const panel_head *a, const oct_operand *b,
                                                      int64_t row, int64_t n_rows, int64_t k,
                                                      int64_t kc, uint32_t special, sums *s) {
    oct_bf16_sums e;
    oct_bf16_multiply_operands(b, row, n_rows, &a->operand, a->row, a->n_rows, k, kc, &e);
    for (int i = 0; i < R; i++) {
        __mmask16 columns = (__mmask16)(special >> i & 1 ? 0xffffu : a->special);
        _mm512_mask_store_ps(s->x[i], columns, _mm512_load_ps(e.x[i]));
    }
}

static void store_sums(const sums *s, float *acc, int64_t ld_acc, int64_t n_rows, int64_t n_cols,
                       oct_accumulate accumulate) {
    const __mmask16 lanes = oct_lanes_below(n_cols);
    __m512i v[R];
    for (int i = 0; i < R; i++)
        v[i] = _mm512_load_si512(s->x[i]);
    oct_transpose_16x16(v);
    for (int64_t i = 0; i < n_rows; i++, acc += ld_acc) {
        __m512 x = _mm512_castsi512_ps(v[i]);
        if (accumulate == OCT_ADD_TO_OUTPUT)
            x = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, acc), x);
        _mm512_mask_storeu_ps(acc, lanes, x);
    }
}

static void multiply(const void *a_panel, const void *b_panel, int64_t kc, float *acc,
                     int64_t ld_acc, int64_t n_rows, int64_t n_cols, oct_accumulate accumulate) {
    const panel_head *a = a_panel;
    const oct_unpacked_rows *b = b_panel;
    const char *x = (const char *)a_panel + sizeof *a;
    const oct_bf16_table words = oct_biased_table_make(b->operand.dtype);
    const oct_biased_decoder t = oct_biased_decoder_make(&words);
    const oct_decoding how = oct_decoding_for(b->operand.dtype);
    exponents e;
    sums s;
    configure_tiles(n_rows);
    for (int64_t first = 0; first < n_cols; first += R) {
        const int64_t row = b->row + first, n = n_cols - first < R ? n_cols - first : R;
        oct_codes_seen seen = {_mm512_setzero_si512(), _mm512_setzero_si512()};
        find_exponents(&b->operand, row, n, b->k, kc, &e);
        switch (how) {
        case OCT_BY_BITS:
            multiply_rows(x, n_rows, &b->operand, row, n, b->k, kc, &t, &e, &seen, OCT_BY_BITS);
            break;
        case OCT_LOOKED_UP_HIF8:
            multiply_rows(x, n_rows, &b->operand, row, n, b->k, kc, &t, &e, &seen,
                          OCT_LOOKED_UP_HIF8);
            break;
        case OCT_LOOKED_UP:
            multiply_rows(x, n_rows, &b->operand, row, n, b->k, kc, &t, &e, &seen, OCT_LOOKED_UP);
            break;
        }
        read_sums(&e, a, &s);
        uint32_t special = e.special;
        if (oct_saw_not_finite(&seen))
            for (int i = 0; i < n; i++)
                special |= (uint32_t)has_special_code(&b->operand, row + i, b->k, kc) << i;
        if (special | a->special)
            replace_special(a, &b->operand, row, n, b->k, kc, special, &s);
        store_sums(&s, acc + first, ld_acc, n_rows, n, accumulate);
    }
    _tile_release();
}

const oct_gemm_kernels oct_gemm_kernels_few_rows_amx = {
    .MR = R,
    .NR = NR,
    .k_step = STEP,
    .a_bytes_per_k = R * sizeof(uint16_t),
    .a_bytes_fixed = sizeof(panel_head) + (GROUP - 1) * R * sizeof(uint16_t),
    .b_bytes_fixed = sizeof(oct_unpacked_rows),
    .pack_a = pack_a,
    .pack_b = oct_note_rows,
    .multiply = multiply,
    .store = oct_gemm_store_avx512,
};
