/* Token data sets: sequences for training and validation from texts or packed token files.
 *
 * A path is one of: a packed token file (data/packed_file.h), a JSONL file (`.jsonl`, `.ndjson`,
 * `.json`: each line an object whose "text" is a document), a text file (one document; not one
 * whose name says that it's a table, a database or an archive), or a folder of packed files or of
 * texts
 * (`.txt`, `.text`, `.jsonl`, `.ndjson`; sorted by name, other and hidden files ignored, no
 * subfolders). Texts are tokenized once into a packed file in the cache folder. Each document is
 * preceded by the tokenizer's begin token, if it has one that isn't its end token, and followed by
 * its end token. Tokens are memory-mapped, never loaded whole.
 *
 * The stream of T tokens is cut into n = (T - 1) / S windows (rounded down) of S + 1 tokens, window
 * i starting at token i * S: inputs are its first S tokens, labels its last S.
 *
 * Invariant: an open data set never changes; what is drawn is a pure function of (seed, position).
 * All functions on it are thread-safe. */
#ifndef OCT_DATA_DATASET_H
#define OCT_DATA_DATASET_H

#include <octet/status.h>
#include <stdint.h>

#include "text/tokenizer.h"

typedef struct oct_dataset oct_dataset;

/* Which part of the stream. The held-out part is its last tokens, so the two never share one. */
typedef enum oct_dataset_part {
    OCT_DATASET_WHOLE,
    OCT_DATASET_TRAIN,
    OCT_DATASET_HELD_OUT,
} oct_dataset_part;

/* Whether opening a packed file reads all of it to compare its checksum. Ids are checked against
 * the vocabulary in every sequence, in any case. */
typedef enum oct_dataset_verify { OCT_VERIFY_CHECKSUM, OCT_VERIFY_HEADER } oct_dataset_verify;

typedef struct oct_dataset_options {
    int64_t seq_len;    /* S >= 1 */
    int64_t vocab_size; /* of the model: larger ids are refused; 0: not checked */
    oct_dataset_part part;
    int64_t held_out_tokens;  /* size of the held-out part; 0: held_out_fraction says it */
    double held_out_fraction; /* of the stream, in (0, 1) */
    oct_dataset_verify verify;
    /* Made if missing; keyed by the texts' names, sizes, times and ends and by the tokenizer, so
     * that a changed text is tokenized again. NULL: an unnamed temporary file, gone at close. */
    const char *cache_folder;
    oct_progress progress; /* NULL: none */
    void *progress_user;
} oct_dataset_options;

/* `tokenizer` may be NULL for packed files; with it, a packed file made by another is refused.
 * OCT_INVALID: nothing usable at `path`, a bad line (FILE:LINE), a corrupted packed file, ids above
 * the vocabulary, fewer than S + 1 tokens. OCT_FAILED: the cache can't be written. Several
 * processes may open the same texts at once; to tokenize them only once let one go first. The
 * tokenizer is not used after the call. */
oct_status oct_dataset_open(const char *path, const oct_tokenizer *tokenizer,
                            const oct_dataset_options *options, oct_dataset **dataset,
                            oct_error *err);
void oct_dataset_close(oct_dataset *dataset); /* NULL is fine */

int64_t oct_dataset_n_sequences(const oct_dataset *dataset); /* of its part, >= 1 */
int64_t oct_dataset_n_tokens(const oct_dataset *dataset);    /* of its part */
int64_t oct_dataset_n_total(const oct_dataset *dataset);     /* of the whole stream */
int64_t oct_dataset_seq_len(const oct_dataset *dataset);
int64_t oct_dataset_vocab_size(const oct_dataset *dataset); /* of the tokenizer that made it */

/* Window `index` in 0 .. n_sequences-1: tokens[S + 1]. OCT_INVALID for an index outside or an id
 * that isn't below the vocabulary size (a file changed after it was checked). */
oct_status oct_dataset_sequence(const oct_dataset *dataset, int64_t index, int32_t *tokens,
                                oct_error *err);

/* The window at `position` >= 0 of an endless shuffled order: each run of n_sequences positions (an
 * epoch) visits every window once, in an order of its own. Nothing of size n is stored: a Feistel
 * network over (seed, epoch) with cycle walking. In order, without shuffling: position %
 * n_sequences.
 *
 * A run's only state is the number of sequences consumed so far by all ranks together. A global
 * batch of G sequences takes positions consumed .. consumed + G - 1, whatever the number of ranks:
 * rank r of R takes those of oct_dataset_rank_position. */
int64_t oct_dataset_shuffled_index(const oct_dataset *dataset, uint64_t seed, int64_t position);

/* The position of the i-th sequence that `rank` of `n_ranks` takes after `consumed`, where a step
 * is cut into micro-batches of B sequences: micro-batch m holds positions consumed + m B and on,
 * and goes to rank m % n_ranks. So the sequences of a micro-batch are the same ones on any number
 * of ranks, which matters to scales over tokens. */
static inline int64_t oct_dataset_rank_position(int64_t consumed, int64_t i, int64_t B, int rank,
                                                int n_ranks) {
    return consumed + (i / B * n_ranks + rank) * B + i % B;
}

/* Equal for data sets of the same tokens in the same files or, of texts, in the same cache form;
 * whatever their part. A function of what the files say of themselves: nothing is read again. */
uint64_t oct_dataset_hash(const oct_dataset *dataset);

/* The entropy, in nats per token, of the token frequencies in tokens first .. first+n-1 of the
 * part: the loss of the best model that ignores context. */
oct_status oct_dataset_unigram_entropy(const oct_dataset *dataset, int64_t first, int64_t n,
                                       double *nats, oct_error *err);

/* Texts (any of the kinds above, in order, or all read as `as`) to one packed file at `out_path`,
 * written through a temporary name. *n_tokens and *n_documents may be NULL. */
oct_status oct_data_pack(const char *const *paths, size_t n_paths, oct_read_as as,
                         const oct_tokenizer *tokenizer, const char *out_path,
                         oct_progress progress, void *progress_user, int64_t *n_tokens,
                         int64_t *n_documents, oct_error *err);

#endif
