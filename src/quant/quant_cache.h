/* Quantizations that siblings share: wq, wk, wv read one tensor, so do w1 and w3; each is quantized
 * once a step and kept for backward once. Entries are keyed by the tensor's id (unique within a
 * step context), role and recipe. */
#ifndef OCT_QUANT_CACHE_H
#define OCT_QUANT_CACHE_H

#include <octet/status.h>
#include <stddef.h>

#include "quant/quantize.h"

typedef struct oct_quant_cache oct_quant_cache;

oct_status oct_quant_cache_create(oct_quant_cache **out);
void oct_quant_cache_destroy(oct_quant_cache *cache);

/* The quantization of `x` for `role`, made on first use as oct_quantize would and found again while
 * the entry lives. A tensor with id 0 is never shared. */
oct_status oct_quant_cache_quantize(oct_quant_cache *cache, const oct_tensor *x,
                                    const oct_recipe *recipe, oct_role role, oct_along which,
                                    oct_arena *const arenas[2], oct_amax *amax, oct_quantized *out);

size_t oct_quant_cache_count(const oct_quant_cache *cache);
/* Forgets all entries but the first n: their memory is about to be released. */
void oct_quant_cache_truncate(oct_quant_cache *cache, size_t n);

#endif
