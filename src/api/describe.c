/* Checking descriptors: see describe.h. */
#include "api/describe.h"

#include <math.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/struct_size.h"
#include "format/fp8.h"

/* That of API 1: all fields of today. */
#define READ(given, own) oct_read_struct(given, own, sizeof *(own), sizeof *(own))

/* Whether offsets of (rows, cols) elements can be computed. */
static bool is_extent(int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride) {
    int64_t n, down, across, most;
    if (rows < 0 || cols < 0 || !oct_mul_i64(rows, cols, &n))
        return false;
    return row_stride != INT64_MIN && col_stride != INT64_MIN &&
           oct_mul_i64(rows, llabs(row_stride), &down) &&
           oct_mul_i64(cols, llabs(col_stride), &across) &&
           !__builtin_add_overflow(down, across, &most) && most < INT64_MAX / 8;
}

bool oct_strides_are_apart(int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride) {
    const int64_t down = llabs(row_stride), across = llabs(col_stride);
    if (rows > 1 && cols > 1)
        return down >= cols * across ? across > 0 : down > 0 && across >= rows * down;
    return (rows <= 1 || down > 0) && (cols <= 1 || across > 0);
}

static bool is_memory(const void *memory, int64_t rows, int64_t cols) {
    return memory || rows == 0 || cols == 0;
}

bool oct_matrix_read(const oct_matrix *given, oct_matrix *own) {
    return READ(given, own) && oct_is_element(own->dtype) &&
           is_extent(own->rows, own->cols, own->row_stride, own->col_stride) &&
           is_memory(own->data, own->rows, own->cols);
}

static bool is_block(const oct_dtype scale_dtype, int64_t block_rows, int64_t block_cols) {
    return (scale_dtype == OCT_E8M0 || scale_dtype == OCT_F32) && block_rows >= 0 &&
           block_cols >= 0;
}

static bool is_format_of(oct_dtype format, oct_dtype scale_dtype) {
    return scale_dtype == OCT_E8M0 ? oct_is_mx_format(format) : oct_is_fp8(format);
}

bool oct_quantizer_read(const oct_quantizer *given, oct_quantizer *own) {
    if (!READ(given, own) || !is_block(own->scale_dtype, own->block_rows, own->block_cols) ||
        !is_format_of(own->format, own->scale_dtype) || !oct_is_scale_mode(own->scale_mode) ||
        !oct_is_rounding_of(own->format, own->rounding) || (own->quirks & ~OCT_QUIRKS_ALL))
        return false;
    if (own->source != OCT_F32 && own->source != OCT_BF16)
        return false;
    if (own->target == 0)
        own->target = oct_fp8_largest(own->format);
    return own->target > 0 && isfinite(own->target);
}

bool oct_coded_read_memory(const oct_coded *given, int64_t rows, int64_t cols, oct_coded *own) {
    return READ(given, own) && is_extent(rows, cols, own->row_stride, own->col_stride) &&
           is_extent(rows, cols, own->scale_row_stride, own->scale_col_stride) &&
           is_memory(own->codes, rows, cols) && is_memory(own->scales, rows, cols);
}

bool oct_coded_read(const oct_coded *given, oct_coded *own) {
    return READ(given, own) && oct_coded_read_memory(given, own->rows, own->cols, own) &&
           is_block(own->scale_dtype, own->block_rows, own->block_cols) &&
           is_format_of(own->format, own->scale_dtype);
}

bool oct_coded_read_plain(const oct_coded *given, oct_coded *own) {
    return READ(given, own) && (own->format == OCT_F32 || own->format == OCT_BF16) &&
           !own->scales && is_extent(own->rows, own->cols, own->row_stride, own->col_stride) &&
           is_memory(own->codes, own->rows, own->cols);
}

float oct_coded_value(const oct_coded *q, int64_t r, int64_t c) {
    const int64_t i = oct_code_index(q, r, c);
    if (oct_is_element(q->format))
        return oct_element_load(q->codes, q->format, i);
    return oct_fp8_value(q->format, ((const uint8_t *)q->codes)[i]) * oct_coded_scale(q, r, c);
}
