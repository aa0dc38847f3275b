/* Causal attention with grouped queries: o = softmax(scale * q k^T, keys up to the query) v; with a
 * window, only the last `window` of those keys; with documents, only those of its own.
 *
 * Computed block by block with a running maximum and sum (Dao et al., arXiv 2205.14135;
 * arXiv 2307.08691): no S x S matrix for a batch ever exists. Backward needs q, k, v, o and lse.
 * Query head h reads key/value head h / (H / H_kv), which is never copied.
 *
 *   q (B*S, H*qk_dim), k (B*stride, H_kv*qk_dim), v (B*stride, H_kv*v_dim), o (B*S, H*v_dim)
 *   lse (B,H,S) fp32: log of the sum of exp(scale * q k) over the keys that the query sees
 *
 * Tensors are all F32 or all BF16; scores, probabilities and sums are fp32. Same bits for any
 * number of threads. Workspace comes from `scratch` and is given back. */
#ifndef OCT_OP_ATTENTION_H
#define OCT_OP_ATTENTION_H

#include <octet/status.h>
#include <octet/tensor.h>

#include "base/arena.h"

typedef struct oct_attention_shape {
    int64_t B, S;          /* sequences, queries a sequence */
    int64_t n_heads;       /* H, a multiple of n_kv_heads */
    int64_t n_kv_heads;    /* H_kv */
    int64_t qk_dim, v_dim; /* elements of a head in q and k, and in v and o */
    float scale;           /* usually 1 / sqrt(qk_dim) */
    /* Generation: `past` keys come before the first query, so query s of a sequence sees keys
     * 0 .. past+s, and k and v hold past + S rows a sequence. 0 in training. */
    int64_t past;
    /* Rows between the sequences of k and v (a cache's capacity, >= past + S); 0: past + S. k and v
     * then need only (B-1)*stride + past + S rows. */
    int64_t kv_stride;
    /* Sliding window: a query sees at most that many keys, the last of which is its own; 0: all. */
    int64_t window;
    /* Documents: (B,S), the first key of each query's document: 0 .. past+s, never less than that
     * of the query before. NULL: 0 for all. Blocks of keys before it cost nothing. */
    const int32_t *first_keys;
} oct_attention_shape;

/* lse NULL: not wanted (no backward will follow). */
oct_status oct_attention_forward(const oct_attention_shape *shape, const oct_tensor *q,
                                 const oct_tensor *k, const oct_tensor *v, oct_tensor *o,
                                 float *lse, oct_arena *scratch);

/* past must be 0 and kv_stride 0 or S. dq, dk, dv have the shapes of q, k, v and are overwritten;
 * they must not overlap any input. */
oct_status oct_attention_backward(const oct_attention_shape *shape, const oct_tensor *q,
                                  const oct_tensor *k, const oct_tensor *v, const oct_tensor *o,
                                  const float *lse, const oct_tensor *d_o, oct_tensor *dq,
                                  oct_tensor *dk, oct_tensor *dv, oct_arena *scratch);

#endif
