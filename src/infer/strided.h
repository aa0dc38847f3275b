/* A loss over overlapping windows: each token is judged with a long context before it. */
#ifndef OCT_INFER_STRIDED_H
#define OCT_INFER_STRIDED_H

#include "data/dataset.h"
#include "model/model.h"
#include "op/loss.h"

/* Windows begin at tokens 0, stride, 2 stride, ...; each holds `window` inputs, fewer at the end,
 * and their labels. A label counts in the first window that has it. */
typedef struct oct_strided {
    oct_model *model;
    oct_step *step;
    const oct_dataset *pairs; /* of seq_len 1: pair i is token i and its label */
    int64_t n;                /* pairs that count, from the first on; >= 1 */
    int64_t window, stride;   /* 1 <= stride <= window */
    int64_t batch_size;       /* windows at a time; >= 1 */
    oct_progress progress;    /* NULL: none */
    void *progress_user;
} oct_strided;
oct_status oct_evaluate_strided(const oct_strided *s, oct_loss_sum *total, oct_error *err);

#endif
