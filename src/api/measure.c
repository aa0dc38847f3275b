/* Back from 8 bits, and what it cost: octet/matrix.h. */
#include <math.h>
#include <octet/matrix.h>

#include "api/describe.h"
#include "base/alloc.h"
#include "base/call.h"
#include "base/checked.h"
#include "base/struct_size.h"
#include "base/thread.h"
#include "format/fp8.h"

#define TASK_ROWS 16

typedef struct job {
    oct_matrix x;
    oct_coded q;
    float values[256];      /* of codes */
    oct_statistics *counts; /* of tasks */
} job;

static float value_of(const job *j, int64_t r, int64_t c) {
    const uint8_t code = ((const uint8_t *)j->q.codes)[oct_code_index(&j->q, r, c)];
    return j->values[code] * oct_coded_scale(&j->q, r, c);
}

static void dequantize_task(void *context, int64_t task, int thread) {
    const job *j = context;
    const int64_t end = oct_min_i64(j->x.rows, (task + 1) * TASK_ROWS);
    (void)thread;
    for (int64_t r = task * TASK_ROWS; r < end; r++)
        for (int64_t c = 0; c < j->x.cols; c++)
            oct_element_store(j->x.data, j->x.dtype, r * j->x.row_stride + c * j->x.col_stride,
                              value_of(j, r, c));
}

static bool read_both(const oct_coded *coded, const oct_matrix *x, int threads, job *j) {
    if (!oct_coded_read(coded, &j->q) || !oct_matrix_read(x, &j->x) || j->x.rows != j->q.rows ||
        j->x.cols != j->q.cols || threads < 0)
        return false;
    for (int code = 0; code < 256; code++)
        j->values[code] = oct_fp8_value(j->q.format, (uint8_t)code);
    return true;
}

oct_status oct_matrix_dequantize(const oct_coded *coded, const oct_matrix *y, int threads) {
    job j;
    if (!read_both(coded, y, threads, &j) ||
        !oct_strides_are_apart(j.x.rows, j.x.cols, j.x.row_stride, j.x.col_stride))
        return OCT_INVALID;
    const oct_call call = oct_call_begin(threads);
    oct_parallel(oct_ceil_div(j.x.rows, TASK_ROWS), dequantize_task, &j);
    oct_call_end(&call);
    return OCT_OK;
}

static void count(const job *j, int64_t r, int64_t c, oct_statistics *s) {
    const float x = oct_matrix_load(&j->x, r, c), y = value_of(j, r, c);
    s->n++;
    if (!isfinite(x) || !isfinite(y)) {
        s->n_special++;
        return;
    }
    const double error = (double)x - (double)y;
    s->n_zero += x == 0;
    s->n_underflow += x != 0 && y == 0;
    s->n_saturated +=
        oct_fp8_saturates(j->q.format, fabs((double)x) / (double)oct_coded_scale(&j->q, r, c));
    s->signal += (double)x * (double)x;
    s->noise += error * error;
    s->max_error = fmax(s->max_error, fabs(error));
}

static void count_task(void *context, int64_t task, int thread) {
    const job *j = context;
    const int64_t end = oct_min_i64(j->x.rows, (task + 1) * TASK_ROWS);
    oct_statistics s = {0};
    (void)thread;
    for (int64_t r = task * TASK_ROWS; r < end; r++)
        for (int64_t c = 0; c < j->x.cols; c++)
            count(j, r, c, &s);
    j->counts[task] = s;
}

static void add(oct_statistics *sum, const oct_statistics *s) {
    sum->n += s->n;
    sum->n_special += s->n_special;
    sum->n_zero += s->n_zero;
    sum->n_underflow += s->n_underflow;
    sum->n_saturated += s->n_saturated;
    sum->signal += s->signal;
    sum->noise += s->noise;
    sum->max_error = fmax(sum->max_error, s->max_error);
}

static oct_status measure(job *j, oct_statistics *sum) {
    const int64_t n_tasks = oct_ceil_div(j->x.rows, TASK_ROWS);
    j->counts = oct_malloc_array((size_t)n_tasks + 1, sizeof *j->counts);
    if (!j->counts)
        return OCT_NO_MEMORY;
    oct_parallel(n_tasks, count_task, j);
    for (int64_t i = 0; i < n_tasks; i++)
        add(sum, &j->counts[i]);
    sum->sqnr_db = 10 * log10(sum->signal / sum->noise);
    if (sum->signal == 0)
        sum->sqnr_db = NAN;
    oct_free(j->counts);
    return OCT_OK;
}

oct_status oct_matrix_measure(const oct_matrix *x, const oct_coded *coded, oct_statistics *out,
                              int threads) {
    job j;
    oct_statistics sum, zeros = {0};
    if (!oct_read_struct(out, &sum, sizeof sum, sizeof sum) || !read_both(coded, x, threads, &j))
        return OCT_INVALID;
    sum = zeros;
    const oct_call call = oct_call_begin(threads);
    oct_status status = measure(&j, &sum);
    oct_call_end(&call);
    if (!status)
        oct_write_struct(&sum, sizeof sum, out);
    return status;
}
