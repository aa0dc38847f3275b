/* A file that is written from front to back and appears whole or not at all: the bytes go to a
 * temporary name beside it, commit fsyncs and renames. Size and XXH3 are counted on the way. */
#ifndef OCT_FILE_FILE_SINK_H
#define OCT_FILE_FILE_SINK_H

#include <octet/status.h>
#include <stddef.h>
#include <stdint.h>

/* What a finished file is: its size and the XXH3 (64 bit) of all of its bytes. */
typedef struct oct_file_receipt {
    size_t n_bytes;
    uint64_t xxh3;
} oct_file_receipt;

typedef struct oct_file_sink oct_file_sink;

oct_status oct_file_sink_open(const char *path, oct_file_sink **sink, oct_error *err);
/* After a failure only close makes sense. */
oct_status oct_file_sink_write(oct_file_sink *sink, const void *bytes, size_t n_bytes,
                               oct_error *err);
/* Flush, fsync, rename, fsync of the folder. `receipt` may be NULL. */
oct_status oct_file_sink_commit(oct_file_sink *sink, oct_file_receipt *receipt, oct_error *err);
/* Frees; an uncommitted file vanishes. NULL is fine. */
void oct_file_sink_close(oct_file_sink *sink);

/* All of it in one call. */
oct_status oct_file_sink_put(const char *path, const void *bytes, size_t n_bytes,
                             oct_file_receipt *receipt, oct_error *err);

#endif
