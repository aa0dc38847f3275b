/* Column blocks, alone or together with row blocks of the same elements, in AVX-512.
 * docs/numerics.md has the rules, kernel/quantize.h the shapes, mx_words.h the arithmetic.
 *
 * The matrix is read in strips of 256 columns, a strip in pieces of 32 rows. A piece is first read
 * whole: its words go to a stage that fits in L1, whatever the source's stride, and the maxima of
 * its blocks of both kinds become scales. Then every word is encoded with the scales of its row's
 * and of its column's block, so no code waits for a maximum. Two pieces give the columns' codes
 * that make a cache line after a transpose.
 *
 * Invariant: loads and stores are masked at the edges; nothing outside the named elements is
 * touched. dtype and format are constants inside the loops. */
#include <string.h>

#include "base/checked.h"
#include "kernel/quantize/avx512/mx_blocks.h"
#include "kernel/quantize/avx512/quantize_avx512.h"

enum {
    BLOCK = OCT_MX_BLOCK,
    BAND = 2 * BLOCK,
    STRIP = 256,
    WORD_REGISTERS = STRIP / 32,
    STAGE_LD = STRIP + 32, /* an odd number of lines: columns spread over the cache's sets */
};

/* --- a piece --- */

typedef struct stage {
    alignas(64) uint16_t words[BLOCK * STAGE_LD]; /* rows that the matrix lacks are zeros */
    /* What is subtracted in a row's blocks: a dword is for the two halves of a lane, those of two
     * blocks (fp32, 4 a row) or twice the same (bf16, 8 a row). */
    alignas(64) int32_t row_bases[BLOCK][8];
    alignas(64) uint16_t col_bases[STRIP];
    alignas(64) uint16_t col_scales[2][STRIP];     /* of the band's two pieces */
    uint32_t rows_out_of_range, cols_out_of_range; /* a bit a row, or a register of columns */
    /* Of the band: [register of columns][half of each 8 of its words][4 rows]. A dword has the
     * codes of 4 rows, lane 4 l + d those of word 8 l + d, or 8 l + 4 + d. */
    __m512i codes[WORD_REGISTERS][2][16];
} stage;

/* Everything about a band of a strip; of the piece in work: which, and its rows. */
typedef struct band {
    const oct_matrix_view *x;
    const oct_mx_output *by_rows, *by_cols; /* by_rows may be NULL */
    int64_t row, n_rows, col, n_cols;
    bool stream_rows, stream_cols;
} band;

typedef struct piece {
    int64_t row, n_rows;
    int index; /* in its band */
    /* Where the piece that will be read next begins. Its lines are asked for a few at a time
     * between all of this piece's arithmetic: so memory is never idle, loads don't wait for buffers
     * that a burst would fill, and rows that map to the same sets of L2 still fit. */
    const char *next;
} piece;

enum { FIRST_ROWS = 8 }; /* of the next piece, asked for by read_piece, the others by encode_quad */

OCT_INLINE void store_row_scales(const band *b, int64_t row, __m128i scales, int64_t n_rows) {
    uint8_t *to = b->by_rows->scales + row * b->by_rows->ld_scales + b->col / BLOCK;
    const __mmask16 mask = oct_lanes_below((b->n_cols + BLOCK - 1) / BLOCK);
    _mm_mask_storeu_epi8(to, mask, scales);
    if (n_rows > 1)
        _mm_mask_storeu_epi8(to + b->by_rows->ld_scales, mask, _mm_bsrli_si128(scales, 8));
}

/* The scales of two rows. maxima: 4 registers of each. */
OCT_INLINE void scale_rows(const band *b, const piece *p, int i, oct_dtype dtype,
                           const oct_mx_rules *r, __m512i maxima[8], stage *s) {
    __m512i m = _mm512_castsi256_si512(oct_reduce_maxima(maxima));
    __mmask32 out_of_range = oct_maxima_out_of_range(m);
    if (out_of_range & 0xff)
        s->rows_out_of_range |= 1u << i;
    if (out_of_range & 0xff00)
        s->rows_out_of_range |= 2u << i;
    __m512i scales = oct_scales_of_maxima(m, &r->rule);
    __m256i bases = _mm512_castsi512_si256(oct_encoding_bases(scales, &r->rule));
    if (dtype == OCT_BF16) {
        __m512i wide = _mm512_cvtepu16_epi32(bases);
        _mm512_store_si512(s->row_bases[i], _mm512_or_si512(wide, _mm512_slli_epi32(wide, 16)));
    } else {
        _mm_store_si128((__m128i *)s->row_bases[i], _mm256_castsi256_si128(bases));
        _mm_store_si128((__m128i *)s->row_bases[i + 1], _mm256_extracti128_si256(bases, 1));
    }
    if (i < p->n_rows)
        store_row_scales(b, p->row + i, _mm256_cvtepi16_epi8(_mm512_castsi512_si256(scales)),
                         p->n_rows - i);
}

/* n_cols is b->n_cols, or constant. */
OCT_INLINE void read_piece(const band *b, const piece *p, oct_dtype dtype, const oct_mx_rules *r,
                           int64_t n_cols, bool rows, stage *s) {
    const int64_t size = dtype == OCT_F32 ? 4 : 2, ld = b->x->ld * size;
    const char *from = oct_element(b->x, dtype, p->row, b->col);
    uint16_t *words = s->words;
    __m512i columns[WORD_REGISTERS];
#pragma GCC unroll 8
    for (int i = 0; i < WORD_REGISTERS; i++)
        columns[i] = _mm512_setzero_si512();
    s->rows_out_of_range = s->cols_out_of_range = 0;
    for (int i = 0; i < BLOCK; i += 2) {
        const char *ahead = p->next + i / 4 * ld + i / 2 % 2 * STRIP / 2 * size;
        __m512i maxima[8];
#pragma GCC unroll 2
        for (int k = 0; k < 2; k++) {
            const bool there = i + k < p->n_rows;
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++) {
                oct_odd_bf16_64 w =
                    oct_load_odd_bf16(from + 64 * j * size, dtype, there ? n_cols - 64 * j : 0);
                _mm512_store_si512(words + 64 * j, w.words[0]);
                _mm512_store_si512(words + 64 * j + 32, w.words[1]);
                maxima[4 * k + j] = oct_block_maxima(w, dtype);
                for (int h = 0; h < 2; h++)
                    columns[2 * j + h] =
                        _mm512_max_epu16(columns[2 * j + h], oct_odd_bf16_magnitudes(w.words[h]));
                if ((4 * k + j) * 16 * size % 64 == 0)
                    oct_prefetch(ahead + (4 * k + j) * 16 * size, 16 * size);
            }
            from += i + k + 1 < p->n_rows ? ld : 0;
            words += STAGE_LD;
        }
        if (rows)
            scale_rows(b, p, i, dtype, r, maxima, s);
    }
#pragma GCC unroll 8
    for (int i = 0; i < WORD_REGISTERS; i++) {
        __m512i scales = oct_scales_of_maxima(columns[i], &r->rule);
        s->cols_out_of_range |= (uint32_t)(oct_maxima_out_of_range(columns[i]) != 0) << i;
        _mm512_store_si512(s->col_scales[p->index] + 32 * i, scales);
        _mm512_store_si512(s->col_bases + 32 * i, oct_encoding_bases(scales, &r->rule));
    }
}

/* 64 codes of a row. base: of these blocks in stage.row_bases. */
OCT_INLINE __m512i encode_row(const __m512i words[2], const int32_t *base, oct_dtype dtype,
                              oct_dtype format) {
    __m512i first = oct_encode_odd_bf16(words[0], _mm512_set1_epi32(base[0]), format);
    __m512i second =
        oct_encode_odd_bf16(words[1], _mm512_set1_epi32(base[dtype == OCT_BF16]), format);
    return oct_order_codes(first, second, dtype, format);
}

/* Where the codes of rows go: whole lines past the caches, or what `mask` says of `n_rows` rows. */
typedef struct row_target {
    uint8_t *codes;
    int64_t ld, n_rows;
    __mmask64 mask;
} row_target;

/* 4 rows of 64 columns. bases: of the rows. to: the columns' codes, 16 registers apart. */
OCT_INLINE void encode_quad(const uint16_t *words, const int32_t *bases, const uint16_t *col_bases,
                            oct_dtype dtype, oct_dtype format, bool rows, bool whole,
                            const row_target *t, const char *next, int64_t ld_next, __m512i *to) {
    const int64_t size = dtype == OCT_F32 ? 4 : 2;
    __m512i codes[2][4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const __m512i w[2] = {_mm512_load_si512(words + i * STAGE_LD),
                              _mm512_load_si512(words + i * STAGE_LD + 32)};
        codes[0][i] = oct_encode_odd_bf16(w[0], _mm512_load_si512(col_bases), format);
        codes[1][i] = oct_encode_odd_bf16(w[1], _mm512_load_si512(col_bases + 32), format);
        if (rows) {
            __m512i line = encode_row(w, bases + 8 * i, dtype, format);
            if (whole)
                _mm512_stream_si512((__m512i *)(t->codes + i * t->ld), line);
            else if (i < t->n_rows)
                _mm512_mask_storeu_epi8(t->codes + i * t->ld, t->mask, line);
        }
        if (i < 3)
            oct_prefetch(next + i * ld_next, 64 * size);
    }
#pragma GCC unroll 2
    for (int w = 0; w < 2; w++) {
        __m512i first = oct_pair_codes(codes[w][0], codes[w][1], format);
        __m512i second = oct_pair_codes(codes[w][2], codes[w][3], format);
        to[32 * w] = _mm512_unpacklo_epi16(first, second);
        to[32 * w + 16] = _mm512_unpackhi_epi16(first, second);
    }
}

OCT_INLINE void encode_piece(const band *b, const piece *p, oct_dtype dtype, oct_dtype format,
                             bool rows, bool whole, stage *s) {
    const int64_t size = dtype == OCT_F32 ? 4 : 2, ld_next = b->x->ld * size;
    const int64_t n_cols = whole ? STRIP : b->n_cols;
    row_target t = {.ld = rows ? b->by_rows->ld_codes : 0};
    uint8_t *codes = rows ? b->by_rows->codes + p->row * t.ld + b->col : NULL;
    const char *next = p->next + FIRST_ROWS * ld_next;
    for (int row = 0; row < BLOCK; row += 4) {
        t.n_rows = p->n_rows - row;
        for (int col = 0; col < n_cols; col += 64) {
            t.codes = codes + col;
            t.mask = whole ? 0 : oct_bytes_below(n_cols - col);
            encode_quad(s->words + row * STAGE_LD + col,
                        s->row_bases[row] + (dtype == OCT_BF16 ? col / 32 : col / 64),
                        s->col_bases + col, dtype, format, rows, whole, &t, next + col * size,
                        ld_next, &s->codes[col / 32][0][8 * p->index + row / 4]);
        }
        codes += 4 * t.ld;
        next += 3 * ld_next;
    }
}

static __attribute__((noinline)) void quantize_out_of_range_rows(const band *b, const piece *p,
                                                                 oct_dtype format,
                                                                 oct_scale_mode mode,
                                                                 uint32_t rows) {
    for (int64_t i = 0; i < p->n_rows; i++) {
        if (!(rows >> i & 1))
            continue;
        const oct_mx_output *o = b->by_rows;
        int64_t row = p->row + i;
        oct_matrix_view x = oct_part(b->x, b->x->dtype, row, 1, b->col, b->n_cols);
        oct_mx_output out = {o->codes + row * o->ld_codes + b->col, o->ld_codes,
                             o->scales + row * o->ld_scales + b->col / BLOCK, o->ld_scales};
        oct_quantize_kernels_ref.mx_rows(&x, format, mode, &out);
    }
}

/* --- the columns of a band --- */

/* Which column of the strip a dword of stage.codes belongs to. */
OCT_INLINE int64_t column_of(oct_dtype dtype, int i, int word) {
    return i / 2 * 64 + oct_odd_bf16_element(dtype, i % 2, word % 2, word / 2);
}

static __attribute__((noinline)) void
quantize_out_of_range_columns(const band *b, int i, oct_dtype format, oct_scale_mode mode) {
    for (int word = 0; word < 32; word++) {
        int64_t j = column_of(b->x->dtype, i, word), col = b->col + j;
        if (j >= b->n_cols)
            continue;
        const oct_mx_output *o = b->by_cols;
        oct_matrix_view x = oct_part(b->x, b->x->dtype, b->row, b->n_rows, col, 1);
        oct_mx_output out = {o->codes + col * o->ld_codes + b->row, o->ld_codes,
                             o->scales + col * o->ld_scales + b->row / BLOCK, o->ld_scales};
        oct_quantize_kernels_ref.mx_cols(&x, format, mode, &out);
    }
}

/* 16 columns of register i of columns. scales: of two blocks, a byte each. */
OCT_INLINE void store_columns(const band *b, oct_dtype dtype, int i, int half,
                              const __m512i lines[16], const uint16_t scales[32]) {
    const oct_mx_output *o = b->by_cols;
    uint8_t *codes = o->codes + b->col * o->ld_codes + b->row;
    uint8_t *to_scales = o->scales + b->col * o->ld_scales + b->row / BLOCK;
    for (int k = 0; k < 16; k++) {
        int word = 8 * (k / 4) + 4 * half + k % 4;
        int64_t j = column_of(dtype, i, word);
        if (j >= b->n_cols)
            continue;
        _mm512_mask_storeu_epi8(codes + j * o->ld_codes, oct_bytes_below(b->n_rows), lines[k]);
        memcpy(to_scales + j * o->ld_scales, &scales[word], b->n_rows > BLOCK ? 2 : 1);
    }
}

/* The same where all of a band is there. */
OCT_INLINE void store_whole_columns(const band *b, oct_dtype dtype, int i, int half,
                                    const __m512i lines[16], const uint16_t scales[32],
                                    bool stream) {
    const oct_mx_output *o = b->by_cols;
    const int64_t first = b->col + column_of(dtype, i, 4 * half);
    const int64_t step = column_of(dtype, 0, 8), ld = o->ld_codes, ld_scales = o->ld_scales;
    uint8_t *codes = o->codes + first * ld + b->row;
    uint8_t *to_scales = o->scales + first * ld_scales + b->row / BLOCK;
#pragma GCC unroll 4
    for (int k = 0; k < 16; k += 4) {
#pragma GCC unroll 4
        for (int d = 0; d < 4; d++) {
            oct_store_line(codes + column_of(dtype, 0, d) * ld, lines[k + d], stream);
            memcpy(to_scales + column_of(dtype, 0, d) * ld_scales, &scales[2 * k + 4 * half + d],
                   2);
        }
        codes += step * ld;
        to_scales += step * ld_scales;
    }
}

OCT_INLINE void finish_columns(const band *b, oct_dtype dtype, stage *s) {
    for (int i = 0; i < oct_ceil_div(b->n_cols, 64) * 2; i++) {
        alignas(64) uint16_t scales[32];
        _mm512_store_si512(
            scales,
            _mm512_or_si512(_mm512_load_si512(s->col_scales[0] + 32 * i),
                            _mm512_slli_epi16(_mm512_load_si512(s->col_scales[1] + 32 * i), 8)));
        for (int half = 0; half < 2; half++) {
            __m512i *lines = s->codes[i][half];
            oct_transpose_16x16(lines);
            if (b->n_rows == BAND && b->n_cols == STRIP)
                store_whole_columns(b, dtype, i, half, lines, scales, b->stream_cols);
            else
                store_columns(b, dtype, i, half, lines, scales);
        }
    }
}

/* Where the piece after the one at `row` begins; the next one's own place if that isn't a whole
 * one. */
OCT_INLINE const char *next_piece(const band *b, oct_dtype dtype, int64_t row) {
    int64_t next_row = row + BLOCK, next_col = b->col;
    if (next_row >= b->x->rows) {
        next_row = 0;
        next_col += STRIP;
    }
    if (next_row + BLOCK > b->x->rows || next_col + STRIP > b->x->cols)
        return oct_element(b->x, dtype, row, b->col);
    return oct_element(b->x, dtype, next_row, next_col);
}

/* --- the passes, with what decides their loops as constants --- */

/* [whole]: for pieces of which nothing lacks; encode also for lines that go past the caches. */
typedef struct passes {
    void (*read[2])(const band *b, const piece *p, const oct_mx_rules *r, stage *s);
    void (*encode[2])(const band *b, const piece *p, stage *s);
    void (*finish)(const band *b, stage *s);
} passes;

#define READ(name, dtype, rows)                                                                    \
    static void read_##name(const band *b, const piece *p, const oct_mx_rules *r, stage *s) {      \
        read_piece(b, p, dtype, r, b->n_cols, rows, s);                                            \
    }                                                                                              \
    static void read_whole_##name(const band *b, const piece *p, const oct_mx_rules *r,            \
                                  stage *s) {                                                      \
        const piece whole = {p->row, BLOCK, p->index, p->next};                                    \
        read_piece(b, &whole, dtype, r, STRIP, rows, s);                                           \
    }
READ(cols_f32, OCT_F32, false)
READ(cols_bf16, OCT_BF16, false)
READ(both_f32, OCT_F32, true)
READ(both_bf16, OCT_BF16, true)
#undef READ

static void finish_f32(const band *b, stage *s) {
    finish_columns(b, OCT_F32, s);
}

static void finish_bf16(const band *b, stage *s) {
    finish_columns(b, OCT_BF16, s);
}

#define PASSES(what, type, dtype, code, format, rows)                                              \
    static void encode_##what##_##type##_##code(const band *b, const piece *p, stage *s) {         \
        encode_piece(b, p, dtype, format, rows, false, s);                                         \
    }                                                                                              \
    static void encode_whole_##what##_##type##_##code(const band *b, const piece *p, stage *s) {   \
        encode_piece(b, p, dtype, format, rows, true, s);                                          \
    }                                                                                              \
    static const passes what##_##type##_##code = {                                                 \
        {read_##what##_##type, read_whole_##what##_##type},                                        \
        {encode_##what##_##type##_##code, encode_whole_##what##_##type##_##code},                  \
        finish_##type};
PASSES(cols, f32, OCT_F32, e4m3, OCT_E4M3, false)
PASSES(cols, f32, OCT_F32, e5m2, OCT_E5M2, false)
PASSES(cols, bf16, OCT_BF16, e4m3, OCT_E4M3, false)
PASSES(cols, bf16, OCT_BF16, e5m2, OCT_E5M2, false)
PASSES(both, f32, OCT_F32, e4m3, OCT_E4M3, true)
PASSES(both, f32, OCT_F32, e5m2, OCT_E5M2, true)
PASSES(both, bf16, OCT_BF16, e4m3, OCT_E4M3, true)
PASSES(both, bf16, OCT_BF16, e5m2, OCT_E5M2, true)
#undef PASSES

/* --- the kernels --- */

static void quantize_band(const band *b, const passes *run, oct_dtype format, const oct_mx_rules *r,
                          stage *s) {
    uint32_t cols_out_of_range = 0;
    for (int k = 0; k < 2; k++) {
        const int64_t row = b->row + k * BLOCK;
        piece p = {row, oct_min_i64(BLOCK, b->n_rows - k * BLOCK), k,
                   next_piece(b, b->x->dtype, row)};
        if (p.n_rows <= 0) {
            for (int i = 0; i < WORD_REGISTERS; i++)
                for (int q = 8; q < 16; q++)
                    s->codes[i][0][q] = s->codes[i][1][q] = _mm512_setzero_si512();
            break;
        }
        const bool whole = b->n_cols == STRIP && p.n_rows == BLOCK;
        run->read[whole](b, &p, r, s);
        run->encode[whole && (!b->by_rows || b->stream_rows)](b, &p, s);
        if (b->by_rows && s->rows_out_of_range)
            quantize_out_of_range_rows(b, &p, format, r->mode, s->rows_out_of_range);
        cols_out_of_range |= s->cols_out_of_range;
    }
    run->finish(b, s);
    for (int i = 0; cols_out_of_range >> i; i++)
        if (cols_out_of_range >> i & 1)
            quantize_out_of_range_columns(b, i, format, r->mode);
}

/* Strip by strip, band by band. */
void oct_mx_both_avx512(const oct_matrix_view *x, oct_dtype format, oct_scale_mode mode,
                        const oct_mx_output *by_rows, const oct_mx_output *by_cols) {
    static const passes *const all[2][2][2] = {
        {{&cols_f32_e4m3, &cols_f32_e5m2}, {&cols_bf16_e4m3, &cols_bf16_e5m2}},
        {{&both_f32_e4m3, &both_f32_e5m2}, {&both_bf16_e4m3, &both_bf16_e5m2}}};
    const passes *run = all[by_rows != NULL][x->dtype == OCT_BF16][format == OCT_E5M2];
    const oct_mx_rules r = oct_mx_rules_make(format, mode);
    if (x->rows <= 0 || x->cols <= 0)
        return;
    stage s;
    band b = {.x = x,
              .by_rows = by_rows,
              .by_cols = by_cols,
              .stream_rows = by_rows && oct_mx_streams(x, by_rows),
              .stream_cols = oct_mx_streams(x, by_cols)};
    for (b.col = 0; b.col < x->cols; b.col += STRIP)
        for (b.row = 0; b.row < x->rows; b.row += BAND) {
            b.n_cols = oct_min_i64(STRIP, x->cols - b.col);
            b.n_rows = oct_min_i64(BAND, x->rows - b.row);
            quantize_band(&b, run, format, &r, &s);
        }
}

void oct_mx_cols_avx512(const oct_matrix_view *x, oct_dtype format, oct_scale_mode mode,
                        const oct_mx_output *out) {
    oct_mx_both_avx512(x, format, mode, NULL, out);
}
