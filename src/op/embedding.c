/* The embedding: rows of a table by token; see elementwise.h. */
#include "op/common.h"
#include "op/elementwise.h"

typedef struct embedding_run {
    const oct_elementwise_kernels *kernels;
    const int32_t *tokens;
    int64_t T, D;
    oct_source in;
    oct_target out;
} embedding_run;

/* Columns of one backward task: tasks share no column, so each adds in order of tokens. */
enum { COLUMNS = 64 };

static bool tokens_within(const int32_t *tokens, int64_t T, int64_t V) {
    for (int64_t t = 0; t < T; t++)
        if (tokens[t] < 0 || tokens[t] >= V)
            return false;
    return true;
}

static void gather_task(void *context, int64_t task, int thread) {
    (void)thread;
    const embedding_run *run = context;
    int64_t rows = oct_op_task_rows(run->D), first = task * rows;
    int64_t end = first + oct_op_task_length(task, rows, run->T);
    for (int64_t t = first; t < end; t++)
        run->kernels->cast(oct_source_at(run->in, run->tokens[t] * run->D), run->D,
                           oct_target_at(run->out, t * run->D));
}

oct_status oct_embedding_forward(const oct_tensor *weight, const int32_t *tokens, oct_tensor *y) {
    int64_t T = oct_tensor_rows(y), D = oct_tensor_cols(y);
    if (!oct_op_is_dense(weight) || !oct_op_is_dense(y) || oct_tensor_cols(weight) != D ||
        !tokens_within(tokens, T, oct_tensor_rows(weight)))
        return OCT_INVALID;
    embedding_run run = {oct_op_kernels(), tokens, T, D, oct_op_source(weight), oct_op_target(y)};
    oct_parallel(oct_ceil_div(T, oct_op_task_rows(D)), gather_task, &run);
    return OCT_OK;
}

static void scatter_task(void *context, int64_t task, int thread) {
    (void)thread;
    const embedding_run *run = context;
    int64_t n = oct_op_task_length(task, COLUMNS, run->D);
    for (int64_t t = 0; t < run->T; t++) {
        oct_target row = oct_target_at(run->out, run->tokens[t] * run->D + task * COLUMNS);
        run->kernels->add(oct_source_of(row), oct_source_at(run->in, t * run->D + task * COLUMNS),
                          n, row);
    }
}

oct_status oct_embedding_backward(const oct_tensor *dy, const int32_t *tokens, int64_t V,
                                  float *dweight) {
    int64_t T = oct_tensor_rows(dy), D = oct_tensor_cols(dy);
    if (!oct_op_is_dense(dy) || !tokens_within(tokens, T, V))
        return OCT_INVALID;
    embedding_run run = {oct_op_kernels(), tokens, T, D, oct_op_source(dy), {dweight, OCT_F32}};
    oct_parallel(oct_ceil_div(D, COLUMNS), scatter_task, &run);
    return OCT_OK;
}
