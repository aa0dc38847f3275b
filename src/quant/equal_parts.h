/* Groups of rows whose scales are those of equal parts of the whole, as OCT_GROUPS_EQUAL says: a
 * part of quantize.c. */
#ifndef OCT_QUANT_EQUAL_PARTS_H
#define OCT_QUANT_EQUAL_PARTS_H

#include "quant/quantize.h"

/* As oct_quantize_groups, per tensor: group g's codes are by whatever parts its rows lie in, its
 * scale is part g's. x is contiguous. */
oct_status oct_quantize_equal_parts(const oct_matrix_view *x, const int64_t *offsets,
                                    int64_t n_groups, const oct_recipe *recipe, oct_role role,
                                    oct_arena *const arenas[2], oct_amax *amax, oct_quantized *out);

#endif
