/* Prompts from a file: see prompts.h. */
#include "infer/prompts.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "file/json_lines.h"

#define MAX_BYTES ((size_t)1 << 30)

static oct_status append(oct_prompts *p, const char *text, size_t n, oct_error *err) {
    char **grown = oct_grow_array(p->list, p->n, &p->capacity, sizeof *grown);
    if (!grown)
        return oct_fail_memory(err);
    p->list = grown;
    p->list[p->n] = oct_strndup(text, n);
    return p->list[p->n] && ++p->n ? OCT_OK : oct_fail_memory(err);
}

static oct_status take_object(void *user, const json_t *object, const char *where, oct_error *err) {
    const char *text;
    oct_status status = oct_json_line_text(object, "prompt", where, &text, err);
    return status ? status : append(user, text, strlen(text), err);
}

static oct_status read_lines(const char *path, oct_prompts *p, oct_error *err) {
    char *text = NULL;
    size_t n = 0;
    oct_status status = oct_file_read(path, MAX_BYTES, &text, &n, err);
    if (!status && memchr(text, '\0', n))
        status = oct_fail(err, OCT_INVALID,
                          "%s: expected a text of a prompt a line; it holds a NUL", path);
    for (size_t at = 0; at < n && !status;) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t length = end ? (size_t)(end - text) - at : n - at;
        status = append(p, text + at, length, err);
        at += length + 1;
    }
    oct_free(text);
    return status;
}

static bool ends_with(const char *text, const char *ending) {
    size_t n = strlen(text), m = strlen(ending);
    return n >= m && strcmp(text + n - m, ending) == 0;
}

oct_status oct_prompts_read(const char *path, oct_prompts *prompts, oct_error *err) {
    oct_status status = ends_with(path, ".jsonl")
                            ? oct_json_lines_read(path, take_object, prompts, err)
                            : read_lines(path, prompts, err);
    if (!status && prompts->n == 0)
        status = oct_fail(err, OCT_INVALID, "%s: expected prompts; it has none", path);
    return status;
}

void oct_prompts_free(oct_prompts *prompts) {
    for (size_t i = 0; i < prompts->n; i++)
        oct_free(prompts->list[i]);
    oct_free(prompts->list);
    *prompts = (oct_prompts){0};
}
