/* Rounding gradients that are made in parts: see gradient.h. */
#include "nn/gradient.h"

#include <string.h>

#include "op/elementwise.h"

oct_status oct_gradient_begin(oct_step *step, oct_param *param, oct_gradient *gradient) {
    *gradient = (oct_gradient){0};
    if (step->gradient == OCT_F32 || !param || !param->grad)
        return OCT_OK;
    size_t n = (size_t)oct_param_elements(param);
    oct_arena_mark mark = oct_arena_get_mark(step->scratch);
    float *own = oct_arena_alloc_array(step->scratch, n, sizeof *own);
    if (!own)
        return OCT_NO_MEMORY;
    memset(own, 0, n * sizeof *own);
    *gradient = (oct_gradient){param, param->grad, step->gradient, mark};
    param->grad = own;
    step->gradient = OCT_F32;
    return OCT_OK;
}

oct_status oct_gradient_end(oct_step *step, const oct_gradient *gradient, oct_status status) {
    oct_param *param = gradient->param;
    if (!param)
        return status;
    int64_t n = oct_param_elements(param);
    oct_tensor own = oct_tensor_1d(OCT_F32, n, param->grad);
    oct_tensor total = oct_tensor_1d(OCT_F32, n, gradient->total);
    oct_tensor rounded = oct_tensor_1d(
        gradient->dtype, n,
        oct_arena_alloc_array(step->scratch, (size_t)n, oct_dtype_bytes(gradient->dtype)));
    if (!status && !rounded.data)
        status = OCT_NO_MEMORY;
    if (!status)
        status = oct_cast(&own, &rounded);
    if (!status)
        status = oct_add(&total, &rounded, &total);
    param->grad = gradient->total;
    step->gradient = gradient->dtype;
    oct_arena_release(step->scratch, gradient->mark);
    return status;
}
