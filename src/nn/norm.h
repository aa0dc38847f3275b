/* RMSNorm: y = x * rstd * weight over rows of D elements; x (T, n D) has n of them a token (heads).
 * Kept for backward: a pointer to x, and rstd, 4 bytes a row. */
#ifndef OCT_NN_NORM_H
#define OCT_NN_NORM_H

#include "nn/module.h"

typedef struct oct_norm {
    oct_module base;
    oct_param *weight; /* (D), starts at one */
    float eps;
} oct_norm;

/* The parent owns the result. Backward: dx may be dy itself (OCT_OVERWRITE). */
oct_status oct_norm_create(oct_module *parent, const char *component, int64_t D, float eps,
                           oct_norm **out);

#endif
