/* The flavors of models: torchtitan v0.2.2's, torchtitan-npu v0.2.2's and ours. */
#include <string.h>

#include "base/count.h"
#include "base/nearest.h"
#include "model/args.h"

#define MAX_FLAVORS 16

/* llama3's defaults: rope_theta 10000 is the class's, 500000 that of its flavors. */
#define LLAMA3                                                                                     \
    .family = OCT_MODEL_LLAMA3, .norm_eps = 1e-5, .max_seq_len = 131072, .depth_init = true,       \
    .rope_scaling_factor = 8.0, .rope_low_freq_factor = 1.0, .rope_high_freq_factor = 4.0,         \
    .rope_original_max_position_embeddings = 8192
#define LLAMA3_TITAN LLAMA3, .rope_theta = 500000.0, .rope_scaling = OCT_ROPE_LLAMA3
#define LLAMA3_DEBUG                                                                               \
    LLAMA3_TITAN, .dim = 256, .n_layers = 6, .n_heads = 16, .vocab_size = 2048, .multiple_of = 256
#define LLAMA3_8B                                                                                  \
    LLAMA3_TITAN, .dim = 4096, .n_layers = 32, .n_heads = 32, .n_kv_heads = 8,                     \
                  .vocab_size = 128256, .ffn_dim_multiplier = 1.3, .multiple_of = 1024
#define LLAMA3_SMALL LLAMA3, .rope_theta = 10000.0, .multiple_of = 32
#define QWEN3_BASE                                                                                 \
    .family = OCT_MODEL_QWEN3, .norm_eps = 1e-6, .depth_init = true, .qk_norm = true,              \
    .multiple_of = 1, .rope_scaling_factor = 8.0, .rope_low_freq_factor = 1.0,                     \
    .rope_high_freq_factor = 4.0, .rope_original_max_position_embeddings = 8192
#define QWEN3                                                                                      \
    QWEN3_BASE, .max_seq_len = 4096, .rope_theta = 1000000.0, .head_dim = 128, .n_kv_heads = 8
#define QWEN3_FULL QWEN3, .vocab_size = 151936
#define QWEN3_MOE                                                                                  \
    QWEN3_BASE, .score_func = OCT_SCORE_SOFTMAX, .route_norm = true, .route_scale = 1.0,           \
                .load_balance_coeff = 1e-3
#define DEEPSEEK_V3                                                                                \
    .family = OCT_MODEL_DEEPSEEK_V3, .norm_eps = 1e-5, .max_seq_len = 16384, .depth_init = true,   \
    .multiple_of = 1, .rope_theta = 10000.0, .rope_scaling = OCT_ROPE_YARN,                        \
    .rope_scaling_factor = 40.0, .rope_low_freq_factor = 1.0, .rope_high_freq_factor = 4.0,        \
    .rope_original_max_position_embeddings = 4096, .beta_fast = 32.0, .beta_slow = 1.0,            \
    .load_balance_coeff = 1e-3
#define DEEPSEEK_V3_FULL                                                                           \
    DEEPSEEK_V3, .kv_lora_rank = 512, .qk_nope_head_dim = 128, .qk_rope_head_dim = 64,             \
                 .v_head_dim = 128

#define DEEPSEEK_V3_DEBUG                                                                          \
    DEEPSEEK_V3_FULL, .dim = 256, .n_layers = 6, .n_dense_layers = 1, .n_heads = 16,               \
                      .hidden_dim = 1024, .vocab_size = 2048, .mscale = 0.7, .num_experts = 8,     \
                      .top_k = 3, .num_shared_experts = 2, .moe_inter_dim = 256,                   \
                      .route_scale = 1.0
/* The large ones train with flex attention and a document mask. */
#define DEEPSEEK_V3_LARGE DEEPSEEK_V3_FULL, .attn_mask_type = OCT_ATTN_BLOCK_CAUSAL

/* torchtitan-npu 0.2.2's (torchtitan_npu/models/deepseek_v3/__init__.py): no groups of experts.
 * They say block_causal beside use_flex_attn = False, with which torchtitan builds no mask. */
#define DEEPSEEK_V3_NPU                                                                            \
    DEEPSEEK_V3_FULL, .n_dense_layers = 3, .n_heads = 128, .vocab_size = 129280, .mscale = 1.0,    \
                      .q_lora_rank = 1536, .top_k = 8, .num_shared_experts = 1,                    \
                      .score_func = OCT_SCORE_SIGMOID, .route_norm = true, .route_scale = 2.5

static const oct_model_args llama3_flavors[] = {
    {LLAMA3_DEBUG, .flavor = "debugmodel"},
    {LLAMA3_DEBUG, .flavor = "debugmodel_flex_attn", .attn_mask_type = OCT_ATTN_BLOCK_CAUSAL},
    {LLAMA3_DEBUG, .flavor = "debugmodel_varlen_attn", .attn_mask_type = OCT_ATTN_BLOCK_CAUSAL},
    {LLAMA3_8B, .flavor = "8B"},
    {LLAMA3_8B, .flavor = "8B_flex", .attn_mask_type = OCT_ATTN_BLOCK_CAUSAL},
    {LLAMA3_8B, .flavor = "8B_varlen", .attn_mask_type = OCT_ATTN_BLOCK_CAUSAL},
    {LLAMA3_TITAN, .flavor = "70B", .dim = 8192, .n_layers = 80, .n_heads = 64, .n_kv_heads = 8,
     .vocab_size = 128256, .ffn_dim_multiplier = 1.3, .multiple_of = 4096},
    {LLAMA3_TITAN, .flavor = "405B", .dim = 16384, .n_layers = 126, .n_heads = 128, .n_kv_heads = 8,
     .vocab_size = 128256, .ffn_dim_multiplier = 1.2, .multiple_of = 4096},
    {LLAMA3_SMALL, .flavor = "demo", .dim = 256, .n_layers = 6, .n_heads = 8, .n_kv_heads = 4,
     .hidden_dim = 704, .vocab_size = 4096},
    {LLAMA3_SMALL, .flavor = "30M", .dim = 512, .n_layers = 8, .n_heads = 8, .hidden_dim = 1376,
     .vocab_size = 4096},
    {LLAMA3_SMALL, .flavor = "125M", .dim = 768, .n_layers = 12, .n_heads = 12, .hidden_dim = 2048,
     .vocab_size = 32000},
};

static const oct_model_args qwen3_flavors[] = {
    {QWEN3, .flavor = "debugmodel", .dim = 256, .n_layers = 8, .n_heads = 16, .hidden_dim = 3072,
     .vocab_size = 2048, .enable_weight_tying = true},
    {QWEN3_FULL, .flavor = "0.6B", .dim = 1024, .n_layers = 28, .n_heads = 16, .hidden_dim = 3072,
     .enable_weight_tying = true},
    {QWEN3_FULL, .flavor = "1.7B", .dim = 2048, .n_layers = 28, .n_heads = 16, .hidden_dim = 6144,
     .enable_weight_tying = true},
    {QWEN3_FULL, .flavor = "4B", .dim = 2560, .n_layers = 36, .n_heads = 32, .hidden_dim = 9728,
     .enable_weight_tying = true},
    {QWEN3_FULL, .flavor = "8B", .dim = 4096, .n_layers = 36, .n_heads = 32, .hidden_dim = 12288},
    {QWEN3_FULL, .flavor = "14B", .dim = 5120, .n_layers = 40, .n_heads = 40, .hidden_dim = 17408},
    {QWEN3_FULL, .flavor = "32B", .dim = 5120, .n_layers = 64, .n_heads = 64, .hidden_dim = 25600},
    {QWEN3_MOE, .flavor = "debugmodel_moe", .dim = 256, .n_layers = 8, .n_heads = 16,
     .n_kv_heads = 8, .head_dim = 128, .hidden_dim = 3072, .vocab_size = 2048, .max_seq_len = 4096,
     .rope_theta = 1000000.0, .num_experts = 64, .top_k = 8, .moe_inter_dim = 768},
    {QWEN3_MOE, .flavor = "30B-A3B", .dim = 2048, .n_layers = 48, .n_heads = 32, .n_kv_heads = 4,
     .head_dim = 128, .hidden_dim = 6144, .vocab_size = 151936, .max_seq_len = 262144,
     .rope_theta = 1000000.0, .num_experts = 128, .top_k = 8, .moe_inter_dim = 768},
    {QWEN3_MOE, .flavor = "235B-A22B", .dim = 4096, .n_layers = 94, .n_heads = 64, .n_kv_heads = 4,
     .head_dim = 128, .hidden_dim = 12288, .vocab_size = 151936, .max_seq_len = 40960,
     .rope_theta = 5000000.0, .num_experts = 128, .top_k = 8, .moe_inter_dim = 1536},
    {QWEN3_MOE, .flavor = "demo_moe", .dim = 256, .n_layers = 4, .n_heads = 8, .n_kv_heads = 4,
     .head_dim = 32, .hidden_dim = 704, .vocab_size = 4096, .max_seq_len = 4096,
     .rope_theta = 10000.0, .num_experts = 8, .top_k = 2, .moe_inter_dim = 256},
};

static const oct_model_args deepseek_v3_flavors[] = {
    {DEEPSEEK_V3_DEBUG, .flavor = "debugmodel"},
    {DEEPSEEK_V3_DEBUG, .flavor = "debugmodel_flex_attn", .attn_mask_type = OCT_ATTN_BLOCK_CAUSAL},
    {DEEPSEEK_V3_LARGE, .flavor = "16B", .dim = 2048, .n_layers = 27, .n_dense_layers = 1,
     .n_heads = 16, .hidden_dim = 10944, .vocab_size = 102400, .mscale = 0.7, .num_experts = 64,
     .top_k = 6, .num_shared_experts = 2, .moe_inter_dim = 1408, .route_scale = 1.0},
    {DEEPSEEK_V3_LARGE, .flavor = "236B", .dim = 5120, .n_layers = 60, .n_dense_layers = 1,
     .n_heads = 128, .hidden_dim = 12288, .vocab_size = 102400, .mscale = 1.0, .q_lora_rank = 1536,
     .num_experts = 160, .top_k = 6, .num_shared_experts = 2, .moe_inter_dim = 1536,
     .num_expert_groups = 8, .num_limited_groups = 3, .route_scale = 16.0},
    {DEEPSEEK_V3_LARGE, .flavor = "671B", .dim = 7168, .n_layers = 61, .n_dense_layers = 3,
     .n_heads = 128, .hidden_dim = 18432, .vocab_size = 129280, .mscale = 1.0, .q_lora_rank = 1536,
     .num_experts = 256, .top_k = 8, .num_shared_experts = 1, .moe_inter_dim = 2048,
     .num_expert_groups = 8, .num_limited_groups = 4, .score_func = OCT_SCORE_SIGMOID,
     .route_norm = true, .route_scale = 2.5},
    {DEEPSEEK_V3_NPU, .flavor = "671B_debug", .dim = 128, .n_layers = 4, .hidden_dim = 512,
     .num_experts = 8, .moe_inter_dim = 128},
    {DEEPSEEK_V3_NPU, .flavor = "671B_debug_16die", .dim = 7168, .n_layers = 61,
     .hidden_dim = 18432, .num_experts = 32, .moe_inter_dim = 2048},
    {DEEPSEEK_V3_NPU, .flavor = "671B_debug_128die", .dim = 7168, .n_layers = 61,
     .hidden_dim = 18432, .num_experts = 256, .moe_inter_dim = 2048},
    {DEEPSEEK_V3,
     .flavor = "demo",
     .dim = 256,
     .n_layers = 4,
     .n_dense_layers = 1,
     .n_heads = 8,
     .hidden_dim = 704,
     .vocab_size = 4096,
     .mscale = 1.0,
     .kv_lora_rank = 96,
     .qk_nope_head_dim = 32,
     .qk_rope_head_dim = 16,
     .v_head_dim = 32,
     .num_experts = 8,
     .top_k = 2,
     .num_shared_experts = 1,
     .moe_inter_dim = 192,
     .num_expert_groups = 4,
     .num_limited_groups = 2,
     .score_func = OCT_SCORE_SIGMOID,
     .route_norm = true,
     .route_scale = 1.0},
    {DEEPSEEK_V3,
     .flavor = "60M",
     .dim = 512,
     .n_layers = 8,
     .n_dense_layers = 1,
     .n_heads = 8,
     .hidden_dim = 1376,
     .vocab_size = 4096,
     .mscale = 1.0,
     .q_lora_rank = 256,
     .kv_lora_rank = 128,
     .qk_nope_head_dim = 64,
     .qk_rope_head_dim = 32,
     .v_head_dim = 64,
     .num_experts = 16,
     .top_k = 4,
     .num_shared_experts = 1,
     .moe_inter_dim = 288,
     .num_expert_groups = 4,
     .num_limited_groups = 2,
     .score_func = OCT_SCORE_SIGMOID,
     .route_norm = true,
     .route_scale = 1.0},
};

typedef struct family {
    const char *name;
    const oct_model_args *flavors;
    size_t n_flavors;
    const char *names[MAX_FLAVORS]; /* NULL-terminated */
} family;

static const family families[] = {
    [OCT_MODEL_LLAMA3] = {"llama3",
                          llama3_flavors,
                          OCT_COUNT(llama3_flavors),
                          {"debugmodel", "debugmodel_flex_attn", "debugmodel_varlen_attn", "8B",
                           "8B_flex", "8B_varlen", "70B", "405B", "demo", "30M", "125M"}},
    [OCT_MODEL_QWEN3] = {"qwen3",
                         qwen3_flavors,
                         OCT_COUNT(qwen3_flavors),
                         {"debugmodel", "0.6B", "1.7B", "4B", "8B", "14B", "32B", "debugmodel_moe",
                          "30B-A3B", "235B-A22B", "demo_moe"}},
    [OCT_MODEL_DEEPSEEK_V3] = {"deepseek_v3",
                               deepseek_v3_flavors,
                               OCT_COUNT(deepseek_v3_flavors),
                               {"debugmodel", "debugmodel_flex_attn", "16B", "236B", "671B",
                                "671B_debug", "671B_debug_16die", "671B_debug_128die", "demo",
                                "60M"}},
};

const char *oct_model_family_name(oct_model_family model_family) {
    return families[model_family].name;
}

static const family *find_family(const char *name) {
    for (size_t i = 0; i < OCT_COUNT(families); i++)
        if (strcmp(families[i].name, name) == 0)
            return &families[i];
    return NULL;
}

const char *const *oct_model_flavors(const char *name) {
    const family *f = find_family(name);
    return f ? f->names : NULL;
}

oct_status oct_model_args_flavor(const char *name, const char *flavor, oct_model_args *args,
                                 oct_error *err) {
    const family *f = find_family(name);
    if (!f) {
        const char *names[OCT_COUNT(families)];
        for (size_t i = 0; i < OCT_COUNT(families); i++)
            names[i] = families[i].name;
        return oct_fail_unknown(err, "model.name", name, names, OCT_COUNT(families));
    }
    for (size_t i = 0; i < f->n_flavors; i++) {
        if (strcmp(f->flavors[i].flavor, flavor) == 0) {
            *args = f->flavors[i];
            return OCT_OK;
        }
    }
    return oct_fail_unknown(err, "model.flavor", flavor, f->names, f->n_flavors);
}
