/* The three products of a linear layer in high precision, over oct_gemm.
 *
 * Shapes: x (T,K), weight (N,K), y and dy (T,N). Tensors are F32 or BF16, in any mix; sums are
 * fp32, rounded once when stored. Results are the same bits for any number of threads. A tensor of
 * more than two dimensions is read as a matrix of its last one. Wrong shapes are OCT_INVALID.
 * Workspace comes from `scratch` and is given back. */
#ifndef OCT_OP_MATMUL_H
#define OCT_OP_MATMUL_H

#include <octet/status.h>
#include <octet/tensor.h>

#include "base/arena.h"
#include "kernel/gemm.h"

/* y = x W^T + bias; bias (N) or NULL. y is overwritten. */
oct_status oct_matmul_forward(const oct_tensor *x, const oct_tensor *weight, const float *bias,
                              oct_tensor *y, oct_arena *scratch);

/* dx = [dx +] dy W. */
oct_status oct_matmul_input_gradient(const oct_tensor *dy, const oct_tensor *weight, oct_tensor *dx,
                                     oct_accumulate accumulate, oct_arena *scratch);

/* dweight (N,K) fp32 += dy^T x, which is rounded to sum_dtype (F32: not at all) before. */
oct_status oct_matmul_weight_gradient(const oct_tensor *dy, const oct_tensor *x, float *dweight,
                                      oct_dtype sum_dtype, oct_arena *scratch);

/* dbias (N) fp32 += the sum of dy's rows: fp32 sums of 64 rows in order, those added in order. */
oct_status oct_matmul_bias_gradient(const oct_tensor *dy, float *dbias, oct_arena *scratch);

#endif
