/* Quantizers against memcpy of as many bytes as they read and write, in cache and out of it. */
#include "bench.h"

#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/thread.h"
#include "kernel/quantize.h"
#include "kernel/select.h"

typedef struct matrix {
    oct_matrix_view x;
    uint8_t *codes, *codes_t, *scales, *scales_t;
    char *from, *to; /* of memcpy */
    size_t n_copy;
} matrix;

typedef void quantize_rows(const matrix *m, int64_t row, int64_t n);

/* A candidate: rows of the matrix in tasks, or bytes to copy. */
typedef struct job {
    matrix *matrix;
    quantize_rows *run;
    size_t n_bytes; /* read and written */
} job;

enum { ROWS_PER_TASK = 256 };

static oct_matrix_view part(const matrix *m, int64_t row, int64_t n) {
    oct_matrix_view x = m->x;
    x.data = (const char *)x.data + (size_t)(row * x.ld) * oct_dtype_bytes(x.dtype);
    x.rows = n;
    return x;
}

static oct_mx_output by_rows(const matrix *m, int64_t row) {
    int64_t blocks = m->x.cols / OCT_MX_BLOCK;
    return (oct_mx_output){m->codes + row * m->x.cols, m->x.cols, m->scales + row * blocks, blocks};
}

static oct_mx_output by_cols(const matrix *m, int64_t row) {
    int64_t blocks = m->x.rows / OCT_MX_BLOCK;
    return (oct_mx_output){m->codes_t + row, m->x.rows, m->scales_t + row / OCT_MX_BLOCK, blocks};
}

static const oct_quantize_kernels *kernels(void) {
    return oct_kernels_current()->quantize;
}

static void mx_rows(const matrix *m, int64_t row, int64_t n) {
    oct_matrix_view x = part(m, row, n);
    oct_mx_output out = by_rows(m, row);
    kernels()->mx_rows(&x, OCT_E4M3, OCT_SCALE_RCEIL, &out);
}

static void cols(const matrix *m, int64_t row, int64_t n) {
    oct_matrix_view x = part(m, row, n);
    oct_mx_output out = by_cols(m, row);
    kernels()->mx_cols(&x, OCT_E4M3, OCT_SCALE_RCEIL, &out);
}

static void both(const matrix *m, int64_t row, int64_t n) {
    oct_matrix_view x = part(m, row, n);
    oct_mx_output out = by_rows(m, row), out_t = by_cols(m, row);
    kernels()->mx_both(&x, OCT_E4M3, OCT_SCALE_RCEIL, &out, &out_t);
}

static void tiles(const matrix *m, int64_t row, int64_t n) {
    oct_matrix_view x = part(m, row, n);
    oct_mx_output out = by_rows(m, row / OCT_MX_BLOCK);
    out.codes = m->codes + row * m->x.cols;
    kernels()->mx_tiles(&x, OCT_E4M3, OCT_SCALE_RCEIL, &out);
}

static void hif8(const matrix *m, int64_t row, int64_t n) {
    oct_matrix_view x = part(m, row, n);
    kernels()->scaled(&x, OCT_HIF8, 0.3f, m->codes + row * m->x.cols, m->x.cols);
}

static void quantize_task(void *context, int64_t task, int thread) {
    const job *j = context;
    (void)thread;
    int64_t row = task * ROWS_PER_TASK;
    j->run(j->matrix, row, oct_min_i64(ROWS_PER_TASK, j->matrix->x.rows - row));
}

static void run_quantizer(void *context) {
    job *j = context;
    oct_parallel(oct_ceil_div(j->matrix->x.rows, ROWS_PER_TASK), quantize_task, j);
}

/* Half of the bytes read, half written. */
static void copy_task(void *context, int64_t task, int thread) {
    const job *j = context;
    (void)thread;
    size_t n = j->n_bytes / 2, n_tasks = (size_t)oct_threads(), each = n / n_tasks;
    memcpy(j->matrix->to + (size_t)task * each, j->matrix->from + (size_t)task * each, each);
}

static void run_copy(void *context) {
    oct_parallel(oct_threads(), copy_task, context);
}

static void matrix_free(matrix *m) {
    oct_free(m->codes);
    oct_free(m->codes_t);
    oct_free(m->scales);
    oct_free(m->scales_t);
    oct_free(m->from);
    oct_free(m->to);
    oct_free((void *)(uintptr_t)m->x.data);
}

static bool matrix_make(matrix *m, int64_t n_rows, int64_t n_cols, oct_dtype dtype) {
    size_t n = (size_t)(n_rows * n_cols);
    float *x = oct_malloc_array(n, sizeof *x);
    *m = (matrix){.x = {x, OCT_F32, n_rows, n_cols, n_cols}, .n_copy = n * 3};
    m->codes = oct_calloc_array(n, 1);
    m->codes_t = oct_calloc_array(n, 1);
    m->scales = oct_calloc_array(n / OCT_MX_BLOCK, 1);
    m->scales_t = oct_calloc_array(n / OCT_MX_BLOCK, 1);
    m->from = oct_calloc_array(m->n_copy, 1);
    m->to = oct_calloc_array(m->n_copy, 1);
    if (!x || !m->codes || !m->codes_t || !m->scales || !m->scales_t || !m->from || !m->to)
        return false;
    bench_fill(x, n_rows, n_cols, BENCH_GAUSSIAN, 1);
    if (dtype == OCT_BF16) {
        uint16_t *bf16 = oct_malloc_array(n, sizeof *bf16);
        if (!bf16)
            return false;
        kernels()->f32_to_bf16(x, (int64_t)n, bf16);
        oct_free(x);
        m->x.data = bf16;
        m->x.dtype = OCT_BF16;
    }
    return true;
}

static oct_status measure_quantizers(int64_t n_rows, int64_t n_cols, oct_dtype dtype,
                                     bench_rows *rows, oct_error *err) {
    static const struct {
        const char *name;
        quantize_rows *run;
        size_t written; /* bytes an element */
    } quantizers[] = {{"rows", mx_rows, 1},
                      {"cols", cols, 1},
                      {"both", both, 2},
                      {"tiles", tiles, 1},
                      {"hif8", hif8, 1}};
    matrix m;
    oct_status status = OCT_NO_MEMORY;
    if (!matrix_make(&m, n_rows, n_cols, dtype)) {
        oct_fail(err, OCT_NO_MEMORY, "bench: no memory for a matrix to quantize");
        goto cleanup;
    }
    for (int i = 0; i < 5; i++) {
        size_t n_bytes =
            (size_t)(n_rows * n_cols) * (oct_dtype_bytes(dtype) + quantizers[i].written);
        job j = {&m, quantizers[i].run, n_bytes};
        bench_candidate c[] = {{"memcpy", run_copy, &j, 0, 0}, {"ours", run_quantizer, &j, 0, 0}};
        bench_measure(c, 2, 0.5);
        bench_add_row(rows,
                      json_pack("{s:s,s:s,s:s,s:I,s:I,s:f,s:f,s:f,s:f}", "what", "quantizer",
                                "quantizer", quantizers[i].name, "dtype", oct_dtype_name(dtype),
                                "rows", (json_int_t)n_rows, "cols", (json_int_t)n_cols,
                                "gb_per_second", (double)n_bytes / c[1].seconds * 1e-9,
                                "memcpy_gb_per_second", (double)n_bytes / c[0].seconds * 1e-9,
                                "ratio", c[0].seconds / c[1].seconds, "spread", c[1].spread));
    }
    status = OCT_OK;
cleanup:
    matrix_free(&m);
    return status;
}

oct_status bench_quantizers(const bench_options *options, bench_rows *rows, oct_error *err) {
    oct_status status = OCT_OK;
    (void)options;
    for (int i = 0; i < 4 && !status; i++)
        status = measure_quantizers(i & 2 ? 512 : 4096, i & 2 ? 512 : 8192,
                                    i & 1 ? OCT_BF16 : OCT_F32, rows, err);
    return status;
}
