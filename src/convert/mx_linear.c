/* MXLinear: see mx_linear.h. */
#include "convert/mx_linear.h"

#include "nn/linear.h"
#include "nn/step.h"

/* What forward leaves for backward. */
typedef struct saved {
    oct_quantized x; /* along[0]: Q_T(x) */
} saved;

static oct_status run(oct_step *step, const oct_recipe *recipe, const oct_gemm_problem *problem) {
    oct_arena_mark mark = oct_arena_get_mark(step->scratch);
    void *workspace = oct_arena_alloc(step->scratch, oct_gemm_workspace(problem, 1, recipe->gemm));
    if (!workspace)
        return OCT_NO_MEMORY;
    oct_gemm(problem, 1, recipe->gemm, workspace);
    oct_arena_release(step->scratch, mark);
    return OCT_OK;
}

/* To whom it concerns, a whole matrix. */
static oct_status show(const oct_linear *linear, const oct_step *step, oct_role role,
                       const oct_matrix_view *x, uint64_t id, const oct_quantized *q) {
    const int64_t offsets[2] = {0, x->rows};
    const oct_quant_sight sight = {.module = &linear->base,
                                   .role = role,
                                   .x = x,
                                   .id = id,
                                   .offsets = offsets,
                                   .groups = q,
                                   .n_groups = 1};
    return oct_step_show(step, &sight);
}

static oct_status show_forward(const oct_linear *linear, const oct_step *step, const oct_tensor *x,
                               const oct_quantized *xq, const oct_quantized *wq) {
    const oct_param *weight = linear->weight;
    const int64_t K = linear->in_features, N = linear->out_features;
    const oct_matrix_view input = {x->data, x->dtype, oct_tensor_rows(x), K, K};
    const oct_matrix_view master = {weight->value, OCT_F32, N, K, K};
    if (!step->observer)
        return OCT_OK;
    oct_status status = show(linear, step, OCT_ROLE_INPUT, &input, x->id, xq);
    if (status || weight->n_held < N * K)
        return status;
    return show(linear, step, OCT_ROLE_WEIGHT, &master, 0, wq);
}

static oct_status forward(oct_module *m, oct_step *step, const oct_tensor *x, oct_tensor *y) {
    oct_linear *linear = oct_linear_from(m);
    const oct_recipe *recipe = linear->recipe;
    bool saving = step->save == OCT_SAVE_FOR_BACKWARD;
    oct_along which = saving ? OCT_ALONG_BOTH : OCT_ALONG_1;
    /* The copy along T is for backward; the one along K lives until the parent leaves, for the
     * siblings. */
    oct_arena *const arenas[2] = {saving ? step->saved : step->scratch, step->scratch};
    oct_quantized xq, wq;
    oct_tensor bias = {0};
    oct_amax x_amax = oct_delayed_amax(linear->delayed, OCT_ROLE_INPUT);
    oct_amax w_amax = oct_delayed_amax(linear->delayed, OCT_ROLE_WEIGHT);
    oct_status status = oct_quant_cache_quantize(step->quant_cache, x, recipe, OCT_ROLE_INPUT,
                                                 which, arenas, &x_amax, &xq);
    if (!status)
        status =
            oct_weights_quantized(step->weights, linear->weight, 0, recipe, which, &w_amax, &wq);
    if (!status && linear->bias)
        status = oct_weights_dense(step->weights, linear->bias, OCT_F32, &bias);
    if (status)
        return status;
    const oct_gemm_problem problem = {.M = oct_tensor_rows(x),
                                      .N = linear->out_features,
                                      .K = linear->in_features,
                                      .a = oct_quantized_operand(&xq, 1),
                                      .b = oct_quantized_operand(&wq, 1),
                                      .c = y->data,
                                      .c_dtype = y->dtype,
                                      .ld_c = linear->out_features,
                                      .bias = bias.data};
    if (y->data)
        status = run(step, recipe, &problem);
    if (!status && saving)
        status = show_forward(linear, step, x, &xq, &wq);
    if (status || !saving)
        return status;
    saved *s = oct_arena_alloc(step->saved, sizeof *s);
    if (!s)
        return OCT_NO_MEMORY;
    s->x = xq;
    m->saved = s;
    oct_delayed_observe(linear->delayed, OCT_ROLE_INPUT, x_amax);
    oct_delayed_observe(linear->delayed, OCT_ROLE_WEIGHT, w_amax);
    return OCT_OK;
}

static oct_status input_gradient(oct_linear *linear, oct_step *step, const oct_quantized *dyq,
                                 oct_tensor *dx, oct_accumulate accumulate) {
    oct_quantized wq;
    oct_amax amax = oct_delayed_amax(linear->delayed, OCT_ROLE_WEIGHT);
    oct_status status = oct_weights_quantized(step->weights, linear->weight, 0, linear->recipe,
                                              OCT_ALONG_0, &amax, &wq);
    if (status)
        return status;
    const oct_gemm_problem problem = {.M = oct_tensor_rows(dx),
                                      .N = linear->in_features,
                                      .K = linear->out_features,
                                      .a = oct_quantized_operand(dyq, 1),
                                      .b = oct_quantized_operand(&wq, 0),
                                      .c = dx->data,
                                      .c_dtype = dx->dtype,
                                      .ld_c = linear->in_features,
                                      .accumulate = accumulate};
    return run(step, linear->recipe, &problem);
}

static oct_status weight_gradient(oct_linear *linear, oct_step *step, const oct_quantized *dyq,
                                  int64_t T) {
    const saved *s = linear->base.saved;
    const oct_gemm_problem problem = {.M = linear->out_features,
                                      .N = linear->in_features,
                                      .K = T,
                                      .a = oct_quantized_operand(dyq, 0),
                                      .b = oct_quantized_operand(&s->x, 0),
                                      .c = linear->weight->grad,
                                      .c_dtype = OCT_F32,
                                      .ld_c = linear->in_features,
                                      .accumulate = OCT_ADD_TO_OUTPUT,
                                      .sum_dtype = step->gradient};
    return run(step, linear->recipe, &problem);
}

static oct_status backward(oct_module *m, oct_step *step, const oct_tensor *dy, oct_tensor *dx,
                           oct_accumulate accumulate) {
    oct_linear *linear = oct_linear_from(m);
    bool train_weight = linear->weight->grad != NULL;
    if (!dx && !train_weight)
        return OCT_OK;
    oct_along which = dx && train_weight ? OCT_ALONG_BOTH : dx ? OCT_ALONG_1 : OCT_ALONG_0;
    oct_arena *const arenas[2] = {step->scratch, step->scratch};
    oct_arena_mark mark = oct_arena_get_mark(step->scratch);
    oct_matrix_view view = {dy->data, dy->dtype, oct_tensor_rows(dy), linear->out_features,
                            linear->out_features};
    oct_quantized dyq;
    oct_amax amax = oct_delayed_amax(linear->delayed, OCT_ROLE_GRAD);
    oct_status status =
        oct_quantize(&view, linear->recipe, OCT_ROLE_GRAD, which, arenas, &amax, &dyq);
    oct_delayed_observe(linear->delayed, OCT_ROLE_GRAD, amax);
    if (!status)
        status = show(linear, step, OCT_ROLE_GRAD, &view, 0, &dyq);
    if (!status && train_weight)
        status = weight_gradient(linear, step, &dyq, view.rows);
    if (!status && dx)
        status = input_gradient(linear, step, &dyq, dx, accumulate);
    if (!status)
        status = oct_linear_bias_gradient(linear, step, dy);
    oct_arena_release(step->scratch, mark);
    return status;
}

static void destroy(oct_module *m) {
    oct_delayed_destroy(oct_linear_from(m)->delayed);
}

const oct_module_ops oct_mx_linear_ops = {.type_name = "MXLinear",
                                          .forward = forward,
                                          .backward = backward,
                                          .keeps_input = false,
                                          .destroy = destroy};
