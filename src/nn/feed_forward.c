/* SwiGLU feed-forward: see feed_forward.h. */
#include "nn/feed_forward.h"

#include "base/alloc.h"
#include "nn/step.h"
#include "op/elementwise.h"

typedef struct kept {
    oct_tensor gate, up; /* (T,F): w1(x), w3(x) */
} kept;

static bool product_is_wanted(const oct_feed_forward *ff) {
    return oct_module_keeps_input(&ff->w2->base);
}

static oct_status run_forward(oct_feed_forward *ff, oct_step *step, const oct_tensor *x, kept *k,
                              oct_tensor *y) {
    int64_t T = step->B * step->S, F = ff->w1->out_features;
    bool keep_product = product_is_wanted(ff) && ff->product == OCT_PRODUCT_KEPT;
    k->gate = oct_step_tensor(step, step->activation, T, F, true);
    k->up = oct_step_tensor(step, step->activation, T, F, true);
    oct_tensor product = oct_step_tensor(step, step->activation, T, F, keep_product);
    if (!k->gate.data || !k->up.data || !product.data)
        return OCT_NO_MEMORY;
    oct_status status = oct_forward(&ff->w1->base, step, x, &k->gate);
    if (!status)
        status = oct_forward(&ff->w3->base, step, x, &k->up);
    if (!status)
        status = oct_swiglu_forward(&k->gate, &k->up, &product);
    if (status)
        return status;
    return oct_forward(&ff->w2->base, step, &product, y);
}

static oct_status forward(oct_module *m, oct_step *step, const oct_tensor *x, oct_tensor *y) {
    kept local, *k = &local;
    if (step->save == OCT_SAVE_FOR_BACKWARD) {
        k = oct_step_keep(step, sizeof *k);
        if (!k)
            return OCT_NO_MEMORY;
        m->saved = k;
    }
    oct_step_mark mark = oct_step_enter(step);
    oct_status status = run_forward((oct_feed_forward *)m, step, x, k, y);
    oct_step_leave(step, mark);
    return status;
}

/* dproduct = the gradient of w2's input. */
static oct_status product_backward(oct_feed_forward *ff, oct_step *step, const oct_tensor *dy,
                                   oct_tensor *dproduct) {
    const kept *k = ff->base.saved;
    if (product_is_wanted(ff) && ff->product == OCT_PRODUCT_RECOMPUTED) {
        oct_tensor product =
            oct_step_scratch(step, k->gate.dtype, k->gate.shape[0], k->gate.shape[1]);
        if (!product.data)
            return OCT_NO_MEMORY;
        oct_status status = oct_swiglu_forward(&k->gate, &k->up, &product);
        if (status)
            return status;
        oct_module_replace_input(&ff->w2->base, &product);
    }
    return oct_backward(&ff->w2->base, step, dy, dproduct, OCT_OVERWRITE);
}

static oct_status run_backward(oct_feed_forward *ff, oct_step *step, const oct_tensor *dy,
                               oct_tensor *dx, oct_accumulate accumulate) {
    kept *k = ff->base.saved;
    oct_tensor dproduct = oct_step_scratch(step, k->gate.dtype, k->gate.shape[0], k->gate.shape[1]);
    if (!dproduct.data)
        return OCT_NO_MEMORY;
    oct_step_mark mark = oct_step_enter(step);
    oct_status status = product_backward(ff, step, dy, &dproduct);
    oct_step_leave(step, mark);
    if (status)
        return status;
    /* gate and up are read here for the last time: their gradients take their place. */
    oct_tensor dgate = k->gate, dup = k->up;
    dgate.id = oct_step_new_id(step);
    dup.id = oct_step_new_id(step);
    status = oct_swiglu_backward(&dproduct, &k->gate, &k->up, &dgate, &dup);
    if (!status)
        status = oct_backward(&ff->w1->base, step, &dgate, dx, accumulate);
    if (status)
        return status;
    return oct_backward(&ff->w3->base, step, &dup, dx, OCT_ADD_TO_OUTPUT);
}

static oct_status backward(oct_module *m, oct_step *step, const oct_tensor *dy, oct_tensor *dx,
                           oct_accumulate accumulate) {
    oct_step_mark mark = oct_step_enter(step);
    oct_status status = run_backward((oct_feed_forward *)m, step, dy, dx, accumulate);
    oct_step_leave(step, mark);
    return status;
}

static bool passes_input(const oct_module *m) {
    const oct_feed_forward *ff = (const oct_feed_forward *)m;
    return oct_module_keeps_input(&ff->w1->base) || oct_module_keeps_input(&ff->w3->base);
}

static void replace_input(oct_module *m, const oct_tensor *x) {
    oct_feed_forward *ff = (oct_feed_forward *)m;
    oct_module_replace_input(&ff->w1->base, x);
    oct_module_replace_input(&ff->w3->base, x);
}

static const oct_module_ops ops = {.type_name = "FeedForward",
                                   .forward = forward,
                                   .backward = backward,
                                   .passes_input = passes_input,
                                   .replace_input = replace_input};

oct_status oct_feed_forward_create(oct_module *parent, const char *component, int64_t D, int64_t F,
                                   oct_init w1_init, oct_init w2_w3_init, bool bias,
                                   oct_feed_forward **out) {
    const oct_init zero = {.kind = OCT_INIT_ZEROS}, *bias_init = bias ? &zero : NULL;
    oct_feed_forward *ff =
        oct_module_create(sizeof *ff, OCT_MODULE_FEED_FORWARD, &ops, parent, component);
    if (!ff)
        return OCT_NO_MEMORY;
    *out = ff;
    oct_status status;
    status = oct_linear_create(&ff->base, "w1", D, F, w1_init, bias_init, &ff->w1);
    if (!status)
        status = oct_linear_create(&ff->base, "w2", F, D, w2_w3_init, bias_init, &ff->w2);
    if (status)
        return status;
    return oct_linear_create(&ff->base, "w3", D, F, w2_w3_init, bias_init, &ff->w3);
}
