/* Adam and AdamW over a model's parameters, and the norm of their gradients.
 *
 * Invariant: the state lies beside its parameter (same number, same shape, fp32); all results are
 * the same bits for any number of threads. Semantics are torch.optim.Adam's and AdamW's, clipping
 * is torch.nn.utils.clip_grad_norm_'s. */
#ifndef OCT_TRAIN_OPTIMIZER_H
#define OCT_TRAIN_OPTIMIZER_H

#include <octet/status.h>

#include "base/arena.h"
#include "nn/module.h"
#include "op/optimizer.h"

typedef struct oct_optimizer {
    oct_adam adam;      /* lr is the rate of the step to come */
    oct_param **params; /* (n_params), those that train; the array is owned, the parameters not */
    float **m, **v;     /* (n_params), each of the parameter's size: exp_avg and exp_avg_sq */
    int64_t n_params;
    int64_t n_steps; /* done so far */
} oct_optimizer;

/* The first number of an update that isn't finite: by the order of parameters, in each the moments
 * before the value that is made of them, in each the lowest element. */
typedef struct oct_flaw {
    const oct_param *param; /* NULL: all numbers are finite */
    const char *what;       /* "value", "exp_avg" or "exp_avg_sq" */
    int64_t element;        /* of the whole parameter */
    float got;
} oct_flaw;

/* Gives each of the n parameters that isn't frozen gradient memory and state, zeroed. */
oct_status oct_optimizer_create(oct_param *const *params, int64_t n, const oct_adam *adam,
                                oct_optimizer **out);
void oct_optimizer_destroy(oct_optimizer *optimizer); /* NULL is fine */

void oct_optimizer_clear_gradients(oct_optimizer *optimizer);

/* The 2-norm of all gradients as one vector: fp64 sums of squares within fixed chunks, added in
 * order of the parameters. Not finite when a gradient isn't. */
oct_status oct_optimizer_gradient_norm(const oct_optimizer *optimizer, double *norm,
                                       oct_arena *scratch);

/* What gradients of norm `norm` are multiplied by: max_norm / (norm + 1e-6), at most 1. */
float oct_clip_factor(double norm, double max_norm);

/* One step with gradients read as grad * grad_scale; each parameter gets a new version. It ends at
 * the first parameter of which a number isn't finite any more and says so in *flaw: the
 * parameters and the state are then of no step and of no use. */
oct_status oct_optimizer_step(oct_optimizer *optimizer, float grad_scale, oct_flaw *flaw);

#endif
