/* Added tokens in a text: see tokenizer_impl.h. The rules are the reference library's
 * (AddedVocabulary): of those that start at a place the longest is taken, before it's known whether
 * its neighbours let it stand. */
#include <string.h>
#include <utf8proc.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "text/tokenizer_impl.h"
#include "text/unicode.h"

#define NO_KEY UINT64_MAX

typedef struct oct_added_edge {
    uint64_t key; /* node << 8 | byte; NO_KEY: empty */
    int32_t to;
} oct_added_edge;

/* ---- the tree ---- */

static size_t slot_of(const oct_added_tree *tree, uint64_t key) {
    uint64_t hash = key * 0x9E3779B97F4A7C15u;
    size_t slot = (hash ^ hash >> 32) & (tree->n_slots - 1);
    while (tree->edges[slot].key != NO_KEY && tree->edges[slot].key != key)
        slot = (slot + 1) & (tree->n_slots - 1);
    return slot;
}

static int32_t follow(const oct_added_tree *tree, int32_t node, char byte) {
    const oct_added_edge *edge =
        &tree->edges[slot_of(tree, (uint64_t)(uint32_t)node << 8 | (uint8_t)byte)];
    return edge->key == NO_KEY ? -1 : edge->to;
}

static oct_status grow_edges(oct_added_tree *tree) {
    size_t n_old = tree->n_slots;
    oct_added_edge *old = tree->edges;
    size_t n_slots = n_old ? 2 * n_old : 256;
    oct_added_edge *edges = oct_malloc_array(n_slots, sizeof *edges);
    if (!edges)
        return OCT_NO_MEMORY;
    for (size_t i = 0; i < n_slots; i++)
        edges[i].key = NO_KEY;
    tree->edges = edges;
    tree->n_slots = n_slots;
    for (size_t i = 0; i < n_old; i++)
        if (old[i].key != NO_KEY)
            edges[slot_of(tree, old[i].key)] = old[i];
    oct_free(old);
    return OCT_OK;
}

static oct_status add_node(oct_added_tree *tree) {
    int32_t *grown = oct_grow_array(tree->values, tree->n_nodes, &tree->capacity, sizeof *grown);
    if (!grown)
        return OCT_NO_MEMORY;
    tree->values = grown;
    tree->values[tree->n_nodes++] = -1;
    return OCT_OK;
}

oct_status oct_added_tree_add(oct_added_tree *tree, const char *bytes, size_t n_bytes,
                              int32_t value, int32_t *taken) {
    oct_status status = tree->n_nodes ? OCT_OK : add_node(tree);
    int32_t node = 0;
    for (size_t i = 0; i < n_bytes && !status; i++) {
        if (2 * (tree->n_edges + 1) > tree->n_slots)
            status = grow_edges(tree);
        if (status)
            break;
        int32_t next = follow(tree, node, bytes[i]);
        if (next < 0) {
            uint64_t key = (uint64_t)(uint32_t)node << 8 | (uint8_t)bytes[i];
            next = (int32_t)tree->n_nodes;
            status = add_node(tree);
            tree->edges[slot_of(tree, key)] = (oct_added_edge){key, next};
            tree->n_edges++;
        }
        node = next;
    }
    if (status || n_bytes == 0)
        return status;
    *taken = tree->values[node];
    if (*taken >= 0)
        return OCT_INVALID;
    tree->values[node] = value;
    tree->starts[(uint8_t)bytes[0]] = true;
    return OCT_OK;
}

void oct_added_tree_free(oct_added_tree *tree) {
    oct_free(tree->edges);
    oct_free(tree->values);
    *tree = (oct_added_tree){0};
}

/* ---- in a text ---- */

/* The character at `at`; 0 at the end and for invalid bytes. */
static uint32_t char_at(const char *text, size_t at, size_t n) {
    utf8proc_int32_t c = 0;
    if (at >= n ||
        utf8proc_iterate((const uint8_t *)text + at, (utf8proc_ssize_t)(n - at), &c) <= 0)
        return 0;
    return (uint32_t)c;
}

static size_t start_of_char_before(const char *text, size_t at) {
    size_t start = at - 1;
    while (start > 0 && at - start < 4 && ((uint8_t)text[start] & 0xC0) == 0x80)
        start--;
    return start;
}

static bool stands_alone(const char *text, size_t start, size_t end, size_t n) {
    return !(start && oct_char_is_word(char_at(text, start_of_char_before(text, start), n))) &&
           !(end < n && oct_char_is_word(char_at(text, end, n)));
}

/* The longest token that starts at `at`; -1: none. */
static int32_t longest_at(const oct_added_tree *tree, const char *text, size_t at, size_t n,
                          size_t *end) {
    int32_t node = 0, found = -1;
    if (!tree->starts[(uint8_t)text[at]])
        return -1;
    for (size_t i = at; i < n; i++) {
        node = follow(tree, node, text[i]);
        if (node < 0)
            break;
        if (tree->values[node] >= 0) {
            found = tree->values[node];
            *end = i + 1;
        }
    }
    return found;
}

/* A run that the token before took already isn't taken again: then a token that is nothing but
 * white space may begin at its own end, or behind it. */
static void take_white_space(const oct_added_token *token, const char *text, size_t done, size_t n,
                             oct_added_match *match) {
    while (token->strip_left && match->start > done) {
        size_t before = start_of_char_before(text, match->start);
        if (before < done || !oct_char_is_space(char_at(text, before, n)))
            break;
        match->start = before;
    }
    if (token->strip_left && match->start < done)
        match->start = done;
    while (token->strip_right && match->end < n && oct_char_is_space(char_at(text, match->end, n)))
        match->end += oct_utf8_length(text + match->end, n - match->end);
}

oct_added_match oct_added_tree_find(const oct_added_tree *tree, const oct_added_token *tokens,
                                    const char *text, size_t from, size_t done, size_t n) {
    for (size_t at = from; at < n && tree->n_nodes;) {
        size_t end = at + 1;
        int32_t index = longest_at(tree, text, at, n, &end);
        if (index < 0 || (tokens[index].between_spaces && !stands_alone(text, at, end, n))) {
            at = end;
            continue;
        }
        oct_added_match match = {at, end, end, index};
        take_white_space(&tokens[index], text, done, n, &match);
        return match;
    }
    return (oct_added_match){n, n, n, -1};
}
