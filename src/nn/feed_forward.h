/* SwiGLU feed-forward: y = w2(silu(w1(x)) * w3(x)); x, y (T,D), hidden (T,F).
 *
 * Kept for backward: w1's and w3's outputs, and the product if w2 keeps its input (unless it is to
 * be computed again). */
#ifndef OCT_NN_FEED_FORWARD_H
#define OCT_NN_FEED_FORWARD_H

#include "nn/linear.h"
#include "nn/module.h"

typedef enum oct_keep_product { OCT_PRODUCT_KEPT, OCT_PRODUCT_RECOMPUTED } oct_keep_product;

typedef struct oct_feed_forward {
    oct_module base;
    oct_linear *w1, *w2, *w3;
    oct_keep_product product; /* same bits either way; change it between steps only */
} oct_feed_forward;

/* The parent owns the result. torchtitan starts w1 by one rule, w2 and w3 by another; with `bias`
 * each has one, which starts at zero. */
oct_status oct_feed_forward_create(oct_module *parent, const char *component, int64_t D, int64_t F,
                                   oct_init w1_init, oct_init w2_w3_init, bool bias,
                                   oct_feed_forward **out);

#endif
