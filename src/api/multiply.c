/* Products of quantized matrices: see octet/product.h. What the kernels can't read is decoded to
 * fp32 first; `exact` is defined on decoded operands, so its bits are the same. */
#include <octet/product.h>

#include "api/describe.h"
#include "base/alloc.h"
#include "base/call.h"
#include "base/checked.h"
#include "base/struct_size.h"
#include "base/thread.h"
#include "format/fp8.h"
#include "kernel/gemm.h"

#define TASK_ROWS 16

/* An operand, and what it was decoded to. */
typedef struct side {
    oct_coded q;
    oct_operand operand;
    bool direct;
    float *decoded; /* (rows, K) */
} side;

typedef struct job {
    oct_product product;
    side a, b;
} job;

static bool is_plain(const oct_coded *q) {
    return q->format == OCT_F32 || q->format == OCT_BF16;
}

static bool read_side(const oct_coded *given, side *s) {
    if (!oct_coded_read_plain(given, &s->q) && !oct_coded_read(given, &s->q))
        return false;
    return is_plain(&s->q) || s->q.scales || s->q.rows == 0 || s->q.cols == 0;
}

/* A dimension of 0 needs no memory. */
static bool read_product(const oct_product *given, job *j) {
    oct_product *p = &j->product;
    if (!oct_read_struct(given, p, sizeof *p, sizeof *p) || !read_side(p->a, &j->a) ||
        !read_side(p->b, &j->b) || j->a.q.cols != j->b.q.cols)
        return false;
    const int64_t M = j->a.q.rows, N = j->b.q.rows;
    int64_t n;
    return (p->c_dtype == OCT_F32 || p->c_dtype == OCT_BF16) && p->ld_c >= N &&
           oct_mul_i64(M, p->ld_c, &n) && (p->c || M == 0 || N == 0);
}

/* By rows of codes whose k are neighbours, or the other way round. */
static bool find_layout(const oct_coded *q, oct_operand *o) {
    o->layout = q->col_stride == 1 ? OCT_K_CONTIGUOUS : OCT_K_STRIDED;
    o->ld = q->col_stride == 1 ? q->row_stride : q->col_stride;
    const int64_t width = q->col_stride == 1 ? q->cols : q->rows;
    return (q->col_stride == 1 || q->row_stride == 1) && o->ld >= width;
}

/* MX blocks along K, or tiles, with scales where the kernels look for them: by stored rows. */
static bool find_mx(const oct_coded *q, oct_operand *o) {
    const bool contiguous = o->layout == OCT_K_CONTIGUOUS;
    const int64_t across = contiguous ? q->scale_col_stride : q->scale_row_stride;
    o->scaling = OCT_SCALING_MX;
    o->block_rows = q->block_rows;
    o->ld_scales = contiguous ? q->scale_row_stride : q->scale_col_stride;
    const int64_t n = oct_ceil_div(contiguous ? q->cols : q->rows, OCT_MX_BLOCK);
    const bool tiles = q->block_rows == OCT_MX_BLOCK, rows = q->block_rows == 1 && contiguous;
    return q->block_cols == OCT_MX_BLOCK && (tiles || rows) && across == 1 && o->ld_scales >= n;
}

static bool find_scaling(const oct_coded *q, oct_operand *o) {
    o->scales = q->scales;
    if (q->scale_dtype == OCT_E8M0)
        return find_mx(q, o);
    if (q->block_cols != 0)
        return false;
    o->scaling = q->block_rows == 0 ? OCT_SCALING_TENSOR : OCT_SCALING_ROW;
    return q->block_rows == 0 || (q->block_rows == 1 && q->scale_row_stride == 1);
}

static void find_operand(side *s) {
    oct_operand o = {.dtype = s->q.format, .data = s->q.codes};
    s->direct = find_layout(&s->q, &o) && (is_plain(&s->q) || find_scaling(&s->q, &o));
    s->operand = o;
}

static void decode_task(void *context, int64_t task, int thread) {
    const side *s = context;
    const int64_t end = oct_min_i64(s->q.rows, (task + 1) * TASK_ROWS);
    (void)thread;
    for (int64_t r = task * TASK_ROWS; r < end; r++)
        for (int64_t c = 0; c < s->q.cols; c++)
            s->decoded[r * s->q.cols + c] = oct_coded_value(&s->q, r, c);
}

static oct_status prepare_side(side *s) {
    find_operand(s);
    if (s->direct)
        return OCT_OK;
    s->decoded = oct_malloc_array((size_t)(s->q.rows * s->q.cols) + 1, sizeof *s->decoded);
    if (!s->decoded)
        return OCT_NO_MEMORY;
    oct_parallel(oct_ceil_div(s->q.rows, TASK_ROWS), decode_task, s);
    s->operand = (oct_operand){
        .dtype = OCT_F32, .layout = OCT_K_CONTIGUOUS, .data = s->decoded, .ld = s->q.cols};
    return OCT_OK;
}

static oct_gemm_problem problem_of(const job *j) {
    const oct_product *p = &j->product;
    return (oct_gemm_problem){.M = j->a.q.rows,
                              .N = j->b.q.rows,
                              .K = j->a.q.cols,
                              .a = j->a.operand,
                              .b = j->b.operand,
                              .c = p->c,
                              .c_dtype = p->c_dtype,
                              .ld_c = p->ld_c,
                              .accumulate = p->accumulate ? OCT_ADD_TO_OUTPUT : OCT_OVERWRITE,
                              .bias = p->bias,
                              .sum_dtype = OCT_F32};
}

static oct_status run_problems(const oct_gemm_problem *problems, int64_t n, oct_gemm_mode mode) {
    void *workspace = oct_malloc(oct_gemm_workspace(problems, n, mode));
    if (!workspace)
        return OCT_NO_MEMORY;
    oct_gemm(problems, n, mode, workspace);
    oct_free(workspace);
    return OCT_OK;
}

static oct_status run(job *jobs, oct_gemm_problem *problems, int64_t n, oct_gemm_mode mode) {
    oct_status status = OCT_OK;
    for (int64_t i = 0; i < n && !status; i++) {
        status = prepare_side(&jobs[i].a);
        if (!status)
            status = prepare_side(&jobs[i].b);
        problems[i] = problem_of(&jobs[i]);
    }
    if (!status)
        status = run_problems(problems, n, mode);
    for (int64_t i = 0; i < n; i++) {
        oct_free(jobs[i].a.decoded);
        oct_free(jobs[i].b.decoded);
    }
    return status;
}

/* Whether `fast` serves the product: two matrices of codes that the kernels read as they are. */
static bool is_fast(job *j) {
    find_operand(&j->a);
    find_operand(&j->b);
    return j->a.direct && j->b.direct && !is_plain(&j->a.q) && !is_plain(&j->b.q);
}

static bool read_all(const oct_product *products, int64_t n, oct_product_mode mode, job *jobs) {
    for (int64_t i = 0; i < n; i++)
        if (!read_product(&products[i], &jobs[i]) ||
            (mode == OCT_PRODUCT_FAST && !is_fast(&jobs[i])))
            return false;
    return true;
}

oct_status oct_multiply(const oct_product *products, int64_t n, oct_product_mode mode,
                        int threads) {
    static const oct_gemm_mode modes[] = {[OCT_PRODUCT_AUTO] = OCT_GEMM_AUTO,
                                          [OCT_PRODUCT_EXACT] = OCT_GEMM_EXACT,
                                          [OCT_PRODUCT_FAST] = OCT_GEMM_FAST};
    if (n < 0 || (n > 0 && !products) || (unsigned)mode > OCT_PRODUCT_FAST || threads < 0 ||
        (mode == OCT_PRODUCT_FAST && !oct_gemm_supports(OCT_GEMM_FAST)))
        return OCT_INVALID;
    job *jobs = oct_calloc_array((size_t)n + 1, sizeof *jobs);
    oct_gemm_problem *problems = oct_malloc_array((size_t)n + 1, sizeof *problems);
    oct_status status = jobs && problems ? OCT_OK : OCT_NO_MEMORY;
    if (!status && !read_all(products, n, mode, jobs))
        status = OCT_INVALID;
    if (!status && n > 0) {
        const oct_call call = oct_call_begin(threads);
        status = run(jobs, problems, n, modes[mode]);
        oct_call_end(&call);
    }
    oct_free(jobs);
    oct_free(problems);
    return status;
}
