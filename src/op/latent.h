/* The shuffles of multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1): what
 * one product gives is taken apart and put together as heads.
 *
 * Letters: T rows; H heads; R elements of the latent; n (nope), r (rope) and v elements of a head:
 * of a query or key without position, with position, and of a value.
 *
 *   latent_rope (T, R + r) = [latent, k_rope]       what wkv_a gives
 *   up          (T, H (n + v)) = [k_nope, v] x H    what wkv_b gives
 *   k           (T, H (n + r)) = [k_nope, k_rope] x H: all heads share k_rope
 *   v           (T, H v)
 *
 * Tensors are F32 or BF16, all of one type. Same bits for any number of threads. Shapes that don't
 * fit are OCT_INVALID. */
#ifndef OCT_OP_LATENT_H
#define OCT_OP_LATENT_H

#include <octet/status.h>
#include <octet/tensor.h>

typedef struct oct_latent_shape {
    int64_t n_heads;
    int64_t nope_dim, rope_dim, v_dim; /* n, r, v */
} oct_latent_shape;

/* Columns 0 .. R-1 and the others of latent_rope. */
oct_status oct_latent_split(const oct_tensor *latent_rope, oct_tensor *latent, oct_tensor *k_rope);
/* The way back. */
oct_status oct_latent_join(const oct_tensor *latent, const oct_tensor *k_rope,
                           oct_tensor *latent_rope);

oct_status oct_latent_heads(const oct_latent_shape *shape, const oct_tensor *up,
                            const oct_tensor *k_rope, oct_tensor *k, oct_tensor *v);
/* dk_rope (T,r): the fp32 sum over the heads in order, rounded once. */
oct_status oct_latent_heads_backward(const oct_latent_shape *shape, const oct_tensor *dk,
                                     const oct_tensor *dv, oct_tensor *dup, oct_tensor *dk_rope);

#endif
