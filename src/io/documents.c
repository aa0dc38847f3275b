/* Texts as documents: see documents.h. */
#include "io/documents.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "io/json.h"
#include "io/packed.h"

#define MAX_FILES ((size_t)1 << 20)
#define MAX_LINE_BYTES ((size_t)256 << 20)

enum { HEAD_BYTES = 64 }; /* enough to tell packed, compressed and other binary files from text */

/* ---- lists of files ---- */

void oct_file_list_free(oct_file_list *list) {
    for (size_t i = 0; i < list->n; i++)
        oct_free(list->files[i].path);
    oct_free(list->files);
    *list = (oct_file_list){0};
}

static bool ends_with(const char *path, const char *const *endings) {
    size_t n = strlen(path);
    for (; *endings; endings++) {
        size_t m = strlen(*endings);
        if (n > m && strcasecmp(path + n - m, *endings) == 0)
            return true;
    }
    return false;
}

static bool is_jsonl(const char *path) {
    static const char *const endings[] = {".jsonl", ".ndjson", NULL};
    return ends_with(path, endings);
}

static bool is_text(const char *path) {
    static const char *const endings[] = {".txt", ".text", NULL};
    return ends_with(path, endings);
}

/* Rows and columns: as a text their names, numbers and separators would be trained on. */
static bool is_table(const char *path) {
    static const char *const endings[] = {".csv", ".tsv", ".parquet", ".arrow", NULL};
    return ends_with(path, endings);
}

/* The first bytes of a file, zeros where it's shorter. */
static oct_status read_head(const char *path, uint8_t head[HEAD_BYTES], struct stat *st,
                            oct_error *err) {
    memset(head, 0, HEAD_BYTES);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return oct_fail(err, oct_status_of_errno(errno), "%s: can\'t be read: %s", path,
                        strerror(errno));
    oct_status status = OCT_OK;
    if (fstat(fd, st) != 0 || !S_ISREG(st->st_mode))
        status =
            oct_fail(err, OCT_INVALID, "%s: wrong kind; expected a regular file or a folder", path);
    else if (pread(fd, head, HEAD_BYTES, 0) < 0)
        status = oct_fail(err, oct_status_of_errno(errno), "%s: can\'t be read: %s", path,
                          strerror(errno));
    close(fd);
    return status;
}

static bool is_compressed(const uint8_t head[HEAD_BYTES]) {
    static const uint8_t magics[][4] = {
        {0x1f, 0x8b}, {0x28, 0xb5, 0x2f, 0xfd}, {0xfd, '7', 'z', 'X'}, {'P', 'K', 3, 4}};
    for (size_t i = 0; i < sizeof magics / sizeof *magics; i++)
        if (memcmp(head, magics[i], magics[i][2] ? 4 : 2) == 0)
            return true;
    return false;
}

static oct_status append_file(oct_file_list *list, oct_text_file file, oct_error *err) {
    if (list->n == MAX_FILES)
        return oct_fail(err, OCT_INVALID, "%s: too many files; expected at most %zu", file.path,
                        MAX_FILES);
    oct_text_file *grown = oct_grow_array(list->files, list->n, &list->capacity, sizeof *grown);
    if (!grown)
        return oct_fail_memory(err);
    list->files = grown;
    file.path = oct_strdup(file.path);
    if (!file.path)
        return oct_fail_memory(err);
    list->files[list->n++] = file;
    list->n_bytes += file.n_bytes;
    return OCT_OK;
}

/* Whether a file that isn't a data set is an error or left out. */
typedef enum other_files { OTHERS_REFUSED, OTHERS_LEFT_OUT } other_files;

static oct_status add_file(oct_file_list *list, const char *path, other_files others,
                           oct_error *err) {
    uint8_t head[HEAD_BYTES];
    struct stat st = {0};
    oct_status status = read_head(path, head, &st, err);
    if (status)
        return status;
    bool packed = memcmp(head, OCT_PACKED_MAGIC, 8) == 0;
    if (others == OTHERS_LEFT_OUT && !packed && !is_jsonl(path) && !is_text(path))
        return OCT_OK;
    if (!packed && is_table(path))
        return oct_fail(err, OCT_INVALID,
                        "%s: a table; expected plain text, a packed file, or JSONL (.jsonl) with "
                        "{\"text\": ...} a line",
                        path);
    if (is_compressed(head))
        return oct_fail(err, OCT_INVALID,
                        "%s: a compressed file; expected plain text, JSONL or a packed file", path);
    size_t n_head = st.st_size < HEAD_BYTES ? (size_t)st.st_size : HEAD_BYTES;
    if (!packed && memchr(head, 0, n_head))
        return oct_fail(err, OCT_INVALID,
                        "%s: a binary file; expected text in UTF-8, JSONL or a packed file; got a "
                        "NUL byte at its start",
                        path);
    oct_text_file file = {(char *)path,
                          packed           ? OCT_FILE_PACKED
                          : is_jsonl(path) ? OCT_FILE_JSONL
                                           : OCT_FILE_TEXT,
                          (int64_t)st.st_size,
                          (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec};
    return append_file(list, file, err);
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The folder's visible regular files, sorted. */
static oct_status read_names(const char *path, char ***names, size_t *n_names, oct_error *err) {
    DIR *folder = opendir(path);
    if (!folder)
        return oct_fail(err, oct_status_of_errno(errno), "%s: can\'t be read: %s", path,
                        strerror(errno));
    size_t capacity = 0;
    oct_status status = OCT_OK;
    for (struct dirent *entry; !status && (entry = readdir(folder));) {
        if (entry->d_name[0] == '.')
            continue;
        char **grown = *n_names < 2 * MAX_FILES
                           ? oct_grow_array(*names, *n_names, &capacity, sizeof *grown)
                           : NULL;
        if (!grown) {
            status = oct_fail_memory(err);
            break;
        }
        *names = grown;
        char *name = oct_path_join(path, entry->d_name);
        if (!name)
            status = oct_fail_memory(err);
        else if (oct_path_is_folder(name))
            oct_free(name);
        else
            (*names)[(*n_names)++] = name;
    }
    closedir(folder);
    if (*n_names)
        qsort(*names, *n_names, sizeof **names, by_name);
    return status;
}

static oct_status add_folder(oct_file_list *list, const char *path, oct_error *err) {
    char **names = NULL;
    size_t n_names = 0, before = list->n;
    oct_status status = read_names(path, &names, &n_names, err);
    for (size_t i = 0; i < n_names && !status; i++)
        status = add_file(list, names[i], OTHERS_LEFT_OUT, err);
    for (size_t i = 0; i < n_names; i++)
        oct_free(names[i]);
    oct_free(names);
    if (!status && list->n == before)
        return oct_fail(err, OCT_INVALID,
                        "%s: nothing to read in this folder; expected .txt, .jsonl or packed token "
                        "files; got %zu other files",
                        path, n_names);
    return status;
}

oct_status oct_file_list_add(oct_file_list *list, const char *path, oct_error *err) {
    return oct_path_is_folder(path) ? add_folder(list, path, err)
                                    : add_file(list, path, OTHERS_REFUSED, err);
}

const char *oct_file_list_first_packed(const oct_file_list *list) {
    for (size_t i = 0; i < list->n; i++)
        if (list->files[i].kind == OCT_FILE_PACKED)
            return list->files[i].path;
    return NULL;
}

const char *oct_file_list_first_text(const oct_file_list *list) {
    for (size_t i = 0; i < list->n; i++)
        if (list->files[i].kind != OCT_FILE_PACKED)
            return list->files[i].path;
    return NULL;
}

/* ---- documents ---- */

static bool is_blank(const char *line, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!strchr(" \t\r", line[i]) || !line[i])
            return false;
    return true;
}

static oct_status walk_line(const char *path, int64_t number, const char *line, size_t n,
                            oct_document_sink sink, void *user, oct_error *err) {
    if (n > MAX_LINE_BYTES)
        return oct_fail(err, OCT_INVALID,
                        "%s:%lld: line too long; expected at most %zu bytes; "
                        "got %zu",
                        path, (long long)number, MAX_LINE_BYTES, n);
    json_error_t error;
    oct_strbuf buffer = {0};
    oct_json_relax(line, n, &buffer, &line, &n);
    json_t *root =
        buffer.failed ? NULL : json_loadb(line, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    bool failed = buffer.failed;
    oct_strbuf_free(&buffer);
    if (failed)
        return oct_fail_memory(err);
    if (!root)
        return oct_fail(err, OCT_INVALID, "%s:%lld: not valid JSON: %s", path, (long long)number,
                        oct_show(error.text).text);
    const json_t *text = json_object_get(root, "text");
    oct_status status = OCT_OK;
    if (!json_is_string(text))
        status = oct_fail(err, OCT_INVALID,
                          "%s:%lld: text: %s; expected an object whose \"text\" is a string", path,
                          (long long)number, text ? "wrong type" : "missing");
    else if (json_string_length(text))
        status = sink(user, json_string_value(text), json_string_length(text), err);
    json_decref(root);
    return status;
}

oct_status oct_documents_walk(const oct_text_file *file, oct_document_sink sink, void *user,
                              oct_error *err) {
    oct_mapping mapping;
    oct_status status = oct_file_map(file->path, &mapping, err);
    if (status)
        return status;
    const char *text = mapping.data;
    size_t n = mapping.n_bytes;
    if (file->kind == OCT_FILE_JSONL) {
        int64_t number = 1;
        for (size_t at = 0; at < n && !status; number++) {
            const char *end = memchr(text + at, '\n', n - at);
            size_t length = end ? (size_t)(end - text) - at : n - at;
            if (!is_blank(text + at, length))
                status = walk_line(file->path, number, text + at, length, sink, user, err);
            at += length + 1;
        }
    } else if (n) {
        status = sink(user, text, n, err);
    }
    oct_file_unmap(&mapping);
    return status;
}
