/* Experts: each group of tokens alone is the measure of what all get together. */
#include "gradient_support.h"

#include <stdio.h>
#include <string.h>

#include "base/count.h"
#include "base/thread.h"
#include "convert/plan.h"
#include "nn/experts.h"

static const oct_init any = {.kind = OCT_INIT_ZEROS};

enum { E = 6, D = 72, F = 40 };

typedef struct garden {
    oct_module *root;
    oct_experts *experts;
    oct_recipe recipe;
    oct_plan *plan;
    oct_weights *weights;
    oct_step *step;
    int64_t offsets[E + 1], T;
    float *x, *y, *dy, *dx;
} garden;

/* Memory that somebody used before. */
static void dirty(oct_arena *arena) {
    oct_arena_mark mark = oct_arena_get_mark(arena);
    void *block = oct_arena_alloc(arena, (size_t)8 << 20);
    memset(block, 0xff, (size_t)8 << 20);
    oct_arena_release(arena, mark);
}

static void plan_experts(oct_module *root, const char *recipe, oct_recipe *parsed,
                         oct_plan **plan) {
    oct_error err = {0};
    const oct_converter_spec specs[] = {
        {.kind = OCT_CONVERT_GROUPED_MM, .name = "npu_gmm", .where = "test"},
        {.kind = OCT_CONVERT_EXPERTS,
         .name = "quantize.grouped_mm.mx",
         .where = "test",
         .recipe = parsed}};
    if (recipe && oct_recipe_parse(recipe, parsed, &err))
        fail_msg("%s", err.message);
    if (oct_plan_create(root, specs, recipe ? 2 : 1, false, NULL, NULL, plan, &err) ||
        oct_plan_apply(*plan, &err))
        fail_msg("%s", err.message);
}

/* recipe NULL: high precision. */
static void garden_open(garden *g, const int64_t *sizes, oct_dtype activation) {
    *g = (garden){.root = new_root()};
    assert_int_equal(oct_experts_create(g->root, "experts", E, D, F, any, any, &g->experts),
                     OCT_OK);
    for (int i = 0; i < OCT_N_EXPERT_WEIGHTS; i++) {
        oct_param *param = g->experts->w[i];
        int64_t n = oct_param_elements(param);
        fill(param->value, n, 20 + (uint64_t)i, 0.2f);
        param->version++;
        param->grad = oct_malloc_array((size_t)n, sizeof(float));
        memset(param->grad, 0xff, (size_t)n * sizeof(float));
    }
    for (int e = 0; e < E; e++)
        g->offsets[e + 1] = g->offsets[e] + sizes[e];
    g->T = g->offsets[E];
    size_t n = (size_t)(g->T * D);
    g->x = oct_malloc_array(n, sizeof(float));
    g->y = oct_malloc_array(n, sizeof(float));
    g->dy = oct_malloc_array(n, sizeof(float));
    g->dx = oct_malloc_array(n, sizeof(float));
    fill(g->x, (int64_t)n, 30, 1.0f);
    fill(g->dy, (int64_t)n, 31, 1e-3f);
    memset(g->y, 0xff, n * sizeof(float));
    memset(g->dx, 0xff, n * sizeof(float));
    assert_int_equal(oct_weights_create(&g->weights), OCT_OK);
    assert_int_equal(oct_step_create(g->weights, activation, &g->step), OCT_OK);
    g->step->save = OCT_SAVE_FOR_BACKWARD;
    dirty(g->step->saved);
    dirty(g->step->scratch);
}

static void garden_close(garden *g) {
    oct_step_destroy(g->step);
    oct_weights_destroy(g->weights);
    oct_plan_destroy(g->plan);
    oct_module_destroy(g->root);
    oct_free(g->x);
    oct_free(g->y);
    oct_free(g->dy);
    oct_free(g->dx);
}

static void garden_clear_gradients(garden *g) {
    for (int i = 0; i < OCT_N_EXPERT_WEIGHTS; i++)
        memset(g->experts->w[i]->grad, 0,
               (size_t)oct_param_elements(g->experts->w[i]) * sizeof(float));
}

static void garden_run(garden *g) {
    oct_tensor x = oct_tensor_2d(OCT_F32, g->T, D, g->x), y = oct_tensor_2d(OCT_F32, g->T, D, g->y);
    oct_tensor dy = oct_tensor_2d(OCT_F32, g->T, D, g->dy),
               dx = oct_tensor_2d(OCT_F32, g->T, D, g->dx);
    garden_clear_gradients(g);
    assert_int_equal(oct_experts_forward(g->experts, g->step, &x, g->offsets, &y), OCT_OK);
    if (!g->experts->products->keeps_input) /* backward must not need x any more */
        memset(g->x, 0xff, (size_t)(g->T * D) * sizeof(float));
    assert_int_equal(oct_experts_backward(g->experts, g->step, &dy, &dx), OCT_OK);
    assert_int_equal(oct_arena_used_bytes(g->step->scratch), 0);
    oct_arena_release(g->step->saved, (oct_arena_mark){0, 0});
    fill(g->x, g->T * D, 30, 1.0f);
}

/* One expert's weights as a feed-forward of plain (or plainly converted) linears over its rows. */
static void expect_expert_alone(const garden *g, int e, const char *recipe) {
    oct_module *root = new_root();
    oct_feed_forward *ff;
    oct_recipe parsed;
    oct_weights *weights;
    oct_step *step;
    int64_t n = g->offsets[e + 1] - g->offsets[e], at = g->offsets[e] * D;
    assert_int_equal(oct_feed_forward_create(root, "alone", D, F, any, any, false, &ff), OCT_OK);
    oct_linear *const linears[] = {ff->w1, ff->w2, ff->w3};
    for (int i = 0; i < OCT_N_EXPERT_WEIGHTS; i++) {
        memcpy(linears[i]->weight->value, g->experts->w[i]->value + (size_t)e * D * F,
               sizeof(float) * D * F);
        linears[i]->weight->version++;
        linears[i]->weight->grad = oct_calloc_array((size_t)D * F, sizeof(float));
    }
    if (recipe) {
        assert_int_equal(oct_recipe_parse(recipe, &parsed, NULL), OCT_OK);
        oct_module_visit(root, make_mx, &parsed);
    }
    assert_int_equal(oct_weights_create(&weights), OCT_OK);
    assert_int_equal(oct_step_create(weights, g->step->activation, &step), OCT_OK);
    step->save = OCT_SAVE_FOR_BACKWARD;
    step->B = 1;
    step->S = n;
    float *y = oct_malloc_array((size_t)(n * D), sizeof *y);
    float *dx = oct_malloc_array((size_t)(n * D), sizeof *dx);
    oct_tensor xt = oct_tensor_2d(OCT_F32, n, D, g->x + at), yt = oct_tensor_2d(OCT_F32, n, D, y);
    oct_tensor dyt = oct_tensor_2d(OCT_F32, n, D, g->dy + at),
               dxt = oct_tensor_2d(OCT_F32, n, D, dx);
    assert_int_equal(oct_forward(&ff->base, step, &xt, &yt), OCT_OK);
    assert_int_equal(oct_backward(&ff->base, step, &dyt, &dxt, OCT_OVERWRITE), OCT_OK);
    assert_memory_equal(g->y + at, y, (size_t)(n * D) * sizeof *y);
    assert_memory_equal(g->dx + at, dx, (size_t)(n * D) * sizeof *dx);
    for (int i = 0; i < OCT_N_EXPERT_WEIGHTS; i++)
        assert_memory_equal(g->experts->w[i]->grad + (size_t)e * D * F, linears[i]->weight->grad,
                            sizeof(float) * D * F);
    oct_free(y);
    oct_free(dx);
    oct_step_destroy(step);
    oct_weights_destroy(weights);
    oct_module_destroy(root);
}

static void expect_zero_gradients(const garden *g, int e) {
    static const float zeros[D * F] = {0};
    for (int i = 0; i < OCT_N_EXPERT_WEIGHTS; i++)
        assert_memory_equal(g->experts->w[i]->grad + (size_t)e * D * F, zeros, sizeof zeros);
}

static void check_groups(const int64_t *sizes, const char *recipe, bool grouped,
                         oct_dtype activation) {
    garden g;
    garden_open(&g, sizes, activation);
    if (grouped)
        plan_experts(g.root, recipe, &g.recipe, &g.plan);
    garden_run(&g);
    for (int e = 0; e < E; e++) {
        if (sizes[e])
            expect_expert_alone(&g, e, recipe);
        else
            expect_zero_gradients(&g, e);
    }
    garden_close(&g);
}

static const int64_t uneven[E] = {162, 0, 2577, 446, 0, 83}, none[E] = {0},
                     one[E] = {0, 0, 0, 611, 0, 0}, short_groups[E] = {44, 44, 44, 44, 44, 44};

static void given_a_loop_each_expert_gets_the_bits_that_it_has_alone(void **state) {
    (void)state;
    check_groups(uneven, NULL, false, OCT_F32);
    check_groups(uneven, NULL, false, OCT_BF16);
    check_groups(none, NULL, false, OCT_F32);
    check_groups(one, NULL, false, OCT_BF16);
}

static void given_one_grouped_product_each_expert_gets_the_bits_that_it_has_alone(void **state) {
    (void)state;
    check_groups(uneven, NULL, true, OCT_F32);
    check_groups(uneven, NULL, true, OCT_BF16);
    check_groups(none, NULL, true, OCT_F32);
    check_groups(one, NULL, true, OCT_BF16);
}

static void given_8_bit_experts_each_gets_the_bits_of_the_plain_product_alone(void **state) {
    (void)state;
    check_groups(uneven, "mxfp8", true, OCT_BF16);
    check_groups(uneven, "hif8", true, OCT_BF16);
    check_groups(none, "mxfp8", true, OCT_BF16);
    check_groups(none, "hif8", true, OCT_BF16);
    check_groups(one, "mxfp8", true, OCT_F32);
    check_groups(one, "hif8", true, OCT_F32);
}

static void given_groups_of_44_tokens_blocks_stay_inside_each_group(void **state) {
    (void)state;
    static const char *const recipes[] = {"mxfp8",
                                          "mxfp8-32x32",
                                          "hif8",
                                          "hif8_full_range",
                                          "dynamic_per_channel_E4M3_E4M3_E5M2",
                                          "dynamic_per_tensor_E4M3_E5M2_E5M2",
                                          "delayed_per_tensor_E4M3_E4M3_E5M2",
                                          "dynamic_MX-1-1-32_E5M2_E4M3_E5M2"};
    for (size_t i = 0; i < OCT_COUNT(recipes); i++)
        check_groups(short_groups, recipes[i], true, OCT_BF16);
}

/* Scales and codes of every group against the group quantized alone. */
static void given_groups_quantized_in_one_pass_codes_and_scales_are_each_groups_own(void **state) {
    (void)state;
    static const char *const recipes[] = {"mxfp8", "hif8", "dynamic_per_channel_E4M3_E4M3_E4M3"};
    static const int64_t sizes[] = {44, 0, 1, 200, 31, 64};
    enum { COLS = 70, N = 6 };
    int64_t offsets[N + 1] = {0};
    for (int g = 0; g < N; g++)
        offsets[g + 1] = offsets[g] + sizes[g];
    float *x = oct_malloc_array((size_t)(offsets[N] * COLS), sizeof *x);
    fill(x, offsets[N] * COLS, 8, 1.0f);
    for (size_t k = 0; k < 3; k++) {
        oct_arena *arena = oct_arena_create();
        oct_arena *const arenas[2] = {arena, arena};
        oct_recipe recipe;
        oct_quantized groups[N], alone;
        assert_int_equal(oct_recipe_parse(recipes[k], &recipe, NULL), OCT_OK);
        const oct_matrix_view all = {x, OCT_F32, offsets[N], COLS, COLS};
        oct_amax amax = {.use = -1.0f}, largest = {0};
        assert_int_equal(oct_quantize_groups(&all, offsets, N, &recipe, OCT_ROLE_GRAD,
                                             OCT_ALONG_BOTH, arenas, &amax, groups),
                         OCT_OK);
        for (int g = 0; g < N; g++) {
            const oct_matrix_view view = {x + offsets[g] * COLS, OCT_F32, sizes[g], COLS, COLS};
            oct_amax own = {.use = -1.0f};
            assert_int_equal(
                oct_quantize(&view, &recipe, OCT_ROLE_GRAD, OCT_ALONG_BOTH, arenas, &own, &alone),
                OCT_OK);
            largest.seen = fmaxf(largest.seen, own.seen);
            for (int dim = 0; dim < 2; dim++) {
                const oct_qmatrix *a = &groups[g].along[dim], *b = &alone.along[dim];
                assert_int_equal(a->rows, b->rows);
                assert_int_equal(a->ld_scales, b->ld_scales);
                assert_memory_equal(a->codes, b->codes, (size_t)(a->rows * a->cols));
                size_t n_bytes = k == 0 ? (size_t)(a->rows * a->ld_scales)
                                        : sizeof(float) * (k == 1 ? 1 : (size_t)a->rows);
                assert_memory_equal(a->scales, b->scales, n_bytes);
            }
            if (k == 0)
                assert_int_equal(groups[g].along[0].ld_scales, (sizes[g] + 31) / 32);
            if (k == 1 && sizes[g] == 0)
                assert_true(*(const float *)groups[g].along[1].scales == 1.0f);
        }
        if (k == 1)
            assert_true(amax.seen == largest.seen);
        oct_arena_destroy(arena);
    }
    oct_free(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_a_loop_each_expert_gets_the_bits_that_it_has_alone),
        cmocka_unit_test(given_one_grouped_product_each_expert_gets_the_bits_that_it_has_alone),
        cmocka_unit_test(given_8_bit_experts_each_gets_the_bits_of_the_plain_product_alone),
        cmocka_unit_test(given_groups_of_44_tokens_blocks_stay_inside_each_group),
        cmocka_unit_test(given_groups_quantized_in_one_pass_codes_and_scales_are_each_groups_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
