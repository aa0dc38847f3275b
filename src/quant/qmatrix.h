/* A quantized matrix: 8-bit codes, their scales, and which products they can enter.
 *
 * The source is a matrix (R, C). A product contracts over one of its dimensions: 1 (C, along the
 * rows) or 0 (R, along the columns). MX 1x32 blocks and per-channel scales depend on that
 * dimension, so such a source needs a copy for each; per-tensor scales and 32x32 tiles don't, so
 * one copy serves both. Copies for dimension 0 alone are stored transposed, so that the contracted
 * dimension is contiguous. */
#ifndef OCT_QUANT_QMATRIX_H
#define OCT_QUANT_QMATRIX_H

#include <octet/tensor.h>

#include "base/arena.h"
#include "kernel/gemm.h"
#include "quant/recipe.h"

typedef struct oct_qmatrix {
    oct_dtype format;
    oct_scaling scaling;
    int64_t rows, cols; /* of the codes as stored (transposed: C, R) */
    bool transposed;    /* stored as (C, R), for contraction over dimension 0 */
    int64_t block_rows; /* MX: 1, or 32 for tiles */
    uint8_t *codes;     /* (rows, cols), contiguous */
    void *scales;      /* MX: E8M0 (ceil(rows / block_rows), ceil(cols / 32)); tensor: 1 float; row:
                          `rows` floats */
    int64_t ld_scales; /* MX: ceil(cols / 32) */
} oct_qmatrix;

/* The copies of one source. For sources whose one copy serves both dimensions, along[0] and
 * along[1] are the same pointers. A copy that nobody asked for has codes == NULL. */
typedef struct oct_quantized {
    oct_qmatrix along[2]; /* indexed by the contracted dimension of the source */
} oct_quantized;

typedef enum oct_along { OCT_ALONG_0 = 1, OCT_ALONG_1 = 2, OCT_ALONG_BOTH = 3 } oct_along;

/* Whether one copy of this role's codes serves both dimensions. */
bool oct_recipe_shares_copies(const oct_recipe *recipe, oct_role role);

/* Bytes of codes plus scales of one copy of an (R, C) source quantized for contraction over `dim`.
 */
size_t oct_qmatrix_bytes(const oct_recipe *recipe, oct_role role, int64_t rows, int64_t cols,
                         int dim);

/* The copy for contraction over `dim` of an (R, C) source, without memory, and the bytes of its
 * scales: for who brings the memory and fills it by other means (a gather). */
oct_qmatrix oct_qmatrix_shape(const oct_recipe *recipe, oct_role role, int64_t rows, int64_t cols,
                              int dim);
size_t oct_qmatrix_scale_bytes(const oct_qmatrix *q);

/* Describes and allocates the copies that are wanted of a (rows, cols) source; the one for
 * dimension d in arenas[d], one that serves both in arenas[0]. OCT_NO_MEMORY is the only failure.
 */
oct_status oct_quantized_allocate(const oct_recipe *recipe, oct_role role, oct_along which,
                                  int64_t rows, int64_t cols, oct_arena *const arenas[2],
                                  oct_quantized *out);

/* The operand whose rows are the other dimension and whose k is `dim` of the source. */
oct_operand oct_quantized_operand(const oct_quantized *q, int dim);

/* The fp32 value of each element, in the source's orientation (R, C): for reports and tests. */
void oct_quantized_decode(const oct_quantized *q, int dim, float *out);

#endif
