/* Elementwise operators and the embedding. Tensors are F32 or BF16 in any mix, computed in fp32 and
 * rounded once when stored. Same bits for any number of threads. Outputs may be inputs, element for
 * element. Shapes that don't fit are OCT_INVALID. */
#ifndef OCT_OP_ELEMENTWISE_H
#define OCT_OP_ELEMENTWISE_H

#include <octet/status.h>
#include <octet/tensor.h>

/* y = silu(gate) * up, silu(a) = a / (1 + exp(-a)) (Shazeer, arXiv 2002.05202). Any equal shapes.
 */
oct_status oct_swiglu_forward(const oct_tensor *gate, const oct_tensor *up, oct_tensor *y);
/* dgate and dup are overwritten. */
oct_status oct_swiglu_backward(const oct_tensor *dy, const oct_tensor *gate, const oct_tensor *up,
                               oct_tensor *dgate, oct_tensor *dup);

/* y = a + b. */
oct_status oct_add(const oct_tensor *a, const oct_tensor *b, oct_tensor *y);
/* y = x * factor. */
oct_status oct_scale(const oct_tensor *x, float factor, oct_tensor *y);
/* y = x in y's dtype. */
oct_status oct_cast(const oct_tensor *x, oct_tensor *y);

/* y (T,D) = rows tokens[t] of weight (V,D). A token outside 0 .. V-1 is OCT_INVALID. */
oct_status oct_embedding_forward(const oct_tensor *weight, const int32_t *tokens, oct_tensor *y);
/* dweight (V,D) fp32: row tokens[t] += dy (T,D) row t, in order of t. */
oct_status oct_embedding_backward(const oct_tensor *dy, const int32_t *tokens, int64_t V,
                                  float *dweight);

#endif
