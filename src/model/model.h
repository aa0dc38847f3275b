/* Language models as trees of modules with torchtitan's names:
 *
 *   tok_embeddings, layers.N.{attention_norm, attention.{wq,wk,wv,wo[,q_norm,k_norm]}, ffn_norm,
 *   feed_forward.{w1,w2,w3}}, norm, output
 *
 * deepseek_v3's attention is {wq | wq_a,q_norm,wq_b},wkv_a,kv_norm,wkv_b,wo; a layer with experts
 * has moe.{experts,router.gate[,shared_experts.{w1,w2,w3}]} in place of feed_forward.
 *
 * Letters: B sequences, S tokens a sequence, T = B S rows, D dim, V vocabulary.
 *
 * A model owns its modules and parameters. It isn't thread-safe: one thread drives a step, kernels
 * bring their own threads. Results are the same bits for any number of threads. */
#ifndef OCT_MODEL_MODEL_H
#define OCT_MODEL_MODEL_H

#include <octet/status.h>

#include "model/args.h"
#include "nn/attention.h"
#include "nn/module.h"
#include "nn/moe.h"
#include "nn/step.h"
#include "nn/transformer_block.h"
#include "op/loss.h"

typedef struct oct_model oct_model;

/* OCT_PARAMS_SHAPES_ONLY builds the tree without parameter memory (value NULL), for plans.
 * With OCT_PARAMS_ALLOCATED the masters hold nothing yet: call oct_model_init, or fill them and
 * call oct_model_changed. `args` is copied and resolved; OCT_INVALID as oct_model_args_resolve
 * says. */
oct_status oct_model_create(const oct_model_args *args, oct_params_mode mode, oct_model **out,
                            oct_error *err);
void oct_model_destroy(oct_model *model); /* NULL is fine */

const oct_model_args *oct_model_get_args(const oct_model *model); /* resolved */
oct_module *oct_model_root(oct_model *model);                     /* for converters and visitors */

/* Every parameter once (a tied head has none of its own), in visiting order. The array belongs to
 * the model. */
oct_param *const *oct_model_params(const oct_model *model, int64_t *n_params);
oct_block *oct_model_layer(const oct_model *model, int64_t layer);
oct_param *oct_model_find_param(const oct_model *model, const char *name); /* NULL: none */
int64_t oct_model_n_parameters(const oct_model *model);                    /* elements, tied once */
/* torchtitan's formula, forward and backward: 6 (N - N_embedding) + 6 n_layers n_heads (elements of
 * a head's query and value) S. N counts the active experts of a token only, and a tied table, since
 * it is the head. */
double oct_model_flops_per_token(const oct_model *model, int64_t seq_len);

/* Draws every parameter as torchtitan does, each element from (seed, parameter name, element), and
 * grows the versions. */
void oct_model_init(oct_model *model, uint64_t seed);
/* Elements first .. first+n-1 of one parameter: what oct_model_init writes there. For shards. */
void oct_param_draw(const oct_param *param, uint64_t seed, int64_t first, int64_t n, float *out);

/* Allocates zeroed gradients for all parameters that are not frozen. */
oct_status oct_model_enable_training(oct_model *model);
void oct_model_zero_gradients(oct_model *model);
/* The optimizer calls this after it changed the masters: all versions grow. */
void oct_model_changed(oct_model *model);

/* ---- experts: nothing happens in a dense model ---- */

/* The mixture of experts of a layer, NULL in a dense one. Its expert_bias is a buffer
 * "layers.N.moe.expert_bias" (E): training changes it and checkpoints hold it, but it's no
 * parameter. */
oct_moe *oct_model_moe(const oct_model *model, int64_t layer);
/* Once a step, when the optimizer moves: every layer's bias moves by the tokens that its experts
 * got in the step's training passes (with several ranks: sum tokens_per_expert over them first),
 * and counting starts again. */
void oct_model_update_routing(oct_model *model);

/* How even the counts are that oct_model_update_routing will use. */
typedef struct oct_expert_load {
    int64_t n_experts;        /* of all layers; 0: a dense model */
    double largest_over_mean; /* of the most uneven layer: 1 is even */
    double idle_share;        /* of all experts: those that got no token */
} oct_expert_load;
oct_expert_load oct_model_expert_load(const oct_model *model);

/* The token that ends a document, for a model whose attention stays inside documents
 * (attn_mask_type block_causal): it is the last of its own, the next one begins behind it. Without
 * it such a model runs nothing (OCT_INVALID); other models don't care. */
void oct_model_set_document_end(oct_model *model, int32_t token);
int32_t oct_model_document_end(const oct_model *model); /* -1: not set */

/* Activation checkpointing: what a layer's backward computes again instead of keeping. Gradients
 * are the same bits in every mode. Between steps only. */
void oct_model_set_recompute(oct_model *model, oct_recompute mode); /* all layers */
/* torchtitan's selective option n: every n-th layer in full (layers n-1, 2n-1, ...), n >= 1. */
void oct_model_set_recompute_every(oct_model *model, int64_t n);
void oct_model_set_layer_recompute(oct_model *model, int64_t layer, oct_recompute mode);

/* A step comes from oct_step_create(weights, activation dtype, &step); B, S and position are set by
 * these functions. Tokens are (B,S) ids, each in 0 .. V-1 (checked: OCT_INVALID). */

/* Training: the summed cross-entropy of the targets (T; OCT_IGNORE_LABEL counts for nothing) and
 * the number of those that count, and `grad_scale` times its gradient, added to the parameters'
 * gradients. The head runs over slices of rows, so that logits of the whole batch never exist. For
 * a mean over n valid tokens pass grad_scale = 1 / n. `*loss_sum` may come out as non-finite:
 * that's for the caller. */
oct_status oct_model_train(oct_model *model, oct_step *step, int64_t B, int64_t S,
                           const int32_t *tokens, const int32_t *targets, float grad_scale,
                           double *loss_sum, int64_t *n_valid);

/* The same sum and count without gradients; nothing is kept. */
oct_status oct_model_evaluate(oct_model *model, oct_step *step, int64_t B, int64_t S,
                              const int32_t *tokens, const int32_t *targets, double *loss_sum,
                              int64_t *n_valid);

/* Generation: feeds S new tokens of each of the B sequences of the cache, at its current length,
 * and gives the logits of each sequence's last token: (B,V) fp32, the caller's memory. The cache
 * grows by S; more than it holds is OCT_INVALID. */
oct_status oct_model_generate(oct_model *model, oct_step *step, oct_kv_cache *cache, int64_t S,
                              const int32_t *tokens, float *logits);
/* An empty cache for B sequences of up to max_len tokens. `oct_kv_cache_destroy` frees it. */
oct_status oct_model_create_cache(const oct_model *model, oct_dtype activation, int64_t B,
                                  int64_t max_len, oct_kv_cache **out);

/* The plain pair, for tests and tools: logits (B*S,V) fp32 in the caller's memory, and from their
 * gradient (same shape) the parameters' gradients. Forward saves only if `save` says so; a backward
 * belongs to the last saving forward. */
oct_status oct_model_forward(oct_model *model, oct_step *step, int64_t B, int64_t S,
                             const int32_t *tokens, oct_save save, oct_tensor *logits);
oct_status oct_model_backward(oct_model *model, oct_step *step, const oct_tensor *dlogits);

#endif
