/* Elementwise operators: see elementwise.h. */
#include "op/elementwise.h"

#include "op/common.h"

typedef struct map_run {
    const oct_elementwise_kernels *kernels;
    int64_t n;
    oct_source in[3];
    oct_target out[2];
    float factor;
} map_run;

static bool agree(const oct_tensor *const *tensors, int n_tensors) {
    for (int i = 0; i < n_tensors; i++)
        if (!oct_op_is_dense(tensors[i]) ||
            oct_tensor_elements(tensors[i]) != oct_tensor_elements(tensors[0]))
            return false;
    return true;
}

static void run_tasks(oct_task task, map_run *run) {
    run->kernels = oct_op_kernels();
    oct_parallel(oct_ceil_div(run->n, OCT_OP_TASK_ELEMENTS), task, run);
}

/* The operands of one task. */
static map_run slice(const map_run *run, int64_t task) {
    int64_t at = task * OCT_OP_TASK_ELEMENTS;
    map_run s = *run;
    s.n = oct_op_task_length(task, OCT_OP_TASK_ELEMENTS, run->n);
    for (int i = 0; i < 3; i++)
        if (run->in[i].data)
            s.in[i] = oct_source_at(run->in[i], at);
    for (int i = 0; i < 2; i++)
        if (run->out[i].data)
            s.out[i] = oct_target_at(run->out[i], at);
    return s;
}

static void swiglu_task(void *context, int64_t task, int thread) {
    (void)thread;
    map_run s = slice(context, task);
    s.kernels->swiglu(s.in[0], s.in[1], s.n, s.out[0]);
}

oct_status oct_swiglu_forward(const oct_tensor *gate, const oct_tensor *up, oct_tensor *y) {
    if (!agree((const oct_tensor *[]){gate, up, y}, 3))
        return OCT_INVALID;
    map_run run = {.n = oct_tensor_elements(y),
                   .in = {oct_op_source(gate), oct_op_source(up)},
                   .out = {oct_op_target(y)}};
    run_tasks(swiglu_task, &run);
    return OCT_OK;
}

static void swiglu_backward_task(void *context, int64_t task, int thread) {
    (void)thread;
    map_run s = slice(context, task);
    s.kernels->swiglu_backward(s.in[0], s.in[1], s.in[2], s.n, s.out[0], s.out[1]);
}

oct_status oct_swiglu_backward(const oct_tensor *dy, const oct_tensor *gate, const oct_tensor *up,
                               oct_tensor *dgate, oct_tensor *dup) {
    if (!agree((const oct_tensor *[]){dy, gate, up, dgate, dup}, 5))
        return OCT_INVALID;
    map_run run = {.n = oct_tensor_elements(dy),
                   .in = {oct_op_source(dy), oct_op_source(gate), oct_op_source(up)},
                   .out = {oct_op_target(dgate), oct_op_target(dup)}};
    run_tasks(swiglu_backward_task, &run);
    return OCT_OK;
}

static void add_task(void *context, int64_t task, int thread) {
    (void)thread;
    map_run s = slice(context, task);
    s.kernels->add(s.in[0], s.in[1], s.n, s.out[0]);
}

oct_status oct_add(const oct_tensor *a, const oct_tensor *b, oct_tensor *y) {
    if (!agree((const oct_tensor *[]){a, b, y}, 3))
        return OCT_INVALID;
    map_run run = {.n = oct_tensor_elements(y),
                   .in = {oct_op_source(a), oct_op_source(b)},
                   .out = {oct_op_target(y)}};
    run_tasks(add_task, &run);
    return OCT_OK;
}

static void scale_task(void *context, int64_t task, int thread) {
    (void)thread;
    map_run s = slice(context, task);
    s.kernels->scale(s.in[0], s.factor, s.n, s.out[0]);
}

oct_status oct_scale(const oct_tensor *x, float factor, oct_tensor *y) {
    if (!agree((const oct_tensor *[]){x, y}, 2))
        return OCT_INVALID;
    map_run run = {.n = oct_tensor_elements(y),
                   .in = {oct_op_source(x)},
                   .out = {oct_op_target(y)},
                   .factor = factor};
    run_tasks(scale_task, &run);
    return OCT_OK;
}

static void cast_task(void *context, int64_t task, int thread) {
    (void)thread;
    map_run s = slice(context, task);
    s.kernels->cast(s.in[0], s.n, s.out[0]);
}

oct_status oct_cast(const oct_tensor *x, oct_tensor *y) {
    if (!agree((const oct_tensor *[]){x, y}, 2))
        return OCT_INVALID;
    map_run run = {
        .n = oct_tensor_elements(y), .in = {oct_op_source(x)}, .out = {oct_op_target(y)}};
    run_tasks(cast_task, &run);
    return OCT_OK;
}
