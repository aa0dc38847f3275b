/* The three products of a linear layer over oct_gemm: see matmul.h. */
#include "op/matmul.h"

#include <string.h>

#include "op/common.h"

static oct_status run_product(const oct_gemm_problem *problem, oct_arena *scratch) {
    oct_arena_mark mark = oct_arena_get_mark(scratch);
    void *workspace = oct_arena_alloc(scratch, oct_gemm_workspace(problem, 1, OCT_GEMM_EXACT));
    if (workspace)
        oct_gemm(problem, 1, OCT_GEMM_EXACT, workspace);
    oct_arena_release(scratch, mark);
    return workspace ? OCT_OK : OCT_NO_MEMORY;
}

static oct_operand operand(const oct_tensor *x, oct_layout layout) {
    return (oct_operand){
        .dtype = x->dtype, .layout = layout, .data = x->data, .ld = oct_tensor_cols(x)};
}

/* Whether a (T,N) and b (T,K) go with weight (N,K). */
static bool shapes_fit(const oct_tensor *x, const oct_tensor *y, int64_t N, int64_t K) {
    return oct_op_is_dense(x) && oct_op_is_dense(y) && oct_tensor_cols(x) == K &&
           oct_tensor_cols(y) == N && oct_tensor_rows(x) == oct_tensor_rows(y);
}

oct_status oct_matmul_forward(const oct_tensor *x, const oct_tensor *weight, const float *bias,
                              oct_tensor *y, oct_arena *scratch) {
    int64_t N = oct_tensor_rows(weight), K = oct_tensor_cols(weight);
    if (!oct_op_is_dense(weight) || !shapes_fit(x, y, N, K))
        return OCT_INVALID;
    oct_gemm_problem problem = {.M = oct_tensor_rows(x),
                                .N = N,
                                .K = K,
                                .a = operand(x, OCT_K_CONTIGUOUS),
                                .b = operand(weight, OCT_K_CONTIGUOUS),
                                .c = y->data,
                                .c_dtype = y->dtype,
                                .ld_c = N,
                                .accumulate = OCT_OVERWRITE,
                                .bias = bias};
    return run_product(&problem, scratch);
}

oct_status oct_matmul_input_gradient(const oct_tensor *dy, const oct_tensor *weight, oct_tensor *dx,
                                     oct_accumulate accumulate, oct_arena *scratch) {
    int64_t N = oct_tensor_rows(weight), K = oct_tensor_cols(weight);
    if (!oct_op_is_dense(weight) || !shapes_fit(dx, dy, N, K))
        return OCT_INVALID;
    oct_gemm_problem problem = {.M = oct_tensor_rows(dy),
                                .N = K,
                                .K = N,
                                .a = operand(dy, OCT_K_CONTIGUOUS),
                                .b = operand(weight, OCT_K_STRIDED),
                                .c = dx->data,
                                .c_dtype = dx->dtype,
                                .ld_c = K,
                                .accumulate = accumulate};
    return run_product(&problem, scratch);
}

oct_status oct_matmul_weight_gradient(const oct_tensor *dy, const oct_tensor *x, float *dweight,
                                      oct_dtype sum_dtype, oct_arena *scratch) {
    int64_t N = oct_tensor_cols(dy), K = oct_tensor_cols(x);
    if (!shapes_fit(x, dy, N, K))
        return OCT_INVALID;
    oct_gemm_problem problem = {.M = N,
                                .N = K,
                                .K = oct_tensor_rows(dy),
                                .a = operand(dy, OCT_K_STRIDED),
                                .b = operand(x, OCT_K_STRIDED),
                                .c = dweight,
                                .c_dtype = OCT_F32,
                                .ld_c = K,
                                .accumulate = OCT_ADD_TO_OUTPUT,
                                .sum_dtype = sum_dtype};
    return run_product(&problem, scratch);
}

typedef struct bias_run {
    const oct_elementwise_kernels *kernels;
    int64_t T, N;
    oct_source dy;
    float *partial; /* (tasks, N) */
} bias_run;

enum { BIAS_ROWS = 64 };

static void bias_task(void *context, int64_t task, int thread) {
    (void)thread;
    const bias_run *run = context;
    oct_target sum = {run->partial + task * run->N, OCT_F32};
    memset(sum.data, 0, (size_t)run->N * sizeof(float));
    int64_t n = oct_op_task_length(task, BIAS_ROWS, run->T);
    for (int64_t i = 0; i < n; i++)
        run->kernels->add(oct_source_of(sum),
                          oct_source_at(run->dy, (task * BIAS_ROWS + i) * run->N), run->N, sum);
}

oct_status oct_matmul_bias_gradient(const oct_tensor *dy, float *dbias, oct_arena *scratch) {
    if (!oct_op_is_dense(dy))
        return OCT_INVALID;
    bias_run run = {.kernels = oct_op_kernels(),
                    .T = oct_tensor_rows(dy),
                    .N = oct_tensor_cols(dy),
                    .dy = oct_op_source(dy)};
    int64_t n_tasks = oct_ceil_div(run.T, BIAS_ROWS);
    oct_arena_mark mark = oct_arena_get_mark(scratch);
    run.partial = oct_arena_alloc_array(scratch, (size_t)(n_tasks * run.N), sizeof(float));
    if (!run.partial)
        return OCT_NO_MEMORY;
    oct_parallel(n_tasks, bias_task, &run);
    oct_target sum = {dbias, OCT_F32};
    for (int64_t i = 0; i < n_tasks; i++)
        run.kernels->add(oct_source_of(sum), (oct_source){run.partial + i * run.N, OCT_F32}, run.N,
                         sum);
    oct_arena_release(scratch, mark);
    return OCT_OK;
}
