/* The MX quantizers of row blocks and of tiles in AVX-512, and the table of them all.
 * docs/numerics.md has the rules, kernel/quantize.h the shapes, mx_words.h the arithmetic;
 * quantize_both.c has the other quantizers.
 *
 * 16 blocks of a row at a time, so that scales are computed 16 a register.
 *
 * Invariant: loads and stores are masked at the edges; nothing outside the named elements is
 * touched. dtype and format are constants inside the loops: `passes` has a function of each kind
 * for each pair of them. */
#include "base/checked.h"
#include "kernel/quantize/avx512/mx_blocks.h"
#include "kernel/quantize/avx512/quantize_avx512.h"

enum {
    BLOCK = OCT_MX_BLOCK,
    GROUP = 16 * BLOCK, /* columns whose scales fill a register */
    TILES_AHEAD = 256,  /* columns */
};

/* --- blocks along a row --- */

/* A group's place in the source and in the output. */
typedef struct group {
    const oct_matrix_view *x;
    int64_t row, col, n;
    uint8_t *codes, *scales;
    bool stream;
    const char *ahead; /* where the reading will be soon, to be prefetched; or NULL */
} group;

static __attribute__((noinline)) void quantize_out_of_range_group(const group *g, oct_dtype format,
                                                                  oct_scale_mode mode) {
    oct_matrix_view x = oct_part(g->x, g->x->dtype, g->row, 1, g->col, g->n);
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
        oct_odd_bf16_64 w = oct_load_odd_bf16(from + 64 * i * size, dtype, n - 64 * i);
        _mm512_store_si512(words + 64 * i, w.words[0]);
        _mm512_store_si512(words + 64 * i + 32, w.words[1]);
        maxima[i] = oct_block_maxima(w, dtype);
        prefetch_64(g->ahead, dtype, 64 * i);
    }
}

OCT_INLINE void quantize_group(const group *g, oct_dtype dtype, oct_dtype format,
                               const oct_mx_rules *r, uint16_t *words) {
    __m512i lanes[8];
    if (g->n == GROUP)
        load_words(g, dtype, GROUP, words, lanes);
    else
        load_words(g, dtype, g->n, words, lanes);
    __m512i maxima = _mm512_castsi256_si512(oct_reduce_maxima(lanes));
    if (oct_maxima_out_of_range(maxima) & 0xffff) {
        quantize_out_of_range_group(g, format, r->mode);
        return;
    }
    __m512i scales = oct_scales_of_maxima(maxima, &r->rule);
    _mm_mask_storeu_epi8(g->scales, oct_lanes_below((g->n + BLOCK - 1) / BLOCK),
                         _mm256_cvtepi16_epi8(_mm512_castsi512_si256(scales)));
    __m512i bases = oct_encoding_bases(scales, &r->rule);
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
            oct_encode_odd_bf16(_mm512_load_si512(words + i), _mm512_set1_epi32(b[0]), format);
        __m512i second = oct_encode_odd_bf16(_mm512_load_si512(words + i + 32),
                                             _mm512_set1_epi32(b[dtype == OCT_BF16]), format);
        __m512i codes = oct_order_codes(first, second, dtype, format);
        if (g->n - i < 64)
            _mm512_mask_storeu_epi8(g->codes + i, oct_bytes_below(g->n - i), codes);
        else
            oct_store_line(g->codes + i, codes, g->stream);
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
                   .stream = out && oct_mx_streams(x, out)};
}

/* --- tiles --- */

/* What is read TILES_AHEAD columns later, maybe in the next 32 rows. */
OCT_INLINE const char *tiles_ahead(const oct_matrix_view *x, oct_dtype dtype, int64_t row,
                                   int64_t col) {
    col += TILES_AHEAD;
    if (col < x->cols)
        return oct_element(x, dtype, row, col);
    return oct_element(x, dtype, row + (row + 2 * BLOCK <= x->rows ? BLOCK : 0),
                       oct_max_i64(0, col - oct_ceil_div(x->cols, 64) * 64));
}

/* Two tiles, 32 rows by 64 columns at most. */
OCT_INLINE void quantize_tiles(const oct_matrix_view *x, oct_dtype dtype, oct_dtype format,
                               const oct_mx_rules *r, const oct_mx_output *out, int64_t row,
                               int64_t col, bool stream) {
    const int64_t n_rows = oct_min_i64(BLOCK, x->rows - row);
    const int64_t n_cols = oct_min_i64(2 * BLOCK, x->cols - col);
    const int64_t size = dtype == OCT_F32 ? 4 : 2, ld_ahead = x->ld * size;
    const char *ahead = tiles_ahead(x, dtype, row, col);
    alignas(64) uint16_t words[BLOCK][64];
    __m512i maxima[8] = {_mm512_setzero_si512()};
    for (int64_t i = 0; i < n_rows; i++) {
        const void *from = oct_element(x, dtype, row + i, col);
        oct_odd_bf16_64 w = n_cols == 64 ? oct_load_odd_bf16(from, dtype, 64)
                                         : oct_load_odd_bf16(from, dtype, n_cols);
        _mm512_store_si512(words[i], w.words[0]);
        _mm512_store_si512(words[i] + 32, w.words[1]);
        maxima[0] = _mm512_max_epu16(maxima[0], oct_block_maxima(w, dtype));
        oct_prefetch(ahead + i * ld_ahead, 32 * size);
    }
    for (int i = 1; i < 8; i++)
        maxima[i] = maxima[0];
    uint8_t *codes = out->codes + row * out->ld_codes + col;
    uint8_t *to_scales = out->scales + row / BLOCK * out->ld_scales + col / BLOCK;
    __m512i wide = _mm512_castsi256_si512(oct_reduce_maxima(maxima));
    if (oct_maxima_out_of_range(wide) & 3) {
        oct_matrix_view tiles = oct_part(x, dtype, row, n_rows, col, n_cols);
        oct_quantize_kernels_ref.mx_tiles(
            &tiles, format, r->mode,
            &(oct_mx_output){codes, out->ld_codes, to_scales, out->ld_scales});
        return;
    }
    __m512i scales = oct_scales_of_maxima(wide, &r->rule);
    _mm_mask_storeu_epi8(to_scales, n_cols > BLOCK ? 3 : 1,
                         _mm256_cvtepi16_epi8(_mm512_castsi512_si256(scales)));
    uint32_t pair = (uint32_t)_mm512_cvtsi512_si32(oct_encoding_bases(scales, &r->rule));
    __m512i first = _mm512_set1_epi32((int)pair), second = first;
    if (dtype == OCT_BF16) {
        first = _mm512_set1_epi16((short)pair);
        second = _mm512_set1_epi16((short)(pair >> 16));
    }
    for (int64_t i = 0; i < n_rows; i++) {
        __m512i a = oct_encode_odd_bf16(_mm512_load_si512(words[i]), first, format);
        __m512i b = oct_encode_odd_bf16(_mm512_load_si512(words[i] + 32), second, format);
        __m512i line = oct_order_codes(a, b, dtype, format);
        if (n_cols == 64)
            oct_store_line(codes + i * out->ld_codes, line, stream);
        else
            _mm512_mask_storeu_epi8(codes + i * out->ld_codes, oct_bytes_below(n_cols), line);
        oct_prefetch(ahead + i * ld_ahead + 32 * size, 32 * size);
    }
}

/* --- the passes, with dtype and format as constants --- */

typedef struct passes {
    void (*quantize_group)(const group *g, const oct_mx_rules *r, uint16_t *words);
    void (*quantize_tiles)(const oct_matrix_view *x, const oct_mx_rules *r,
                           const oct_mx_output *out, int64_t row, int64_t col, bool stream);
} passes;

#define PASSES(name, dtype, format)                                                                \
    static void quantize_group_##name(const group *g, const oct_mx_rules *r, uint16_t *words) {    \
        quantize_group(g, dtype, format, r, words);                                                \
    }                                                                                              \
    static void quantize_tiles_##name(const oct_matrix_view *x, const oct_mx_rules *r,             \
                                      const oct_mx_output *out, int64_t row, int64_t col,          \
                                      bool stream) {                                               \
        quantize_tiles(x, dtype, format, r, out, row, col, stream);                                \
    }                                                                                              \
    static const passes passes_##name = {quantize_group_##name, quantize_tiles_##name};
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
    const oct_mx_rules r = oct_mx_rules_make(format, mode);
    alignas(64) uint16_t words[GROUP];
    for (int64_t row = 0; row < x->rows; row++)
        for (int64_t col = 0; col < x->cols; col += GROUP) {
            group g = group_at(x, row, col, out);
            g.ahead = oct_element(x, x->dtype, row, col + 2 * GROUP);
            p->quantize_group(&g, &r, words);
        }
}

static void mx_tiles(const oct_matrix_view *x, oct_dtype format, oct_scale_mode mode,
                     const oct_mx_output *out) {
    const passes *p = passes_for(x->dtype, format);
    const oct_mx_rules r = oct_mx_rules_make(format, mode);
    const bool stream = oct_mx_streams(x, out);
    for (int64_t row = 0; row < x->rows; row += BLOCK)
        for (int64_t col = 0; col < x->cols; col += 2 * BLOCK)
            p->quantize_tiles(x, &r, out, row, col, stream);
}

const oct_quantize_kernels oct_quantize_kernels_avx512 = {
    .mx_rows = mx_rows,
    .mx_cols = oct_mx_cols_avx512,
    .mx_both = oct_mx_both_avx512,
    .mx_tiles = mx_tiles,
    .amax = oct_amax_avx512,
    .scaled = oct_scaled_avx512,
    .decode_scaled = oct_decode_scaled_avx512,
    .f32_to_bf16 = oct_f32_to_bf16_avx512,
    .bf16_to_f32 = oct_bf16_to_f32_avx512,
};
