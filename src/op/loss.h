/* Cross-entropy over logits (T,V), F32 or BF16: loss = sum over t of log(sum exp(x_t)) -
 * x_t[label_t], in nats. Rows are computed in fp32, their losses added in fp64 in order of t: the
 * same bits for any number of threads. */
#ifndef OCT_OP_LOSS_H
#define OCT_OP_LOSS_H

#include <octet/status.h>
#include <octet/tensor.h>

#include "base/arena.h"

#define OCT_IGNORE_LABEL (-100) /* counts for nothing; its gradient is zero */

typedef struct oct_loss_sum {
    double loss;   /* summed, not averaged; not finite when a logit is not finite where it counts */
    int64_t count; /* labels that were not ignored */
} oct_loss_sum;

/* labels (T): 0 .. V-1 or OCT_IGNORE_LABEL; others are OCT_INVALID (nothing is written then). */
oct_status oct_cross_entropy(const oct_tensor *logits, const int32_t *labels, oct_loss_sum *sum,
                             oct_arena *scratch);

/* The same, and in place: logits become dlogits = (softmax - onehot) * grad_scale, where grad_scale
 * is usually 1 / (number of labels that count in the whole batch). */
oct_status oct_cross_entropy_gradient(oct_tensor *logits, const int32_t *labels, float grad_scale,
                                      oct_loss_sum *sum, oct_arena *scratch);

#endif
