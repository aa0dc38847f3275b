/* Measuring kernels against the libraries one would use instead. Everything that is compared runs
 * in one process, interleaved, and medians are taken, since the speed of a machine drifts; trust
 * the ratios. */
#ifndef OCT_BENCH_BENCH_H
#define OCT_BENCH_BENCH_H

#include <jansson.h>
#include <octet/status.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernel/gemm.h"

typedef struct bench_options {
    int threads;      /* of all candidates */
    bool large;       /* d = 4096 too: minutes */
    bool print;       /* each row of a table as soon as it is measured */
    const char *only; /* products, skinny, linear, grouped, quantizers, errors; NULL: all */
} bench_options;

/* --- measuring --- */

enum { BENCH_MAX_CANDIDATES = 8, BENCH_MAX_ROUNDS = 41 };

typedef struct bench_candidate {
    const char *name;
    void (*run)(void *context); /* NULL: not there */
    void *context;
    double seconds; /* result: median of a call */
    double spread;  /* result: (upper quartile - lower quartile) / median */
} bench_candidate;

/* Runs the candidates in turn, round after round, for about `budget` seconds. */
void bench_measure(bench_candidate *candidates, int n, double budget);

/* --- peers: fp32 products of other libraries, loaded at run time --- */

/* C (M,N) = op(A) op(B), row-major; `a_transposed`: A is stored (K,M); `b_transposed`: B is stored
 * (N,K). */
typedef struct bench_sgemm {
    int64_t M, N, K;
    bool a_transposed, b_transposed;
    const float *a, *b;
    float *c;
} bench_sgemm;

/* Each returns false where the library isn't installed. Sets what isn't set: OPENBLAS_CORETYPE to
 * SkylakeX, since old OpenBLAS takes new CPUs for old ones; that idle threads of the libraries
 * sleep rather than spin while others are measured. */
bool bench_peers_load(int threads);
bool bench_has_onednn(void);
bool bench_has_openblas(void);
void bench_run_onednn(void *sgemm);
void bench_run_openblas(void *sgemm);

/* oneDNN's product of bf16 operands into fp32, its `matmul`, from the library that is open. */
void bench_onednn_bf16_load(void *library);
bool bench_has_onednn_bf16(void);
typedef struct bench_bf16 bench_bf16;
/* The operands of an sgemm rounded to bf16, kept until they're freed; C is the sgemm's. NULL: not
 * there, or no memory. */
bench_bf16 *bench_onednn_bf16_make(const bench_sgemm *s);
void bench_onednn_bf16_free(bench_bf16 *x);
void bench_run_onednn_bf16(void *x);
/* n numbers rounded to bf16; NULL: no memory. */
uint16_t *bench_to_bf16(const float *x, int64_t n);

/* --- data --- */

typedef enum bench_data {
    BENCH_GAUSSIAN,
    BENCH_OUTLIERS, /* 1 % of the columns 50 times as large */
    BENCH_STUDENT,  /* Student's t, 3 degrees of freedom */
    BENCH_SPREAD,   /* blocks of 32 times 2^N(0,2) */
    BENCH_N_DATA
} bench_data;

const char *bench_data_name(bench_data kind);
void bench_fill(float *x, int64_t rows, int64_t cols, bench_data kind, uint64_t stream);

/* --- what is measured; each adds its rows --- */

typedef struct bench_rows {
    json_t *array;
    bool print; /* a table, each row as soon as it is measured */
} bench_rows;

/* Takes the row over. */
void bench_add_row(bench_rows *rows, json_t *row);

oct_status bench_products(const bench_options *options, bench_rows *rows, oct_error *err);
oct_status bench_skinny(const bench_options *options, bench_rows *rows, oct_error *err);
oct_status bench_linear(const bench_options *options, bench_rows *rows, oct_error *err);
oct_status bench_grouped(const bench_options *options, bench_rows *rows, oct_error *err);
oct_status bench_quantizers(const bench_options *options, bench_rows *rows, oct_error *err);
oct_status bench_errors(const bench_options *options, bench_rows *rows, oct_error *err);

/* All of it, or options->only: {"cpu", "threads", "rows": [...]}; the caller owns the result. */
oct_status bench_run(const bench_options *options, json_t **result, oct_error *err);

/* {"name": {"gflops": .., "spread": ..}} of those of n candidates that could run; NULL: no memory.
 */
json_t *bench_rates(const bench_candidate *c, int n, double flops);

#endif
