/* Inside of oct_tokenizer, shared by its reader (tokenizer_json.c) and its use (tokenizer.c). */
#ifndef OCT_IO_TOKENIZER_IMPL_H
#define OCT_IO_TOKENIZER_IMPL_H

#include <pthread.h>
#include <stdbool.h>

#include "io/bpe.h"
#include "io/pretokenize.h"
#include "io/tokenizer.h"

typedef struct oct_added_token {
    char *content; /* as it stands in texts, NUL-terminated */
    size_t n_bytes;
    int32_t id;
    bool special;        /* decode may skip it */
    bool strip_left;     /* it takes the white space before it along */
    bool strip_right;    /* ... and after it */
    bool between_spaces; /* "single_word": not inside a word */
} oct_added_token;

typedef struct oct_encoder oct_encoder; /* memory of one call of encode, reused by later ones */

typedef struct oct_encoder_pool {
    pthread_mutex_t lock;
    oct_encoder *idle;
} oct_encoder_pool;

struct oct_tokenizer {
    oct_bpe bpe;
    oct_pretokenizer pretokenizer;
    oct_added_token *added; /* longest first, so that the first that matches is the longest */
    size_t n_added;
    bool starts_added[256]; /* an added token starts with this byte */
    int32_t bos, eos;
    uint64_t hash;
    oct_encoder_pool *pool; /* apart, as it changes while the tokenizer doesn't */
};

/* Sorts the added tokens, computes the hash and prepares the pool of encoders: after this the
 * tokenizer can be used. */
oct_status oct_tokenizer_finish(oct_tokenizer *tokenizer, oct_error *err);

#endif
