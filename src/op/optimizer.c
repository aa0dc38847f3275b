/* The optimizer's arithmetic: see optimizer.h. */
#include "op/optimizer.h"

#include <math.h>
#include <stdatomic.h>

#include "op/common.h"

enum { CHUNK = 32768 };

typedef struct adam_run {
    const oct_elementwise_kernels *kernels;
    oct_adam_factors factors;
    int64_t n;
    const float *grad;
    float *value, *m, *v;
    atomic_uint *flaws;
} adam_run;

static void adam_task(void *context, int64_t task, int thread) {
    (void)thread;
    const adam_run *run = context;
    int64_t at = task * CHUNK;
    unsigned flaws = run->kernels->adam(&run->factors, oct_op_task_length(task, CHUNK, run->n),
                                        run->grad + at, run->value + at, run->m + at, run->v + at);
    if (flaws)
        atomic_fetch_or(run->flaws, flaws);
}

oct_status oct_adam_step(const oct_adam *adam, int64_t step, int64_t n, const float *grad,
                         float grad_scale, float *value, float *m, float *v, unsigned *flaws) {
    atomic_uint found = 0;
    if (step < 1 || n < 0)
        return OCT_INVALID;
    bool decoupled = adam->decay == OCT_DECAY_DECOUPLED;
    double bias1 = 1 - pow(adam->beta1, (double)step), bias2 = 1 - pow(adam->beta2, (double)step);
    adam_run run = {.kernels = oct_op_kernels(),
                    .factors = {.grad_scale = grad_scale,
                                .l2 = decoupled ? 0 : (float)adam->weight_decay,
                                .keep = decoupled ? (float)(1 - adam->lr * adam->weight_decay) : 1,
                                .beta2 = (float)adam->beta2,
                                .new1 = (float)(1 - adam->beta1),
                                .new2 = (float)(1 - adam->beta2),
                                .step_size = (float)(adam->lr / bias1),
                                .inv_sqrt_bias2 = (float)(1 / sqrt(bias2)),
                                .eps = (float)adam->eps},
                    .n = n,
                    .grad = grad,
                    .value = value,
                    .m = m,
                    .v = v,
                    .flaws = &found};
    oct_parallel(oct_ceil_div(n, CHUNK), adam_task, &run);
    *flaws = atomic_load(&found);
    return OCT_OK;
}

typedef struct squares_run {
    const oct_elementwise_kernels *kernels;
    const float *x;
    int64_t n;
    double *partial;
} squares_run;

static void squares_task(void *context, int64_t task, int thread) {
    (void)thread;
    const squares_run *run = context;
    run->partial[task] = run->kernels->sum_of_squares(run->x + task * CHUNK,
                                                      oct_op_task_length(task, CHUNK, run->n));
}

oct_status oct_sum_of_squares(const float *x, int64_t n, double *sum, oct_arena *scratch) {
    if (n < 0)
        return OCT_INVALID;
    int64_t n_tasks = oct_ceil_div(n, CHUNK);
    oct_arena_mark mark = oct_arena_get_mark(scratch);
    squares_run run = {.kernels = oct_op_kernels(),
                       .x = x,
                       .n = n,
                       .partial = oct_arena_alloc_array(scratch, (size_t)n_tasks, sizeof(double))};
    if (!run.partial)
        return OCT_NO_MEMORY;
    oct_parallel(n_tasks, squares_task, &run);
    *sum = 0;
    for (int64_t i = 0; i < n_tasks; i++)
        *sum += run.partial[i];
    oct_arena_release(scratch, mark);
    return OCT_OK;
}
