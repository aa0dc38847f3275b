/* config.json of a Hugging Face model: what octet's models need, as a plain struct.
 *
 * Invariants: what was read is in range (positive sizes, finite numbers, groups that divide), so
 * that models may multiply sizes without surprises; and nothing was ignored: each key is used,
 * known to change no result (hf_known.c), or refused by name. Values that are missing are those of
 * transformers' classes. */
#ifndef OCT_HF_HF_CONFIG_H
#define OCT_HF_HF_CONFIG_H

#include <octet/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"
#include "model/layer_set.h"

#define OCT_HF_NAME_SIZE 64 /* architectures[0], dtype */
#define OCT_HF_MAX_ENDS 16  /* ids of eos_token_id */

/* The model types that are read; all but the last two are Llama with other words. */
typedef enum oct_hf_family {
    OCT_HF_LLAMA,
    OCT_HF_MISTRAL,
    OCT_HF_QWEN2,
    OCT_HF_QWEN3,
    OCT_HF_SMOLLM3,
    OCT_HF_QWEN3_MOE,
    OCT_HF_DEEPSEEK_V3,
    OCT_N_HF_FAMILIES
} oct_hf_family;
const char *oct_hf_family_name(oct_hf_family family); /* model_type: "llama", ... */

typedef enum oct_hf_rope_type {
    OCT_HF_ROPE_DEFAULT, /* plain rope_theta */
    OCT_HF_ROPE_LINEAR,  /* factor */
    OCT_HF_ROPE_DYNAMIC, /* factor; stretched past max_position_embeddings */
    OCT_HF_ROPE_LLAMA3,  /* factor, low_freq_factor, high_freq_factor, original_max_position */
    OCT_HF_ROPE_YARN,    /* factor, beta_fast, beta_slow, mscale, mscale_all_dim, original_... */
    OCT_N_HF_ROPE_TYPES
} oct_hf_rope_type;

typedef enum oct_hf_scoring { OCT_HF_SCORING_SOFTMAX, OCT_HF_SCORING_SIGMOID } oct_hf_scoring;

/* quantization_config: how weights in F8_E4M3 are scaled. */
typedef enum oct_hf_quantization {
    OCT_HF_HIGH_PRECISION,
    OCT_HF_FP8_BLOCKS,         /* DeepSeek-V3: a scale each block_rows x block_cols elements */
    OCT_HF_COMPRESSED_TENSORS, /* MXFP8: one E8M0 byte each 32 elements of a row, from here on */
    OCT_HF_MODELOPT,
    OCT_HF_MXFP8,
    OCT_N_HF_QUANTIZATIONS
} oct_hf_quantization;

typedef struct oct_hf_config {
    oct_hf_family family;                /* model_type; required */
    char architecture[OCT_HF_NAME_SIZE]; /* architectures[0]: "LlamaForCausalLM"; "" if missing */
    char torch_dtype[OCT_HF_NAME_SIZE];  /* torch_dtype or dtype: "bfloat16"; "" if missing */

    int64_t hidden_size;         /* required */
    int64_t intermediate_size;   /* required */
    int64_t num_hidden_layers;   /* required */
    int64_t num_attention_heads; /* required */
    int64_t num_key_value_heads; /* divides num_attention_heads */
    int64_t head_dim;            /* deepseek_v3: qk_nope_head_dim + qk_rope_head_dim */
    int64_t vocab_size;          /* required */
    int64_t max_position_embeddings;
    double rms_norm_eps;
    bool tie_word_embeddings;
    bool attention_bias; /* of q, k, v and o; always false for qwen2, which has the first three */
    bool mlp_bias;
    double initializer_range;
    int64_t bos_token_id; /* -1 if missing */
    int64_t n_eos_token_ids;
    int64_t eos_token_ids[OCT_HF_MAX_ENDS];

    /* Windows: tokens that a layer of `windowed` sees, 0: none has one. From sliding_window,
     * use_sliding_window, max_window_layers and layer_types. */
    bool use_sliding_window;
    int64_t sliding_window;
    int64_t max_window_layers;
    oct_layer_set windowed;
    int64_t no_rope_layer_interval; /* smollm3 */
    oct_layer_set no_rope;          /* layers without positions */

    /* rope_theta and rope_scaling, or transformers 5's rope_parameters */
    double rope_theta;
    bool rope_interleave; /* deepseek_v3 */
    oct_hf_rope_type rope_type;
    double rope_factor, rope_low_freq_factor, rope_high_freq_factor;
    double rope_beta_fast, rope_beta_slow;
    double rope_mscale, rope_mscale_all_dim, rope_attention_factor; /* 0: not said */
    bool rope_truncate;
    int64_t rope_original_max_position_embeddings;

    /* experts, Qwen3-MoE (num_experts) and DeepSeek-V3 (n_routed_experts): 0 in a dense model */
    int64_t n_experts;
    int64_t num_experts_per_tok;
    int64_t moe_intermediate_size;
    bool norm_topk_prob;
    int64_t decoder_sparse_step;
    oct_layer_set mlp_only; /* layers without experts, as mlp_only_layers says */

    /* DeepSeek-V3 */
    int64_t q_lora_rank; /* 0: no low rank for queries (null in the file) */
    int64_t kv_lora_rank;
    int64_t qk_nope_head_dim, qk_rope_head_dim, v_head_dim;
    int64_t n_shared_experts;
    int64_t n_group, topk_group;
    double routed_scaling_factor;
    int64_t first_k_dense_replace;
    oct_hf_scoring scoring_func;
    int64_t num_nextn_predict_layers; /* layers behind the model that predict further tokens */

    oct_hf_quantization quantization;
    int64_t block_rows, block_cols; /* of a scale; 1 and 32 in MX dialects */
} oct_hf_config;

/* `path`: a config.json, or a folder that holds one. A missing required field, a wrong type, an
 * impossible value, an unknown key or model type is OCT_INVALID: "PATH: key: ...; expected ...; got
 * ...". */
oct_status oct_hf_config_read(const char *path, oct_hf_config *config, oct_error *err);
/* The same from text; `name` stands for the path in messages. */
oct_status oct_hf_config_parse(const char *text, size_t n_bytes, const char *name,
                               oct_hf_config *config, oct_error *err);

/* What cosines and sines are multiplied by; 1 but for yarn, where attention_factor says it, or
 * m(mscale) / m(mscale_all_dim), or m(1) where one of both is missing; m(s) = 0.1 s ln(factor) + 1.
 * Source: transformers, modeling_rope_utils.py. */
double oct_hf_config_rope_factor(const oct_hf_config *config);
/* Whether a layer has experts. */
bool oct_hf_config_has_experts(const oct_hf_config *config, int64_t layer);

/* The ids that end a text: of `folder`/generation_config.json where it says them, as transformers
 * does, else the configuration's. */
oct_status oct_hf_end_tokens(const char *folder, const oct_hf_config *config,
                             int64_t ids[OCT_HF_MAX_ENDS], int64_t *n, oct_error *err);

/* What transformers' class has where config.json says nothing. */
oct_hf_config oct_hf_defaults(oct_hf_family family);

/* The text of a config.json with the fields that the model type uses, in spellings that
 * transformers 4 and 5 read. Not the quantization, which is the writer's of the weights. Check
 * to->failed after. */
void oct_hf_config_put(oct_strbuf *to, const oct_hf_config *config);

#endif
