/* A trained model opened for evaluation and generation. */
#ifndef OCT_INFER_INFERENCE_H
#define OCT_INFER_INFERENCE_H

#include "config/job.h"
#include "job/conversion.h"
#include "job/model_source.h"
#include "model/model.h"
#include "op/loss.h"
#include "text/tokenizer.h"

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

/* The ids of a text that the model is to go on with, after what the tokenizer puts before one: its
 * post-processor's tokens, or else its begin token. An empty text is the end token, after which a
 * document begins; OCT_INVALID where there is none. */
oct_status oct_inference_encode(const oct_inference *inference, const char *prompt,
                                oct_token_list *ids, oct_error *err);

typedef struct oct_inference_data {
    const char *path;   /* a text, JSONL or packed file or a folder of them; NULL: the validation
                           data of the training, which it held out of the text or had apart */
    int64_t seq_len;    /* 0: training's, or validation's for its data */
    int64_t batch_size; /* sequences at a time; 0: 8, of the validation data as in training */
    int64_t max_tokens; /* in whole sequences; 0: all */
    int64_t window, stride; /* not 0: tokens that the model sees at a time, and how far it goes on
                               from one to the next: seq_len and whole sequences don't count then,
                               and a path is given */
    oct_progress progress;  /* NULL: none */
    void *progress_user;
} oct_inference_data;

/* The summed loss over windows of seq_len tokens, from the first on. With a stride every token but
 * the first counts once: of the first window all, of each other one the labels that no window had
 * before, which have the tokens before them as context; the last window may be shorter. *path: what
 * was read; borrowed. OCT_INVALID also where nothing was held out, or where the text isn't any more
 * as long as when it was. */
oct_status oct_inference_evaluate(oct_inference *inference, const oct_inference_data *data,
                                  const char **path, oct_loss_sum *total, oct_error *err);

#endif
