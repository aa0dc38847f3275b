/* The MX quantizers in AVX-512. docs/numerics.md has the rules, kernel/quantize.h the shapes,
 * mx_words.h the arithmetic.
 *
 * Row blocks: 16 blocks of a row at a time, so that scales are computed 16 a register. Column
 * blocks: bands of 64 rows, whose words are staged beside each other whatever the source's stride;
 * 32 columns at a time, 64 codes of each of which make a cache line after a transpose.
 *
 * Invariant: loads and stores are masked at the edges; nothing outside the named elements is
 * touched. dtype and format are constants inside the loops: `passes` has a function of each kind
 * for each pair of them. */
#include "kernel/avx512/quantize.h"

#include <string.h>

#include "base/checked.h"
#include "kernel/avx512/mx_words.h"

enum {
    BLOCK = OCT_MX_BLOCK,
    GROUP = 16 * BLOCK, /* columns whose scales fill a register */
    BAND = 64,          /* rows whose codes fill a cache line of a column */
    STRIP = GROUP,      /* columns of a band that stay in cache between the two orientations */
    STREAM_BYTES = 2 << 20
};

/* Constants of a call. */
typedef struct rules {
    oct_mx_rule rule;
    oct_scale_mode mode;
} rules;

OCT_INLINE rules rules_make(oct_dtype format, oct_scale_mode mode) {
    return (rules){oct_mx_rule_make(format, mode), mode};
}

/* Whether whole cache lines of codes go past the caches: they'd be evicted before they are used,
 * and a store that misses reads the line first. */
OCT_INLINE bool streams(const oct_matrix_view *x, const oct_mx_output *out) {
    return x->rows * x->cols >= STREAM_BYTES &&
           ((uintptr_t)out->codes | (uintptr_t)out->ld_codes) % 64 == 0;
}

OCT_INLINE void store_line(uint8_t *to, __m512i line, bool stream) {
    if (stream)
        _mm512_stream_si512((__m512i *)to, line);
    else
        _mm512_storeu_si512(to, line);
}

OCT_INLINE oct_matrix_view part(const oct_matrix_view *x, oct_dtype dtype, int64_t row,
                                int64_t n_rows, int64_t col, int64_t n_cols) {
    return (oct_matrix_view){oct_element(x, dtype, row, col), dtype, n_rows, n_cols, x->ld};
}

/* --- blocks along a row --- */

/* A group's place in the source and in the output. */
typedef struct group {
    const oct_matrix_view *x;
    int64_t row, col, n;
    uint8_t *codes, *scales;
    bool stream;
    const char *ahead; /* where the reading will be soon, to be prefetched; or NULL */
} group;

static __attribute__((noinline)) void quantize_exotic_group(const group *g, oct_dtype format,
                                                            oct_scale_mode mode) {
    oct_matrix_view x = part(g->x, g->x->dtype, g->row, 1, g->col, g->n);
    oct_mx_output out = {g->codes, g->n, g->scales, 16};
    oct_quantize_kernels_ref.mx_rows(&x, format, mode, &out);
}

/* Asks for the lines of 64 elements, a few at a time between the arithmetic: in one go they'd fill
 * the buffers that loads wait for. */
OCT_INLINE void prefetch_64(const char *ahead, oct_dtype dtype, int64_t i) {
    const int64_t size = dtype == OCT_F32 ? 4 : 2;
    for (int64_t b = 0; ahead && b < 64 * size; b += 64)
        _mm_prefetch(ahead + i * size + b, _MM_HINT_T1);
}

/* The words of n columns of a group (at most GROUP) to `words`, aligned, the others zeros; their
 * blocks' maxima in lanes still to be reduced. */
OCT_INLINE void load_words(const group *g, oct_dtype dtype, int64_t n, uint16_t *words,
                           __m512i maxima[8]) {
    const char *from = oct_element(g->x, dtype, g->row, g->col);
    const int64_t size = dtype == OCT_F32 ? 4 : 2;
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        oct_words_64 w = oct_load_words(from + 64 * i * size, dtype, n - 64 * i);
        _mm512_store_si512(words + 64 * i, w.words[0]);
        _mm512_store_si512(words + 64 * i + 32, w.words[1]);
        maxima[i] = oct_block_maxima(w, dtype);
        prefetch_64(g->ahead, dtype, 64 * i);
    }
}

/* A group that isn't to be encoded by rows. */
OCT_INLINE void stage_group(const group *g, oct_dtype dtype, uint16_t *words) {
    __m512i maxima[8];
    if (g->n == GROUP)
        load_words(g, dtype, GROUP, words, maxima);
    else
        load_words(g, dtype, g->n, words, maxima);
}

OCT_INLINE void quantize_group(const group *g, oct_dtype dtype, oct_dtype format, const rules *r,
                               uint16_t *words) {
    __m512i lanes[8];
    if (g->n == GROUP)
        load_words(g, dtype, GROUP, words, lanes);
    else
        load_words(g, dtype, g->n, words, lanes);
    __m512i maxima = _mm512_castsi256_si512(oct_reduce_maxima(lanes));
    if (oct_exotic_words(maxima) & 0xffff) {
        quantize_exotic_group(g, format, r->mode);
        return;
    }
    __m512i scales = oct_word_scales(maxima, &r->rule);
    _mm_mask_storeu_epi8(g->scales, oct_lanes_below((g->n + BLOCK - 1) / BLOCK),
                         _mm256_cvtepi16_epi8(_mm512_castsi512_si256(scales)));
    __m512i bases = oct_word_bases(scales, &r->rule);
    /* A dword is what the halves of a lane subtract: of two blocks, or twice the same. */
    alignas(64) int32_t base[16];
    if (dtype == OCT_BF16) {
        bases = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(bases));
        bases = _mm512_or_si512(bases, _mm512_slli_epi32(bases, 16));
    }
    _mm512_store_si512(base, bases);
    for (int64_t i = 0; i < g->n; i += 64) {
        const int32_t *b = dtype == OCT_BF16 ? base + i / 32 : base + i / 64;
        __m512i first =
            oct_encode_words(_mm512_load_si512(words + i), _mm512_set1_epi32(b[0]), format);
        __m512i second = oct_encode_words(_mm512_load_si512(words + i + 32),
                                          _mm512_set1_epi32(b[dtype == OCT_BF16]), format);
        __m512i codes = oct_order_codes(first, second, dtype, format);
        if (g->n - i < 64)
            _mm512_mask_storeu_epi8(g->codes + i, oct_bytes_below(g->n - i), codes);
        else
            store_line(g->codes + i, codes, g->stream);
    }
}

OCT_INLINE group group_at(const oct_matrix_view *x, int64_t row, int64_t col,
                          const oct_mx_output *out) {
    return (group){.x = x,
                   .row = row,
                   .col = col,
                   .n = oct_min_i64(GROUP, x->cols - col),
                   .codes = out ? out->codes + row * out->ld_codes + col : NULL,
                   .scales = out ? out->scales + row * out->ld_scales + col / BLOCK : NULL,
                   .stream = out && streams(x, out)};
}

/* --- blocks along a column --- */

/* The words of a band of a strip, so that its columns are read from a few adjacent pages and cache
 * sets: power-of-two strides would put a column into one set. Rows that the band lacks are zeros.
 */
enum { STAGE_LD = STRIP + 32 };
typedef struct stage {
    alignas(64) uint16_t words[BAND * STAGE_LD];
} stage;

/* Lines of the source that will be read soon: two of each of 32 rows. */
typedef struct lines_ahead {
    const char *first;                 /* or NULL */
    int64_t row_bytes, n_rows, second; /* second: bytes from the first line to the second */
} lines_ahead;

OCT_INLINE void prefetch_rows(const lines_ahead *l, int64_t row, int64_t n) {
    for (int64_t r = row; l->first && r < row + n && r < l->n_rows; r++) {
        _mm_prefetch(l->first + r * l->row_bytes, _MM_HINT_T1);
        if (l->second)
            _mm_prefetch(l->first + r * l->row_bytes + l->second, _MM_HINT_T1);
    }
}

OCT_INLINE __m512i column_maxima(const uint16_t *words) {
    __m512i maxima[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        maxima[i] = _mm512_setzero_si512();
#pragma GCC unroll 32
    for (int r = 0; r < BLOCK; r++)
        maxima[r % 4] = _mm512_max_epu16(
            maxima[r % 4], oct_word_magnitudes(_mm512_load_si512(words + r * STAGE_LD)));
    return _mm512_max_epu16(_mm512_max_epu16(maxima[0], maxima[1]),
                            _mm512_max_epu16(maxima[2], maxima[3]));
}

/* 32 rows of 32 columns: low[i] lane j = the codes of rows 4 i .. 4 i + 3 in the low half of lane
 * j, high[i] those in the high half. */
OCT_INLINE void encode_columns(const uint16_t *words, __m512i base, oct_dtype format,
                               const lines_ahead *ahead, int64_t ahead_row, __m512i *low,
                               __m512i *high) {
    const __mmask32 upper = 0xaaaaaaaau;
#pragma GCC unroll 2
    for (int i = 0; i < 8; i++) {
        __m512i code[4];
#pragma GCC unroll 4
        for (int b = 0; b < 4; b++)
            code[b] =
                oct_encode_words(_mm512_load_si512(words + (4 * i + b) * STAGE_LD), base, format);
        __m512i first = oct_pair_codes(code[0], code[1], format);
        __m512i second = oct_pair_codes(code[2], code[3], format);
        low[i] = _mm512_mask_mov_epi16(first, upper, _mm512_slli_epi32(second, 16));
        high[i] = _mm512_mask_mov_epi16(_mm512_srli_epi32(first, 16), upper, second);
        prefetch_rows(ahead, ahead_row + 2 * i, 2);
    }
}

/* The columns of one register: where they are in the source, and their codes' first row. */
typedef struct columns {
    const oct_matrix_view *x;
    const oct_mx_output *out;
    int64_t row, n_rows, col, n_cols; /* col: of the register's 64; n_cols: of them in the matrix */
    int word;                         /* which of the registers of the 64 */
    bool stream;
} columns;

static __attribute__((noinline)) void quantize_exotic_columns(const columns *c, oct_dtype format,
                                                              oct_scale_mode mode) {
    for (int i = 0; i < 32; i++) {
        int64_t j = oct_word_element(c->x->dtype, c->word, i / 16, i % 16);
        if (j >= c->n_cols)
            continue;
        int64_t col = c->col + j;
        oct_matrix_view x = part(c->x, c->x->dtype, c->row, c->n_rows, col, 1);
        oct_mx_output out = {c->out->codes + col * c->out->ld_codes + c->row, c->out->ld_codes,
                             c->out->scales + col * c->out->ld_scales + c->row / BLOCK,
                             c->out->ld_scales};
        oct_quantize_kernels_ref.mx_cols(&x, format, mode, &out);
    }
}

/* 16 columns, those of one half of the lanes. scales: of two blocks, a byte each. */
OCT_INLINE void store_columns(const columns *c, oct_dtype dtype, int half, const __m512i *lines,
                              const uint16_t *scales) {
    const int64_t ld = c->out->ld_codes, ld_scales = c->out->ld_scales;
    uint8_t *codes = c->out->codes + c->col * ld + c->row;
    uint8_t *to_scales = c->out->scales + c->col * ld_scales + c->row / BLOCK;
    if (c->n_rows == BAND && c->n_cols >= 64) {
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            int64_t j = oct_word_element(dtype, c->word, half, i);
            store_line(codes + j * ld, lines[i], c->stream);
            memcpy(to_scales + j * ld_scales, &scales[2 * i + half], 2);
        }
        return;
    }
    for (int i = 0; i < 16; i++) {
        int64_t j = oct_word_element(dtype, c->word, half, i);
        if (j >= c->n_cols)
            continue;
        _mm512_mask_storeu_epi8(codes + j * ld, oct_bytes_below(c->n_rows), lines[i]);
        memcpy(to_scales + j * ld_scales, &scales[2 * i + half], c->n_rows > BLOCK ? 2 : 1);
    }
}

OCT_INLINE void quantize_columns(const columns *c, oct_dtype dtype, oct_dtype format,
                                 const rules *r, const uint16_t *words, const lines_ahead *ahead) {
    const int n_blocks = c->n_rows > BLOCK ? 2 : 1;
    __m512i low[16], high[16], scales[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    __mmask32 exotic = 0;
    for (int b = 0; b < n_blocks; b++) {
        __m512i maxima = column_maxima(words + b * BLOCK * STAGE_LD);
        scales[b] = oct_word_scales(maxima, &r->rule);
        exotic |= oct_exotic_words(maxima);
    }
    if (exotic) {
        quantize_exotic_columns(c, format, r->mode);
        return;
    }
    alignas(64) uint16_t scale_pairs[32];
    _mm512_store_si512(scale_pairs, _mm512_or_si512(scales[0], _mm512_slli_epi16(scales[1], 8)));
    for (int b = 0; b < n_blocks; b++)
        encode_columns(words + b * BLOCK * STAGE_LD, oct_word_bases(scales[b], &r->rule), format,
                       ahead, 16 * b, low + 8 * b, high + 8 * b);
    for (int i = 8 * n_blocks; i < 16; i++)
        low[i] = high[i] = _mm512_setzero_si512();
    oct_transpose_16x16(low);
    store_columns(c, dtype, 0, low, scale_pairs);
    oct_transpose_16x16(high);
    store_columns(c, dtype, 1, high, scale_pairs);
}

/* --- tiles --- */

/* Two tiles, 32 rows by 64 columns at most. */
OCT_INLINE void quantize_tiles(const oct_matrix_view *x, oct_dtype dtype, oct_dtype format,
                               const rules *r, const oct_mx_output *out, int64_t row, int64_t col) {
    const int64_t n_rows = oct_min_i64(BLOCK, x->rows - row);
    const int64_t n_cols = oct_min_i64(2 * BLOCK, x->cols - col);
    alignas(64) uint16_t words[BLOCK][64];
    __m512i maxima[8] = {_mm512_setzero_si512()};
    for (int64_t i = 0; i < n_rows; i++) {
        const void *from = oct_element(x, dtype, row + i, col);
        oct_words_64 w =
            n_cols == 64 ? oct_load_words(from, dtype, 64) : oct_load_words(from, dtype, n_cols);
        _mm512_store_si512(words[i], w.words[0]);
        _mm512_store_si512(words[i] + 32, w.words[1]);
        maxima[0] = _mm512_max_epu16(maxima[0], oct_block_maxima(w, dtype));
        prefetch_64(oct_element(x, dtype, row + i, col + 2 * 64), dtype, 0);
    }
    for (int i = 1; i < 8; i++)
        maxima[i] = maxima[0];
    uint8_t *codes = out->codes + row * out->ld_codes + col;
    uint8_t *to_scales = out->scales + row / BLOCK * out->ld_scales + col / BLOCK;
    __m512i wide = _mm512_castsi256_si512(oct_reduce_maxima(maxima));
    if (oct_exotic_words(wide) & 3) {
        oct_matrix_view tiles = part(x, dtype, row, n_rows, col, n_cols);
        oct_quantize_kernels_ref.mx_tiles(
            &tiles, format, r->mode,
            &(oct_mx_output){codes, out->ld_codes, to_scales, out->ld_scales});
        return;
    }
    __m512i scales = oct_word_scales(wide, &r->rule);
    _mm_mask_storeu_epi8(to_scales, n_cols > BLOCK ? 3 : 1,
                         _mm256_cvtepi16_epi8(_mm512_castsi512_si256(scales)));
    uint32_t pair = (uint32_t)_mm512_cvtsi512_si32(oct_word_bases(scales, &r->rule));
    __m512i first = _mm512_set1_epi32((int)pair), second = first;
    if (dtype == OCT_BF16) {
        first = _mm512_set1_epi16((short)pair);
        second = _mm512_set1_epi16((short)(pair >> 16));
    }
    for (int64_t i = 0; i < n_rows; i++) {
        __m512i a = oct_encode_words(_mm512_load_si512(words[i]), first, format);
        __m512i b = oct_encode_words(_mm512_load_si512(words[i] + 32), second, format);
        _mm512_mask_storeu_epi8(codes + i * out->ld_codes, oct_bytes_below(n_cols),
                                oct_order_codes(a, b, dtype, format));
    }
}

/* --- the passes, with dtype and format as constants --- */

typedef struct passes {
    void (*stage_group)(const group *g, uint16_t *words);
    void (*quantize_group)(const group *g, const rules *r, uint16_t *words);
    void (*quantize_columns)(const columns *c, const rules *r, const uint16_t *words,
                             const lines_ahead *ahead);
    void (*quantize_tiles)(const oct_matrix_view *x, const rules *r, const oct_mx_output *out,
                           int64_t row, int64_t col);
} passes;

#define PASSES(name, dtype, format)                                                                \
    static void stage_group_##name(const group *g, uint16_t *words) {                              \
        stage_group(g, dtype, words);                                                              \
    }                                                                                              \
    static void quantize_group_##name(const group *g, const rules *r, uint16_t *words) {           \
        quantize_group(g, dtype, format, r, words);                                                \
    }                                                                                              \
    static void quantize_columns_##name(const columns *c, const rules *r, const uint16_t *words,   \
                                        const lines_ahead *ahead) {                                \
        quantize_columns(c, dtype, format, r, words, ahead);                                       \
    }                                                                                              \
    static void quantize_tiles_##name(const oct_matrix_view *x, const rules *r,                    \
                                      const oct_mx_output *out, int64_t row, int64_t col) {        \
        quantize_tiles(x, dtype, format, r, out, row, col);                                        \
    }                                                                                              \
    static const passes passes_##name = {stage_group_##name, quantize_group_##name,                \
                                         quantize_columns_##name, quantize_tiles_##name};
PASSES(f32_e4m3, OCT_F32, OCT_E4M3)
PASSES(f32_e5m2, OCT_F32, OCT_E5M2)
PASSES(bf16_e4m3, OCT_BF16, OCT_E4M3)
PASSES(bf16_e5m2, OCT_BF16, OCT_E5M2)
#undef PASSES

static const passes *passes_for(oct_dtype dtype, oct_dtype format) {
    if (dtype == OCT_F32)
        return format == OCT_E4M3 ? &passes_f32_e4m3 : &passes_f32_e5m2;
    return format == OCT_E4M3 ? &passes_bf16_e4m3 : &passes_bf16_e5m2;
}

/* --- the kernels --- */

static void mx_rows(const oct_matrix_view *x, oct_dtype format, oct_scale_mode mode,
                    const oct_mx_output *out) {
    const passes *p = passes_for(x->dtype, format);
    const rules r = rules_make(format, mode);
    alignas(64) uint16_t words[GROUP];
    for (int64_t row = 0; row < x->rows; row++)
        for (int64_t col = 0; col < x->cols; col += GROUP) {
            group g = group_at(x, row, col, out);
            g.ahead = oct_element(x, x->dtype, row, col + 2 * GROUP);
            p->quantize_group(&g, &r, words);
        }
}

/* A band of a strip, and the one that comes after it. */
typedef struct band {
    int64_t row, col, next_row, next_col;
} band;

/* by_rows may be NULL. The first 32 rows of a band are asked for while the columns of the band
 * before are encoded, the others while these are: so memory is never idle, and a source whose rows
 * all map to the same sets of L2 still fits. */
static void quantize_band(const oct_matrix_view *x, const passes *p, const rules *r,
                          const oct_mx_output *by_rows, const oct_mx_output *by_cols, const band *b,
                          stage *s) {
    const int64_t size = x->dtype == OCT_F32 ? 4 : 2;
    const int64_t n_rows = oct_min_i64(BAND, x->rows - b->row);
    const int64_t n_cols = oct_min_i64(STRIP, x->cols - b->col);
    for (int64_t i = 0; i < n_rows; i++) {
        group g = group_at(x, b->row + i, b->col, by_rows);
        if (i + BLOCK < n_rows)
            g.ahead = oct_element(x, x->dtype, b->row + i + BLOCK, b->col);
        if (by_rows)
            p->quantize_group(&g, r, s->words + i * STAGE_LD);
        else
            p->stage_group(&g, s->words + i * STAGE_LD);
    }
    for (int64_t i = n_rows; i < oct_ceil_div(n_rows, BLOCK) * BLOCK; i++)
        memset(s->words + i * STAGE_LD, 0, STRIP * sizeof s->words[0]);
    columns c = {.x = x, .out = by_cols, .row = b->row, .n_rows = n_rows};
    c.stream = streams(x, by_cols);
    lines_ahead ahead = {.row_bytes = x->ld * size,
                         .n_rows = oct_min_i64(BLOCK, x->rows - b->next_row),
                         .second = x->dtype == OCT_F32 ? 32 * size : 0};
    for (int64_t j = 0; j < oct_ceil_div(n_cols, 64) * 64; j += 32) {
        const int64_t first = j / 64 * 64; /* of the 64 columns that this register belongs to */
        c.col = b->col + first;
        c.n_cols = x->cols - c.col;
        c.word = (int)(j / 32 % 2);
        const int64_t next = b->next_col + first + oct_word_element(x->dtype, c.word, 0, 0);
        ahead.first = next < x->cols ? oct_element(x, x->dtype, b->next_row, next) : NULL;
        p->quantize_columns(&c, r, s->words + j, &ahead);
    }
}

/* Strip by strip, band by band; by_rows may be NULL. */
static void mx_both(const oct_matrix_view *x, oct_dtype format, oct_scale_mode mode,
                    const oct_mx_output *by_rows, const oct_mx_output *by_cols) {
    const passes *p = passes_for(x->dtype, format);
    const rules r = rules_make(format, mode);
    stage s;
    for (int64_t col = 0; col < x->cols; col += STRIP)
        for (int64_t row = 0; row < x->rows; row += BAND) {
            band b = {.row = row, .col = col, .next_row = row + BAND, .next_col = col};
            if (b.next_row >= x->rows) {
                b.next_row = 0;
                b.next_col += STRIP;
            }
            quantize_band(x, p, &r, by_rows, by_cols, &b, &s);
        }
}

static void mx_cols(const oct_matrix_view *x, oct_dtype format, oct_scale_mode mode,
                    const oct_mx_output *out) {
    mx_both(x, format, mode, NULL, out);
}

static void mx_tiles(const oct_matrix_view *x, oct_dtype format, oct_scale_mode mode,
                     const oct_mx_output *out) {
    const passes *p = passes_for(x->dtype, format);
    const rules r = rules_make(format, mode);
    for (int64_t row = 0; row < x->rows; row += BLOCK)
        for (int64_t col = 0; col < x->cols; col += 2 * BLOCK)
            p->quantize_tiles(x, &r, out, row, col);
}

const oct_quantize_kernels oct_quantize_kernels_avx512 = {
    .mx_rows = mx_rows,
    .mx_cols = mx_cols,
    .mx_both = mx_both,
    .mx_tiles = mx_tiles,
    .amax = oct_amax_avx512,
    .scaled = oct_scaled_avx512,
    .decode_scaled = oct_decode_scaled_avx512,
    .f32_to_bf16 = oct_f32_to_bf16_avx512,
    .bf16_to_f32 = oct_bf16_to_f32_avx512,
};
