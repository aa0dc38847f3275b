/* A run read back from its metrics.jsonl, finished or under way. */
#ifndef OCT_REPORT_RECORDED_RUN_H
#define OCT_REPORT_RECORDED_RUN_H

#include <octet/status.h>
#include <stdint.h>

/* Points of a curve; y may hold NaN where a step has no value. */
typedef struct oct_series {
    double *x, *y; /* (n) */
    int64_t n, capacity;
} oct_series;

typedef struct oct_run {
    oct_series loss, grad_norm, validation_loss; /* by step */
    double n_tokens, duration_s;                 /* of all steps but the first, which warms up */
} oct_run;

/* An unfinished last line is left out. OCT_INVALID: no such file, or a line that isn't a step's
 * (FILE:LINE). */
oct_status oct_run_read(const char *metrics_path, oct_run *run, oct_error *err);
void oct_run_free(oct_run *run);

/* The mean of the last n values of a series (of all when there are fewer); NaN when empty. */
double oct_series_tail_mean(const oct_series *series, int64_t n);

oct_status oct_series_append(oct_series *series, double x, double y);
void oct_series_free(oct_series *series);

/* out's y is the mean of the last `window` values of y up to each point. */
oct_status oct_series_smooth(const oct_series *series, int64_t window, oct_series *out);
/* a - b where both have the same x. */
oct_status oct_series_difference(const oct_series *a, const oct_series *b, oct_series *out);

#endif
