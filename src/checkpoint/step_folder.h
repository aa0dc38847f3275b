/* The names under <dump_folder>/checkpoint: step-N, and step-N.tmp-PID or step-N.del-PID while one
 * is written or removed. Internal to the room. */
#ifndef OCT_CHECKPOINT_STEP_FOLDER_H
#define OCT_CHECKPOINT_STEP_FOLDER_H

#include <octet/status.h>
#include <stddef.h>
#include <stdint.h>

/* The steps that have a folder by name, newest first (oct_free). A missing `folder` has none. */
oct_status oct_step_folders_list(const char *folder, int64_t **steps, size_t *n_steps,
                                 oct_error *err);

/* `folder`/step-N, or with a suffix (".tmp", ".del") `folder`/step-N.tmp-PID; oct_free. */
char *oct_step_folder_path(const char *folder, int64_t step, const char *suffix);

/* Makes `temporary` the checkpoint `path`. If there is one already, the two are exchanged in one
 * step where the file system can, and the old one is removed. */
oct_status oct_step_folder_publish(const char *folder, int64_t step, const char *temporary,
                                   oct_error *err);
/* Renames step-N away, makes that durable, then deletes. */
oct_status oct_step_folder_remove(const char *folder, int64_t step, oct_error *err);
/* Deletes step-*.tmp-PID and step-*.del-PID of processes that no longer run on this host. */
void oct_step_folders_sweep(const char *folder);

#endif
