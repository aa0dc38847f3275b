/* fp32 values in the dtype that they leave in: see values.h. */
#include "export/values.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "format/f16.h"
#include "op/elementwise.h"

static oct_status put_halves(const char *name, const float *from, int64_t n, uint16_t *to,
                             oct_error *err) {
    for (int64_t i = 0; i < n; i++) {
        if (!(fabsf(from[i]) <= OCT_F16_MAX))
            return oct_fail(
                err, OCT_INVALID,
                "%s: element %" PRId64
                " is %g; expected at most 65504, the largest float16; bfloat16 or float32 hold it",
                name, i, (double)from[i]);
        to[i] = oct_f16_encode(from[i]);
    }
    return OCT_OK;
}

oct_status oct_export_put_values(const char *name, const float *from, int64_t n, oct_dtype dtype,
                                 void *to, oct_error *err) {
    if (dtype == OCT_F16)
        return put_halves(name, from, n, to, err);
    oct_tensor x = oct_tensor_1d(OCT_F32, n, (void *)(uintptr_t)from);
    oct_tensor y = oct_tensor_1d(dtype, n, to);
    if (dtype == OCT_F32)
        memcpy(to, from, (size_t)n * sizeof *from);
    else if (oct_cast(&x, &y) != OCT_OK)
        return oct_fail_memory(err);
    return OCT_OK;
}
