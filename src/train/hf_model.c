/* A model from a Hugging Face folder: see hf_model.h. Rows of heads that Hugging Face rotates
 * another way are permuted (model/hf_names.h). */
#include "train/hf_model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "io/hf.h"
#include "model/hf_names.h"
#include "train/held.h"

/* ---- dimensions ---- */

static oct_status fail_config(const char *folder, const char *key, const char *expected,
                              const char *got, oct_error *err) {
    return oct_fail(err, OCT_INVALID, "%s/config.json: %s: not supported; expected %s; got \"%s\"",
                    folder, key, expected, got);
}

/* The model name of a model_type, or NULL. */
static const char *name_of(const oct_hf_config *config) {
    static const char *const names[][2] = {{"llama", "llama3"},
                                           {"qwen3", "qwen3"},
                                           {"qwen3_moe", "qwen3"},
                                           {"deepseek_v3", "deepseek_v3"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(config->model_type, names[i][0]) == 0)
            return names[i][1];
    return NULL;
}

static oct_status check_config(const oct_hf_config *config, const char *folder, oct_error *err) {
    bool deepseek = strcmp(config->model_type, "deepseek_v3") == 0;
    if (!name_of(config))
        return fail_config(folder, "model_type", "llama, qwen3, qwen3_moe or deepseek_v3",
                           config->model_type, err);
    if (strcmp(config->hidden_act, "silu") != 0)
        return fail_config(folder, "hidden_act", "silu", config->hidden_act, err);
    if (config->attention_bias)
        return fail_config(folder, "attention_bias", "false", "true", err);
    if (config->rope_type == OCT_HF_ROPE_YARN && !deepseek)
        return fail_config(folder, "rope_scaling", "none or llama3", "yarn", err);
    if (config->rope_type == OCT_HF_ROPE_LLAMA3 && deepseek)
        return fail_config(folder, "rope_scaling", "none or yarn", "llama3", err);
    if (config->n_experts && (config->decoder_sparse_step != 1 || config->n_mlp_only_layers > 0))
        return fail_config(folder, "decoder_sparse_step", "1 and no mlp_only_layers",
                           "dense layers between those with experts", err);
    return OCT_OK;
}

static void set_rope(const oct_hf_config *config, oct_model_args *args) {
    args->rope_theta = config->rope_theta;
    args->rope_scaling = OCT_ROPE_UNSCALED;
    if (config->rope_type == OCT_HF_ROPE_DEFAULT)
        return;
    args->rope_scaling_factor = config->rope_factor;
    args->rope_original_max_position_embeddings = config->rope_original_max_position_embeddings;
    if (config->rope_type == OCT_HF_ROPE_LLAMA3) {
        args->rope_scaling = OCT_ROPE_LLAMA3;
        args->rope_low_freq_factor = config->rope_low_freq_factor;
        args->rope_high_freq_factor = config->rope_high_freq_factor;
        return;
    }
    args->rope_scaling = OCT_ROPE_YARN;
    args->beta_fast = config->rope_beta_fast;
    args->beta_slow = config->rope_beta_slow;
    args->mscale = config->rope_mscale_all_dim; /* the one that scales the scores */
}

static void set_latent_attention(const oct_hf_config *config, oct_model_args *args) {
    args->q_lora_rank = config->q_lora_rank;
    args->kv_lora_rank = config->kv_lora_rank;
    args->qk_nope_head_dim = config->qk_nope_head_dim;
    args->qk_rope_head_dim = config->qk_rope_head_dim;
    args->v_head_dim = config->v_head_dim;
}

static void set_experts(const oct_hf_config *config, oct_model_args *args) {
    bool deepseek = args->family == OCT_MODEL_DEEPSEEK_V3;
    args->num_experts = config->n_experts;
    args->top_k = config->n_experts ? config->num_experts_per_tok : 0;
    args->num_shared_experts = config->n_experts && deepseek ? config->n_shared_experts : 0;
    args->moe_inter_dim = config->moe_intermediate_size;
    args->n_dense_layers = deepseek ? config->first_k_dense_replace : 0;
    args->num_expert_groups = deepseek && config->n_group > 1 ? config->n_group : 0;
    args->num_limited_groups = deepseek ? config->topk_group : 0;
    args->score_func = deepseek && config->scoring_func == OCT_HF_SCORING_SIGMOID
                           ? OCT_SCORE_SIGMOID
                           : OCT_SCORE_SOFTMAX;
    args->route_norm = config->norm_topk_prob;
    args->route_scale = deepseek ? config->routed_scaling_factor : 1.0;
    args->score_before_experts = false;
    if (args->num_experts > 0)
        args->load_balance_coeff = 1e-3;
}

oct_status oct_setup_model_args_from_hf(const char *folder, oct_model_args *args, oct_error *err) {
    oct_hf_config config;
    oct_status status = oct_hf_config_read(folder, &config, err);
    if (status == OCT_OK)
        status = check_config(&config, folder, err);
    if (status != OCT_OK)
        return status;
    const char *name = name_of(&config);
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
    set_rope(&config, args);
    set_experts(&config, args);
    if (args->family == OCT_MODEL_DEEPSEEK_V3)
        set_latent_attention(&config, args);
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

static bool same_shape(const oct_safetensors_tensor *tensor, int n_dims, const int64_t *shape) {
    if (tensor->n_dims != n_dims)
        return false;
    for (int i = 0; i < n_dims; i++)
        if (tensor->shape[i] != shape[i])
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

/* Where a tensor of the folder goes. */
typedef struct destination {
    const char *name; /* there */
    const char *of;   /* the parameter or buffer here, for messages */
    int n_dims;
    const int64_t *shape;
    float *value;
} destination;

typedef struct source {
    const oct_hf_model *hf;
    const char *folder; /* it is in */
    const oct_model_args *args;
} source;

static oct_status read_tensor(const source *from, const destination *to, oct_error *err) {
    int64_t n = 1;
    const char *folder = from->folder;
    const oct_safetensors_tensor *tensor = oct_hf_model_find(from->hf, to->name);
    if (!tensor)
        return oct_fail(err, OCT_INVALID, "%s: tensor %s is missing", folder, to->name);
    if (!same_shape(tensor, to->n_dims, to->shape))
        return oct_fail(err, OCT_INVALID, "%s: tensor %s has another shape than %s of this model",
                        folder, to->name, to->of);
    for (int i = 0; i < to->n_dims; i++)
        n *= to->shape[i];
    if (!read_floats(tensor, n, to->value))
        return oct_fail(err, OCT_INVALID, "%s: tensor %s: expected F32, BF16 or F16; got %s",
                        folder, to->name, tensor->dtype_name);
    return OCT_OK;
}

/* One tensor an expert. */
static oct_status read_experts(const source *from, oct_param *param, oct_error *err) {
    char name[OCT_HF_MODULE_NAME_SIZE];
    int64_t n = param->shape[1] * param->shape[2];
    oct_status status = OCT_OK;
    for (int64_t e = 0; e < param->shape[0] && status == OCT_OK; e++) {
        if (!oct_hf_expert_name(from->args->family, param->name, e, name))
            return oct_fail(err, OCT_INVALID, "%s: %s has no name there", from->folder,
                            param->name);
        const destination to = {name, param->name, 2, param->shape + 1, param->value + e * n};
        status = read_tensor(from, &to, err);
    }
    return status;
}

static oct_status read_param(const void *context, oct_param *param, oct_error *err) {
    const source *from = context;
    char name[OCT_HF_MODULE_NAME_SIZE];
    if (param->n_dims == 3)
        return read_experts(from, param, err);
    if (!oct_hf_name(from->args->family, param->name, name))
        return oct_fail(err, OCT_INVALID, "%s: %s has no name there", from->folder, param->name);
    const destination to = {name, param->name, param->n_dims, param->shape, param->value};
    oct_status status = read_tensor(from, &to, err);
    if (status != OCT_OK)
        return status;
    return permute(from->args, param) == OCT_OK ? OCT_OK : oct_fail_memory(err);
}

/* The routers' biases, where the family has a name for them; models without start at zero. */
static oct_status read_buffers(const source *from, oct_model *model, oct_error *err) {
    const oct_model_args *args = from->args;
    oct_status status = OCT_OK;
    for (int64_t i = 0; i < args->n_layers && status == OCT_OK; i++) {
        oct_moe *moe = oct_model_moe(model, i);
        char ours[OCT_HF_MODULE_NAME_SIZE], name[OCT_HF_MODULE_NAME_SIZE];
        if (!moe)
            continue;
        snprintf(ours, sizeof ours, "%s.expert_bias", moe->base.name);
        const destination to = {name, ours, 1, &args->num_experts, moe->expert_bias};
        if (oct_hf_name(args->family, ours, name) && oct_hf_model_find(from->hf, name))
            status = read_tensor(from, &to, err);
    }
    return status;
}

oct_status oct_setup_parameters_from_hf(const char *folder, oct_model *model, oct_error *err) {
    int64_t n;
    oct_param *const *params = oct_model_params(model, &n);
    oct_hf_model *hf = NULL;
    oct_status status = oct_hf_model_open(folder, &hf, err);
    const source from = {hf, folder, oct_model_get_args(model)};
    for (int64_t i = 0; i < n && status == OCT_OK; i++)
        status = oct_held_read(params[i], read_param, &from, err);
    if (status == OCT_OK)
        status = read_buffers(&from, model, err);
    oct_hf_model_close(hf);
    if (status == OCT_OK)
        oct_model_changed(model);
    return status;
}
