/* A model from a Hugging Face folder: its dimensions from config.json, its parameters from the
 * safetensors files. */
#ifndef OCT_TRAIN_HF_MODEL_H
#define OCT_TRAIN_HF_MODEL_H

#include <octet/status.h>

#include "model/model.h"

/* The dimensions that `folder`/config.json says; not resolved yet. */
oct_status oct_setup_model_args_from_hf(const char *folder, oct_model_args *args, oct_error *err);

/* Reads every parameter from a Hugging Face model folder. */
oct_status oct_setup_parameters_from_hf(const char *folder, oct_model *model, oct_error *err);

#endif
