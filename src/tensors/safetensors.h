/* The safetensors file: an 8-byte little-endian header length, a JSON header (name -> dtype, shape,
 * data_offsets; "__metadata__" holds strings), then the tensors' bytes, row-major, little-endian,
 * side by side without gaps. Source of the format: the README of huggingface/safetensors.
 *
 * Invariant: a file that opened was checked whole. Header length (at most 100 MB and inside the
 * file), JSON, duplicate names, dtypes, shapes, the product of the dimensions against the byte
 * range, overlaps, gaps and the end of the file all hold, so no later access can leave the mapping.
 * What can't be checked: a file that another process truncates while it is mapped ends this one
 * with SIGBUS; checkpoints are replaced by rename, never in place, for that reason. */
#ifndef OCT_TENSORS_SAFETENSORS_H
#define OCT_TENSORS_SAFETENSORS_H

#include <octet/status.h>
#include <octet/tensor.h>
#include <stddef.h>
#include <stdint.h>

#include "file/file_sink.h"

#define OCT_SAFETENSORS_MAX_DIMS 8 /* of what is written; any number is read */

/* ---- reading ---- */

typedef struct oct_safetensors oct_safetensors;

/* One tensor of an open file; all pointers live until the file is closed. */
typedef struct oct_safetensors_tensor {
    const char *name;
    const char *dtype_name; /* as in the file: "F32", "F8_E4M3", ... */
    oct_dtype dtype;        /* OCT_N_DTYPES for a dtype that is listed but can't be read */
    int n_dims;
    const int64_t *shape; /* n_dims sizes */
    const void *data;     /* not aligned in files of careless writers: copy it, don't cast it */
    size_t n_bytes;
} oct_safetensors_tensor;

/* Maps the file read-only and checks it. A file that is missing, unreadable or wrong is
 * OCT_INVALID, with path, tensor, expected and got in *err. `*file` is set on success only. */
oct_status oct_safetensors_open(const char *path, oct_safetensors **file, oct_error *err);

/* The same over `n_bytes` bytes of memory, which stay the caller's and must outlive the file;
 * `name` stands for the path in messages. */
oct_status oct_safetensors_parse(const void *bytes, size_t n_bytes, const char *name,
                                 oct_safetensors **file, oct_error *err);

void oct_safetensors_close(oct_safetensors *file); /* NULL is fine */

/* All of these only read: many threads may share one open file. */
int64_t oct_safetensors_count(const oct_safetensors *file);
/* index in 0 .. count-1, in the order of the data in the file */
const oct_safetensors_tensor *oct_safetensors_get(const oct_safetensors *file, int64_t index);
/* NULL when there is no such tensor. O(log n). */
const oct_safetensors_tensor *oct_safetensors_find(const oct_safetensors *file, const char *name);
/* A value of "__metadata__", NULL when the key is missing. */
const char *oct_safetensors_metadata(const oct_safetensors *file, const char *key);
const char *oct_safetensors_path(const oct_safetensors *file);

/* ---- dtypes ---- */

/* "F32", "F8_E4M3", ...; NULL for OCT_HIF8, which the format doesn't know (store it as OCT_U8). */
const char *oct_safetensors_dtype_name(oct_dtype dtype);
/* OCT_N_DTYPES for a name that octet can't read. */
oct_dtype oct_safetensors_dtype(const char *dtype_name);
/* Bytes of an element; 0 for a dtype that the format doesn't know. */
size_t oct_safetensors_dtype_bytes(oct_dtype dtype);

/* ---- writing ---- */

/* Where the bytes of a tensor without `data` come from: called once at commit, it hands over all of
 * them, in order, in pieces of any size, through oct_safetensors_write_piece. So a sharded tensor
 * is gathered piece by piece and never whole. Its failure fails the commit. */
typedef struct oct_safetensors_stream oct_safetensors_stream;
typedef oct_status (*oct_safetensors_source)(void *context, oct_safetensors_stream *to,
                                             oct_error *err);
oct_status oct_safetensors_write_piece(oct_safetensors_stream *to, const void *bytes,
                                       size_t n_bytes, oct_error *err);

/* A tensor to write. Name and data are borrowed until commit. */
typedef struct oct_safetensors_item {
    const char *name;
    oct_dtype dtype;
    int n_dims; /* 0 .. OCT_SAFETENSORS_MAX_DIMS; 0 is a scalar */
    int64_t shape[OCT_SAFETENSORS_MAX_DIMS];
    const void *data;              /* row-major; NULL: ask `source` */
    oct_safetensors_source source; /* used only when data is NULL and the tensor isn't empty */
    void *context;
} oct_safetensors_item;

/* The item's bytes, after the checks of oct_safetensors_writer_add. */
oct_status oct_safetensors_item_bytes(const oct_safetensors_item *item, size_t *n_bytes,
                                      oct_error *err);
/* An item that shows the memory of `tensor`. */
oct_safetensors_item oct_safetensors_item_of(const char *name, const oct_tensor *tensor);

typedef struct oct_safetensors_writer oct_safetensors_writer;

/* Nothing touches the disk before commit. One thread at a time. */
oct_status oct_safetensors_writer_create(const char *path, oct_safetensors_writer **writer,
                                         oct_error *err);
/* Keys must differ; both strings are copied. */
oct_status oct_safetensors_writer_set_metadata(oct_safetensors_writer *writer, const char *key,
                                               const char *value, oct_error *err);
/* Refuses (OCT_INVALID) an empty name, "__metadata__", a name that isn't UTF-8, a dtype or shape
 * that the format can't hold; commit refuses a name that was added twice. The item is copied, what
 * it points to is borrowed. */
oct_status oct_safetensors_writer_add(oct_safetensors_writer *writer,
                                      const oct_safetensors_item *item, oct_error *err);
/* Writes under a temporary name beside `path`, fsyncs, renames, fsyncs the folder. Tensors go out
 * widest element first, then in the order of add, so that each is aligned to its element. On
 * failure (OCT_FAILED: disk full, ...) the temporary file is gone and an older `path` is as it was.
 * `receipt` may be NULL. Commit at most once. */
oct_status oct_safetensors_writer_commit(oct_safetensors_writer *writer, oct_file_receipt *receipt,
                                         oct_error *err);
/* Frees the writer, committed or not. NULL is fine. */
void oct_safetensors_writer_destroy(oct_safetensors_writer *writer);

#endif
