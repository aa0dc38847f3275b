/* JSON for the files of this room: strict parsing by jansson with one-line errors, and writing by
 * hand into a string buffer. Internal to the room: the public structs know nothing of jansson. */
#ifndef OCT_FILE_JSON_H
#define OCT_FILE_JSON_H

#include <octet/status.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"

/* A name from outside, fit for one line of a message: control bytes become '?', long ones are cut.
 * Use it as an argument: oct_show(name).text. */
typedef struct oct_shown {
    char text[84];
} oct_shown;
oct_shown oct_show(const char *name);

/* Parses one object as Python's json module does, whose files these are; duplicate keys, NUL bytes
 * and anything behind the object are refused with NAME:LINE:COLUMN. A byte order mark is passed
 * over. NaN, Infinity, and numbers beyond a double become strings of their spelling, so that who
 * wants a number there refuses them and everybody else doesn't care; integers beyond int64 become
 * reals. The caller owns *root (json_decref). */
oct_status oct_json_parse(const char *text, size_t n_bytes, const char *name, json_t **root,
                          oct_error *err);

/* The same for files whose keys and strings may hold the escape \u0000, which no NUL-terminated
 * key can: *nul is the character that stands for it, one that occurs nowhere else in the text; 0
 * where there is no such escape. */
oct_status oct_json_parse_with_nul(const char *text, size_t n_bytes, const char *name,
                                   json_t **root, uint32_t *nul, oct_error *err);

/* The text as jansson can read it: with what Python's json module writes beyond JSON replaced as
 * above, \u0000 left as it is. *relaxed is within `text` where nothing had to be replaced, else in
 * `buffer` (check buffer->failed). */
void oct_json_relax(const char *text, size_t n_bytes, oct_strbuf *buffer, const char **relaxed,
                    size_t *n_relaxed);

/* "a string", "an integer", "nothing" for NULL, ... for messages. */
const char *oct_json_kind(const json_t *value);

/* A JSON string with its quotes. Bytes that aren't UTF-8 become U+FFFD. */
void oct_json_put_string(oct_strbuf *to, const char *text);
/* The same of bytes that may hold NUL. */
void oct_json_put_bytes(oct_strbuf *to, const char *text, size_t n_bytes);
/* The shortest decimal that reads back as `value`, whatever the locale; null when not finite. */
void oct_json_put_real(oct_strbuf *to, double value);
/* Any value, in the order that its members were read in; an object's members on lines of their own,
 * the outermost by `indent` columns, lists on one. */
void oct_json_put(oct_strbuf *to, const json_t *value, int indent);

/* A name of a file in a folder and nothing else: not empty, no '/', not "." or "..". */
bool oct_is_plain_file_name(const char *name);

#endif
