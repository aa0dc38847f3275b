/* The table of known keys: one row a key, for each form of job file. Loading, the command line,
 * the listing of keys and the documentation all read these rows, so a key is described once.
 *
 * Invariant: a row with an offset points to a member of oct_job of the row's C type; a default text
 * is a legal value of its row. */
#ifndef OCT_CONFIG_SCHEMA_H
#define OCT_CONFIG_SCHEMA_H

#include <stddef.h>

#include "config/job.h"

typedef enum oct_key_type {
    OCT_KEY_BOOL,   /* bool */
    OCT_KEY_INT,    /* int64_t */
    OCT_KEY_FLOAT,  /* double; an integer is fine */
    OCT_KEY_STRING, /* const char *; NULL when the default is "none" and nothing is given */
    OCT_KEY_LIST,   /* oct_job_list of strings; a bare string is split at commas */
    OCT_KEY_CHOICE, /* an enum: the index in `choices` */
    OCT_KEY_WORD,   /* const char *, one of `choices` */
    OCT_KEY_TABLE,  /* const oct_value *: keys of any name below it */
    OCT_KEY_TABLES, /* oct_job_overrides: a list of tables */
    OCT_KEY_ANY     /* whatever the other trainer takes; without a member */
} oct_key_type;

typedef enum oct_key_class {
    OCT_KEY_USED,
    OCT_KEY_INERT,      /* its effect can't apply here: accepted, named in the log */
    OCT_KEY_UNSUPPORTED /* it would change the result: only the default, or `choices`, is accepted
                         */
} oct_key_class;

typedef enum oct_key_range {
    OCT_RANGE_ANY,         /* floats: finite */
    OCT_RANGE_COUNT,       /* 1 .. 2^31 - 1 */
    OCT_RANGE_COUNT_OR_1M, /* the same, or -1 */
    OCT_RANGE_INDEX,       /* 0 .. 2^31 - 1 */
    OCT_RANGE_INDEX_OR_1M, /* the same, or -1 */
    OCT_RANGE_SEED,        /* >= 0 */
    OCT_RANGE_NOT_NEGATIVE,
    OCT_RANGE_POSITIVE, /* > 0, infinity too */
    OCT_RANGE_NORMAL,   /* > 0, finite, and a normal number in fp32 */
    OCT_RANGE_FRACTION, /* 0 .. 1 */
    OCT_RANGE_BELOW_ONE /* 0 <= x < 1 */
} oct_key_range;

typedef struct oct_key {
    const char *name; /* "section.key" */
    oct_key_type type;
    oct_key_class kind;
    const char *fallback; /* the default, as one would type it after `--section.key=`; "none" leaves
                             -1 in an int or float, NULL in a string or table */
    oct_key_range range;
    const char *choices;   /* "a|b|c" */
    ptrdiff_t offset;      /* of the member of oct_job; -1: none */
    const char *meaning;   /* for the user: what it does, or why it has no effect */
    const char *target;    /* YAML: the TOML key that names the same member, or the key of this form
                              that this one is another spelling of, or NULL */
    oct_job_effect effect; /* of a used key; a YAML key with a target has that one's */
} oct_key;

#define OCT_NO_MEMBER ((ptrdiff_t)-1)

/* The words of quantize.rules, in both forms. */
#define OCT_QUANTIZE_RULES "framework|octet|torchtitan-npu@0.2.2|mindspeed@2026-07|torchtitan@0.2.2"

typedef struct oct_schema {
    const oct_key *keys;
    size_t n;
} oct_schema;

extern const oct_schema oct_schema_titan;
extern const oct_schema oct_schema_mindspeed;

/* The row of `name` (`-` equals `_`), or NULL. */
const oct_key *oct_schema_find(const oct_schema *schema, const char *name, size_t length);
/* True when some row's name starts with `name` and a dot. */
bool oct_schema_has_section(const oct_schema *schema, const char *name, size_t length);
/* "did you mean" for an unknown name: a key of the same section, the same key in another section,
 * or any key; NULL when none is near. */
const char *oct_schema_nearest(const oct_schema *schema, const char *name);
/* The section nearest to `name`, of as many parts, into `text`; false when none is near. */
bool oct_schema_nearest_section(const oct_schema *schema, const char *name, char *text,
                                size_t size);
/* The place of word number `index` in "a|b|c" and its length; NULL past the end. */
const char *oct_schema_choice(const char *choices, int index, size_t *length);
/* "an integer of at least 1": what the row takes, into `text`. */
void oct_schema_expected(const oct_key *key, char *text, size_t size);

#endif
