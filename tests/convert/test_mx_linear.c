/* The quantized linear: outputs and gradients against fp64 products of operands that the test
 * quantizes and dequantizes itself, one element at a time with the scalar codecs. (A quantizer is a
 * step function, so finite differences say nothing here.) */
#include "story.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/count.h"
#include "base/rng.h"
#include "convert/plan.h"
#include "format/fp8.h"
#include "kernel/quantize.h"
#include "nn/linear.h"
#include "nn/step.h"

/* Dequantized copy of x (R,C) for contraction over `dim`, by the specification. */
static double *quantize_reference(const oct_recipe *recipe, oct_role role, const float *x,
                                  int64_t R, int64_t C, int dim) {
    double *y = oct_malloc_array((size_t)(R * C), sizeof *y);
    bool tiles =
        recipe->granularity == OCT_MX && role == OCT_ROLE_WEIGHT && recipe->weight_block_rows == 32;
    for (int64_t r = 0; r < R; r++) {
        for (int64_t c = 0; c < C; c++) {
            int64_t r0 = r, r1 = r + 1, c0 = c, c1 = c + 1;
            if (recipe->granularity == OCT_PER_TENSOR)
                r0 = c0 = 0, r1 = R, c1 = C;
            if (recipe->granularity == OCT_PER_CHANNEL && dim == 1)
                c0 = 0, c1 = C;
            if (recipe->granularity == OCT_PER_CHANNEL && dim == 0)
                r0 = 0, r1 = R;
            if (recipe->granularity == OCT_MX && (dim == 1 || tiles))
                c0 = c / 32 * 32, c1 = oct_min_i64(C, c0 + 32);
            if (recipe->granularity == OCT_MX && (dim == 0 || tiles))
                r0 = r / 32 * 32, r1 = oct_min_i64(R, r0 + 32);
            float amax = 0;
            for (int64_t i = r0; i < r1; i++)
                for (int64_t j = c0; j < c1; j++)
                    amax = fmaxf(amax, fabsf(x[i * C + j]));
            oct_dtype format = recipe->format[role];
            float scale = recipe->granularity == OCT_MX
                              ? oct_e8m0_decode(oct_mx_scale_code(amax, format, recipe->scale_mode))
                              : oct_scale_from_amax(amax, recipe->target[role]);
            y[r * C + c] =
                (double)(oct_fp8_value(format, oct_fp8_code(format, x[r * C + c] / scale)) * scale);
        }
    }
    return y;
}

/* c(i,j) = sum_k a(i,k) b(j,k), elements addressed by strides; checks `got` within the bound of
 * docs/numerics.md. */
static void check_product(const char *what, const double *a, int64_t a_row, int64_t a_k,
                          const double *b, int64_t b_row, int64_t b_k, int64_t M, int64_t N,
                          int64_t K, const float *bias, const float *got) {
    for (int64_t i = 0; i < M; i++) {
        for (int64_t j = 0; j < N; j++) {
            double sum = 0, size = 0;
            for (int64_t k = 0; k < K; k++) {
                double term = a[i * a_row + k * a_k] * b[j * b_row + k * b_k];
                sum += term;
                size += fabs(term);
            }
            if (bias)
                sum += bias[j];
            double bound = 4 * (double)K * 0x1p-24 * size + (bias ? 0x1p-23 * fabs(sum) : 0);
            if (fabs(got[i * N + j] - sum) > bound)
                fail_msg("%s (%" PRId64 ",%" PRId64 "): %.9g, expected %.9g +- %.2g", what, i, j,
                         got[i * N + j], sum, bound);
        }
    }
}

static void draw(float *x, int64_t n, uint64_t stream, float size) {
    for (int64_t i = 0; i < n; i++)
        x[i] = size * oct_rng_normal(7, stream, (uint64_t)i);
}

typedef struct fixture {
    oct_module *root;
    oct_linear *linear;
    oct_recipe recipe;
    oct_plan *plan;
    oct_weights *weights;
    oct_step *step;
} fixture;

static void convert(fixture *f, const char *recipe) {
    oct_error err = {0};
    if (oct_recipe_parse(recipe, &f->recipe, &err))
        fail_msg("%s", err.message);
    const oct_converter_spec spec = {.kind = OCT_CONVERT_LINEAR,
                                     .name = "quantize.linear.mx",
                                     .where = "test",
                                     .recipe = &f->recipe};
    if (oct_plan_create(f->root, &spec, 1, false, NULL, NULL, &f->plan, &err) ||
        oct_plan_apply(f->plan, &err))
        fail_msg("%s", err.message);
}

static void build(fixture *f, const char *recipe, int64_t K, int64_t N) {
    static const oct_module_ops container = {.type_name = "Container"};
    *f = (fixture){
        .root = oct_module_create(sizeof *f->root, OCT_MODULE_CONTAINER, &container, NULL, "")};
    assert_non_null(f->root);
    const oct_init init = {.kind = OCT_INIT_ZEROS};
    assert_int_equal(oct_linear_create(f->root, "w", K, N, init, &init, &f->linear), OCT_OK);
    draw(f->linear->weight->value, N * K, 1, 0.05f);
    draw(f->linear->bias->value, N, 2, 1);
    f->linear->weight->version++;
    f->linear->weight->grad = oct_calloc_array((size_t)(N * K), sizeof(float));
    f->linear->bias->grad = oct_calloc_array((size_t)N, sizeof(float));
    convert(f, recipe);
    assert_int_equal(oct_weights_create(&f->weights), OCT_OK);
    assert_int_equal(oct_step_create(f->weights, OCT_F32, &f->step), OCT_OK);
    f->step->save = OCT_SAVE_FOR_BACKWARD;
}

static void tear_down(fixture *f) {
    oct_step_destroy(f->step);
    oct_weights_destroy(f->weights);
    oct_plan_destroy(f->plan);
    oct_module_destroy(f->root);
}

static void check_recipe(const char *name, int64_t T, int64_t K, int64_t N) {
    fixture f;
    build(&f, name, K, N);
    float *x = oct_malloc_array((size_t)(T * K), sizeof *x),
          *dy = oct_malloc_array((size_t)(T * N), sizeof *dy);
    float *y = oct_malloc_array((size_t)(T * N), sizeof *y),
          *dx = oct_calloc_array((size_t)(T * K), sizeof *dx);
    draw(x, T * K, 3, 1);
    draw(dy, T * N, 4, 1e-3f);
    oct_tensor xt = oct_tensor_2d(OCT_F32, T, K, x), yt = oct_tensor_2d(OCT_F32, T, N, y);
    oct_tensor dyt = oct_tensor_2d(OCT_F32, T, N, dy), dxt = oct_tensor_2d(OCT_F32, T, K, dx);
    assert_int_equal(oct_forward(&f.linear->base, f.step, &xt, &yt), OCT_OK);
    memset(x, 0xff, sizeof(float) * (size_t)(T * K)); /* backward must not need x any more */
    assert_int_equal(oct_backward(&f.linear->base, f.step, &dyt, &dxt, OCT_OVERWRITE), OCT_OK);
    draw(x, T * K, 3, 1);

    const float *w = f.linear->weight->value;
    double *xk = quantize_reference(&f.recipe, OCT_ROLE_INPUT, x, T, K, 1);
    double *xt_q = quantize_reference(&f.recipe, OCT_ROLE_INPUT, x, T, K, 0);
    double *wk = quantize_reference(&f.recipe, OCT_ROLE_WEIGHT, w, N, K, 1);
    double *wn = quantize_reference(&f.recipe, OCT_ROLE_WEIGHT, w, N, K, 0);
    double *dyn = quantize_reference(&f.recipe, OCT_ROLE_GRAD, dy, T, N, 1);
    double *dyt_q = quantize_reference(&f.recipe, OCT_ROLE_GRAD, dy, T, N, 0);
    check_product("y", xk, K, 1, wk, K, 1, T, N, K, f.linear->bias->value, y);
    check_product("dx", dyn, N, 1, wn, 1, K, T, K, N, NULL, dx);
    check_product("dw", dyt_q, 1, N, xt_q, 1, K, N, K, T, NULL, f.linear->weight->grad);
    for (int64_t n = 0; n < N; n++) {
        double sum = 0, size = 0;
        for (int64_t t = 0; t < T; t++) {
            sum += dy[t * N + n];
            size += fabsf(dy[t * N + n]);
        }
        assert_true(fabs(f.linear->bias->grad[n] - sum) <= (double)T * 0x1p-23 * size);
    }
    double *all[] = {xk, xt_q, wk, wn, dyn, dyt_q};
    for (size_t i = 0; i < 6; i++)
        oct_free(all[i]);
    float *floats[] = {x, y, dy, dx};
    for (size_t i = 0; i < 4; i++)
        oct_free(floats[i]);
    tear_down(&f);
}

static void
given_any_recipe_outputs_and_gradients_are_products_of_dequantized_operands(void **state) {
    (void)state;
    const char *names[] = {"mxfp8",
                           "mxfp8-32x32",
                           "dynamic_mx_E5M2_E4M3_E5M2",
                           "hif8",
                           "hif8_full_range",
                           "dynamic_per_tensor_E4M3_E4M3_E5M2",
                           "dynamic_per_channel_E4M3_E4M3_E5M2",
                           "delayed_per_tensor_HiF8_E4M3_E5M2"};
    for (size_t i = 0; i < OCT_COUNT(names); i++) {
        check_recipe(names[i], 70, 48, 16);
        check_recipe(names[i], 1, 33, 65);
        check_recipe(names[i], 64, 96, 40);
    }
}

static void given_two_micro_batches_weight_gradients_add_up(void **state) {
    (void)state;
    enum { T = 40, K = 32, N = 24 };
    fixture f;
    float x[T * K], y[T * N], dy[T * N], once[N * K];
    build(&f, "mxfp8", K, N);
    draw(x, T * K, 3, 1);
    draw(dy, T * N, 4, 1);
    oct_tensor xt = oct_tensor_2d(OCT_F32, T, K, x), yt = oct_tensor_2d(OCT_F32, T, N, y);
    oct_tensor dyt = oct_tensor_2d(OCT_F32, T, N, dy);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(oct_forward(&f.linear->base, f.step, &xt, &yt), OCT_OK);
        assert_int_equal(oct_backward(&f.linear->base, f.step, &dyt, NULL, OCT_OVERWRITE), OCT_OK);
        if (i == 0)
            memcpy(once, f.linear->weight->grad, sizeof once);
    }
    for (int i = 0; i < N * K; i++)
        assert_true(f.linear->weight->grad[i] == once[i] + once[i]);
    tear_down(&f);
}

static void given_a_changed_weight_cached_copies_are_never_used_again(void **state) {
    (void)state;
    enum { T = 3, K = 40, N = 8 };
    fixture f;
    float x[T * K], before[T * N], after[T * N];
    build(&f, "mxfp8", K, N);
    draw(x, T * K, 3, 1);
    oct_tensor xt = oct_tensor_2d(OCT_F32, T, K, x), yt = oct_tensor_2d(OCT_F32, T, N, before);
    memset(f.linear->bias->value, 0, N * sizeof(float));
    oct_forward(&f.linear->base, f.step, &xt, &yt);
    for (int i = 0; i < N * K; i++)
        f.linear->weight->value[i] *= 2; /* a power of two: codes stay, scales move */
    f.linear->weight->version++;
    yt.data = after;
    oct_forward(&f.linear->base, f.step, &xt, &yt);
    for (int i = 0; i < T * N; i++)
        assert_true(after[i] == 2 * before[i]);
    tear_down(&f);
}

static void given_delayed_scaling_the_second_step_uses_the_firsts_amax(void **state) {
    (void)state;
    enum { T = 2, K = 32, N = 4 };
    fixture f;
    float x[T * K] = {0}, y[T * N];
    build(&f, "delayed_per_tensor_E4M3_E4M3_E4M3", K, N);
    oct_tensor xt = oct_tensor_2d(OCT_F32, T, K, x), yt = oct_tensor_2d(OCT_F32, T, N, y);
    x[0] = 448;
    oct_forward(&f.linear->base, f.step, &xt, &yt);
    oct_plan_end_step(f.plan);
    oct_tensor history = oct_plan_row_history(&f.plan->rows[0]);
    assert_int_equal(history.shape[1], 16);
    assert_true(((float *)history.data)[0] == 448 && ((float *)history.data)[1] == -1);
    x[0] = 4480; /* scaled by the history's 448: saturates */
    oct_forward(&f.linear->base, f.step, &xt, &yt);
    oct_amax amax = oct_delayed_amax(f.linear->delayed, OCT_ROLE_INPUT);
    assert_true(amax.use == 448);
    oct_plan_end_step(f.plan);
    assert_true(((float *)history.data)[0] == 4480 && ((float *)history.data)[1] == 448);
    for (int i = 0; i < 16; i++) {
        x[0] = 1;
        oct_forward(&f.linear->base, f.step, &xt, &yt);
        oct_plan_end_step(f.plan);
    }
    assert_true(oct_delayed_amax(f.linear->delayed, OCT_ROLE_INPUT).use ==
                1); /* both have left the window */
    tear_down(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            given_any_recipe_outputs_and_gradients_are_products_of_dequantized_operands),
        cmocka_unit_test(given_two_micro_batches_weight_gradients_add_up),
        cmocka_unit_test(given_a_changed_weight_cached_copies_are_never_used_again),
        cmocka_unit_test(given_delayed_scaling_the_second_step_uses_the_firsts_amax),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
