/* A mean loss over batches of different sizes. */
#ifndef OCT_INFER_VALIDATE_H
#define OCT_INFER_VALIDATE_H

#include "comm/comm.h"
#include "data/dataset.h"
#include "model/model.h"
#include "op/loss.h"

/* Adds a batch: its summed loss and the number of tokens in that sum. */
static inline void oct_loss_sum_add(oct_loss_sum *total, double loss, int64_t count) {
    total->loss += loss;
    total->count += count;
}
/* Weighted by tokens: sum of losses over sum of tokens, never a mean of means. NaN of nothing. */
double oct_loss_sum_mean(const oct_loss_sum *total);

/* The loss of sequences first .. first+n-1 of the data set, in order, in batches of B; rank r of
 * R takes batches r, r + R, ... Collective over `world`; *total is this rank's share. */
typedef struct oct_evaluation {
    oct_model *model;
    oct_step *step;
    const oct_dataset *dataset;
    int64_t batch_size; /* B >= 1 sequences */
    int64_t first, n_sequences;
    oct_comm *world;       /* NULL: this process alone */
    oct_progress progress; /* NULL: none */
    void *progress_user;
    /* Collective over `world`, before each batch; *stop ends the evaluation with a total of
     * nothing. NULL: it goes to its end. */
    oct_status (*ask_to_stop)(void *user, bool *stop, oct_error *err);
    void *ask_user;
} oct_evaluation;
oct_status oct_evaluate(const oct_evaluation *evaluation, oct_loss_sum *total, oct_error *err);

#endif
