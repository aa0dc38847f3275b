/* JSON helpers: see json.h. */
#include "io/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

oct_shown oct_show(const char *name) {
    oct_shown shown;
    size_t length = strlen(name), room = sizeof shown.text - 4;
    size_t n = length < room ? length : room;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)name[i];
        shown.text[i] = c < 0x20 || c == 0x7f ? '?' : (char)c;
    }
    strcpy(shown.text + n, length > room ? "..." : "");
    return shown;
}

oct_status oct_json_parse(const char *text, size_t n_bytes, const char *name, json_t **root,
                          oct_error *err) {
    json_error_t why;
    json_t *value = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, &why);
    if (!value) /* jansson calls a refused allocation a wrong token: ask twice before judging */
        value = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, &why);
    if (!value && (!why.text[0] || json_error_code(&why) == json_error_out_of_memory))
        return oct_fail_memory(err);
    if (!value)
        return oct_fail(err, OCT_INVALID, "%s:%d:%d: not JSON: %s", name, why.line, why.column,
                        oct_show(why.text).text);
    if (!json_is_object(value)) {
        oct_fail(err, OCT_INVALID, "%s:1: expected a JSON object; got %s", name,
                 oct_json_kind(value));
        json_decref(value);
        return OCT_INVALID;
    }
    *root = value;
    return OCT_OK;
}

const char *oct_json_kind(const json_t *value) {
    if (!value)
        return "nothing";
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a real number";
    case JSON_NULL:
        return "null";
    default:
        return "a boolean";
    }
}

void oct_json_put_string(oct_strbuf *to, const char *text) {
    oct_strbuf_append(to, "\"", 1);
    for (size_t left = strlen(text), n; left > 0; text += n, left -= n) {
        unsigned char c = (unsigned char)*text;
        n = oct_utf8_length(text, left);
        if (!n) {
            oct_strbuf_puts(to, "\xef\xbf\xbd");
            n = 1;
        } else if (c == '"' || c == '\\') {
            oct_strbuf_printf(to, "\\%c", c);
        } else if (c < 0x20) {
            oct_strbuf_printf(to, "\\u%04x", c);
        } else {
            oct_strbuf_append(to, text, n);
        }
    }
    oct_strbuf_append(to, "\"", 1);
}

void oct_json_put_real(oct_strbuf *to, double value) {
    char text[40];
    if (!isfinite(value)) {
        oct_strbuf_puts(to, "null");
        return;
    }
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    size_t point = strspn(text, "0123456789eE+-");
    if (text[point])
        text[point] = '.'; /* some locales write a comma */
    else if (!strpbrk(text, "eE"))
        strcat(text, ".0"); /* stays a real number for every reader */
    oct_strbuf_puts(to, text);
}

bool oct_is_plain_file_name(const char *name) {
    return name[0] && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}
