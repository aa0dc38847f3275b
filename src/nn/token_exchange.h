/* Tokens go to the ranks that have their experts and come back: expert parallelism.
 *
 * The ranks of a team have E/n experts each, in order. A rank's rows, sorted by expert, are one run
 * a rank of the team, so they leave as they lie. They arrive run after run; experts read them
 * expert after expert and, of one expert, in order of rank. That is the order in which one process
 * sorts the tokens of the whole team, so an expert computes the bits that it computes there.
 *
 * Letters: E experts, n ranks, D elements of a row. All functions that move rows are collective in
 * the team. */
#ifndef OCT_NN_TOKEN_EXCHANGE_H
#define OCT_NN_TOKEN_EXCHANGE_H

#include <octet/status.h>
#include <octet/tensor.h>

#include "base/arena.h"

/* How bytes travel; who makes a model's shards brings it. */
typedef struct oct_token_exchange {
    void *user;
    int64_t n_ranks; /* divides E */
    /* n_send[r] items of item_bytes go to rank r, n_receive[r] come from it: in order of rank,
     * without gaps, in both memories. */
    oct_status (*move)(void *user, const void *send, const int64_t *n_send, void *receive,
                       const int64_t *n_receive, size_t item_bytes);
} oct_token_exchange;

/* Who sends how many rows to whom in one pass through a layer. */
typedef struct oct_token_route {
    const oct_token_exchange *exchange;
    int64_t n_experts;  /* of this rank: E/n */
    int64_t *n_send;    /* (n) rows */
    int64_t *n_receive; /* (n) */
    int64_t *counts;    /* (n, E/n): rows that each rank sends to each expert of this one */
    int64_t *offsets;   /* (E/n + 1): the groups of the rows that arrive, from 0 to their number */
} oct_token_route;

/* Tells the team what each rank sends: its rows lie at offsets[e] .. offsets[e+1]-1 (E+1). Memory
 * comes from `arena`. */
oct_status oct_token_route_agree(const oct_token_exchange *exchange, const int64_t *offsets,
                                 int64_t E, oct_arena *arena, oct_token_route *route);

static inline int64_t oct_token_route_rows(const oct_token_route *route) {
    return route->offsets[route->n_experts];
}

/* This rank's rows, sorted by all experts, to the rows of its own experts: `here`
 * (oct_token_route_rows, D). */
oct_status oct_tokens_to_experts(const oct_token_route *route, const oct_tensor *rows,
                                 oct_arena *scratch, oct_tensor *here);
/* The way back. */
oct_status oct_tokens_from_experts(const oct_token_route *route, const oct_tensor *here,
                                   oct_arena *scratch, oct_tensor *rows);

#endif
