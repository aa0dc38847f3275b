/* Routing of tokens to experts: scores, the choice of experts, the sort by expert, and the way
 * back.
 *
 * Letters: T tokens, E experts, A active experts a token (top_k), D elements of a token. A choice
 * is numbered t * A + j: the j-th expert of token t, best first. Choices sorted by expert, and
 * within an expert by number, have places 0 .. T*A-1.
 *
 * Everything is fp32 and in a fixed order: the same bits for any number of threads. Shapes that
 * don't fit are OCT_INVALID. Source: torchtitan v0.2.2, models/moe/moe.py; group limits and the
 * bias are DeepSeek-V3's (arXiv 2412.19437, sections 2.1.2 and 2.1.3). */
#ifndef OCT_OP_ROUTING_H
#define OCT_OP_ROUTING_H

#include <octet/status.h>
#include <octet/tensor.h>
#include <stdbool.h>

#include "base/arena.h"

#define OCT_MAX_EXPERTS 4096

typedef enum oct_score_func { OCT_SCORE_SOFTMAX, OCT_SCORE_SIGMOID } oct_score_func;

typedef enum oct_assignment {
    OCT_ASSIGN_BY_SCORE,
    OCT_ASSIGN_IN_TURN /* choice i goes to expert i % E, whatever the scores: even loads */
} oct_assignment;

typedef struct oct_routing_rule {
    int64_t n_experts, n_active; /* E at most OCT_MAX_EXPERTS, A at most E */
    int64_t n_groups;            /* divides E; 1: no groups */
    int64_t n_limited_groups;    /* groups that a token may use, enough for A experts */
    oct_score_func score_func;
    bool normalize;    /* the weights of a token sum to route_scale */
    float route_scale; /* > 0 */
    oct_assignment assignment;
} oct_routing_rule;

/* scores (T,E) F32: logits come in, scores go out. A token's experts are those with the largest
 * score + bias (bias (E) or NULL; of equal ones the lower number), among the groups whose two best
 * have the largest sum. Their weights are the scores without bias, divided by their sum if the rule
 * says so, times route_scale. chosen, weights (T,A). */
oct_status oct_route_forward(const oct_routing_rule *rule, oct_tensor *scores, const float *bias,
                             int32_t *chosen, float *weights);

/* dlogits (T,E) F32 is overwritten with the gradient of the logits, from that of the weights. The
 * choice itself has none. */
oct_status oct_route_backward(const oct_routing_rule *rule, const oct_tensor *scores,
                              const int32_t *chosen, const float *dweights, oct_tensor *dlogits);

/* The sort: choices (n) of experts 0 .. E-1. Expert e's are at places offsets[e] ..
 * offsets[e+1]-1; choice_at[place] and place_of[choice] are each other's inverse. */
void oct_route_sort(const int32_t *chosen, int64_t n, int64_t E, int64_t *offsets,
                    int32_t *choice_at, int32_t *place_of);

/* y (T*A, D): the row at each place is its token's row of x (T,D), times its weight unless
 * `weights` is NULL. */
oct_status oct_dispatch_rows(const oct_tensor *x, const int32_t *choice_at, int64_t n_active,
                             const float *weights, oct_tensor *y);

/* y (T,D): the sum over a token's choices, in order, of weight (NULL: 1) times the row at its place
 * of `routed` (T*A, D), added to `base` (T,D; NULL: nothing; may be y). One rounding. */
oct_status oct_combine_rows(const oct_tensor *routed, const int32_t *place_of, int64_t n_active,
                            const float *weights, const oct_tensor *base, oct_tensor *y,
                            oct_arena *scratch);

/* dots (T,A): of a token's row of x (T,D) with the row at each of its places of `routed`. */
oct_status oct_dot_rows(const oct_tensor *x, const oct_tensor *routed, const int32_t *place_of,
                        int64_t n_active, float *dots);

#endif
