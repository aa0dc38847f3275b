/* Encoding of one word: see bpe.h. A doubly linked list of tokens and a heap of the mergeable pairs
 * give n log n in the length of the word; a small cache answers for the words that come again and
 * again.
 *
 * A long word is worked on window by window. What follows a window isn't known, so neither is what
 * becomes of the tokens at its end; the frontier is the last token that is known. Merges are made
 * in the order of their ranks, and of equal ones from the left, so a token is known for as long as
 * no merge with what could follow it comes before the merge at hand. What could follow is a token
 * that begins the bytes behind it and is at least as long as the one that stood there when it
 * ceased to be known. Tokens up to the frontier when all merges are made are those of the whole
 * word, and the rest of it starts the next window: no merge reaches across the end of a token that
 * is known.
 *
 * Invariant: nodes[i].rank is the rank of the pair (i, its successor) or NO_MERGE, so an entry of
 * the heap is stale exactly when its rank isn't its node's. */
#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "text/bpe.h"

#define NO_MERGE UINT32_MAX
#define WINDOW_BYTES ((size_t)1 << 10) /* its nodes and pairs stay in the first cache */
#define CACHE_SLOTS 32768u             /* a power of two */
#define CACHE_BYTES 24
#define CACHE_IDS 8

typedef struct oct_bpe_node {
    int32_t id, merged; /* merged: what this and the next one become */
    int32_t previous, next;
    uint32_t rank;
} oct_bpe_node;

typedef struct oct_bpe_cached {
    uint8_t n_bytes, n_ids; /* n_bytes 0: empty */
    char bytes[CACHE_BYTES];
    int32_t ids[CACHE_IDS];
} oct_bpe_cached;

void oct_bpe_scratch_free(oct_bpe_scratch *scratch) {
    oct_free(scratch->nodes);
    oct_free(scratch->heap);
    oct_free(scratch->cache);
    *scratch = (oct_bpe_scratch){0};
}

/* A pair is its rank and, in the lower half, the node it's at: the smaller comes first. */
static uint64_t pair_at(uint32_t rank, int32_t at) {
    return (uint64_t)rank << 32 | (uint32_t)at;
}

static uint32_t rank_of(uint64_t pair) {
    return (uint32_t)(pair >> 32);
}

static int32_t place_of(uint64_t pair) {
    return (int32_t)(uint32_t)pair;
}

static void sift_up(uint64_t *heap, size_t i, uint64_t pair) {
    for (; i > 0 && pair < heap[(i - 1) / 2]; i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = pair;
}

static void heap_push(oct_bpe_scratch *s, uint64_t pair) {
    sift_up(s->heap, s->heap_n++, pair);
}

/* The smaller child moves up into the hole until it's at the bottom, where the last entry mostly
 * belongs: that asks half the questions, and none whose answer is hard to foretell. */
static uint64_t heap_pop(oct_bpe_scratch *s) {
    uint64_t *heap = s->heap, top = heap[0];
    size_t n = --s->heap_n, i = 0, child;
    for (child = 1; child + 1 < n; child = 2 * i + 1) {
        child += heap[child + 1] < heap[child];
        heap[i] = heap[child];
        i = child;
    }
    if (child < n) {
        heap[i] = heap[child];
        i = child;
    }
    sift_up(heap, i, heap[n]);
    return top;
}

static void heap_order(oct_bpe_scratch *s) {
    uint64_t *heap = s->heap;
    for (size_t start = s->heap_n / 2; start-- > 0;) {
        uint64_t pair = heap[start];
        size_t i = start;
        for (size_t child = 2 * i + 1; child < s->heap_n; child = 2 * i + 1) {
            child += child + 1 < s->heap_n && heap[child + 1] < heap[child];
            if (pair <= heap[child])
                break;
            heap[i] = heap[child];
            i = child;
        }
        heap[i] = pair;
    }
}

/* Each merge takes one entry off and puts at most two on, and there are fewer than n merges. */
static oct_status reserve(oct_bpe_scratch *s, size_t n) {
    if (n <= s->node_capacity)
        return OCT_OK;
    size_t capacity = s->node_capacity ? s->node_capacity : 256;
    while (capacity < n)
        capacity *= 2;
    oct_bpe_node *nodes = oct_realloc_array(s->nodes, capacity, sizeof *nodes);
    if (nodes)
        s->nodes = nodes;
    uint64_t *heap = oct_realloc_array(s->heap, capacity, 2 * sizeof *heap);
    if (heap)
        s->heap = heap;
    if (!nodes || !heap)
        return OCT_NO_MEMORY;
    s->node_capacity = capacity;
    return OCT_OK;
}

static void set_pair(oct_bpe_scratch *s, int32_t at, const oct_bpe_merge *merge) {
    s->nodes[at].rank = merge->rank;
    s->nodes[at].merged = merge->id;
}

static void look_up_pair(const oct_bpe *bpe, oct_bpe_scratch *s, int32_t at) {
    oct_bpe_node *node = &s->nodes[at];
    node->rank = NO_MERGE;
    if (node->next < 0)
        return;
    const oct_bpe_merge *merge = oct_bpe_find_merge(bpe, node->id, s->nodes[node->next].id);
    if (!merge)
        return;
    set_pair(s, at, merge);
    heap_push(s, pair_at(merge->rank, at));
}

static void merge_at(const oct_bpe *bpe, oct_bpe_scratch *s, int32_t at) {
    oct_bpe_node *node = &s->nodes[at], *gone = &s->nodes[node->next];
    node->id = node->merged;
    node->next = gone->next;
    gone->rank = NO_MERGE;
    if (node->next >= 0)
        s->nodes[node->next].previous = at;
    if (node->previous >= 0)
        look_up_pair(bpe, s, node->previous);
    look_up_pair(bpe, s, at);
}

/* A node for each byte, but one for a run of unknown bytes where those are fused. Returns how many;
 * 0: a byte has no token. */
static size_t start_nodes(const oct_bpe *bpe, oct_bpe_scratch *s, const uint8_t *word, size_t n) {
    size_t count = 0;
    bool after_unknown = false;
    for (size_t i = 0; i < n; i++) {
        int32_t id = bpe->byte_id[word[i]];
        bool unknown = id < 0;
        if (unknown && bpe->unk < 0)
            return 0;
        if (!(unknown && after_unknown && bpe->fuse_unk)) {
            s->nodes[count] = (oct_bpe_node){unknown ? bpe->unk : id, -1, (int32_t)count - 1,
                                             (int32_t)count + 1, NO_MERGE};
            count++;
        }
        after_unknown = unknown;
    }
    s->nodes[count - 1].next = -1;
    return count;
}

/* A node for each character, numbered by its first byte. Returns the last one. */
static int32_t start_characters(const oct_bpe *bpe, oct_bpe_scratch *s, const char *word,
                                size_t n) {
    int32_t last = -1;
    for (size_t i = 0, length; i < n; i += length) {
        length = oct_utf8_length(word + i, n - i);
        length = length ? length : 1;
        s->nodes[i] = (oct_bpe_node){oct_bpe_find(bpe, word + i, length), -1, last,
                                     (int32_t)(i + length), NO_MERGE};
        last = (int32_t)i;
    }
    s->nodes[last].next = -1;
    return last;
}

static void look_up_characters(const oct_bpe *bpe, oct_bpe_scratch *s) {
    s->heap_n = 0;
    for (int32_t at = 0; at >= 0; at = s->nodes[at].next) {
        const oct_bpe_node *node = &s->nodes[at];
        const oct_bpe_merge *merge =
            node->next < 0 ? NULL : oct_bpe_find_merge(bpe, node->id, s->nodes[node->next].id);
        if (!merge)
            continue;
        set_pair(s, at, merge);
        s->heap[s->heap_n++] = pair_at(merge->rank, at);
    }
    heap_order(s);
}

/* The pairs of the nodes that start_nodes made, of n bytes each of which has a token. */
static void look_up_bytes(const oct_bpe *bpe, oct_bpe_scratch *s, const uint8_t *word, size_t n) {
    s->heap_n = 0;
    for (size_t i = 0; i + 1 < n && bpe->byte_merges; i++) {
        const oct_bpe_merge *merge = &bpe->byte_merges[word[i] << 8 | word[i + 1]];
        if (merge->pair == UINT64_MAX)
            continue;
        set_pair(s, (int32_t)i, merge);
        s->heap[s->heap_n++] = pair_at(merge->rank, (int32_t)i);
    }
    heap_order(s);
}

/* The same where some bytes may be unknown. */
static void look_up_nodes(const oct_bpe *bpe, oct_bpe_scratch *s, const uint8_t *word, size_t n,
                          size_t n_nodes) {
    if (bpe->unk < 0 || oct_bpe_missing_byte(bpe, (const char *)word, n) < 0) {
        look_up_bytes(bpe, s, word, n);
        return;
    }
    s->heap_n = 0;
    for (size_t i = 0; i < n_nodes; i++)
        look_up_pair(bpe, s, (int32_t)i);
}

static oct_status append_nodes(const oct_bpe_scratch *s, int32_t last, oct_token_list *ids) {
    oct_status status = OCT_OK;
    for (int32_t at = 0; at >= 0 && at <= last && !status; at = s->nodes[at].next)
        status = oct_token_list_append(ids, &s->nodes[at].id, 1);
    return status;
}

static oct_status merge_word(const oct_bpe *bpe, oct_bpe_scratch *s, const uint8_t *word, size_t n,
                             oct_token_list *ids) {
    oct_status status = reserve(s, n);
    if (status)
        return status;
    if (bpe->by_character) {
        start_characters(bpe, s, (const char *)word, n);
        look_up_characters(bpe, s);
    } else {
        size_t n_nodes = start_nodes(bpe, s, word, n);
        if (n_nodes == 0)
            return OCT_INVALID;
        look_up_nodes(bpe, s, word, n, n_nodes);
    }
    while (s->heap_n) {
        uint64_t pair = heap_pop(s);
        if (s->nodes[place_of(pair)].rank == rank_of(pair))
            merge_at(bpe, s, place_of(pair));
    }
    return append_nodes(s, INT32_MAX, ids);
}

/* ---- long words ---- */

typedef struct frontier {
    int32_t at;      /* the last node that is known; -1: none is */
    size_t shortest; /* bytes of the token behind it when that ceased to be known */
    int32_t id;      /* its token, for which `rank` holds; -1: not looked up */
    uint32_t rank;   /* the lowest of a merge with what could follow it */
} frontier;

/* Nodes are numbered by the byte that they start with. */
static size_t end_of(const oct_bpe_scratch *s, int32_t at, size_t n) {
    return s->nodes[at].next >= 0 ? (size_t)s->nodes[at].next : n;
}

/* The length of the longest token that can begin with these n bytes. */
static size_t reach_of(const oct_bpe *bpe, const char *bytes, size_t n) {
    return n < 2 || !bpe->reach ? bpe->longest
                                : bpe->reach[(uint8_t)bytes[0] << 8 | (uint8_t)bytes[1]];
}

static uint32_t rank_with_what_follows(const oct_bpe *bpe, const oct_bpe_scratch *s,
                                       const char *behind, size_t reach, const frontier *f) {
    uint32_t lowest = NO_MERGE;
    for (size_t length = f->shortest; length <= reach; length++) {
        int32_t right = oct_bpe_find(bpe, behind, length);
        const oct_bpe_merge *merge =
            right >= 0 ? oct_bpe_find_merge(bpe, s->nodes[f->at].id, right) : NULL;
        if (merge && merge->rank < lowest)
            lowest = merge->rank;
    }
    return lowest;
}

/* Whether a merge of the frontier's token with what could follow it comes before `pair`. */
static bool is_in_doubt(const oct_bpe *bpe, const oct_bpe_scratch *s, const char *window, size_t n,
                        uint64_t pair, frontier *f) {
    if (f->id != s->nodes[f->at].id) {
        size_t end = end_of(s, f->at, n), reach = reach_of(bpe, window + end, n - end);
        if (n - end < reach) /* what follows may reach beyond the window */
            return true;
        f->id = s->nodes[f->at].id;
        f->rank = rank_with_what_follows(bpe, s, window + end, reach, f);
    }
    return f->rank != NO_MERGE && pair >= pair_at(f->rank, f->at);
}

/* Draws the frontier back to a node that is known when it is the turn of `pair`. */
static void draw_back(const oct_bpe *bpe, const oct_bpe_scratch *s, const char *window, size_t n,
                      uint64_t pair, frontier *f) {
    while (f->at >= 0 && is_in_doubt(bpe, s, window, n, pair, f)) {
        f->shortest = end_of(s, f->at, n) - (size_t)f->at;
        f->at = s->nodes[f->at].previous;
        f->id = -1;
    }
}

/* Merges a window that more bytes follow; f->at becomes its last token that is the whole word's. */
static void merge_window(const oct_bpe *bpe, oct_bpe_scratch *s, const char *window, size_t n,
                         frontier *f) {
    *f = (frontier){.at = (int32_t)n - 1, .shortest = 1, .id = -1};
    if (bpe->by_character) {
        f->at = start_characters(bpe, s, window, n);
        look_up_characters(bpe, s);
    } else {
        start_nodes(bpe, s, (const uint8_t *)window, n);
        look_up_bytes(bpe, s, (const uint8_t *)window, n);
    }
    while (s->heap_n) {
        uint64_t pair = heap_pop(s);
        int32_t at = place_of(pair);
        if (s->nodes[at].rank != rank_of(pair))
            continue;
        draw_back(bpe, s, window, n, pair, f);
        if (at >= f->at)
            continue;
        if (s->nodes[at].next == f->at)
            *f = (frontier){.at = at, .shortest = f->shortest, .id = -1};
        merge_at(bpe, s, at);
    }
    draw_back(bpe, s, window, n, pair_at(NO_MERGE, INT32_MAX), f);
}

bool oct_bpe_goes_in_parts(const oct_bpe *bpe, const char *word, size_t n_bytes) {
    return n_bytes > WINDOW_BYTES && n_bytes > bpe->longest &&
           (bpe->by_character || oct_bpe_missing_byte(bpe, word, n_bytes) < 0);
}

/* A window ends where a character does. */
static size_t window_end(const oct_bpe *bpe, const char *word, size_t size) {
    while (bpe->by_character && ((uint8_t)word[size] & 0xC0) == 0x80)
        size--;
    return size;
}

oct_status oct_bpe_encode_part(const oct_bpe *bpe, oct_bpe_scratch *scratch, const char *word,
                               size_t n_bytes, size_t window, oct_token_list *ids, size_t *used) {
    size_t size = window ? window : WINDOW_BYTES;
    frontier f = {.at = -1};
    for (; size < n_bytes; size *= 2) {
        oct_status status = size > INT32_MAX / 2 ? OCT_INVALID : reserve(scratch, size);
        if (status)
            return status;
        size = window_end(bpe, word, size);
        merge_window(bpe, scratch, word, size, &f);
        if (f.at >= 0)
            break; /* else nothing is known: look at more */
    }
    *used = f.at >= 0 ? end_of(scratch, f.at, size) : n_bytes;
    return f.at >= 0 ? append_nodes(scratch, f.at, ids)
                     : merge_word(bpe, scratch, (const uint8_t *)word, n_bytes, ids);
}

/* ---- cache ---- */

static oct_bpe_cached *cache_slot(oct_bpe_scratch *s, const char *word, size_t n) {
    if (n > CACHE_BYTES)
        return NULL;
    if (!s->cache)
        s->cache = oct_calloc_array(CACHE_SLOTS, sizeof *s->cache);
    return s->cache ? &s->cache[XXH3_64bits(word, n) & (CACHE_SLOTS - 1)] : NULL;
}

oct_status oct_bpe_encode_word(const oct_bpe *bpe, oct_bpe_scratch *scratch, const char *word,
                               size_t n_bytes, oct_token_list *ids) {
    if (n_bytes == 0)
        return OCT_OK;
    if (n_bytes == 1 && bpe->byte_id[(uint8_t)word[0]] >= 0)
        return oct_token_list_append(ids, &bpe->byte_id[(uint8_t)word[0]], 1);
    if (bpe->ignore_merges) {
        int32_t id = oct_bpe_find(bpe, word, n_bytes);
        if (id >= 0)
            return oct_token_list_append(ids, &id, 1);
    }
    oct_bpe_cached *cached = cache_slot(scratch, word, n_bytes);
    if (cached && cached->n_bytes == n_bytes && memcmp(cached->bytes, word, n_bytes) == 0)
        return oct_token_list_append(ids, cached->ids, cached->n_ids);
    size_t before = ids->n;
    oct_status status = n_bytes > INT32_MAX / 2
                            ? OCT_INVALID
                            : merge_word(bpe, scratch, (const uint8_t *)word, n_bytes, ids);
    if (status)
        return status;
    size_t n_ids = ids->n - before;
    if (cached && n_ids <= CACHE_IDS) {
        cached->n_bytes = (uint8_t)n_bytes;
        cached->n_ids = (uint8_t)n_ids;
        memcpy(cached->bytes, word, n_bytes);
        memcpy(cached->ids, ids->ids + before, n_ids * sizeof *ids->ids);
    }
    return OCT_OK;
}
