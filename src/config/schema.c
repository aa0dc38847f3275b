/* Looking things up in a table of keys: see schema.h. */
#include "config/schema.h"

#include <stdio.h>
#include <string.h>

#include "base/nearest.h"

static char fold(char c) {
    return c == '-' ? '_' : c;
}

static bool same_name(const char *row, const char *name, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (row[i] == '\0' || fold(row[i]) != fold(name[i]))
            return false;
    return true;
}

const oct_key *oct_schema_find(const oct_schema *schema, const char *name, size_t length) {
    for (size_t i = 0; i < schema->n; i++)
        if (same_name(schema->keys[i].name, name, length) && !schema->keys[i].name[length])
            return &schema->keys[i];
    return NULL;
}

bool oct_schema_has_section(const oct_schema *schema, const char *name, size_t length) {
    for (size_t i = 0; i < schema->n; i++)
        if (same_name(schema->keys[i].name, name, length) && schema->keys[i].name[length] == '.')
            return true;
    return false;
}

/* Length of "a.b" in "a.b.c"; 0 where there is no dot. */
static size_t section_length(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot ? (size_t)(dot - name) : 0;
}

/* The row nearest to `name` among those of the section that is `length` long in it. */
static const char *nearest_in_section(const oct_schema *schema, const char *name, size_t length) {
    const char *best = NULL, *own = name + length + (length > 0);
    size_t best_distance = SIZE_MAX;
    for (size_t i = 0; i < schema->n; i++) {
        const char *row = schema->keys[i].name;
        if (section_length(row) != length || !same_name(row, name, length))
            continue;
        const char *last = row + length + (length > 0);
        size_t distance = oct_edit_distance(own, last);
        if (distance < best_distance && oct_nearest_name(own, &last, 1)) {
            best = row;
            best_distance = distance;
        }
    }
    return best;
}

/* Whether the section of `name`, `length` long, and its last part are each near the row's: a right
 * section doesn't bring another key nearer. */
static bool near_in_both_parts(const char *name, size_t length, const char *row) {
    char section[128], own[128];
    size_t row_length = section_length(row);
    if (!length || length >= sizeof section || row_length >= sizeof own)
        return false;
    snprintf(section, sizeof section, "%.*s", (int)length, name);
    snprintf(own, sizeof own, "%.*s", (int)row_length, row);
    const char *candidate = own, *last = row + row_length + 1;
    return oct_nearest_name(section, &candidate, 1) &&
           oct_nearest_name(name + length + 1, &last, 1);
}

const char *oct_schema_nearest(const oct_schema *schema, const char *name) {
    size_t length = section_length(name);
    const char *near = nearest_in_section(schema, name, length);
    if (near)
        return near;
    const char *last = length ? name + length + 1 : name;
    for (size_t i = 0; i < schema->n; i++) {
        const char *row = schema->keys[i].name;
        if (oct_edit_distance(row + section_length(row) + 1, last) == 0)
            return row;
    }
    size_t best_distance = SIZE_MAX;
    for (size_t i = 0; i < schema->n; i++) {
        const char *row = schema->keys[i].name;
        size_t distance = oct_edit_distance(name, row);
        if (distance < best_distance && near_in_both_parts(name, length, row)) {
            near = row;
            best_distance = distance;
        }
    }
    return near;
}

/* Length of the first `n_parts` parts of a dotted name; 0 when there are fewer, or no more. */
static size_t parts_length(const char *name, int n_parts) {
    const char *end = name;
    for (int i = 0; i < n_parts; i++) {
        end = strchr(end + (i > 0), '.');
        if (!end)
            return 0;
    }
    return (size_t)(end - name);
}

bool oct_schema_nearest_section(const oct_schema *schema, const char *name, char *text,
                                size_t size) {
    int n_parts = 1;
    for (const char *c = name; *c; c++)
        n_parts += *c == '.';
    size_t best_distance = SIZE_MAX;
    for (size_t i = 0; i < schema->n; i++) {
        size_t length = parts_length(schema->keys[i].name, n_parts);
        char section[128];
        if (!length || length >= sizeof section)
            continue;
        memcpy(section, schema->keys[i].name, length);
        section[length] = '\0';
        const char *candidate = section;
        size_t distance = oct_edit_distance(name, section);
        if (distance < best_distance && oct_nearest_name(name, &candidate, 1)) {
            best_distance = distance;
            snprintf(text, size, "%s", section);
        }
    }
    return best_distance != SIZE_MAX;
}

const char *oct_schema_choice(const char *choices, int index, size_t *length) {
    for (; index > 0; index--) {
        choices = strchr(choices, '|');
        if (!choices)
            return NULL;
        choices++;
    }
    *length = strcspn(choices, "|");
    return choices;
}

static const char *range_text(const oct_key *key) {
    switch (key->range) {
    case OCT_RANGE_COUNT:
        return " of at least 1";
    case OCT_RANGE_COUNT_OR_1M:
        return " of at least 1, or -1";
    case OCT_RANGE_INDEX:
    case OCT_RANGE_SEED:
    case OCT_RANGE_NOT_NEGATIVE:
        return " of at least 0";
    case OCT_RANGE_INDEX_OR_1M:
        return " of at least 0, or -1";
    case OCT_RANGE_POSITIVE:
        return " above 0";
    case OCT_RANGE_NORMAL:
        return " of at least 1.2e-38";
    case OCT_RANGE_FRACTION:
        return " from 0 to 1";
    case OCT_RANGE_BELOW_ONE:
        return " from 0 to below 1";
    case OCT_RANGE_ANY:
        break;
    }
    return "";
}

static void join_choices(const char *choices, char *text, size_t size) {
    size_t used = 0, length;
    const char *word;
    text[0] = '\0';
    for (int i = 0; (word = oct_schema_choice(choices, i, &length)) && used < size; i++) {
        const char *quote = length ? "" : "\"";
        used += (size_t)snprintf(text + used, size - used, "%s%s%.*s%s", i ? ", " : "", quote,
                                 (int)length, word, quote);
    }
}

void oct_schema_expected(const oct_key *key, char *text, size_t size) {
    static const char *const nouns[] = {"true or false",   "an integer", "a number", "a text",
                                        "a list of texts", "",           "",         "a table",
                                        "any value"};
    char words[256];
    if (key->choices) {
        join_choices(key->choices, words, sizeof words);
        snprintf(text, size, "%s%s", strchr(key->choices, '|') ? "one of " : "", words);
    } else if (key->kind == OCT_KEY_UNSUPPORTED) {
        snprintf(text, size, "%s", key->fallback[0] ? key->fallback : "an empty list");
    } else {
        snprintf(text, size, "%s%s", nouns[key->type], range_text(key));
    }
}
