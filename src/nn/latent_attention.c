/* Multi-head latent attention: see latent_attention.h. */
#include "nn/latent_attention.h"

#include "base/alloc.h"
#include "nn/heads.h"

static int64_t qk_dim(const oct_latent_attention *a) {
    return a->config.heads.nope_dim + a->config.heads.rope_dim;
}

static oct_attention_shape shape_of(const oct_latent_attention *a, const oct_step *step) {
    return (oct_attention_shape){.B = step->B,
                                 .S = step->S,
                                 .n_heads = a->config.heads.n_heads,
                                 .n_kv_heads = a->config.heads.n_heads,
                                 .qk_dim = qk_dim(a),
                                 .v_dim = a->config.heads.v_dim,
                                 .scale = a->config.scale,
                                 .first_keys = step->first_keys};
}

/* Rotates the positional elements of every query head, or of the one shared key. */
static oct_status rotate_q(const oct_latent_attention *a, const oct_step *step, oct_tensor *q,
                           oct_rope_turn turn) {
    return oct_rope_apply(a->config.rotary->table, q, step->S, step->position, qk_dim(a),
                          a->config.heads.nope_dim, turn);
}

static oct_status rotate_k(const oct_latent_attention *a, const oct_step *step, oct_tensor *k_rope,
                           oct_rope_turn turn) {
    return oct_rope_apply(a->config.rotary->table, k_rope, step->S, step->position,
                          a->config.heads.rope_dim, 0, turn);
}

/* q = wq(x), or through its latent; what the second linear reads is kept if it wants it. */
static oct_status project_q(oct_latent_attention *a, oct_step *step, const oct_tensor *x,
                            oct_tensor *q) {
    if (a->wq)
        return oct_forward(&a->wq->base, step, x, q);
    int64_t T = oct_tensor_rows(x);
    oct_tensor latent = oct_step_tensor(step, step->activation, T, a->config.q_rank, true);
    oct_tensor normed = oct_step_tensor(step, step->activation, T, a->config.q_rank,
                                        oct_module_keeps_input(&a->wq_b->base));
    if (!latent.data || !normed.data)
        return OCT_NO_MEMORY;
    oct_status status = oct_forward(&a->wq_a->base, step, x, &latent);
    if (!status)
        status = oct_forward(&a->q_norm->base, step, &latent, &normed);
    if (status)
        return status;
    return oct_forward(&a->wq_b->base, step, &normed, q);
}

static oct_status project_kv(oct_latent_attention *a, oct_step *step, const oct_tensor *x,
                             oct_tensor *k, oct_tensor *v) {
    const oct_latent_attention_config *c = &a->config;
    int64_t T = oct_tensor_rows(x), R = c->kv_rank;
    oct_dtype dtype = step->activation;
    oct_tensor both = oct_step_scratch(step, dtype, T, R + c->heads.rope_dim);
    oct_tensor k_rope = oct_step_scratch(step, dtype, T, c->heads.rope_dim);
    oct_tensor latent = oct_step_tensor(step, dtype, T, R, true);
    oct_tensor normed = oct_step_tensor(step, dtype, T, R, oct_module_keeps_input(&a->wkv_b->base));
    oct_tensor up =
        oct_step_scratch(step, dtype, T, c->heads.n_heads * (c->heads.nope_dim + c->heads.v_dim));
    if (!both.data || !k_rope.data || !latent.data || !normed.data || !up.data)
        return OCT_NO_MEMORY;
    oct_status status = oct_forward(&a->wkv_a->base, step, x, &both);
    if (!status)
        status = oct_latent_split(&both, &latent, &k_rope);
    if (!status)
        status = rotate_k(a, step, &k_rope, OCT_ROPE_FORWARD);
    if (!status)
        status = oct_forward(&a->kv_norm->base, step, &latent, &normed);
    if (!status)
        status = oct_forward(&a->wkv_b->base, step, &normed, &up);
    if (status)
        return status;
    return oct_latent_heads(&c->heads, &up, &k_rope, k, v);
}

/* The kept q and k are rotated. */
static oct_status run_forward(oct_module *m, oct_step *step, const oct_tensor *x, oct_heads *kept,
                              oct_tensor *y) {
    oct_latent_attention *a = (oct_latent_attention *)m;
    oct_attention_shape shape = shape_of(a, step);
    oct_status status = oct_rotary_reserve(a->config.rotary, step->position + step->S);
    if (!status)
        status = oct_heads_allocate(step, &shape, kept);
    if (!status)
        status = project_q(a, step, x, &kept->q);
    if (!status)
        status = rotate_q(a, step, &kept->q, OCT_ROPE_FORWARD);
    if (!status)
        status = project_kv(a, step, x, &kept->k, &kept->v);
    if (!status)
        status = oct_heads_attend(step, a->config.layer, &shape, &kept->q, &kept->k, kept);
    if (status)
        return status;
    return oct_forward(&a->wo->base, step, &kept->o, y);
}

static oct_status forward(oct_module *m, oct_step *step, const oct_tensor *x, oct_tensor *y) {
    return oct_heads_forward(m, step, x, y, run_forward);
}

static oct_status attend_back(oct_module *m, oct_step *step, const oct_tensor *dy,
                              oct_head_grads *grads) {
    oct_latent_attention *a = (oct_latent_attention *)m;
    const oct_heads *k = m->saved;
    oct_tensor d_o = oct_heads_scratch_like(step, &k->o);
    if (!d_o.data)
        return OCT_NO_MEMORY;
    oct_status status = oct_backward(&a->wo->base, step, dy, &d_o, OCT_OVERWRITE);
    if (status)
        return status;
    oct_attention_shape shape = shape_of(a, step);
    return oct_attention_backward(&shape, &k->q, &k->k, &k->v, &k->o, k->lse, &d_o, &grads->q,
                                  &grads->k, &grads->v, step->scratch);
}

static oct_status backward_q(oct_latent_attention *a, oct_step *step, oct_tensor *dq,
                             oct_tensor *dx, oct_accumulate accumulate) {
    oct_status status = rotate_q(a, step, dq, OCT_ROPE_BACKWARD);
    if (status)
        return status;
    if (a->wq)
        return oct_backward(&a->wq->base, step, dq, dx, accumulate);
    oct_tensor dnormed = oct_step_scratch(step, dq->dtype, oct_tensor_rows(dq), a->config.q_rank);
    if (!dnormed.data)
        return OCT_NO_MEMORY;
    status = oct_backward(&a->wq_b->base, step, dq, &dnormed, OCT_OVERWRITE);
    if (!status)
        status = oct_backward(&a->q_norm->base, step, &dnormed, &dnormed, OCT_OVERWRITE);
    if (status)
        return status;
    return oct_backward(&a->wq_a->base, step, &dnormed, dx, accumulate);
}

static oct_status backward_kv(oct_latent_attention *a, oct_step *step, const oct_tensor *dk,
                              const oct_tensor *dv, oct_tensor *dx) {
    const oct_latent_attention_config *c = &a->config;
    int64_t T = oct_tensor_rows(dk);
    oct_tensor dup = oct_step_scratch(step, dk->dtype, T,
                                      c->heads.n_heads * (c->heads.nope_dim + c->heads.v_dim));
    oct_tensor dk_rope = oct_step_scratch(step, dk->dtype, T, c->heads.rope_dim);
    oct_tensor dlatent = oct_step_scratch(step, dk->dtype, T, c->kv_rank);
    oct_tensor both = oct_step_scratch(step, dk->dtype, T, c->kv_rank + c->heads.rope_dim);
    if (!dup.data || !dk_rope.data || !dlatent.data || !both.data)
        return OCT_NO_MEMORY;
    oct_status status = oct_latent_heads_backward(&c->heads, dk, dv, &dup, &dk_rope);
    if (!status)
        status = rotate_k(a, step, &dk_rope, OCT_ROPE_BACKWARD);
    if (!status)
        status = oct_backward(&a->wkv_b->base, step, &dup, &dlatent, OCT_OVERWRITE);
    if (!status)
        status = oct_backward(&a->kv_norm->base, step, &dlatent, &dlatent, OCT_OVERWRITE);
    if (!status)
        status = oct_latent_join(&dlatent, &dk_rope, &both);
    if (status)
        return status;
    return oct_backward(&a->wkv_a->base, step, &both, dx, OCT_ADD_TO_OUTPUT);
}

static oct_status project_back(oct_module *m, oct_step *step, oct_head_grads *grads, oct_tensor *dx,
                               oct_accumulate accumulate) {
    oct_latent_attention *a = (oct_latent_attention *)m;
    oct_status status = backward_q(a, step, &grads->q, dx, accumulate);
    return status ? status : backward_kv(a, step, &grads->k, &grads->v, dx);
}

static oct_status backward(oct_module *m, oct_step *step, const oct_tensor *dy, oct_tensor *dx,
                           oct_accumulate accumulate) {
    return oct_heads_backward(m, step, dy, dx, accumulate, attend_back, project_back);
}

static oct_module *first_of_q(const oct_latent_attention *a) {
    return a->wq ? &a->wq->base : &a->wq_a->base;
}

static bool passes_input(const oct_module *m) {
    const oct_latent_attention *a = (const oct_latent_attention *)m;
    return oct_module_keeps_input(first_of_q(a)) || oct_module_keeps_input(&a->wkv_a->base);
}

static void replace_input(oct_module *m, const oct_tensor *x) {
    oct_latent_attention *a = (oct_latent_attention *)m;
    oct_module_replace_input(first_of_q(a), x);
    oct_module_replace_input(&a->wkv_a->base, x);
}

static const oct_module_ops ops = {.type_name = "LatentAttention",
                                   .forward = forward,
                                   .backward = backward,
                                   .passes_input = passes_input,
                                   .replace_input = replace_input};

static const oct_init zero = {.kind = OCT_INIT_ZEROS}; /* of biases */

static oct_status create_q(oct_latent_attention *a) {
    const oct_latent_attention_config *c = &a->config;
    oct_module *m = &a->base;
    int64_t wide = c->heads.n_heads * qk_dim(a);
    if (c->q_rank == 0)
        return oct_linear_create(m, "wq", c->dim, wide, c->init, NULL, &a->wq);
    oct_status status =
        oct_linear_create(m, "wq_a", c->dim, c->q_rank, c->init, c->bias ? &zero : NULL, &a->wq_a);
    if (!status)
        status = oct_norm_create(m, "q_norm", c->q_rank, c->norm_eps, &a->q_norm);
    if (status)
        return status;
    return oct_linear_create(m, "wq_b", c->q_rank, wide, c->init, NULL, &a->wq_b);
}

static oct_status create_children(oct_latent_attention *a) {
    const oct_latent_attention_config *c = &a->config;
    const oct_latent_shape *h = &c->heads;
    const oct_init *bias = c->bias ? &zero : NULL;
    oct_module *m = &a->base;
    oct_status status = create_q(a);
    if (!status)
        status = oct_linear_create(m, "wkv_a", c->dim, c->kv_rank + h->rope_dim, c->init, bias,
                                   &a->wkv_a);
    if (!status)
        status = oct_norm_create(m, "kv_norm", c->kv_rank, c->norm_eps, &a->kv_norm);
    if (!status)
        status = oct_linear_create(m, "wkv_b", c->kv_rank, h->n_heads * (h->nope_dim + h->v_dim),
                                   c->init, NULL, &a->wkv_b);
    if (status)
        return status;
    return oct_linear_create(m, "wo", h->n_heads * h->v_dim, c->dim, c->wo_init, bias, &a->wo);
}

oct_status oct_latent_attention_create(oct_module *parent, const char *component,
                                       const oct_latent_attention_config *config,
                                       oct_latent_attention **out) {
    oct_latent_attention *a =
        oct_module_create(sizeof *a, OCT_MODULE_ATTENTION, &ops, parent, component);
    if (!a)
        return OCT_NO_MEMORY;
    a->config = *config;
    *out = a;
    return create_children(a);
}
