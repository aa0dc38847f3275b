/* Tensors listed for a message: see tensor_list.h. */
#include "job/tensor_list.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "file/json.h"

enum { MAX_DIGITS = 9 };

/* A number is a part of a name between dots. */
static size_t number_at(const char *name, size_t i) {
    size_t n = strspn(name + i, "0123456789");
    bool is_part = (i == 0 || name[i - 1] == '.') && (name[i + n] == '.' || !name[i + n]);
    return is_part && n <= MAX_DIGITS ? n : 0;
}

static oct_tensor_group make_group(const char *name, const char *about) {
    const oct_shown shown = oct_show(name);
    oct_tensor_group g = {.n = 1};
    size_t used = 0;
    for (size_t i = 0; shown.text[i] && used + 1 < sizeof g.pattern;) {
        size_t n = g.n_numbers < OCT_TENSOR_LIST_NUMBERS ? number_at(shown.text, i) : 0;
        if (n == 0) {
            g.pattern[used++] = shown.text[i++];
            continue;
        }
        g.low[g.n_numbers] = g.high[g.n_numbers] = strtoll(shown.text + i, NULL, 10);
        g.n_numbers++;
        g.pattern[used++] = '*';
        i += n;
    }
    snprintf(g.about, sizeof g.about, "%s", about);
    return g;
}

static bool join(oct_tensor_group *g, const oct_tensor_group *one) {
    if (g->n_numbers != one->n_numbers || strcmp(g->pattern, one->pattern) != 0 ||
        strcmp(g->about, one->about) != 0)
        return false;
    for (int i = 0; i < g->n_numbers; i++) {
        g->low[i] = one->low[i] < g->low[i] ? one->low[i] : g->low[i];
        g->high[i] = one->high[i] > g->high[i] ? one->high[i] : g->high[i];
    }
    g->n++;
    return true;
}

void oct_tensor_list_add(oct_tensor_list *list, const char *name, const char *about) {
    const oct_tensor_group one = make_group(name, about);
    for (int64_t i = 0; i < list->n_groups; i++)
        if (join(&list->groups[i], &one))
            return;
    if (list->n_groups == list->capacity) {
        int64_t capacity = list->capacity ? 2 * list->capacity : 16;
        oct_tensor_group *groups =
            oct_realloc_array(list->groups, (size_t)capacity, sizeof *groups);
        list->failed |= !groups;
        if (!groups)
            return;
        list->groups = groups;
        list->capacity = capacity;
    }
    list->groups[list->n_groups++] = one;
}

/* The numbers as ranges; where some of them are not there, how many are. */
static void put_group(const oct_tensor_group *g, oct_strbuf *to) {
    int64_t n = 1;
    int k = 0;
    for (const char *c = g->pattern; *c; c++) {
        if (*c != '*' || k == g->n_numbers) {
            oct_strbuf_append(to, c, 1);
            continue;
        }
        if (g->low[k] == g->high[k])
            oct_strbuf_printf(to, "%" PRId64, g->low[k]);
        else
            oct_strbuf_printf(to, "{%" PRId64 "-%" PRId64 "}", g->low[k], g->high[k]);
        n *= g->high[k] - g->low[k] + 1;
        k++;
    }
    if (n != g->n)
        oct_strbuf_printf(to, " [%" PRId64 " of them]", g->n);
    oct_strbuf_puts(to, g->about);
}

void oct_tensor_list_put(const oct_tensor_list *list, const char *what, size_t room,
                         oct_strbuf *to) {
    int64_t n_more = 0;
    if (list->n_groups == 0)
        return;
    oct_strbuf_printf(to, "%s%s: ", to->length ? "; " : "", what);
    const size_t start = to->length;
    for (int64_t i = 0; i < list->n_groups; i++) {
        if (to->length - start >= room) {
            n_more += list->groups[i].n;
            continue;
        }
        if (i)
            oct_strbuf_puts(to, ", ");
        put_group(&list->groups[i], to);
    }
    if (n_more)
        oct_strbuf_printf(to, " and %" PRId64 " more", n_more);
    to->failed |= list->failed;
}

void oct_tensor_list_free(oct_tensor_list *list) {
    oct_free(list->groups);
    *list = (oct_tensor_list){0};
}
