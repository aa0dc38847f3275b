/* Data sets of small texts: a tokenizer of bytes, data sets that open or are refused. */
#ifndef OCT_TESTS_DATASET_SUPPORT_H
#define OCT_TESTS_DATASET_SUPPORT_H

#include "data/dataset.h"
#include "data/packed_file.h"
#include "file_support.h"
#include "text/bpe.h"

/* Token ids are the bytes; 256 ends a text, 257 begins one (if `others` says so). */
oct_tokenizer *byte_tokenizer(const char *others);

#define END_ONLY "\"added_tokens\":[{\"id\":256,\"content\":\"<|endoftext|>\"}],"
#define BEGIN_AND_END                                                                              \
    "\"added_tokens\":[{\"id\":256,\"content\":\"<|endoftext|>\"},"                                \
    "{\"id\":257,\"content\":\"<|begin_of_text|>\"}],"

oct_dataset *open_good(const char *path, const oct_tokenizer *t,
                       const oct_dataset_options *options);
void assert_refused(const char *path, const oct_tokenizer *t, const oct_dataset_options *options,
                    const char *word);
void assert_sequence(const oct_dataset *d, int64_t index, const int32_t *expected);

/* A packed file with the tokens 0, 1, 2, ... n-1 (modulo the vocabulary). */
void put_counting(const char *path, int64_t n, int64_t vocab_size);
int count_files(const char *folder);

#endif
