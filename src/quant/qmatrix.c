/* Quantized matrices: see qmatrix.h. */
#include "quant/qmatrix.h"

#include <octet/format.h>

#include "base/checked.h"
#include "format/fp8.h"

bool oct_recipe_shares_copies(const oct_recipe *recipe, oct_role role) {
    if (recipe->granularity == OCT_PER_TENSOR)
        return true;
    return recipe->granularity == OCT_MX && role == OCT_ROLE_WEIGHT &&
           recipe->weight_block_rows == OCT_MX_BLOCK;
}

oct_qmatrix oct_qmatrix_shape(const oct_recipe *recipe, oct_role role, int64_t rows, int64_t cols,
                              int dim) {
    bool transposed = dim == 0 && !oct_recipe_shares_copies(recipe, role);
    oct_qmatrix q = {.format = recipe->format[role],
                     .rows = transposed ? cols : rows,
                     .cols = transposed ? rows : cols,
                     .transposed = transposed,
                     .block_rows = 1};
    if (recipe->granularity == OCT_MX) {
        q.scaling = OCT_SCALING_MX;
        q.block_rows = role == OCT_ROLE_WEIGHT ? recipe->weight_block_rows : 1;
        q.ld_scales = oct_ceil_div(q.cols, OCT_MX_BLOCK);
    } else {
        q.scaling = recipe->granularity == OCT_PER_TENSOR ? OCT_SCALING_TENSOR : OCT_SCALING_ROW;
    }
    return q;
}

size_t oct_qmatrix_scale_bytes(const oct_qmatrix *q) {
    if (q->scaling == OCT_SCALING_MX)
        return (size_t)(oct_ceil_div(q->rows, q->block_rows) * q->ld_scales);
    return sizeof(float) * (q->scaling == OCT_SCALING_TENSOR ? 1 : (size_t)q->rows);
}

size_t oct_qmatrix_bytes(const oct_recipe *recipe, oct_role role, int64_t rows, int64_t cols,
                         int dim) {
    oct_qmatrix q = oct_qmatrix_shape(recipe, role, rows, cols, dim);
    return (size_t)(rows * cols) + oct_qmatrix_scale_bytes(&q);
}

static bool allocate(oct_qmatrix *q, oct_arena *arena) {
    q->codes = oct_arena_alloc_array(arena, (size_t)q->rows, (size_t)q->cols);
    q->scales = oct_arena_alloc(arena, oct_qmatrix_scale_bytes(q));
    return q->codes && q->scales;
}

oct_status oct_quantized_allocate(const oct_recipe *recipe, oct_role role, oct_along which,
                                  int64_t rows, int64_t cols, oct_arena *const arenas[2],
                                  oct_quantized *out) {
    *out = (oct_quantized){0};
    if (oct_recipe_shares_copies(recipe, role)) {
        out->along[1] = oct_qmatrix_shape(recipe, role, rows, cols, 1);
        if (!allocate(&out->along[1], arenas[0]))
            return OCT_NO_MEMORY;
        out->along[0] = out->along[1];
        return OCT_OK;
    }
    for (int dim = 0; dim < 2; dim++) {
        if (!(which & (dim == 0 ? OCT_ALONG_0 : OCT_ALONG_1)))
            continue;
        out->along[dim] = oct_qmatrix_shape(recipe, role, rows, cols, dim);
        if (!allocate(&out->along[dim], arenas[dim]))
            return OCT_NO_MEMORY;
    }
    return OCT_OK;
}

oct_operand oct_quantized_operand(const oct_quantized *q, int dim) {
    const oct_qmatrix *m = &q->along[dim];
    bool contiguous = dim == 1 || m->transposed;
    return (oct_operand){.dtype = m->format,
                         .layout = contiguous ? OCT_K_CONTIGUOUS : OCT_K_STRIDED,
                         .data = m->codes,
                         .ld = m->cols,
                         .scaling = m->scaling,
                         .scales = m->scales,
                         .ld_scales = m->ld_scales,
                         .block_rows = m->block_rows};
}

static float scale_of(const oct_qmatrix *m, int64_t r, int64_t c) {
    if (m->scaling == OCT_SCALING_TENSOR)
        return *(const float *)m->scales;
    if (m->scaling == OCT_SCALING_ROW)
        return ((const float *)m->scales)[r];
    return oct_e8m0_decode(
        ((const uint8_t *)m->scales)[r / m->block_rows * m->ld_scales + c / OCT_MX_BLOCK]);
}

void oct_quantized_decode(const oct_quantized *q, int dim, float *out) {
    const oct_qmatrix *m = &q->along[dim];
    for (int64_t r = 0; r < m->rows; r++) {
        for (int64_t c = 0; c < m->cols; c++) {
            float value = oct_fp8_value(m->format, m->codes[r * m->cols + c]) * scale_of(m, r, c);
            out[m->transposed ? c * m->rows + r : r * m->cols + c] = value;
        }
    }
}
