/* The dimensions of a model: torchtitan's names, its flavors and ours.
 *
 * Invariant: oct_model_args_resolve has filled the derived fields and checked every relation; what
 * it accepted can be multiplied without overflow (each size is at most 2^31 - 1). */
#ifndef OCT_MODEL_ARGS_H
#define OCT_MODEL_ARGS_H

#include <octet/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/layer_set.h"
#include "op/rope.h"
#include "op/routing.h"

typedef enum oct_model_family {
    OCT_MODEL_LLAMA3,
    OCT_MODEL_QWEN3,
    OCT_MODEL_DEEPSEEK_V3
} oct_model_family;

/* Which tokens of its window a token sees, in torchtitan's words: all up to itself, or those of
 * its document. */
typedef enum oct_attn_mask { OCT_ATTN_CAUSAL, OCT_ATTN_BLOCK_CAUSAL } oct_attn_mask;

const char *oct_attn_mask_name(oct_attn_mask mask); /* "causal", "block_causal" */

typedef struct oct_model_args {
    oct_model_family family;
    char flavor[32];
    int64_t vocab_size, dim, n_layers, n_heads;
    int64_t n_kv_heads;        /* 0: as many as n_heads */
    int64_t head_dim;          /* 0: dim / n_heads; deepseek_v3: qk_nope + qk_rope */
    int64_t hidden_dim;        /* of the feed-forward layer; 0: from the next two, as llama3 does */
    int64_t multiple_of;       /* hidden_dim is rounded up to a multiple of it */
    double ffn_dim_multiplier; /* 0: none */
    double norm_eps;
    int64_t max_seq_len;
    oct_attn_mask attn_mask_type;
    bool qk_norm;             /* RMSNorm over each head of q and k */
    bool enable_weight_tying; /* the head's weight is the embedding table */
    bool depth_init;          /* wo, w2, w3 start at 0.02 / sqrt(2 (layer + 1)); else layers + 1 is
                                 n_layers */
    double rope_theta;
    oct_rope_scaling rope_scaling; /* none, or the family's. OCT_ROPE_YARN has an effect only where
                                      max_seq_len is above the original one, as in torchtitan,
                                      unless yarn_always */
    double rope_scaling_factor, rope_low_freq_factor, rope_high_freq_factor;
    int64_t rope_original_max_position_embeddings;

    /* deepseek_v3: latent attention (nn/latent_attention.h), yarn */
    int64_t q_lora_rank; /* 0: queries without a latent */
    int64_t kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim, v_head_dim;
    double beta_fast, beta_slow;
    double mscale; /* with yarn: scores are scaled by (0.1 mscale ln(factor) + 1)^2 too */

    /* experts (nn/moe.h), deepseek_v3 and qwen3; 0 experts: a dense model */
    int64_t num_experts, top_k; /* top_k: active experts a token */
    int64_t num_shared_experts;
    int64_t moe_inter_dim;      /* hidden size of one expert */
    int64_t n_dense_layers;     /* the first layers, without experts */
    int64_t num_expert_groups;  /* 0: no groups */
    int64_t num_limited_groups; /* groups that a token may use */
    oct_score_func score_func;
    bool route_norm, score_before_experts;
    double route_scale;
    double load_balance_coeff;   /* 0: the bias stays as it is */
    bool moe_force_load_balance; /* for debugging: experts take tokens in turn */

    /* What only models of Hugging Face folders have (job/hf_model.h); zero in all flavors. */
    bool qkv_bias, wo_bias; /* of wq, wk, wv (deepseek_v3, together: wq_a, wkv_a, wo); of wo */
    bool mlp_bias;          /* of dense layers' w1, w2, w3 */
    bool rope_halves;       /* deepseek_v3: pairs are an element of each half, not neighbours */
    bool yarn_always;       /* yarn has an effect whatever max_seq_len is */
    bool yarn_untruncated;  /* its ramp isn't rounded to whole pairs */
    double rope_attention_factor; /* of cosines and sines, with any scaling; 0: 1 */
    double latent_norm_eps;       /* deepseek_v3: of q_norm and kv_norm; 0: norm_eps */
    int64_t window;               /* tokens that a token of a layer in `windowed` sees; 0: all */
    oct_layer_set windowed;
    oct_layer_set unrotated; /* layers without positions */
    oct_layer_set dense;     /* layers without experts beside the first n_dense_layers */
} oct_model_args;

/* `name`: llama3 | qwen3 | deepseek_v3; `flavor`: one of theirs. An unknown one is OCT_INVALID with
 * the nearest name and the list. The result is not resolved yet. */
oct_status oct_model_args_flavor(const char *name, const char *flavor, oct_model_args *args,
                                 oct_error *err);
const char *oct_model_family_name(oct_model_family family); /* "llama3", ... */
/* The flavors of a model name, NULL-terminated; NULL for an unknown name. */
const char *const *oct_model_flavors(const char *name);

/* A value that a user gives for one dimension. */
typedef enum oct_arg_type { OCT_ARG_INT, OCT_ARG_DOUBLE, OCT_ARG_BOOL, OCT_ARG_TEXT } oct_arg_type;
typedef struct oct_arg {
    oct_arg_type type;
    int64_t i;
    double d;
    bool b;
    const char *text;
} oct_arg;

/* Sets one field by its name above ("dim", "rope_theta", ...; `-` equals `_`; rope_scaling as a
 * bool, score_func and attn_mask_type as a text). torchtitan's other names for some are known too
 * (inter_dim, rope_factor, original_seq_len, n_expert_groups, n_limited_groups). An unknown key, a
 * wrong type or a value that can't be is OCT_INVALID; the message starts with the key, so that the
 * caller only puts the place before it. An int is taken where a double is expected. */
oct_status oct_model_args_set(oct_model_args *args, const char *key, oct_arg value, oct_error *err);

/* Whether `key`, as a user spells it, is the field `name`. */
bool oct_model_args_is(const char *key, const char *name);

/* Fills what is derived (n_kv_heads, head_dim, hidden_dim) and checks what belongs together: heads
 * that don't divide, an odd head_dim, more active experts than experts, ... Calling it again
 * changes nothing. */
oct_status oct_model_args_resolve(oct_model_args *args, oct_error *err);
/* The same; every failure is told, so that a user mends them together. */
typedef void (*oct_args_tell)(void *user, const oct_error *wrong);
oct_status oct_model_args_resolve_all(oct_model_args *args, oct_args_tell tell, void *user,
                                      oct_error *err);

/* Of resolved arguments: whether layer `layer` has experts; whether yarn has an effect. */
bool oct_model_args_has_experts(const oct_model_args *args, int64_t layer);
bool oct_model_args_uses_yarn(const oct_model_args *args);
/* The sliding window of a layer, 0: none. */
int64_t oct_model_args_window(const oct_model_args *args, int64_t layer);

#endif
