/* A loss over overlapping windows: see strided.h. */
#include "infer/strided.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "infer/validate.h"

/* Window `index` as S inputs and labels; labels of earlier windows are ignored. */
static oct_status read_window(const oct_strided *s, int64_t index, int64_t S, int32_t *tokens,
                              int32_t *labels, oct_error *err) {
    int64_t first = index * s->stride;
    int64_t n_old = index ? s->window - s->stride : 0;
    for (int64_t i = 0; i < S; i++) {
        int32_t pair[2];
        oct_status status = oct_dataset_sequence(s->pairs, first + i, pair, err);
        if (status)
            return status;
        tokens[i] = pair[0];
        labels[i] = i < n_old ? OCT_IGNORE_LABEL : pair[1];
    }
    return OCT_OK;
}

static oct_status run(const oct_strided *s, int64_t index, int64_t n, int64_t S, int32_t *tokens,
                      int32_t *labels, oct_loss_sum *total, oct_error *err) {
    double loss = 0;
    int64_t count = 0;
    oct_status status = OCT_OK;
    for (int64_t i = 0; i < n && !status; i++)
        status = read_window(s, index + i, S, tokens + i * S, labels + i * S, err);
    if (status)
        return status;
    status = oct_model_evaluate(s->model, s->step, n, S, tokens, labels, &loss, &count);
    if (status)
        return status == OCT_NO_MEMORY ? oct_fail_memory(err)
                                       : oct_fail(err, status, "the model refused its tokens");
    oct_loss_sum_add(total, loss, count);
    return OCT_OK;
}

oct_status oct_evaluate_strided(const oct_strided *s, oct_loss_sum *total, oct_error *err) {
    int64_t window = oct_min_i64(s->window, s->n);
    int64_t n_whole = (s->n - window) / s->stride + 1; /* and a shorter one, if pairs are left */
    bool rest = (n_whole - 1) * s->stride + window < s->n;
    size_t size = (size_t)oct_min_i64(s->batch_size, n_whole) * (size_t)window;
    int32_t *tokens = oct_malloc_array(size, sizeof *tokens);
    int32_t *labels = oct_malloc_array(size, sizeof *labels);
    oct_status status = tokens && labels ? OCT_OK : oct_fail_memory(err);
    *total = (oct_loss_sum){0};
    for (int64_t i = 0; i < n_whole && !status; i += s->batch_size) {
        status =
            run(s, i, oct_min_i64(s->batch_size, n_whole - i), window, tokens, labels, total, err);
        if (s->progress)
            s->progress(s->progress_user, "evaluating", oct_min_i64(i + s->batch_size, n_whole),
                        n_whole);
    }
    if (!status && rest)
        status = run(s, n_whole, 1, s->n - n_whole * s->stride, tokens, labels, total, err);
    oct_free(tokens);
    oct_free(labels);
    return status;
}
