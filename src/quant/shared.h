/* Quantizations that siblings share: wq, wk, wv read one tensor, so do w1 and w3; each is quantized
 * once a step and kept for backward once. Entries are keyed by the tensor's id (unique within a
 * step context), role and recipe. */
#ifndef OCT_QUANT_SHARED_H
#define OCT_QUANT_SHARED_H

#include <octet/status.h>
#include <stddef.h>

#include "quant/qmatrix.h"

typedef struct oct_shared oct_shared;

oct_status oct_shared_create(oct_shared **out);
void oct_shared_destroy(oct_shared *shared);

/* The quantization of `x` for `role`, made on first use as oct_quantize would and found again while
 * the entry lives. A tensor with id 0 is never shared. */
oct_status oct_shared_quantize(oct_shared *shared, const oct_tensor *x, const oct_recipe *recipe,
                               oct_role role, oct_along which, oct_arena *const arenas[2],
                               oct_amax *amax, oct_quantized *out);

size_t oct_shared_count(const oct_shared *shared);
/* Forgets all entries but the first n: their memory is about to be released. */
void oct_shared_truncate(oct_shared *shared, size_t n);

#endif
