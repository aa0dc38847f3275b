/* Encoding of one word: see bpe.h. A doubly linked list of tokens and a heap of the mergeable pairs
 * give n log n in the length of the word; a small cache answers for the words that come again and
 * again.
 *
 * Invariant: nodes[i].rank is the rank of the pair (i, its successor) or NO_MERGE, so an entry of
 * the heap is stale exactly when its rank isn't its node's. */
#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "io/bpe.h"

#define NO_MERGE UINT32_MAX
#define CACHE_SLOTS 32768u /* a power of two */
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
    for (int32_t at = 0; at >= 0 && !status; at = s->nodes[at].next)
        status = oct_token_list_append(ids, &s->nodes[at].id, 1);
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
    if (n_bytes > INT32_MAX)
        return OCT_INVALID;
    if (bpe->ignore_merges) {
        int32_t id = oct_bpe_find(bpe, word, n_bytes);
        if (id >= 0)
            return oct_token_list_append(ids, &id, 1);
    }
    oct_bpe_cached *cached = cache_slot(scratch, word, n_bytes);
    if (cached && cached->n_bytes == n_bytes && memcmp(cached->bytes, word, n_bytes) == 0)
        return oct_token_list_append(ids, cached->ids, cached->n_ids);
    size_t before = ids->n;
    oct_status status = merge_word(bpe, scratch, (const uint8_t *)word, n_bytes, ids);
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
