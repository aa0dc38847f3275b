/* The folders of the runs of `octet compare`: each its own, and what an earlier compare left
 * in them. Internal to the room. */
#ifndef OCT_COMPARE_FOLDERS_H
#define OCT_COMPARE_FOLDERS_H

#include "config/job.h"

/* Whether `job` saves checkpoints within `folder`, the dump folder of one run. OCT_INVALID:
 * checkpoint.folder leads out of it, where all runs would save in one folder; or the weights that
 * all begin from are among the checkpoints that would be set aside. */
oct_status oct_compare_folder_check(const oct_job *job, const char *folder, oct_error *err);

/* Moves all checkpoints that are in the folder aside and tells of it: those of an earlier compare,
 * which a shorter one would leave as the newest. Nothing where they lie elsewhere. `claimed`: this
 * process has claimed the folder already. */
oct_status oct_compare_folder_set_aside(const oct_job *job, const char *folder, bool claimed,
                                        oct_error *err);

#endif
