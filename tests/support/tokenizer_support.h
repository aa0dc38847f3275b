/* What the tests of tokenizers share: small tokenizer files, and ids compared. */
#ifndef OCT_TESTS_TOKENIZER_SUPPORT_H
#define OCT_TESTS_TOKENIZER_SUPPORT_H

#include "text/bpe.h"
#include "text/tokenizer.h"

/* Writes a tokenizer.json with the 256 bytes as ids 0 .. 255, then `more` entries of the vocabulary
 * (",\"ab\":256"), the merges, and the other keys as given. */
void put_tokenizer(const char *path, const char *more, const char *merges, const char *others);

#define BYTE_LEVEL                                                                                 \
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"                       \
    "\"decoder\":{\"type\":\"ByteLevel\"}"

oct_tokenizer *load(const char *path);
void assert_ids_n(const oct_tokenizer *t, const char *text, size_t n_bytes, oct_added_tokens added,
                  const int32_t *expected, size_t n);

#define assert_ids(t, text, ...)                                                                   \
    assert_ids_n(t, text, strlen(text), OCT_ADDED_TOKENS_FOUND, (int32_t[]){__VA_ARGS__},          \
                 sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

void assert_round_trip(const oct_tokenizer *t, const char *text, size_t n_bytes);

#endif
