/* Byte-pair encoding on bytes: see bpe.h. */
#include "text/bpe.h"

#include <string.h>
#include <utf8proc.h>
#include <xxhash.h>

#include "base/alloc.h"

/* ---- the spelling of bytes ---- */

static bool spells_itself(uint32_t c) {
    return (c >= '!' && c <= '~') || (c >= 0xA1 && c <= 0xAC) || (c >= 0xAE && c <= 0xFF);
}

/* Bytes that aren't printable are spelt U+0100, U+0101, ... in their order: 0-32, 127-160, 173. */
uint32_t oct_bpe_char_of_byte(uint8_t byte) {
    if (spells_itself(byte))
        return byte;
    if (byte <= 32)
        return 256u + byte;
    return byte == 173 ? 256u + 67 : 256u + 33 + (byte - 127u);
}

int oct_bpe_byte_of_char(uint32_t c) {
    if (spells_itself(c))
        return (int)c;
    if (c < 256 || c > 256 + 67)
        return -1;
    c -= 256;
    if (c <= 32)
        return (int)c;
    return c == 67 ? 173 : (int)(127 + c - 33);
}

int64_t oct_bpe_unspell(const char *spelt, size_t n, char *bytes) {
    int64_t count = 0;
    for (size_t i = 0; i < n;) {
        utf8proc_int32_t c;
        utf8proc_ssize_t used =
            utf8proc_iterate((const uint8_t *)spelt + i, (utf8proc_ssize_t)(n - i), &c);
        int byte = used > 0 ? oct_bpe_byte_of_char((uint32_t)c) : -1;
        if (byte < 0)
            return -1;
        bytes[count++] = (char)byte;
        i += (size_t)used;
    }
    return count;
}

/* ---- tokens ---- */

#define BYTE_PAIRS ((size_t)1 << 16)

static size_t byte_pair_of(const char *bytes) {
    return (size_t)((uint8_t)bytes[0] << 8 | (uint8_t)bytes[1]);
}

void oct_bpe_free(oct_bpe *bpe) {
    oct_free(bpe->pool);
    oct_free(bpe->tokens);
    oct_free(bpe->slots);
    oct_free(bpe->merges);
    oct_free(bpe->merge_bits);
    oct_free(bpe->reach);
    oct_free(bpe->byte_merges);
    *bpe = (oct_bpe){0};
}

static size_t token_slot(const oct_bpe *bpe, const char *bytes, size_t n_bytes) {
    size_t slot = XXH3_64bits(bytes, n_bytes) & (bpe->n_slots - 1);
    while (bpe->slots[slot] >= 0) {
        const oct_bpe_token *token = &bpe->tokens[bpe->slots[slot]];
        if (token->n_bytes == n_bytes && memcmp(bpe->pool + token->offset, bytes, n_bytes) == 0)
            break;
        slot = (slot + 1) & (bpe->n_slots - 1);
    }
    return slot;
}

int32_t oct_bpe_find(const oct_bpe *bpe, const char *bytes, size_t n_bytes) {
    return bpe->n_slots ? bpe->slots[token_slot(bpe, bytes, n_bytes)] : -1;
}

static oct_status grow_slots(oct_bpe *bpe) {
    size_t n_slots = bpe->n_slots ? 2 * bpe->n_slots : 1024;
    int32_t *slots = oct_malloc_array(n_slots, sizeof *slots);
    if (!slots)
        return OCT_NO_MEMORY;
    memset(slots, 0xff, n_slots * sizeof *slots);
    oct_free(bpe->slots);
    bpe->slots = slots;
    bpe->n_slots = n_slots;
    for (int64_t id = 0; id < bpe->n_ids; id++) {
        const oct_bpe_token *token = &bpe->tokens[id];
        if (token->found)
            slots[token_slot(bpe, bpe->pool + token->offset, token->n_bytes)] = (int32_t)id;
    }
    return OCT_OK;
}

static oct_status grow_ids(oct_bpe *bpe, int64_t n_ids) {
    if (n_ids > bpe->ids_capacity) {
        int64_t capacity = bpe->ids_capacity ? bpe->ids_capacity : 1024;
        while (capacity < n_ids)
            capacity *= 2;
        oct_bpe_token *grown = oct_realloc_array(bpe->tokens, (size_t)capacity, sizeof *grown);
        if (!grown)
            return OCT_NO_MEMORY;
        bpe->tokens = grown;
        bpe->ids_capacity = capacity;
    }
    if (n_ids > bpe->n_ids) {
        memset(bpe->tokens + bpe->n_ids, 0, (size_t)(n_ids - bpe->n_ids) * sizeof *bpe->tokens);
        bpe->n_ids = n_ids;
    }
    return OCT_OK;
}

static oct_status grow_pool(oct_bpe *bpe, size_t extra) {
    size_t need = bpe->pool_used + extra, capacity = bpe->pool_capacity;
    if (need <= capacity)
        return OCT_OK;
    capacity = capacity ? capacity : 1 << 16;
    while (capacity < need)
        capacity *= 2;
    char *grown = oct_realloc_array(bpe->pool, capacity, 1);
    if (!grown)
        return OCT_NO_MEMORY;
    bpe->pool = grown;
    bpe->pool_capacity = capacity;
    return OCT_OK;
}

oct_status oct_bpe_add_token(oct_bpe *bpe, int32_t id, const char *bytes, size_t n_bytes,
                             bool found) {
    if (id < 0 || id >= OCT_BPE_MAX_IDS || n_bytes > UINT32_MAX)
        return OCT_INVALID;
    oct_status status = OCT_OK;
    if (2 * (bpe->n_found + 1) > bpe->n_slots)
        status = grow_slots(bpe);
    if (!status)
        status = grow_ids(bpe, (int64_t)id + 1);
    if (!status)
        status = grow_pool(bpe, n_bytes);
    if (status)
        return status;
    size_t slot = token_slot(bpe, bytes, n_bytes);
    if (bpe->tokens[id].present || (found && bpe->slots[slot] >= 0))
        return OCT_INVALID;
    if (n_bytes)
        memcpy(bpe->pool + bpe->pool_used, bytes, n_bytes);
    bpe->tokens[id] = (oct_bpe_token){bpe->pool_used, (uint32_t)n_bytes, true, found};
    bpe->pool_used += n_bytes;
    if (found) {
        bpe->slots[slot] = id;
        bpe->n_found++;
        bpe->longest = n_bytes > bpe->longest ? n_bytes : bpe->longest;
    }
    return OCT_OK;
}

static oct_status collect_reach(oct_bpe *bpe) {
    if (!bpe->reach)
        bpe->reach = oct_malloc_array(BYTE_PAIRS, sizeof *bpe->reach);
    if (!bpe->reach)
        return OCT_NO_MEMORY;
    for (size_t i = 0; i < BYTE_PAIRS; i++)
        bpe->reach[i] = 1;
    for (int64_t id = 0; id < bpe->n_ids; id++) {
        const oct_bpe_token *token = &bpe->tokens[id];
        if (!token->found || token->n_bytes < 2)
            continue;
        uint32_t *reach = &bpe->reach[byte_pair_of(bpe->pool + token->offset)];
        *reach = token->n_bytes > *reach ? token->n_bytes : *reach;
    }
    return OCT_OK;
}

oct_status oct_bpe_finish(oct_bpe *bpe) {
    for (int byte = 0; byte < 256; byte++) {
        char c = (char)byte;
        bpe->byte_id[byte] = oct_bpe_find(bpe, &c, 1);
    }
    return collect_reach(bpe);
}

int oct_bpe_missing_byte(const oct_bpe *bpe, const char *word, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes; i++)
        if (bpe->byte_id[(uint8_t)word[i]] < 0)
            return (uint8_t)word[i];
    return -1;
}

/* ---- merges ---- */

static uint64_t pair_of(int32_t left, int32_t right) {
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static uint64_t hash_pair(uint64_t pair) {
    uint64_t hash = pair * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 32;
}

static size_t merge_slot(const oct_bpe *bpe, uint64_t pair) {
    size_t slot = hash_pair(pair) & (bpe->n_merge_slots - 1);
    while (bpe->merges[slot].pair != UINT64_MAX && bpe->merges[slot].pair != pair)
        slot = (slot + 1) & (bpe->n_merge_slots - 1);
    return slot;
}

static uint64_t *merge_bit(const oct_bpe *bpe, uint64_t pair, uint64_t *bit) {
    size_t at = hash_pair(pair) >> 34 & (4 * bpe->n_merge_slots - 1);
    *bit = (uint64_t)1 << at % 64;
    return &bpe->merge_bits[at / 64];
}

static void put_merge(oct_bpe *bpe, const oct_bpe_merge *merge) {
    uint64_t bit, *bits = merge_bit(bpe, merge->pair, &bit);
    *bits |= bit;
    bpe->merges[merge_slot(bpe, merge->pair)] = *merge;
}

/* Most pairs of a text don't merge; the bits, which stay in the second cache, say so of nearly all
 * of these. */
const oct_bpe_merge *oct_bpe_find_merge(const oct_bpe *bpe, int32_t left, int32_t right) {
    uint64_t pair = pair_of(left, right), bit;
    if (!bpe->n_merge_slots || !(*merge_bit(bpe, pair, &bit) & bit))
        return NULL;
    const oct_bpe_merge *merge = &bpe->merges[merge_slot(bpe, pair)];
    return merge->pair == UINT64_MAX ? NULL : merge;
}

static oct_status grow_merges(oct_bpe *bpe) {
    size_t n_old = bpe->n_merge_slots, n_slots = n_old ? 2 * n_old : 1024;
    oct_bpe_merge *old = bpe->merges, *merges = oct_malloc_array(n_slots, sizeof *merges);
    uint64_t *bits = oct_calloc_array(n_slots / 16, sizeof *bits);
    if (!merges || !bits) {
        oct_free(merges);
        oct_free(bits);
        return OCT_NO_MEMORY;
    }
    for (size_t i = 0; i < n_slots; i++)
        merges[i].pair = UINT64_MAX;
    oct_free(bpe->merge_bits);
    bpe->merges = merges;
    bpe->merge_bits = bits;
    bpe->n_merge_slots = n_slots;
    for (size_t i = 0; i < n_old; i++)
        if (old[i].pair != UINT64_MAX)
            put_merge(bpe, &old[i]);
    oct_free(old);
    return OCT_OK;
}

/* The token of the joined bytes, -1 if there is none. */
static oct_status find_joined(oct_bpe *bpe, int32_t left, int32_t right, int32_t *id) {
    oct_bpe_token a = bpe->tokens[left], b = bpe->tokens[right];
    size_t n_bytes = (size_t)a.n_bytes + b.n_bytes;
    oct_status status = grow_pool(bpe, n_bytes); /* the free end of the pool is the scratch */
    if (status)
        return status;
    char *joined = bpe->pool + bpe->pool_used;
    memcpy(joined, bpe->pool + a.offset, a.n_bytes);
    memcpy(joined + a.n_bytes, bpe->pool + b.offset, b.n_bytes);
    *id = oct_bpe_find(bpe, joined, n_bytes);
    return OCT_OK;
}

/* Merges of two bytes are looked up by these: there is one for each byte of a text. */
static oct_status add_byte_merge(oct_bpe *bpe, const oct_bpe_merge *merge, const char *joined) {
    if (!bpe->byte_merges) {
        bpe->byte_merges = oct_malloc_array(BYTE_PAIRS, sizeof *bpe->byte_merges);
        if (!bpe->byte_merges)
            return OCT_NO_MEMORY;
        for (size_t i = 0; i < BYTE_PAIRS; i++)
            bpe->byte_merges[i].pair = UINT64_MAX;
    }
    bpe->byte_merges[byte_pair_of(joined)] = *merge;
    return OCT_OK;
}

oct_status oct_bpe_add_merge(oct_bpe *bpe, int32_t left, int32_t right) {
    if (left < 0 || right < 0 || left >= bpe->n_ids || right >= bpe->n_ids ||
        !bpe->tokens[left].n_bytes || !bpe->tokens[right].n_bytes)
        return OCT_INVALID;
    int32_t id;
    oct_status status = find_joined(bpe, left, right, &id);
    if (!status && 2 * (bpe->n_merges + 1) > bpe->n_merge_slots)
        status = grow_merges(bpe);
    if (status)
        return status;
    if (id < 0)
        return OCT_INVALID;
    oct_bpe_merge merge = {pair_of(left, right), (uint32_t)bpe->n_merges++, id};
    put_merge(bpe, &merge);
    return bpe->tokens[id].n_bytes == 2
               ? add_byte_merge(bpe, &merge, bpe->pool + bpe->tokens[id].offset)
               : OCT_OK;
}
