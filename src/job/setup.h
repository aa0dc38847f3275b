/* From a job to its parts: the model, the tokenizer, the data. Shared by training, planning and
 * evaluating. Every error names the job's key and its place. */
#ifndef OCT_JOB_SETUP_H
#define OCT_JOB_SETUP_H

#include <stdbool.h>

#include "checkpoint/checkpoint.h"
#include "config/job.h"
#include "config/together.h"
#include "data/dataset.h"
#include "model/model.h"
#include "text/tokenizer.h"

/* Puts the place and the key before the message of `cause`, which may begin with the last part of
 * the key, or all of it. */
oct_status oct_setup_fail_at(const oct_job *job, const char *key, const oct_error *cause,
                             oct_error *err);

/* Lays [model.args] over the dimensions and resolves them. */
oct_status oct_setup_own_args(const oct_job *job, oct_model_args *args, oct_error *err);

/* The flavor's dimensions, or without a flavor (YAML) those of model.hf_assets_path's config.json,
 * with [model.args] applied and room for training.seq_len positions; resolved. */
oct_status oct_setup_model_args(const oct_job *job, oct_model_args *args, oct_error *err);

/* The config.json that the job's model has from a Hugging Face folder: that of the initial weights,
 * or of the dimensions (oct_free); NULL: none, or memory is refused. */
char *oct_setup_hf_config_path(const oct_job *job);

/* What activations are computed in: training.mixed_precision_param. */
oct_dtype oct_setup_activation(const oct_job *job);

/* How products of a quantization table are computed. */
oct_gemm_mode oct_setup_gemm(const oct_job_mx *mx);

/* The patterns of a YAML job's lists: those of one list that are none, in one failure. */
oct_status oct_setup_check_patterns(const oct_job *job, oct_together *together);

/* Activation checkpointing of every layer, as [activation_checkpoint] says. */
void oct_setup_recompute(const oct_job *job, oct_model *model);

/* Freezes the parameters of the modules that model.freeze names (Hugging Face's names, globs). */
void oct_setup_frozen(const oct_job *job, oct_model *model);

/* Draws the parameters from `seed`, or reads them when checkpoint.initial_load_path is set: from a
 * checkpoint's folder, or a Hugging Face folder with checkpoint.initial_load_in_hf. */
oct_status oct_setup_parameters(const oct_job *job, uint64_t seed, oct_model *model,
                                oct_error *err);
oct_status oct_setup_parameters_from_checkpoint(const oct_checkpoint *from, oct_model *model,
                                                oct_error *err);

/* model.tokenizer_path, else model.hf_assets_path. */
const char *oct_setup_tokenizer_path(const oct_job *job);
/* The tokenizer of model.tokenizer_path or model.hf_assets_path, checked against the model's
 * vocabulary. *tokenizer is NULL with OCT_OK when the user named none and there is none at the
 * default place: packed token files need none. */
oct_status oct_setup_tokenizer(const oct_job *job, int64_t vocab_size, oct_tokenizer **tokenizer,
                               oct_error *err);

/* Tells a model whose attention stays inside documents which token ends one: the tokenizer's end
 * token. OCT_INVALID, without a place: there is none. Other models are left alone. */
oct_status oct_setup_documents(const oct_tokenizer *tokenizer, oct_model *model, oct_error *err);

typedef struct oct_setup_data {
    const oct_tokenizer *tokenizer; /* may be NULL for packed files */
    int64_t vocab_size;
    const char *cache_folder;
    oct_progress progress; /* NULL: none */
    void *progress_user;
} oct_setup_data;
/* The training data, and with validation.enable the held-out data (else NULL). Without a path of
 * its own, validation takes the end of the training text, which training then never sees: as many
 * tokens as validation.steps batches of validation.local_batch_size need, or a twentieth for steps
 * = -1. Nothing depends on the number of ranks. */
oct_status oct_setup_datasets(const oct_job *job, const oct_setup_data *setup, oct_dataset **train,
                              oct_dataset **validation, oct_error *err);
/* The validation data alone, in windows of seq_len tokens. The job has some: oct_setup_holds_out,
 * or validation.dataset_path. */
oct_status oct_setup_validation(const oct_job *job, const oct_setup_data *setup, int64_t seq_len,
                                oct_dataset **validation, oct_error *err);
/* Whether validation takes the end of the training text, which training never sees: only without a
 * path of its own. */
bool oct_setup_holds_out(const oct_job *job);
/* Whether validation's own path is the training text itself, however it is spelt. A file system
 * that has neither any more knows by the names alone. */
bool oct_setup_validates_on_seen(const oct_job *job);
/* Sequences that a validation reads, all ranks together: those of validation.steps batches, or all.
 */
int64_t oct_setup_validation_sequences(const oct_job *job, const oct_dataset *validation);

#endif
