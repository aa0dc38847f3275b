/* The experts of one layer: each a SwiGLU feed-forward over its own group of tokens.
 *
 *   y_e = (silu(x_e w1_e^T) * (x_e w3_e^T)) w2_e^T
 *
 * Letters: E experts; T rows, sorted by expert: expert e's are offsets[e] .. offsets[e+1]-1, any
 * group may be empty; D dim; F hidden size. w1, w3 (E,F,D), w2 (E,D,F). With expert parallelism E
 * are the experts that this rank has, which gathered weights, lent gradients and groups are of; the
 * parameters' shapes say how many there are on all.
 *
 * How the products run is a table of its own (oct_expert_products) that converters swap: one
 * product an expert, all in one call, or on 8-bit operands. All give an expert the bits that it has
 * alone.
 *
 * Kept for backward: the products with w1 and w3, and what the table wants of the inputs of w1 and
 * w2 (all of them, or their 8-bit copies). */
#ifndef OCT_NN_EXPERTS_H
#define OCT_NN_EXPERTS_H

#include "nn/feed_forward.h"
#include "nn/module.h"
#include "nn/step.h"
#include "quant/recipe.h"

typedef struct oct_experts oct_experts;

/* Which of the three weights a product is with. */
typedef enum oct_expert_weight {
    OCT_EXPERT_W1,
    OCT_EXPERT_W2,
    OCT_EXPERT_W3,
    OCT_N_EXPERT_WEIGHTS
} oct_expert_weight;

/* One operand an expert (E), for contraction over dimension 0 (tokens) or 1 (features) of the rows.
 * NULL: not asked for. */
typedef struct oct_group_operands {
    oct_operand *along[2];
} oct_group_operands;

typedef struct oct_expert_products {
    const char *type_name; /* what `octet plan` prints */
    bool at_once;          /* one call for all experts; else a call an expert */
    bool keeps_input;      /* operands of rows are views: the rows are kept for backward */
    /* The rows x (T,C) of all groups as operands; those along d from arenas[d]. `weight` is the one
     * that they meet (the first of two), for its history of amaxes. */
    oct_status (*rows)(oct_experts *experts, oct_step *step, oct_expert_weight weight,
                       oct_role role, oct_along which, const oct_tensor *x, const int64_t *offsets,
                       oct_arena *const arenas[2], oct_group_operands *out);
    /* The weights (N,K) of all experts, contracted over `dim`: out (E). */
    oct_status (*weights)(oct_experts *experts, oct_step *step, oct_expert_weight weight, int dim,
                          oct_operand *out);
} oct_expert_products;

extern const oct_expert_products oct_expert_grouped;

struct oct_experts {
    oct_module base;
    int64_t n_experts, dim, hidden;      /* E, D, F */
    oct_param *w[OCT_N_EXPERT_WEIGHTS];  /* named w1, w2, w3 */
    const oct_expert_products *products; /* a converter's choice */
    oct_keep_product product;            /* same bits either way; change it between steps only */
    const oct_recipe *recipe;            /* set by a converter, which owns it; else NULL */
    struct oct_delayed
        *delayed; /* with a delayed recipe: slot weight * OCT_N_ROLES + role; owned */
};

/* The parent owns the result. */
oct_status oct_experts_create(oct_module *parent, const char *component, int64_t E, int64_t D,
                              int64_t F, oct_init w1_init, oct_init w2_w3_init, oct_experts **out);

/* x, y (T,D); offsets (E+1) from 0 to T. y->data NULL (only while saving): not wanted. While saving
 * with products that keep their input, x stays until backward. */
oct_status oct_experts_forward(oct_experts *experts, oct_step *step, const oct_tensor *x,
                               const int64_t *offsets, oct_tensor *y);
/* dx (T,D) is overwritten; the weights' gradients are added to, nothing at all for empty groups. */
oct_status oct_experts_backward(oct_experts *experts, oct_step *step, const oct_tensor *dy,
                                oct_tensor *dx);
/* Backward shall read x here instead: the same values, computed again. */
void oct_experts_replace_input(oct_experts *experts, const oct_tensor *x);

/* The module as experts, or NULL. */
oct_experts *oct_experts_from(oct_module *m);

#endif
