/* What the writer and the reader of checkpoints share. Internal to the room. */
#ifndef OCT_IO_CHECKPOINT_FORMAT_H
#define OCT_IO_CHECKPOINT_FORMAT_H

#include <stdbool.h>

#include "io/checkpoint.h"

#define OCT_CHECKPOINT_FORMAT "octet-checkpoint"
#define OCT_CHECKPOINT_VERSION 1
#define OCT_CHECKPOINT_MANIFEST "manifest.json"
#define OCT_CHECKPOINT_STATE "state.json"

extern const char *const oct_checkpoint_group_name[OCT_CHECKPOINT_N_GROUPS];

/* Ends in ".safetensors". */
bool oct_is_shard_name(const char *name);

/* Opens with all checks but the checksums: cheap, for counting what to keep. */
bool oct_checkpoint_looks_valid(const char *step_folder);

#endif
