/* Files, with errors that name the path and the reason. */
#ifndef OCT_BASE_FS_H
#define OCT_BASE_FS_H

#include <octet/status.h>
#include <stdbool.h>
#include <stddef.h>

/* What `error` (errno of a failed open, read or the like) says about who is to blame: OCT_FAILED
 * where the machine has no file handle, memory or space left or its disk is broken, OCT_INVALID
 * where the path is wrong. */
oct_status oct_status_of_errno(int error);

/* The same of something that can't be made or written: OCT_INVALID only for a name that is too long
 * for the system, as all else may be otherwise the next time. */
oct_status oct_status_of_write_errno(int error);

/* The whole file as a NUL-terminated block (oct_free), at most `max_bytes`. A folder, a missing or
 * an unreadable file is OCT_INVALID, no file handle left is OCT_FAILED. */
oct_status oct_file_read(const char *path, size_t max_bytes, char **text, size_t *n_bytes,
                         oct_error *err);

/* OCT_INVALID if `path` exists and is no regular file: renaming a new file onto it would replace a
 * device. */
oct_status oct_path_check_target(const char *path, oct_error *err);

/* Writes through a temporary name, fsync and rename, so that `path` holds the old or the new bytes,
 * never a part. A full disk or a refused write is OCT_FAILED and leaves no temporary file. */
oct_status oct_file_write(const char *path, const void *bytes, size_t n_bytes, oct_error *err);

/* A file mapped read-only. An empty file maps to data NULL, n_bytes 0. */
typedef struct oct_mapping {
    const void *data;
    size_t n_bytes;
} oct_mapping;
oct_status oct_file_map(const char *path, oct_mapping *mapping, oct_error *err);
void oct_file_unmap(oct_mapping *mapping);

/* Creates the folder and its parents; existing is fine. */
oct_status oct_make_folders(const char *path, oct_error *err);
/* How many bytes of `path`, in whole names, are a path that exists. */
size_t oct_path_existing(const char *path);
/* Removes the folder and its parents as far as they are empty, but none within the first `n_kept`
 * bytes: with what oct_path_existing said before, this undoes oct_make_folders. */
void oct_remove_folders(const char *path, size_t n_kept);
/* Deletes a file or a folder with all below it; symbolic links aren't followed. */
oct_status oct_remove_tree(const char *path, oct_error *err);
/* fsync of a folder, so that a rename in it survives a crash. */
oct_status oct_folder_sync(const char *path, oct_error *err);
bool oct_path_exists(const char *path);
bool oct_path_is_folder(const char *path);
/* `folder/name` (oct_free); NULL when memory is refused. An absolute name is returned as it is. */
char *oct_path_join(const char *folder, const char *name);

/* Whether `path` is a Hugging Face folder: it holds a config.json, and isn't a checkpoint of ours,
 * which has one too, beside its manifest. */
bool oct_path_is_hf_folder(const char *path);

#endif
