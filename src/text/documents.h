/* Text files, JSONL files and folders of them as a sequence of documents; which kinds of files
 * there are is said in dataset.h.
 *
 * Invariant: the order of documents depends on the paths, the files' names and their contents only.
 */
#ifndef OCT_TEXT_DOCUMENTS_H
#define OCT_TEXT_DOCUMENTS_H

#include <octet/status.h>
#include <stddef.h>
#include <stdint.h>

/* What a packed token file begins with (data/packed_file.h), which texts lie beside. */
#define OCT_PACKED_MAGIC "OCTOKENS"

typedef enum oct_file_kind { OCT_FILE_TEXT, OCT_FILE_JSONL, OCT_FILE_PACKED } oct_file_kind;

/* How files are read: by what their names say, or all as what their user says. */
typedef enum oct_read_as { OCT_READ_BY_NAME, OCT_READ_AS_TEXT, OCT_READ_AS_JSONL } oct_read_as;

typedef struct oct_text_file {
    char *path;
    oct_file_kind kind;
    int64_t n_bytes;
    int64_t mtime_ns; /* since the epoch */
} oct_text_file;

/* Zero-initialise, end with oct_file_list_free. */
typedef struct oct_file_list {
    oct_text_file *files;
    size_t n, capacity;
    int64_t n_bytes; /* of all together */
} oct_file_list;

/* Appends the file, or the files of the folder, sorted by name. With `as` given, these are all its
 * visible files. OCT_INVALID: nothing there that can be read, an empty folder, a compressed, binary
 * or (unless `as` insists) structured file; the message says what makes JSONL of it. */
oct_status oct_file_list_add(oct_file_list *list, const char *path, oct_read_as as, oct_error *err);
void oct_file_list_free(oct_file_list *list);
/* The path of the first file whose kind is, or isn't, OCT_FILE_PACKED; NULL if there is none. */
const char *oct_file_list_first_packed(const oct_file_list *list);
const char *oct_file_list_first_text(const oct_file_list *list);

/* `text` is only lent. A status other than OCT_OK ends the walk. */
typedef oct_status (*oct_document_sink)(void *user, const char *text, size_t n_bytes,
                                        oct_error *err);
/* Walks the documents of a text or JSONL file; empty ones are left out. OCT_INVALID names FILE:LINE
 * of a bad line. */
oct_status oct_documents_walk(const oct_text_file *file, oct_document_sink sink, void *user,
                              oct_error *err);

#endif
