/* A model in Hugging Face's words: the way back of hf_args.h. */
#ifndef OCT_JOB_HF_WORDS_H
#define OCT_JOB_HF_WORDS_H

#include "base/strbuf.h"
#include "hf/hf_config.h"
#include "model/args.h"

/* The text of a config.json, without a quantization, for resolved arguments. It is the one of
 * `origin` (a path, NULL: none) with its dtype and what isn't kept replaced, if that file says this
 * very model; else the first model type that says it when read back. Nothing is appended, and
 * OCT_OK returned, where transformers has no words for such a model; `why` (NULL: not asked) then
 * gets what is another in the nearest. `dtype`: "float32", ... OCT_INVALID: an origin that can't be
 * read. Check failed of both after. */
oct_status oct_hf_words_put(const oct_model_args *args, const char *origin, const char *dtype,
                            oct_strbuf *to, oct_strbuf *why, oct_error *err);

/* OCT_INVALID of a model without words, for what `why` says. */
oct_status oct_fail_no_words(const oct_strbuf *why, oct_error *err);

/* What transformers computes otherwise than these arguments say, as no config.json can say it to
 * its classes; a sentence each, NULL after the last. At most OCT_HF_WORDS_MAX_LOSSES. */
enum { OCT_HF_WORDS_MAX_LOSSES = 2 };
void oct_hf_words_losses(const oct_model_args *args,
                         const char *losses[OCT_HF_WORDS_MAX_LOSSES + 1]);

#endif
