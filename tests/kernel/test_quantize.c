/* Every kernel set's quantizers against the reference set, bit for bit, on hostile inputs; and the
 * reference against cases worked out by hand. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/count.h"
#include "format/fp8.h"
#include "harness.h"

static const oct_dtype formats[] = {OCT_E4M3, OCT_E5M2, OCT_HIF8};
static const int64_t sizes[] = {1, 2, 15, 16, 17, 31, 32, 33, 48, 64, 65, 131};
enum { N_SIZES = OCT_COUNT(sizes) };

typedef struct shape {
    int64_t rows, cols;
} shape;

/* Thin, wide, tall and ragged ones: each size with a few partners. */
static shape shape_at(int i) {
    static const int64_t partners[] = {1, 3, 18, 32, 37};
    int64_t n = sizes[i / 10 % N_SIZES], m = partners[i % 5];
    return i / 5 % 2 ? (shape){n, m} : (shape){m, n};
}
enum { N_SHAPES = 10 * N_SIZES };

/* A source matrix in guarded memory; what lies between its rows is NaN. */
typedef struct source {
    guarded memory;
    oct_matrix_view view;
} source;

static source make_source(shape s, oct_dtype dtype, int64_t gap, flavour kind, placement where,
                          uint64_t stream) {
    size_t size = oct_dtype_bytes(dtype);
    int64_t ld = s.cols + gap, n = (s.rows - 1) * ld + s.cols;
    source x = {.memory = guarded_alloc((size_t)n * size, size, where)};
    hostile_fill(x.memory.data, dtype, n, kind, stream);
    for (int64_t r = 0; r + 1 < s.rows; r++)
        memset(x.memory.data + (size_t)(r * ld + s.cols) * size, 0xff, (size_t)gap * size);
    x.view = (oct_matrix_view){x.memory.data, dtype, s.rows, s.cols, ld};
    return x;
}

/* Codes and scales of one orientation, in guarded memory. */
typedef struct output {
    guarded codes, scales;
    int64_t rows, cols, scale_rows, scale_cols;
    oct_mx_output view;
} output;

static output make_output(int64_t rows, int64_t cols, int64_t scale_rows, int64_t gap,
                          placement where) {
    output o = {.rows = rows, .cols = cols, .scale_rows = scale_rows};
    o.scale_cols = oct_ceil_div(cols, OCT_MX_BLOCK);
    int64_t ld_codes = cols + gap, ld_scales = o.scale_cols + gap;
    o.codes = guarded_alloc((size_t)((rows - 1) * ld_codes + cols), 1, where);
    o.scales = guarded_alloc((size_t)((scale_rows - 1) * ld_scales + o.scale_cols), 1, where);
    o.view = (oct_mx_output){o.codes.data, ld_codes, o.scales.data, ld_scales};
    return o;
}

static void free_output(output *o) {
    guarded_free(&o->codes);
    guarded_free(&o->scales);
}

static void check_guards(const output *o, const char *what) {
    bool intact =
        guarded_intact(&o->codes) && guarded_intact(&o->scales) &&
        gaps_intact(&o->codes, o->rows, (size_t)o->cols, (size_t)o->view.ld_codes) &&
        gaps_intact(&o->scales, o->scale_rows, (size_t)o->scale_cols, (size_t)o->view.ld_scales);
    assert_that(intact, "%s wrote outside its output", what);
}

/* Outputs have the same layout, so all bytes, gaps too, must agree. */
static void check_equal(const output *expected, const output *got, const char *what) {
    for (size_t i = 0; i < expected->scales.n_bytes; i++)
        assert_that(expected->scales.data[i] == got->scales.data[i],
                    "%s: scale byte %zu: expected %02x, got %02x", what, i,
                    expected->scales.data[i], got->scales.data[i]);
    for (size_t i = 0; i < expected->codes.n_bytes; i++)
        assert_that(expected->codes.data[i] == got->codes.data[i],
                    "%s: code byte %zu: expected %02x, got %02x", what, i, expected->codes.data[i],
                    got->codes.data[i]);
}

/* One combination of everything a quantizer can meet. */
typedef struct scenario {
    shape shape;
    oct_dtype source, format;
    oct_scale_mode mode;
    int64_t gap;
    flavour kind;
    placement where;
    uint64_t stream;
} scenario;

static void describe(const scenario *s, const char *set, const char *kernel, char *text,
                     size_t size) {
    snprintf(text, size,
             "%s %s: %" PRId64 "x%" PRId64 " %s to %s, mode %d, gap %" PRId64
             ", numbers %d, place %d",
             set, kernel, s->shape.rows, s->shape.cols, oct_dtype_name(s->source),
             oct_dtype_name(s->format), s->mode, s->gap, s->kind, s->where);
}

/* The sets to compare with the reference: one for each distinct family of quantizers. */
static size_t quantizer_sets(kernel_set sets[MAX_KERNEL_SETS]) {
    kernel_set all[MAX_KERNEL_SETS];
    size_t n_all = kernel_sets(all), n = 0;
    for (size_t i = 0; i < n_all; i++) {
        bool known = all[i].kernels.quantize == &oct_quantize_kernels_ref;
        for (size_t k = 0; k < n; k++)
            known = known || all[i].kernels.quantize == sets[k].kernels.quantize;
        if (!known)
            sets[n++] = all[i];
    }
    return n;
}

typedef void (*scenario_check)(const scenario *s, const kernel_set *sets, size_t n_sets);

/* Walks shapes x flavours; the other choices rotate, so that all pairs are met. */
static void for_all_scenarios(scenario_check check, size_t n_formats, bool is_mx) {
    kernel_set sets[MAX_KERNEL_SETS];
    size_t n_sets = quantizer_sets(sets);
    uint64_t turn = 0;
    for (int i = 0; i < N_SHAPES; i++)
        for (int kind = 0; kind < N_FLAVOURS; kind++)
            for (int mode = 0; mode < (is_mx ? 4 : 1); mode++, turn++) {
                scenario s = {.shape = shape_at(i),
                              .source = turn / 2 % 2 ? OCT_BF16 : OCT_F32,
                              .format = formats[(turn + turn / 4) % n_formats],
                              .mode = (oct_scale_mode)mode,
                              .gap = turn / 3 % 3 ? 0 : 5,
                              .kind = (flavour)kind,
                              .where = (placement)((turn + turn / 7) % N_PLACEMENTS),
                              .stream = turn};
                check(&s, sets, n_sets);
            }
}

typedef enum mx_kernel { MX_ROWS, MX_COLS, MX_BOTH, MX_TILES } mx_kernel;
static const char *const mx_kernel_names[] = {"mx_rows", "mx_cols", "mx_both", "mx_tiles"};

/* What a kernel writes: by rows (or tiles), by columns, or both. */
typedef struct mx_outputs {
    output by_rows, by_cols;
} mx_outputs;

static mx_outputs run_mx(mx_kernel kernel, const oct_quantize_kernels *q, const scenario *s,
                         const oct_matrix_view *x) {
    int64_t R = s->shape.rows, C = s->shape.cols;
    int64_t scale_rows = kernel == MX_TILES ? oct_ceil_div(R, OCT_MX_BLOCK) : R;
    mx_outputs o = {make_output(R, C, scale_rows, s->gap, s->where),
                    make_output(C, R, C, s->gap, s->where)};
    switch (kernel) {
    case MX_ROWS:
        q->mx_rows(x, s->format, s->mode, &o.by_rows.view);
        break;
    case MX_COLS:
        q->mx_cols(x, s->format, s->mode, &o.by_cols.view);
        break;
    case MX_BOTH:
        q->mx_both(x, s->format, s->mode, &o.by_rows.view, &o.by_cols.view);
        break;
    case MX_TILES:
        q->mx_tiles(x, s->format, s->mode, &o.by_rows.view);
        break;
    }
    return o;
}

static void check_mx(mx_kernel kernel, const scenario *s, const kernel_set *sets, size_t n_sets) {
    char what[200];
    source x = make_source(s->shape, s->source, s->gap, s->kind, s->where, s->stream);
    mx_outputs expected = run_mx(kernel, &oct_quantize_kernels_ref, s, &x.view);
    check_guards(&expected.by_rows, "ref");
    check_guards(&expected.by_cols, "ref");
    for (size_t k = 0; k < n_sets; k++) {
        describe(s, sets[k].name, mx_kernel_names[kernel], what, sizeof what);
        mx_outputs got = run_mx(kernel, sets[k].kernels.quantize, s, &x.view);
        check_equal(&expected.by_rows, &got.by_rows, what);
        check_equal(&expected.by_cols, &got.by_cols, what);
        check_guards(&got.by_rows, what);
        check_guards(&got.by_cols, what);
        free_output(&got.by_rows);
        free_output(&got.by_cols);
    }
    guarded_free(&x.memory);
    free_output(&expected.by_rows);
    free_output(&expected.by_cols);
}

static void check_mx_rows(const scenario *s, const kernel_set *sets, size_t n_sets) {
    check_mx(MX_ROWS, s, sets, n_sets);
}
static void check_mx_cols(const scenario *s, const kernel_set *sets, size_t n_sets) {
    check_mx(MX_COLS, s, sets, n_sets);
}
static void check_mx_both(const scenario *s, const kernel_set *sets, size_t n_sets) {
    check_mx(MX_BOTH, s, sets, n_sets);
}
static void check_mx_tiles(const scenario *s, const kernel_set *sets, size_t n_sets) {
    check_mx(MX_TILES, s, sets, n_sets);
}

/* amax, then scaling by it and by hostile scales. */
static void check_scaled(const scenario *s, const kernel_set *sets, size_t n_sets) {
    static const float targets[] = {448, 57344, 15, 224, 32768};
    char what[200];
    source x = make_source(s->shape, s->source, s->gap, s->kind, s->where, s->stream);
    int64_t R = s->shape.rows, C = s->shape.cols;
    output expected = make_output(R, C, 1, s->gap, s->where);
    float amax = oct_quantize_kernels_ref.amax(&x.view);
    float scales[] = {
        oct_scale_from_amax(amax, targets[s->stream % 5]), 1, 0x1p-126f, 0x1.8p127f, 0.3f, NAN};
    for (size_t i = 0; i < OCT_COUNT(scales); i++) {
        oct_quantize_kernels_ref.scaled(&x.view, s->format, scales[i], expected.view.codes,
                                        expected.view.ld_codes);
        check_guards(&expected, "ref");
        for (size_t k = 0; k < n_sets; k++) {
            describe(s, sets[k].name, "scaled", what, sizeof what);
            output got = make_output(R, C, 1, s->gap, s->where);
            float got_amax = sets[k].kernels.quantize->amax(&x.view);
            assert_that(same_float(amax, got_amax), "%s: amax: expected %a, got %a", what,
                        (double)amax, (double)got_amax);
            sets[k].kernels.quantize->scaled(&x.view, s->format, scales[i], got.view.codes,
                                             got.view.ld_codes);
            check_equal(&expected, &got, what);
            check_guards(&got, what);
            free_output(&got);
        }
    }
    guarded_free(&x.memory);
    free_output(&expected);
}

static void given_hostile_matrices_every_set_quantizes_mx_rows_alike(void **state) {
    (void)state;
    for_all_scenarios(check_mx_rows, 2, true);
}
static void given_hostile_matrices_every_set_quantizes_mx_cols_alike(void **state) {
    (void)state;
    for_all_scenarios(check_mx_cols, 2, true);
}
static void given_hostile_matrices_every_set_quantizes_both_ways_alike(void **state) {
    (void)state;
    for_all_scenarios(check_mx_both, 2, true);
}
static void given_hostile_matrices_every_set_quantizes_mx_tiles_alike(void **state) {
    (void)state;
    for_all_scenarios(check_mx_tiles, 2, true);
}
static void given_hostile_matrices_every_set_scales_alike(void **state) {
    (void)state;
    for_all_scenarios(check_scaled, 3, false);
}

/* All the MX kernels on one scenario. */
static void check_all_mx(const scenario *s) {
    kernel_set sets[MAX_KERNEL_SETS];
    size_t n_sets = quantizer_sets(sets);
    for (int kernel = MX_ROWS; kernel <= MX_TILES; kernel++)
        check_mx((mx_kernel)kernel, s, sets, n_sets);
}

static void given_more_columns_and_rows_than_are_staged_every_set_quantizes_alike(void **state) {
    (void)state;
    static const shape shapes[] = {{32, 256}, {64, 512},  {96, 300}, {65, 257},
                                   {31, 600}, {128, 768}, {130, 255}};
    uint64_t turn = 0;
    for (size_t i = 0; i < OCT_COUNT(shapes); i++)
        for (int kind = 0; kind < N_FLAVOURS; kind++)
            for (int dtype = 0; dtype < 2; dtype++, turn++)
                check_all_mx(&(scenario){.shape = shapes[i],
                                         .source = dtype ? OCT_BF16 : OCT_F32,
                                         .format = formats[turn / 2 % 2],
                                         .mode = (oct_scale_mode)(turn % 4),
                                         .gap = turn % 5 ? 0 : 7,
                                         .kind = (flavour)kind,
                                         .where = (placement)(turn % N_PLACEMENTS),
                                         .stream = 1000 + turn});
}

/* 2^21 codes and more in whole cache lines may be stored past the caches. */
static void given_a_large_aligned_matrix_every_set_quantizes_alike(void **state) {
    (void)state;
    kernel_set sets[MAX_KERNEL_SETS];
    size_t n_sets = quantizer_sets(sets);
    for (int i = 0; i < 6; i++) {
        scenario s = {.shape = {192, 11200},
                      .source = i % 2 ? OCT_BF16 : OCT_F32,
                      .format = formats[i / 2],
                      .mode = OCT_SCALE_RCEIL,
                      .kind = i % 3 ? WITH_NANS : GAUSSIAN,
                      .where = AT_PAGE_START,
                      .stream = 2000 + (uint64_t)i};
        if (s.format == OCT_HIF8)
            check_scaled(&s, sets, n_sets);
        else
            check_all_mx(&s);
    }
}

static void given_all_codes_and_scales_every_set_decodes_alike(void **state) {
    (void)state;
    kernel_set sets[MAX_KERNEL_SETS];
    size_t n_sets = kernel_sets(sets);
    static const float scales[] = {1, 0x1p-127f, 0x1p127f, 0.3f, 0x1p-149f, NAN, INFINITY};
    for (size_t k = 0; k < n_sets; k++)
        for (int i = 0; i < 3 * 7 * 8; i++) {
            oct_dtype format = formats[i % 3];
            float scale = scales[i / 3 % 7];
            int64_t rows = 3, cols = 256 - i % 8 * 5, ld = cols + i % 2 * 3;
            placement where = (placement)(i % N_PLACEMENTS);
            guarded codes = guarded_alloc((size_t)((rows - 1) * ld + cols), 1, where);
            guarded y = guarded_alloc((size_t)((rows - 1) * ld + cols) * 4, 4, where);
            for (size_t j = 0; j < codes.n_bytes; j++)
                codes.data[j] = (unsigned char)j;
            sets[k].kernels.quantize->decode_scaled(codes.data, rows, cols, ld, format, scale,
                                                    (float *)(void *)y.data, ld);
            for (int64_t j = 0; j < rows * ld - ld + cols; j++) {
                float got;
                memcpy(&got, y.data + j * 4, 4);
                assert_that(j % ld >= cols ||
                                same_float(oct_fp8_value(format, codes.data[j]) * scale, got),
                            "%s: code %02x of %s by %a: got %a", sets[k].name, codes.data[j],
                            oct_dtype_name(format), (double)scale, (double)got);
            }
            assert_true(guarded_intact(&y));
            assert_true(gaps_intact(&y, rows, (size_t)cols * 4, (size_t)ld * 4));
            guarded_free(&codes);
            guarded_free(&y);
        }
}

static void given_any_numbers_every_set_converts_bf16_alike(void **state) {
    (void)state;
    kernel_set sets[MAX_KERNEL_SETS];
    size_t n_sets = kernel_sets(sets);
    for (size_t k = 0; k < n_sets; k++)
        for (int i = 0; i < N_SIZES * N_FLAVOURS * N_PLACEMENTS; i++) {
            int64_t n = sizes[i % N_SIZES];
            placement where = (placement)(i / N_SIZES % N_PLACEMENTS);
            flavour kind = (flavour)(i / N_SIZES / N_PLACEMENTS);
            guarded x = guarded_alloc((size_t)n * 4, 4, where);
            guarded b = guarded_alloc((size_t)n * 2, 2, where);
            guarded y = guarded_alloc((size_t)n * 4, 4, where);
            hostile_fill(x.data, OCT_F32, n, kind, (uint64_t)i);
            sets[k].kernels.quantize->f32_to_bf16((float *)(void *)x.data, n,
                                                  (uint16_t *)(void *)b.data);
            sets[k].kernels.quantize->bf16_to_f32((uint16_t *)(void *)b.data, n,
                                                  (float *)(void *)y.data);
            for (int64_t j = 0; j < n; j++) {
                float from, to;
                uint16_t code;
                memcpy(&from, x.data + j * 4, 4);
                memcpy(&code, b.data + j * 2, 2);
                memcpy(&to, y.data + j * 4, 4);
                assert_that(code == oct_bf16_encode(from),
                            "%s: bf16 of %a: expected %04x, got %04x", sets[k].name, (double)from,
                            oct_bf16_encode(from), code);
                assert_true(same_float(oct_bf16_decode(code), to));
            }
            assert_true(guarded_intact(&b) && guarded_intact(&y));
            guarded_free(&x);
            guarded_free(&b);
            guarded_free(&y);
        }
}

static void given_empty_matrices_nothing_is_touched(void **state) {
    (void)state;
    kernel_set sets[MAX_KERNEL_SETS];
    size_t n_sets = kernel_sets(sets);
    uint8_t codes[4] = {1, 2, 3, 4}, scales[4] = {5, 6, 7, 8};
    oct_mx_output out = {codes, 1, scales, 1};
    float x = 3;
    for (size_t k = 0; k < n_sets; k++)
        for (int i = 0; i < 2; i++) {
            oct_matrix_view empty = {&x, OCT_F32, i ? 0 : 2, i ? 2 : 0, 2};
            const oct_quantize_kernels *q = sets[k].kernels.quantize;
            q->mx_rows(&empty, OCT_E4M3, OCT_SCALE_RCEIL, &out);
            q->mx_cols(&empty, OCT_E4M3, OCT_SCALE_RCEIL, &out);
            q->mx_both(&empty, OCT_E4M3, OCT_SCALE_RCEIL, &out, &out);
            q->mx_tiles(&empty, OCT_E4M3, OCT_SCALE_RCEIL, &out);
            q->scaled(&empty, OCT_E4M3, 1, codes, 1);
            assert_true(q->amax(&empty) == 0);
            assert_memory_equal(codes, ((uint8_t[]){1, 2, 3, 4}), 4);
            assert_memory_equal(scales, ((uint8_t[]){5, 6, 7, 8}), 4);
        }
}

/* The scale and first code of a block that starts with `first`, the rest zeros. */
typedef struct block_result {
    uint8_t scale, code;
} block_result;

static block_result quantize_block(const kernel_set *set, float first, oct_scale_mode mode) {
    float x[32] = {first};
    uint8_t codes[32], scale;
    oct_matrix_view view = {x, OCT_F32, 1, 32, 32};
    oct_mx_output out = {codes, 32, &scale, 1};
    set->kernels.quantize->mx_rows(&view, OCT_E4M3, mode, &out);
    return (block_result){scale, codes[0]};
}

static void given_known_maxima_scales_and_codes_are_those_of_the_standard(void **state) {
    (void)state;
    static const struct {
        float amax;
        oct_scale_mode mode;
        int scale, code; /* code -1: not asked */
    } cases[] = {
        {150, OCT_SCALE_FLOOR, 126, 0x79},         {150, OCT_SCALE_CEIL, 127, 0x71},
        {150, OCT_SCALE_RCEIL, 126, 0x79},         {448, OCT_SCALE_RCEIL, 127, 0x7e},
        {896, OCT_SCALE_RCEIL, 128, 0x7e},         {448 * 0x1p-20f, OCT_SCALE_RCEIL, 107, 0x7e},
        {0x1.c00002p8f, OCT_SCALE_RCEIL, 128, -1}, /* the next fp32 above 448 */
        {465, OCT_SCALE_FLOOR, 127, 0x7e},         {480, OCT_SCALE_FLOOR, 127, 0x7e},
        {511, OCT_SCALE_FLOOR, 127, 0x7e},
    };
    kernel_set sets[MAX_KERNEL_SETS];
    size_t n_sets = kernel_sets(sets);
    for (size_t k = 0; k < n_sets; k++)
        for (size_t i = 0; i < OCT_COUNT(cases); i++) {
            block_result got = quantize_block(&sets[k], cases[i].amax, cases[i].mode);
            assert_int_equal(got.scale, cases[i].scale);
            if (cases[i].code >= 0)
                assert_int_equal(got.code, cases[i].code);
        }
}

static void given_maxima_465_to_511_floor_saturates_and_never_gives_nan(void **state) {
    (void)state;
    kernel_set sets[MAX_KERNEL_SETS];
    size_t n_sets = kernel_sets(sets);
    for (size_t k = 0; k < n_sets; k++)
        for (float amax = 465; amax < 512; amax += 0.5f) {
            block_result got = quantize_block(&sets[k], -amax, OCT_SCALE_FLOOR);
            assert_int_equal(got.scale, 127);
            assert_int_equal(got.code, 0xfe);
        }
}

static void given_zeros_but_for_one_element_zeros_come_back_as_zeros(void **state) {
    (void)state;
    enum { N = 256 };
    static float x[N * N];
    static uint8_t codes[N * N], scales[N * N / 32];
    x[77 * N + 130] = 1;
    oct_matrix_view view = {x, OCT_F32, N, N, N};
    oct_mx_output out = {codes, N, scales, N / 32};
    kernel_set sets[MAX_KERNEL_SETS];
    size_t n_sets = kernel_sets(sets);
    for (size_t k = 0; k < n_sets; k++)
        for (int mode = 0; mode < 4; mode++) {
            sets[k].kernels.quantize->mx_rows(&view, OCT_E4M3, (oct_scale_mode)mode, &out);
            for (int i = 0; i < N * N; i++) {
                float y = oct_e4m3_decode(codes[i]) * oct_e8m0_decode(scales[i / 32]);
                assert_true(y == x[i]);
            }
        }
}

static void given_one_nan_or_inf_only_its_block_is_poisoned(void **state) {
    (void)state;
    static const float poisons[] = {NAN, INFINITY, -INFINITY};
    kernel_set sets[MAX_KERNEL_SETS];
    size_t n_sets = kernel_sets(sets);
    for (size_t k = 0; k < n_sets; k++)
        for (int p = 0; p < 3; p++) {
            float x[96];
            uint8_t clean[96], codes[96], clean_scales[3], scales[3];
            hostile_fill(x, OCT_F32, 96, GAUSSIAN, 5);
            oct_matrix_view view = {x, OCT_F32, 1, 96, 96};
            sets[k].kernels.quantize->mx_rows(&view, OCT_E4M3, OCT_SCALE_RCEIL,
                                              &(oct_mx_output){clean, 96, clean_scales, 3});
            x[40] = poisons[p];
            sets[k].kernels.quantize->mx_rows(&view, OCT_E4M3, OCT_SCALE_RCEIL,
                                              &(oct_mx_output){codes, 96, scales, 3});
            assert_int_equal(scales[1], 255);
            for (int i = 32; i < 64; i++)
                assert_int_equal(codes[i], 0x7f);
            assert_memory_equal(codes, clean, 32);
            assert_memory_equal(codes + 64, clean + 64, 32);
            assert_int_equal(scales[0], clean_scales[0]);
            assert_int_equal(scales[2], clean_scales[2]);
        }
}

static void given_rows_of_48_a_row_never_changes_its_neighbour(void **state) {
    (void)state;
    kernel_set sets[MAX_KERNEL_SETS];
    size_t n_sets = kernel_sets(sets);
    for (size_t k = 0; k < n_sets; k++) {
        float x[96];
        uint8_t before[96], after[96], scales_before[4], scales_after[4];
        hostile_fill(x, OCT_F32, 96, GAUSSIAN, 6);
        oct_matrix_view view = {x, OCT_F32, 2, 48, 48};
        sets[k].kernels.quantize->mx_rows(&view, OCT_E4M3, OCT_SCALE_RCEIL,
                                          &(oct_mx_output){before, 48, scales_before, 2});
        for (int i = 48; i < 96; i++)
            x[i] *= 1e6f;
        sets[k].kernels.quantize->mx_rows(&view, OCT_E4M3, OCT_SCALE_RCEIL,
                                          &(oct_mx_output){after, 48, scales_after, 2});
        assert_memory_equal(before, after, 48);
        assert_memory_equal(scales_before, scales_after, 2);
        assert_int_not_equal(scales_before[2], scales_after[2]);
        assert_int_not_equal(scales_before[3], scales_after[3]);
    }
}

static void given_known_numbers_hif8_rounds_as_the_paper_says(void **state) {
    (void)state;
    static const struct {
        float x, y;
    } cases[] = {{1.0625f, 1.125f},    {18, 20},      {40959, 32768}, {40960, 32768},
                 {0x1p-23f, 0x1p-22f}, {-0x1p-24f, 0}};
    kernel_set sets[MAX_KERNEL_SETS];
    size_t n_sets = kernel_sets(sets);
    for (size_t k = 0; k < n_sets; k++)
        for (size_t i = 0; i < OCT_COUNT(cases); i++) {
            uint8_t code;
            oct_matrix_view view = {&cases[i].x, OCT_F32, 1, 1, 1};
            sets[k].kernels.quantize->scaled(&view, OCT_HIF8, 1, &code, 1);
            assert_true(oct_hif8_decode(code) == cases[i].y);
        }
    assert_true(isinf(oct_hif8_decode(oct_hif8_encode(40960, OCT_HIF8_TA, OCT_NO_SATURATE))));
    assert_true(oct_hif8_decode(oct_hif8_encode(40959, OCT_HIF8_TA, OCT_NO_SATURATE)) == 32768);
    assert_int_equal(oct_hif8_encode(-0x1p-24f, OCT_HIF8_TA, OCT_NO_SATURATE), 0);
}

static void given_any_amax_the_scale_is_positive_normal_or_nan(void **state) {
    (void)state;
    assert_true(oct_scale_from_amax(0, 15) == 1);
    assert_true(oct_scale_from_amax(30, 15) == 2);
    assert_true(oct_scale_from_amax(0x1p-149f, 15) == 0x1p-126f);
    assert_true(oct_scale_from_amax(0x1p-126f, 448) == 0x1p-126f);
    assert_true(isnan(oct_scale_from_amax(INFINITY, 15)));
    assert_true(isnan(oct_scale_from_amax(NAN, 15)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_hostile_matrices_every_set_quantizes_mx_rows_alike),
        cmocka_unit_test(given_hostile_matrices_every_set_quantizes_mx_cols_alike),
        cmocka_unit_test(given_hostile_matrices_every_set_quantizes_both_ways_alike),
        cmocka_unit_test(given_hostile_matrices_every_set_quantizes_mx_tiles_alike),
        cmocka_unit_test(given_hostile_matrices_every_set_scales_alike),
        cmocka_unit_test(given_more_columns_and_rows_than_are_staged_every_set_quantizes_alike),
        cmocka_unit_test(given_a_large_aligned_matrix_every_set_quantizes_alike),
        cmocka_unit_test(given_all_codes_and_scales_every_set_decodes_alike),
        cmocka_unit_test(given_any_numbers_every_set_converts_bf16_alike),
        cmocka_unit_test(given_empty_matrices_nothing_is_touched),
        cmocka_unit_test(given_known_maxima_scales_and_codes_are_those_of_the_standard),
        cmocka_unit_test(given_maxima_465_to_511_floor_saturates_and_never_gives_nan),
        cmocka_unit_test(given_zeros_but_for_one_element_zeros_come_back_as_zeros),
        cmocka_unit_test(given_one_nan_or_inf_only_its_block_is_poisoned),
        cmocka_unit_test(given_rows_of_48_a_row_never_changes_its_neighbour),
        cmocka_unit_test(given_known_numbers_hif8_rounds_as_the_paper_says),
        cmocka_unit_test(given_any_amax_the_scale_is_positive_normal_or_nan),
    };
    report_skipped_sets();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
