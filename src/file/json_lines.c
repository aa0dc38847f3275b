/* Files of one JSON object a line: see json_lines.h. */
#include "file/json_lines.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/strbuf.h"

#define MAX_BYTES ((size_t)1 << 30)

static oct_status read_line(const char *line, size_t n, const char *where, oct_json_line_sink sink,
                            void *user, oct_error *err) {
    json_t *object = NULL;
    oct_error cause = {0};
    if (strspn(line, " \t\r") >= n)
        return OCT_OK;
    oct_status status = oct_json_parse(line, n, "line", &object, &cause);
    if (status)
        return oct_fail(err, status, "%s: %s", where, cause.message);
    status = sink(user, object, where, err);
    json_decref(object);
    return status;
}

oct_status oct_json_lines_read(const char *path, oct_json_line_sink sink, void *user,
                               oct_error *err) {
    char *text = NULL;
    size_t n = 0;
    long number = 1;
    oct_status status = oct_file_read(path, MAX_BYTES, &text, &n, err);
    for (size_t at = 0; at < n && !status; number++) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t length = end ? (size_t)(end - text) - at : n - at;
        oct_strbuf where = {0};
        oct_strbuf_printf(&where, "%s:%ld", path, number);
        if (end)
            text[at + length] = '\0';
        status = where.failed ? oct_fail_memory(err)
                              : read_line(text + at, length, where.text, sink, user, err);
        oct_strbuf_free(&where);
        at += length + 1;
    }
    oct_free(text);
    return status;
}

oct_status oct_json_line_text(const json_t *object, const char *name, const char *where,
                              const char **text, oct_error *err) {
    const json_t *value = json_object_get(object, name);
    *text = json_string_value(value);
    if (*text)
        return OCT_OK;
    return oct_fail(err, OCT_INVALID, "%s: %s: expected a string; got %s", where, name,
                    oct_json_kind(value));
}
