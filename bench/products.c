/* Products: 8-bit operands against fp32 libraries, speed and error, and a whole linear layer. */
#include "bench.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/count.h"
#include "base/thread.h"
#include "kernel/quantize.h"
#include "kernel/select.h"

/* A matrix (rows, K), contracted over K, in fp32 and as MX blocks of E4M3. */
typedef struct operand {
    int64_t rows, K;
    float *x;
    uint8_t *codes, *scales;
} operand;

typedef struct product {
    operand a, b;
    float *c;
    bench_sgemm sgemm; /* the same for a library, in the orientation training has */
    float *a_stored, *b_stored;
    oct_gemm_problem mx, fp32, bf16;
    uint16_t *a_words, *b_words; /* of bf16 */
    bench_bf16 *onednn_bf16;
    void *workspace;
} product;

/* Which of a linear layer's products: they differ in what a library finds transposed. */
typedef enum pass { FORWARD, DGRAD, WGRAD } pass;

static void operand_free(operand *o) {
    oct_free(o->x);
    oct_free(o->codes);
    oct_free(o->scales);
}

static int64_t blocks(int64_t k) {
    return oct_ceil_div(k, OCT_MX_BLOCK);
}

static void quantize_operand(const operand *o) {
    oct_matrix_view x = {o->x, OCT_F32, o->rows, o->K, o->K};
    oct_mx_output out = {o->codes, o->K, o->scales, blocks(o->K)};
    oct_kernels_current()->quantize->mx_rows(&x, OCT_E4M3, OCT_SCALE_RCEIL, &out);
}

static bool operand_make(operand *o, int64_t rows, int64_t K, bench_data kind, uint64_t stream) {
    *o = (operand){.rows = rows, .K = K};
    o->x = oct_malloc_array((size_t)(rows * K), sizeof(float));
    o->codes = oct_malloc_array((size_t)(rows * K), 1);
    o->scales = oct_malloc_array((size_t)(rows * blocks(K)), 1);
    if (!o->x || !o->codes || !o->scales)
        return false;
    bench_fill(o->x, rows, K, kind, stream);
    quantize_operand(o);
    return true;
}

static oct_operand mx_operand(const operand *o) {
    return (oct_operand){.dtype = OCT_E4M3,
                         .data = o->codes,
                         .ld = o->K,
                         .scaling = OCT_SCALING_MX,
                         .scales = o->scales,
                         .ld_scales = blocks(o->K),
                         .block_rows = 1};
}

static oct_operand fp32_operand(const operand *o) {
    return (oct_operand){.dtype = OCT_F32, .data = o->x, .ld = o->K};
}

static float *transposed(const operand *o) {
    float *t = oct_malloc_array((size_t)(o->rows * o->K), sizeof(float));
    for (int64_t r = 0; t && r < o->rows; r++)
        for (int64_t k = 0; k < o->K; k++)
            t[k * o->rows + r] = o->x[r * o->K + k];
    return t;
}

static void product_free(product *p) {
    operand_free(&p->a);
    operand_free(&p->b);
    oct_free(p->a_stored);
    oct_free(p->b_stored);
    oct_free(p->c);
    oct_free(p->a_words);
    oct_free(p->b_words);
    bench_onednn_bf16_free(p->onednn_bf16);
    oct_free(p->workspace);
}

/* The product of what x is rounded to in bf16; false: no memory. */
static bool product_make_bf16(product *p) {
    p->a_words = bench_to_bf16(p->a.x, p->a.rows * p->a.K);
    p->b_words = bench_to_bf16(p->b.x, p->b.rows * p->b.K);
    if (!p->a_words || !p->b_words)
        return false;
    p->bf16 = p->fp32;
    p->bf16.a = (oct_operand){.dtype = OCT_BF16, .data = p->a_words, .ld = p->a.K};
    p->bf16.b = (oct_operand){.dtype = OCT_BF16, .data = p->b_words, .ld = p->b.K};
    p->onednn_bf16 = bench_onednn_bf16_make(&p->sgemm);
    return true;
}

static bool product_make(product *p, int64_t M, int64_t N, int64_t K, pass which, bench_data kind) {
    *p = (product){0};
    if (!operand_make(&p->a, M, K, kind, 1) || !operand_make(&p->b, N, K, kind, 2))
        return false;
    p->c = oct_malloc_array((size_t)(M * N), sizeof(float));
    p->a_stored = which == WGRAD ? transposed(&p->a) : NULL;
    p->b_stored = which != FORWARD ? transposed(&p->b) : NULL;
    if (!p->c || (which == WGRAD && !p->a_stored) || (which != FORWARD && !p->b_stored))
        return false;
    p->sgemm = (bench_sgemm){.M = M,
                             .N = N,
                             .K = K,
                             .a_transposed = which == WGRAD,
                             .b_transposed = which == FORWARD,
                             .a = p->a_stored ? p->a_stored : p->a.x,
                             .b = p->b_stored ? p->b_stored : p->b.x,
                             .c = p->c};
    p->fp32 = (oct_gemm_problem){.M = M,
                                 .N = N,
                                 .K = K,
                                 .a = fp32_operand(&p->a),
                                 .b = fp32_operand(&p->b),
                                 .c = p->c,
                                 .c_dtype = OCT_F32,
                                 .ld_c = N};
    p->mx = p->fp32;
    p->mx.a = mx_operand(&p->a);
    p->mx.b = mx_operand(&p->b);
    size_t n = oct_gemm_workspace(&p->fp32, 1, OCT_GEMM_EXACT);
    size_t auto_n = oct_gemm_workspace(&p->mx, 1, OCT_GEMM_AUTO);
    n = n > auto_n ? n : auto_n;
    oct_gemm_problem bf16 = p->fp32;
    bf16.a.dtype = bf16.b.dtype = OCT_BF16;
    auto_n = oct_gemm_workspace(&bf16, 1, OCT_GEMM_AUTO);
    p->workspace = oct_malloc(n > auto_n ? n : auto_n);
    return p->workspace != NULL;
}

static void run_mx(void *context) {
    product *p = context;
    oct_gemm(&p->mx, 1, OCT_GEMM_AUTO, p->workspace);
}

static void run_mx_exact(void *context) {
    product *p = context;
    oct_gemm(&p->mx, 1, OCT_GEMM_EXACT, p->workspace);
}

static void run_bf16(void *context) {
    product *p = context;
    oct_gemm(&p->bf16, 1, OCT_GEMM_AUTO, p->workspace);
}

static void run_fp32(void *context) {
    product *p = context;
    oct_gemm(&p->fp32, 1, OCT_GEMM_EXACT, p->workspace);
}

/* The faster of the peers that are there; 0 without any. */
static double best_peer(const bench_candidate *c, int n) {
    double best = 0;
    for (int i = 0; i < n; i++)
        if (c[i].run && (best == 0 || c[i].seconds < best))
            best = c[i].seconds;
    return best;
}

static oct_status measure_product(int64_t M, int64_t N, int64_t K, pass which, bench_data kind,
                                  const char *label, bench_rows *rows, oct_error *err) {
    static const char *const passes[] = {"forward", "dgrad", "wgrad"};
    product p;
    oct_status status = OCT_NO_MEMORY;
    if (!product_make(&p, M, N, K, which, kind) || !product_make_bf16(&p)) {
        oct_fail(err, OCT_NO_MEMORY,
                 "bench: no memory for a product of %" PRId64 " x %" PRId64 " x %" PRId64, M, N, K);
        goto cleanup;
    }
    bench_candidate c[] = {
        {"onednn", bench_has_onednn() ? bench_run_onednn : NULL, &p.sgemm, 0, 0},
        {"openblas", bench_has_openblas() ? bench_run_openblas : NULL, &p.sgemm, 0, 0},
        {"mx", run_mx, &p, 0, 0},
        {"mx_exact", run_mx_exact, &p, 0, 0},
        {"fp32", run_fp32, &p, 0, 0},
        {"bf16", run_bf16, &p, 0, 0},
        {"onednn_bf16", p.onednn_bf16 ? bench_run_onednn_bf16 : NULL, p.onednn_bf16, 0, 0},
    };
    enum { N_CANDIDATES = OCT_COUNT(c) };
    bench_measure(c, N_CANDIDATES, 1.0);
    double peer = best_peer(c, 2);
    bench_add_row(rows,
                  json_pack("{s:s,s:s,s:s,s:I,s:I,s:I,s:o,s:f,s:f,s:f}", "what", label, "pass",
                            passes[which], "data", bench_data_name(kind), "M", (json_int_t)M, "N",
                            (json_int_t)N, "K", (json_int_t)K, "rates",
                            bench_rates(c, N_CANDIDATES, 2.0 * (double)M * (double)N * (double)K),
                            "mx_ratio", peer / c[2].seconds, "mx_exact_ratio", peer / c[3].seconds,
                            "fp32_ratio", peer / c[4].seconds));
    status = OCT_OK;
cleanup:
    product_free(&p);
    return status;
}

oct_status bench_products(const bench_options *options, bench_rows *rows, oct_error *err) {
    static const int64_t dims[] = {512, 768, 2048, 4096};
    enum { T = 2048 };
    oct_status status = OCT_OK;
    for (int i = 0; i < (options->large ? 4 : 3) && !status; i++) {
        int64_t d = dims[i], ffn = 4 * d;
        status = measure_product(T, d, d, FORWARD, BENCH_GAUSSIAN, "product", rows, err);
        if (!status)
            status = measure_product(T, ffn, d, FORWARD, BENCH_GAUSSIAN, "product", rows, err);
        if (!status)
            status = measure_product(T, d, ffn, DGRAD, BENCH_GAUSSIAN, "product", rows, err);
        if (!status)
            status = measure_product(ffn, d, T, WGRAD, BENCH_GAUSSIAN, "product", rows, err);
    }
    static const int64_t cubes[] = {256, 1024};
    for (int i = 0; i < 2 && !status; i++)
        status = measure_product(cubes[i], cubes[i], cubes[i], FORWARD, BENCH_GAUSSIAN, "cube",
                                 rows, err);
    for (int kind = BENCH_OUTLIERS; kind < BENCH_N_DATA && !status; kind++)
        status = measure_product(T, 2048, 2048, FORWARD, (bench_data)kind, "product", rows, err);
    return status;
}

oct_status bench_skinny(const bench_options *options, bench_rows *rows, oct_error *err) {
    static const int64_t widths[] = {1, 2, 3, 4, 5, 6, 7, 8, 16, 64};
    oct_status status = OCT_OK;
    (void)options;
    for (int i = 0; i < 10 && !status; i++)
        status =
            measure_product(widths[i], 4096, 4096, FORWARD, BENCH_GAUSSIAN, "skinny", rows, err);
    return status;
}

/* --- a whole linear layer, forward and backward --- */

typedef struct linear {
    int64_t T, K, N;
    float *x, *w, *dy, *y, *dx, *dw;
    uint8_t *codes[6], *scales[6]; /* x, w, dY by rows; by columns */
    void *workspace;
    oct_gemm_problem products[3];
} linear;

typedef struct quantize_job {
    const float *x;
    int64_t rows, cols;
    uint8_t *codes, *scales, *codes_t, *scales_t;
} quantize_job;

enum { ROWS_PER_TASK = 256 };

static void quantize_task(void *context, int64_t task, int thread) {
    const quantize_job *j = context;
    (void)thread;
    int64_t r = task * ROWS_PER_TASK, n = oct_min_i64(ROWS_PER_TASK, j->rows - r);
    int64_t by_row = blocks(j->cols), by_col = blocks(j->rows);
    oct_matrix_view x = {j->x + r * j->cols, OCT_F32, n, j->cols, j->cols};
    oct_mx_output rows = {j->codes + r * j->cols, j->cols, j->scales + r * by_row, by_row};
    oct_mx_output cols = {j->codes_t + r, j->rows, j->scales_t + r / OCT_MX_BLOCK, by_col};
    oct_kernels_current()->quantize->mx_both(&x, OCT_E4M3, OCT_SCALE_RCEIL, &rows, &cols);
}

static void run_linear_mx(void *context) {
    linear *l = context;
    const float *in[3] = {l->x, l->w, l->dy};
    const int64_t rows[3] = {l->T, l->N, l->T}, cols[3] = {l->K, l->K, l->N};
    for (int i = 0; i < 3; i++) {
        quantize_job j = {in[i],        rows[i],         cols[i],         l->codes[i],
                          l->scales[i], l->codes[3 + i], l->scales[3 + i]};
        oct_parallel(oct_ceil_div(rows[i], ROWS_PER_TASK), quantize_task, &j);
    }
    for (int i = 0; i < 3; i++)
        oct_gemm(&l->products[i], 1, OCT_GEMM_AUTO, l->workspace);
}

static bench_sgemm linear_sgemm(const linear *l, pass which) {
    if (which == FORWARD)
        return (bench_sgemm){l->T, l->N, l->K, false, true, l->x, l->w, l->y};
    if (which == DGRAD)
        return (bench_sgemm){l->T, l->K, l->N, false, false, l->dy, l->w, l->dx};
    return (bench_sgemm){l->N, l->K, l->T, true, false, l->dy, l->x, l->dw};
}

static void run_linear_onednn(void *context) {
    for (int i = FORWARD; i <= WGRAD; i++) {
        bench_sgemm s = linear_sgemm(context, (pass)i);
        bench_run_onednn(&s);
    }
}

static void run_linear_openblas(void *context) {
    for (int i = FORWARD; i <= WGRAD; i++) {
        bench_sgemm s = linear_sgemm(context, (pass)i);
        bench_run_openblas(&s);
    }
}

static oct_operand linear_operand(const linear *l, int which, int64_t K) {
    return (oct_operand){.dtype = OCT_E4M3,
                         .data = l->codes[which],
                         .ld = K,
                         .scaling = OCT_SCALING_MX,
                         .scales = l->scales[which],
                         .ld_scales = blocks(K),
                         .block_rows = 1};
}

static void linear_free(linear *l) {
    float *floats[] = {l->x, l->w, l->dy, l->y, l->dx, l->dw};
    for (int i = 0; i < 6; i++) {
        oct_free(floats[i]);
        oct_free(l->codes[i]);
        oct_free(l->scales[i]);
    }
    oct_free(l->workspace);
}

static bool linear_make(linear *l, int64_t T, int64_t K, int64_t N) {
    enum { X, W, DY, XT, WT, DYT };
    *l = (linear){.T = T, .K = K, .N = N};
    const int64_t sizes[6] = {T * K, N * K, T * N, T * N, T * K, N * K};
    float **floats[6] = {&l->x, &l->w, &l->dy, &l->y, &l->dx, &l->dw};
    for (int i = 0; i < 6; i++) {
        int64_t n = sizes[i % 3];
        *floats[i] = oct_malloc_array((size_t)sizes[i], sizeof(float));
        l->codes[i] = oct_malloc_array((size_t)n, 1);
        l->scales[i] = oct_malloc_array((size_t)n, 1); /* more than enough for any orientation */
        if (!*floats[i] || !l->codes[i] || !l->scales[i])
            return false;
    }
    bench_fill(l->x, T, K, BENCH_GAUSSIAN, 1);
    bench_fill(l->w, N, K, BENCH_GAUSSIAN, 2);
    bench_fill(l->dy, T, N, BENCH_GAUSSIAN, 3);
    l->products[0] = (oct_gemm_problem){.M = T, .N = N, .K = K, .c = l->y, .ld_c = N};
    l->products[0].a = linear_operand(l, X, K);
    l->products[0].b = linear_operand(l, W, K);
    l->products[1] = (oct_gemm_problem){.M = T, .N = K, .K = N, .c = l->dx, .ld_c = K};
    l->products[1].a = linear_operand(l, DY, N);
    l->products[1].b = linear_operand(l, WT, N);
    l->products[2] = (oct_gemm_problem){.M = N, .N = K, .K = T, .c = l->dw, .ld_c = K};
    l->products[2].a = linear_operand(l, DYT, T);
    l->products[2].b = linear_operand(l, XT, T);
    size_t n = 0;
    for (int i = 0; i < 3; i++) {
        l->products[i].c_dtype = OCT_F32;
        size_t needed = oct_gemm_workspace(&l->products[i], 1, OCT_GEMM_AUTO);
        n = n > needed ? n : needed;
    }
    l->workspace = oct_malloc(n);
    return l->workspace != NULL;
}

oct_status bench_linear(const bench_options *options, bench_rows *rows, oct_error *err) {
    enum { T = 2048, K = 2048, N = 8192 };
    linear l;
    oct_status status = OCT_NO_MEMORY;
    (void)options;
    if (!linear_make(&l, T, K, N)) {
        oct_fail(err, OCT_NO_MEMORY, "bench: no memory for a linear layer");
        goto cleanup;
    }
    bench_candidate c[] = {
        {"onednn", bench_has_onednn() ? run_linear_onednn : NULL, &l, 0, 0},
        {"openblas", bench_has_openblas() ? run_linear_openblas : NULL, &l, 0, 0},
        {"mx", run_linear_mx, &l, 0, 0},
    };
    bench_measure(c, 3, 3.0);
    bench_add_row(rows, json_pack("{s:s,s:s,s:s,s:i,s:i,s:i,s:o,s:f}", "what", "linear", "pass",
                                  "forward+backward", "data", "gaussian", "M", T, "N", N, "K", K,
                                  "rates", bench_rates(c, 3, 6.0 * T * (double)K * N), "mx_ratio",
                                  best_peer(c, 2) / c[2].seconds));
    status = OCT_OK;
cleanup:
    linear_free(&l);
    return status;
}

/* --- errors --- */

static double decoded(const operand *o, int64_t r, int64_t k) {
    return (double)oct_e4m3_decode(o->codes[r * o->K + k]) *
           oct_e8m0_decode(o->scales[r * blocks(o->K) + k / OCT_MX_BLOCK]);
}

/* Relative Frobenius distance of c from the fp64 product. */
static double distance(const double *exact, const float *c, int64_t n) {
    double difference = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        difference += ((double)c[i] - exact[i]) * ((double)c[i] - exact[i]);
        size += exact[i] * exact[i];
    }
    return sqrt(difference / size);
}

static oct_status measure_errors(bench_data kind, bench_rows *rows, oct_error *err) {
    enum { M = 128, N = 128, K = 4096 };
    product p;
    double *exact = oct_malloc_array(M * N, sizeof *exact);
    oct_status status = OCT_NO_MEMORY;
    if (!product_make(&p, M, N, K, FORWARD, kind) || !exact) {
        oct_fail(err, OCT_NO_MEMORY, "bench: no memory for errors");
        goto cleanup;
    }
    /* The libraries get what the codes decode to. */
    for (int64_t i = 0; i < M; i++)
        for (int64_t k = 0; k < K; k++)
            p.a.x[i * K + k] = (float)decoded(&p.a, i, k);
    for (int64_t j = 0; j < N; j++)
        for (int64_t k = 0; k < K; k++)
            p.b.x[j * K + k] = (float)decoded(&p.b, j, k);
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            double sum = 0;
            for (int64_t k = 0; k < K; k++)
                sum += (double)p.a.x[i * K + k] * (double)p.b.x[j * K + k];
            exact[i * N + j] = sum;
        }
    if (!product_make_bf16(&p)) { /* exact: what the codes decode to is a bf16 number */
        oct_fail(err, OCT_NO_MEMORY, "bench: no memory for errors");
        goto cleanup;
    }
    json_t *row = json_pack("{s:s,s:s,s:i,s:i,s:i}", "what", "error", "data", bench_data_name(kind),
                            "M", M, "N", N, "K", K);
    const bench_candidate c[] = {
        {"onednn", bench_has_onednn() ? bench_run_onednn : NULL, &p.sgemm, 0, 0},
        {"openblas", bench_has_openblas() ? bench_run_openblas : NULL, &p.sgemm, 0, 0},
        {"mx", run_mx, &p, 0, 0},
        {"mx_exact", run_mx_exact, &p, 0, 0},
        {"bf16", run_bf16, &p, 0, 0},
        {"onednn_bf16", p.onednn_bf16 ? bench_run_onednn_bf16 : NULL, p.onednn_bf16, 0, 0},
    };
    for (size_t i = 0; i < OCT_COUNT(c); i++) {
        if (!c[i].run)
            continue;
        c[i].run(c[i].context);
        json_object_set_new(row, c[i].name, json_real(distance(exact, p.c, M * N)));
    }
    bench_add_row(rows, row);
    status = OCT_OK;
cleanup:
    product_free(&p);
    oct_free(exact);
    return status;
}

oct_status bench_errors(const bench_options *options, bench_rows *rows, oct_error *err) {
    oct_status status = OCT_OK;
    (void)options;
    for (int kind = 0; kind < BENCH_N_DATA && !status; kind++)
        status = measure_errors((bench_data)kind, rows, err);
    return status;
}
