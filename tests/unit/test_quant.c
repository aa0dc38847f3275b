/* Quantized matrices: both contracted dimensions, every granularity, against the scalar codecs one
 * element at a time. */
#include "story.h"

#include <math.h>
#include <octet/quantize.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/rng.h"
#include "base/thread.h"
#include "kernel/select.h"
#include "quant/qmatrix.h"
#include "quant/shared.h"

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
static float expected_scale(const oct_recipe *recipe, oct_role role, const float *x, int64_t R,
                            int64_t C, int64_t r, int64_t c, int dim) {
    int64_t r0 = 0, r1 = R, c0 = 0, c1 = C;
    bool tiles = oct_recipe_shares_copies(recipe, role);
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
    float amax = 0;
    for (int64_t i = r0; i < r1; i++)
        for (int64_t j = c0; j < c1; j++)
            amax = fmaxf(amax, fabsf(x[i * C + j]));
    if (recipe->granularity == OCT_MX)
        return oct_e8m0_decode(oct_mx_scale(amax, recipe->format[role], recipe->scale_mode));
    return oct_scale_from_amax(amax, recipe->target[role]);
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
        for (int64_t r = 0; r < R; r++) {
            for (int64_t c = 0; c < C; c++) {
                float scale = expected_scale(&recipe, role, x, R, C, r, c, dim);
                float expected =
                    oct_fp8_decode(recipe.format[role],
                                   oct_fp8_encode(recipe.format[role], x[r * C + c] / scale)) *
                    scale;
                if (decoded[r * C + c] != expected)
                    fail_msg("%s role %d %lldx%lld along %d at (%lld,%lld): %g, expected %g", name,
                             role, (long long)R, (long long)C, dim, (long long)r, (long long)c,
                             decoded[r * C + c], expected);
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
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
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
    oct_shared *shared;
    assert_int_equal(oct_shared_create(&shared), OCT_OK);
    oct_tensor x = oct_tensor_2d(OCT_F32, 40, 40, data);
    x.id = 3;
    oct_quantized a, b, c, d;
    oct_shared_quantize(shared, &x, &recipe, OCT_ROLE_INPUT, OCT_ALONG_BOTH, arenas, NULL, &a);
    oct_shared_quantize(shared, &x, &recipe, OCT_ROLE_INPUT, OCT_ALONG_1, arenas, NULL, &b);
    oct_shared_quantize(shared, &x, &other, OCT_ROLE_INPUT, OCT_ALONG_1, arenas, NULL, &c);
    assert_ptr_equal(a.along[1].codes, b.along[1].codes);
    assert_ptr_not_equal(a.along[1].codes, c.along[1].codes);
    oct_shared_truncate(shared, 0);
    oct_shared_quantize(shared, &x, &recipe, OCT_ROLE_INPUT, OCT_ALONG_BOTH, arenas, NULL, &d);
    assert_ptr_not_equal(a.along[1].codes, d.along[1].codes);
    x.id = 0;
    oct_shared_quantize(shared, &x, &recipe, OCT_ROLE_INPUT, OCT_ALONG_1, arenas, NULL, &b);
    oct_shared_quantize(shared, &x, &recipe, OCT_ROLE_INPUT, OCT_ALONG_1, arenas, NULL, &c);
    assert_ptr_not_equal(b.along[1].codes, c.along[1].codes);
    oct_shared_destroy(shared);
    oct_arena_destroy(arena);
    oct_free(data);
}

static void given_the_public_functions_codes_come_back_and_products_agree(void **state) {
    (void)state;
    enum { M = 5, N = 7, K = 70 };
    float *a = draw(M, K, 1), *b = draw(N, K, 2);
    uint8_t ac[M * K], as[M * 3], bc[N * K], bs[N * 3], bt[N * K], bts[K];
    float ad[M * K], bd[N * K], c[M * N];
    assert_int_equal(oct_mx_scale_bytes(M, K), sizeof as);
    assert_int_equal(oct_mx_quantize(a, OCT_F32, M, K, OCT_E4M3, OCT_SCALE_RCEIL, ac, as), OCT_OK);
    assert_int_equal(oct_mx_quantize(b, OCT_F32, N, K, OCT_E5M2, OCT_SCALE_FLOOR, bc, bs), OCT_OK);
    assert_int_equal(
        oct_mx_quantize_transposed(b, OCT_F32, N, K, OCT_E4M3, OCT_SCALE_RCEIL, bt, bts), OCT_OK);
    oct_mx_dequantize(ac, as, M, K, OCT_E4M3, ad);
    oct_mx_dequantize(bc, bs, N, K, OCT_E5M2, bd);
    oct_codes qa = {OCT_E4M3, ac, as, 0}, qb = {OCT_E5M2, bc, bs, 0};
    assert_int_equal(oct_codes_multiply(&qa, &qb, M, N, K, c), OCT_OK);
    for (int i = 0; i < M * N; i++) {
        double exact = 0, size = 0;
        for (int k = 0; k < K; k++) {
            exact += (double)ad[i / N * K + k] * bd[i % N * K + k];
            size += fabs((double)ad[i / N * K + k] * bd[i % N * K + k]);
        }
        assert_true(fabs(c[i] - exact) <= 4 * K * 0x1p-24 * size);
    }
    assert_int_equal(oct_mx_quantize(a, OCT_F32, -1, K, OCT_E4M3, OCT_SCALE_RCEIL, ac, as),
                     OCT_INVALID);
    assert_int_equal(oct_mx_quantize(a, OCT_F32, M, K, OCT_HIF8, OCT_SCALE_RCEIL, ac, as),
                     OCT_INVALID);
    assert_int_equal(oct_mx_quantize(a, OCT_I32, M, K, OCT_E4M3, OCT_SCALE_RCEIL, ac, as),
                     OCT_INVALID);
    oct_free(a);
    oct_free(b);
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
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        for (int q = 0; q < 2; q++)
            assert_int_equal(mx_quantizers[q](&x, wrong[i].from, wrong[i].rows, wrong[i].cols,
                                              wrong[i].format, wrong[i].mode, &untouched,
                                              &untouched),
                             OCT_INVALID);
    assert_int_equal(untouched, 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_any_recipe_and_shape_elements_follow_the_scalar_rules),
        cmocka_unit_test(given_any_thread_count_codes_are_the_same),
        cmocka_unit_test(given_zeros_but_for_a_one_nothing_is_nan),
        cmocka_unit_test(given_siblings_one_tensor_is_quantized_once),
        cmocka_unit_test(given_the_public_functions_codes_come_back_and_products_agree),
        cmocka_unit_test(
            given_no_elements_whatever_the_other_size_the_public_functions_return_at_once),
        cmocka_unit_test(given_senseless_arguments_the_public_functions_refuse_and_write_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
