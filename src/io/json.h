/* JSON for the files of this room: strict parsing by jansson with one-line errors, and writing by
 * hand into a string buffer. Internal to the room: the public structs know nothing of jansson. */
#ifndef OCT_IO_JSON_H
#define OCT_IO_JSON_H

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

/* Parses one object; duplicate keys, NUL bytes and anything behind the object are refused with
 * NAME:LINE:COLUMN. The caller owns *root (json_decref). */
oct_status oct_json_parse(const char *text, size_t n_bytes, const char *name, json_t **root,
                          oct_error *err);

/* "a string", "an integer", "nothing" for NULL, ... for messages. */
const char *oct_json_kind(const json_t *value);

/* A JSON string with its quotes. Bytes that aren't UTF-8 become U+FFFD. */
void oct_json_put_string(oct_strbuf *to, const char *text);
/* The shortest decimal that reads back as `value`, whatever the locale; null when not finite. */
void oct_json_put_real(oct_strbuf *to, double value);

/* A name of a file in a folder and nothing else: not empty, no '/', not "." or "..". */
bool oct_is_plain_file_name(const char *name);

#endif
