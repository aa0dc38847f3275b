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
#include "io/bpe.h"

#define NO_MERGE UINT32_MAX
#define WINDOW_BYTES ((size_t)8 << 10) /* its nodes and pairs stay in the second cache */
#define CACHE_SLOTS 32768u             /* a power of two */
#define CACHE_BYTES 24
#define CACHE_IDS 8

typedef struct oct_bpe_node {
    int32_t id, merged; /* merged: what this and the next one become */
    int32_t previous, next;
    uint32_t rank;
} oct_bpe_node;

typedef struct oct_bpe_pair {
    uint32_t rank;
    int32_t at;
} oct_bpe_pair;

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

static bool comes_before(oct_bpe_pair a, oct_bpe_pair b) {
    return a.rank != b.rank ? a.rank < b.rank : a.at < b.at;
}

static void heap_push(oct_bpe_scratch *s, oct_bpe_pair pair) {
    size_t i = s->heap_n++;
    for (; i > 0 && comes_before(pair, s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = pair;
}

static oct_bpe_pair heap_pop(oct_bpe_scratch *s) {
    oct_bpe_pair top = s->heap[0], last = s->heap[--s->heap_n];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= s->heap_n)
            break;
        if (child + 1 < s->heap_n && comes_before(s->heap[child + 1], s->heap[child]))
            child++;
        if (!comes_before(s->heap[child], last))
            break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = last;
    return top;
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
    oct_bpe_pair *heap = oct_realloc_array(s->heap, capacity, 2 * sizeof *heap);
    if (heap)
        s->heap = heap;
    if (!nodes || !heap)
        return OCT_NO_MEMORY;
    s->node_capacity = capacity;
    return OCT_OK;
}

static void look_up_pair(const oct_bpe *bpe, oct_bpe_scratch *s, int32_t at) {
    oct_bpe_node *node = &s->nodes[at];
    node->rank = NO_MERGE;
    if (node->next < 0)
        return;
    const oct_bpe_merge *merge = oct_bpe_find_merge(bpe, node->id, s->nodes[node->next].id);
    if (!merge)
        return;
    node->rank = merge->rank;
    node->merged = merge->id;
    heap_push(s, (oct_bpe_pair){merge->rank, at});
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
    s->heap_n = 0;
    n = start_nodes(bpe, s, word, n);
    if (n == 0)
        return OCT_INVALID;
    for (size_t i = 0; i < n; i++)
        look_up_pair(bpe, s, (int32_t)i);
    while (s->heap_n) {
        oct_bpe_pair pair = heap_pop(s);
        if (s->nodes[pair.at].rank == pair.rank)
            merge_at(bpe, s, pair.at);
    }
    return append_nodes(s, (int32_t)n - 1, ids);
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

/* Whether a token that begins behind the node may reach beyond the window. */
static bool is_at_end(const oct_bpe *bpe, const oct_bpe_scratch *s, size_t n, int32_t at) {
    return n - end_of(s, at, n) < bpe->longest;
}

static uint32_t rank_with_what_follows(const oct_bpe *bpe, const oct_bpe_scratch *s,
                                       const char *window, size_t n, const frontier *f) {
    const char *behind = window + end_of(s, f->at, n);
    uint32_t lowest = NO_MERGE;
    for (size_t length = f->shortest; length <= bpe->longest; length++) {
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
                        oct_bpe_pair pair, frontier *f) {
    if (is_at_end(bpe, s, n, f->at))
        return true;
    if (f->id != s->nodes[f->at].id) {
        f->id = s->nodes[f->at].id;
        f->rank = rank_with_what_follows(bpe, s, window, n, f);
    }
    return f->rank != NO_MERGE && !comes_before(pair, (oct_bpe_pair){f->rank, f->at});
}

/* Draws the frontier back to a node that is known when it is the turn of `pair`. */
static void draw_back(const oct_bpe *bpe, const oct_bpe_scratch *s, const char *window, size_t n,
                      oct_bpe_pair pair, frontier *f) {
    while (f->at >= 0 && is_in_doubt(bpe, s, window, n, pair, f)) {
        f->shortest = end_of(s, f->at, n) - (size_t)f->at;
        f->at = s->nodes[f->at].previous;
        f->id = -1;
    }
}

/* Merges a window that more bytes follow; f->at becomes its last token that is the whole word's. */
static void merge_window(const oct_bpe *bpe, oct_bpe_scratch *s, const char *window, size_t n,
                         frontier *f) {
    s->heap_n = 0;
    start_nodes(bpe, s, (const uint8_t *)window, n);
    for (size_t i = 0; i < n; i++)
        look_up_pair(bpe, s, (int32_t)i);
    *f = (frontier){.at = (int32_t)n - 1, .shortest = 1, .id = -1};
    while (s->heap_n) {
        oct_bpe_pair pair = heap_pop(s);
        if (s->nodes[pair.at].rank != pair.rank)
            continue;
        draw_back(bpe, s, window, n, pair, f);
        if (pair.at >= f->at)
            continue;
        if (s->nodes[pair.at].next == f->at)
            *f = (frontier){.at = pair.at, .shortest = f->shortest, .id = -1};
        merge_at(bpe, s, pair.at);
    }
    draw_back(bpe, s, window, n, (oct_bpe_pair){NO_MERGE, INT32_MAX}, f);
}

oct_status oct_bpe_encode_in_windows(const oct_bpe *bpe, oct_bpe_scratch *scratch, const char *word,
                                     size_t n_bytes, size_t window, oct_token_list *ids) {
    oct_status status = OCT_OK;
    for (size_t at = 0, size = window; at < n_bytes && !status;) {
        if (n_bytes - at <= size)
            return merge_word(bpe, scratch, (const uint8_t *)word + at, n_bytes - at, ids);
        if (size > INT32_MAX / 2)
            return OCT_INVALID;
        frontier f = {.at = -1};
        status = reserve(scratch, size);
        if (status)
            break;
        merge_window(bpe, scratch, word + at, size, &f);
        if (f.at < 0) { /* nothing is known: look at more */
            size *= 2;
            continue;
        }
        status = append_nodes(scratch, f.at, ids);
        at += end_of(scratch, f.at, size);
        size = window;
    }
    return status;
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
    bool in_windows = n_bytes > WINDOW_BYTES && oct_bpe_missing_byte(bpe, word, n_bytes) < 0;
    if (!in_windows && n_bytes > INT32_MAX / 2)
        return OCT_INVALID;
    oct_status status =
        in_windows ? oct_bpe_encode_in_windows(bpe, scratch, word, n_bytes, WINDOW_BYTES, ids)
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
