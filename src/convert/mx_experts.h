/* MX experts: the grouped products of a layer's experts on 8-bit operands (docs/numerics.md,
 * Experts). For expert e with its rows x_e, dY_e and its weight W_e:
 *
 *   forward  y_e = Q_K(x_e) Q_K(W_e)^T    dgrad  dX_e = Q_N(dY_e) Q_N(W_e)
 *   wgrad    dW_e = Q_T(dY_e)^T Q_T(x_e), blocks along the tokens of the group alone
 *
 * A per-tensor recipe has one scale for each group of rows and one for each expert's weight. Kept
 * for backward: the copies along the tokens, never the rows. */
#ifndef OCT_CONVERT_MX_EXPERTS_H
#define OCT_CONVERT_MX_EXPERTS_H

#include "nn/experts.h"

extern const oct_expert_products oct_mx_expert_products;

#endif
