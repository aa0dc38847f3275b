/* The rules in a checkpoint: a run goes on by those that it was trained by. */
#ifndef OCT_JOB_RULES_RECORD_H
#define OCT_JOB_RULES_RECORD_H

#include "checkpoint/checkpoint.h"
#include "config/job.h"
#include "quant/rules.h"

/* The rules that state.json (its text) names under "rules"; octet's where it names none, as those
 * of older versions do, which knew no others. OCT_INVALID: it names some that aren't known here, or
 * isn't JSON. */
oct_status oct_rules_read(const char *state, const char *path, const oct_rules **rules,
                          bool *recorded, oct_error *err);

/* Makes the rules of `from`, the checkpoint that the job goes on from, the job's, with a warning
 * where they aren't its own; nothing where the user wrote quantize.rules. */
oct_status oct_rules_adopt(oct_job *job, const oct_checkpoint *from, oct_error *err);

#endif
