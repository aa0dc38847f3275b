/* A file that grows by whole records: one that the disk takes only in part is cut off again. */
#ifndef OCT_FILE_APPEND_FILE_H
#define OCT_FILE_APPEND_FILE_H

#include <octet/status.h>
#include <stddef.h>

typedef struct oct_append {
    char *path;
    int fd;
    size_t n_bytes; /* of whole records */
} oct_append;

/* Makes the file if it's missing and cuts it to its first `kept` bytes. */
oct_status oct_append_open(oct_append *file, const char *path, size_t kept, oct_error *err);
oct_status oct_append_write(oct_append *file, const void *record, size_t n_bytes, oct_error *err);
void oct_append_close(oct_append *file);

#endif
