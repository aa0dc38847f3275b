/* The folders of the runs of `octet compare`: each recipe's own, and what an earlier compare left
 * in them. Internal to the room. */
#ifndef OCT_COMPARE_FOLDERS_H
#define OCT_COMPARE_FOLDERS_H

#include "config/job.h"

/* Of `n` dump folders, a recipe each, whether `job` saves checkpoints within each of them.
 * OCT_INVALID: checkpoint.folder leads out of one, where all recipes would save in one folder; or
 * the weights that all begin from are among the checkpoints that would be set aside. */
oct_status oct_compare_folders_check(const oct_job *job, char *const *folders, int n,
                                     oct_error *err);

/* Moves all checkpoints that are in the folders aside and tells of it: those of an earlier compare,
 * which a shorter one would leave as the newest. A folder that is out of a recipe's own is left
 * alone. `own` is the one that this process has claimed. */
oct_status oct_compare_folders_set_aside(const oct_job *job, char *const *folders, int n, int own,
                                         oct_error *err);

#endif
