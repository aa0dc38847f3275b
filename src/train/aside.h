/* Checkpoints that a run leaves behind, with the numbers that belong to them. */
#ifndef OCT_TRAIN_ASIDE_H
#define OCT_TRAIN_ASIDE_H

#include <octet/status.h>
#include <stddef.h>
#include <stdint.h>

/* oct_checkpoint_set_aside of the checkpoints above `step` in `folder`, and a copy of
 * `dump_folder`/metrics.jsonl beside them. *n: how many; *aside (oct_free): where to, NULL where
 * there were none, or on failure. For one process, which has claimed the folder. */
oct_status oct_aside_move(const char *dump_folder, const char *folder, int64_t step, char **aside,
                          size_t *n, oct_error *err);

#endif
