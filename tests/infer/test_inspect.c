/* Weights of a model inspected: a layer that was made bad is found, whatever the recipe. */
#include "story.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/count.h"
#include "infer/inspect.h"
#include "nn/linear.h"

typedef struct bench {
    oct_model *model;
    oct_plan *plan;
} bench;

static bench make(void) {
    oct_error err = {0};
    bench b = {NULL, NULL};
    oct_model_args args = {0};
    if (oct_model_args_flavor("llama3", "debugmodel", &args, &err) ||
        oct_model_create(&args, OCT_PARAMS_ALLOCATED, &b.model, &err) ||
        oct_plan_create(oct_model_root(b.model), NULL, 0, true, NULL, NULL, &b.plan, &err))
        fail_msg("%s", err.message);
    oct_model_init(b.model, 3);
    return b;
}

static void end(bench *b) {
    oct_plan_destroy(b->plan);
    oct_model_destroy(b->model);
}

static oct_inspected *inspect(const bench *b, const char *name) {
    oct_recipe recipe;
    oct_inspected *rows = NULL;
    oct_error err = {0};
    if (oct_recipe_parse(name, &recipe, &err) || oct_inspect_weights(b->plan, &recipe, &rows, &err))
        fail_msg("%s", err.message);
    return rows;
}

/* A thousand is 2^10. E5M2's normal numbers span 2^29, and HiF8, with amax at 2^15, has two and
 * three bits of mantissa where the small weights then lie (2^-7 to 2^7): they keep their digits
 * beside such channels. In the others they come to lie among subnormal numbers. */
static const char *const narrow[] = {"mxfp8", "mxfp8_cublas", "mxfp8-32x32", "hif8",
                                     "dynamic_per_tensor_e4m3_e4m3_e4m3"};
static const char *const wide[] = {"dynamic_mx_e5m2_e5m2_e5m2", "hif8_full_range"};

/* Three channels of the input, or of the output, a thousand times as large. */
static void plant(bench *b, const char *name, bool inputs) {
    oct_param *param = oct_model_find_param(b->model, name);
    const int64_t rows = param->shape[0], cols = param->shape[1];
    static const int64_t channels[] = {5, 77, 130};
    for (size_t i = 0; i < OCT_COUNT(channels); i++)
        for (int64_t j = 0; j < (inputs ? rows : cols); j++)
            param->value[inputs ? j * cols + channels[i] : channels[i] * cols + j] *= 1000;
}

static void given_channels_a_thousand_times_as_large_their_module_is_first(void **state) {
    (void)state;
    for (int inputs = 0; inputs < 2; inputs++) {
        bench b = make();
        plant(&b, "layers.2.feed_forward.w2.weight", inputs);
        for (size_t i = 0; i < OCT_COUNT(narrow); i++) {
            oct_inspected *rows = inspect(&b, narrow[i]);
            assert_string_equal(rows[0].row->name, "layers.2.feed_forward.w2");
            assert_true(rows[0].stands_out);
            for (int64_t r = 1; r < b.plan->n_rows; r++)
                assert_true(rows[r].error <= rows[r - 1].error);
            oct_free(rows);
        }
        for (size_t i = 0; i < OCT_COUNT(wide); i++) {
            oct_inspected *rows = inspect(&b, wide[i]);
            assert_false(rows[0].stands_out);
            oct_free(rows);
        }
        end(&b);
    }
}

/* The mean relative error of one row of blocks, by the definition, in fp64. */
static void given_one_weight_its_error_is_that_of_its_elements(void **state) {
    bench b = make();
    (void)state;
    oct_inspected *rows = inspect(&b, "mxfp8");
    for (int64_t i = 0; i < b.plan->n_rows; i++) {
        const oct_linear *linear = oct_linear_from(rows[i].row->module);
        const oct_param *w = linear->weight;
        double sum = 0;
        int64_t n = 0;
        for (int64_t at = 0; at < oct_param_elements(w); at += 32) {
            double amax = 0;
            for (int k = 0; k < 32; k++)
                amax = fmax(amax, fabs((double)w->value[at + k]));
            const double scale = exp2(ceil(log2(amax / 448)));
            for (int k = 0; k < 32; k++, n++) {
                const double x = fabs((double)w->value[at + k]) / scale;
                const double unit = exp2(fmax(floor(log2(x)), -6) - 3);
                sum += x > 0 ? fabs(nearbyint(x / unit) * unit - x) / x : 0;
            }
        }
        const double got = oct_quant_stats_relative(&rows[i].along[1]);
        assert_true(fabs(got - sum / (double)n) < 1e-9 * got);
        assert_true(rows[i].error >= got);
    }
    oct_free(rows);
    end(&b);
}

static void given_a_nan_its_module_is_before_all(void **state) {
    bench b = make();
    (void)state;
    plant(&b, "layers.2.feed_forward.w2.weight", true);
    oct_model_find_param(b.model, "layers.1.attention.wo.weight")->value[17] = NAN;
    oct_inspected *rows = inspect(&b, "mxfp8");
    assert_string_equal(rows[0].row->name, "layers.1.attention.wo");
    assert_int_equal(rows[0].along[1].n_poisoned, 1);
    assert_string_equal(rows[1].row->name, "layers.2.feed_forward.w2");
    oct_free(rows);
    end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_channels_a_thousand_times_as_large_their_module_is_first),
        cmocka_unit_test(given_one_weight_its_error_is_that_of_its_elements),
        cmocka_unit_test(given_a_nan_its_module_is_before_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
