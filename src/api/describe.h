/* Descriptors of the public API: read by their size, checked, and seen element by element. */
#ifndef OCT_API_DESCRIBE_H
#define OCT_API_DESCRIBE_H

#include <octet/matrix.h>
#include <stdbool.h>

#include "format/element.h"

/* Each copies what is given to *own and says whether it makes sense. */
bool oct_matrix_read(const oct_matrix *given, oct_matrix *own);
bool oct_quantizer_read(const oct_quantizer *given, oct_quantizer *own);
/* Codes with scales that can be decoded: E4M3, E5M2, HIF8. */
bool oct_coded_read(const oct_coded *given, oct_coded *own);
/* Their memory and strides alone, for who fills in the rest. */
bool oct_coded_read_memory(const oct_coded *given, int64_t rows, int64_t cols, oct_coded *own);
/* F32 or BF16 elements, which have no scales. */
bool oct_coded_read_plain(const oct_coded *given, oct_coded *own);

/* Whether (rows, cols) elements at these strides lie at different places. */
bool oct_strides_are_apart(int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride);

/* Elements of a block along one dimension of n; at least 1. */
static inline int64_t oct_block_extent(int64_t block, int64_t n) {
    return block > 0 ? block : n > 0 ? n : 1;
}

static inline float oct_matrix_load(const oct_matrix *x, int64_t r, int64_t c) {
    return oct_element_load(x->data, x->dtype, r * x->row_stride + c * x->col_stride);
}

static inline int64_t oct_scale_index(const oct_coded *q, int64_t r, int64_t c) {
    return r / oct_block_extent(q->block_rows, q->rows) * q->scale_row_stride +
           c / oct_block_extent(q->block_cols, q->cols) * q->scale_col_stride;
}

/* The scale of element (r, c). */
static inline float oct_coded_scale(const oct_coded *q, int64_t r, int64_t c) {
    const int64_t i = oct_scale_index(q, r, c);
    return q->scale_dtype == OCT_E8M0 ? oct_e8m0_decode(((const uint8_t *)q->scales)[i])
                                      : ((const float *)q->scales)[i];
}

static inline int64_t oct_code_index(const oct_coded *q, int64_t r, int64_t c) {
    return r * q->row_stride + c * q->col_stride;
}

/* The fp32 value of element (r, c), of plain elements too. */
float oct_coded_value(const oct_coded *q, int64_t r, int64_t c);

#endif
