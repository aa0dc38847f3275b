/* One tree of values with positions: what a TOML or a YAML file says, before anyone asks what it
 * means. Both readers build it, both schemas read it.
 *
 * Invariant: the tree is immutable after reading, at most OCT_VALUE_MAX_DEPTH deep and
 * OCT_VALUE_MAX_NODES large (what aliases of YAML repeat counted each time); keys of a table are
 * distinct and keep the order of the file; every node knows its line and column (from 1; 0 where
 * the node has no place in a file). All of it lives in one arena that the caller owns. */
#ifndef OCT_CONFIG_VALUE_H
#define OCT_CONFIG_VALUE_H

#include <octet/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"

#ifdef __cplusplus
extern "C" {
#endif

#define OCT_VALUE_MAX_BYTES ((size_t)16 << 20)
#define OCT_VALUE_MAX_DEPTH 64
#define OCT_VALUE_MAX_NODES ((size_t)1 << 18)
#define OCT_VALUE_MAX_KEYS 1024 /* in one table: bounds the search for duplicates */

typedef enum oct_value_kind {
    OCT_VALUE_NULL,
    OCT_VALUE_BOOL,
    OCT_VALUE_INT,
    OCT_VALUE_DOUBLE,
    OCT_VALUE_STRING,
    OCT_VALUE_LIST,
    OCT_VALUE_TABLE
} oct_value_kind;

typedef struct oct_value oct_value;
struct oct_value {
    oct_value_kind kind;
    int line, column;
    const char *key;       /* name in the table that holds it, else NULL */
    const oct_value *next; /* next item of the list or table that holds it */
    union {
        bool boolean;
        int64_t integer;
        double number;
        const char *string; /* NUL-terminated UTF-8 without inner NUL */
        struct {
            const oct_value *first;
            oct_value *last; /* for building */
            size_t n;
            size_t n_nodes; /* of this subtree, itself included */
            int depth;      /* 1 = holds scalars only */
        } items;            /* of a list or a table */
    };
};

/* The item of a table, or NULL. Keys compare exactly. */
const oct_value *oct_value_find(const oct_value *table, const char *key);
/* "a string", "an integer", ...: for messages. */
const char *oct_value_kind_name(oct_value_kind kind);
/* The shortest text that reads back as `x`, always with the look of a float. */
void oct_value_format_double(double x, char *text, size_t size);

/* Both read `path`, or the n_bytes of `text` under the name `path` in messages, into `arena`. The
 * root is a table (an empty file is an empty table). Bad syntax, duplicate keys, files too large
 * or too deep are OCT_INVALID with FILE:LINE. On failure *root is NULL. */
oct_status oct_toml_read(const char *path, oct_arena *arena, const oct_value **root,
                         oct_error *err);
oct_status oct_toml_parse(const char *path, const char *text, size_t n_bytes, oct_arena *arena,
                          const oct_value **root, oct_error *err);
/* YAML 1.1 as PyYAML's safe loader reads it, floats also without a dot (`1e-5`), as job files
 * mean it; aliases and merge keys (`<<`) are resolved; one document. */
oct_status oct_yaml_read(const char *path, oct_arena *arena, const oct_value **root,
                         oct_error *err);
oct_status oct_yaml_parse(const char *path, const char *text, size_t n_bytes, oct_arena *arena,
                          const oct_value **root, oct_error *err);
/* One value, which may be no table, of a text that lies in no file: its nodes have no place. */
oct_status oct_yaml_parse_value(const char *text, oct_arena *arena, const oct_value **value,
                                oct_error *err);

/* For the readers: a tree under construction. */
typedef struct oct_value_builder {
    const char *path;
    oct_arena *arena;
    oct_error *err; /* never NULL */
} oct_value_builder;
/* A new node, or NULL with the error filled. */
oct_value *oct_value_new(oct_value_builder *b, oct_value_kind kind, int line, int column);
oct_value *oct_value_new_string(oct_value_builder *b, const char *text, size_t n_bytes, int line,
                                int column);
/* A copy of `from` to hang elsewhere; items are shared, which is fine as they never change. */
oct_value *oct_value_copy(oct_value_builder *b, const oct_value *from);
/* Appends to a list (key NULL) or a table (key copied; a key already there is an error). */
oct_status oct_value_append(oct_value_builder *b, oct_value *parent, const char *key,
                            size_t key_bytes, oct_value *item);

#ifdef __cplusplus
}
#endif
#endif
