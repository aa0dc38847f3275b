/* metrics.jsonl: see metrics_file.h. */
#include "report/metrics_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "file/append_file.h"
#include "file/json.h"

struct oct_metrics_file {
    oct_append file;
    oct_strbuf line; /* kept, so that a step allocates nothing once it has grown */
};

/* The step of a line, or -1 when it isn't an object with one. A refused allocation is a failure,
 * not a damaged line. */
static oct_status step_of(const char *line, size_t n_bytes, int64_t *number, oct_error *err) {
    json_t *object = NULL;
    *number = -1;
    if (oct_json_parse(line, n_bytes, "line", &object, NULL) == OCT_NO_MEMORY)
        return oct_fail_memory(err);
    const json_t *step = json_object_get(object, "step");
    if (json_is_integer(step))
        *number = json_integer_value(step);
    json_decref(object);
    return OCT_OK;
}

/* Whether the line, an object of `step`, has all numbers. */
static oct_status take_numbers(const char *line, size_t n_bytes, int64_t step,
                               const char *const *names, size_t n, double *values, bool *found,
                               oct_error *err) {
    json_t *object = NULL;
    if (oct_json_parse(line, n_bytes, "line", &object, NULL) == OCT_NO_MEMORY)
        return oct_fail_memory(err);
    const json_t *number = json_object_get(object, "step");
    *found = json_is_integer(number) && json_integer_value(number) == step;
    for (size_t i = 0; i < n && *found; i++) {
        const json_t *value = json_object_get(object, names[i]);
        *found = json_is_number(value);
        values[i] = json_number_value(value);
    }
    json_decref(object);
    return OCT_OK;
}

oct_status oct_metrics_file_find(const char *path, int64_t step, const char *const *names, size_t n,
                                 double *values, bool *found, oct_error *err) {
    oct_mapping file;
    *found = false;
    if (!oct_path_exists(path))
        return OCT_OK;
    oct_status status = oct_file_map(path, &file, err);
    if (status)
        return status;
    const char *line = file.data, *bound = line + file.n_bytes, *end;
    while (line < bound && !status && !*found &&
           (end = memchr(line, '\n', (size_t)(bound - line)))) {
        status = take_numbers(line, (size_t)(end - line), step, names, n, values, found, err);
        line = end + 1;
    }
    oct_file_unmap(&file);
    return status;
}

/* How much of a first line that a crash cut off would be ours. */
static bool is_our_start(const char *line, size_t n_bytes) {
    static const char opening[] = "{\"step\": ";
    return memcmp(line, opening, n_bytes < sizeof opening - 1 ? n_bytes : sizeof opening - 1) == 0;
}

/* How many bytes of `old` stay: whole lines up to the first of a later step. */
static oct_status keep_lines(const char *path, oct_mapping old, int64_t last_step, size_t *kept,
                             oct_error *err) {
    const char *text = old.data;
    for (int64_t line = 1; *kept < old.n_bytes; line++) {
        const char *start = text + *kept, *end = memchr(start, '\n', old.n_bytes - *kept);
        size_t n_bytes = end ? (size_t)(end - start) : old.n_bytes - *kept;
        int64_t step = -1;
        oct_status status = end ? step_of(start, n_bytes, &step, err) : OCT_OK;
        if (status)
            return status;
        if (line == 1 && step < 0 && (end || !is_our_start(start, n_bytes)))
            return oct_fail(err, OCT_INVALID,
                            "%s:1: expected an object with a step, as metrics have; the file is "
                            "left as it is",
                            path);
        if (step < 0 && end)
            oct_log_warning("%s:%" PRId64 ": damaged; it and the lines behind it are dropped", path,
                            line);
        if (step < 0 || step > last_step)
            return OCT_OK;
        *kept += n_bytes + 1;
    }
    return OCT_OK;
}

/* `path` with -K in front of its ending, for the first K that isn't there (oct_free). */
static oct_status name_aside(const char *path, char **aside, oct_error *err) {
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
    int n = (int)(dot ? (size_t)(dot - path) : strlen(path));
    struct stat st;
    for (int k = 1;; k++) {
        oct_strbuf name = {0};
        oct_strbuf_printf(&name, "%.*s-%d%s", n, path, k, dot ? dot : "");
        if (name.failed) {
            oct_strbuf_free(&name);
            return oct_fail_memory(err);
        }
        if (lstat(name.text, &st) != 0 && errno == ENOENT) {
            *aside = name.text;
            return OCT_OK;
        }
        bool taken = lstat(name.text, &st) == 0;
        oct_strbuf_free(&name);
        if (!taken)
            return oct_fail(err, OCT_FAILED, "%s: can't be kept: %s", path, strerror(errno));
    }
}

/* All of `old`, of which `kept` bytes go on being the file's own. */
static oct_status keep_aside(const char *path, oct_mapping old, size_t kept, oct_error *err) {
    char *aside = NULL;
    oct_status status = name_aside(path, &aside, err);
    if (!status && kept > 0)
        status = oct_file_write(aside, old.data, old.n_bytes, err);
    else if (!status && rename(path, aside) != 0)
        status = oct_fail(err, OCT_FAILED, "%s: can't be renamed to %s: %s", path, aside,
                          strerror(errno));
    if (!status)
        oct_log_info("The metrics that were there are kept: %s was %s to %s", path,
                     kept > 0 ? "copied" : "moved", aside);
    oct_free(aside);
    return status;
}

static oct_status keep_bytes(const char *path, int64_t last_step, oct_metrics_dropped dropped,
                             size_t *kept, oct_error *err) {
    oct_mapping old;
    *kept = 0;
    if (!oct_path_exists(path))
        return OCT_OK;
    oct_status status = oct_file_map(path, &old, err);
    if (!status)
        status = keep_lines(path, old, last_step, kept, err);
    if (!status && dropped == OCT_METRICS_KEEP && *kept < old.n_bytes)
        status = keep_aside(path, old, *kept, err);
    oct_file_unmap(&old);
    return status;
}

oct_status oct_metrics_file_open(const char *path, int64_t last_step, oct_metrics_dropped dropped,
                                 oct_metrics_file **file, oct_error *err) {
    size_t kept;
    oct_status status = keep_bytes(path, last_step, dropped, &kept, err);
    if (status)
        return status;
    oct_metrics_file *f = oct_calloc_array(1, sizeof *f);
    if (!f)
        return oct_fail_memory(err);
    status = oct_append_open(&f->file, path, kept, err);
    if (status)
        oct_free(f);
    else
        *file = f;
    return status;
}

oct_status oct_metrics_file_append(oct_metrics_file *f, int64_t step, const oct_metric *metrics,
                                   size_t n_metrics, oct_error *err) {
    oct_strbuf *line = &f->line;
    line->length = 0;
    oct_strbuf_printf(line, "{\"step\": %" PRId64, step);
    for (size_t i = 0; i < n_metrics; i++) {
        oct_strbuf_puts(line, ", ");
        oct_json_put_string(line, metrics[i].name);
        oct_strbuf_puts(line, ": ");
        if (metrics[i].kind == OCT_METRIC_REAL)
            oct_json_put_real(line, metrics[i].value.real);
        else if (metrics[i].kind == OCT_METRIC_INTEGER)
            oct_strbuf_printf(line, "%" PRId64, metrics[i].value.integer);
        else if (metrics[i].kind == OCT_METRIC_JSON)
            oct_strbuf_puts(line, metrics[i].value.text);
        else
            oct_json_put_string(line, metrics[i].value.text);
    }
    oct_strbuf_puts(line, "}\n");
    if (line->failed) {
        oct_strbuf_free(line);
        return oct_fail_memory(err);
    }
    return oct_append_write(&f->file, line->text, line->length, err);
}

void oct_metrics_file_close(oct_metrics_file *f) {
    if (!f)
        return;
    oct_append_close(&f->file);
    oct_strbuf_free(&f->line);
    oct_free(f);
}
