/* What the writer and the reader of checkpoints share. Internal to the room. */
#ifndef OCT_CHECKPOINT_FORMAT_H
#define OCT_CHECKPOINT_FORMAT_H

#include <stdbool.h>

#include "checkpoint/checkpoint.h"

#define OCT_CHECKPOINT_FORMAT "octet-checkpoint"
#define OCT_CHECKPOINT_VERSION 1
#define OCT_CHECKPOINT_MANIFEST "manifest.json"
#define OCT_CHECKPOINT_STATE "state.json"

extern const char *const oct_checkpoint_group_name[OCT_CHECKPOINT_N_GROUPS];

/* Ends in ".safetensors". */
bool oct_is_shard_name(const char *name);

/* Which files are read whole on opening, to compare their checksums. */
typedef enum oct_checksums {
    OCT_CHECKSUMS_OF_CHANGED, /* those that may be others than when the manifest was written */
    OCT_CHECKSUMS_OF_ALL
} oct_checksums;
/* Opens `folder`/step-N, which must hold step N, else a renamed folder would resume at the wrong
 * place. */
oct_status oct_checkpoint_open_step(const char *folder, int64_t step, oct_checksums mode,
                                    oct_checkpoint **checkpoint, oct_error *err);

/* What a run could do with `folder`/step-N. Checked as on opening, the name's step too; only the
 * checksums of files that haven't changed since the manifest was written are taken on trust, so
 * that a save doesn't read all earlier ones. */
typedef enum oct_checkpoint_worth {
    OCT_CHECKPOINT_UNUSABLE,
    OCT_CHECKPOINT_WITHOUT_STATE, /* the model alone: training can't go on from it */
    OCT_CHECKPOINT_WHOLE
} oct_checkpoint_worth;
oct_checkpoint_worth oct_checkpoint_judge(const char *folder, int64_t step);

#endif
