/* Largest magnitudes: see matrix_amax.h. */
#include "quant/matrix_amax.h"

#include <math.h>

#include "base/checked.h"
#include "base/thread.h"
#include "kernel/select.h"
#include "quant/matrix_view.h"

#define TASK_ROWS 64
#define TASK_COLS 32

typedef struct row_job {
    const oct_matrix_view *x;
    float *amaxes; /* one a task */
} row_job;

static void rows_task(void *context, int64_t task, int thread) {
    const row_job *j = context;
    (void)thread;
    oct_matrix_view rows = oct_matrix_rows(j->x, task * TASK_ROWS, TASK_ROWS);
    j->amaxes[task] = oct_kernels_current()->quantize->amax(&rows);
}

oct_status oct_matrix_amax(const oct_matrix_view *x, oct_arena *scratch, float *amax) {
    int64_t n_tasks = oct_ceil_div(x->rows, TASK_ROWS);
    oct_arena_mark mark = oct_arena_get_mark(scratch);
    row_job j = {x, oct_arena_alloc_array(scratch, (size_t)n_tasks, sizeof(float))};
    if (!j.amaxes)
        return OCT_NO_MEMORY;
    oct_parallel(n_tasks, rows_task, &j);
    *amax = 0.0f;
    for (int64_t i = 0; i < n_tasks; i++)
        *amax = fmaxf(*amax, j.amaxes[i]); /* never NaN: the kernel gives Inf */
    oct_arena_release(scratch, mark);
    return OCT_OK;
}

typedef struct column_job {
    const oct_matrix_view *x;
    float *amaxes;
} column_job;

static void columns_task(void *context, int64_t task, int thread) {
    const column_job *j = context;
    (void)thread;
    int64_t first = task * TASK_COLS, end = oct_min_i64(first + TASK_COLS, j->x->cols);
    for (int64_t c = first; c < end; c++)
        j->amaxes[c] = 0.0f;
    for (int64_t r = 0; r < j->x->rows; r++)
        for (int64_t c = first; c < end; c++) {
            float magnitude = fabsf(oct_matrix_element(j->x, r, c));
            j->amaxes[c] = fmaxf(j->amaxes[c], isnan(magnitude) ? INFINITY : magnitude);
        }
}

void oct_matrix_column_amaxes(const oct_matrix_view *x, float *out) {
    column_job j = {x, out};
    oct_parallel(oct_ceil_div(x->cols, TASK_COLS), columns_task, &j);
}
