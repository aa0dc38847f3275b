/* What a checkpoint carries so that it serves on another machine: the tokenizer's files as they
 * were at the start of the run, and the model's dimensions in Hugging Face's words. */
#ifndef OCT_JOB_PORTABLE_H
#define OCT_JOB_PORTABLE_H

#include "checkpoint/checkpoint.h"
#include "model/args.h"

enum { OCT_PORTABLE_MAX = 8 };

/* Zero-initialise; end with oct_portable_free. */
typedef struct oct_portable {
    oct_checkpoint_file files[OCT_PORTABLE_MAX]; /* owned */
    size_t n;
} oct_portable;

/* Reads the files of the tokenizer at `path`, as oct_tokenizer_load takes it. */
oct_status oct_portable_read_tokenizer(const char *path, oct_portable *portable, oct_error *err);
/* Adds config.json, where Hugging Face has words for the model; the arguments are those of
 * oct_hf_words_put. */
oct_status oct_portable_put_words(const oct_model_args *args, const char *origin, const char *dtype,
                                  oct_portable *portable, oct_error *err);
void oct_portable_free(oct_portable *portable);

/* The name of the tokenizer's file, or NULL. */
const char *oct_portable_tokenizer(const oct_portable *portable);

#endif
