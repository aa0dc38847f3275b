/* Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): keys and values of all heads come
 * from one narrow latent, positions from a part of the key that all heads share.
 *
 *   q  = wq(x), or wq_b(q_norm(wq_a(x)))              (T, H (n + r)); r elements of a head rotate
 *   [latent, k_rope] = wkv_a(x)                       (T, R + r)
 *   [k_nope, v] of each head = wkv_b(kv_norm(latent)) (T, H (n + v))
 *   k of each head = [k_nope, rotated k_rope]
 *   y  = wo(attend(q, k, v))
 *
 * Letters: T = B S rows, D dim, H heads, R elements of the latent; n (nope), r (rope), v elements
 * of a head. Names and order of elements are torchtitan's.
 *
 * Kept for backward: what the norms and linears keep, q, k, v, o, and 4 bytes a head for the
 * softmax. A key-value cache holds k and v of all heads. */
#ifndef OCT_NN_LATENT_ATTENTION_H
#define OCT_NN_LATENT_ATTENTION_H

#include "nn/attention.h"
#include "op/latent.h"

typedef struct oct_latent_attention_config {
    int64_t dim, q_rank, kv_rank; /* D; 0: queries without a latent of their own; R */
    oct_latent_shape heads;
    float scale;        /* of the scores */
    bool bias;          /* of wq_a, wkv_a and wo; they start at zero */
    float norm_eps;     /* of q_norm and kv_norm */
    int64_t layer;      /* its place in a key-value cache */
    oct_rotary *rotary; /* of heads.rope_dim elements; outlives the module */
    oct_init init, wo_init;
} oct_latent_attention_config;

typedef struct oct_latent_attention {
    oct_module base;
    oct_latent_attention_config config;
    oct_linear *wq;          /* NULL with q_rank */
    oct_linear *wq_a, *wq_b; /* NULL without */
    oct_norm *q_norm;
    oct_linear *wkv_a, *wkv_b, *wo;
    oct_norm *kv_norm;
} oct_latent_attention;

/* The parent owns the result. */
oct_status oct_latent_attention_create(oct_module *parent, const char *component,
                                       const oct_latent_attention_config *config,
                                       oct_latent_attention **out);

#endif
