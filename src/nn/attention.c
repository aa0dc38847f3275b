/* Causal self-attention: see attention.h. */
#include "nn/attention.h"

#include <math.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "nn/step.h"
#include "op/attention.h"

typedef struct kept_heads {
    oct_tensor q, k, v, o; /* with norms: q and k as they came from the linears */
    float *lse;            /* (B,H,S) */
} kept_heads;

oct_status oct_rotary_reserve(oct_rotary *rotary, int64_t n_positions) {
    if (n_positions <= rotary->n_positions)
        return OCT_OK;
    int64_t n = oct_max_i64(n_positions, 2 * rotary->n_positions);
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
                                 .scale = 1.0f / sqrtf((float)a->config.head_dim)};
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
    return rotate(a, step, turned, OCT_ROPE_FORWARD);
}

static oct_status attend(const oct_attention *a, oct_step *step, const oct_tensor *q,
                         const oct_tensor *k, kept_heads *kept) {
    oct_attention_shape shape = shape_of(a, step);
    if (step->kv)
        return oct_kv_cache_attend(step, a->config.layer, &shape, q, k, &kept->v, &kept->o);
    return oct_attention_forward(&shape, q, k, &kept->v, &kept->o, kept->lse, step->scratch);
}

/* Allocates q, k, v, o and the sums: on the saved stack when saving. */
static oct_status allocate(const oct_attention *a, oct_step *step, kept_heads *k) {
    const oct_attention_config *c = &a->config;
    int64_t T = step->B * step->S, wide = c->n_heads * c->head_dim,
            narrow = c->n_kv_heads * c->head_dim;
    k->q = oct_step_tensor(step, step->activation, T, wide, true);
    k->k = oct_step_tensor(step, step->activation, T, narrow, true);
    k->v = oct_step_tensor(step, step->activation, T, narrow, true);
    k->o = oct_step_tensor(step, step->activation, T, wide, true);
    k->lse = NULL;
    if (!k->q.data || !k->k.data || !k->v.data || !k->o.data)
        return OCT_NO_MEMORY;
    if (step->save == OCT_SAVE_NOTHING)
        return OCT_OK;
    k->lse = oct_arena_alloc_array(step->saved, (size_t)(T * c->n_heads), sizeof *k->lse);
    return k->lse ? OCT_OK : OCT_NO_MEMORY;
}

static oct_status run_forward(oct_attention *a, oct_step *step, const oct_tensor *x,
                              kept_heads *kept, oct_tensor *y) {
    oct_status status = oct_rotary_reserve(a->config.rotary, step->position + step->S);
    if (status || (status = allocate(a, step, kept)) ||
        (status = oct_forward(&a->wq->base, step, x, &kept->q)) ||
        (status = oct_forward(&a->wk->base, step, x, &kept->k)) ||
        (status = oct_forward(&a->wv->base, step, x, &kept->v)))
        return status;
    oct_tensor q, k;
    if ((status = prepare_heads(a, step, a->q_norm, &kept->q, &q)) ||
        (status = prepare_heads(a, step, a->k_norm, &kept->k, &k)) ||
        (status = attend(a, step, &q, &k, kept)))
        return status;
    return oct_forward(&a->wo->base, step, &kept->o, y);
}

static oct_status forward(oct_module *m, oct_step *step, const oct_tensor *x, oct_tensor *y) {
    kept_heads local, *k = &local;
    if (step->save == OCT_SAVE_FOR_BACKWARD) {
        k = oct_step_keep(step, sizeof *k);
        if (!k)
            return OCT_NO_MEMORY;
        m->saved = k;
    }
    oct_step_mark mark = oct_step_enter(step);
    oct_status status = run_forward((oct_attention *)m, step, x, k, y);
    oct_step_leave(step, mark);
    return status;
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
    oct_status status = rotate(a, step, dx, OCT_ROPE_BACKWARD);
    if (status || !norm)
        return status;
    return oct_backward(&norm->base, step, dx, dx, OCT_OVERWRITE);
}

static oct_tensor scratch_like(oct_step *step, const oct_tensor *t) {
    return oct_step_scratch(step, t->dtype, oct_tensor_rows(t), oct_tensor_cols(t));
}

/* dq, dk, dv: gradients of what wq, wk, wv gave. */
static oct_status attend_backward(oct_attention *a, oct_step *step, const oct_tensor *dy,
                                  oct_tensor *dq, oct_tensor *dk, oct_tensor *dv) {
    kept_heads *kept = a->base.saved;
    oct_tensor d_o = scratch_like(step, &kept->o), q, k;
    if (!d_o.data)
        return OCT_NO_MEMORY;
    oct_status status = oct_backward(&a->wo->base, step, dy, &d_o, OCT_OVERWRITE);
    if (status || (status = restore_heads(a, step, a->q_norm, &kept->q, &q)) ||
        (status = restore_heads(a, step, a->k_norm, &kept->k, &k)))
        return status;
    oct_attention_shape shape = shape_of(a, step);
    status = oct_attention_backward(&shape, &q, &k, &kept->v, &kept->o, kept->lse, &d_o, dq, dk, dv,
                                    step->scratch);
    if (status || (status = unprepare_heads(a, step, a->q_norm, dq)))
        return status;
    return unprepare_heads(a, step, a->k_norm, dk);
}

static oct_status run_backward(oct_attention *a, oct_step *step, const oct_tensor *dy,
                               oct_tensor *dx, oct_accumulate accumulate) {
    const kept_heads *kept = a->base.saved;
    oct_tensor dq = scratch_like(step, &kept->q), dk = scratch_like(step, &kept->k),
               dv = scratch_like(step, &kept->v);
    if (!dq.data || !dk.data || !dv.data)
        return OCT_NO_MEMORY;
    oct_step_mark mark = oct_step_enter(step);
    oct_status status = attend_backward(a, step, dy, &dq, &dk, &dv);
    oct_step_leave(step, mark);
    if (status || (status = oct_backward(&a->wq->base, step, &dq, dx, accumulate)) ||
        (status = oct_backward(&a->wk->base, step, &dk, dx, OCT_ADD_TO_OUTPUT)))
        return status;
    return oct_backward(&a->wv->base, step, &dv, dx, OCT_ADD_TO_OUTPUT);
}

static oct_status backward(oct_module *m, oct_step *step, const oct_tensor *dy, oct_tensor *dx,
                           oct_accumulate accumulate) {
    oct_step_mark mark = oct_step_enter(step);
    oct_status status = run_backward((oct_attention *)m, step, dy, dx, accumulate);
    oct_step_leave(step, mark);
    return status;
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
    oct_module *m = &a->base;
    oct_status status = oct_linear_create(m, "wq", c->dim, wide, c->qkv_init, NULL, &a->wq);
    if (status ||
        (status = oct_linear_create(m, "wk", c->dim, narrow, c->qkv_init, NULL, &a->wk)) ||
        (status = oct_linear_create(m, "wv", c->dim, narrow, c->qkv_init, NULL, &a->wv)) ||
        (status = oct_linear_create(m, "wo", wide, c->dim, c->wo_init, NULL, &a->wo)) ||
        !c->qk_norm)
        return status;
    status = oct_norm_create(m, "q_norm", c->head_dim, c->norm_eps, &a->q_norm);
    return status ? status : oct_norm_create(m, "k_norm", c->head_dim, c->norm_eps, &a->k_norm);
}

oct_status oct_attention_create(oct_module *parent, const char *component,
                                const oct_attention_config *config, oct_attention **out) {
    oct_attention *a = oct_calloc_array(1, sizeof *a);
    if (!a)
        return OCT_NO_MEMORY;
    a->base.kind = OCT_MODULE_ATTENTION;
    a->config = *config;
    oct_status status = oct_module_init(&a->base, &ops, parent, component);
    if (status) {
        oct_module_destroy(&a->base);
        return status;
    }
    *out = a;
    return create_children(a);
}
