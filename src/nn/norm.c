/* RMSNorm: see norm.h. */
#include "nn/norm.h"

#include "base/alloc.h"
#include "nn/gradient.h"
#include "op/norm.h"

typedef struct kept {
    oct_tensor x;
    float *rstd;
} kept;

static oct_status forward(oct_module *m, oct_step *step, const oct_tensor *x, oct_tensor *y) {
    oct_norm *norm = (oct_norm *)m;
    oct_tensor weight;
    oct_status status = oct_weights_dense(step->weights, norm->weight, step->activation, &weight);
    if (status)
        return status;
    float *rstd = NULL;
    if (step->save == OCT_SAVE_FOR_BACKWARD) {
        size_t n_rows = (size_t)(oct_tensor_elements(x) / norm->weight->shape[0]);
        kept *k = oct_step_keep(step, sizeof *k);
        rstd = oct_arena_alloc_array(step->saved, n_rows, sizeof *rstd);
        if (!k || !rstd)
            return OCT_NO_MEMORY;
        *k = (kept){*x, rstd};
        m->saved = k;
    }
    return oct_rmsnorm_forward(x, &weight, norm->eps, y, rstd, step->scratch);
}

static oct_status backward(oct_module *m, oct_step *step, const oct_tensor *dy, oct_tensor *dx,
                           oct_accumulate accumulate) {
    oct_norm *norm = (oct_norm *)m;
    const kept *k = m->saved;
    oct_tensor weight;
    oct_status status = oct_weights_dense(step->weights, norm->weight, step->activation, &weight);
    if (status)
        return status;
    oct_gradient gradient;
    status = oct_gradient_begin(step, norm->weight, &gradient);
    if (status)
        return status;
    status = oct_rmsnorm_backward(dy, &k->x, &weight, k->rstd, dx, accumulate, norm->weight->grad,
                                  step->scratch);
    return oct_gradient_end(step, &gradient, status);
}

static void replace_input(oct_module *m, const oct_tensor *x) {
    ((kept *)m->saved)->x = *x;
}

static const oct_module_ops ops = {.type_name = "RMSNorm",
                                   .forward = forward,
                                   .backward = backward,
                                   .keeps_input = true,
                                   .replace_input = replace_input};

oct_status oct_norm_create(oct_module *parent, const char *component, int64_t D, float eps,
                           oct_norm **out) {
    oct_norm *norm = oct_module_create(sizeof *norm, OCT_MODULE_NORM, &ops, parent, component);
    if (!norm)
        return OCT_NO_MEMORY;
    norm->eps = eps;
    *out = norm;
    oct_init ones = {.kind = OCT_INIT_ONES};
    return oct_module_add_param(&norm->base, "weight", 1, &D, ones, &norm->weight);
}
