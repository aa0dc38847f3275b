/* RMSNorm over rows: see norm.h. */
#include "op/norm.h"

#include <string.h>

#include "op/common.h"

typedef struct norm_run {
    const oct_elementwise_kernels *kernels;
    int64_t R, D, task_rows;
    oct_source dy, x;
    const float *weight;
    float eps;
    oct_target out; /* y or dx */
    float *rstd_out;
    const float *rstd;
    oct_accumulate accumulate;
    float *partial; /* (tasks, D): a task's share of dweight */
} norm_run;

/* The weight in fp32: itself, or a copy in `scratch`. NULL: memory refused. */
static const float *weight_f32(const oct_tensor *weight, oct_arena *scratch) {
    if (weight->dtype == OCT_F32)
        return weight->data;
    int64_t D = oct_tensor_elements(weight);
    float *copy = oct_arena_alloc_array(scratch, (size_t)D, sizeof *copy);
    if (copy)
        oct_op_kernels()->cast(oct_op_source(weight), D, (oct_target){copy, OCT_F32});
    return copy;
}

static bool shapes_fit(const oct_tensor *x, const oct_tensor *weight, int64_t D) {
    return oct_op_is_dense(x) && oct_op_is_dense(weight) && D > 0 &&
           oct_tensor_elements(x) % D == 0;
}

static void forward_task(void *context, int64_t task, int thread) {
    (void)thread;
    const norm_run *run = context;
    int64_t first = task * run->task_rows;
    int64_t end = first + oct_op_task_length(task, run->task_rows, run->R);
    for (int64_t r = first; r < end; r++) {
        float rstd = run->kernels->rmsnorm(oct_source_at(run->x, r * run->D), run->weight, run->eps,
                                           run->D, oct_target_at(run->out, r * run->D));
        if (run->rstd_out)
            run->rstd_out[r] = rstd;
    }
}

oct_status oct_rmsnorm_forward(const oct_tensor *x, const oct_tensor *weight, float eps,
                               oct_tensor *y, float *rstd, oct_arena *scratch) {
    int64_t D = oct_tensor_elements(weight);
    if (!shapes_fit(x, weight, D) || !oct_op_is_dense(y) ||
        oct_tensor_elements(y) != oct_tensor_elements(x))
        return OCT_INVALID;
    oct_arena_mark mark = oct_arena_get_mark(scratch);
    norm_run run = {.kernels = oct_op_kernels(),
                    .R = oct_tensor_elements(x) / D,
                    .D = D,
                    .task_rows = oct_op_task_rows(D),
                    .x = oct_op_source(x),
                    .weight = weight_f32(weight, scratch),
                    .eps = eps,
                    .out = oct_op_target(y),
                    .rstd_out = rstd};
    if (run.weight)
        oct_parallel(oct_ceil_div(run.R, run.task_rows), forward_task, &run);
    oct_arena_release(scratch, mark);
    return run.weight ? OCT_OK : OCT_NO_MEMORY;
}

static void backward_task(void *context, int64_t task, int thread) {
    (void)thread;
    const norm_run *run = context;
    float *dweight = run->partial ? run->partial + task * run->D : NULL;
    if (dweight)
        memset(dweight, 0, (size_t)run->D * sizeof *dweight);
    int64_t first = task * run->task_rows;
    int64_t end = first + oct_op_task_length(task, run->task_rows, run->R);
    for (int64_t r = first; r < end; r++) {
        int64_t at = r * run->D;
        oct_target dx = run->out.data ? oct_target_at(run->out, at) : run->out;
        run->kernels->rmsnorm_backward(oct_source_at(run->dy, at), oct_source_at(run->x, at),
                                       run->weight, run->rstd[r], run->D, dx, run->accumulate,
                                       dweight);
    }
}

oct_status oct_rmsnorm_backward(const oct_tensor *dy, const oct_tensor *x, const oct_tensor *weight,
                                const float *rstd, oct_tensor *dx, oct_accumulate accumulate,
                                float *dweight, oct_arena *scratch) {
    int64_t D = oct_tensor_elements(weight), n = oct_tensor_elements(x);
    if (!shapes_fit(x, weight, D) || !oct_op_is_dense(dy) || oct_tensor_elements(dy) != n ||
        (dx && (!oct_op_is_dense(dx) || oct_tensor_elements(dx) != n)))
        return OCT_INVALID;
    oct_arena_mark mark = oct_arena_get_mark(scratch);
    oct_status status = OCT_OK;
    norm_run run = {.kernels = oct_op_kernels(),
                    .R = n / D,
                    .D = D,
                    .dy = oct_op_source(dy),
                    .x = oct_op_source(x),
                    .weight = weight_f32(weight, scratch),
                    .rstd = rstd,
                    .accumulate = accumulate};
    /* At most 64 partial gradients, whatever the number of rows. */
    run.task_rows = oct_max_i64(2 * oct_op_task_rows(D), oct_ceil_div(run.R, 64));
    int64_t n_tasks = oct_ceil_div(run.R, run.task_rows);
    if (dx)
        run.out = oct_op_target(dx);
    if (dweight)
        run.partial = oct_arena_alloc_array(scratch, (size_t)(n_tasks * D), sizeof(float));
    if (!run.weight || (dweight && !run.partial)) {
        status = OCT_NO_MEMORY;
        goto cleanup;
    }
    oct_parallel(n_tasks, backward_task, &run);
    oct_target sum = {dweight, OCT_F32};
    for (int64_t i = 0; dweight && i < n_tasks; i++)
        run.kernels->add(oct_source_of(sum), (oct_source){run.partial + i * D, OCT_F32}, D, sum);
cleanup:
    oct_arena_release(scratch, mark);
    return status;
}
