/* The reader of a tokenizer.json and of the files beside it, in parts. Every file is hostile: all
 * sizes are bounded, and each thing that isn't understood is an error with its key, since a part
 * left out silently would give other ids. Internal to the tokenizer. */
#ifndef OCT_TEXT_TOKENIZER_READER_H
#define OCT_TEXT_TOKENIZER_READER_H

#include <octet/status.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "text/tokenizer_impl.h"

#define OCT_MAX_TOKENIZER_BYTES ((size_t)128 << 20) /* of a file */

typedef struct oct_tokenizer_reader {
    const char *path; /* of the file that is read, for messages */
    oct_tokenizer *tokenizer;
    bool byte_level;       /* the pre-tokenizer spells bytes */
    bool spelt;            /* ... and parts behind it see that */
    uint32_t nul;          /* the character that stands for NUL in the parsed file, 0: none */
    const json_t *vocab;   /* of tokenizer.json */
    oct_added_tree *known; /* index of each added token by its content */
    int32_t next_id;       /* of an added token that isn't in the vocabulary */
    oct_error *err;
} oct_tokenizer_reader;

/* OCT_INVALID: "PATH: KEY: wrong type; expected ...; got ...". */
oct_status oct_reader_wrong_type(oct_tokenizer_reader *r, const char *key, const char *expected,
                                 const json_t *value);
/* Optional booleans: absent or null is `fallback`. */
oct_status oct_reader_bool(oct_tokenizer_reader *r, const json_t *object, const char *key,
                           bool fallback, bool *out);
/* An object's "type", "" where it has none. */
const char *oct_reader_type(const json_t *object);

/* A reader of one part, an object at `key`. */
typedef oct_status (*oct_part_reader)(oct_tokenizer_reader *r, const json_t *part, const char *key);
/* Reads one part, or each part of a Sequence, whose list is at `list_key`. */
oct_status oct_reader_parts(oct_tokenizer_reader *r, const json_t *part, const char *key,
                            const char *list_key, oct_part_reader read);
oct_status oct_reader_unsupported_type(oct_tokenizer_reader *r, const json_t *part, const char *key,
                                       const char *expected);

/* Normalizer, pre-tokenizer and decoder. */
oct_status oct_reader_pipeline(oct_tokenizer_reader *r, const json_t *root);
/* Whether the file has a part that spells bytes; else its vocabulary is one of pieces. */
bool oct_reader_spells_bytes(const json_t *root);
oct_status oct_reader_normalizer(oct_tokenizer_reader *r, const json_t *root);
/* Pieces: which tokens stand for bytes, and what merges must keep to for them; then, with all
 * tokens known, what each decodes to. */
oct_status oct_reader_piece_bytes(oct_tokenizer_reader *r, const json_t *model);
oct_status oct_reader_piece_decoder(oct_tokenizer_reader *r, const json_t *root);
/* What is done to the ids of a whole text: post-processor, truncation, padding. */
oct_status oct_reader_post_processing(oct_tokenizer_reader *r, const json_t *root);
/* Which tokens begin and end a text, by the files of `folder` (NULL: none) and by known names. */
oct_status oct_reader_ends(oct_tokenizer_reader *r, const char *folder);

#endif
