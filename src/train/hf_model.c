/* A model from a Hugging Face folder: its dimensions from config.json, its parameters from the
 * safetensors files. Rows of heads that Hugging Face rotates another way are permuted
 * (model/hf_names.h). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "io/hf.h"
#include "model/hf_names.h"
#include "train/setup.h"

/* ---- dimensions ---- */

static oct_status fail_config(const char *folder, const char *key, const char *expected,
                              const char *got, oct_error *err) {
    return oct_fail(err, OCT_INVALID, "%s/config.json: %s: not supported; expected %s; got \"%s\"",
                    folder, key, expected, got);
}

static oct_status check_config(const oct_hf_config *config, const char *folder, oct_error *err) {
    bool known =
        strcmp(config->model_type, "llama") == 0 || strcmp(config->model_type, "qwen3") == 0;
    if (!known)
        return fail_config(folder, "model_type", "llama or qwen3", config->model_type, err);
    if (strcmp(config->hidden_act, "silu") != 0)
        return fail_config(folder, "hidden_act", "silu", config->hidden_act, err);
    if (config->attention_bias)
        return fail_config(folder, "attention_bias", "false", "true", err);
    if (config->rope_type == OCT_HF_ROPE_YARN)
        return fail_config(folder, "rope_scaling", "none or llama3", "yarn", err);
    return OCT_OK;
}

oct_status oct_setup_model_args_from_hf(const char *folder, oct_model_args *args, oct_error *err) {
    oct_hf_config config;
    oct_status status = oct_hf_config_read(folder, &config, err);
    if (status == OCT_OK)
        status = check_config(&config, folder, err);
    if (status != OCT_OK)
        return status;
    const char *name = strcmp(config.model_type, "llama") == 0 ? "llama3" : "qwen3";
    /* A flavor gives what config.json doesn't say: how parameters start. */
    status = oct_model_args_flavor(name, oct_model_flavors(name)[0], args, err);
    if (status != OCT_OK)
        return status;
    snprintf(args->flavor, sizeof args->flavor, "%s", "config.json");
    args->vocab_size = config.vocab_size;
    args->dim = config.hidden_size;
    args->n_layers = config.num_hidden_layers;
    args->n_heads = config.num_attention_heads;
    args->n_kv_heads = config.num_key_value_heads;
    args->head_dim = config.head_dim;
    args->hidden_dim = config.intermediate_size;
    args->norm_eps = config.rms_norm_eps;
    args->max_seq_len = config.max_position_embeddings;
    args->enable_weight_tying = config.tie_word_embeddings;
    args->rope_theta = config.rope_theta;
    args->rope_scaling = OCT_ROPE_UNSCALED;
    if (config.rope_type != OCT_HF_ROPE_LLAMA3)
        return OCT_OK;
    args->rope_scaling = OCT_ROPE_LLAMA3;
    args->rope_scaling_factor = config.rope_factor;
    args->rope_low_freq_factor = config.rope_low_freq_factor;
    args->rope_high_freq_factor = config.rope_high_freq_factor;
    args->rope_original_max_position_embeddings = config.rope_original_max_position_embeddings;
    return OCT_OK;
}

/* ---- parameters ---- */

/* IEEE 754 binary16: 5 exponent bits, 10 of mantissa. Exact. */
static float decode_half(uint16_t bits) {
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    float magnitude;
    if (exponent == 31)
        magnitude = mantissa ? NAN : INFINITY;
    else if (exponent == 0)
        magnitude = ldexpf((float)mantissa, -24);
    else
        magnitude = ldexpf((float)(1024 + mantissa), exponent - 25);
    return bits >> 15 ? -magnitude : magnitude;
}

/* Little-endian bytes at any alignment to fp32. */
static bool read_floats(const oct_safetensors_tensor *from, int64_t n, float *to) {
    const unsigned char *bytes = from->data;
    if (from->dtype == OCT_F32) {
        memcpy(to, bytes, (size_t)n * sizeof *to);
        return true;
    }
    if (from->dtype == OCT_BF16) {
        for (int64_t i = 0; i < n; i++) {
            uint32_t bits = ((uint32_t)bytes[2 * i] << 16) | ((uint32_t)bytes[2 * i + 1] << 24);
            memcpy(&to[i], &bits, sizeof bits);
        }
        return true;
    }
    if (from->dtype == OCT_F16) {
        for (int64_t i = 0; i < n; i++) {
            to[i] = decode_half((uint16_t)(bytes[2 * i] | bytes[2 * i + 1] << 8));
        }
        return true;
    }
    return false;
}

static bool same_shape(const oct_safetensors_tensor *tensor, const oct_param *param) {
    if (tensor->n_dims != param->n_dims)
        return false;
    for (int i = 0; i < param->n_dims; i++)
        if (tensor->shape[i] != param->shape[i])
            return false;
    return true;
}

static oct_status permute(const oct_model_args *args, const oct_param *param) {
    int64_t heads = oct_hf_permuted_heads(args, param->name);
    if (heads == 0)
        return OCT_OK;
    size_t n = (size_t)oct_param_elements(param);
    float *copy = oct_malloc_array(n, sizeof *copy);
    if (!copy)
        return OCT_NO_MEMORY;
    memcpy(copy, param->value, n * sizeof *copy);
    size_t row_bytes = n / (size_t)param->shape[0] * sizeof *copy;
    oct_hf_permute_rows(OCT_FROM_HF, heads, param->shape[0] / heads, row_bytes, copy, param->value);
    oct_free(copy);
    return OCT_OK;
}

static oct_status read_param(const oct_hf_model *hf, const char *folder, const oct_model_args *args,
                             oct_param *param, oct_error *err) {
    char name[OCT_HF_MODULE_NAME_SIZE];
    if (!oct_hf_name(args->family, param->name, name))
        return oct_fail(err, OCT_INVALID, "%s: %s has no name there", folder, param->name);
    const oct_safetensors_tensor *tensor = oct_hf_model_find(hf, name);
    if (!tensor)
        return oct_fail(err, OCT_INVALID, "%s: tensor %s is missing", folder, name);
    if (!same_shape(tensor, param))
        return oct_fail(err, OCT_INVALID, "%s: tensor %s has another shape than %s of this model",
                        folder, name, param->name);
    if (!read_floats(tensor, oct_param_elements(param), param->value))
        return oct_fail(err, OCT_INVALID, "%s: tensor %s: expected F32, BF16 or F16; got %s",
                        folder, name, tensor->dtype_name);
    return permute(args, param) == OCT_OK ? OCT_OK : oct_fail_memory(err);
}

oct_status oct_setup_parameters_from_hf(const char *folder, oct_model *model, oct_error *err) {
    int64_t n;
    oct_param *const *params = oct_model_params(model, &n);
    oct_hf_model *hf = NULL;
    oct_status status = oct_hf_model_open(folder, &hf, err);
    for (int64_t i = 0; i < n && status == OCT_OK; i++)
        status = read_param(hf, folder, oct_model_get_args(model), params[i], err);
    oct_hf_model_close(hf);
    if (status == OCT_OK)
        oct_model_changed(model);
    return status;
}
