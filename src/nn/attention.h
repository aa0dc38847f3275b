/* Causal self-attention with grouped queries and rotary positions: y = wo(attend(q, k, v)).
 *
 * q (T, H hd), k and v (T, G hd); H heads, G key-value heads (G divides H), hd elements a head.
 * q and k are optionally normalised over each head (q_norm, k_norm), then rotated. */
#ifndef OCT_NN_ATTENTION_H
#define OCT_NN_ATTENTION_H

#include "nn/linear.h"
#include "nn/module.h"

/* Keys (rotated) and values of the tokens so far, for generation: one pair of matrices
 * (B, max_len, G hd) a layer. */
typedef struct oct_kv_cache {
    int64_t n_layers, B, max_len, width; /* width = G hd */
    int64_t length;                      /* tokens held; grown by the model after a step */
    oct_dtype dtype;
    void **keys, **values; /* one block a layer */
} oct_kv_cache;

oct_status oct_kv_cache_create(int64_t n_layers, int64_t B, int64_t max_len, int64_t width,
                               oct_dtype dtype, oct_kv_cache **out);
void oct_kv_cache_destroy(oct_kv_cache *cache); /* NULL is fine */

#endif
