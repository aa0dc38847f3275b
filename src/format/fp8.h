/* The 8-bit formats by dtype for who knows that the dtype is one of them: E4M3, E5M2 or HIF8. The
 * public functions of the same kind (octet/format.h) refuse others. Saturating; HiF8 rounds TA. */
#ifndef OCT_FORMAT_FP8_H
#define OCT_FORMAT_FP8_H

#include <octet/format.h>
#include <stdbool.h>

#include "format/fp32.h"

uint8_t oct_e4m3_encode_by(float x, oct_rounder by, oct_overflow overflow);
uint8_t oct_e5m2_encode_by(float x, oct_rounder by, oct_overflow overflow);
uint8_t oct_hif8_encode_by(float x, oct_rounder by, oct_overflow overflow);
uint8_t oct_fp8_encode_by(oct_dtype format, float x, oct_rounder by, oct_overflow overflow);
/* Whether the format has this rounding. */
bool oct_is_rounding_of(oct_dtype format, oct_rounding rounding);

uint8_t oct_fp8_code(oct_dtype format, float x);
float oct_fp8_value(oct_dtype format, uint8_t code);
float oct_fp8_largest(oct_dtype format); /* 448, 57344, 32768 */

/* Whether a magnitude rounds to more than the largest value would, if exponents had no end: it is
 * saturated. E4M3's tie is 448's. */
static inline bool oct_fp8_saturates(oct_dtype format, double magnitude) {
    if (format == OCT_E4M3)
        return magnitude > 464;
    return magnitude >= (format == OCT_E5M2 ? 61440 : 40960);
}

/* E8M0 scale code of an MX block (E4M3 or E5M2) with this largest magnitude: octet/format.h. */
uint8_t oct_mx_scale_code(float amax, oct_dtype format, oct_scale_mode mode);

static inline bool oct_is_mx_format(oct_dtype format) {
    return format == OCT_E4M3 || format == OCT_E5M2;
}

static inline bool oct_is_fp8(oct_dtype format) {
    return oct_is_mx_format(format) || format == OCT_HIF8;
}

static inline bool oct_is_scale_mode(oct_scale_mode mode) {
    return mode == OCT_SCALE_FLOOR || mode == OCT_SCALE_CEIL || mode == OCT_SCALE_EVEN ||
           mode == OCT_SCALE_RCEIL;
}

#endif
