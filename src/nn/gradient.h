/* Gradients that aren't one product: rounded once a micro-batch, as the step says. A product rounds
 * its own sum (oct_gemm_problem.sum_dtype); what is made in other ways, or in parts, is put
 * together in a buffer of its own first. */
#ifndef OCT_NN_GRADIENT_H
#define OCT_NN_GRADIENT_H

#include "nn/step.h"

typedef struct oct_gradient {
    oct_param *param; /* NULL: nothing to be rounded */
    float *total;     /* what the parameter's gradient is added to in the end */
    oct_dtype dtype;
    oct_arena_mark mark;
} oct_gradient;

/* Until the end, param->grad is zeros of its own in scratch, and nothing is rounded. Without
 * rounding, or for a parameter that doesn't train (or NULL), neither call does anything. */
oct_status oct_gradient_begin(oct_step *step, oct_param *param, oct_gradient *gradient);
/* Rounds, adds to the real one and gives scratch back. Pass what happened in between; the real
 * gradient comes back in any case. */
oct_status oct_gradient_end(oct_step *step, const oct_gradient *gradient, oct_status status);

#endif
