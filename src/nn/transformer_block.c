/* A transformer layer: see transformer_block.h. */
#include "nn/transformer_block.h"

#include <string.h>

#include "base/alloc.h"
#include "nn/feed_forward.h"
#include "nn/moe.h"
#include "nn/step.h"
#include "op/elementwise.h"

typedef struct kept {
    oct_arena_mark mark; /* of the saved stack, before this layer */
    oct_tensor x, x2;    /* full recompute: x alone */
} kept;

static bool keeps_normed(const oct_block *b, const oct_module *reader) {
    return b->recompute != OCT_RECOMPUTE_OP && oct_module_keeps_input(reader);
}

static oct_tensor tensor_like(oct_step *step, const oct_tensor *x, bool keep) {
    return oct_step_tensor(step, x->dtype, oct_tensor_rows(x), oct_tensor_cols(x), keep);
}

/* y = x + module(norm(x)) */
static oct_status residual_forward(oct_block *b, oct_step *step, oct_norm *norm, oct_module *module,
                                   const oct_tensor *x, oct_tensor *y) {
    oct_step_mark mark = oct_step_enter(step);
    oct_tensor normed = tensor_like(step, x, keeps_normed(b, module));
    oct_status status = normed.data ? OCT_OK : OCT_NO_MEMORY;
    if (!status)
        status = oct_forward(&norm->base, step, x, &normed);
    if (!status)
        status = oct_forward(module, step, &normed, y);
    if (!status && y->data)
        status = oct_add(y, x, y);
    y->id = oct_step_new_id(step);
    oct_step_leave(step, mark);
    return status;
}

static oct_status layer_forward(oct_block *b, oct_step *step, kept *k, oct_tensor *y) {
    k->x2 = tensor_like(step, &k->x, true);
    if (!k->x2.data)
        return OCT_NO_MEMORY;
    oct_status status = residual_forward(b, step, b->attention_norm, b->attention, &k->x, &k->x2);
    if (status)
        return status;
    return residual_forward(b, step, b->ffn_norm, b->feed_forward, &k->x2, y);
}

static oct_status forward(oct_module *m, oct_step *step, const oct_tensor *x, oct_tensor *y) {
    oct_block *b = (oct_block *)m;
    oct_save save = step->save;
    kept local, *k = &local;
    if (save == OCT_SAVE_FOR_BACKWARD) {
        oct_arena_mark mark = oct_arena_get_mark(step->saved);
        k = oct_step_keep(step, sizeof *k);
        if (!k)
            return OCT_NO_MEMORY;
        k->mark = mark;
        m->saved = k;
    }
    k->x = *x;
    if (b->recompute == OCT_RECOMPUTE_FULL)
        step->save = OCT_SAVE_NOTHING;
    oct_step_mark mark = oct_step_enter(step);
    oct_status status = layer_forward(b, step, k, y);
    oct_step_leave(step, mark);
    step->save = save;
    return status;
}

/* dx holds the gradient of y = x + module(norm(x)) and becomes that of x. */
static oct_status residual_backward(oct_block *b, oct_step *step, oct_norm *norm,
                                    oct_module *module, const oct_tensor *x, oct_tensor *dx) {
    oct_step_mark mark = oct_step_enter(step);
    oct_tensor dnormed = oct_step_scratch(step, dx->dtype, dx->shape[0], dx->shape[1]);
    oct_status status = dnormed.data ? OCT_OK : OCT_NO_MEMORY;
    if (!status && b->recompute == OCT_RECOMPUTE_OP && oct_module_keeps_input(module)) {
        oct_tensor normed = oct_step_scratch(step, x->dtype, x->shape[0], x->shape[1]);
        oct_save save = step->save;
        step->save = OCT_SAVE_NOTHING;
        status = normed.data ? oct_forward(&norm->base, step, x, &normed) : OCT_NO_MEMORY;
        step->save = save;
        if (!status)
            oct_module_replace_input(module, &normed);
    }
    if (!status)
        status = oct_backward(module, step, dx, &dnormed, OCT_OVERWRITE);
    if (!status)
        status = oct_backward(&norm->base, step, &dnormed, dx, OCT_ADD_TO_OUTPUT);
    dx->id = oct_step_new_id(step);
    oct_step_leave(step, mark);
    return status;
}

/* Full recompute: runs forward again, this time saving. Its result, and so the last product of the
 * feed-forward, is not wanted. */
static oct_status forward_again(oct_block *b, oct_step *step, kept *k) {
    oct_step_mark mark = oct_step_enter(step);
    oct_tensor y = oct_tensor_2d(k->x.dtype, k->x.shape[0], k->x.shape[1], NULL);
    oct_status status = layer_forward(b, step, k, &y);
    oct_step_leave(step, mark);
    return status;
}

static oct_status backward(oct_module *m, oct_step *step, const oct_tensor *dy, oct_tensor *dx,
                           oct_accumulate accumulate) {
    oct_block *b = (oct_block *)m;
    kept *k = m->saved;
    oct_arena_mark saved = k->mark;
    oct_step_mark mark = oct_step_enter(step);
    oct_tensor stream = *dx; /* the gradient of the residual stream */
    oct_status status = OCT_OK;
    if (b->recompute == OCT_RECOMPUTE_FULL)
        status = forward_again(b, step, k);
    if (!status && accumulate == OCT_ADD_TO_OUTPUT) {
        stream = oct_step_scratch(step, dx->dtype, dx->shape[0], dx->shape[1]);
        status = stream.data ? OCT_OK : OCT_NO_MEMORY;
    }
    if (!status && stream.data != dy->data)
        status = oct_cast(dy, &stream);
    stream.id = oct_step_new_id(step);
    if (!status)
        status = residual_backward(b, step, b->ffn_norm, b->feed_forward, &k->x2, &stream);
    if (!status)
        status = residual_backward(b, step, b->attention_norm, b->attention, &k->x, &stream);
    if (!status && accumulate == OCT_ADD_TO_OUTPUT)
        status = oct_add(dx, &stream, dx);
    dx->id = oct_step_new_id(step);
    oct_step_leave(step, mark);
    oct_arena_release(step->saved, saved);
    return status;
}

static const oct_module_ops ops = {
    .type_name = "TransformerBlock", .forward = forward, .backward = backward, .keeps_input = true};

oct_status oct_block_create(oct_module *parent, const char *component, oct_block **out) {
    oct_block *b = oct_module_create(sizeof *b, OCT_MODULE_BLOCK, &ops, parent, component);
    if (!b)
        return OCT_NO_MEMORY;
    *out = b;
    return OCT_OK;
}

void oct_block_set_recompute(oct_block *block, oct_recompute recompute) {
    block->recompute = recompute;
    oct_keep_product product =
        recompute == OCT_RECOMPUTE_OP ? OCT_PRODUCT_RECOMPUTED : OCT_PRODUCT_KEPT;
    if (block->feed_forward->kind == OCT_MODULE_FEED_FORWARD)
        ((oct_feed_forward *)block->feed_forward)->product = product;
    if (oct_moe_from(block->feed_forward))
        oct_moe_set_products(oct_moe_from(block->feed_forward), product);
}
