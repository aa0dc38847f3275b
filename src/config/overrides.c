/* The command line's part of a job: see overrides.h. */
#include "config/overrides.h"

#include <string.h>
#include <strings.h>

#include "config/refusals.h"
#include "config/text.h"
#include "config/tree_settings.h"
#include "model/args.h"

#define MAX_NAME 256

/* Whether the option `name` takes the place of the table's item: of the same name, or of the file
 * and the same model argument under another. Two names on one command line are for check.c. */
static bool replaces(const char *name, const oct_value *item) {
    return strcmp(item->key, name) == 0 || (item->line && oct_model_args_is(item->key, name));
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
            if (!replaces(name, item) &&
                oct_value_append(&l->builder, table, item->key, strlen(item->key), copy))
                return l->builder.err->status;
        }
    }
    oct_value *entry = oct_value_copy(&l->builder, value);
    if (!entry)
        return l->builder.err->status;
    *setting = (oct_setting){.value = table, .place = OCT_COMMAND_LINE};
    return oct_value_append(&l->builder, table, name, strlen(name), entry);
}

/* One argument, cut up. */
typedef struct argument {
    char name[MAX_NAME];
    const char *value; /* after `=`, or the next argument; NULL: none */
    int used;          /* how many arguments it took */
} argument;

/* Takes a "no_" or "no-" away from the start of `part`; false when there is none. */
static bool strip_no(char *part) {
    if (strncmp(part, "no_", 3) != 0 && strncmp(part, "no-", 3) != 0)
        return false;
    memmove(part, part + 3, strlen(part + 3) + 1);
    return true;
}

static bool is_below(const char *name, const char *section) {
    size_t n = strlen(section);
    return strncmp(name, section, n) == 0 && name[n] == '.';
}

/* A key that may be a list or a section, and the keys of that section, replace each other. */
static void forget_kin(oct_loader *l, const oct_key *key) {
    if (!l->state->mindspeed)
        return;
    for (size_t i = 0; i < oct_schema_mindspeed.n; i++) {
        const char *name = oct_schema_mindspeed.keys[i].name;
        if (is_below(name, key->name) || is_below(key->name, name))
            l->state->mindspeed[i] = (oct_setting){0};
    }
}

static oct_status set_row(oct_loader *l, const oct_key *key, oct_setting *setting,
                          const char *text) {
    const oct_value *value = oct_loader_parse_text(l, key, text);
    if (!value)
        return l->builder.err->status;
    forget_kin(l, key);
    if (value->kind == OCT_VALUE_TABLE &&
        oct_schema_has_section(oct_loader_schema(l), key->name, strlen(key->name))) {
        *setting = (oct_setting){0};
        return oct_loader_collect(l, value, key->name);
    }
    *setting = (oct_setting){.value = value, .place = OCT_COMMAND_LINE};
    return OCT_OK;
}

static oct_status fail_no_value(oct_loader *l, const oct_key *key) {
    char expected[300];
    oct_schema_expected(key, expected, sizeof expected);
    return oct_fail(l->builder.err, OCT_INVALID, "%s: --%s: the value is missing; expected %s",
                    OCT_COMMAND_LINE, key->name, expected);
}

/* Of a shell variable that isn't set, most likely: to go on without the path would be to train
 * from other weights, or on other data. */
static oct_status fail_empty(oct_loader *l, const oct_key *key) {
    bool optional = strcmp(key->fallback, "none") == 0;
    return oct_fail(l->builder.err, OCT_INVALID,
                    "%s: --%s: the value is empty; expected %s; got \"\"", OCT_COMMAND_LINE,
                    key->name, optional ? "a path or a name, or none" : "a text");
}

static bool is_text(const oct_key *key) {
    return key->kind == OCT_KEY_USED && (key->type == OCT_KEY_STRING || key->type == OCT_KEY_WORD);
}

static oct_status set_known(oct_loader *l, const oct_key *key, oct_setting *setting, argument *a,
                            const char *next) {
    bool truth;
    if (!a->value && key->type == OCT_KEY_BOOL) {
        bool takes_next = next && oct_text_is_bool(next, &truth);
        a->used += takes_next;
        return set_row(l, key, setting, takes_next ? next : "true");
    }
    if (!a->value) {
        if (!next || strncmp(next, "--", 2) == 0)
            return fail_no_value(l, key);
        a->value = next;
        a->used++;
    }
    if (!*a->value && is_text(key) && l->reading != OCT_JOB_READ_SAVED)
        return fail_empty(l, key);
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
    const oct_value *value = oct_loader_parse_scalar(l, a->value);
    return value ? replace_entry(l, setting, name, value) : l->builder.err->status;
}

/* The bool that `--section.no-flag` or `--no-section.flag` turns off, or NULL. */
static const oct_key *find_turned_off(oct_loader *l, const argument *a, oct_setting **setting) {
    for (int whole = 0; whole < 2; whole++) {
        argument positive = *a;
        char *dot = strrchr(positive.name, '.');
        const oct_key *key = NULL;
        if (strip_no(dot && !whole ? dot + 1 : positive.name))
            key = oct_loader_find(l, positive.name, strlen(positive.name), setting);
        if (key && key->type == OCT_KEY_BOOL)
            return key;
    }
    return NULL;
}

static oct_status apply_one(oct_loader *l, argument *a, const char *next) {
    oct_setting *setting;
    const char *rest;
    const oct_key *key = oct_loader_find(l, a->name, strlen(a->name), &setting);
    if (key)
        return set_known(l, key, setting, a, next);
    if (oct_loader_find_table(l, a->name, &setting, &rest))
        return set_entry(l, setting, rest, a, next);
    key = find_turned_off(l, a, &setting);
    if (key) {
        if (a->value)
            return oct_fail(l->builder.err, OCT_INVALID,
                            "%s: --%s: a no-flag takes no value; got \"%.100s\"", OCT_COMMAND_LINE,
                            a->name, a->value);
        return set_row(l, key, setting, "false");
    }
    if (!a->value && next && strncmp(next, "--", 2) != 0)
        a->used++; /* most likely its value: the unknown key is the error to tell */
    return oct_loader_unknown(l, OCT_COMMAND_LINE, a->name, "key");
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

static bool has_name(const argument *a, const char *key, size_t n) {
    bool same = strlen(a->name) == n;
    for (size_t i = 0; i < n && same; i++)
        same = a->name[i] == key[i] || (a->name[i] == '-' && key[i] == '_');
    return same;
}

bool oct_job_option_sets(const char *option, const char *key, size_t n) {
    argument a;
    if (!split(option, &a))
        return false;
    argument whole = a, last = a;
    char *dot = strrchr(last.name, '.');
    return has_name(&a, key, n) || (strip_no(whole.name) && has_name(&whole, key, n)) ||
           (dot && strip_no(dot + 1) && has_name(&last, key, n));
}

static bool is_config_file(const argument *a) {
    return strcasecmp(a->name, "job.config_file") == 0 ||
           strcasecmp(a->name, "job.config-file") == 0;
}

oct_status oct_override_two_files(const char *a, const char *b, oct_error *err) {
    return oct_fail(err, OCT_INVALID,
                    "%s: --job.config_file: two job files; expected one; got %.300s and %.300s",
                    OCT_COMMAND_LINE, a, b);
}

int oct_job_without_config_file(const char **overrides, int n) {
    argument a;
    int kept = 0;
    for (int i = 0; i < n; i++) {
        if (!split(overrides[i], &a) || !is_config_file(&a))
            overrides[kept++] = overrides[i];
        else if (!a.value)
            i++;
    }
    return kept;
}

oct_status oct_override_config_file(const char *const *overrides, int n, const char **path,
                                    oct_error *err) {
    argument a;
    *path = NULL;
    for (int i = 0; i < n; i++) {
        if (!split(overrides[i], &a) || !is_config_file(&a))
            continue;
        const char *value = a.value ? a.value : i + 1 < n ? overrides[i + 1] : "--";
        if (!a.value && strncmp(value, "--", 2) == 0)
            return oct_fail(err, OCT_INVALID,
                            "%s: --%s: the value is missing; expected a .toml or .yaml file",
                            OCT_COMMAND_LINE, a.name);
        if (*path)
            return oct_override_two_files(*path, value, err);
        *path = value;
    }
    return OCT_OK;
}

/* Of a text that split doesn't take. */
static oct_status fail_argument(oct_loader *l, const char *text) {
    if (strncmp(text, "--", 2) == 0 && strcspn(text + 2, "=") > 0)
        return oct_fail(l->builder.err, OCT_INVALID, "%s: %.100s...: unknown key", OCT_COMMAND_LINE,
                        text);
    return oct_fail(l->builder.err, OCT_INVALID,
                    "%s: an argument has no meaning here; expected --section.key=value; "
                    "got \"%.100s\"",
                    OCT_COMMAND_LINE, text);
}

oct_status oct_loader_apply_overrides(oct_loader *l, const char *const *overrides, int n) {
    oct_status status = OCT_OK;
    argument a;
    for (int i = 0; i < n && !status; i += a.used) {
        if (!split(overrides[i], &a))
            status = fail_argument(l, overrides[i]);
        else if (is_config_file(&a))
            a.used += a.value ? 0 : 1;
        else
            status = apply_one(l, &a, i + 1 < n ? overrides[i + 1] : NULL);
        status = oct_loader_refuse(l, status, OCT_REFUSED_BY_PLACE);
    }
    return status;
}
