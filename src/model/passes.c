/* Running models: forward and backward of the whole, see model.h.
 *
 * The residual stream x (T,D) passes the layers. While saving, the stream before each layer is kept
 * on the saved stack, each layer pushes what it needs after it and releases that in its backward;
 * the gradient of the stream is one buffer that the layers update in place. */
#include <string.h>

#include "base/checked.h"
#include "model/tree.h"
#include "nn/gradient.h"
#include "op/elementwise.h"

/* Logits of one slice of rows: at most this many elements, but rows enough for a fast product. */
#define LOGITS_PER_SLICE ((int64_t)16 << 20)
#define MIN_ROWS_PER_SLICE ((int64_t)256)
#define ROW_STEP ((int64_t)64) /* slices of whole tiles of the product */

static void begin(oct_step *step, int64_t B, int64_t S, oct_save save) {
    step->B = B;
    step->S = S;
    step->position = 0;
    step->kv = NULL;
    step->first_keys = NULL;
    step->save = save;
}

/* Where the document begins that follows the n tokens, the first of which is at `position`;
 * `begins` if none of them ends one. */
static int32_t next_document(const oct_model *model, const int32_t *tokens, int64_t n,
                             int64_t position, int32_t begins) {
    for (int64_t s = n - 1; s >= 0; s--)
        if (tokens[s] == model->document_end)
            return (int32_t)(position + s + 1);
    return begins;
}

/* torchtitan's get_document_mask_mod: a token that ends a document is the last of its own. */
static void mark_sequence(const oct_model *model, const oct_step *step, const int32_t *tokens,
                          int32_t begins, int32_t *first_keys) {
    for (int64_t s = 0; s < step->S; s++) {
        first_keys[s] = begins;
        begins = next_document(model, tokens + s, 1, step->position + s, begins);
    }
}

/* Of a model whose attention stays inside documents: step->first_keys. */
static oct_status mark_documents(const oct_model *model, oct_step *step, const int32_t *tokens) {
    if (model->args.attn_mask_type != OCT_ATTN_BLOCK_CAUSAL)
        return OCT_OK;
    if (model->document_end < 0)
        return OCT_INVALID;
    oct_arena *arena = step->save == OCT_SAVE_FOR_BACKWARD ? step->saved : step->scratch;
    size_t T = (size_t)(step->B * step->S);
    int32_t *first_keys = oct_arena_alloc_array(arena, T, sizeof *first_keys);
    if (!first_keys)
        return OCT_NO_MEMORY;
    for (int64_t b = 0; b < step->B; b++)
        mark_sequence(model, step, tokens + b * step->S, step->kv ? step->kv->documents[b] : 0,
                      first_keys + b * step->S);
    step->first_keys = first_keys;
    return OCT_OK;
}

/* Units of the hooks: 0 the embedding, 1 + i layer i, and the head. */
static int64_t head_unit(const oct_model *model) {
    return model->args.n_layers + 1;
}

static oct_status unit_forward(oct_module *m, oct_step *step, int64_t unit, const oct_tensor *x,
                               oct_tensor *y) {
    oct_status status = oct_step_before(step, unit, OCT_PHASE_FORWARD);
    if (!status)
        status = oct_forward(m, step, x, y);
    if (!status)
        status = oct_step_after(step, unit, OCT_PHASE_FORWARD);
    return status;
}

static oct_status unit_backward(oct_module *m, oct_step *step, int64_t unit, const oct_tensor *dy,
                                oct_tensor *dx) {
    oct_status status = oct_step_before(step, unit, OCT_PHASE_BACKWARD);
    if (!status)
        status = oct_backward(m, step, dy, dx, OCT_OVERWRITE);
    if (!status)
        status = oct_step_after(step, unit, OCT_PHASE_BACKWARD);
    return status;
}

/* Through the embedding and all layers; *x is the stream after them, on the saved stack or in
 * scratch. */
static oct_status forward_stream(oct_model *model, oct_step *step, const int32_t *tokens,
                                 oct_tensor *x) {
    int64_t T = step->B * step->S, D = model->args.dim;
    /* The ids outlive the step and are only read. */
    oct_tensor ids = oct_tensor_1d(OCT_I32, T, (void *)(uintptr_t)tokens);
    bool saving = step->save == OCT_SAVE_FOR_BACKWARD;
    oct_tensor spare = {0};
    oct_status status = mark_documents(model, step, tokens);
    if (status)
        return status;
    *x = oct_step_tensor(step, step->activation, T, D, true);
    if (!saving)
        spare = oct_step_scratch(step, step->activation, T, D);
    if (!x->data || (!saving && !spare.data))
        return OCT_NO_MEMORY;
    status = unit_forward(&model->tok_embeddings->base, step, 0, &ids, x);
    for (int64_t i = 0; !status && i < model->args.n_layers; i++) {
        oct_tensor y = saving ? oct_step_saved(step, step->activation, T, D) : spare;
        if (!y.data)
            return OCT_NO_MEMORY;
        y.id = oct_step_new_id(step);
        status = unit_forward(&model->layers[i]->base, step, 1 + i, x, &y);
        spare = *x;
        *x = y;
    }
    return status;
}

/* dx: the gradient of the stream after the layers, used up. */
static oct_status backward_stream(oct_model *model, oct_step *step, oct_tensor *dx) {
    oct_status status = OCT_OK;
    for (int64_t i = model->args.n_layers - 1; !status && i >= 0; i--)
        status = unit_backward(&model->layers[i]->base, step, 1 + i, dx, dx);
    if (status)
        return status;
    return unit_backward(&model->tok_embeddings->base, step, 0, dx, NULL);
}

/* A slice of the head's work: rows first .. first+n-1 of h, and of dh when training. */
typedef struct head_slice {
    int64_t first, n;
    const oct_tensor *h;
    oct_tensor *dh; /* NULL: evaluation */
    const int32_t *targets;
    float grad_scale;
} head_slice;

static oct_tensor rows_of(oct_step *step, const oct_tensor *t, int64_t first, int64_t n) {
    int64_t cols = oct_tensor_cols(t);
    char *data = (char *)t->data + (size_t)(first * cols) * oct_dtype_bytes(t->dtype);
    oct_tensor view = oct_tensor_2d(t->dtype, n, cols, data);
    view.id = oct_step_new_id(step);
    return view;
}

static oct_status slice_backward(oct_model *model, oct_step *step, const head_slice *slice,
                                 oct_tensor *dlogits) {
    oct_tensor dh = rows_of(step, slice->dh, slice->first, slice->n), dy = *dlogits;
    if (step->activation != dlogits->dtype) {
        dy = oct_step_scratch(step, step->activation, slice->n, model->args.vocab_size);
        oct_status status = dy.data ? oct_cast(dlogits, &dy) : OCT_NO_MEMORY;
        if (status)
            return status;
    }
    dy.id = oct_step_new_id(step);
    return oct_backward(&model->output->base, step, &dy, &dh, OCT_OVERWRITE);
}

static oct_status run_slice(oct_model *model, oct_step *step, const head_slice *slice,
                            oct_loss_sum *sum) {
    oct_tensor h = rows_of(step, slice->h, slice->first, slice->n);
    oct_tensor logits = oct_step_scratch(step, OCT_F32, slice->n, model->args.vocab_size);
    const int32_t *targets = slice->targets + slice->first;
    if (!logits.data)
        return OCT_NO_MEMORY;
    oct_status status = oct_forward(&model->output->base, step, &h, &logits);
    if (status)
        return status;
    if (!slice->dh)
        return oct_cross_entropy(&logits, targets, sum, step->scratch);
    status = oct_cross_entropy_gradient(&logits, targets, slice->grad_scale, sum, step->scratch);
    return status ? status : slice_backward(model, step, slice, &logits);
}

/* A converted head may scale by the whole tensor, so only the plain one is cut. */
static int64_t rows_per_slice(const oct_model *model, int64_t T) {
    if (model->output->base.ops != &oct_linear_ops)
        return T;
    int64_t n_rows = LOGITS_PER_SLICE / model->args.vocab_size;
    return oct_max_i64(MIN_ROWS_PER_SLICE, n_rows - n_rows % ROW_STEP);
}

/* Loss, and when training its gradient with respect to h in dh. */
static oct_status run_head(oct_model *model, oct_step *step, const oct_tensor *h, oct_tensor *dh,
                           const int32_t *targets, float grad_scale, oct_loss_sum *total) {
    int64_t T = oct_tensor_rows(h), n_rows = rows_per_slice(model, T);
    bool in_parts = dh && n_rows < T;
    oct_gradient gradient;
    *total = (oct_loss_sum){0};
    oct_status status =
        oct_gradient_begin(step, in_parts ? model->output->weight : NULL, &gradient);
    if (status)
        return status;
    for (int64_t first = 0; !status && first < T; first += n_rows) {
        const head_slice slice = {first,     oct_min_i64(n_rows, T - first), h, dh, targets,
                                  grad_scale};
        oct_loss_sum sum = {0};
        oct_arena_mark saved = oct_arena_get_mark(step->saved);
        oct_step_mark mark = oct_step_enter(step);
        status = run_slice(model, step, &slice, &sum);
        oct_step_leave(step, mark);
        oct_arena_release(step->saved, saved);
        total->loss += sum.loss;
        total->count += sum.count;
    }
    return oct_gradient_end(step, &gradient, status);
}

/* The last norm and the head: forward, and when training the backward of both. */
static oct_status run_last(oct_model *model, oct_step *step, const oct_tensor *x, oct_tensor *dh,
                           const int32_t *targets, float grad_scale, oct_loss_sum *sum) {
    int64_t unit = head_unit(model);
    oct_tensor h = oct_step_scratch(step, x->dtype, x->shape[0], x->shape[1]);
    oct_status status = h.data ? oct_step_before(step, unit, OCT_PHASE_FORWARD) : OCT_NO_MEMORY;
    if (!status)
        status = oct_forward(&model->norm->base, step, x, &h);
    if (!status && dh)
        status = oct_step_before(step, unit, OCT_PHASE_BACKWARD);
    if (!status)
        status = run_head(model, step, &h, dh, targets, grad_scale, sum);
    if (!status)
        status = oct_step_after(step, unit, OCT_PHASE_FORWARD);
    if (status || !dh)
        return status;
    status = oct_backward(&model->norm->base, step, dh, dh, OCT_OVERWRITE);
    return status ? status : oct_step_after(step, unit, OCT_PHASE_BACKWARD);
}

static oct_status run_loss(oct_model *model, oct_step *step, const int32_t *tokens,
                           const int32_t *targets, float grad_scale, oct_loss_sum *sum) {
    bool training = step->save == OCT_SAVE_FOR_BACKWARD;
    oct_tensor x, dh = {0};
    oct_status status = forward_stream(model, step, tokens, &x);
    if (status)
        return status;
    if (training) {
        dh = oct_step_scratch(step, x.dtype, x.shape[0], x.shape[1]);
        if (!dh.data)
            return OCT_NO_MEMORY;
    }
    status = run_last(model, step, &x, training ? &dh : NULL, targets, grad_scale, sum);
    return status || !training ? status : backward_stream(model, step, &dh);
}

static oct_status run_batch(oct_model *model, oct_step *step, const int32_t *tokens,
                            const int32_t *targets, float grad_scale, double *loss_sum,
                            int64_t *n_valid) {
    oct_loss_sum sum = {0};
    oct_arena_mark saved = oct_arena_get_mark(step->saved);
    oct_step_mark mark = oct_step_enter(step);
    oct_status status = run_loss(model, step, tokens, targets, grad_scale, &sum);
    oct_step_leave(step, mark);
    oct_arena_release(step->saved, saved);
    step->save = OCT_SAVE_NOTHING;
    step->first_keys = NULL;
    *loss_sum = sum.loss;
    *n_valid = sum.count;
    return status;
}

oct_status oct_model_train(oct_model *model, oct_step *step, int64_t B, int64_t S,
                           const int32_t *tokens, const int32_t *targets, float grad_scale,
                           double *loss_sum, int64_t *n_valid) {
    begin(step, B, S, OCT_SAVE_FOR_BACKWARD);
    return run_batch(model, step, tokens, targets, grad_scale, loss_sum, n_valid);
}

oct_status oct_model_evaluate(oct_model *model, oct_step *step, int64_t B, int64_t S,
                              const int32_t *tokens, const int32_t *targets, double *loss_sum,
                              int64_t *n_valid) {
    begin(step, B, S, OCT_SAVE_NOTHING);
    return run_batch(model, step, tokens, targets, 0.0f, loss_sum, n_valid);
}

/* The last row of each sequence: (B,D) from (B*S,D). */
static oct_tensor last_rows(oct_step *step, const oct_tensor *x) {
    oct_tensor last = oct_step_scratch(step, x->dtype, step->B, oct_tensor_cols(x));
    size_t row = (size_t)oct_tensor_cols(x) * oct_dtype_bytes(x->dtype);
    for (int64_t b = 0; last.data && b < step->B; b++)
        memcpy((char *)last.data + (size_t)b * row,
               (const char *)x->data + (size_t)((b + 1) * step->S - 1) * row, row);
    return last;
}

static oct_status run_generate(oct_model *model, oct_step *step, const int32_t *tokens,
                               float *logits) {
    oct_tensor x, y = oct_tensor_2d(OCT_F32, step->B, model->args.vocab_size, logits);
    oct_status status = forward_stream(model, step, tokens, &x);
    if (status)
        return status;
    oct_tensor last = last_rows(step, &x);
    if (!last.data)
        return OCT_NO_MEMORY;
    status = oct_step_before(step, head_unit(model), OCT_PHASE_FORWARD);
    if (!status)
        status = oct_forward(&model->norm->base, step, &last, &last);
    if (!status)
        status = oct_forward(&model->output->base, step, &last, &y);
    if (status)
        return status;
    return oct_step_after(step, head_unit(model), OCT_PHASE_FORWARD);
}

oct_status oct_model_generate(oct_model *model, oct_step *step, oct_kv_cache *cache, int64_t S,
                              const int32_t *tokens, float *logits) {
    if (S < 1 || cache->length + S > cache->max_len || cache->dtype != step->activation)
        return OCT_INVALID;
    begin(step, cache->B, S, OCT_SAVE_NOTHING);
    step->kv = cache;
    step->position = cache->length;
    oct_step_mark mark = oct_step_enter(step);
    oct_status status = run_generate(model, step, tokens, logits);
    oct_step_leave(step, mark);
    step->kv = NULL;
    step->first_keys = NULL;
    step->position = 0;
    if (status)
        return status;
    for (int64_t b = 0; b < cache->B; b++)
        cache->documents[b] =
            next_document(model, tokens + b * S, S, cache->length, cache->documents[b]);
    cache->length += S;
    return OCT_OK;
}

static oct_status run_forward(oct_model *model, oct_step *step, const int32_t *tokens,
                              oct_tensor *logits) {
    oct_tensor x;
    oct_status status = forward_stream(model, step, tokens, &x);
    if (status)
        return status;
    oct_tensor h = oct_step_tensor(step, x.dtype, x.shape[0], x.shape[1],
                                   oct_module_keeps_input(&model->output->base));
    if (!h.data)
        return OCT_NO_MEMORY;
    status = oct_step_before(step, head_unit(model), OCT_PHASE_FORWARD);
    if (!status)
        status = oct_forward(&model->norm->base, step, &x, &h);
    if (!status)
        status = oct_forward(&model->output->base, step, &h, logits);
    if (status)
        return status;
    return oct_step_after(step, head_unit(model), OCT_PHASE_FORWARD);
}

oct_status oct_model_forward(oct_model *model, oct_step *step, int64_t B, int64_t S,
                             const int32_t *tokens, oct_save save, oct_tensor *logits) {
    begin(step, B, S, save);
    model->saved = oct_arena_get_mark(step->saved);
    oct_step_mark mark = oct_step_enter(step);
    oct_status status = run_forward(model, step, tokens, logits);
    oct_step_leave(step, mark);
    return status;
}

oct_status oct_model_backward(oct_model *model, oct_step *step, const oct_tensor *dlogits) {
    oct_step_mark mark = oct_step_enter(step);
    oct_tensor dy = *dlogits;
    dy.id = oct_step_new_id(step);
    oct_tensor dh = oct_step_scratch(step, step->activation, step->B * step->S, model->args.dim);
    oct_status status = dh.data ? OCT_OK : OCT_NO_MEMORY;
    if (!status)
        status = oct_step_before(step, head_unit(model), OCT_PHASE_BACKWARD);
    if (!status)
        status = oct_backward(&model->output->base, step, &dy, &dh, OCT_OVERWRITE);
    if (!status)
        status = oct_backward(&model->norm->base, step, &dh, &dh, OCT_OVERWRITE);
    if (!status)
        status = oct_step_after(step, head_unit(model), OCT_PHASE_BACKWARD);
    if (!status)
        status = backward_stream(model, step, &dh);
    oct_step_leave(step, mark);
    oct_arena_release(step->saved, model->saved);
    step->first_keys = NULL;
    return status;
}
