/* Quantizing a matrix for the products it enters: see qmatrix.h.
 *
 * Work is cut into blocks of TASK_ROWS source rows (a multiple of the MX block), so that no block
 * of 32 is ever split, in either direction, and results don't depend on the number of threads. */
#include "quant/qmatrix.h"

#include <math.h>
#include <string.h>

#include "base/checked.h"
#include "base/thread.h"
#include "kernel/select.h"

#define TASK_ROWS 64
#define STRIP_COLS 32 /* per-channel along dimension 0: columns that one task transposes */

typedef struct job {
    oct_matrix_view x;
    const oct_quantize_kernels *kernels;
    oct_dtype format;
    oct_scale_mode mode;
    float target;
    float scale;           /* per tensor */
    float *amax;           /* one a task */
    float *strip;          /* a strip of STRIP_COLS columns a thread, transposed to fp32 */
    oct_qmatrix *along[2]; /* NULL: not wanted */
} job;

bool oct_recipe_shares_copies(const oct_recipe *recipe, oct_role role) {
    if (recipe->granularity == OCT_PER_TENSOR)
        return true;
    return recipe->granularity == OCT_MX && role == OCT_ROLE_WEIGHT &&
           recipe->weight_block_rows == OCT_MX_BLOCK;
}

/* The shape of the copy for contraction over `dim`, without memory. */
static oct_qmatrix describe(const oct_recipe *recipe, oct_role role, int64_t rows, int64_t cols,
                            int dim) {
    bool transposed = dim == 0 && !oct_recipe_shares_copies(recipe, role);
    oct_qmatrix q = {.format = recipe->format[role],
                     .rows = transposed ? cols : rows,
                     .cols = transposed ? rows : cols,
                     .transposed = transposed,
                     .block_rows = 1};
    if (recipe->granularity == OCT_MX) {
        q.scaling = OCT_SCALING_MX;
        q.block_rows = role == OCT_ROLE_WEIGHT ? recipe->weight_block_rows : 1;
        q.ld_scales = oct_ceil_div(q.cols, OCT_MX_BLOCK);
    } else {
        q.scaling = recipe->granularity == OCT_PER_TENSOR ? OCT_SCALING_TENSOR : OCT_SCALING_ROW;
    }
    return q;
}

static size_t scale_bytes(const oct_qmatrix *q) {
    if (q->scaling == OCT_SCALING_MX)
        return (size_t)(oct_ceil_div(q->rows, q->block_rows) * q->ld_scales);
    return sizeof(float) * (q->scaling == OCT_SCALING_TENSOR ? 1 : (size_t)q->rows);
}

size_t oct_qmatrix_bytes(const oct_recipe *recipe, oct_role role, int64_t rows, int64_t cols,
                         int dim) {
    oct_qmatrix q = describe(recipe, role, rows, cols, dim);
    return (size_t)(rows * cols) + scale_bytes(&q);
}

static bool allocate(oct_qmatrix *q, oct_arena *arena) {
    q->codes = oct_arena_alloc_array(arena, (size_t)q->rows, (size_t)q->cols);
    q->scales = oct_arena_alloc(arena, scale_bytes(q));
    return q->codes && q->scales;
}

static oct_matrix_view rows_of(const oct_matrix_view *x, int64_t first, int64_t n) {
    oct_matrix_view part = *x;
    part.data = (const char *)x->data + (size_t)(first * x->ld) * oct_dtype_bytes(x->dtype);
    part.rows = oct_min_i64(n, x->rows - first);
    return part;
}

static oct_matrix_view task_rows(const job *j, int64_t task) {
    return rows_of(&j->x, task * TASK_ROWS, TASK_ROWS);
}

static oct_mx_output output_by_rows(const oct_qmatrix *q, int64_t first_row) {
    return (oct_mx_output){q->codes + first_row * q->cols, q->cols,
                           (uint8_t *)q->scales + first_row / q->block_rows * q->ld_scales,
                           q->ld_scales};
}

/* The transposed copy: source rows are its columns. */
static oct_mx_output output_by_cols(const oct_qmatrix *q, int64_t first_row) {
    return (oct_mx_output){q->codes + first_row, q->cols,
                           (uint8_t *)q->scales + first_row / OCT_MX_BLOCK, q->ld_scales};
}

static void mx_task(void *context, int64_t task, int thread) {
    const job *j = context;
    (void)thread;
    oct_matrix_view part = task_rows(j, task);
    int64_t first = task * TASK_ROWS;
    oct_mx_output by_rows, by_cols;
    if (j->along[1])
        by_rows = output_by_rows(j->along[1], first);
    if (j->along[0])
        by_cols = output_by_cols(j->along[0], first);
    if (j->along[0] && j->along[1])
        j->kernels->mx_both(&part, j->format, j->mode, &by_rows, &by_cols);
    else if (j->along[1])
        j->kernels->mx_rows(&part, j->format, j->mode, &by_rows);
    else
        j->kernels->mx_cols(&part, j->format, j->mode, &by_cols);
}

static void mx_tiles_task(void *context, int64_t task, int thread) {
    const job *j = context;
    (void)thread;
    oct_matrix_view part = task_rows(j, task);
    oct_mx_output out = output_by_rows(j->along[1], task * TASK_ROWS);
    j->kernels->mx_tiles(&part, j->format, j->mode, &out);
}

static void amax_task(void *context, int64_t task, int thread) {
    const job *j = context;
    (void)thread;
    oct_matrix_view part = task_rows(j, task);
    j->amax[task] = j->kernels->amax(&part);
}

static void scaled_task(void *context, int64_t task, int thread) {
    const job *j = context;
    (void)thread;
    oct_matrix_view part = task_rows(j, task);
    oct_qmatrix *q = j->along[1];
    j->kernels->scaled(&part, j->format, j->scale, q->codes + task * TASK_ROWS * q->cols, q->cols);
}

/* Quantizes each row of `part` with a scale of its own into rows first.. of q. */
static void quantize_rows(const job *j, const oct_matrix_view *part, oct_qmatrix *q,
                          int64_t first) {
    for (int64_t r = 0; r < part->rows; r++) {
        oct_matrix_view row = rows_of(part, r, 1);
        float scale = oct_scale_from_amax(j->kernels->amax(&row), j->target);
        ((float *)q->scales)[first + r] = scale;
        j->kernels->scaled(&row, j->format, scale, q->codes + (first + r) * q->cols, q->cols);
    }
}

static void channel_rows_task(void *context, int64_t task, int thread) {
    const job *j = context;
    (void)thread;
    oct_matrix_view part = task_rows(j, task);
    quantize_rows(j, &part, j->along[1], task * TASK_ROWS);
}

static float element(const oct_matrix_view *x, int64_t r, int64_t c) {
    int64_t i = r * x->ld + c;
    return x->dtype == OCT_F32 ? ((const float *)x->data)[i]
                               : oct_bf16_decode(((const uint16_t *)x->data)[i]);
}

static void channel_cols_task(void *context, int64_t task, int thread) {
    const job *j = context;
    int64_t first = task * STRIP_COLS, n = oct_min_i64(STRIP_COLS, j->x.cols - first);
    float *strip = j->strip + (int64_t)thread * STRIP_COLS * j->x.rows;
    for (int64_t r = 0; r < j->x.rows; r++)
        for (int64_t c = 0; c < n; c++)
            strip[c * j->x.rows + r] = element(&j->x, r, first + c);
    oct_matrix_view part = {strip, OCT_F32, n, j->x.rows, j->x.rows};
    quantize_rows(j, &part, j->along[0], first);
}

static oct_status quantize_per_tensor(job *j, oct_arena *arena, oct_amax *amax) {
    int64_t n_tasks = oct_ceil_div(j->x.rows, TASK_ROWS);
    float own = 0.0f;
    oct_arena_mark mark = oct_arena_get_mark(arena);
    j->amax = oct_arena_alloc_array(arena, (size_t)n_tasks, sizeof(float));
    if (!j->amax)
        return OCT_NO_MEMORY;
    oct_parallel(n_tasks, amax_task, j);
    for (int64_t i = 0; i < n_tasks; i++)
        own = fmaxf(own, j->amax[i]); /* never NaN: the kernel gives Inf */
    oct_arena_release(arena, mark);
    j->scale = oct_scale_from_amax(amax && amax->use >= 0 ? amax->use : own, j->target);
    if (amax)
        amax->seen = own;
    *(float *)j->along[1]->scales = j->scale;
    oct_parallel(n_tasks, scaled_task, j);
    return OCT_OK;
}

static oct_status quantize_per_channel(job *j, oct_arena *arena) {
    if (j->along[1])
        oct_parallel(oct_ceil_div(j->x.rows, TASK_ROWS), channel_rows_task, j);
    if (!j->along[0])
        return OCT_OK;
    oct_arena_mark mark = oct_arena_get_mark(arena);
    j->strip = oct_arena_alloc_array(
        arena, (size_t)(STRIP_COLS * j->x.rows) * (size_t)oct_threads(), sizeof(float));
    if (!j->strip)
        return OCT_NO_MEMORY;
    oct_parallel(oct_ceil_div(j->x.cols, STRIP_COLS), channel_cols_task, j);
    oct_arena_release(arena, mark);
    return OCT_OK;
}

oct_status oct_quantize(const oct_matrix_view *x, const oct_recipe *recipe, oct_role role,
                        oct_along which, oct_arena *const arenas[2], oct_amax *amax,
                        oct_quantized *out) {
    bool shared = oct_recipe_shares_copies(recipe, role);
    job j = {.x = *x,
             .kernels = oct_kernels_current()->quantize,
             .format = recipe->format[role],
             .mode = recipe->scale_mode,
             .target = recipe->target[role]};
    *out = (oct_quantized){0};
    if (shared) {
        out->along[1] = describe(recipe, role, x->rows, x->cols, 1);
        if (!allocate(&out->along[1], arenas[0]))
            return OCT_NO_MEMORY;
        j.along[1] = &out->along[1];
        out->along[0] = out->along[1];
    }
    for (int dim = 0; dim < 2 && !shared; dim++) {
        if (!(which & (dim == 0 ? OCT_ALONG_0 : OCT_ALONG_1)))
            continue;
        out->along[dim] = describe(recipe, role, x->rows, x->cols, dim);
        if (!allocate(&out->along[dim], arenas[dim]))
            return OCT_NO_MEMORY;
        j.along[dim] = &out->along[dim];
    }
    if (recipe->granularity == OCT_PER_TENSOR)
        return quantize_per_tensor(&j, arenas[1], amax);
    if (recipe->granularity == OCT_PER_CHANNEL)
        return quantize_per_channel(&j, arenas[1]);
    oct_parallel(oct_ceil_div(x->rows, TASK_ROWS), shared ? mx_tiles_task : mx_task, &j);
    return OCT_OK;
}

oct_operand oct_quantized_operand(const oct_quantized *q, int dim) {
    const oct_qmatrix *m = &q->along[dim];
    bool contiguous = dim == 1 || m->transposed;
    return (oct_operand){.dtype = m->format,
                         .layout = contiguous ? OCT_K_CONTIGUOUS : OCT_K_STRIDED,
                         .data = m->codes,
                         .ld = m->cols,
                         .scaling = m->scaling,
                         .scales = m->scales,
                         .ld_scales = m->ld_scales,
                         .block_rows = m->block_rows};
}

static float scale_of(const oct_qmatrix *m, int64_t r, int64_t c) {
    if (m->scaling == OCT_SCALING_TENSOR)
        return *(const float *)m->scales;
    if (m->scaling == OCT_SCALING_ROW)
        return ((const float *)m->scales)[r];
    return oct_e8m0_decode(
        ((const uint8_t *)m->scales)[r / m->block_rows * m->ld_scales + c / OCT_MX_BLOCK]);
}

void oct_quantized_decode(const oct_quantized *q, int dim, float *out) {
    const oct_qmatrix *m = &q->along[dim];
    for (int64_t r = 0; r < m->rows; r++) {
        for (int64_t c = 0; c < m->cols; c++) {
            float value = oct_fp8_decode(m->format, m->codes[r * m->cols + c]) * scale_of(m, r, c);
            out[m->transposed ? c * m->rows + r : r * m->cols + c] = value;
        }
    }
}
