/* metrics.jsonl: one JSON object a step.
 *
 * Invariant: the file always ends with a whole line. A line goes out by one write; a tail that a
 * crash left unfinished is cut off when the file is opened again. */
#ifndef OCT_REPORT_METRICS_FILE_H
#define OCT_REPORT_METRICS_FILE_H

#include <octet/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum oct_metric_kind {
    OCT_METRIC_REAL, /* non-finite: null in JSON */
    OCT_METRIC_INTEGER,
    OCT_METRIC_JSON, /* text that is JSON, written as it is; not an event-file scalar */
    OCT_METRIC_TEXT, /* UTF-8; bytes that aren't become U+FFFD; not an event-file scalar */
} oct_metric_kind;

typedef struct oct_metric {
    const char *name;
    oct_metric_kind kind;
    union {
        double real;
        int64_t integer;
        const char *text;
    } value;
} oct_metric;

static inline oct_metric oct_metric_real(const char *name, double value) {
    oct_metric metric = {name, OCT_METRIC_REAL, {0}};
    metric.value.real = value;
    return metric;
}
static inline oct_metric oct_metric_integer(const char *name, int64_t value) {
    oct_metric metric = {name, OCT_METRIC_INTEGER, {0}};
    metric.value.integer = value;
    return metric;
}
static inline oct_metric oct_metric_json(const char *name, const char *json) {
    oct_metric metric = {name, OCT_METRIC_JSON, {0}};
    metric.value.text = json;
    return metric;
}
static inline oct_metric oct_metric_text(const char *name, const char *value) {
    oct_metric metric = {name, OCT_METRIC_TEXT, {0}};
    metric.value.text = value;
    return metric;
}

/* The numbers `names` of the first line of `step` into n `values`; *found: there is such a line,
 * and it has all of them. A file that isn't there has none. */
oct_status oct_metrics_file_find(const char *path, int64_t step, const char *const *names, size_t n,
                                 double *values, bool *found, oct_error *err);

typedef struct oct_metrics_file oct_metrics_file;

/* What becomes of lines that a file loses when it is opened. */
typedef enum oct_metrics_dropped {
    OCT_METRICS_DROP, /* they go: a run takes its own steps again */
    OCT_METRICS_KEEP  /* the old file stays as NAME-K.jsonl, K the first free number; logged */
} oct_metrics_dropped;

/* Opens for appending after the last line whose step is at most `last_step`: pass the resumed step,
 * or -1 for a fresh run (nothing of an older file stays). `dropped`: of later lines. A file whose
 * first line isn't an object with a step is somebody else's: OCT_INVALID, untouched; a damaged
 * later line is cut off with all that follows, with a warning. */
oct_status oct_metrics_file_open(const char *path, int64_t last_step, oct_metrics_dropped dropped,
                                 oct_metrics_file **file, oct_error *err);
/* Appends {"step": step, NAME: VALUE, ...} and a newline. OCT_FAILED: the disk refused; the file
 * still ends with the line before. One thread at a time. */
oct_status oct_metrics_file_append(oct_metrics_file *file, int64_t step, const oct_metric *metrics,
                                   size_t n_metrics, oct_error *err);
void oct_metrics_file_close(oct_metrics_file *file); /* NULL is fine */

#endif
