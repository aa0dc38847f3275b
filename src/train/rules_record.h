/* The rules in a checkpoint: a run goes on by those that it was trained by. */
#ifndef OCT_TRAIN_RULES_RECORD_H
#define OCT_TRAIN_RULES_RECORD_H

#include "config/job.h"
#include "quant/rules.h"

/* The rules that state.json (its text) names under "rules"; octet's where it names none, as those
 * of older versions do, which knew no others. OCT_INVALID: it names some that aren't known here, or
 * isn't JSON. */
oct_status oct_rules_read(const char *state, const char *path, const oct_rules **rules,
                          bool *recorded, oct_error *err);

/* Makes the rules of the checkpoint that the job will go on from the job's, with a warning where
 * they aren't its own; nothing without a checkpoint, or where the user wrote quantize.rules. Reads
 * state.json alone: whether the checkpoint is whole is for who loads it. */
oct_status oct_rules_adopt(oct_job *job, oct_error *err);

#endif
