/* Cross-entropy: see loss.h. */
#include "op/loss.h"

#include <math.h>
#include <octet/format.h>
#include <string.h>

#include "op/common.h"

typedef enum want { WANT_LOSS, WANT_GRADIENT } want;

typedef struct loss_run {
    const oct_elementwise_kernels *kernels;
    oct_source x;
    oct_target dx; /* x again, when the gradient is wanted */
    const int32_t *labels;
    int64_t T, V, task_rows;
    want want;
    float grad_scale;
    double *row_loss; /* (T) */
} loss_run;

static float element(oct_source x, int64_t i) {
    if (x.dtype == OCT_F32)
        return ((const float *)x.data)[i];
    return oct_bf16_decode(((const uint16_t *)x.data)[i]);
}

static void loss_row(const loss_run *run, int64_t t) {
    int64_t label = run->labels[t];
    oct_source x = oct_source_at(run->x, t * run->V);
    if (label == OCT_IGNORE_LABEL) {
        run->row_loss[t] = 0;
        if (run->want == WANT_GRADIENT)
            memset(oct_target_at(run->dx, t * run->V).data, 0,
                   (size_t)run->V * oct_dtype_bytes(run->dx.dtype));
        return;
    }
    float max = run->kernels->max(x, run->V);
    double sum = run->kernels->sum_exp(x, run->V, max);
    run->row_loss[t] = log(sum) + ((double)max - (double)element(x, label));
    if (run->want == WANT_GRADIENT)
        run->kernels->cross_entropy_gradient(oct_target_at(run->dx, t * run->V), run->V, max,
                                             (float)(1 / sum), label, run->grad_scale);
}

static void loss_task(void *context, int64_t task, int thread) {
    (void)thread;
    const loss_run *run = context;
    int64_t first = task * run->task_rows;
    int64_t end = first + oct_op_task_length(task, run->task_rows, run->T);
    for (int64_t t = first; t < end; t++)
        loss_row(run, t);
}

/* Also counts the labels that aren't ignored; false when one is out of range. */
static bool count_labels(const int32_t *labels, int64_t T, int64_t V, int64_t *count) {
    *count = 0;
    for (int64_t t = 0; t < T; t++) {
        if (labels[t] == OCT_IGNORE_LABEL)
            continue;
        if (labels[t] < 0 || labels[t] >= V)
            return false;
        ++*count;
    }
    return true;
}

static oct_status run_rows(loss_run *run, const oct_tensor *logits, oct_loss_sum *sum,
                           oct_arena *scratch) {
    run->kernels = oct_op_kernels();
    run->x = oct_op_source(logits);
    run->T = oct_tensor_rows(logits);
    run->V = oct_tensor_cols(logits);
    run->task_rows = oct_op_task_rows(run->V);
    int64_t count;
    if (!oct_op_is_dense(logits) || !count_labels(run->labels, run->T, run->V, &count))
        return OCT_INVALID;
    oct_arena_mark mark = oct_arena_get_mark(scratch);
    run->row_loss = oct_arena_alloc_array(scratch, (size_t)run->T, sizeof(double));
    if (!run->row_loss)
        return OCT_NO_MEMORY;
    oct_parallel(oct_ceil_div(run->T, run->task_rows), loss_task, run);
    *sum = (oct_loss_sum){.count = count};
    for (int64_t t = 0; t < run->T; t++)
        sum->loss += run->row_loss[t];
    oct_arena_release(scratch, mark);
    return OCT_OK;
}

oct_status oct_cross_entropy(const oct_tensor *logits, const int32_t *labels, oct_loss_sum *sum,
                             oct_arena *scratch) {
    loss_run run = {.labels = labels, .want = WANT_LOSS};
    return run_rows(&run, logits, sum, scratch);
}

oct_status oct_cross_entropy_gradient(oct_tensor *logits, const int32_t *labels, float grad_scale,
                                      oct_loss_sum *sum, oct_arena *scratch) {
    loss_run run = {.labels = labels,
                    .dx = oct_op_target(logits),
                    .want = WANT_GRADIENT,
                    .grad_scale = grad_scale};
    return run_rows(&run, logits, sum, scratch);
}
