/* Typed texts as values: see text.h. */
#include "config/text.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool oct_text_is_bool(const char *text, bool *truth) {
    *truth = strcasecmp(text, "true") == 0;
    return *truth || strcasecmp(text, "false") == 0;
}

static bool parse_int(const char *text, int64_t *integer) {
    char *end;
    errno = 0;
    *integer = strtoll(text, &end, 10);
    return *text && !isspace((unsigned char)*text) && !*end && errno == 0;
}

/* Decimal, as in both forms of job file: strtod takes hexadecimal numbers too. */
static bool parse_double(const char *text, double *number) {
    char *end;
    *number = strtod(text, &end);
    return *text && !isspace((unsigned char)*text) && !*end && !strpbrk(text, "xX");
}

/* A text that isn't what the row takes stays a string, and the row's check says so. */
static const oct_value *parse_number(oct_loader *l, oct_key_type type, const char *text) {
    oct_value *v = oct_value_new_string(&l->builder, text, strlen(text), 0, 0);
    if (!v)
        return NULL;
    bool truth;
    int64_t integer;
    double number;
    if (type == OCT_KEY_BOOL && oct_text_is_bool(text, &truth)) {
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

/* Up to the next comma; those inside braces, as in layers.{0-20,22-40}, are of the item. */
static size_t item_length(const char *text) {
    size_t n = 0;
    for (bool inside = false; text[n] && (inside || text[n] != ','); n++)
        inside = text[n] == '{' || (inside && text[n] != '}');
    return n;
}

/* "a, b,c" as a list; an empty text is an empty list. */
static const oct_value *parse_list(oct_loader *l, const char *text) {
    oct_value *list = oct_value_new(&l->builder, OCT_VALUE_LIST, 0, 0);
    while (list && *text) {
        size_t length = item_length(text);
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

/* "WHAT" of ":LINE: WHAT", which is told of a text without a path. */
static const char *without_place(const char *message) {
    const char *what = strstr(message, ": ");
    return *message == ':' && what ? what + 2 : message;
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
                 "%s: --%s: %s; expected a value as a YAML file has it; got \"%.100s\"",
                 OCT_COMMAND_LINE, key->name, without_place(cause.message), text);
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
    case OCT_KEY_TABLES:
    case OCT_KEY_ANY:
        return parse_yaml(l, key, text);
    default:
        return oct_value_new_string(&l->builder, text, strlen(text), 0, 0);
    }
}

const oct_value *oct_loader_parse_scalar(oct_loader *l, const char *text) {
    bool truth;
    return parse_number(l, oct_text_is_bool(text, &truth) ? OCT_KEY_BOOL : OCT_KEY_FLOAT, text);
}
