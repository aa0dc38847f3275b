/* What kinds of attention share: see heads.h. */
#include "nn/heads.h"

#include "nn/attention.h"

oct_status oct_heads_allocate(oct_step *step, const oct_attention_shape *shape, oct_heads *heads) {
    int64_t T = shape->B * shape->S;
    oct_dtype dtype = step->activation;
    heads->q = oct_step_tensor(step, dtype, T, shape->n_heads * shape->qk_dim, true);
    heads->k = oct_step_tensor(step, dtype, T, shape->n_kv_heads * shape->qk_dim, true);
    heads->v = oct_step_tensor(step, dtype, T, shape->n_kv_heads * shape->v_dim, true);
    heads->o = oct_step_tensor(step, dtype, T, shape->n_heads * shape->v_dim, true);
    heads->lse = NULL;
    if (!heads->q.data || !heads->k.data || !heads->v.data || !heads->o.data)
        return OCT_NO_MEMORY;
    if (step->save == OCT_SAVE_NOTHING)
        return OCT_OK;
    heads->lse =
        oct_arena_alloc_array(step->saved, (size_t)(T * shape->n_heads), sizeof *heads->lse);
    return heads->lse ? OCT_OK : OCT_NO_MEMORY;
}

oct_status oct_heads_attend(oct_step *step, int64_t layer, const oct_attention_shape *shape,
                            const oct_tensor *q, const oct_tensor *k, oct_heads *heads) {
    if (step->kv)
        return oct_kv_cache_attend(step, layer, shape, q, k, &heads->v, &heads->o);
    return oct_attention_forward(shape, q, k, &heads->v, &heads->o, heads->lse, step->scratch);
}

oct_status oct_heads_forward(oct_module *m, oct_step *step, const oct_tensor *x, oct_tensor *y,
                             oct_heads_run run) {
    oct_heads local, *heads = &local;
    if (step->save == OCT_SAVE_FOR_BACKWARD) {
        heads = oct_step_keep(step, sizeof *heads);
        if (!heads)
            return OCT_NO_MEMORY;
        m->saved = heads;
    }
    oct_step_mark mark = oct_step_enter(step);
    oct_status status = run(m, step, x, heads, y);
    oct_step_leave(step, mark);
    return status;
}

oct_tensor oct_heads_scratch_like(oct_step *step, const oct_tensor *t) {
    return oct_step_scratch(step, t->dtype, oct_tensor_rows(t), oct_tensor_cols(t));
}

static oct_status run_backward(oct_module *m, oct_step *step, const oct_tensor *dy, oct_tensor *dx,
                               oct_accumulate accumulate, oct_heads_attend_back attend,
                               oct_heads_project_back project) {
    const oct_heads *heads = m->saved;
    oct_head_grads grads = {oct_heads_scratch_like(step, &heads->q),
                            oct_heads_scratch_like(step, &heads->k),
                            oct_heads_scratch_like(step, &heads->v)};
    if (!grads.q.data || !grads.k.data || !grads.v.data)
        return OCT_NO_MEMORY;
    oct_step_mark mark = oct_step_enter(step);
    oct_status status = attend(m, step, dy, &grads);
    oct_step_leave(step, mark);
    return status ? status : project(m, step, &grads, dx, accumulate);
}

oct_status oct_heads_backward(oct_module *m, oct_step *step, const oct_tensor *dy, oct_tensor *dx,
                              oct_accumulate accumulate, oct_heads_attend_back attend,
                              oct_heads_project_back project) {
    oct_step_mark mark = oct_step_enter(step);
    oct_status status = run_backward(m, step, dy, dx, accumulate, attend, project);
    oct_step_leave(step, mark);
    return status;
}
