/* A trained model opened for evaluation and generation. */
#ifndef OCT_TRAIN_INFERENCE_H
#define OCT_TRAIN_INFERENCE_H

#include "config/job.h"
#include "train/conversion.h"
#include "io/tokenizer.h"
#include "model/model.h"
#include "op/loss.h"
#include "train/model_source.h"

typedef struct oct_inference {
    oct_model_source *source; /* what was opened */
    oct_model *model;
    oct_conversion *conversion;
    oct_weights *weights;
    oct_step *step;
    oct_tokenizer *tokenizer;
    int64_t steps_done; /* by training, as a checkpoint says */
    int64_t n_trained;  /* tokens of the text that training drew from; -1: not known */
    char data_hash[24]; /* of that text with what was held out, as state.json has it; "": not known
                         */
    int64_t n_ends, ends[OCT_HF_MAX_ENDS]; /* a folder's end tokens, beside the tokenizer's */
} oct_inference;

typedef struct oct_inference_options {
    const char *recipe;         /* bf16, fp32 or a recipe; NULL: as oct_model_source says */
    const char *tokenizer_path; /* NULL: the one it was trained with, or the folder's own */
    int64_t max_len;            /* tokens that a sequence may reach; 0: training's seq_len */
} oct_inference_options;

/* `path` is as oct_model_source_open takes it. OCT_INVALID: there is no model, or its job,
 * tokenizer or parameters don't fit. Close it with oct_inference_close; one thread at a time. */
oct_status oct_inference_open(const char *path, const oct_inference_options *options,
                              oct_inference **inference, oct_error *err);
void oct_inference_close(oct_inference *inference); /* NULL is fine */

typedef struct oct_inference_data {
    const char *path;      /* a text, JSONL or packed file or a folder of them; NULL: the validation
                              data of the training, which it held out of the text or had apart */
    int64_t seq_len;       /* 0: training's, or validation's for its data */
    int64_t batch_size;    /* sequences at a time; 0: 8, of the validation data as in training */
    int64_t max_tokens;    /* in whole sequences; 0: all */
    oct_progress progress; /* NULL: none */
    void *progress_user;
} oct_inference_data;

/* The summed loss over windows of seq_len tokens, from the first on. *path: what was read;
 * borrowed. OCT_INVALID also where nothing was held out, or where the text isn't any more as long
 * as when it was. */
oct_status oct_inference_evaluate(oct_inference *inference, const oct_inference_data *data,
                                  const char **path, oct_loss_sum *total, oct_error *err);

typedef struct oct_sampling {
    double temperature; /* 0: the likeliest token; else logits are divided by it */
    int64_t top_k;      /* only the k likeliest tokens can be drawn; 0: all */
    uint64_t seed;
} oct_sampling;

/* The token drawn from logits (V) at `position`: a pure function of its arguments; of equal logits
 * the lower id comes first. -1: memory was refused, a logit is NaN or V is 0. */
int32_t oct_sample(const float *logits, int64_t V, const oct_sampling *sampling, int64_t position);

/* Continues `prompt` by at most max_new tokens, until the tokenizer's end token; each token's bytes
 * go to `sink` as they come. */
typedef void (*oct_text_sink)(void *user, const char *bytes, size_t n_bytes);
oct_status oct_inference_generate(oct_inference *inference, const char *prompt, int64_t max_new,
                                  const oct_sampling *sampling, oct_text_sink sink, void *user,
                                  int64_t *n_tokens, oct_error *err);

#endif
