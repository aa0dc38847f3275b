/* fp32 values in the dtype that they leave in. Internal to the room. */
#ifndef OCT_EXPORT_VALUES_H
#define OCT_EXPORT_VALUES_H

#include <octet/status.h>
#include <octet/tensor.h>

/* n values to `to`, rounded to F32, BF16 or F16. OCT_INVALID: a value beyond the largest float16;
 * `name` is the tensor's, for messages. */
oct_status oct_export_put_values(const char *name, const float *from, int64_t n, oct_dtype dtype,
                                 void *to, oct_error *err);

#endif
