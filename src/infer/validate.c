/* The mean loss over held-out data: see validate.h. */
#include "infer/validate.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"

double oct_loss_sum_mean(const oct_loss_sum *total) {
    return total->count > 0 ? total->loss / (double)total->count : NAN;
}

/* Sequences first .. first+n-1 as inputs and targets, (n,S) each; `window` holds S + 1 tokens. */
static oct_status read_batch(const oct_dataset *dataset, int64_t first, int64_t n, int32_t *window,
                             int32_t *tokens, int32_t *targets, oct_error *err) {
    int64_t S = oct_dataset_seq_len(dataset);
    for (int64_t i = 0; i < n; i++) {
        oct_status status = oct_dataset_sequence(dataset, first + i, window, err);
        if (status)
            return status;
        memcpy(tokens + i * S, window, (size_t)S * sizeof *tokens);
        memcpy(targets + i * S, window + 1, (size_t)S * sizeof *targets);
    }
    return OCT_OK;
}

/* One sequence without a label. */
static int64_t fill_nothing(int64_t S, int32_t *tokens, int32_t *targets) {
    for (int64_t s = 0; s < S; s++) {
        tokens[s] = 0;
        targets[s] = OCT_IGNORE_LABEL;
    }
    return 1;
}

oct_status oct_evaluate(const oct_evaluation *e, oct_loss_sum *total, oct_error *err) {
    int64_t S = oct_dataset_seq_len(e->dataset);
    int64_t n_batches = oct_ceil_div(e->n_sequences, e->batch_size);
    int64_t rank = e->world ? oct_comm_rank(e->world) : 0;
    int64_t n_ranks = e->world ? oct_comm_size(e->world) : 1;
    size_t n_tokens = (size_t)(e->batch_size * S);
    oct_status status = OCT_OK;
    int32_t *window = oct_malloc_array((size_t)S + 1, sizeof *window);
    int32_t *tokens = oct_malloc_array(n_tokens, sizeof *tokens);
    int32_t *targets = oct_malloc_array(n_tokens, sizeof *targets);
    *total = (oct_loss_sum){0};
    if (!window || !tokens || !targets) {
        status = oct_fail_memory(err);
        goto cleanup;
    }
    for (int64_t round = 0; round * n_ranks < n_batches; round++) {
        int64_t batch = round * n_ranks + rank, start = batch * e->batch_size;
        /* A sharded model runs on all ranks or on none: without a batch left, on nothing that
         * counts. */
        int64_t n = oct_min_i64(e->batch_size, e->n_sequences - start);
        double loss = 0;
        int64_t count = 0;
        bool stop = false;
        if (e->ask_to_stop)
            status = e->ask_to_stop(e->ask_user, &stop, err);
        if (stop)
            *total = (oct_loss_sum){0};
        if (stop || status)
            goto cleanup;
        status = n > 0 ? read_batch(e->dataset, e->first + start, n, window, tokens, targets, err)
                       : OCT_OK;
        if (n <= 0)
            n = fill_nothing(S, tokens, targets);
        if (e->world)
            status = oct_comm_agree(e->world, status, err);
        if (!status)
            status = oct_model_evaluate(e->model, e->step, n, S, tokens, targets, &loss, &count);
        if (status)
            goto cleanup;
        oct_loss_sum_add(total, loss, count);
        if (e->progress)
            e->progress(e->progress_user, "validating", oct_min_i64(batch + 1, n_batches),
                        n_batches);
    }
cleanup:
    oct_free(window);
    oct_free(tokens);
    oct_free(targets);
    return status;
}
