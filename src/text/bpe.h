/* Byte-pair encoding on bytes, or on characters: vocabulary, merges, and the encoding of one word.
 *
 * Token strings in a tokenizer.json spell bytes with 256 printable characters (GPT-2's
 * `bytes_to_unicode`); here they are plain bytes. A vocabulary entry with another character in it
 * can't come out of text: it can be decoded, but never found.
 *
 * Invariant: once oct_bpe_finish was called every merge joins known tokens into the token of their
 * joined bytes, and nothing changes any more. */
#ifndef OCT_TEXT_BPE_H
#define OCT_TEXT_BPE_H

#include <octet/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/token_list.h"

#define OCT_BPE_MAX_IDS ((int64_t)1 << 22) /* ids are below this */

typedef struct oct_bpe_token {
    size_t offset; /* of its bytes in the pool */
    uint32_t n_bytes;
    bool present, found; /* the id is used; it can be found by its bytes */
} oct_bpe_token;

typedef struct oct_bpe_merge { /* a slot of a hash table */
    uint64_t pair;             /* left id << 32 | right id; UINT64_MAX: empty */
    uint32_t rank;
    int32_t id;
} oct_bpe_merge;

typedef struct oct_bpe {
    char *pool;
    size_t pool_used, pool_capacity;
    oct_bpe_token *tokens; /* by id */
    int64_t n_ids, ids_capacity;
    int32_t *slots; /* hash table of found tokens: ids, -1 empty */
    size_t n_slots, n_found;
    oct_bpe_merge *merges;
    uint64_t *merge_bits; /* four a slot, by another part of the hash: 0 says that there is none */
    size_t n_merge_slots, n_merges;
    size_t longest;             /* bytes of the longest token that can be found */
    uint32_t *reach;            /* ... that begins with two bytes, by first << 8 | second */
    oct_bpe_merge *byte_merges; /* of two bytes, by first << 8 | second; NULL: none */
    int32_t byte_id[256];       /* -1: the vocabulary has no token of this byte */
    int32_t unk;        /* stands for such a byte; -1: none, and the byte can't be encoded */
    bool fuse_unk;      /* one for a run of them */
    bool ignore_merges; /* a word that is a token isn't merged (Llama 3) */
    bool by_character;  /* merging begins with characters instead of bytes */
} oct_bpe;

/* The character that spells a byte, and back (-1 for a character that spells none). */
uint32_t oct_bpe_char_of_byte(uint8_t byte);
int oct_bpe_byte_of_char(uint32_t c);
/* Spelt text (UTF-8, n bytes) to bytes (room for n); returns the number of bytes, -1 if a character
 * spells none. */
int64_t oct_bpe_unspell(const char *spelt, size_t n, char *bytes);

void oct_bpe_free(oct_bpe *bpe);

/* Adds a token, `id` in 0 .. OCT_BPE_MAX_IDS-1 and not yet used; `found`: text can become it. Only
 * OCT_NO_MEMORY can happen, or OCT_INVALID where id or (found) bytes are taken. */
oct_status oct_bpe_add_token(oct_bpe *bpe, int32_t id, const char *bytes, size_t n_bytes,
                             bool found);
/* Adds the merge with the next rank; a pair that has one already moves to it. OCT_INVALID when the
 * joined bytes are no token. */
oct_status oct_bpe_add_merge(oct_bpe *bpe, int32_t left, int32_t right);
/* Collects byte_id and reach; OCT_NO_MEMORY can happen. */
oct_status oct_bpe_finish(oct_bpe *bpe);
/* The first byte of a word that has no token; -1 when all have one. */
int oct_bpe_missing_byte(const oct_bpe *bpe, const char *word, size_t n_bytes);

int32_t oct_bpe_find(const oct_bpe *bpe, const char *bytes, size_t n_bytes); /* -1: none */
const oct_bpe_merge *oct_bpe_find_merge(const oct_bpe *bpe, int32_t left, int32_t right);

/* Memory of one encoding thread, zero-initialised. */
typedef struct oct_bpe_scratch {
    struct oct_bpe_node *nodes;
    uint64_t *heap;
    size_t node_capacity, heap_n; /* the heap has room for twice the nodes */
    struct oct_bpe_cached *cache; /* ids of short words, direct-mapped */
} oct_bpe_scratch;
void oct_bpe_scratch_free(oct_bpe_scratch *scratch);

/* Appends the ids of one word: of all adjacent pairs the one with the lowest rank (the leftmost of
 * those) is merged until none is left. By character: the word is UTF-8 and each of its characters
 * has a token. OCT_INVALID: a byte has no token, and the vocabulary no token for unknown ones. */
oct_status oct_bpe_encode_word(const oct_bpe *bpe, oct_bpe_scratch *scratch, const char *word,
                               size_t n_bytes, oct_token_list *ids);

/* Long words can be encoded part by part: whether this one can, and the ids of its first part, of
 * *used bytes, which ends where the whole word has an end of a token. `window` (0: the usual) bytes
 * are looked at, or more where that isn't enough. */
bool oct_bpe_goes_in_parts(const oct_bpe *bpe, const char *word, size_t n_bytes);
oct_status oct_bpe_encode_part(const oct_bpe *bpe, oct_bpe_scratch *scratch, const char *word,
                               size_t n_bytes, size_t window, oct_token_list *ids, size_t *used);

#endif
