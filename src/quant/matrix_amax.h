/* Largest magnitudes of a matrix, for scales that several ranks find together. */
#ifndef OCT_QUANT_MATRIX_AMAX_H
#define OCT_QUANT_MATRIX_AMAX_H

#include <octet/status.h>

#include "base/arena.h"
#include "kernel/quantize.h"

/* The largest magnitude of a matrix, and of each of its columns (out: cols): 0 of nothing, Inf when
 * an element is NaN or Inf. Rounded to recipe->weight_source, they are what the quantizer itself
 * finds of a weight, so that maxima over shards give the scales of the whole. OCT_NO_MEMORY is the
 * only failure. */
oct_status oct_matrix_amax(const oct_matrix_view *x, oct_arena *scratch, float *amax);
void oct_matrix_column_amaxes(const oct_matrix_view *x, float *out);

#endif
