/* The model of a checkpoint: its arguments in state.json, and what becomes of a run that is resumed
 * with other ones.
 *
 * Invariant: every argument is compared. One that isn't said to be free to change decides what the
 * stored weights mean, so that another value is refused. */
#ifndef OCT_JOB_MODEL_RECORD_H
#define OCT_JOB_MODEL_RECORD_H

#include "base/strbuf.h"
#include "checkpoint/checkpoint.h"
#include "config/job.h"
#include "model/args.h"

/* "model.args.NAME = VALUE" a line, for all of them. */
void oct_model_record_lines(const oct_model_args *args, oct_strbuf *to);
/* The record: a JSON object, name to value. */
void oct_model_record_put(const oct_model_args *args, oct_strbuf *to);

/* The arguments of the model that a checkpoint holds, resolved: of its record; where one isn't
 * recorded (older versions), as `saved`, the checkpoint's job, has it. OCT_INVALID: neither says
 * it, or the record is none. */
oct_status oct_model_record_read(const oct_checkpoint *from, const oct_job *saved,
                                 oct_model_args *args, oct_error *err);

/* How another value is taken. */
typedef enum oct_record_use {
    OCT_RECORD_RESUME, /* refused, or a warning where it changes the steps to come alone */
    OCT_RECORD_WEIGHTS /* weights alone are taken: a warning */
} oct_record_use;
/* Compares the model of `job`, `now`, with that of the checkpoint, `before`. OCT_INVALID names the
 * argument at its place in the job, and both values; the job's further entries that differ are told
 * with it (oct_job_more_refusals). */
oct_status oct_model_record_check(const oct_job *job, const oct_model_args *now,
                                  const oct_model_args *before, const char *checkpoint,
                                  oct_record_use use, oct_error *err);

#endif
