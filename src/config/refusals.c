/* What is wrong with a job: see refusals.h. */
#include "config/refusals.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"

#define MAX_REFUSALS 100 /* told; a file of another kind has thousands */

struct oct_refusal {
    oct_refusal *next;
    oct_refusal_class kind;
    int line; /* of the file; INT_MAX: the command line; INT_MAX - 1: a default, or no line */
    const char *message;
};

static bool begins(const char *text, const char *start) {
    return strncmp(text, start, strlen(start)) == 0;
}

static int line_of(const oct_loader *l, const char *message) {
    size_t n = strlen(l->builder.path);
    if (begins(message, l->builder.path) && message[n] == ':' &&
        isdigit((unsigned char)message[n + 1]))
        return atoi(message + n + 1);
    return begins(message, OCT_COMMAND_LINE ": ") ? INT_MAX : INT_MAX - 1;
}

static bool comes_before(const oct_refusal *a, const oct_refusal *b) {
    return a->kind != b->kind ? a->kind < b->kind : a->line < b->line;
}

/* Whether place and key, "PLACE: KEY: ", of a message are those of one in the list: the first that
 * is wrong with a key says enough. */
static bool is_told(const oct_loader *l, const char *message) {
    const char *key = strstr(message, ": "), *what = key ? strstr(key + 2, ": ") : NULL;
    for (const oct_refusal *r = l->refusals; r && what; r = r->next)
        if (strncmp(r->message, message, (size_t)(what - message) + 2) == 0)
            return true;
    return false;
}

static bool is_repeated(const oct_loader *l, const char *message) {
    for (const oct_refusal *r = l->refusals; r; r = r->next)
        if (strcmp(r->message, message) == 0)
            return true;
    return false;
}

static oct_status refuse(oct_loader *l, oct_status status, oct_refusal_class kind,
                         bool (*is_known)(const oct_loader *, const char *)) {
    oct_error *err = l->builder.err;
    if (status != OCT_INVALID)
        return status;
    bool repeats =
        (l->n_refusals && begins(err->message, "default: ")) || is_known(l, err->message);
    bool full = l->n_refusals == MAX_REFUSALS;
    l->n_untold += full && !repeats;
    if (full || repeats) {
        *err = (oct_error){0};
        return OCT_OK;
    }
    size_t n = strlen(err->message) + 1;
    oct_refusal *refusal = oct_arena_alloc(l->builder.arena, sizeof *refusal);
    char *message = oct_arena_alloc(l->builder.arena, n);
    if (!refusal || !message) {
        *err = (oct_error){0};
        return oct_fail_memory(err);
    }
    memcpy(message, err->message, n);
    *refusal = (oct_refusal){NULL, kind, line_of(l, message), message};
    oct_refusal **at = &l->refusals;
    while (*at && !comes_before(refusal, *at))
        at = &(*at)->next;
    refusal->next = *at;
    *at = refusal;
    l->n_refusals++;
    *err = (oct_error){0};
    return OCT_OK;
}

oct_status oct_loader_refuse(oct_loader *l, oct_status status, oct_refusal_class kind) {
    return refuse(l, status, kind, is_told);
}

oct_status oct_loader_refuse_item(oct_loader *l, oct_status status) {
    return refuse(l, status, OCT_REFUSED_BY_PLACE, is_repeated);
}

bool oct_loader_refused_model(const oct_loader *l) {
    return l->refusals && l->refusals->kind == OCT_REFUSED_MODEL;
}

oct_status oct_loader_conclude(oct_loader *l, char **others) {
    oct_strbuf b = {0};
    *others = NULL;
    if (!l->refusals)
        return OCT_OK;
    for (const oct_refusal *r = l->refusals->next; r; r = r->next)
        oct_strbuf_printf(&b, "%s%s", b.length ? "\n" : "", r->message);
    if (l->n_untold)
        oct_strbuf_printf(&b, "\n%s: %zu more keys or values are wrong", l->builder.path,
                          l->n_untold);
    if (b.failed) {
        oct_strbuf_free(&b);
        return oct_fail_memory(l->builder.err);
    }
    *others = b.text;
    return oct_fail(l->builder.err, OCT_INVALID, "%s", l->refusals->message);
}

/* "a." is an empty key in a; false: another name. */
static bool fails_as_empty(oct_loader *l, const char *place, const char *name) {
    size_t n = strlen(name);
    if (n > 0 && name[n - 1] != '.')
        return false;
    if (n <= 1)
        oct_fail(l->builder.err, OCT_INVALID, "%s: a key is empty; expected a name", place);
    else
        oct_fail(l->builder.err, OCT_INVALID, "%s: %s%.*s: a key in it is empty; expected a name",
                 place, oct_loader_dashes(place), (int)n - 1, name);
    return true;
}

oct_status oct_loader_unknown(oct_loader *l, const char *place, const char *name,
                              const char *what) {
    char section[128];
    const char *near = NULL;
    if (fails_as_empty(l, place, name))
        return oct_loader_refuse(l, OCT_INVALID, OCT_REFUSED_BY_PLACE);
    if (strcmp(what, "section") != 0)
        near = oct_schema_nearest(oct_loader_schema(l), name);
    else if (oct_schema_nearest_section(oct_loader_schema(l), name, section, sizeof section))
        near = section;
    /* In a YAML job the command line takes the TOML form's keys too. */
    bool toml_key = strcmp(what, "section") != 0 && oct_loader_schema(l) == &oct_schema_titan;
    if (!near && (toml_key || strcmp(place, OCT_COMMAND_LINE) == 0))
        near = oct_job_key_like(name);
    const char *dashes = oct_loader_dashes(place);
    if (near)
        oct_fail(l->builder.err, OCT_INVALID, "%s: %s%s: unknown %s; the nearest known one is %s%s",
                 place, dashes, name, what, dashes, near);
    else
        oct_fail(l->builder.err, OCT_INVALID,
                 "%s: %s%s: unknown %s; `octet train --help-all` lists the known ones", place,
                 dashes, name, what);
    return oct_loader_refuse(l, OCT_INVALID, OCT_REFUSED_BY_PLACE);
}
