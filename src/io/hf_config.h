/* config.json of a Hugging Face model: the fields that octet's models need, as a plain struct.
 *
 * Invariant: what was read is in range (positive sizes, finite numbers, groups that divide), so
 * that models may multiply sizes without surprises. Unknown keys are ignored: config.json is full
 * of them. */
#ifndef OCT_IO_HF_CONFIG_H
#define OCT_IO_HF_CONFIG_H

#include <octet/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OCT_HF_NAME_SIZE 64      /* architectures[0], model_type, ... */
#define OCT_HF_MAX_MLP_ONLY 1024 /* entries of mlp_only_layers */

typedef enum oct_hf_rope_type {
    OCT_HF_ROPE_DEFAULT, /* plain rope_theta */
    OCT_HF_ROPE_LLAMA3,  /* factor, low_freq_factor, high_freq_factor, original_max_position */
    OCT_HF_ROPE_YARN,    /* factor, beta_fast, beta_slow, mscale, mscale_all_dim, original_... */
} oct_hf_rope_type;

typedef enum oct_hf_scoring { OCT_HF_SCORING_SOFTMAX, OCT_HF_SCORING_SIGMOID } oct_hf_scoring;

/* Sizes are 0 when the key is missing and isn't required; the comment says the default otherwise.
 */
typedef struct oct_hf_config {
    char architecture[OCT_HF_NAME_SIZE]; /* architectures[0]: "LlamaForCausalLM"; "" if missing */
    char model_type[OCT_HF_NAME_SIZE];   /* required: "llama", "qwen3", "qwen3_moe", ... */
    char torch_dtype[OCT_HF_NAME_SIZE];  /* torch_dtype or dtype: "bfloat16"; "" if missing */
    char hidden_act[OCT_HF_NAME_SIZE];   /* default "silu" */

    int64_t hidden_size;             /* required */
    int64_t intermediate_size;       /* required */
    int64_t num_hidden_layers;       /* required */
    int64_t num_attention_heads;     /* required */
    int64_t num_key_value_heads;     /* default num_attention_heads; divides it */
    int64_t head_dim;                /* default hidden_size / num_attention_heads */
    int64_t vocab_size;              /* required */
    int64_t max_position_embeddings; /* default 2048 */
    double rms_norm_eps;             /* default 1e-6 */
    bool tie_word_embeddings;        /* default false */
    bool attention_bias;             /* default false */
    double initializer_range;        /* default 0.02 */
    int64_t bos_token_id;            /* -1 if missing */
    int64_t eos_token_id;            /* -1 if missing; the first of a list */

    /* rope_theta and rope_scaling, or transformers 5's rope_parameters */
    double rope_theta; /* default 10000 */
    oct_hf_rope_type rope_type;
    double rope_factor, rope_low_freq_factor, rope_high_freq_factor;
    double rope_beta_fast, rope_beta_slow, rope_mscale, rope_mscale_all_dim;
    int64_t rope_original_max_position_embeddings;

    /* experts, Qwen3-MoE (num_experts) and DeepSeek-V3 (n_routed_experts): 0 in a dense model */
    int64_t n_experts;
    int64_t num_experts_per_tok;
    int64_t moe_intermediate_size;
    bool norm_topk_prob;         /* default false */
    int64_t decoder_sparse_step; /* default 1 */
    int64_t n_mlp_only_layers;
    int64_t mlp_only_layers[OCT_HF_MAX_MLP_ONLY];

    /* DeepSeek-V3 */
    int64_t q_lora_rank; /* 0: no low rank for queries (null in the file) */
    int64_t kv_lora_rank;
    int64_t qk_nope_head_dim, qk_rope_head_dim, v_head_dim;
    int64_t n_shared_experts;
    int64_t n_group, topk_group;  /* default 1 */
    double routed_scaling_factor; /* default 1 */
    int64_t first_k_dense_replace;
    oct_hf_scoring scoring_func; /* default softmax; sigmoid when model_type is deepseek_v3 */
} oct_hf_config;

/* `path`: a config.json, or a folder that holds one. A missing required field, a wrong type or an
 * impossible value is OCT_INVALID: "PATH: key: ...; expected ...; got ...". */
oct_status oct_hf_config_read(const char *path, oct_hf_config *config, oct_error *err);
/* The same from text; `name` stands for the path in messages. */
oct_status oct_hf_config_parse(const char *text, size_t n_bytes, const char *name,
                               oct_hf_config *config, oct_error *err);

/* Writes `folder`/config.json with the fields that the model type uses. `extra_json` (NULL: none)
 * is an object whose keys are added, e.g. quantization_config. By temporary name and rename. */
oct_status oct_hf_config_write(const char *folder, const oct_hf_config *config,
                               const char *extra_json, oct_error *err);

#endif
