/* The public functions by dtype (octet/format.h): they refuse what the internal ones (fp8.h) trust
 * their callers with. */
#include "base/float_mode.h"
#include "format/fp8.h"

oct_status oct_fp8_encode(oct_dtype format, float x, uint8_t *code) {
    if (!code || !oct_is_fp8(format))
        return OCT_INVALID;
    *code = oct_fp8_code(format, x);
    return OCT_OK;
}

oct_status oct_fp8_decode(oct_dtype format, uint8_t code, float *value) {
    if (!value || !oct_is_fp8(format))
        return OCT_INVALID;
    *value = oct_fp8_value(format, code);
    return OCT_OK;
}

oct_status oct_fp8_max(oct_dtype format, float *value) {
    if (!value || !oct_is_fp8(format))
        return OCT_INVALID;
    *value = oct_fp8_largest(format);
    return OCT_OK;
}

oct_status oct_mx_scale(float amax, oct_dtype format, oct_scale_mode mode, uint8_t *code) {
    if (!code || !oct_is_mx_format(format) || !oct_is_scale_mode(mode) || amax < 0)
        return OCT_INVALID;
    const oct_float_mode before = oct_float_mode_begin();
    *code = oct_mx_scale_code(amax, format, mode);
    oct_float_mode_end(&before);
    return OCT_OK;
}
