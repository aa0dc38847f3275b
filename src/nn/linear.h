/* Linear: y (T,N) = x (T,K) W^T + b, W (N,K). The high-precision ops; converters bring others. */
#ifndef OCT_NN_LINEAR_H
#define OCT_NN_LINEAR_H

#include "nn/module.h"
#include "quant/recipe.h"

typedef struct oct_linear {
    oct_module base;
    int64_t in_features, out_features; /* K, N */
    oct_param *weight;
    oct_param *bias;          /* NULL: none */
    const oct_recipe *recipe; /* set by a converter, which owns it; NULL in high precision */
    struct oct_delayed
        *delayed; /* with a delayed recipe: its amaxes, owned by the ops; else NULL */
} oct_linear;

extern const oct_module_ops oct_linear_ops;

/* The parent owns the result. `bias_init` NULL: no bias. */
oct_status oct_linear_create(oct_module *parent, const char *component, int64_t in_features,
                             int64_t out_features, oct_init weight_init, const oct_init *bias_init,
                             oct_linear **out);

/* A linear without bias whose weight is another module's parameter (N,K): a tied head. */
oct_status oct_linear_create_tied(oct_module *parent, const char *component, oct_param *weight,
                                  oct_linear **out);

/* Of the bias, where it trains: the sum of dy's rows. */
oct_status oct_linear_bias_gradient(oct_linear *linear, oct_step *step, const oct_tensor *dy);

/* The module as a linear, or NULL: true for whatever ops it has now. */
oct_linear *oct_linear_from(oct_module *m);

#endif
