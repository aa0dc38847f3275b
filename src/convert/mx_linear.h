/* MXLinear: a linear whose three products run on 8-bit operands (docs/numerics.md).
 *
 *   forward  y  (T,N) = Q_K(x) Q_K(W)^T + b
 *   dgrad    dX (T,K) = Q_N(dY) Q_N(W)
 *   wgrad    dW (N,K) = Q_T(dY)^T Q_T(x), accumulated in fp32
 *
 * Kept for backward: Q_T(x) alone, about 1.03 bytes an element, never x. */
#ifndef OCT_CONVERT_MX_LINEAR_H
#define OCT_CONVERT_MX_LINEAR_H

#include "nn/module.h"

extern const oct_module_ops oct_mx_linear_ops;

#endif
