/* Parts of a source that isn't quantized yet. */
#ifndef OCT_QUANT_MATRIX_VIEW_H
#define OCT_QUANT_MATRIX_VIEW_H

#include <octet/format.h>
#include <octet/tensor.h>

#include "base/checked.h"
#include "kernel/quantize.h"

/* At most n rows of x from `first` on. */
static inline oct_matrix_view oct_matrix_rows(const oct_matrix_view *x, int64_t first, int64_t n) {
    oct_matrix_view view = *x;
    view.data = (const char *)x->data + (size_t)(first * x->ld) * oct_dtype_bytes(x->dtype);
    view.rows = oct_min_i64(n, x->rows - first);
    return view;
}

static inline float oct_matrix_element(const oct_matrix_view *x, int64_t r, int64_t c) {
    int64_t i = r * x->ld + c;
    return x->dtype == OCT_F32 ? ((const float *)x->data)[i]
                               : oct_bf16_decode(((const uint16_t *)x->data)[i]);
}

#endif
