/* Inside of oct_tokenizer, shared by its reader (tokenizer_json.c) and its use (tokenizer.c). */
#ifndef OCT_TEXT_TOKENIZER_IMPL_H
#define OCT_TEXT_TOKENIZER_IMPL_H

#include <pthread.h>
#include <stdbool.h>

#include "text/bpe.h"
#include "text/pretokenize.h"
#include "text/tokenizer.h"

typedef struct oct_added_token {
    char *content; /* as it stands in texts; may hold NUL */
    size_t n_bytes;
    int32_t id;
    bool special;        /* decode may skip it */
    bool strip_left;     /* it takes the white space before it along */
    bool strip_right;    /* ... and after it */
    bool between_spaces; /* "single_word": not inside a word */
    bool normalized;     /* it is looked for in the normalised text, by its normalised content */
} oct_added_token;

/* Added tokens by their bytes: a tree in a hash table of edges. */
typedef struct oct_added_tree {
    struct oct_added_edge *edges;
    size_t n_slots, n_edges;
    int32_t *values; /* by node: index of the token that ends there, -1: none; node 0 is the root */
    size_t n_nodes, capacity;
    bool starts[256]; /* a token starts with this byte */
} oct_added_tree;

/* OCT_INVALID: there is one with these bytes; *taken is its value. */
oct_status oct_added_tree_add(oct_added_tree *tree, const char *bytes, size_t n_bytes,
                              int32_t value, int32_t *taken);
void oct_added_tree_free(oct_added_tree *tree);

/* An added token in a text; index -1: none, then start and end are the text's end. White space that
 * two tokens take may put `start` before the end of the one before, or (the token is white space
 * itself) at or behind its own `end`. */
typedef struct oct_added_match {
    size_t start, end; /* with the white space it takes along */
    size_t next;       /* where to look for the one after it */
    int32_t index;
} oct_added_match;

/* The first added token of text[0..n) from `from` on, the longest of those that start there; white
 * space before `done` belongs to the one before. */
oct_added_match oct_added_tree_find(const oct_added_tree *tree, const oct_added_token *tokens,
                                    const char *text, size_t from, size_t done, size_t n);

/* A step of a normalizer that can do more than NFC, which then makes the whole text over before
 * it's cut. */
typedef struct oct_normal_step {
    char *pattern; /* each is replaced by content; NULL: see below */
    char *content; /* ... this is put before a text that isn't empty; NULL: NFC */
} oct_normal_step;

#define OCT_MAX_NORMAL_STEPS 16
/* Bounds of what files may ask for: bytes that are put in, and how many times longer replacements
 * may make a text, or a token when it's decoded. */
#define OCT_MAX_CONTENT_BYTES 256
#define OCT_MAX_GROWTH 8

typedef struct oct_normalizer {
    oct_normal_step steps[OCT_MAX_NORMAL_STEPS];
    int n_steps;
} oct_normalizer;

void oct_normalizer_free(oct_normalizer *normalizer);
/* Appends what the tokenizer's normalizer, of either kind, makes of a text. */
oct_status oct_tokenizer_normalize(const oct_tokenizer *tokenizer,
                                   oct_pretokenizer_scratch *scratch, const char *text,
                                   size_t n_bytes, oct_strbuf *to);

/* A vocabulary of characters and their joins, as SentencePiece trains them, instead of bytes. */
typedef struct oct_pieces {
    bool used;
    bool byte_fallback;
    bool ignore_merges;
    int32_t byte_id[256]; /* tokens <0x00> to <0xFF>, which stand for characters without a token */
    /* How they are decoded. */
    char *decoded;              /* bytes of all tokens, by id */
    size_t *decoded_at;         /* where they begin, and one more */
    char mark[OCT_MARK_BYTES];  /* dropped where the first token has it; "": none */
    char strip[OCT_MARK_BYTES]; /* at most n_strip of these are taken from the front of a text */
    size_t n_strip;
} oct_pieces;

void oct_pieces_free(oct_pieces *pieces);
/* Appends the ids of one word. OCT_INVALID: it holds a character without a token, and none stands
 * for unknown ones. `flush` is called with `user` whenever there are many ids. */
oct_status oct_pieces_encode_word(const oct_tokenizer *tokenizer, oct_bpe_scratch *scratch,
                                  const char *word, size_t n_bytes, oct_token_list *ids,
                                  oct_status (*flush)(void *user, oct_error *err), void *user,
                                  oct_error *err);

/* What is done to the ids of a whole text. */
typedef struct oct_whole_text {
    int32_t *before, *after; /* ids that its post-processor puts around it */
    size_t n_before, n_after;
    bool truncates, truncates_left;
    size_t max_length; /* of all ids together */
} oct_whole_text;

typedef struct oct_encoder oct_encoder; /* memory of one call of encode, reused by later ones */

typedef struct oct_encoder_pool {
    pthread_mutex_t lock;
    oct_encoder *idle;
} oct_encoder_pool;

struct oct_tokenizer {
    oct_bpe bpe;
    oct_pieces pieces;
    oct_normalizer normalizer; /* steps; none where it's NFC alone, which the pretokenizer does */
    oct_pretokenizer pretokenizer;
    oct_added_token *added;
    size_t n_added, added_capacity;
    oct_added_tree added_trees[2]; /* indexed by oct_added_token.normalized */
    bool *special_of;              /* by id: it's an added token that decode may skip */
    oct_whole_text whole;
    int32_t bos, eos;
    uint64_t hash;
    oct_encoder_pool *pool; /* apart, as it changes while the tokenizer doesn't */
};

/* Plants the added tokens, computes the hash and prepares the pool of encoders: after this the
 * tokenizer can be used. OCT_INVALID: two added tokens are looked for by the same text; `path`
 * names the file. */
oct_status oct_tokenizer_finish(oct_tokenizer *tokenizer, const char *path, oct_error *err);

#endif
