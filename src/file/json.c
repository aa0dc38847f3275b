/* JSON helpers: see json.h. */
#include "file/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/count.h"
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

/* ---- what Python writes beyond JSON ---- */

#define BYTE_ORDER_MARK "\xef\xbb\xbf"
#define NUL_ESCAPE "\\u0000"
#define LONGEST_INT64 19 /* digits */

/* A walk over a text that copies it into `to` from the first replacement on. */
typedef struct relaxing {
    const char *text;
    size_t n, at;
    oct_strbuf *to;
    size_t copied;    /* of text, into `to` */
    char nul_mark[4]; /* stands for the escape of NUL; "": it is left */
} relaxing;

/* Replaces the next n_old bytes. */
static void replace(relaxing *r, size_t n_old, const char *new_text) {
    oct_strbuf_append(r->to, r->text + r->copied, r->at - r->copied);
    oct_strbuf_puts(r->to, new_text);
    r->at += n_old;
    r->copied = r->at;
}

static bool starts_with(const relaxing *r, const char *word) {
    size_t n = strlen(word);
    return n <= r->n - r->at && memcmp(r->text + r->at, word, n) == 0;
}

static void relax_string(relaxing *r) {
    for (r->at++; r->at < r->n && r->text[r->at] != '"';) {
        if (r->text[r->at] != '\\')
            r->at++;
        else if (r->nul_mark[0] && starts_with(r, NUL_ESCAPE))
            replace(r, strlen(NUL_ESCAPE), r->nul_mark);
        else
            r->at += 2;
    }
    r->at++;
}

/* Integers that int64 can't hold become reals; what a double can't hold becomes a string. */
static void relax_number(relaxing *r) {
    const char *start = r->text + r->at;
    size_t n = 0, left = r->n - r->at;
    while (n < left && start[n] && strchr("+-.0123456789eE", start[n]))
        n++;
    bool whole = !memchr(start, '.', n) && !memchr(start, 'e', n) && !memchr(start, 'E', n);
    char spelling[512];
    if ((whole && n < LONGEST_INT64) || n + 3 > sizeof spelling) {
        r->at += n;
        return;
    }
    snprintf(spelling, sizeof spelling, "\"%.*s\"", (int)n, start);
    if (!isfinite(strtod(spelling + 1, NULL))) {
        replace(r, n, spelling);
        return;
    }
    errno = 0;
    strtoll(spelling + 1, NULL, 10);
    if (whole && errno == ERANGE) {
        snprintf(spelling, sizeof spelling, "%.*se0", (int)n, start);
        replace(r, n, spelling);
        return;
    }
    r->at += n;
}

static void relax_value(relaxing *r) {
    static const char *const words[][2] = {
        {"NaN", "\"NaN\""}, {"Infinity", "\"Infinity\""}, {"-Infinity", "\"-Infinity\""}};
    char c = r->text[r->at];
    for (size_t i = 0; i < OCT_COUNT(words); i++) {
        if (c == words[i][0][0] && starts_with(r, words[i][0])) {
            replace(r, strlen(words[i][0]), words[i][1]);
            return;
        }
    }
    if (c == '"')
        relax_string(r);
    else if (c == '-' || (c >= '0' && c <= '9'))
        relax_number(r);
    else
        r->at++;
}

static void relax(relaxing *r, const char **relaxed, size_t *n_relaxed) {
    if (starts_with(r, BYTE_ORDER_MARK))
        r->at = r->copied = strlen(BYTE_ORDER_MARK);
    size_t start = r->at;
    while (r->at < r->n)
        relax_value(r);
    *relaxed = r->text + start;
    *n_relaxed = r->n - start;
    if (r->copied == start)
        return;
    oct_strbuf_append(r->to, r->text + r->copied, r->n - r->copied);
    *relaxed = r->to->text;
    *n_relaxed = r->to->length;
}

void oct_json_relax(const char *text, size_t n_bytes, oct_strbuf *buffer, const char **relaxed,
                    size_t *n_relaxed) {
    relaxing r = {.text = text, .n = n_bytes, .to = buffer};
    relax(&r, relaxed, n_relaxed);
}

/* U+FDD0 and the 31 after it are no characters, so that texts don't hold them; the first of them
 * that isn't in this text, spelt or escaped. 0: all are. */
static uint32_t unused_character(const char *text, size_t n_bytes) {
    for (uint32_t c = 0xFDD0; c <= 0xFDEF; c++) {
        char spelt[4] = {(char)0xef, (char)0xb7, (char)(0x80 | (c & 0x3f)), 0}, escaped[7];
        snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)c);
        bool used = memmem(text, n_bytes, spelt, 3) != NULL;
        for (size_t i = 0; i + 6 <= n_bytes && !used; i++)
            used = text[i] == '\\' && strncasecmp(text + i, escaped, 6) == 0;
        if (!used)
            return c;
    }
    return 0;
}

/* ---- parsing ---- */

static oct_status parse(const char *text, size_t n_bytes, const char *name, json_t **root,
                        oct_error *err) {
    json_error_t why;
    json_t *value = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, &why);
    if (!value) /* jansson calls a refused allocation a wrong token: ask twice before judging */
        value = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, &why);
    if (!value && (!why.text[0] || json_error_code(&why) == json_error_out_of_memory))
        return oct_fail_memory(err);
    if (!value && json_error_code(&why) == json_error_duplicate_key)
        return oct_fail(err, OCT_INVALID, "%s:%d:%d: a key is there twice: %s", name, why.line,
                        why.column, oct_show(why.text).text);
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

static oct_status relax_and_parse(relaxing r, const char *name, json_t **root, oct_error *err) {
    oct_strbuf buffer = {0};
    const char *relaxed;
    size_t n;
    r.to = &buffer;
    relax(&r, &relaxed, &n);
    oct_status status = buffer.failed ? oct_fail_memory(err) : parse(relaxed, n, name, root, err);
    oct_strbuf_free(&buffer);
    return status;
}

oct_status oct_json_parse(const char *text, size_t n_bytes, const char *name, json_t **root,
                          oct_error *err) {
    relaxing r = {.text = text, .n = n_bytes};
    return relax_and_parse(r, name, root, err);
}

oct_status oct_json_parse_with_nul(const char *text, size_t n_bytes, const char *name,
                                   json_t **root, uint32_t *nul, oct_error *err) {
    relaxing r = {.text = text, .n = n_bytes};
    *nul =
        memmem(text, n_bytes, NUL_ESCAPE, strlen(NUL_ESCAPE)) ? unused_character(text, n_bytes) : 0;
    if (*nul) {
        const char mark[4] = {(char)0xef, (char)0xb7, (char)(0x80 | (*nul & 0x3f)), 0};
        memcpy(r.nul_mark, mark, sizeof mark);
    }
    return relax_and_parse(r, name, root, err);
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
    oct_json_put_bytes(to, text, strlen(text));
}

void oct_json_put_bytes(oct_strbuf *to, const char *text, size_t n_bytes) {
    oct_strbuf_append(to, "\"", 1);
    for (size_t left = n_bytes, n; left > 0; text += n, left -= n) {
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

static void put_members(oct_strbuf *to, const json_t *object, int indent) {
    const char *key, *comma = "";
    json_t *member;
    oct_strbuf_puts(to, "{");
    json_object_foreach((json_t *)(uintptr_t)object, key, member) {
        oct_strbuf_printf(to, "%s\n%*s", comma, indent, "");
        oct_json_put_string(to, key);
        oct_strbuf_puts(to, ": ");
        oct_json_put(to, member, indent + 2);
        comma = ",";
    }
    if (*comma)
        oct_strbuf_printf(to, "\n%*s", indent - 2, "");
    oct_strbuf_puts(to, "}");
}

void oct_json_put(oct_strbuf *to, const json_t *value, int indent) {
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        put_members(to, value, indent);
        return;
    case JSON_ARRAY:
        oct_strbuf_puts(to, "[");
        for (size_t i = 0; i < json_array_size(value); i++) {
            oct_strbuf_puts(to, i ? ", " : "");
            oct_json_put(to, json_array_get(value, i), indent);
        }
        oct_strbuf_puts(to, "]");
        return;
    case JSON_STRING:
        oct_json_put_string(to, json_string_value(value));
        return;
    case JSON_INTEGER:
        oct_strbuf_printf(to, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        return;
    case JSON_REAL:
        oct_json_put_real(to, json_real_value(value));
        return;
    case JSON_TRUE:
    case JSON_FALSE:
        oct_strbuf_puts(to, json_is_true(value) ? "true" : "false");
        return;
    case JSON_NULL:
        oct_strbuf_puts(to, "null");
        return;
    }
}

bool oct_is_plain_file_name(const char *name) {
    return name[0] && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}
