/* Mixture of experts in place of a feed-forward: y = shared_experts(x) + sum over a token's experts
 * of weight * expert(x).
 *
 *   scores = score(router.gate(x)), fp32; op/routing.h says who is chosen with which weight
 *   the tokens are sorted by expert, run through `experts`, and come back weighted
 *
 * With score_before_experts the weight multiplies an expert's input instead of its output.
 *
 * Balance without an auxiliary loss (arXiv 2408.15664): expert_bias is added to the scores for the
 * choice alone; after each step it moves by load_balance_coeff towards the experts that had fewer
 * tokens. With a coefficient of 0 it stays what it is: zero, or what a model came with. It's a
 * buffer: no gradient, saved in checkpoints.
 *
 * With expert parallelism (`exchange`) this rank has some of the experts: sorted tokens travel to
 * those who have their experts, and their outputs come back, as do the gradients of both in
 * backward.
 *
 * Children: router.gate, experts, shared_experts (if any). Kept for backward: x (a pointer),
 * scores, choices and places (20 bytes a choice and 4 an expert for each token), the experts'
 * output (for the gradient of the weights), the sorted tokens where the experts keep their input
 * (with `exchange` those that arrived, and 8 bytes an expert).
 */
#ifndef OCT_NN_MOE_H
#define OCT_NN_MOE_H

#include "nn/experts.h"
#include "nn/feed_forward.h"
#include "nn/linear.h"
#include "nn/token_exchange.h"
#include "op/routing.h"

typedef struct oct_moe_config {
    int64_t dim, hidden; /* of one expert */
    int64_t n_shared;    /* shared experts: one feed-forward of n_shared * hidden; 0: none */
    oct_routing_rule rule;
    bool score_before_experts;
    float load_balance_coeff; /* 0: the bias stays as it is */
    oct_init gate_init, w1_init, w2_w3_init;
} oct_moe_config;

typedef struct oct_moe {
    oct_module base;
    oct_moe_config config;
    oct_module *router; /* holds the gate */
    oct_linear *gate;
    oct_experts *experts;
    oct_feed_forward *shared_experts;   /* NULL: none */
    oct_keep_product sorted;            /* the sorted tokens; same bits either way */
    const oct_token_exchange *exchange; /* NULL: all experts are here; not owned */
    float *expert_bias;                 /* (E) */
    int64_t *tokens_per_expert;         /* (E): of the training passes since the last update */
} oct_moe;

/* The parent owns the result. */
oct_status oct_moe_create(oct_module *parent, const char *component, const oct_moe_config *config,
                          oct_moe **out);

/* The name of its expert_bias, as checkpoints have it: "layers.N.moe.expert_bias". */
enum { OCT_MOE_BIAS_NAME_SIZE = 96 };
void oct_moe_bias_name(const oct_moe *moe, char name[OCT_MOE_BIAS_NAME_SIZE]);

/* Moves the bias by counts (E) of one step, of all ranks: load_balance_coeff * (sign(mean - count)
 * less its mean over the experts), and clears tokens_per_expert. Source: torchtitan v0.2.2,
 * components/optimizer.py. */
void oct_moe_update_bias(oct_moe *moe, const int64_t *counts);

/* Backward computes what is cheap again (see oct_block_set_recompute). Between steps only. */
void oct_moe_set_products(oct_moe *moe, oct_keep_product product);

/* The module as a mixture of experts, or NULL. */
oct_moe *oct_moe_from(oct_module *m);

#endif
