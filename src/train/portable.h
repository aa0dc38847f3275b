/* What a checkpoint carries so that it serves on another machine: the tokenizer's files as they
 * were at the start of the run, and the model's dimensions in Hugging Face's words. */
#ifndef OCT_TRAIN_PORTABLE_H
#define OCT_TRAIN_PORTABLE_H

#include "base/strbuf.h"
#include "io/checkpoint.h"
#include "model/args.h"

enum { OCT_PORTABLE_MAX = 8 };

/* Zero-initialise; end with oct_portable_free. */
typedef struct oct_portable {
    oct_checkpoint_file files[OCT_PORTABLE_MAX]; /* owned */
    size_t n;
} oct_portable;

/* Reads the files of the tokenizer at `path`, as oct_tokenizer_load takes it (NULL: none), and
 * writes config.json's text, where Hugging Face has words for the model. */
oct_status oct_portable_read(const char *tokenizer, const oct_model_args *args,
                             oct_portable *portable, oct_error *err);
void oct_portable_free(oct_portable *portable);

/* The name of the tokenizer's file, or NULL. */
const char *oct_portable_tokenizer(const oct_portable *portable);

/* The text of config.json for resolved arguments: what transformers computes the same from, in the
 * order of rotated rows that transformers has. False, and nothing appended: it has no words for
 * such a model. Check to->failed after. */
bool oct_portable_put_config(const oct_model_args *args, oct_strbuf *to);

#endif
