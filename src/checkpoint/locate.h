/* From the path that a user types to a checkpoint. */
#ifndef OCT_CHECKPOINT_LOCATE_H
#define OCT_CHECKPOINT_LOCATE_H

#include "checkpoint/checkpoint.h"

/* `path`: a checkpoint's own folder, a folder of step-N folders, or a run's dump folder, whose
 * `checkpoint` folder is taken; of several steps the newest valid one. Opened and verified as
 * oct_checkpoint_open does. OCT_INVALID: none of these; the message names the checkpoints that are
 * below `path` (or below the part of it that exists), as those of `octet compare` are. Where one is
 * taken and there are other runs' below, a warning names them. */
oct_status oct_checkpoint_locate(const char *path, oct_checkpoint **checkpoint, oct_error *err);

#endif
