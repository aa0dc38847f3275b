/* The command line's part of a job: `--section.key=value`, `--section.key value`, `--section.flag`
 * and `--section.no-flag`.
 * Invariant: a text becomes a value by its row's type, never by its looks (a description of "12" is
 * a text); only entries of free tables, which have no row, and rows that take any value go by their
 * looks, the latter by YAML's rules. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "config/loader.h"

#define MAX_NAME 256

static bool parse_bool(const char *text, bool *truth) {
    *truth = strcasecmp(text, "true") == 0;
    return *truth || strcasecmp(text, "false") == 0;
}

static bool parse_int(const char *text, int64_t *integer) {
    char *end;
    errno = 0;
    *integer = strtoll(text, &end, 10);
    return *text && !isspace((unsigned char)*text) && !*end && errno == 0;
}

static bool parse_double(const char *text, double *number) {
    char *end;
    *number = strtod(text, &end);
    return *text && !isspace((unsigned char)*text) && !*end;
}

/* A text that isn't what the row takes stays a string, and the row's check says so. */
static const oct_value *parse_number(oct_loader *l, oct_key_type type, const char *text) {
    oct_value *v = oct_value_new_string(&l->builder, text, strlen(text), 0, 0);
    if (!v)
        return NULL;
    bool truth;
    int64_t integer;
    double number;
    if (type == OCT_KEY_BOOL && parse_bool(text, &truth)) {
        v->kind = OCT_VALUE_BOOL;
        v->boolean = truth;
    } else if (type != OCT_KEY_BOOL && parse_int(text, &integer)) {
        v->kind = OCT_VALUE_INT;
        v->integer = integer;
    } else if (type == OCT_KEY_FLOAT && parse_double(text, &number)) {
        v->kind = OCT_VALUE_DOUBLE;
        v->number = number;
    }
    return v;
}

/* "a, b,c" as a list; an empty text is an empty list. */
static const oct_value *parse_list(oct_loader *l, const char *text) {
    oct_value *list = oct_value_new(&l->builder, OCT_VALUE_LIST, 0, 0);
    while (list && *text) {
        size_t length = strcspn(text, ",");
        const char *start = text, *end = text + length;
        while (start < end && isspace((unsigned char)*start))
            start++;
        while (end > start && isspace((unsigned char)end[-1]))
            end--;
        text += length + (text[length] == ',');
        if (start == end)
            continue;
        oct_value *item = oct_value_new_string(&l->builder, start, (size_t)(end - start), 0, 0);
        if (!item || oct_value_append(&l->builder, list, NULL, 0, item))
            return NULL;
    }
    return list;
}

/* As a YAML file would give it: `auto`, `2`, `[a, b]`, `{apply_modules: [a]}`. */
static const oct_value *parse_yaml(oct_loader *l, const oct_key *key, const char *text) {
    const oct_value *value = NULL;
    oct_error cause = {0};
    oct_status status = oct_yaml_parse_value(text, l->builder.arena, &value, &cause);
    if (status == OCT_NO_MEMORY)
        oct_fail_memory(l->builder.err);
    else if (status)
        oct_fail(l->builder.err, status,
                 "%s: --%s: expected a value as a YAML file has it; got \"%.100s\"",
                 OCT_COMMAND_LINE, key->name, text);
    return value;
}

const oct_value *oct_loader_parse_text(oct_loader *l, const oct_key *key, const char *text) {
    bool optional = strcmp(key->fallback, "none") == 0;
    if (optional && strcasecmp(text, "none") == 0)
        return oct_value_new(&l->builder, OCT_VALUE_NULL, 0, 0);
    switch (key->type) {
    case OCT_KEY_BOOL:
    case OCT_KEY_INT:
    case OCT_KEY_FLOAT:
        return parse_number(l, key->type, text);
    case OCT_KEY_LIST:
        return parse_list(l, text);
    case OCT_KEY_TABLE:
    case OCT_KEY_ANY:
        return parse_yaml(l, key, text);
    default:
        return oct_value_new_string(&l->builder, text, strlen(text), 0, 0);
    }
}

/* A scalar by its looks, for entries of free tables. */
static const oct_value *parse_free(oct_loader *l, const char *text) {
    bool truth;
    return parse_number(l, parse_bool(text, &truth) ? OCT_KEY_BOOL : OCT_KEY_FLOAT, text);
}

/* A copy of the setting's table in which `name` is `value`. */
static oct_status replace_entry(oct_loader *l, oct_setting *setting, const char *name,
                                const oct_value *value) {
    oct_value *table = oct_value_new(&l->builder, OCT_VALUE_TABLE, 0, 0);
    const oct_value *old = setting->value;
    if (!table)
        return l->builder.err->status;
    if (old && old->kind == OCT_VALUE_TABLE) {
        for (const oct_value *item = old->items.first; item; item = item->next) {
            oct_value *copy = oct_value_copy(&l->builder, item);
            if (!copy)
                return l->builder.err->status;
            if (strcmp(item->key, name) != 0 &&
                oct_value_append(&l->builder, table, item->key, strlen(item->key), copy))
                return l->builder.err->status;
        }
    }
    oct_value *entry = oct_value_copy(&l->builder, value);
    if (!entry)
        return l->builder.err->status;
    *setting = (oct_setting){table, OCT_COMMAND_LINE};
    return oct_value_append(&l->builder, table, name, strlen(name), entry);
}

/* One argument, cut up. */
typedef struct argument {
    char name[MAX_NAME];
    const char *value; /* after `=`, or the next argument; NULL: none */
    int used;          /* how many arguments it took */
} argument;

/* "section.no_flag" or "section.no-flag" without the no; false when it has none. */
static bool strip_no(char *name) {
    char *dot = strrchr(name, '.');
    char *last = dot ? dot + 1 : name;
    if (strncmp(last, "no_", 3) != 0 && strncmp(last, "no-", 3) != 0)
        return false;
    memmove(last, last + 3, strlen(last + 3) + 1);
    return true;
}

static oct_status set_row(oct_loader *l, const oct_key *key, oct_setting *setting,
                          const char *text) {
    const oct_value *value = oct_loader_parse_text(l, key, text);
    if (!value)
        return l->builder.err->status;
    *setting = (oct_setting){value, OCT_COMMAND_LINE};
    return OCT_OK;
}

static oct_status fail_no_value(oct_loader *l, const oct_key *key) {
    char expected[300];
    oct_schema_expected(key, expected, sizeof expected);
    return oct_fail(l->builder.err, OCT_INVALID, "%s: --%s: the value is missing; expected %s",
                    OCT_COMMAND_LINE, key->name, expected);
}

static oct_status set_known(oct_loader *l, const oct_key *key, oct_setting *setting, argument *a,
                            const char *next) {
    bool truth;
    if (!a->value && key->type == OCT_KEY_BOOL) {
        bool takes_next = next && parse_bool(next, &truth);
        a->used += takes_next;
        return set_row(l, key, setting, takes_next ? next : "true");
    }
    if (!a->value) {
        if (!next || strncmp(next, "--", 2) == 0)
            return fail_no_value(l, key);
        a->value = next;
        a->used++;
    }
    return set_row(l, key, setting, a->value);
}

static oct_status set_entry(oct_loader *l, oct_setting *setting, const char *name, argument *a,
                            const char *next) {
    if (!a->value) {
        if (!next || strncmp(next, "--", 2) == 0)
            return oct_fail(l->builder.err, OCT_INVALID, "%s: --%s: the value is missing",
                            OCT_COMMAND_LINE, a->name);
        a->value = next;
        a->used++;
    }
    const oct_value *value = parse_free(l, a->value);
    return value ? replace_entry(l, setting, name, value) : l->builder.err->status;
}

static oct_status apply_one(oct_loader *l, argument *a, const char *next) {
    oct_setting *setting;
    const char *rest;
    const oct_key *key = oct_loader_find(l, a->name, strlen(a->name), &setting);
    if (key)
        return set_known(l, key, setting, a, next);
    if (oct_loader_find_table(l, a->name, &setting, &rest))
        return set_entry(l, setting, rest, a, next);
    argument positive = *a;
    if (strip_no(positive.name) &&
        (key = oct_loader_find(l, positive.name, strlen(positive.name), &setting)) &&
        key->type == OCT_KEY_BOOL) {
        if (a->value)
            return oct_fail(l->builder.err, OCT_INVALID,
                            "%s: --%s: a no-flag takes no value; got \"%.100s\"", OCT_COMMAND_LINE,
                            a->name, a->value);
        return set_row(l, key, setting, "false");
    }
    oct_loader_unknown(l, OCT_COMMAND_LINE, a->name, "key");
    if (!a->value && next && strncmp(next, "--", 2) != 0)
        a->used++; /* most likely its value: the unknown key is the error to tell */
    return OCT_OK;
}

/* Fills *a with the name, and the value after `=`; false when it isn't `--name...`. */
static bool split(const char *text, argument *a) {
    *a = (argument){.used = 1};
    if (strncmp(text, "--", 2) != 0)
        return false;
    text += 2;
    size_t length = strcspn(text, "=");
    if (length == 0 || length >= sizeof a->name)
        return false;
    memcpy(a->name, text, length);
    a->name[length] = '\0';
    a->value = text[length] ? text + length + 1 : NULL;
    return true;
}

static bool is_config_file(const argument *a) {
    return strcasecmp(a->name, "job.config_file") == 0 ||
           strcasecmp(a->name, "job.config-file") == 0;
}

const char *oct_override_config_file(const char *const *overrides, int n) {
    argument a;
    for (int i = 0; i < n; i++)
        if (split(overrides[i], &a) && is_config_file(&a))
            return a.value ? a.value : i + 1 < n ? overrides[i + 1] : NULL;
    return NULL;
}

oct_status oct_loader_apply_overrides(oct_loader *l, const char *const *overrides, int n) {
    oct_status status = OCT_OK;
    argument a;
    for (int i = 0; i < n && !status; i += a.used) {
        if (!split(overrides[i], &a))
            return oct_fail(l->builder.err, OCT_INVALID,
                            "%s: an argument has no meaning here; expected --section.key=value; "
                            "got \"%.100s\"",
                            OCT_COMMAND_LINE, overrides[i]);
        if (is_config_file(&a))
            a.used += a.value ? 0 : 1;
        else
            status = apply_one(l, &a, i + 1 < n ? overrides[i + 1] : NULL);
    }
    return status;
}
