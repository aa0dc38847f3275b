/* Linear in high precision: see linear.h. Forward keeps a pointer to x, nothing else. */
#include "nn/linear.h"

#include "base/alloc.h"
#include "nn/gradient.h"
#include "op/matmul.h"

static oct_status forward(oct_module *m, oct_step *step, const oct_tensor *x, oct_tensor *y) {
    oct_linear *linear = (oct_linear *)m;
    oct_tensor weight, bias = {0};
    oct_status status = oct_weights_dense(step->weights, linear->weight, step->activation, &weight);
    if (!status && linear->bias)
        status = oct_weights_dense(step->weights, linear->bias, OCT_F32, &bias);
    if (status)
        return status;
    if (step->save == OCT_SAVE_FOR_BACKWARD) {
        oct_tensor *kept = oct_step_keep(step, sizeof *kept);
        if (!kept)
            return OCT_NO_MEMORY;
        *kept = *x;
        m->saved = kept;
    }
    if (!y->data)
        return OCT_OK;
    return oct_matmul_forward(x, &weight, bias.data, y, step->scratch);
}

oct_status oct_linear_bias_gradient(oct_linear *linear, oct_step *step, const oct_tensor *dy) {
    oct_gradient gradient;
    if (!linear->bias || !linear->bias->grad)
        return OCT_OK;
    oct_status status = oct_gradient_begin(step, linear->bias, &gradient);
    if (status)
        return status;
    status = oct_matmul_bias_gradient(dy, linear->bias->grad, step->scratch);
    return oct_gradient_end(step, &gradient, status);
}

static oct_status backward(oct_module *m, oct_step *step, const oct_tensor *dy, oct_tensor *dx,
                           oct_accumulate accumulate) {
    oct_linear *linear = (oct_linear *)m;
    oct_status status = OCT_OK;
    if (linear->weight->grad)
        status = oct_matmul_weight_gradient(dy, m->saved, linear->weight->grad, step->gradient,
                                            step->scratch);
    if (!status)
        status = oct_linear_bias_gradient(linear, step, dy);
    if (status || !dx)
        return status;
    oct_tensor weight;
    status = oct_weights_dense(step->weights, linear->weight, step->activation, &weight);
    if (status)
        return status;
    return oct_matmul_input_gradient(dy, &weight, dx, accumulate, step->scratch);
}

static void replace_input(oct_module *m, const oct_tensor *x) {
    *(oct_tensor *)m->saved = *x;
}

const oct_module_ops oct_linear_ops = {.type_name = "Linear",
                                       .forward = forward,
                                       .backward = backward,
                                       .keeps_input = true,
                                       .replace_input = replace_input};

static oct_linear *create(oct_module *parent, const char *component, int64_t in_features,
                          int64_t out_features) {
    oct_linear *linear =
        oct_module_create(sizeof *linear, OCT_MODULE_LINEAR, &oct_linear_ops, parent, component);
    if (linear) {
        linear->in_features = in_features;
        linear->out_features = out_features;
    }
    return linear;
}

oct_status oct_linear_create(oct_module *parent, const char *component, int64_t in_features,
                             int64_t out_features, oct_init weight_init, const oct_init *bias_init,
                             oct_linear **out) {
    oct_linear *linear = create(parent, component, in_features, out_features);
    if (!linear)
        return OCT_NO_MEMORY;
    *out = linear;
    oct_module *m = &linear->base;
    const int64_t shape[2] = {out_features, in_features};
    oct_status status = oct_module_add_param(m, "weight", 2, shape, weight_init, &linear->weight);
    if (status || !bias_init)
        return status;
    return oct_module_add_param(m, "bias", 1, &out_features, *bias_init, &linear->bias);
}

oct_status oct_linear_create_tied(oct_module *parent, const char *component, oct_param *weight,
                                  oct_linear **out) {
    oct_linear *linear = create(parent, component, weight->shape[1], weight->shape[0]);
    if (!linear)
        return OCT_NO_MEMORY;
    linear->weight = weight;
    *out = linear;
    return OCT_OK;
}

oct_linear *oct_linear_from(oct_module *m) {
    return m->kind == OCT_MODULE_LINEAR ? (oct_linear *)m : NULL;
}
