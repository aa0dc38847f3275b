/* A model's parameters from a Hugging Face folder's safetensors files. */
#ifndef OCT_JOB_HF_MODEL_H
#define OCT_JOB_HF_MODEL_H

#include <octet/status.h>

#include "job/hf_args.h"
#include "model/model.h"

/* What the caller takes: torchtitan's jobs say beforehand whether weights are in 8 bits. */
typedef enum oct_hf_weights {
    OCT_HF_ANY_WEIGHTS,      /* as they are */
    OCT_HF_HIGH_WEIGHTS,     /* 8 bits are refused, naming the key that takes them */
    OCT_HF_QUANTIZED_WEIGHTS /* 8 bits are expected */
} oct_hf_weights;

/* Reads every parameter and the routers' biases from a Hugging Face model folder, or one
 * .safetensors file. Weights in F8_E4M3 are dequantized as config.json's quantization_config says
 * (without a config.json: DeepSeek-V3's 128x128 blocks). Every tensor of the files must be one of
 * the model's, of its shape, and the other way round: OCT_INVALID lists all that aren't. Only these
 * may be left over: inv_freq tables, which are computed; a tied head's copy of the table; the
 * layers behind a model that predict further tokens, with a log line. In sharded training every
 * rank reads, and keeps its part. */
oct_status oct_setup_parameters_from_hf(const char *folder, oct_hf_weights weights,
                                        oct_model *model, oct_error *err);

/* The same refusals, from names, shapes and types alone: no weight is read, and the model needs no
 * memory. */
oct_status oct_setup_check_hf_tensors(const char *folder, const oct_model *model, oct_error *err);

/* Hands each parameter's values, as the call above would read them, to `visit`, one parameter at a
 * time; the model stays as it is, and needn't have memory. Then the routers' biases, in `param`
 * NULL with the layer's number. A status other than OCT_OK ends it. */
typedef oct_status (*oct_hf_visit)(void *user, const oct_param *param, int64_t layer,
                                   const float *values, oct_error *err);
oct_status oct_setup_visit_hf(const char *folder, const oct_model *model, oct_hf_visit visit,
                              void *user, oct_error *err);

#endif
