/* The arithmetic of the optimizer on one parameter, fp32, same bits for any number of threads. */
#ifndef OCT_OP_OPTIMIZER_H
#define OCT_OP_OPTIMIZER_H

#include <octet/status.h>
#include <stdint.h>

#include "base/arena.h"
#include "kernel/elementwise.h"

typedef enum oct_weight_decay {
    OCT_DECAY_DECOUPLED, /* AdamW (arXiv 1711.05101): p -= lr * decay * p */
    OCT_DECAY_L2         /* Adam: g += decay * p */
} oct_weight_decay;

typedef struct oct_adam {
    double lr, beta1, beta2, eps, weight_decay;
    oct_weight_decay decay;
} oct_adam;

/* One step of torch.optim.Adam / AdamW over n elements: value, m and v change. `step` counts from
 * 1; the bias corrections are computed in fp64. The gradient is read as grad * grad_scale
 * (clipping) and left alone. *flaws: what isn't finite now, a sum of oct_adam_flaw, 0 when all is;
 * all elements are updated whatever it is. */
oct_status oct_adam_step(const oct_adam *adam, int64_t step, int64_t n, const float *grad,
                         float grad_scale, float *value, float *m, float *v, unsigned *flaws);

/* Sum of x^2 over n elements: fp64 within fixed chunks, those added in order. */
oct_status oct_sum_of_squares(const float *x, int64_t n, double *sum, oct_arena *scratch);

#endif
