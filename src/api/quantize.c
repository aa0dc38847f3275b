/* Quantizing matrices of any layout (octet/matrix.h): block rows are cut into strips of at most
 * STRIP_ROWS rows, whose shape doesn't depend on the number of threads. MX by the plain rules takes
 * the kernels (mx_pieces.h), and so do fp32 scales of rows that are contiguous. */
#include <math.h>
#include <octet/matrix.h>

#include "api/block_scale.h"
#include "api/describe.h"
#include "api/mx_pieces.h"
#include "base/alloc.h"
#include "base/call.h"
#include "base/checked.h"
#include "base/struct_size.h"
#include "base/thread.h"
#include "format/fp8.h"
#include "kernel/select.h"

#define STRIP_ROWS 64

typedef struct job {
    oct_quantizer q;
    oct_matrix x;
    oct_coded out;
    int64_t block_rows, block_cols; /* at least 1 */
    int64_t n_down, n_across;       /* blocks */
    int64_t n_strips;               /* of a block row */
    oct_magnitudes *magnitudes;     /* (strips of all block rows, n_across); of threads, where a
                                       block row is one strip */
    oct_block_scale *scales;        /* (n_down, n_across); of threads likewise */
    const oct_quantize_kernels *kernels; /* NULL: element by element */
} job;

typedef struct strip {
    int64_t down;       /* block row */
    int64_t first, end; /* rows */
    oct_magnitudes *magnitudes;
    oct_block_scale *scales;
} strip;

static strip strip_of(const job *j, int64_t task, int thread) {
    const bool alone = j->n_strips == 1;
    strip s = {.down = task / j->n_strips};
    s.first = s.down * j->block_rows + task % j->n_strips * STRIP_ROWS;
    const int64_t block_end = oct_min_i64((s.down + 1) * j->block_rows, j->x.rows);
    s.end = alone ? block_end : oct_min_i64(s.first + STRIP_ROWS, block_end);
    s.magnitudes = j->magnitudes + (alone ? thread : task) * j->n_across;
    s.scales = j->scales + (alone ? thread : s.down) * j->n_across;
    return s;
}

static float load(const job *j, int64_t r, int64_t c) {
    float x = oct_matrix_load(&j->x, r, c);
    return j->q.source == OCT_BF16 ? oct_bf16_decode(oct_bf16_encode(x)) : x;
}

/* The part of a strip that is in block column b, as kernels read it. */
static oct_matrix_view part_of(const job *j, const strip *s, int64_t b) {
    const int64_t col = b * j->block_cols;
    const size_t at = (size_t)(s->first * j->x.row_stride + col) * oct_dtype_bytes(j->x.dtype);
    return (oct_matrix_view){(const char *)j->x.data + at, j->x.dtype, s->end - s->first,
                             oct_min_i64(j->block_cols, j->x.cols - col), j->x.row_stride};
}

/* A kernel tells Inf and NaN apart as little as the plain rules do. */
static void measure_parts(const job *j, const strip *s) {
    for (int64_t b = 0; b < j->n_across; b++) {
        const oct_matrix_view part = part_of(j, s, b);
        const float amax = j->kernels->amax(&part);
        s->magnitudes[b] =
            (oct_magnitudes){.largest = isinf(amax) ? 0 : amax, .has_inf = isinf(amax) != 0};
    }
}

static void encode_parts(const job *j, const strip *s) {
    for (int64_t b = 0; b < j->n_across; b++) {
        const oct_matrix_view part = part_of(j, s, b);
        j->kernels->scaled(&part, j->q.format, s->scales[b].scale,
                           (uint8_t *)j->out.codes +
                               oct_code_index(&j->out, s->first, b * j->block_cols),
                           j->out.row_stride);
    }
}

static void measure_strip(const job *j, const strip *s) {
    if (j->kernels) {
        measure_parts(j, s);
        return;
    }
    for (int64_t b = 0; b < j->n_across; b++)
        s->magnitudes[b] = (oct_magnitudes){0};
    for (int64_t r = s->first; r < s->end; r++)
        for (int64_t c = 0; c < j->x.cols; c++)
            oct_magnitudes_add(&s->magnitudes[c / j->block_cols], load(j, r, c));
}

static void write_scale(const job *j, int64_t down, int64_t across, const oct_block_scale *scale) {
    const int64_t i = down * j->out.scale_row_stride + across * j->out.scale_col_stride;
    if (j->q.scale_dtype == OCT_E8M0)
        ((uint8_t *)j->out.scales)[i] = scale->code;
    else
        ((float *)j->out.scales)[i] = scale->scale;
}

static void encode_strip(const job *j, const strip *s) {
    if (j->kernels) {
        encode_parts(j, s);
        return;
    }
    for (int64_t r = s->first; r < s->end; r++)
        for (int64_t c = 0; c < j->x.cols; c++)
            ((uint8_t *)j->out.codes)[oct_code_index(&j->out, r, c)] = oct_block_encode(
                &j->q, &s->scales[c / j->block_cols], load(j, r, c), (uint64_t)(r * j->x.cols + c));
}

static void measure_task(void *context, int64_t task, int thread) {
    const strip s = strip_of(context, task, thread);
    measure_strip(context, &s);
}

/* The scales of a block row from the magnitudes of its strips. */
static void settle(const job *j, int64_t down, oct_magnitudes *strips, oct_block_scale *scales) {
    for (int64_t b = 0; b < j->n_across; b++) {
        for (int64_t i = 1; i < j->n_strips; i++)
            oct_magnitudes_join(&strips[b], &strips[i * j->n_across + b]);
        scales[b] = oct_block_scale_of(&j->q, strips[b]);
        write_scale(j, down, b, &scales[b]);
    }
}

static void settle_task(void *context, int64_t task, int thread) {
    const job *j = context;
    (void)thread;
    settle(j, task, j->magnitudes + task * j->n_strips * j->n_across,
           j->scales + task * j->n_across);
}

static void encode_task(void *context, int64_t task, int thread) {
    const strip s = strip_of(context, task, thread);
    encode_strip(context, &s);
}

static void whole_task(void *context, int64_t task, int thread) {
    const job *j = context;
    const strip s = strip_of(j, task, thread);
    measure_strip(j, &s);
    settle(j, s.down, s.magnitudes, s.scales);
    encode_strip(j, &s);
}

static void run(job *j) {
    if (j->n_strips == 1) {
        oct_parallel(j->n_down, whole_task, j);
        return;
    }
    oct_parallel(j->n_down * j->n_strips, measure_task, j);
    oct_parallel(j->n_down, settle_task, j);
    oct_parallel(j->n_down * j->n_strips, encode_task, j);
}

/* One fp32 scale by the plain rules, of rows and to rows whose elements are neighbours. */
static bool is_for_kernels(const job *j) {
    const oct_rounding nearest = j->q.format == OCT_HIF8 ? OCT_ROUND_AWAY : OCT_ROUND_EVEN;
    const bool own = j->q.rounding == OCT_ROUND_OWN || j->q.rounding == nearest;
    const bool rounds = j->q.source == OCT_BF16 && j->x.dtype != OCT_BF16;
    return j->q.scale_dtype == OCT_F32 && j->q.quirks == 0 && own && !rounds &&
           j->x.dtype != OCT_F16 && j->x.col_stride == 1 && j->x.row_stride >= 0 &&
           j->out.col_stride == 1 && j->out.row_stride >= 0;
}

static oct_status quantize_blocks(job *j) {
    j->kernels = is_for_kernels(j) ? oct_kernels_current()->quantize : NULL;
    j->block_rows = oct_block_extent(j->q.block_rows, j->x.rows);
    j->block_cols = oct_block_extent(j->q.block_cols, j->x.cols);
    j->n_down = oct_ceil_div(j->x.rows, j->block_rows);
    j->n_across = oct_ceil_div(j->x.cols, j->block_cols);
    j->n_strips = oct_ceil_div(oct_min_i64(j->block_rows, j->x.rows), STRIP_ROWS);
    const bool alone = j->n_strips == 1;
    const size_t n_magnitudes = (size_t)(alone ? oct_threads() : j->n_down * j->n_strips);
    const size_t n_scales = (size_t)(alone ? oct_threads() : j->n_down);
    size_t row = (size_t)j->n_across;
    oct_status status = OCT_NO_MEMORY;
    j->magnitudes = oct_malloc_array(n_magnitudes, row * sizeof *j->magnitudes);
    j->scales = oct_malloc_array(n_scales, row * sizeof *j->scales);
    if (j->magnitudes && j->scales) {
        run(j);
        status = OCT_OK;
    }
    oct_free(j->magnitudes);
    oct_free(j->scales);
    return status;
}

/* One scale of no elements is 1. */
static void scale_nothing(const job *j) {
    const oct_block_scale one = {.code = 127, .scale = 1};
    if (j->out.scales && j->q.block_rows == 0 && j->q.block_cols == 0)
        write_scale(j, 0, 0, &one);
}

static void swap(int64_t *a, int64_t *b) {
    const int64_t first = *a;
    *a = *b;
    *b = first;
}

/* The same job with rows for columns. */
static job transposed(const job *j) {
    job t = *j;
    swap(&t.x.rows, &t.x.cols);
    swap(&t.x.row_stride, &t.x.col_stride);
    swap(&t.q.block_rows, &t.q.block_cols);
    swap(&t.out.rows, &t.out.cols);
    swap(&t.out.row_stride, &t.out.col_stride);
    swap(&t.out.block_rows, &t.out.block_cols);
    swap(&t.out.scale_row_stride, &t.out.scale_col_stride);
    return t;
}

static oct_status quantize(job *j) {
    if (j->x.rows == 0 || j->x.cols == 0) {
        scale_nothing(j);
        return OCT_OK;
    }
    /* Which way round it is only matters to random bits, and to caches. */
    const bool by_columns = j->x.row_stride == 1 && j->x.col_stride != 1;
    if (by_columns && j->q.rounding != OCT_ROUND_STOCHASTIC) {
        job t = transposed(j);
        return quantize(&t);
    }
    if (oct_mx_pieces_serve(&j->q)) {
        oct_mx_pieces_quantize(&j->q, &j->x, &j->out);
        return OCT_OK;
    }
    return quantize_blocks(j);
}

oct_status oct_quantizer_scales(const oct_quantizer *quantizer, int64_t rows, int64_t cols,
                                int64_t *scale_rows, int64_t *scale_cols) {
    oct_quantizer q;
    if (!oct_quantizer_read(quantizer, &q) || rows < 0 || cols < 0 || !scale_rows || !scale_cols)
        return OCT_INVALID;
    *scale_rows = q.block_rows ? oct_ceil_div(rows, q.block_rows) : 1;
    *scale_cols = q.block_cols ? oct_ceil_div(cols, q.block_cols) : 1;
    return OCT_OK;
}

static bool outputs_are_apart(const job *j) {
    int64_t down = 0, across = 0;
    oct_quantizer_scales(&j->q, j->x.rows, j->x.cols, &down, &across);
    return oct_strides_are_apart(j->x.rows, j->x.cols, j->out.row_stride, j->out.col_stride) &&
           oct_strides_are_apart(down, across, j->out.scale_row_stride, j->out.scale_col_stride);
}

oct_status oct_matrix_quantize(const oct_quantizer *quantizer, const oct_matrix *x, oct_coded *out,
                               int threads) {
    job j = {0};
    if (!oct_quantizer_read(quantizer, &j.q) || !oct_matrix_read(x, &j.x) || threads < 0 ||
        !oct_coded_read_memory(out, j.x.rows, j.x.cols, &j.out) || !outputs_are_apart(&j))
        return OCT_INVALID;
    j.out.format = j.q.format;
    j.out.rows = j.x.rows;
    j.out.cols = j.x.cols;
    j.out.scale_dtype = j.q.scale_dtype;
    j.out.block_rows = j.q.block_rows;
    j.out.block_cols = j.q.block_cols;
    const oct_coded described = j.out;
    const oct_call call = oct_call_begin(threads);
    oct_status status = quantize(&j);
    oct_call_end(&call);
    if (!status)
        oct_write_struct(&described, sizeof described, out);
    return status;
}
