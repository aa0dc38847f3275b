/* Embedding: see embedding.h. Forward keeps a pointer to the ids. */
#include "nn/embedding.h"

#include "base/alloc.h"
#include "nn/gradient.h"
#include "op/elementwise.h"

static oct_status forward(oct_module *m, oct_step *step, const oct_tensor *x, oct_tensor *y) {
    oct_embedding *embedding = (oct_embedding *)m;
    oct_tensor weight;
    oct_status status =
        oct_weights_dense(step->weights, embedding->weight, step->activation, &weight);
    if (status)
        return status;
    if (step->save == OCT_SAVE_FOR_BACKWARD)
        m->saved = x->data;
    return oct_embedding_forward(&weight, x->data, y);
}

static oct_status backward(oct_module *m, oct_step *step, const oct_tensor *dy, oct_tensor *dx,
                           oct_accumulate accumulate) {
    (void)dx, (void)accumulate;
    oct_param *weight = ((oct_embedding *)m)->weight;
    oct_gradient gradient;
    if (!weight->grad)
        return OCT_OK;
    oct_status status = oct_gradient_begin(step, weight, &gradient);
    if (status)
        return status;
    status = oct_embedding_backward(dy, m->saved, weight->shape[0], weight->grad);
    return oct_gradient_end(step, &gradient, status);
}

static const oct_module_ops ops = {
    .type_name = "Embedding", .forward = forward, .backward = backward, .keeps_input = true};

oct_status oct_embedding_create(oct_module *parent, const char *component, int64_t V, int64_t D,
                                oct_init init, oct_embedding **out) {
    oct_embedding *embedding =
        oct_module_create(sizeof *embedding, OCT_MODULE_EMBEDDING, &ops, parent, component);
    if (!embedding)
        return OCT_NO_MEMORY;
    *out = embedding;
    return oct_module_add_param(&embedding->base, "weight", 2, (int64_t[]){V, D}, init,
                                &embedding->weight);
}
