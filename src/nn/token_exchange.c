/* Tokens on their way to experts and back: see token_exchange.h. */
#include "nn/token_exchange.h"

#include <string.h>

#include "base/thread.h"

static oct_status allocate(oct_arena *arena, int64_t n, oct_token_route *route) {
    size_t n_counts = (size_t)(n * route->n_experts);
    int64_t *memory = oct_arena_alloc_array(
        arena, 2 * (size_t)n + n_counts + (size_t)route->n_experts + 1, sizeof *memory);
    if (!memory)
        return OCT_NO_MEMORY;
    route->n_send = memory;
    route->n_receive = memory + n;
    route->counts = memory + 2 * n;
    route->offsets = route->counts + n_counts;
    return OCT_OK;
}

/* The sizes of this rank's groups, for their owners. */
static oct_status exchange_counts(const oct_token_exchange *exchange, const int64_t *offsets,
                                  int64_t E, oct_arena *arena, oct_token_route *route) {
    oct_arena_mark mark = oct_arena_get_mark(arena);
    int64_t n = exchange->n_ranks;
    int64_t *own = oct_arena_alloc_array(arena, (size_t)(E + n), sizeof *own);
    if (!own)
        return OCT_NO_MEMORY;
    int64_t *each = own + E;
    for (int64_t e = 0; e < E; e++)
        own[e] = offsets[e + 1] - offsets[e];
    for (int64_t r = 0; r < n; r++)
        each[r] = route->n_experts;
    oct_status status = exchange->move(exchange->user, own, each, route->counts, each, sizeof *own);
    oct_arena_release(arena, mark);
    return status;
}

oct_status oct_token_route_agree(const oct_token_exchange *exchange, const int64_t *offsets,
                                 int64_t E, oct_arena *arena, oct_token_route *route) {
    int64_t n = exchange->n_ranks, n_experts = E / n;
    *route = (oct_token_route){.exchange = exchange, .n_experts = n_experts};
    oct_status status = allocate(arena, n, route);
    if (!status)
        status = exchange_counts(exchange, offsets, E, arena, route);
    if (status)
        return status;
    memset(route->offsets, 0, (size_t)(n_experts + 1) * sizeof *route->offsets);
    for (int64_t r = 0; r < n; r++) {
        route->n_send[r] = offsets[(r + 1) * n_experts] - offsets[r * n_experts];
        route->n_receive[r] = 0;
        for (int64_t e = 0; e < n_experts; e++) {
            route->n_receive[r] += route->counts[r * n_experts + e];
            route->offsets[e + 1] += route->counts[r * n_experts + e];
        }
    }
    for (int64_t e = 0; e < n_experts; e++)
        route->offsets[e + 1] += route->offsets[e];
    return OCT_OK;
}

/* ---- between order of arrival (rank, expert) and of the experts (expert, rank) ---- */

typedef enum direction { TO_EXPERTS, FROM_EXPERTS } direction;

typedef struct reorder {
    const oct_token_route *route;
    char *arrived, *here;
    size_t row_bytes;
    direction direction;
} reorder;

/* All runs of one expert. */
static void reorder_expert(void *context, int64_t expert, int thread) {
    (void)thread;
    const reorder *run = context;
    const oct_token_route *route = run->route;
    const int64_t *counts = route->counts;
    int64_t of_rank = 0, here = route->offsets[expert];
    for (int64_t r = 0; r < route->exchange->n_ranks; r++, counts += route->n_experts) {
        int64_t arrived = of_rank;
        for (int64_t e = 0; e < expert; e++)
            arrived += counts[e];
        char *a = run->arrived + (size_t)arrived * run->row_bytes;
        char *b = run->here + (size_t)here * run->row_bytes;
        size_t n_bytes = (size_t)counts[expert] * run->row_bytes;
        if (n_bytes)
            memcpy(run->direction == TO_EXPERTS ? b : a, run->direction == TO_EXPERTS ? a : b,
                   n_bytes);
        here += counts[expert];
        of_rank += route->n_receive[r];
    }
}

static size_t row_bytes(const oct_tensor *rows) {
    return (size_t)oct_tensor_cols(rows) * oct_dtype_bytes(rows->dtype);
}

static void *allocate_rows(const oct_token_route *route, size_t n_bytes, oct_arena *scratch) {
    return oct_arena_alloc_array(scratch, (size_t)oct_token_route_rows(route), n_bytes);
}

oct_status oct_tokens_to_experts(const oct_token_route *route, const oct_tensor *rows,
                                 oct_arena *scratch, oct_tensor *here) {
    const oct_token_exchange *exchange = route->exchange;
    oct_arena_mark mark = oct_arena_get_mark(scratch);
    size_t n_bytes = row_bytes(rows);
    void *arrived = allocate_rows(route, n_bytes, scratch);
    if (!arrived)
        return OCT_NO_MEMORY;
    oct_status status = exchange->move(exchange->user, rows->data, route->n_send, arrived,
                                       route->n_receive, n_bytes);
    if (!status)
        oct_parallel(route->n_experts, reorder_expert,
                     &(reorder){route, arrived, here->data, n_bytes, TO_EXPERTS});
    oct_arena_release(scratch, mark);
    return status;
}

oct_status oct_tokens_from_experts(const oct_token_route *route, const oct_tensor *here,
                                   oct_arena *scratch, oct_tensor *rows) {
    const oct_token_exchange *exchange = route->exchange;
    oct_arena_mark mark = oct_arena_get_mark(scratch);
    size_t n_bytes = row_bytes(rows);
    void *leaving = allocate_rows(route, n_bytes, scratch);
    if (!leaving)
        return OCT_NO_MEMORY;
    oct_parallel(route->n_experts, reorder_expert,
                 &(reorder){route, leaving, here->data, n_bytes, FROM_EXPERTS});
    oct_status status = exchange->move(exchange->user, leaving, route->n_receive, rows->data,
                                       route->n_send, n_bytes);
    oct_arena_release(scratch, mark);
    return status;
}
