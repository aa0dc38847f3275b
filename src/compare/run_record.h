/* What a comparison keeps of a run beside its metrics: run.json in the run's folder. It is there
 * from before the first step; with a result once the run is whole. By it the same comparison, even
 * days later, passes over what is done and goes on with what was stopped. */
#ifndef OCT_COMPARE_RUN_RECORD_H
#define OCT_COMPARE_RUN_RECORD_H

#include <octet/status.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/strbuf.h"
#include "config/job.h"

typedef struct oct_run_result {
    double validation_loss, unigram_entropy, peak_bytes;
    int64_t validation_tokens, steps;
} oct_run_result;

typedef struct oct_run_record {
    bool begun;     /* the folder's run is of the same inputs */
    bool done;      /* and has its result */
    bool elsewhere; /* on another machine than `machine` */
    oct_run_result result;
} oct_run_record;

/* What a job reads, as lines: its data sets (opened, and tokenized into `cache_folder` if they
 * aren't yet) and the files of its initial weights by size and time. The same for all runs of a
 * comparison, which differ in recipe and seed alone. Check text->failed. */
oct_status oct_run_record_files(const oct_job *job, const char *cache_folder, oct_strbuf *text,
                                oct_error *err);
/* What decides what a run computes, as lines: keys of the job with an effect, arguments of the
 * model, and `read_files`, what oct_run_record_files gave. */
oct_status oct_run_record_inputs(const oct_job *job, const char *read_files, bool other_order,
                                 oct_strbuf *text, oct_error *err);

/* `machine` is a label: what else a result depends on, but less than on its inputs.
 *
 * A folder without a record, or with one of other inputs, holds no run of these: nothing is begun.
 * OCT_INVALID: run.json isn't a record. */
oct_status oct_run_record_read(const char *folder, const char *inputs, const char *machine,
                               oct_run_record *record, oct_error *err);
/* `result` NULL: it begins. The folder is there. */
oct_status oct_run_record_write(const char *folder, const char *inputs, const char *machine,
                                const oct_run_result *result, oct_error *err);

#endif
