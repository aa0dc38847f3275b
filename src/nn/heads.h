/* The part that every kind of attention has in common: queries, keys, values and what came out of
 * them, kept for backward, and the frame of forward and backward around them. A module brings how
 * its input becomes heads and how their gradients go back.
 *
 * Invariant: what backward reads lies on the saved stack in the order q, k, v, o, sums; all else is
 * scratch that the frame leaves behind it. */
#ifndef OCT_NN_HEADS_H
#define OCT_NN_HEADS_H

#include "nn/step.h"
#include "op/attention.h"

typedef struct oct_heads {
    oct_tensor q, k, v, o; /* (T, heads x dim) */
    float *lse;            /* (B,H,S); NULL when nothing is saved */
} oct_heads;

/* Allocates the heads of a shape: on the saved stack when saving. */
oct_status oct_heads_allocate(oct_step *step, const oct_attention_shape *shape, oct_heads *heads);

/* heads->o = attention of q, k and heads->v; through the step's cache of keys and values for
 * `layer`, if it has one. */
oct_status oct_heads_attend(oct_step *step, int64_t layer, const oct_attention_shape *shape,
                            const oct_tensor *q, const oct_tensor *k, oct_heads *heads);

/* The forward of a module: `run` allocates the heads and computes y. When saving they are m->saved.
 */
typedef oct_status (*oct_heads_run)(oct_module *m, oct_step *step, const oct_tensor *x,
                                    oct_heads *heads, oct_tensor *y);
oct_status oct_heads_forward(oct_module *m, oct_step *step, const oct_tensor *x, oct_tensor *y,
                             oct_heads_run run);

typedef struct oct_head_grads {
    oct_tensor q, k, v; /* shaped as the heads */
} oct_head_grads;

/* The backward of a module: `attend` fills the gradients of what its linears gave, in a scratch of
 * its own; `project` takes them to dx. */
typedef oct_status (*oct_heads_attend_back)(oct_module *m, oct_step *step, const oct_tensor *dy,
                                            oct_head_grads *grads);
typedef oct_status (*oct_heads_project_back)(oct_module *m, oct_step *step, oct_head_grads *grads,
                                             oct_tensor *dx, oct_accumulate accumulate);
oct_status oct_heads_backward(oct_module *m, oct_step *step, const oct_tensor *dy, oct_tensor *dx,
                              oct_accumulate accumulate, oct_heads_attend_back attend,
                              oct_heads_project_back project);

/* Scratch of the dtype and shape of `t`; data NULL when memory is refused. */
oct_tensor oct_heads_scratch_like(oct_step *step, const oct_tensor *t);

#endif
