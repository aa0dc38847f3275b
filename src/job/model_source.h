/* A trained model, wherever it is: a checkpoint of ours, or a Hugging Face folder. The one way in
 * for every command that takes a model. */
#ifndef OCT_JOB_MODEL_SOURCE_H
#define OCT_JOB_MODEL_SOURCE_H

#include "checkpoint/checkpoint.h"
#include "config/job.h"
#include "hf/hf_config.h"
#include "model/model.h"

/* How it is to be run. */
typedef struct oct_model_use {
    const char *recipe;           /* bf16, fp32 or a recipe; NULL: see oct_model_source */
    const char *const *overrides; /* of a folder's job, as oct_job_load takes them */
    int n_overrides;
} oct_model_use;

typedef struct oct_model_source {
    char *path;                 /* of the checkpoint itself, or of the folder */
    oct_checkpoint *checkpoint; /* NULL: a Hugging Face folder */
    /* What the model runs by: the job that trained it, or for a folder torchtitan's defaults, with
     * nothing in 8 bits and activations in fp32 where config.json's dtype is float32, else in bf16,
     * and the overrides; in both the recipe of the use. */
    oct_job job;
    oct_model_args args; /* resolved */
    oct_hf_config hf;    /* of a folder */
} oct_model_source;

/* `path`: a Hugging Face folder, or what oct_checkpoint_locate takes. Reads no weights. The caller
 * owns *source. OCT_INVALID: there is no model, or it can't be built, or the use doesn't fit. */
oct_status oct_model_source_open(const char *path, const oct_model_use *use,
                                 oct_model_source **source, oct_error *err);
/* Fills the parameters of a model that was created with the source's args. A folder's weights in 8
 * bits are dequantized. */
oct_status oct_model_source_read(const oct_model_source *source, oct_model *model, oct_error *err);
void oct_model_source_close(oct_model_source *source); /* NULL is fine */

#endif
