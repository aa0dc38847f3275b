/* config.json of published models, and parts of which tests make others. */
#ifndef OCT_TESTS_HF_SUPPORT_H
#define OCT_TESTS_HF_SUPPORT_H

#include "file_support.h"
#include "hf/hf_config.h"

static const char llama[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"attention_bias\": false, \"bos_token_id\": "
    "128000,"
    "\"eos_token_id\": [128001, 128008], \"head_dim\": 64, \"hidden_act\": \"silu\","
    "\"hidden_size\": 2048, \"initializer_range\": 0.02, \"intermediate_size\": 8192,"
    "\"max_position_embeddings\": 131072, \"mlp_bias\": false, \"model_type\": \"llama\","
    "\"num_attention_heads\": 32, \"num_hidden_layers\": 16, \"num_key_value_heads\": 8,"
    "\"pretraining_tp\": 1, \"rms_norm_eps\": 1e-05, \"rope_scaling\": {\"factor\": 32.0,"
    "\"high_freq_factor\": 4.0, \"low_freq_factor\": 1.0,"
    "\"original_max_position_embeddings\": 8192, \"rope_type\": \"llama3\"},"
    "\"rope_theta\": 500000.0, \"tie_word_embeddings\": true, \"torch_dtype\": \"bfloat16\","
    "\"use_cache\": true, \"vocab_size\": 128256}";

static const char qwen3_moe[] =
    "{\"architectures\": [\"Qwen3MoeForCausalLM\"], \"model_type\": \"qwen3_moe\","
    "\"decoder_sparse_step\": 2, \"eos_token_id\": 151645, \"head_dim\": 128,"
    "\"hidden_size\": 2048, \"intermediate_size\": 6144, \"max_position_embeddings\": 40960,"
    "\"mlp_only_layers\": [0, 3], \"moe_intermediate_size\": 768, \"norm_topk_prob\": true,"
    "\"num_attention_heads\": 32, \"num_experts\": 128, \"num_experts_per_tok\": 8,"
    "\"num_hidden_layers\": 48, \"num_key_value_heads\": 4, \"rms_norm_eps\": 1e-06,"
    "\"rope_scaling\": null, \"rope_theta\": 1000000, \"tie_word_embeddings\": false,"
    "\"vocab_size\": 151936}";

static const char deepseek[] =
    "{\"architectures\": [\"DeepseekV3ForCausalLM\"], \"model_type\": \"deepseek_v3\","
    "\"first_k_dense_replace\": 3, \"hidden_size\": 7168, \"intermediate_size\": 18432,"
    "\"kv_lora_rank\": 512, \"max_position_embeddings\": 163840, \"moe_intermediate_size\": 2048,"
    "\"n_group\": 8, \"n_routed_experts\": 256, \"n_shared_experts\": 1, \"norm_topk_prob\": true,"
    "\"num_attention_heads\": 128, \"num_experts_per_tok\": 8, \"num_hidden_layers\": 61,"
    "\"num_key_value_heads\": 128, \"q_lora_rank\": 1536, \"qk_nope_head_dim\": 128,"
    "\"qk_rope_head_dim\": 64, \"rms_norm_eps\": 1e-06, \"rope_scaling\": {\"beta_fast\": 32,"
    "\"beta_slow\": 1, \"factor\": 40, \"mscale\": 1.0, \"mscale_all_dim\": 1.0,"
    "\"original_max_position_embeddings\": 4096, \"type\": \"yarn\"}, \"rope_theta\": 10000,"
    "\"routed_scaling_factor\": 2.5, \"scoring_func\": \"sigmoid\", \"topk_group\": 4,"
    "\"v_head_dim\": 128, \"vocab_size\": 129280}";

oct_hf_config config_of(const char *text);

#define SIZES                                                                                      \
    "\"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 2,"                    \
    "\"num_attention_heads\": 4, \"vocab_size\": 100"
#define MOE "\"model_type\": \"qwen3_moe\", " SIZES
#define LATENT "\"model_type\": \"deepseek_v3\", " SIZES
#define BASE "\"model_type\": \"llama\", " SIZES

#endif
