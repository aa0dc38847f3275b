/* Python's pickle read without running anything: a table of allowed opcodes and one of allowed
 * globals, which stay names. What a pickle would call, or make of a class, becomes a node that says
 * so. All else is refused. Source: Lib/pickletools.py.
 *
 * Invariant: what comes back is made of nodes of the kinds below alone; it may share nodes, and
 * hold itself, so that readers go a fixed way down and never over all of it. */
#ifndef OCT_TENSORS_UNPICKLE_H
#define OCT_TENSORS_UNPICKLE_H

#include <octet/status.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"

typedef enum oct_pickle_kind {
    OCT_PICKLE_IS_NONE,
    OCT_PICKLE_IS_BOOL,
    OCT_PICKLE_IS_INT,
    OCT_PICKLE_IS_TEXT,
    OCT_PICKLE_IS_TUPLE,
    OCT_PICKLE_IS_LIST,
    OCT_PICKLE_IS_DICT,   /* items: key, value, key, value, ... */
    OCT_PICKLE_IS_GLOBAL, /* text: "torch.Size" */
    OCT_PICKLE_IS_OBJECT, /* of a global: its arguments, then a state */
    OCT_PICKLE_IS_OUTSIDE /* a persistent id: items is the tuple's */
} oct_pickle_kind;

typedef struct oct_pickle oct_pickle;
struct oct_pickle {
    oct_pickle_kind kind;
    int64_t number;         /* of a bool or an int */
    const char *text;       /* NUL-terminated UTF-8 without NUL */
    const oct_pickle *made; /* object: the global */
    oct_pickle *state;      /* object: NULL, none */
    oct_pickle **items;     /* of a tuple, list or dict; of an object the arguments */
    size_t n, capacity;
};

/* Reads all of `bytes`. The nodes live in `arena`; `name` stands for the file in messages.
 * OCT_INVALID names the byte, the opcode or the global that isn't allowed. */
oct_status oct_unpickle(const void *bytes, size_t n, const char *name, oct_arena *arena,
                        const oct_pickle **root, oct_error *err);

/* NULL unless the node (which may be NULL) is of that kind, or an object of that global. */
const char *oct_pickle_text(const oct_pickle *node);
const oct_pickle *oct_pickle_of(const oct_pickle *node, oct_pickle_kind kind);
const oct_pickle *oct_pickle_object(const oct_pickle *node, const char *global);
/* The value of a text key of a dict, or of an object's state that is one; the last, if there are
 * several; NULL: there is none. */
const oct_pickle *oct_pickle_member(const oct_pickle *node, const char *key);

#endif
