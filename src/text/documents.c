/* Texts as documents: see documents.h. */
#include "text/documents.h"

#include <inttypes.h>
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
#include "base/count.h"
#include "base/fs.h"
#include "base/strbuf.h"
#include "file/json.h"

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

static bool is_json(const char *path) {
    static const char *const endings[] = {".json", NULL};
    return ends_with(path, endings);
}

static bool is_text(const char *path) {
    static const char *const endings[] = {".txt", ".text", NULL};
    return ends_with(path, endings);
}

/* Files with a structure: as a text their names, numbers and separators would be trained on. */
typedef struct structured {
    const char *ending, *kind;
    const char *reader; /* in Python: the data set in the file sys.argv[1]; NULL: nothing simple */
    const char *also;   /* what else can be done */
} structured;

#define OR_AS_TEXT "; `octet data pack --as text` takes it with its separators"
#define PANDAS(call) "import sys, pandas; pandas." call

static const structured structures[] = {
    {".parquet", "a Parquet file", PANDAS("read_parquet(sys.argv[1])")},
    {".csv", "a table", PANDAS("read_csv(sys.argv[1])"), OR_AS_TEXT},
    {".tsv", "a table", PANDAS("read_csv(sys.argv[1], sep=\"\\t\")"), OR_AS_TEXT},
    {".feather", "a Feather file", PANDAS("read_feather(sys.argv[1])")},
    {".orc", "an ORC file", PANDAS("read_orc(sys.argv[1])")},
    {".xlsx", "a spreadsheet", PANDAS("read_excel(sys.argv[1])")},
    {".xls", "a spreadsheet", PANDAS("read_excel(sys.argv[1])")},
    {".ods", "a spreadsheet", PANDAS("read_excel(sys.argv[1])")},
    {".arrow", "an Arrow file",
     "import sys, datasets; datasets.Dataset.from_file(sys.argv[1]).to_pandas()"},
    {".avro", "an Avro file", NULL},
    {".sqlite", "a database", NULL},
    {".db", "a database", NULL},
    {".pkl", "a pickle", NULL},
    {".pickle", "a pickle", NULL},
};

/* Parquet is known by its content too, which may hold no NUL at its start. */
static const structured *find_structure(const char *path, const uint8_t head[HEAD_BYTES]) {
    if (memcmp(head, "PAR1\x15", 5) == 0)
        return &structures[0];
    for (size_t i = 0; i < OCT_COUNT(structures); i++)
        if (ends_with(path, (const char *const[]){structures[i].ending, NULL}))
            return &structures[i];
    return NULL;
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
    for (size_t i = 0; i < OCT_COUNT(magics); i++)
        if (memcmp(head, magics[i], magics[i][2] ? 4 : 2) == 0)
            return true;
    return false;
}

/* "PATH FILE.jsonl" as a shell takes them. */
static void put_paths(oct_strbuf *to, const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    oct_strbuf target = {0};
    oct_strbuf_append(&target, name, dot && dot > name ? (size_t)(dot - name) : strlen(name));
    oct_strbuf_puts(&target, ".jsonl");
    oct_strbuf_put_shell_word(to, path);
    oct_strbuf_puts(to, " ");
    oct_strbuf_put_shell_word(to, target.text ? target.text : "");
    to->failed |= target.failed;
    oct_strbuf_free(&target);
}

/* A file that isn't documents yet, and the one command that makes JSONL of it: Python that reads
 * and then writes. */
static oct_status fail_structured(const char *path, const structured *s, const char *writer,
                                  oct_error *err) {
    oct_strbuf command = {0};
    if (s->reader) {
        oct_strbuf_printf(&command, "; `python3 -c '%s%s' ", s->reader, writer);
        put_paths(&command, path);
        oct_strbuf_puts(&command, "` makes it");
    }
    oct_status status =
        command.failed
            ? oct_fail_memory(err)
            : oct_fail(err, OCT_INVALID,
                       "%s: %s; expected plain text, a packed file, or JSONL (.jsonl) with "
                       "{\"text\": ...} a line%s%s",
                       path, s->kind, command.text ? command.text : "", s->also ? s->also : "");
    oct_strbuf_free(&command);
    return status;
}

/* One array: what pandas and the like write where they aren't asked for lines. */
static oct_status fail_array(const char *path, oct_error *err) {
    const structured array = {.kind = "one JSON array",
                              .reader = "import sys, json; a = json.load(open(sys.argv[1]))"};
    return fail_structured(
        path, &array, "; open(sys.argv[2], \"w\").writelines(json.dumps(x) + \"\\n\" for x in a)",
        err);
}

/* The first byte behind a byte order mark and white space; 0: none in the head. */
static uint8_t first_byte(const uint8_t head[HEAD_BYTES]) {
    size_t i = memcmp(head, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (i < HEAD_BYTES && head[i] && strchr(" \t\r\n", head[i]))
        i++;
    return i < HEAD_BYTES ? head[i] : 0;
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

static oct_file_kind kind_of(const char *path, oct_read_as as) {
    if (as != OCT_READ_BY_NAME)
        return as == OCT_READ_AS_JSONL ? OCT_FILE_JSONL : OCT_FILE_TEXT;
    return is_jsonl(path) || is_json(path) ? OCT_FILE_JSONL : OCT_FILE_TEXT;
}

/* Whether the file's bytes can be documents as `as` says. */
static oct_status check_content(const char *path, const uint8_t head[HEAD_BYTES], size_t n_head,
                                oct_read_as as, oct_error *err) {
    const structured *found = find_structure(path, head);
    if (as == OCT_READ_BY_NAME && found)
        return fail_structured(path, found, ".to_json(sys.argv[2], orient=\"records\", lines=True)",
                               err);
    if (is_compressed(head))
        return oct_fail(err, OCT_INVALID,
                        "%s: a compressed file; expected plain text, JSONL or a packed file: "
                        "unpack it first",
                        path);
    if (memchr(head, 0, n_head))
        return oct_fail(err, OCT_INVALID,
                        "%s: a binary file; expected text in UTF-8, JSONL or a packed file; got a "
                        "NUL byte at its start",
                        path);
    return as == OCT_READ_BY_NAME && is_json(path) && first_byte(head) == '['
               ? fail_array(path, err)
               : OCT_OK;
}

static oct_status add_file(oct_file_list *list, const char *path, oct_read_as as,
                           other_files others, oct_error *err) {
    uint8_t head[HEAD_BYTES];
    struct stat st = {0};
    oct_status status = read_head(path, head, &st, err);
    if (status)
        return status;
    bool packed = memcmp(head, OCT_PACKED_MAGIC, 8) == 0;
    if (others == OTHERS_LEFT_OUT && as == OCT_READ_BY_NAME && !packed && !is_jsonl(path) &&
        !is_text(path))
        return OCT_OK;
    size_t n_head = st.st_size < HEAD_BYTES ? (size_t)st.st_size : HEAD_BYTES;
    if (!packed)
        status = check_content(path, head, n_head, as, err);
    if (status)
        return status;
    oct_text_file file = {(char *)path, packed ? OCT_FILE_PACKED : kind_of(path, as),
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

static oct_status add_folder(oct_file_list *list, const char *path, oct_read_as as,
                             oct_error *err) {
    char **names = NULL;
    size_t n_names = 0, before = list->n;
    oct_status status = read_names(path, &names, &n_names, err);
    for (size_t i = 0; i < n_names && !status; i++)
        status = add_file(list, names[i], as, OTHERS_LEFT_OUT, err);
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

oct_status oct_file_list_add(oct_file_list *list, const char *path, oct_read_as as,
                             oct_error *err) {
    return oct_path_is_folder(path) ? add_folder(list, path, as, err)
                                    : add_file(list, path, as, OTHERS_REFUSED, err);
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
                        "%s:%" PRId64 ": line too long; expected at most %zu bytes; got %zu", path,
                        number, MAX_LINE_BYTES, n);
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
        return oct_fail(err, OCT_INVALID,
                        "%s:%" PRId64
                        ": not valid JSON: %s; expected JSON Lines, a whole object a line",
                        path, number, oct_show(error.text).text);
    const json_t *text = json_object_get(root, "text");
    oct_status status = OCT_OK;
    if (!json_is_string(text))
        status = oct_fail(err, OCT_INVALID,
                          "%s:%" PRId64 ": text: %s; expected an object whose \"text\" is a string",
                          path, number, text ? "wrong type" : "missing");
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
