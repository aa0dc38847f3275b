/* A run read back from its metrics.jsonl: see recorded_run.h. */
#include "report/recorded_run.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"

#define MAX_METRICS_BYTES ((size_t)1 << 30)

oct_status oct_series_append(oct_series *s, double x, double y) {
    if (s->n == s->capacity) {
        int64_t capacity = s->capacity ? 2 * s->capacity : 256;
        double *xs = oct_realloc_array(s->x, (size_t)capacity, sizeof *xs);
        if (!xs)
            return OCT_NO_MEMORY;
        s->x = xs;
        double *ys = oct_realloc_array(s->y, (size_t)capacity, sizeof *ys);
        if (!ys)
            return OCT_NO_MEMORY;
        s->y = ys;
        s->capacity = capacity;
    }
    s->x[s->n] = x;
    s->y[s->n++] = y;
    return OCT_OK;
}

void oct_series_free(oct_series *s) {
    oct_free(s->x);
    oct_free(s->y);
    *s = (oct_series){0};
}

void oct_run_free(oct_run *run) {
    oct_series_free(&run->loss);
    oct_series_free(&run->grad_norm);
    oct_series_free(&run->validation_loss);
    *run = (oct_run){0};
}

/* Adds the value of `key`, if the line has it; null is a number that was not finite. */
static oct_status append_value(const json_t *line, const char *key, double step, oct_series *to) {
    const json_t *value = json_object_get(line, key);
    if (!value)
        return OCT_OK;
    return oct_series_append(to, step, json_is_number(value) ? json_number_value(value) : NAN);
}

static oct_status add_line(oct_run *run, const json_t *line) {
    double step = json_number_value(json_object_get(line, "step"));
    oct_status status = append_value(line, "loss", step, &run->loss);
    if (!status)
        status = append_value(line, "grad_norm", step, &run->grad_norm);
    if (!status)
        status = append_value(line, "validation_loss", step, &run->validation_loss);
    if (run->loss.n > 1) {
        run->n_tokens += json_number_value(json_object_get(line, "n_tokens"));
        run->duration_s += json_number_value(json_object_get(line, "duration_s"));
    }
    return status;
}

oct_status oct_run_read(const char *path, oct_run *run, oct_error *err) {
    char *text = NULL;
    size_t n_bytes;
    *run = (oct_run){0};
    oct_status status = oct_file_read(path, MAX_METRICS_BYTES, &text, &n_bytes, err);
    int64_t number = 0;
    for (char *line = text, *end; !status && (end = strchr(line, '\n')); line = end + 1) {
        number++;
        json_t *object = json_loadb(line, (size_t)(end - line), 0, NULL);
        if (!json_is_integer(json_object_get(object, "step")))
            status = oct_fail(err, OCT_INVALID, "%s:%" PRId64 ": expected an object with a step",
                              path, number);
        else if (add_line(run, object) != OCT_OK)
            status = oct_fail_memory(err);
        json_decref(object);
    }
    oct_free(text);
    if (status)
        oct_run_free(run);
    return status;
}

double oct_series_tail_mean(const oct_series *s, int64_t n) {
    int64_t first = s->n > n ? s->n - n : 0;
    double sum = 0;
    for (int64_t i = first; i < s->n; i++)
        sum += s->y[i];
    return s->n ? sum / (double)(s->n - first) : NAN;
}

oct_status oct_series_smooth(const oct_series *s, int64_t window, oct_series *out) {
    *out = (oct_series){0};
    for (int64_t i = 0; i < s->n; i++) {
        const oct_series head = {.x = s->x, .y = s->y, .n = i + 1};
        if (oct_series_append(out, s->x[i], oct_series_tail_mean(&head, window)) != OCT_OK) {
            oct_series_free(out);
            return OCT_NO_MEMORY;
        }
    }
    return OCT_OK;
}

oct_status oct_series_difference(const oct_series *a, const oct_series *b, oct_series *out) {
    int64_t j = 0;
    *out = (oct_series){0};
    for (int64_t i = 0; i < a->n; i++) {
        while (j < b->n && b->x[j] < a->x[i])
            j++;
        if (j == b->n || b->x[j] != a->x[i])
            continue;
        if (oct_series_append(out, a->x[i], a->y[i] - b->y[j]) != OCT_OK) {
            oct_series_free(out);
            return OCT_NO_MEMORY;
        }
    }
    return OCT_OK;
}
