/* Causal self-attention: see attention.h. */
#include "nn/attention.h"

#include <math.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "nn/heads.h"

/* Past its original context a dynamic table is for sequences of its own length alone. */
static bool is_ready(const oct_rotary *rotary, int64_t n_positions) {
    const oct_rope_config *c = &rotary->config;
    bool own_length =
        c->scaling == OCT_ROPE_DYNAMIC && (double)rotary->n_positions > c->original_context;
    return own_length ? n_positions == rotary->n_positions : n_positions <= rotary->n_positions;
}

/* Positions of the next table: some to spare, except where they would change it. */
static int64_t next_size(const oct_rotary *rotary, int64_t n_positions) {
    const oct_rope_config *c = &rotary->config;
    int64_t n = oct_max_i64(n_positions, 2 * rotary->n_positions);
    return c->scaling == OCT_ROPE_DYNAMIC && (double)n > c->original_context ? n_positions : n;
}

oct_status oct_rotary_reserve(oct_rotary *rotary, int64_t n_positions) {
    if (is_ready(rotary, n_positions))
        return OCT_OK;
    int64_t n = next_size(rotary, n_positions);
    oct_rope_table *table;
    oct_status status = oct_rope_table_create(&rotary->config, n, &table);
    if (status)
        return status;
    oct_rope_table_destroy(rotary->table);
    rotary->table = table;
    rotary->n_positions = n;
    return OCT_OK;
}

void oct_rotary_clear(oct_rotary *rotary) {
    oct_rope_table_destroy(rotary->table);
    rotary->table = NULL;
    rotary->n_positions = 0;
}

static oct_status rotate(const oct_attention *a, const oct_step *step, oct_tensor *x,
                         oct_rope_turn turn) {
    return oct_rope_apply(a->config.rotary->table, x, step->S, step->position, a->config.head_dim,
                          0, turn);
}

static oct_attention_shape shape_of(const oct_attention *a, const oct_step *step) {
    return (oct_attention_shape){.B = step->B,
                                 .S = step->S,
                                 .n_heads = a->config.n_heads,
                                 .n_kv_heads = a->config.n_kv_heads,
                                 .qk_dim = a->config.head_dim,
                                 .v_dim = a->config.head_dim,
                                 .scale = 1.0f / sqrtf((float)a->config.head_dim),
                                 .window = a->config.window,
                                 .first_keys = step->first_keys};
}

/* *turned = the rotated, and with a norm before that normalised, x. Without a norm that happens in
 * place; with one, x stays and *turned is in scratch. */
static oct_status prepare_heads(const oct_attention *a, oct_step *step, oct_norm *norm,
                                oct_tensor *x, oct_tensor *turned) {
    *turned = *x;
    if (norm) {
        *turned = oct_step_scratch(step, x->dtype, oct_tensor_rows(x), oct_tensor_cols(x));
        if (!turned->data)
            return OCT_NO_MEMORY;
        oct_status status = oct_forward(&norm->base, step, x, turned);
        if (status)
            return status;
    }
    return a->config.unrotated ? OCT_OK : rotate(a, step, turned, OCT_ROPE_FORWARD);
}

/* With norms the kept q and k are as they came from the linears. */
static oct_status run_forward(oct_module *m, oct_step *step, const oct_tensor *x, oct_heads *kept,
                              oct_tensor *y) {
    oct_attention *a = (oct_attention *)m;
    oct_attention_shape shape = shape_of(a, step);
    oct_status status = oct_rotary_reserve(a->config.rotary, step->position + step->S);
    if (!status)
        status = oct_heads_allocate(step, &shape, kept);
    if (!status)
        status = oct_forward(&a->wq->base, step, x, &kept->q);
    if (!status)
        status = oct_forward(&a->wk->base, step, x, &kept->k);
    if (!status)
        status = oct_forward(&a->wv->base, step, x, &kept->v);
    if (status)
        return status;
    oct_tensor q, k;
    status = prepare_heads(a, step, a->q_norm, &kept->q, &q);
    if (!status)
        status = prepare_heads(a, step, a->k_norm, &kept->k, &k);
    if (!status)
        status = oct_heads_attend(step, a->config.layer, &shape, &q, &k, kept);
    if (status)
        return status;
    return oct_forward(&a->wo->base, step, &kept->o, y);
}

static oct_status forward(oct_module *m, oct_step *step, const oct_tensor *x, oct_tensor *y) {
    return oct_heads_forward(m, step, x, y, run_forward);
}

/* Normalises and rotates again what was kept raw; without a norm the kept tensor is ready. */
static oct_status restore_heads(const oct_attention *a, oct_step *step, oct_norm *norm,
                                oct_tensor *x, oct_tensor *ready) {
    *ready = *x;
    if (!norm)
        return OCT_OK;
    oct_save save = step->save;
    step->save = OCT_SAVE_NOTHING;
    oct_status status = prepare_heads(a, step, norm, x, ready);
    step->save = save;
    return status;
}

/* Takes the gradient of the rotated heads back to the linear's output, in place. */
static oct_status unprepare_heads(const oct_attention *a, oct_step *step, oct_norm *norm,
                                  oct_tensor *dx) {
    oct_status status = a->config.unrotated ? OCT_OK : rotate(a, step, dx, OCT_ROPE_BACKWARD);
    if (status || !norm)
        return status;
    return oct_backward(&norm->base, step, dx, dx, OCT_OVERWRITE);
}

static oct_status attend_back(oct_module *m, oct_step *step, const oct_tensor *dy,
                              oct_head_grads *grads) {
    oct_attention *a = (oct_attention *)m;
    oct_heads *kept = m->saved;
    oct_tensor d_o = oct_heads_scratch_like(step, &kept->o), q, k;
    if (!d_o.data)
        return OCT_NO_MEMORY;
    oct_status status = oct_backward(&a->wo->base, step, dy, &d_o, OCT_OVERWRITE);
    if (!status)
        status = restore_heads(a, step, a->q_norm, &kept->q, &q);
    if (!status)
        status = restore_heads(a, step, a->k_norm, &kept->k, &k);
    if (status)
        return status;
    oct_attention_shape shape = shape_of(a, step);
    status = oct_attention_backward(&shape, &q, &k, &kept->v, &kept->o, kept->lse, &d_o, &grads->q,
                                    &grads->k, &grads->v, step->scratch);
    if (!status)
        status = unprepare_heads(a, step, a->q_norm, &grads->q);
    if (status)
        return status;
    return unprepare_heads(a, step, a->k_norm, &grads->k);
}

static oct_status project_back(oct_module *m, oct_step *step, oct_head_grads *grads, oct_tensor *dx,
                               oct_accumulate accumulate) {
    oct_attention *a = (oct_attention *)m;
    oct_status status = oct_backward(&a->wq->base, step, &grads->q, dx, accumulate);
    if (!status)
        status = oct_backward(&a->wk->base, step, &grads->k, dx, OCT_ADD_TO_OUTPUT);
    if (status)
        return status;
    return oct_backward(&a->wv->base, step, &grads->v, dx, OCT_ADD_TO_OUTPUT);
}

static oct_status backward(oct_module *m, oct_step *step, const oct_tensor *dy, oct_tensor *dx,
                           oct_accumulate accumulate) {
    return oct_heads_backward(m, step, dy, dx, accumulate, attend_back, project_back);
}

static bool passes_input(const oct_module *m) {
    const oct_attention *a = (const oct_attention *)m;
    return oct_module_keeps_input(&a->wq->base) || oct_module_keeps_input(&a->wk->base) ||
           oct_module_keeps_input(&a->wv->base);
}

static void replace_input(oct_module *m, const oct_tensor *x) {
    oct_attention *a = (oct_attention *)m;
    oct_module_replace_input(&a->wq->base, x);
    oct_module_replace_input(&a->wk->base, x);
    oct_module_replace_input(&a->wv->base, x);
}

static const oct_module_ops ops = {.type_name = "Attention",
                                   .forward = forward,
                                   .backward = backward,
                                   .passes_input = passes_input,
                                   .replace_input = replace_input};

static oct_status create_children(oct_attention *a) {
    const oct_attention_config *c = &a->config;
    int64_t wide = c->n_heads * c->head_dim, narrow = c->n_kv_heads * c->head_dim;
    const oct_init zero = {.kind = OCT_INIT_ZEROS};
    const oct_init *qkv_bias = c->qkv_bias ? &zero : NULL, *wo_bias = c->wo_bias ? &zero : NULL;
    oct_module *m = &a->base;
    oct_status status = oct_linear_create(m, "wq", c->dim, wide, c->qkv_init, qkv_bias, &a->wq);
    if (!status)
        status = oct_linear_create(m, "wk", c->dim, narrow, c->qkv_init, qkv_bias, &a->wk);
    if (!status)
        status = oct_linear_create(m, "wv", c->dim, narrow, c->qkv_init, qkv_bias, &a->wv);
    if (!status)
        status = oct_linear_create(m, "wo", wide, c->dim, c->wo_init, wo_bias, &a->wo);
    if (status || !c->qk_norm)
        return status;
    status = oct_norm_create(m, "q_norm", c->head_dim, c->norm_eps, &a->q_norm);
    return status ? status : oct_norm_create(m, "k_norm", c->head_dim, c->norm_eps, &a->k_norm);
}

oct_status oct_attention_create(oct_module *parent, const char *component,
                                const oct_attention_config *config, oct_attention **out) {
    oct_attention *a = oct_module_create(sizeof *a, OCT_MODULE_ATTENTION, &ops, parent, component);
    if (!a)
        return OCT_NO_MEMORY;
    a->config = *config;
    *out = a;
    return create_children(a);
}
