/* A folder that appears whole, under a name that was free. Internal to the room. */
#ifndef OCT_EXPORT_FOLDER_H
#define OCT_EXPORT_FOLDER_H

#include <octet/status.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct oct_new_folder {
    char *path, *parent; /* without slashes at the end */
    char *temporary;     /* "PATH.tmp-PID", beside it */
    bool made;           /* the temporary folder is there */
    size_t n_kept;       /* this much of the parent's path was there before */
} oct_new_folder;

/* What oct_new_folder_begin refuses before it touches the disk. */
oct_status oct_new_folder_check(const char *path, oct_error *err);
/* Refuses a path that exists, or names no folder of its own (OCT_INVALID); makes the parents and
 * the temporary folder, and removes those of dead processes of this host. *folder is empty on
 * failure. */
oct_status oct_new_folder_begin(const char *path, oct_new_folder *folder, oct_error *err);
/* Gives it its name, unless that was taken meanwhile. */
oct_status oct_new_folder_publish(oct_new_folder *folder, oct_error *err);
/* Frees; what wasn't published goes, with the parents that were made for it. An empty one is fine.
 */
void oct_new_folder_end(oct_new_folder *folder);

#endif
