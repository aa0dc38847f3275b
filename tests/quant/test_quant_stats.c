/* Statistics of quantizations against sums in fp64 over what the formats say (exact.h), element by
 * element. */
#include "story.h"

#include <math.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/count.h"
#include "base/rng.h"
#include "base/thread.h"
#include "exact.h"
#include "quant/stats.h"

static oct_recipe parse(const char *name) {
    oct_recipe recipe;
    oct_error err = {0};
    if (oct_recipe_parse(name, &recipe, &err))
        fail_msg("%s", err.message);
    return recipe;
}

/* Wide: some are lost, some saturate, some are zero; each seventh block is nearly constant. */
static float *draw(int64_t rows, int64_t cols) {
    float *x = oct_malloc_array((size_t)(rows * cols) + 1, sizeof *x);
    for (int64_t i = 0; i < rows * cols; i++) {
        uint64_t at = (uint64_t)i;
        x[i] = ldexpf(oct_rng_normal(7, 1, at), (int)oct_rng_below(7, 2, at, 40) - 30);
        if (oct_rng_below(7, 3, at, 10) == 0)
            x[i] = 0;
        if (i % cols / 32 % 7 == 1)
            x[i] = 1.0f + 0.001f * (float)(i % 5);
    }
    return x;
}

typedef struct expected {
    double n, zero, underflow, saturated, amax, signal, noise, product, relative, blocks, flat;
    double scales[OCT_N_SCALE_BINS];
} expected;

/* Beyond the midpoint between the largest value and the one that would follow it. */
static bool overflows(oct_dtype format, double magnitude) {
    const double midpoint = format == OCT_E4M3 ? 464 : format == OCT_E5M2 ? 61440 : 40960;
    return format == OCT_E4M3 ? magnitude > midpoint : magnitude >= midpoint;
}

static void expect_element(double x, double scale, oct_dtype format, bool mx, expected *e) {
    const double quotient = mx ? x / scale : (double)(float)(x / scale);
    const double q = exact_rounded(format, quotient) * scale;
    e->n++;
    e->zero += x == 0;
    e->underflow += x != 0 && q == 0;
    e->saturated += overflows(format, fabs(x / scale));
    e->amax = fmax(e->amax, fabs(x));
    e->signal += x * x;
    e->noise += (q - x) * (q - x);
    e->product += q * x;
    e->relative += x == 0 ? 0 : fabs(q - x) / fabs(x);
}

/* One block of the source: rows r0 .. r1 - 1, columns c0 .. c1 - 1. */
static void expect_block(const oct_recipe *recipe, oct_role role, int dim, const float *x,
                         int64_t C, const int64_t at[4], expected *e) {
    double amax = 0, least = INFINITY, low = INFINITY, high = 0;
    const oct_dtype format = recipe->format[role];
    const bool mx = recipe->granularity == OCT_MX;
    for (int64_t r = at[0]; r < at[1]; r++)
        for (int64_t c = at[2]; c < at[3]; c++) {
            amax = fmax(amax, fabs((double)x[r * C + c]));
            least = fmin(least, fabs((double)x[r * C + c]));
        }
    double scale = mx ? exact_mx_scale(amax, format, oct_recipe_scale_mode(recipe, role, dim))
                      : (double)(float)(amax / (double)recipe->target[role]);
    for (int64_t r = at[0]; r < at[1]; r++)
        for (int64_t c = at[2]; c < at[3]; c++) {
            const double value = fabs(exact_rounded(format, (double)x[r * C + c] / scale));
            low = fmin(low, value);
            high = fmax(high, value);
            expect_element((double)x[r * C + c], scale, format, mx, e);
        }
    e->blocks++;
    e->flat += mx && low == high && amax > least;
    e->scales[(int)floor(log2(scale)) + 127]++;
}

static void expect(const oct_recipe *recipe, oct_role role, int dim, const float *x, int64_t R,
                   int64_t C, expected *e) {
    int64_t down = R, across = C;
    if (recipe->granularity == OCT_MX) {
        bool tiles = role == OCT_ROLE_WEIGHT && recipe->weight_block_rows == 32;
        down = tiles || dim == 0 ? 32 : 1;
        across = tiles || dim == 1 ? 32 : 1;
    } else if (recipe->granularity == OCT_PER_CHANNEL) {
        down = dim == 1 ? 1 : R;
        across = dim == 1 ? C : 1;
    }
    for (int64_t r = 0; r < R; r += down)
        for (int64_t c = 0; c < C; c += across) {
            const int64_t at[4] = {r, oct_min_i64(R, r + down), c, oct_min_i64(C, c + across)};
            expect_block(recipe, role, dim, x, C, at, e);
        }
}

static void assert_near(double got, double right) {
    if (fabs(got - right) > 1e-9 * fabs(right))
        fail_msg("expected %.17g; got %.17g", right, got);
    assert_true(fabs(got - right) <= 1e-9 * fabs(right));
}

static void assert_stats(const oct_quant_stats *s, const expected *e) {
    assert_near((double)s->n, e->n);
    assert_int_equal(s->n_special, 0);
    assert_near((double)s->n_zero, e->zero);
    assert_near((double)s->n_underflow, e->underflow);
    assert_near((double)s->n_saturated, e->saturated);
    assert_near(s->amax, e->amax);
    assert_near(s->signal, e->signal);
    assert_near(s->noise, e->noise);
    assert_near(s->product, e->product);
    assert_near(s->relative, e->relative);
    assert_near(oct_quant_stats_relative(s), e->relative / (e->n - e->zero));
    assert_near((double)s->n_blocks, e->blocks);
    assert_near((double)s->n_flat, e->flat);
    for (int i = 0; i < OCT_N_SCALE_BINS; i++)
        assert_near((double)s->scales[i], e->scales[i]);
    assert_near(oct_quant_stats_sqnr(s), 10 * log10(e->signal / e->noise));
    assert_near(oct_quant_stats_bias(s), e->product / e->signal - 1);
}

static oct_quant_stats measure(const oct_matrix_view *x, const oct_recipe *recipe, oct_role role,
                               int dim) {
    oct_arena *arena = oct_arena_create();
    oct_arena *const arenas[2] = {arena, arena};
    oct_quantized q;
    oct_quant_stats stats = {0};
    assert_int_equal(oct_quantize(x, recipe, role, OCT_ALONG_BOTH, arenas, NULL, &q), OCT_OK);
    assert_int_equal(oct_quant_stats_add(x, &q.along[dim], &stats), OCT_OK);
    oct_arena_destroy(arena);
    return stats;
}

static const char *const recipes[] = {"mxfp8_cublas",
                                      "mxfp8_cublas_rceil",
                                      "mxfp8-32x32",
                                      "dynamic_mx_e5m2_e5m2_e5m2",
                                      "hif8_15_224",
                                      "hif8_full_range",
                                      "dynamic_per_tensor_e4m3_e4m3_e4m3",
                                      "dynamic_per_channel_e4m3_e4m3_e5m2"};

static void given_any_recipe_role_and_direction_statistics_are_those_of_the_formats(void **state) {
    enum { R = 67, C = 301 };
    float *x = draw(R, C);
    const oct_matrix_view view = {x, OCT_F32, R, C, C};
    double underflow = 0, saturated = 0, flat = 0;
    (void)state;
    for (size_t i = 0; i < OCT_COUNT(recipes); i++) {
        oct_recipe recipe = parse(recipes[i]);
        for (int role = 0; role < OCT_N_ROLES; role++)
            for (int dim = 0; dim < 2; dim++) {
                expected e = {0};
                oct_quant_stats stats = measure(&view, &recipe, (oct_role)role, dim);
                expect(&recipe, (oct_role)role, dim, x, R, C, &e);
                assert_stats(&stats, &e);
                underflow += e.underflow;
                saturated += e.saturated;
                flat += e.flat;
            }
    }
    assert_true(underflow > 0 && saturated > 0 && flat > 0); /* the numbers asked for all of it */
    oct_free(x);
}

static void given_parts_their_statistics_add_up_to_those_of_the_whole(void **state) {
    enum { R = 96, C = 64 };
    float *x = draw(R, C);
    const oct_matrix_view whole = {x, OCT_F32, R, C, C}, top = {x, OCT_F32, 32, C, C},
                          rest = {x + 32 * C, OCT_F32, R - 32, C, C};
    oct_recipe recipe = parse("mxfp8");
    oct_quant_stats sum = measure(&top, &recipe, OCT_ROLE_INPUT, 0);
    oct_quant_stats part = measure(&rest, &recipe, OCT_ROLE_INPUT, 0);
    expected e = {0};
    (void)state;
    oct_quant_stats_merge(&sum, &part);
    expect(&recipe, OCT_ROLE_INPUT, 0, x, R, C, &e);
    assert_stats(&sum, &e);
    oct_quant_stats direct = measure(&whole, &recipe, OCT_ROLE_INPUT, 0);
    assert_stats(&direct, &e);
    oct_free(x);
}

static void given_a_nan_its_block_alone_is_poisoned_and_counts_for_nothing_else(void **state) {
    enum { R = 2, C = 96 };
    float x[R * C];
    oct_recipe recipe = parse("mxfp8");
    (void)state;
    for (int i = 0; i < R * C; i++)
        x[i] = 1;
    x[40] = NAN;
    const oct_matrix_view view = {x, OCT_F32, R, C, C};
    oct_quant_stats s = measure(&view, &recipe, OCT_ROLE_INPUT, 1);
    assert_int_equal(s.n, R * C);
    assert_int_equal(s.n_special, 32);
    assert_int_equal(s.n_blocks, 6);
    assert_int_equal(s.n_poisoned, 1);
    assert_int_equal(s.n_flat, 0);
    assert_true(s.signal == R * C - 32 && s.noise == 0);
    assert_true(isinf(oct_quant_stats_sqnr(&s)));
}

static void given_nothing_or_zeros_there_is_no_signal(void **state) {
    const float zeros[64] = {0};
    const oct_matrix_view none = {zeros, OCT_F32, 0, 64, 64}, all = {zeros, OCT_F32, 1, 64, 64};
    (void)state;
    for (size_t i = 0; i < OCT_COUNT(recipes); i++) {
        oct_recipe recipe = parse(recipes[i]);
        for (int dim = 0; dim < 2; dim++) {
            oct_quant_stats s = measure(&none, &recipe, OCT_ROLE_INPUT, dim);
            assert_int_equal(s.n, 0);
            assert_true(isnan(oct_quant_stats_sqnr(&s)));
            s = measure(&all, &recipe, OCT_ROLE_INPUT, dim);
            assert_int_equal(s.n_zero, 64);
            assert_int_equal(s.n_underflow + s.n_saturated + s.n_flat, 0);
            assert_true(isnan(oct_quant_stats_bias(&s)));
        }
    }
}

static void given_other_formats_each_trial_is_what_its_recipe_gives(void **state) {
    static const char *const names[OCT_N_QUANT_TRIALS] = {"mxfp8_cublas",
                                                          "mxfp8_cublas_rceil",
                                                          "dynamic_mx_e5m2_e5m2_e5m2",
                                                          "dynamic_per_tensor_e4m3_e4m3_e4m3",
                                                          "hif8_15_224",
                                                          "hif8_full_range"};
    enum { R = 50, C = 64 };
    float *x = draw(R, C);
    oct_arena *arena = oct_arena_create();
    oct_quant_stats all[OCT_N_QUANT_TRIALS] = {{0}}, some[OCT_N_QUANT_TRIALS] = {{0}};
    const oct_matrix_view view = {x, OCT_F32, R, C, C}, fifth = {x, OCT_F32, R / 5, C, C * 5};
    (void)state;
    assert_int_equal(oct_quant_stats_try(&view, OCT_ROLE_GRAD, 1, 0, arena, all), OCT_OK);
    assert_int_equal(oct_quant_stats_try(&view, OCT_ROLE_GRAD, 1, 10 * C, arena, some), OCT_OK);
    for (int i = 0; i < OCT_N_QUANT_TRIALS; i++) {
        oct_recipe recipe = parse(names[i]);
        expected e = {0};
        expect(&recipe, OCT_ROLE_GRAD, 1, x, R, C, &e);
        assert_stats(&all[i], &e);
        oct_quant_stats right = measure(&fifth, &recipe, OCT_ROLE_GRAD, 1);
        assert_int_equal(some[i].n, 10 * C);
        assert_true(some[i].noise == right.noise);
    }
    assert_int_equal(oct_arena_used_bytes(arena), 0);
    oct_arena_destroy(arena);
    oct_free(x);
}

static void given_any_number_of_threads_sums_are_the_same_bits(void **state) {
    enum { R = 300, C = 320 };
    float *x = draw(R, C);
    const oct_matrix_view view = {x, OCT_F32, R, C, C};
    oct_recipe recipe = parse("mxfp8");
    const int before = oct_threads();
    (void)state;
    oct_threads_set(1);
    oct_quant_stats one = measure(&view, &recipe, OCT_ROLE_INPUT, 0);
    oct_threads_set(3);
    oct_quant_stats three = measure(&view, &recipe, OCT_ROLE_INPUT, 0);
    oct_threads_set(before);
    assert_true(one.noise == three.noise && one.product == three.product);
    assert_int_equal(one.n_flat, three.n_flat);
    oct_free(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_any_recipe_role_and_direction_statistics_are_those_of_the_formats),
        cmocka_unit_test(given_parts_their_statistics_add_up_to_those_of_the_whole),
        cmocka_unit_test(given_a_nan_its_block_alone_is_poisoned_and_counts_for_nothing_else),
        cmocka_unit_test(given_nothing_or_zeros_there_is_no_signal),
        cmocka_unit_test(given_other_formats_each_trial_is_what_its_recipe_gives),
        cmocka_unit_test(given_any_number_of_threads_sums_are_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
