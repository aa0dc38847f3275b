/* Where modules get their weights from: one door for high precision and 8 bits, one process and
 * many.
 *
 * What a parameter looks like to a product is derived from its fp32 master and cached until the
 * master's version changes: shared by all micro-batches of a step, never used after the optimizer
 * changed the weight. Buffers are kept and used again. In sharded training no process holds a whole
 * master: a source then answers in this cache's place, modules don't notice. */
#ifndef OCT_NN_WEIGHTS_H
#define OCT_NN_WEIGHTS_H

#include "nn/module.h"
#include "quant/quantize.h"

/* Entries are keyed by the parameter's address: destroy the weights before the parameters. One
 * thread drives it. */
typedef struct oct_weights oct_weights;

oct_status oct_weights_create(oct_weights **out);
void oct_weights_destroy(oct_weights *weights);

/* The weight as a high-precision tensor of the parameter's shape: the master itself (F32) or a copy
 * rounded to BF16. Valid until the version changes. */
oct_status oct_weights_dense(oct_weights *weights, const oct_param *param, oct_dtype dtype,
                             oct_tensor *out);

/* The weight (N,K) quantized for `recipe`, at least for contraction over what `which` names.
 * Forward contracts over 1 and may ask for both, as backward will want the other; a source then
 * brings along[1] alone. `expert` picks a slice of an (E,N,K) parameter (with
 * expert parallelism: of those that are here); pass 0 for a matrix. Valid
 * until the version changes. */
oct_status oct_weights_quantized(oct_weights *weights, const oct_param *param, int64_t expert,
                                 const oct_recipe *recipe, oct_along which, oct_amax *amax,
                                 oct_quantized *out);

/* Answers for parameters of which this process holds a shard alone. Both functions have the
 * contracts of the two above; results are valid while the unit (nn/step.h) runs. */
typedef struct oct_weight_source {
    void *user;
    oct_status (*dense)(void *user, const oct_param *param, oct_dtype dtype, oct_tensor *out);
    oct_status (*quantized)(void *user, const oct_param *param, int64_t expert,
                            const oct_recipe *recipe, oct_along which, oct_amax *amax,
                            oct_quantized *out);
} oct_weight_source;
/* NULL: none. Not owned. */
void oct_weights_set_source(oct_weights *weights, const oct_weight_source *source);

/* Turns caching off (every request is made anew): for tests of the cache. */
typedef enum oct_caching { OCT_CACHE_ON, OCT_CACHE_OFF } oct_caching;
void oct_weights_set_caching(oct_weights *weights, oct_caching caching);

size_t oct_weights_bytes(const oct_weights *weights); /* held by cached copies now */

#endif
