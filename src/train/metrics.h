/* What a run reports: the log's step lines in torchtitan's form, metrics.jsonl, TensorBoard events.
 */
#ifndef OCT_TRAIN_METRICS_H
#define OCT_TRAIN_METRICS_H

#include "base/strbuf.h"
#include "report/event_file.h"
#include "report/metrics_file.h"
#include "train/trainer.h"

/* The machine's memory, in bytes. */
double oct_machine_memory_bytes(void);

typedef struct oct_metrics {
    oct_metrics_file *file;
    oct_event_file *events; /* NULL: off */
    oct_colour colour;
    int64_t log_freq;
    double flops_per_token;
    /* since the last log line */
    int64_t n_tokens;
    double data_s;
    double since; /* monotonic seconds */
} oct_metrics;

/* Opens <dump_folder>/metrics.jsonl, cut after `last_step` (-1: before all), and the event file if
 * the job wants one. */
oct_status oct_metrics_open(const oct_job *job, int64_t last_step, oct_metrics_dropped dropped,
                            oct_colour colour, double flops_per_token, oct_metrics *metrics,
                            oct_error *err);
void oct_metrics_close(oct_metrics *metrics);

/* One step's numbers: a line of metrics.jsonl (validation may be NULL), and at step 1 and every
 * log_freq steps the log line and the events. `n_tokens_seen` counts from the run's start. */
oct_status oct_metrics_step(oct_metrics *metrics, const oct_step_result *result,
                            const oct_validation *validation, int64_t n_tokens_seen,
                            oct_error *err);

/* "27,483" */
void oct_append_grouped(oct_strbuf *b, int64_t n);

/* The text of a step line: `step:  1  loss:  8.04030  grad_norm:  1.3470  memory:  1.02GiB(4.25%)
 * tps: 27,483  tflops: 1.97`. Memory in bytes. */
typedef struct oct_step_line {
    int64_t step;
    double loss, grad_norm;
    double memory, machine_memory;
    double tokens_per_s, flops_per_s;
} oct_step_line;
void oct_step_line_render(const oct_step_line *line, oct_colour colour, oct_strbuf *b);

#endif
