/* BPE tokenizers in Hugging Face's `tokenizer.json` format: byte-level ones (GPT-2, Llama 3, Qwen 2
 * and 3, DeepSeek V3, and what oct_tokenizer_train writes), and those whose file has no ByteLevel
 * part, vocabularies of pieces as SentencePiece trains them (Llama 2, Mistral, Gemma). These mark
 * spaces and merge characters; one without a token becomes the tokens of its bytes, or the unknown
 * token, and a text is normalised as a whole. The rest goes for both.
 *
 * Text goes through these steps: added tokens are cut out; the rest is normalised (NFC, if the file
 * says so), split into words by the file's regular expressions, and each word's bytes are merged in
 * the order of the file's merges. Text may be any bytes: a byte that isn't part of valid UTF-8
 * becomes the token of that byte, so that decode(encode(x)) == x for every x that normalising
 * leaves alone. Added tokens are looked for leftmost first, longest first: those with
 * "normalized": false in the text as it is, then the others in what normalising makes of the rest.
 * Their ids are those that the reference library gives them, whatever the file says: the
 * vocabulary's, or counted on from its number of entries; a list that collides is refused.
 *
 * Invariant: a loaded tokenizer never changes. All functions on it are thread-safe, encode too. */
#ifndef OCT_TEXT_TOKENIZER_H
#define OCT_TEXT_TOKENIZER_H

#include <octet/status.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"
#include "text/documents.h"
#include "text/token_list.h"

typedef struct oct_tokenizer oct_tokenizer;

/* What encode does with the text of an added token (`<|endoftext|>`) inside a text. */
typedef enum oct_added_tokens {
    OCT_ADDED_TOKENS_FOUND,  /* it becomes that token, as in Hugging Face's library */
    OCT_ADDED_TOKENS_AS_TEXT /* it's text like any other */
} oct_added_tokens;

/* Whether decode writes special tokens (begin, end of text) or leaves them out. */
typedef enum oct_special_tokens {
    OCT_SPECIAL_TOKENS_WRITE,
    OCT_SPECIAL_TOKENS_SKIP
} oct_special_tokens;

/* `path` is a tokenizer file, or a folder that holds `tokenizer.json` (a Hugging Face model
 * folder). OCT_INVALID: unreadable, not JSON, not a BPE of these kinds, or inconsistent (a merge of
 * unknown tokens, an id used twice); the message names the file and the key. Begin
 * and end of text are found by the first of these that says anything:
 *   1. `bos_token` / `eos_token` of `tokenizer_config.json` beside a file named `tokenizer.json`
 *      (null or "" there means that there is none);
 *   2. the same of `special_tokens_map.json` beside it;
 *   3. `bos_token_id` / `eos_token_id` of `generation_config.json` beside it (a list: its first);
 *   4. added tokens: begin is `<|begin_of_text|>`, `<s>` or DeepSeek's; end is `<|end_of_text|>`,
 *      `<|endoftext|>`, `</s>` or DeepSeek's, the first that exists. */
oct_status oct_tokenizer_load(const char *path, oct_tokenizer **tokenizer, oct_error *err);
void oct_tokenizer_free(oct_tokenizer *tokenizer); /* NULL is fine */

/* Appends the ids of `text` to *ids; adds no begin or end token. */
oct_status oct_tokenizer_encode(const oct_tokenizer *tokenizer, const char *text, size_t n_bytes,
                                oct_added_tokens added, oct_token_list *ids, oct_error *err);

/* The same for texts of any size: ids are handed to `sink` in pieces, in order, as they are found;
 * memory doesn't grow with the text (a stretch of 16 MiB without any word boundary is cut there).
 * A status other than OCT_OK from the sink ends the call, which returns it. */
typedef oct_status (*oct_token_sink)(void *user, const int32_t *ids, size_t n, oct_error *err);
oct_status oct_tokenizer_encode_stream(const oct_tokenizer *tokenizer, const char *text,
                                       size_t n_bytes, oct_added_tokens added, oct_token_sink sink,
                                       void *user, oct_error *err);

/* The same for a whole text as the reference library's encode() gives it: with the tokens that the
 * file's post-processor puts around a text, and cut to the file's truncation. */
oct_status oct_tokenizer_encode_whole(const oct_tokenizer *tokenizer, const char *text,
                                      size_t n_bytes, oct_added_tokens added, oct_token_sink sink,
                                      void *user, oct_error *err);
/* Those tokens: how many there are before and after a text, and their ids (the tokenizer's). */
size_t oct_tokenizer_ids_before(const oct_tokenizer *tokenizer, const int32_t **ids);
size_t oct_tokenizer_ids_after(const oct_tokenizer *tokenizer, const int32_t **ids);

/* Appends the bytes of the ids to *text, which may end inside a UTF-8 character. An id that the
 * tokenizer doesn't have is OCT_INVALID. */
oct_status oct_tokenizer_decode(const oct_tokenizer *tokenizer, const int32_t *ids, size_t n,
                                oct_special_tokens special, oct_strbuf *text, oct_error *err);

/* The bytes of one token as it is decoded within a text (owned by the tokenizer, not
 * NUL-terminated); NULL if there is no such id.
 */
const char *oct_tokenizer_token(const oct_tokenizer *tokenizer, int32_t id, size_t *n_bytes);
/* The id of the token or added token with exactly these bytes, -1 if there is none. */
int32_t oct_tokenizer_find(const oct_tokenizer *tokenizer, const char *bytes, size_t n_bytes);

int64_t oct_tokenizer_vocab_size(const oct_tokenizer *tokenizer); /* largest id + 1 */
int32_t oct_tokenizer_bos(const oct_tokenizer *tokenizer);        /* -1: none */
int32_t oct_tokenizer_eos(const oct_tokenizer *tokenizer);        /* -1: none */

/* Equal for tokenizers that give the same ids to every text (a hash of vocabulary, merges, added
 * tokens, normalizer and splits; never 0), whatever their files' layout. */
uint64_t oct_tokenizer_hash(const oct_tokenizer *tokenizer);

/* ---- training ---- */

typedef enum oct_split_rule {
    OCT_SPLIT_GPT2,  /* contractions, words, numbers, punctuation, each with its leading space */
    OCT_SPLIT_LLAMA3 /* case-insensitive contractions, at most 3 digits, line ends with punctuation
                      */
} oct_split_rule;

/* Called now and then with work done and its total, in any unit; `user` is handed through. */
typedef void (*oct_progress)(void *user, const char *what, int64_t done, int64_t total);

typedef struct oct_tokenizer_train_options {
    int64_t vocab_size; /* 257 .. 1048576: the end token, 256 bytes, then merges */
    oct_split_rule split;
    oct_read_as as;
    oct_progress progress; /* NULL: none */
    void *progress_user;
} oct_tokenizer_train_options;

/* Trains on text files, JSONL files or folders of them (as in dataset.h) and writes `out_path`
 * through a temporary name. Token 0 is `<|endoftext|>`, 1 .. 256 are the bytes in the order of
 * their printable characters, then come the merges: the most frequent pair first, of equally
 * frequent ones that with the lower ids; so the result is a pure function of texts and options. A
 * pair that occurs once only is never merged: *n_tokens (may be NULL) tells how many entries came
 * out, which may be fewer than asked for. */
oct_status oct_tokenizer_train(const char *const *paths, size_t n_paths,
                               const oct_tokenizer_train_options *options, const char *out_path,
                               int64_t *n_tokens, oct_error *err);

#endif
