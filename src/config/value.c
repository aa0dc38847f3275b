/* The tree of values: see value.h. Depth and size are counted where nodes are joined, so no reader
 * can build a tree that breaks the limits, and no walker needs a check of its own. */
#include "config/value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static size_t n_nodes_of(const oct_value *v) {
    return v->kind >= OCT_VALUE_LIST ? v->items.n_nodes : 1;
}

static int depth_of(const oct_value *v) {
    return v->kind >= OCT_VALUE_LIST ? v->items.depth : 0;
}

const oct_value *oct_value_find(const oct_value *table, const char *key) {
    if (!table || table->kind != OCT_VALUE_TABLE)
        return NULL;
    for (const oct_value *item = table->items.first; item; item = item->next)
        if (strcmp(item->key, key) == 0)
            return item;
    return NULL;
}

const char *oct_value_kind_name(oct_value_kind kind) {
    static const char *const names[] = {"nothing",  "a boolean", "an integer", "a float",
                                        "a string", "a list",    "a table"};
    return names[kind];
}

void oct_value_format_double(double x, char *text, size_t size) {
    if (!isfinite(x)) {
        snprintf(text, size, "%s", isnan(x) ? "nan" : x < 0 ? "-inf" : "inf");
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, size, "%.*g", digits, x);
        if (strtod(text, NULL) == x)
            break;
    }
    size_t length = strlen(text);
    if (!strpbrk(text, ".e") && length + 3 <= size)
        memcpy(text + length, ".0", 3);
}

oct_value *oct_value_new(oct_value_builder *b, oct_value_kind kind, int line, int column) {
    oct_value *v = oct_arena_alloc(b->arena, sizeof *v);
    if (!v) {
        oct_fail_memory(b->err);
        return NULL;
    }
    *v = (oct_value){.kind = kind, .line = line, .column = column};
    if (kind >= OCT_VALUE_LIST) {
        v->items.n_nodes = 1;
        v->items.depth = 1;
    }
    return v;
}

static const char *copy_text(oct_value_builder *b, const char *text, size_t n_bytes, int line) {
    if (n_bytes && memchr(text, '\0', n_bytes)) {
        oct_fail(b->err, OCT_INVALID, "%s:%d: a text holds a NUL character", b->path, line);
        return NULL;
    }
    char *copy = oct_arena_alloc(b->arena, n_bytes + 1);
    if (!copy) {
        oct_fail_memory(b->err);
        return NULL;
    }
    if (n_bytes)
        memcpy(copy, text, n_bytes);
    copy[n_bytes] = '\0';
    return copy;
}

oct_value *oct_value_new_string(oct_value_builder *b, const char *text, size_t n_bytes, int line,
                                int column) {
    oct_value *v = oct_value_new(b, OCT_VALUE_STRING, line, column);
    if (!v || !(v->string = copy_text(b, text, n_bytes, line)))
        return NULL;
    return v;
}

oct_value *oct_value_copy(oct_value_builder *b, const oct_value *from) {
    oct_value *v = oct_value_new(b, from->kind, from->line, from->column);
    if (!v)
        return NULL;
    *v = *from;
    v->key = NULL;
    v->next = NULL;
    return v;
}

static oct_status check_key(oct_value_builder *b, const oct_value *table, const char *key,
                            int line) {
    const oct_value *twin = oct_value_find(table, key);
    if (twin)
        return oct_fail(b->err, OCT_INVALID, "%s:%d: %s: a key is given twice; first on line %d",
                        b->path, line, key, twin->line);
    if (table->items.n >= OCT_VALUE_MAX_KEYS)
        return oct_fail(b->err, OCT_INVALID, "%s:%d: too many keys in one table; at most %d",
                        b->path, line, OCT_VALUE_MAX_KEYS);
    return OCT_OK;
}

oct_status oct_value_append(oct_value_builder *b, oct_value *parent, const char *key,
                            size_t key_bytes, oct_value *item) {
    if (key) {
        const char *copy = copy_text(b, key, key_bytes, item->line);
        if (!copy)
            return b->err->status;
        oct_status status = check_key(b, parent, copy, item->line);
        if (status)
            return status;
        item->key = copy;
    }
    if (depth_of(item) + 1 > parent->items.depth)
        parent->items.depth = depth_of(item) + 1;
    parent->items.n_nodes += n_nodes_of(item);
    if (parent->items.depth > OCT_VALUE_MAX_DEPTH)
        return oct_fail(b->err, OCT_INVALID, "%s:%d: nested too deeply; at most %d levels", b->path,
                        item->line, OCT_VALUE_MAX_DEPTH);
    if (parent->items.n_nodes > OCT_VALUE_MAX_NODES)
        return oct_fail(b->err, OCT_INVALID, "%s:%d: too many values; at most %zu", b->path,
                        item->line, OCT_VALUE_MAX_NODES);
    if (parent->items.last)
        parent->items.last->next = item;
    else
        parent->items.first = item;
    parent->items.last = item;
    parent->items.n++;
    return OCT_OK;
}
