/* The public quantizers and product (octet/quantize.h) over the internal ones. */
#include <octet/quantize.h>

#include <math.h>

#include "base/alloc.h"
#include "base/call.h"
#include "base/checked.h"
#include "base/thread.h"
#include "format/fp8.h"
#include "kernel/gemm.h"
#include "kernel/select.h"

#define TASK_ROWS 64

static bool is_matrix(int64_t rows, int64_t cols) {
    int64_t n;
    return rows >= 0 && cols >= 0 && oct_mul_i64(rows, cols, &n);
}

static bool is_source(oct_dtype dtype) {
    return dtype == OCT_F32 || dtype == OCT_BF16;
}

/* Memory that has to be there. */
static bool is_memory(const void *memory, int64_t rows, int64_t cols) {
    return memory || rows == 0 || cols == 0;
}

size_t oct_mx_scale_bytes(int64_t rows, int64_t cols) {
    if (!is_matrix(rows, cols))
        return 0;
    return (size_t)(rows * oct_ceil_div(cols, OCT_MX_BLOCK));
}

typedef struct mx_job {
    oct_matrix_view x;
    oct_dtype format;
    oct_scale_mode mode;
    oct_mx_output out;
} mx_job;

static oct_matrix_view task_view(const oct_matrix_view *x, int64_t task) {
    oct_matrix_view part = *x;
    part.data =
        (const char *)x->data + (size_t)(task * TASK_ROWS * x->ld) * oct_dtype_bytes(x->dtype);
    part.rows = oct_min_i64(TASK_ROWS, x->rows - task * TASK_ROWS);
    return part;
}

static void mx_rows_task(void *context, int64_t task, int thread) {
    const mx_job *j = context;
    (void)thread;
    oct_matrix_view part = task_view(&j->x, task);
    oct_mx_output out = j->out;
    out.codes += task * TASK_ROWS * out.ld_codes;
    out.scales += task * TASK_ROWS * out.ld_scales;
    oct_kernels_current()->quantize->mx_rows(&part, j->format, j->mode, &out);
}

static void mx_cols_task(void *context, int64_t task, int thread) {
    const mx_job *j = context;
    (void)thread;
    oct_matrix_view part = task_view(&j->x, task);
    oct_mx_output out = j->out;
    out.codes += task * TASK_ROWS;
    out.scales += task * TASK_ROWS / OCT_MX_BLOCK;
    oct_kernels_current()->quantize->mx_cols(&part, j->format, j->mode, &out);
}

/* Blocks along the rows, or the transposed matrix with blocks along its rows. */
static oct_status mx_quantize(const oct_matrix_view *x, oct_dtype format, oct_scale_mode mode,
                              uint8_t *codes, uint8_t *scales, int64_t row_elements,
                              void (*task)(void *context, int64_t task, int thread)) {
    if (!is_matrix(x->rows, x->cols) || !is_source(x->dtype) || !oct_is_mx_format(format) ||
        !oct_is_scale_mode(mode))
        return OCT_INVALID;
    if (x->rows == 0 || x->cols == 0)
        return OCT_OK;
    if (!x->data || !codes || !scales)
        return OCT_INVALID;
    mx_job j = {
        *x, format, mode, {codes, row_elements, scales, oct_ceil_div(row_elements, OCT_MX_BLOCK)}};
    const oct_call call = oct_call_begin(0);
    oct_parallel(oct_ceil_div(x->rows, TASK_ROWS), task, &j);
    oct_call_end(&call);
    return OCT_OK;
}

oct_status oct_mx_quantize(const void *x, oct_dtype x_dtype, int64_t rows, int64_t cols,
                           oct_dtype format, oct_scale_mode mode, uint8_t *codes, uint8_t *scales) {
    const oct_matrix_view view = {x, x_dtype, rows, cols, cols};
    return mx_quantize(&view, format, mode, codes, scales, cols, mx_rows_task);
}

oct_status oct_mx_quantize_transposed(const void *x, oct_dtype x_dtype, int64_t rows, int64_t cols,
                                      oct_dtype format, oct_scale_mode mode, uint8_t *codes,
                                      uint8_t *scales) {
    const oct_matrix_view view = {x, x_dtype, rows, cols, cols};
    return mx_quantize(&view, format, mode, codes, scales, rows, mx_cols_task);
}

typedef struct mx_codes {
    const uint8_t *codes, *scales;
    int64_t rows, cols;
    oct_dtype format;
    float *y;
} mx_codes;

static void mx_dequantize_task(void *context, int64_t task, int thread) {
    const mx_codes *j = context;
    const int64_t blocks = oct_ceil_div(j->cols, OCT_MX_BLOCK);
    const int64_t end = oct_min_i64(j->rows, (task + 1) * TASK_ROWS);
    (void)thread;
    for (int64_t r = task * TASK_ROWS; r < end; r++)
        for (int64_t c = 0; c < j->cols; c++)
            j->y[r * j->cols + c] = oct_fp8_value(j->format, j->codes[r * j->cols + c]) *
                                    oct_e8m0_decode(j->scales[r * blocks + c / OCT_MX_BLOCK]);
}

oct_status oct_mx_dequantize(const uint8_t *codes, const uint8_t *scales, int64_t rows,
                             int64_t cols, oct_dtype format, float *y) {
    if (!is_matrix(rows, cols) || !oct_is_mx_format(format) || !is_memory(codes, rows, cols) ||
        !is_memory(scales, rows, cols) || !is_memory(y, rows, cols))
        return OCT_INVALID;
    mx_codes j = {codes, scales, rows, cols, format, y};
    const oct_call call = oct_call_begin(0);
    oct_parallel(oct_ceil_div(rows, TASK_ROWS), mx_dequantize_task, &j);
    oct_call_end(&call);
    return OCT_OK;
}

/* The scale of the whole matrix, and its codes by it. */
static __attribute__((noinline)) void tensor_quantize(const oct_matrix_view *x, oct_dtype format,
                                                      float target, uint8_t *codes, float *scale) {
    const oct_quantize_kernels *kernels = oct_kernels_current()->quantize;
    *scale = oct_scale_from_amax(kernels->amax(x), target);
    kernels->scaled(x, format, *scale, codes, x->cols);
}

oct_status oct_tensor_quantize(const void *x, oct_dtype x_dtype, int64_t rows, int64_t cols,
                               oct_dtype format, float target, uint8_t *codes, float *scale) {
    if (!is_matrix(rows, cols) || !is_source(x_dtype) || !oct_is_fp8(format) || !(target > 0) ||
        isinf(target) || !scale || !is_memory(x, rows, cols) || !is_memory(codes, rows, cols))
        return OCT_INVALID;
    oct_matrix_view view = {x, x_dtype, cols > 0 ? rows : 0, cols, cols};
    const oct_call call = oct_call_begin(0);
    tensor_quantize(&view, format, target, codes, scale);
    oct_call_end(&call);
    return OCT_OK;
}

oct_status oct_tensor_dequantize(const uint8_t *codes, float scale, int64_t rows, int64_t cols,
                                 oct_dtype format, float *y) {
    if (!is_matrix(rows, cols) || !oct_is_fp8(format) || !is_memory(codes, rows, cols) ||
        !is_memory(y, rows, cols))
        return OCT_INVALID;
    const oct_call call = oct_call_begin(0);
    oct_kernels_current()->quantize->decode_scaled(codes, rows, cols, cols, format, scale, y, cols);
    oct_call_end(&call);
    return OCT_OK;
}

static oct_operand operand(const oct_codes *codes, int64_t K) {
    bool mx = codes->mx_scales != NULL;
    return (oct_operand){.dtype = codes->format,
                         .layout = OCT_K_CONTIGUOUS,
                         .data = codes->codes,
                         .ld = K,
                         .scaling = mx ? OCT_SCALING_MX : OCT_SCALING_TENSOR,
                         .scales = mx ? (const void *)codes->mx_scales : &codes->tensor_scale,
                         .ld_scales = oct_ceil_div(K, OCT_MX_BLOCK),
                         .block_rows = 1};
}

/* A scale of NaN is that of a tensor with a NaN or an Inf; 0 is one that nobody has set. */
static bool is_operand(const oct_codes *codes, int64_t rows, int64_t K) {
    if (!codes || !is_memory(codes->codes, rows, K))
        return false;
    if (codes->mx_scales)
        return oct_is_mx_format(codes->format);
    return oct_is_fp8(codes->format) && (codes->tensor_scale > 0 || isnan(codes->tensor_scale));
}

static oct_status multiply(const oct_gemm_problem *problem) {
    void *workspace = oct_malloc(oct_gemm_workspace(problem, 1, OCT_GEMM_AUTO));
    if (!workspace)
        return OCT_NO_MEMORY;
    oct_gemm(problem, 1, OCT_GEMM_AUTO, workspace);
    oct_free(workspace);
    return OCT_OK;
}

oct_status oct_codes_multiply(const oct_codes *a, const oct_codes *b, int64_t M, int64_t N,
                              int64_t K, float *c) {
    if (!is_matrix(M, N) || !is_matrix(M, K) || !is_matrix(N, K) || !is_operand(a, M, K) ||
        !is_operand(b, N, K) || !is_memory(c, M, N))
        return OCT_INVALID;
    const oct_gemm_problem problem = {.M = M,
                                      .N = N,
                                      .K = K,
                                      .a = operand(a, K),
                                      .b = operand(b, K),
                                      .c = c,
                                      .c_dtype = OCT_F32,
                                      .ld_c = N};
    const oct_call call = oct_call_begin(0);
    oct_status status = multiply(&problem);
    oct_call_end(&call);
    return status;
}
