/* Values into members: see store.h. */
#include "config/store.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/count.h"
#include "base/nearest.h"
#include "config/recipe_overrides.h"
#include "config/refusals.h"
#include "config/text.h"

#define MAX_ENTRY_KEYS 8
#define MAX_COUNT 2147483647.0 /* products of two counts fit in 64 bits */

static oct_status fail_row(oct_loader *l, const oct_key *key, const char *place, const char *what,
                           const oct_value *got) {
    char expected[300];
    oct_schema_expected(key, expected, sizeof expected);
    return oct_loader_fail(l, place, key->name, what, expected, got);
}

static bool in_range(oct_key_range range, double x) {
    switch (range) {
    case OCT_RANGE_ANY:
        return isfinite(x);
    case OCT_RANGE_COUNT:
        return x >= 1 && x <= MAX_COUNT;
    case OCT_RANGE_COUNT_OR_1M:
        return x == -1 || (x >= 1 && x <= MAX_COUNT);
    case OCT_RANGE_INDEX:
        return x >= 0 && x <= MAX_COUNT;
    case OCT_RANGE_INDEX_OR_1M:
        return x >= -1 && x <= MAX_COUNT;
    case OCT_RANGE_SEED:
        return x >= 0;
    case OCT_RANGE_NOT_NEGATIVE:
        return x >= 0 && isfinite(x);
    case OCT_RANGE_POSITIVE:
        return x > 0;
    case OCT_RANGE_NORMAL:
        return x >= (double)FLT_MIN && isfinite(x);
    case OCT_RANGE_FRACTION:
        return x >= 0 && x <= 1;
    case OCT_RANGE_BELOW_ONE:
        return x >= 0 && x < 1;
    }
    return false;
}

static bool is_count(oct_key_range range) {
    return range == OCT_RANGE_COUNT || range == OCT_RANGE_COUNT_OR_1M || range == OCT_RANGE_INDEX ||
           range == OCT_RANGE_INDEX_OR_1M;
}

static bool is_optional(const oct_key *key) {
    return strcmp(key->fallback, "none") == 0;
}

static void *member_of(oct_loader *l, const oct_key *key) {
    return key->offset == OCT_NO_MEMBER ? NULL : (char *)l->job + key->offset;
}

static oct_status store_number(oct_loader *l, const oct_key *key, const oct_value *value,
                               const char *place) {
    bool absent = value->kind == OCT_VALUE_NULL;
    double x = absent ? -1 : value->kind == OCT_VALUE_INT ? (double)value->integer : value->number;
    if (!absent && is_count(key->range) && x > MAX_COUNT)
        return oct_loader_fail(l, place, key->name, "the value is impossible",
                               "an integer of at most 2147483647", value);
    if (key->type == OCT_KEY_FLOAT && isfinite(x) && fabs(x) > FLT_MAX)
        return oct_loader_fail(l, place, key->name, "the value is impossible",
                               "a number that fits in 32 bits, of at most 3.4e38", value);
    if (!absent && !in_range(key->range, x))
        return fail_row(l, key, place, "the value is impossible", value);
    void *member = member_of(l, key);
    if (member && key->type == OCT_KEY_INT)
        *(int64_t *)member = absent ? -1 : value->integer;
    else if (member)
        *(double *)member = x;
    return OCT_OK;
}

static oct_status store_string(oct_loader *l, const oct_key *key, const oct_value *value) {
    const char **member = member_of(l, key);
    bool absent = value->kind == OCT_VALUE_NULL || (is_optional(key) && !*value->string);
    if (member)
        *member = absent ? NULL : value->string;
    return OCT_OK;
}

static int find_choice(const char *choices, const char *text) {
    size_t length;
    const char *word;
    for (int i = 0; (word = oct_schema_choice(choices, i, &length)); i++)
        if (strlen(text) == length && strncmp(word, text, length) == 0)
            return i;
    return -1;
}

/* Words that mean something to the other trainers: not misspelt, but not supported. */
static const char *unsupported_word(const char *name, const char *word) {
    static const struct {
        const char *name, *word, *what;
    } words[] = {
        {"optimizer.name", "Muon", "Muon isn't supported"},
        {"training.optimizer", "muon", "Muon isn't supported"},
        {"activation_checkpoint.mode", "memory_budget",
         "a memory budget isn't supported: there is no compiler to keep it"},
        {"training.mixed_precision_param", "float16", "activations in float16 aren't supported"},
        {"parallel.fsdp_plan.param_dtype", "fp16", "activations in float16 aren't supported"},
    };
    for (size_t i = 0; i < OCT_COUNT(words); i++)
        if (strcmp(name, words[i].name) == 0 && strcasecmp(word, words[i].word) == 0)
            return words[i].what;
    return NULL;
}

static oct_status fail_word(oct_loader *l, const oct_key *key, const oct_value *value,
                            const char *place) {
    const char *what = key->kind == OCT_KEY_UNSUPPORTED
                           ? key->meaning
                           : unsupported_word(key->name, value->string);
    if (strcmp(key->name, "model.name") == 0)
        what = "the model isn't supported";
    return fail_row(l, key, place, what ? what : "the word is unknown", value);
}

static oct_status store_choice(oct_loader *l, const oct_key *key, const oct_value *value,
                               const char *place) {
    void *member = member_of(l, key);
    const bool is_none = value->kind == OCT_VALUE_NULL; /* of a word whose default is none */
    if (is_none && member && key->type == OCT_KEY_CHOICE)
        *(int *)member = OCT_JOB_UNSAID;
    else if (is_none && member)
        *(const char **)member = NULL;
    if (is_none)
        return OCT_OK;
    int index = find_choice(key->choices, value->string);
    if (index < 0)
        return fail_word(l, key, value, place);
    if (member && key->type == OCT_KEY_CHOICE)
        *(unsigned *)member = (unsigned)index;
    else if (member)
        *(const char **)member = value->string;
    return OCT_OK;
}

static oct_status fail_item(oct_loader *l, const oct_key *key, const char *place,
                            const oct_value *item) {
    return oct_loader_fail(l, place, key->name, "an item has the wrong type", "a text", item);
}

static oct_status store_list(oct_loader *l, const oct_key *key, const oct_value *value,
                             const char *place) {
    oct_job_list *member = member_of(l, key);
    if (value->kind == OCT_VALUE_STRING)
        value = oct_loader_parse_text(l, key, value->string);
    if (!value)
        return l->builder.err->status;
    size_t n = value->kind == OCT_VALUE_NULL ? 0 : value->items.n;
    const char **items = oct_arena_alloc_array(l->builder.arena, n + 1, sizeof *items);
    if (!items)
        return oct_fail_memory(l->builder.err);
    const oct_value *item = n ? value->items.first : NULL, *wrong = NULL;
    oct_status status = OCT_OK;
    for (size_t i = 0; item && !status; item = item->next, i++) {
        items[i] = item->string;
        if (item->kind == OCT_VALUE_STRING)
            continue;
        status = oct_loader_refuse_item(l, fail_item(l, key, place, item));
        wrong = wrong ? wrong : item;
    }
    if (wrong && !status) /* once more for the caller, which tells no key twice */
        return fail_item(l, key, place, wrong);
    if (member && !status)
        *member = (oct_job_list){items, n};
    return status;
}

static oct_status store_table(oct_loader *l, const oct_key *key, const oct_value *value,
                              const char *place) {
    const oct_value **member = member_of(l, key);
    if (!member)
        return OCT_OK;
    const oct_value *nameless = oct_value_find(value, "");
    if (nameless && nameless->line && !(place = oct_loader_place(l, nameless->line)))
        return OCT_NO_MEMORY;
    if (nameless)
        return oct_fail(l->builder.err, OCT_INVALID,
                        "%s: %s%s: a key in it is empty; expected a name", place,
                        oct_loader_dashes(place), key->name);
    *member = value->kind == OCT_VALUE_TABLE ? value : NULL;
    return OCT_OK;
}

/* The type the row wants, loosely: null where the default is none, an integer for a float. */
static bool has_type(const oct_key *key, const oct_value *value) {
    if (value->kind == OCT_VALUE_NULL) /* of a YAML file: as if the key weren't there */
        return is_optional(key) || key->kind != OCT_KEY_USED || key->type == OCT_KEY_ANY;
    switch (key->type) {
    case OCT_KEY_BOOL:
        return value->kind == OCT_VALUE_BOOL;
    case OCT_KEY_INT:
        return value->kind == OCT_VALUE_INT;
    case OCT_KEY_FLOAT:
        return value->kind == OCT_VALUE_INT || value->kind == OCT_VALUE_DOUBLE;
    case OCT_KEY_STRING:
    case OCT_KEY_CHOICE:
    case OCT_KEY_WORD:
        return value->kind == OCT_VALUE_STRING;
    case OCT_KEY_LIST:
        return value->kind == OCT_VALUE_LIST || value->kind == OCT_VALUE_STRING;
    case OCT_KEY_TABLE:
        return value->kind == OCT_VALUE_TABLE;
    case OCT_KEY_TABLES:
        return value->kind == OCT_VALUE_LIST;
    case OCT_KEY_ANY:
        return value->kind != OCT_VALUE_TABLE || key->kind == OCT_KEY_UNSUPPORTED;
    }
    return false;
}

static oct_status fail_entry(oct_loader *l, const oct_key *key, const char *place,
                             const char *name) {
    char words[MAX_ENTRY_KEYS][64];
    const char *names[MAX_ENTRY_KEYS], *word;
    size_t n = 0, length;
    for (; key->choices && n < MAX_ENTRY_KEYS &&
           (word = oct_schema_choice(key->choices, (int)n, &length));
         n++) {
        snprintf(words[n], sizeof words[n], "%.*s", (int)length, word);
        names[n] = words[n];
    }
    const char *near = oct_nearest_name(name, names, n);
    return oct_fail(l->builder.err, OCT_INVALID, "%s: %s%s.%.100s: unknown key; %s%s", place,
                    oct_loader_dashes(place), key->name, name,
                    near ? "the nearest known one is " : "expected ",
                    near           ? near
                    : key->choices ? key->choices
                                   : "no table in the list");
}

/* Tables in a list have the keys that the row's choices name, and none without such. */
static oct_status check_items(oct_loader *l, const oct_key *key, const oct_value *list) {
    for (const oct_value *item = list->items.first; item; item = item->next) {
        const oct_value *entry = item->kind == OCT_VALUE_TABLE ? item->items.first : NULL;
        for (; entry; entry = entry->next) {
            if (key->choices && find_choice(key->choices, entry->key) >= 0)
                continue;
            const char *place = entry->line ? oct_loader_place(l, entry->line) : OCT_COMMAND_LINE;
            if (!place)
                return OCT_NO_MEMORY;
            return fail_entry(l, key, place, entry->key);
        }
    }
    return OCT_OK;
}

/* For rows that accept their default only: does the value equal it? */
static bool equals_fallback(oct_loader *l, const oct_key *key, const oct_value *value) {
    const oct_value *fallback = oct_loader_parse_text(l, key, key->fallback);
    if (!fallback || value->kind == OCT_VALUE_NULL)
        return fallback != NULL;
    if (value->kind == OCT_VALUE_LIST || value->kind == OCT_VALUE_TABLE)
        return value->items.n == 0;
    if (value->kind == OCT_VALUE_STRING && !*value->string)
        return true;
    if (fallback->kind == OCT_VALUE_INT && value->kind == OCT_VALUE_DOUBLE)
        return value->number == (double)fallback->integer;
    if (fallback->kind == OCT_VALUE_DOUBLE && value->kind == OCT_VALUE_INT)
        return fallback->number == (double)value->integer;
    if (fallback->kind != value->kind)
        return false;
    switch (value->kind) {
    case OCT_VALUE_BOOL:
        return value->boolean == fallback->boolean;
    case OCT_VALUE_INT:
        return value->integer == fallback->integer;
    case OCT_VALUE_DOUBLE:
        return value->number == fallback->number;
    default:
        return strcmp(value->string, fallback->string) == 0;
    }
}

oct_status oct_loader_store(oct_loader *l, const oct_key *key, const oct_value *value,
                            const char *place) {
    if (!has_type(key, value))
        return fail_row(l, key, place, "the type is wrong", value);
    if (key->kind == OCT_KEY_UNSUPPORTED) {
        bool good = key->choices ? value->kind == OCT_VALUE_NULL ||
                                       find_choice(key->choices, value->string) >= 0
                                 : equals_fallback(l, key, value);
        return good ? OCT_OK : fail_row(l, key, place, key->meaning, value);
    }
    switch (key->type) {
    case OCT_KEY_BOOL: {
        bool *member = member_of(l, key);
        if (member && value->kind == OCT_VALUE_BOOL)
            *member = value->boolean;
        return OCT_OK;
    }
    case OCT_KEY_INT:
    case OCT_KEY_FLOAT:
        return store_number(l, key, value, place);
    case OCT_KEY_STRING:
        return store_string(l, key, value);
    case OCT_KEY_CHOICE:
    case OCT_KEY_WORD:
        return store_choice(l, key, value, place);
    case OCT_KEY_LIST:
        return store_list(l, key, value, place);
    case OCT_KEY_TABLE:
        return store_table(l, key, value, place);
    case OCT_KEY_TABLES:
        return oct_loader_store_overrides(l, key, value, place, member_of(l, key));
    case OCT_KEY_ANY:
        return value->kind == OCT_VALUE_LIST ? check_items(l, key, value) : OCT_OK;
    }
    return OCT_OK;
}
