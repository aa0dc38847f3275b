/* Quantized matrices: both contracted dimensions, every granularity, one element at a time against
 * what the formats say (exact.h), which shares nothing with the library's codecs. */
#include "story.h"

#include <inttypes.h>
#include <math.h>
#include <octet/quantize.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/count.h"
#include "base/rng.h"
#include "base/thread.h"
#include "exact.h"
#include "levels.h"
#include "quant/quant_cache.h"
#include "quant/quantize.h"

static oct_recipe parse(const char *name) {
    oct_recipe recipe;
    oct_error err = {0};
    if (oct_recipe_parse(name, &recipe, &err))
        fail_msg("%s", err.message);
    return recipe;
}

static float *draw(int64_t rows, int64_t cols, uint64_t seed) {
    float *x = oct_malloc_array((size_t)(rows * cols) + 1, sizeof *x);
    for (int64_t i = 0; i < rows * cols; i++)
        x[i] = ldexpf(oct_rng_normal(seed, 1, (uint64_t)i),
                      (int)oct_rng_below(seed, 2, (uint64_t)i, 9) - 4);
    return x;
}

/* The specification, element by element: the scale of (r,c) for contraction over `dim`. */
static double expected_scale(const oct_recipe *recipe, oct_role role, const float *x, int64_t R,
                             int64_t C, int64_t r, int64_t c, int dim) {
    int64_t r0 = 0, r1 = R, c0 = 0, c1 = C;
    bool tiles = recipe->granularity == OCT_PER_TENSOR ||
                 (role == OCT_ROLE_WEIGHT && recipe->weight_block_rows == 32);
    if (recipe->granularity == OCT_MX) {
        if (dim == 1 || tiles) {
            c0 = c / 32 * 32;
            c1 = oct_min_i64(C, c0 + 32);
        }
        if (dim == 0 || tiles) {
            r0 = r / 32 * 32;
            r1 = oct_min_i64(R, r0 + 32);
        }
    }
    if (dim == 1 && !tiles) {
        r0 = r;
        r1 = r + 1;
    } else if (!tiles) {
        c0 = c;
        c1 = c + 1;
    }
    double amax = 0;
    for (int64_t i = r0; i < r1; i++)
        for (int64_t j = c0; j < c1; j++)
            amax = fmax(amax, fabs((double)x[i * C + j]));
    if (recipe->granularity == OCT_MX)
        return exact_mx_scale(amax, recipe->format[role], recipe->scale_mode);
    return amax == 0 ? 1 : (double)(float)(amax / (double)recipe->target[role]);
}

static void check(const char *name, oct_role role, int64_t R, int64_t C) {
    oct_recipe recipe = parse(name);
    float *x = draw(R, C, (uint64_t)(R * 1000 + C)),
          *decoded = oct_malloc_array((size_t)(R * C) + 1, sizeof *x);
    oct_arena *arena = oct_arena_create();
    oct_arena *const arenas[2] = {arena, arena};
    oct_matrix_view view = {x, OCT_F32, R, C, C};
    oct_quantized q;
    assert_int_equal(oct_quantize(&view, &recipe, role, OCT_ALONG_BOTH, arenas, NULL, &q), OCT_OK);
    for (int dim = 0; dim < 2; dim++) {
        oct_quantized_decode(&q, dim, decoded);
        const bool one_scale = recipe.granularity == OCT_PER_TENSOR;
        double scale = expected_scale(&recipe, role, x, R, C, 0, 0, dim);
        for (int64_t r = 0; r < R; r++) {
            for (int64_t c = 0; c < C; c++) {
                if (!one_scale)
                    scale = expected_scale(&recipe, role, x, R, C, r, c, dim);
                double quotient = (double)(float)((double)x[r * C + c] / scale);
                float expected = (float)(exact_rounded(recipe.format[role], quotient) * scale);
                assert_that(decoded[r * C + c] == expected,
                            "%s role %d %" PRId64 "x%" PRId64 " along %d at (%" PRId64 ",%" PRId64
                            "): %g, expected %g",
                            name, role, R, C, dim, r, c, (double)decoded[r * C + c],
                            (double)expected);
            }
        }
    }
    oct_arena_destroy(arena);
    oct_free(decoded);
    oct_free(x);
}

static void given_any_recipe_and_shape_elements_follow_the_scalar_rules(void **state) {
    (void)state;
    const char *names[] = {"mxfp8",
                           "mxfp8-32x32",
                           "dynamic_mx_E5M2_E4M3_E5M2",
                           "hif8",
                           "hif8_full_range",
                           "dynamic_per_tensor_E4M3_E4M3_E5M2",
                           "dynamic_per_channel_E4M3_E4M3_E5M2"};
    const int64_t shapes[][2] = {{1, 1},   {1, 33},   {33, 1},  {32, 32},
                                 {70, 48}, {129, 65}, {5, 200}, {0, 7}};
    for (size_t i = 0; i < OCT_COUNT(names); i++)
        for (size_t s = 0; s < OCT_COUNT(shapes); s++)
            for (int role = 0; role < OCT_N_ROLES; role++)
                check(names[i], (oct_role)role, shapes[s][0], shapes[s][1]);
}

static void given_any_thread_count_codes_are_the_same(void **state) {
    (void)state;
    oct_recipe recipe = parse("mxfp8");
    float *x = draw(300, 100, 5);
    uint8_t first[300 * 100];
    for (int threads = 1; threads <= 3; threads++) {
        oct_threads_set(threads);
        oct_arena *arena = oct_arena_create();
        oct_arena *const arenas[2] = {arena, arena};
        oct_matrix_view view = {x, OCT_F32, 300, 100, 100};
        oct_quantized q;
        assert_int_equal(
            oct_quantize(&view, &recipe, OCT_ROLE_INPUT, OCT_ALONG_BOTH, arenas, NULL, &q), OCT_OK);
        if (threads == 1)
            memcpy(first, q.along[0].codes, sizeof first);
        assert_memory_equal(first, q.along[0].codes, sizeof first);
        oct_arena_destroy(arena);
    }
    oct_free(x);
}

static void given_zeros_but_for_a_one_nothing_is_nan(void **state) {
    (void)state;
    const char *names[] = {"mxfp8", "mxfp8-32x32", "hif8", "dynamic_per_channel_E4M3_E4M3_E4M3"};
    static float x[256 * 256], decoded[256 * 256];
    x[77 * 256 + 5] = 1;
    for (size_t i = 0; i < 4; i++) {
        oct_recipe recipe = parse(names[i]);
        oct_arena *arena = oct_arena_create();
        oct_arena *const arenas[2] = {arena, arena};
        oct_matrix_view view = {x, OCT_F32, 256, 256, 256};
        oct_quantized q;
        assert_int_equal(
            oct_quantize(&view, &recipe, OCT_ROLE_WEIGHT, OCT_ALONG_BOTH, arenas, NULL, &q),
            OCT_OK);
        for (int dim = 0; dim < 2; dim++) {
            oct_quantized_decode(&q, dim, decoded);
            assert_memory_equal(decoded, x, sizeof x);
        }
        oct_arena_destroy(arena);
    }
}

static void given_siblings_one_tensor_is_quantized_once(void **state) {
    (void)state;
    oct_recipe recipe = parse("mxfp8"), other = parse("hif8");
    float *data = draw(40, 40, 9);
    oct_arena *arena = oct_arena_create();
    oct_arena *const arenas[2] = {arena, arena};
    oct_quant_cache *cache;
    assert_int_equal(oct_quant_cache_create(&cache), OCT_OK);
    oct_tensor x = oct_tensor_2d(OCT_F32, 40, 40, data);
    x.id = 3;
    oct_quantized a, b, c, d;
    oct_quant_cache_quantize(cache, &x, &recipe, OCT_ROLE_INPUT, OCT_ALONG_BOTH, arenas, NULL, &a);
    oct_quant_cache_quantize(cache, &x, &recipe, OCT_ROLE_INPUT, OCT_ALONG_1, arenas, NULL, &b);
    oct_quant_cache_quantize(cache, &x, &other, OCT_ROLE_INPUT, OCT_ALONG_1, arenas, NULL, &c);
    assert_ptr_equal(a.along[1].codes, b.along[1].codes);
    assert_ptr_not_equal(a.along[1].codes, c.along[1].codes);
    oct_quant_cache_truncate(cache, 0);
    oct_quant_cache_quantize(cache, &x, &recipe, OCT_ROLE_INPUT, OCT_ALONG_BOTH, arenas, NULL, &d);
    assert_ptr_not_equal(a.along[1].codes, d.along[1].codes);
    x.id = 0;
    oct_quant_cache_quantize(cache, &x, &recipe, OCT_ROLE_INPUT, OCT_ALONG_1, arenas, NULL, &b);
    oct_quant_cache_quantize(cache, &x, &recipe, OCT_ROLE_INPUT, OCT_ALONG_1, arenas, NULL, &c);
    assert_ptr_not_equal(b.along[1].codes, c.along[1].codes);
    oct_quant_cache_destroy(cache);
    oct_arena_destroy(arena);
    oct_free(data);
}

/* ---- the public functions ---- */

/* Quantized rows of K elements, by the public functions, and what their codes and scales are worth.
 */
typedef struct quantized_rows {
    oct_codes codes;
    double *values;
    uint8_t *bytes, *scales;
} quantized_rows;

static quantized_rows quantize_rows(const float *x, int64_t rows, int64_t K, oct_dtype format,
                                    bool mx) {
    const size_t n = (size_t)(rows * K), n_scales = oct_mx_scale_bytes(rows, K);
    quantized_rows q = {.values = oct_malloc_array(n, sizeof(double)),
                        .bytes = oct_malloc_array(n, 1),
                        .scales = oct_malloc_array(n_scales, 1)};
    q.codes = (oct_codes){.format = format, .codes = q.bytes, .mx_scales = mx ? q.scales : NULL};
    if (mx)
        assert_int_equal(
            oct_mx_quantize(x, OCT_F32, rows, K, format, OCT_SCALE_RCEIL, q.bytes, q.scales),
            OCT_OK);
    else
        assert_int_equal(
            oct_tensor_quantize(x, OCT_F32, rows, K, format, 15, q.bytes, &q.codes.tensor_scale),
            OCT_OK);
    for (int64_t i = 0; i < rows * K; i++) {
        int scale = q.scales[i / K * ((K + 31) / 32) + i % K / 32];
        q.values[i] = exact_value(format, q.bytes[i]) *
                      (mx ? ldexp(1, scale - 127) : (double)q.codes.tensor_scale);
    }
    return q;
}

static void free_rows(quantized_rows *q) {
    oct_free(q->values);
    oct_free(q->bytes);
    oct_free(q->scales);
}

/* No element is further from what it was than half a step of the format: 2^-4 (E4M3, HIF8's next to
 * its target) or 2^-3 (E5M2) of it, or of the smallest normal. */
static void check_near(const quantized_rows *q, const float *x, int64_t n, double smallest) {
    const double half_step = q->codes.format == OCT_E5M2 ? 0x1p-3 : 0x1p-4;
    for (int64_t i = 0; i < n; i++) {
        double error = fabs(q->values[i] - (double)x[i]);
        assert_that(error <= half_step * fmax(fabs((double)x[i]), smallest),
                    "%s: %g came back as %g", oct_dtype_name(q->codes.format), (double)x[i],
                    q->values[i]);
    }
}

static void check_product(const quantized_rows *a, const quantized_rows *b, int64_t M, int64_t N,
                          int64_t K, const char *set) {
    float *c = oct_malloc_array((size_t)(M * N), sizeof *c);
    memset(c, 0x5a, (size_t)(M * N) * sizeof *c);
    assert_int_equal(oct_codes_multiply(&a->codes, &b->codes, M, N, K, c), OCT_OK);
    for (int64_t i = 0; i < M * N; i++) {
        double exact = 0, size = 0;
        for (int64_t k = 0; k < K; k++) {
            double product = a->values[i / N * K + k] * b->values[i % N * K + k];
            exact += product;
            size += fabs(product);
        }
        assert_that(fabs((double)c[i] - exact) <= 4 * (double)K * 0x1p-24 * size,
                    "%s: %s x %s, %" PRId64 "x%" PRId64 "x%" PRId64 ": C(%" PRId64 ",%" PRId64
                    ") is %g, expected %g",
                    set, oct_dtype_name(a->codes.format), oct_dtype_name(b->codes.format), M, N, K,
                    (i / N), (i % N), (double)c[i], exact);
    }
    oct_free(c);
}

static void check_multiply(const char *set, int64_t M, int64_t N, int64_t K) {
    static const struct {
        oct_dtype format;
        bool mx;
    } kinds[] = {{OCT_E4M3, true}, {OCT_E5M2, true}, {OCT_HIF8, false}, {OCT_E4M3, false}};
    float *a = draw(M, K, 1), *b = draw(N, K, 2);
    for (int i = 0; i < 8; i++) {
        quantized_rows qa = quantize_rows(a, M, K, kinds[i % 4].format, kinds[i % 4].mx);
        quantized_rows qb = quantize_rows(b, N, K, kinds[i / 2].format, kinds[i / 2].mx);
        check_product(&qa, &qb, M, N, K, set);
        free_rows(&qa);
        free_rows(&qb);
    }
    oct_free(a);
    oct_free(b);
}

static void given_numbers_and_any_set_the_public_products_are_those_of_their_codes(void **state) {
    (void)state;
    static const int64_t shapes[][3] = {{1, 3, 40},   {2, 65, 70},  {5, 7, 70},   {8, 64, 300},
                                        {17, 33, 31}, {40, 70, 64}, {33, 65, 550}};
    kernel_set sets[MAX_KERNEL_SETS];
    const size_t n_sets = kernel_sets(sets);
    const oct_kernels before = *oct_kernels_current();
    for (size_t s = 0; s < n_sets; s++) {
        oct_kernels_use(sets[s].kernels);
        for (size_t i = 0; i < OCT_COUNT(shapes); i++)
            check_multiply(sets[s].name, shapes[i][0], shapes[i][1], shapes[i][2]);
    }
    oct_kernels_use(before);
}

static void given_numbers_the_public_quantizers_codes_are_worth_them(void **state) {
    (void)state;
    enum { R = 9, C = 70 };
    float x[R * C];
    for (int i = 0; i < R * C; i++)
        x[i] = oct_rng_normal(3, 1, (uint64_t)i);
    static const oct_dtype formats[] = {OCT_E4M3, OCT_E5M2};
    for (int f = 0; f < 2; f++) {
        quantized_rows mx = quantize_rows(x, R, C, formats[f], true);
        check_near(&mx, x, R * C, 0x1p-12);
        free_rows(&mx);
    }
    quantized_rows hif8 = quantize_rows(x, R, C, OCT_HIF8, false);
    for (int i = 0; i < R * C; i++) /* the fewer bits, the further from 1 */
        assert_true(fabs(hif8.values[i] - (double)x[i]) <= fabs((double)x[i]) / 4 + 0x1p-20);
    free_rows(&hif8);
}

static void given_codes_that_mean_nothing_to_it_a_product_is_refused(void **state) {
    (void)state;
    const uint8_t code = 0x38, scale = 127;
    float c = 7;
    const oct_codes good = {OCT_E4M3, &code, &scale, 0}, mx_hif8 = {OCT_HIF8, &code, &scale, 0},
                    no_format = {OCT_F32, &code, NULL, 1};
    assert_int_equal(oct_codes_multiply(&mx_hif8, &good, 1, 1, 1, &c), OCT_INVALID);
    assert_int_equal(oct_codes_multiply(&good, &no_format, 1, 1, 1, &c), OCT_INVALID);
    assert_int_equal(oct_codes_multiply(&good, &good, -1, 1, 1, &c), OCT_INVALID);
    assert_int_equal(oct_codes_multiply(&good, &good, 2, 1, INT64_MAX, &c), OCT_INVALID);
    assert_true(c == 7);
}

typedef oct_status mx_quantizer(const void *x, oct_dtype x_dtype, int64_t rows, int64_t cols,
                                oct_dtype format, oct_scale_mode mode, uint8_t *codes,
                                uint8_t *scales);
static mx_quantizer *const mx_quantizers[] = {oct_mx_quantize, oct_mx_quantize_transposed};

static void
given_no_elements_whatever_the_other_size_the_public_functions_return_at_once(void **state) {
    (void)state;
    static const int64_t sizes[][2] = {{0, 0}, {INT64_MAX, 0}, {0, INT64_MAX}};
    uint8_t untouched = 7;
    for (int i = 0; i < 3; i++) {
        float scale = 0;
        int64_t rows = sizes[i][0], cols = sizes[i][1];
        for (int q = 0; q < 2; q++)
            assert_int_equal(mx_quantizers[q](NULL, OCT_F32, rows, cols, OCT_E4M3, OCT_SCALE_RCEIL,
                                              &untouched, &untouched),
                             OCT_OK);
        assert_int_equal(
            oct_tensor_quantize(NULL, OCT_F32, rows, cols, OCT_HIF8, 15, &untouched, &scale),
            OCT_OK);
        assert_true(scale == 1);
    }
    assert_int_equal(untouched, 7);
}

static void given_senseless_arguments_the_public_functions_refuse_and_write_nothing(void **state) {
    (void)state;
    static const struct {
        oct_dtype from, format;
        oct_scale_mode mode;
        int64_t rows, cols;
    } wrong[] = {{OCT_F32, OCT_E4M3, (oct_scale_mode)4, 1, 1},
                 {OCT_F32, OCT_E4M3, (oct_scale_mode)-1, 1, 1},
                 {OCT_F32, OCT_HIF8, OCT_SCALE_RCEIL, 1, 1},
                 {OCT_E4M3, OCT_E4M3, OCT_SCALE_RCEIL, 1, 1},
                 {OCT_F32, OCT_E4M3, OCT_SCALE_RCEIL, -1, 1},
                 {OCT_F32, OCT_E4M3, OCT_SCALE_RCEIL, 1, -1},
                 {OCT_F32, OCT_E4M3, OCT_SCALE_RCEIL, INT64_MAX, 2}};
    const float x = 1;
    uint8_t untouched = 7;
    for (size_t i = 0; i < OCT_COUNT(wrong); i++)
        for (int q = 0; q < 2; q++)
            assert_int_equal(mx_quantizers[q](&x, wrong[i].from, wrong[i].rows, wrong[i].cols,
                                              wrong[i].format, wrong[i].mode, &untouched,
                                              &untouched),
                             OCT_INVALID);
    assert_int_equal(untouched, 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_numbers_the_public_quantizers_codes_are_worth_them),
        cmocka_unit_test(given_numbers_and_any_set_the_public_products_are_those_of_their_codes),
        cmocka_unit_test(given_any_recipe_and_shape_elements_follow_the_scalar_rules),
        cmocka_unit_test(given_any_thread_count_codes_are_the_same),
        cmocka_unit_test(given_zeros_but_for_a_one_nothing_is_nan),
        cmocka_unit_test(given_siblings_one_tensor_is_quantized_once),
        cmocka_unit_test(given_codes_that_mean_nothing_to_it_a_product_is_refused),
        cmocka_unit_test(
            given_no_elements_whatever_the_other_size_the_public_functions_return_at_once),
        cmocka_unit_test(given_senseless_arguments_the_public_functions_refuse_and_write_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
