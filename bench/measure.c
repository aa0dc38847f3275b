/* Interleaved medians, and data to measure on. */
#include "bench.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "base/rng.h"
#include "base/thread.h"

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Seconds of a call, of `repeats` in a row. */
static double time_calls(const bench_candidate *c, int repeats) {
    double start = now();
    for (int i = 0; i < repeats; i++)
        c->run(c->context);
    return (now() - start) / repeats;
}

void bench_measure(bench_candidate *candidates, int n, double budget) {
    double times[BENCH_MAX_CANDIDATES][BENCH_MAX_ROUNDS];
    int repeats[BENCH_MAX_CANDIDATES];
    double round = 0;
    for (int i = 0; i < n; i++) {
        if (!candidates[i].run)
            continue;
        time_calls(&candidates[i], 1); /* warms up */
        double once = time_calls(&candidates[i], 1);
        repeats[i] = once > 2e-3 ? 1 : (int)(2e-3 / (once + 1e-9)) + 1;
        round += once * repeats[i];
    }
    int rounds = (int)(budget / (round + 1e-9)) | 1; /* odd: the median is one of them */
    rounds = rounds < 3 ? 3 : rounds > BENCH_MAX_ROUNDS ? BENCH_MAX_ROUNDS : rounds;
    for (int r = 0; r < rounds; r++)
        for (int i = 0; i < n; i++)
            if (candidates[i].run)
                times[i][r] = time_calls(&candidates[i], repeats[i]);
    for (int i = 0; i < n; i++) {
        if (!candidates[i].run)
            continue;
        qsort(times[i], (size_t)rounds, sizeof times[i][0], compare);
        candidates[i].seconds = times[i][rounds / 2];
        candidates[i].spread =
            (times[i][rounds * 3 / 4] - times[i][rounds / 4]) / candidates[i].seconds;
    }
}

const char *bench_data_name(bench_data kind) {
    static const char *const names[BENCH_N_DATA] = {"gaussian", "outliers", "student-t",
                                                    "block-spread"};
    return names[kind];
}

/* A matrix and how to fill a row of it. */
typedef struct filling {
    float *x;
    int64_t cols;
    bench_data kind;
    uint64_t stream;
} filling;

static float draw(const filling *f, int64_t row, int64_t col) {
    uint64_t at = (uint64_t)(row * f->cols + col);
    float g = oct_rng_normal(1, f->stream, at);
    switch (f->kind) {
    case BENCH_OUTLIERS:
        return oct_rng_uniform(2, f->stream, (uint64_t)col) < 0.01f ? g * 50 : g;
    case BENCH_STUDENT: {
        float a = oct_rng_normal(3, f->stream, at), b = oct_rng_normal(4, f->stream, at),
              c = oct_rng_normal(5, f->stream, at);
        return g / sqrtf((a * a + b * b + c * c) / 3);
    }
    case BENCH_SPREAD:
        return g * exp2f(2 * oct_rng_normal(6, f->stream,
                                            (uint64_t)(row * ((f->cols + 31) / 32) + col / 32)));
    default:
        return g;
    }
}

static void fill_row(void *context, int64_t row, int thread) {
    const filling *f = context;
    (void)thread;
    for (int64_t c = 0; c < f->cols; c++)
        f->x[row * f->cols + c] = draw(f, row, c);
}

void bench_fill(float *x, int64_t rows, int64_t cols, bench_data kind, uint64_t stream) {
    filling f = {x, cols, kind, stream};
    oct_parallel(rows, fill_row, &f);
}

json_t *bench_rates(const bench_candidate *c, int n, double flops) {
    json_t *object = json_object();
    for (int i = 0; i < n; i++)
        if (c[i].run)
            json_object_set_new(object, c[i].name,
                                json_pack("{s:f,s:f}", "gflops", flops / c[i].seconds * 1e-9,
                                          "spread", c[i].spread));
    return object;
}
