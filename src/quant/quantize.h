/* Quantizing a matrix, or each group of its rows, for the products that it enters: makes the copies
 * that qmatrix.h describes. */
#ifndef OCT_QUANT_QUANTIZE_H
#define OCT_QUANT_QUANTIZE_H

#include "base/arena.h"
#include "kernel/quantize.h"
#include "quant/delayed.h"
#include "quant/qmatrix.h"
#include "quant/recipe.h"

/* Quantizes `x` (F32 or BF16) for `role`, threads over blocks of rows, in one read where both
 * copies are asked for. The copy for dimension d comes from arenas[d] (they may be the same; a
 * shared copy comes from arenas[0], since that is the one kept for backward). Elements of an F32
 * weight are rounded to recipe->weight_source first, in passing. `amax` (NULL:
 * dynamic) may replace the tensor's amax in per-tensor recipes: delayed scaling, the reduced amax
 * of a sharded tensor. OCT_NO_MEMORY is the only failure. */
oct_status oct_quantize(const oct_matrix_view *x, const oct_recipe *recipe, oct_role role,
                        oct_along which, oct_arena *const arenas[2], oct_amax *amax,
                        oct_quantized *out);

/* The same for each group of rows by itself (offsets[g] .. offsets[g+1]-1 of x; any may be empty):
 * out[g] is, bit for bit, what oct_quantize gives for the group alone, so blocks never straddle
 * groups and each has a scale of its own; an empty one has scale 1. One pass, threads over blocks
 * of rows of all groups. amax->seen is the largest of the groups'. Per tensor, recipe->groups may
 * say that groups share scales; with OCT_GROUPS_EQUAL x is contiguous (ld = cols). */
oct_status oct_quantize_groups(const oct_matrix_view *x, const int64_t *offsets, int64_t n_groups,
                               const oct_recipe *recipe, oct_role role, oct_along which,
                               oct_arena *const arenas[2], oct_amax *amax, oct_quantized *out);

#endif
