/* The nearest known name: see nearest.h. */
#include "base/nearest.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>

#include "base/strbuf.h"

#define MAX_LENGTH 127 /* of longer names the first characters are compared */

static int fold(char c) {
    return c == '-' ? '_' : tolower((unsigned char)c);
}

static size_t min3(size_t a, size_t b, size_t c) {
    size_t m = a < b ? a : b;
    return m < c ? m : c;
}

size_t oct_edit_distance(const char *a, const char *b) {
    size_t n = strnlen(a, MAX_LENGTH), m = strnlen(b, MAX_LENGTH);
    size_t rows[3][MAX_LENGTH + 1];
    size_t *before = rows[0], *last = rows[1], *row = rows[2];
    for (size_t j = 0; j <= m; j++)
        last[j] = j;
    for (size_t i = 1; i <= n; i++) {
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t cost = fold(a[i - 1]) != fold(b[j - 1]);
            row[j] = min3(last[j] + 1, row[j - 1] + 1, last[j - 1] + cost);
            if (i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) &&
                fold(a[i - 2]) == fold(b[j - 1]))
                row[j] = min3(row[j], before[j - 2] + 1, SIZE_MAX);
        }
        size_t *oldest = before;
        before = last;
        last = row;
        row = oldest;
    }
    return last[m];
}

const char *oct_nearest_name(const char *name, const char *const *names, size_t n_names) {
    const char *best = NULL;
    size_t best_distance = SIZE_MAX;
    for (size_t i = 0; i < n_names; i++) {
        size_t distance = oct_edit_distance(name, names[i]);
        if (distance < best_distance) {
            best_distance = distance;
            best = names[i];
        }
    }
    if (!best)
        return NULL;
    size_t a = strlen(name), b = strlen(best), shorter = a < b ? a : b, longer = a < b ? b : a;
    if (longer > MAX_LENGTH)
        return NULL;
    size_t limit = shorter / 3 > 1 ? shorter / 3 : 1;
    return best_distance <= limit && best_distance < longer ? best : NULL;
}

oct_status oct_fail_unknown(oct_error *err, const char *key, const char *got,
                            const char *const *names, size_t n_names) {
    oct_strbuf list = {0};
    for (size_t i = 0; i < n_names; i++)
        oct_strbuf_printf(&list, "%s%s", i ? ", " : "", names[i]);
    const char *nearest = oct_nearest_name(got, names, n_names);
    oct_status status =
        oct_fail(err, OCT_INVALID, "%s: unknown%s%s%s; expected one of %s; got \"%s\"", key,
                 nearest ? ", did you mean \"" : "", nearest ? nearest : "", nearest ? "\"" : "",
                 list.text ? list.text : "", got);
    oct_strbuf_free(&list);
    return status;
}
