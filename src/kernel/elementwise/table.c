/* The table of this set. */
#include "kernel/elementwise/vectors.h"

const oct_elementwise_kernels IN_SET(oct_elementwise_kernels) = {
    .cast = IN_SET(oct_ew_cast),
    .add = IN_SET(oct_ew_add),
    .scale = IN_SET(oct_ew_scale),
    .exp = IN_SET(oct_ew_exp),
    .swiglu = IN_SET(oct_ew_swiglu),
    .swiglu_backward = IN_SET(oct_ew_swiglu_backward),
    .rmsnorm = IN_SET(oct_ew_rmsnorm),
    .rmsnorm_backward = IN_SET(oct_ew_rmsnorm_backward),
    .rope = IN_SET(oct_ew_rope),
    .sum_of_squares = IN_SET(oct_ew_sum_of_squares),
    .dot = IN_SET(oct_ew_dot),
    .max = IN_SET(oct_ew_max),
    .sum_exp = IN_SET(oct_ew_sum_exp),
    .softmax_block = IN_SET(oct_ew_softmax_block),
    .softmax_backward = IN_SET(oct_ew_softmax_backward),
    .cross_entropy_gradient = IN_SET(oct_ew_cross_entropy_gradient),
    .adam = IN_SET(oct_ew_adam),
};
