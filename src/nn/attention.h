/* Causal self-attention with grouped queries and rotary positions: y = wo(attend(q, k, v)).
 *
 * x, y (T,D); q (T, H hd), k and v (T, G hd): H heads, G key-value heads (G divides H), hd elements
 * a head. q and k are normalised over each head (q_norm, k_norm; optional), then rotated (but in
 * layers without positions). With a window a token sees that many tokens, itself included; with
 * step->first_keys none before its document. Positions go on through documents, as in torchtitan.
 *
 * Kept for backward: q, k, v, o, and 4 bytes a head for the softmax. With norms, q and k are kept
 * as they came from wq and wk; backward normalises and rotates them again. */
#ifndef OCT_NN_ATTENTION_H
#define OCT_NN_ATTENTION_H

#include "nn/linear.h"
#include "nn/module.h"
#include "nn/norm.h"
#include "op/attention.h"
#include "op/rope.h"

/* The rotary table that all layers of a model share. It grows when a longer sequence comes; where
 * frequencies follow the length (OCT_ROPE_DYNAMIC) it is made anew for each length past the
 * original one, and keys in a cache stay as they were turned, as in transformers. */
typedef struct oct_rotary {
    oct_rope_config config;
    oct_rope_table *table;
    int64_t n_positions;
} oct_rotary;

oct_status oct_rotary_reserve(oct_rotary *rotary, int64_t n_positions);
void oct_rotary_clear(oct_rotary *rotary);

typedef struct oct_attention_config {
    int64_t dim, n_heads, n_kv_heads, head_dim; /* D, H, G, hd */
    bool qk_norm;
    bool qkv_bias, wo_bias; /* of wq, wk, wv; of wo: they start at zero */
    bool unrotated;         /* no positions */
    int64_t window;         /* 0: none */
    float norm_eps;
    int64_t layer;      /* its place in a key-value cache */
    oct_rotary *rotary; /* outlives the module */
    oct_init qkv_init, wo_init;
} oct_attention_config;

typedef struct oct_attention {
    oct_module base;
    oct_attention_config config;
    oct_linear *wq, *wk, *wv, *wo;
    oct_norm *q_norm, *k_norm; /* NULL: none */
} oct_attention;

/* The parent owns the result. With step->kv set, forward appends keys and values to the cache and
 * attends to all of it; there is no backward then. */
oct_status oct_attention_create(oct_module *parent, const char *component,
                                const oct_attention_config *config, oct_attention **out);

/* Keys (rotated) and values of the tokens so far, for generation: a pair of matrices
 * (B, max_len, key_width) and (B, max_len, value_width) a layer. */
typedef struct oct_kv_cache {
    int64_t n_layers, B, max_len;
    int64_t key_width, value_width; /* of all key-value heads together */
    int64_t length;                 /* tokens held; grown by the model after a step */
    oct_dtype dtype;
    void **keys, **values; /* one block a layer */
    int32_t *documents;    /* (B): where the document of the next token begins; kept by the model */
} oct_kv_cache;

oct_status oct_kv_cache_create(int64_t n_layers, int64_t B, int64_t max_len, int64_t key_width,
                               int64_t value_width, oct_dtype dtype, oct_kv_cache **out);
void oct_kv_cache_destroy(oct_kv_cache *cache); /* NULL is fine */

/* Appends k and v, the step's new tokens, to the layer's cache step->kv, and lets q attend to all
 * of it: o. `shape` is that of the new tokens alone. */
oct_status oct_kv_cache_attend(oct_step *step, int64_t layer, const oct_attention_shape *shape,
                               const oct_tensor *q, const oct_tensor *k, const oct_tensor *v,
                               oct_tensor *o);

#endif
