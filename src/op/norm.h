/* RMSNorm (Zhang and Sennrich, arXiv 1910.07467): y = x * rstd * weight,
 * rstd = 1 / sqrt(mean(x^2) + eps), all in fp32, rounded once when stored.
 *
 * D is the number of elements of `weight`; x is read as rows of D elements, whatever its shape: a
 * (T, H*D) tensor of heads with a weight of D is normalised head by head (Qwen3's q and k norm).
 * R = elements / D rows. Tensors are F32 or BF16. Same bits for any number of threads. */
#ifndef OCT_OP_NORM_H
#define OCT_OP_NORM_H

#include <octet/status.h>
#include <octet/tensor.h>

#include "base/arena.h"
#include "kernel/gemm.h"

/* rstd (R) is what backward needs; NULL: not wanted. y may be x itself. */
oct_status oct_rmsnorm_forward(const oct_tensor *x, const oct_tensor *weight, float eps,
                               oct_tensor *y, float *rstd, oct_arena *scratch);

/* With n = x * rstd and g = dy * weight:  dx = [dx +] rstd * (g - n * mean(g n)),
 * dweight (D) fp32 += sum over rows of dy * n (fixed chunks of rows, added in order).
 * dx may be dy itself. dx or dweight may be NULL. */
oct_status oct_rmsnorm_backward(const oct_tensor *dy, const oct_tensor *x, const oct_tensor *weight,
                                const float *rstd, oct_tensor *dx, oct_accumulate accumulate,
                                float *dweight, oct_arena *scratch);

#endif
