/* The 8-bit element formats by dtype, as training uses them: saturating, HiF8 rounding TA. */
#include "format/fp8.h"

uint8_t oct_fp8_encode_by(oct_dtype format, float x, oct_rounder by, oct_overflow overflow) {
    if (format == OCT_E4M3)
        return oct_e4m3_encode_by(x, by, overflow);
    if (format == OCT_E5M2)
        return oct_e5m2_encode_by(x, by, overflow);
    return oct_hif8_encode_by(x, by, overflow);
}

bool oct_is_rounding_of(oct_dtype format, oct_rounding rounding) {
    return (unsigned)rounding <= OCT_ROUND_STOCHASTIC &&
           (rounding != OCT_ROUND_HYBRID || format == OCT_HIF8);
}

uint8_t oct_fp8_code(oct_dtype format, float x) {
    if (format == OCT_E4M3)
        return oct_e4m3_encode(x, OCT_SATURATE);
    if (format == OCT_E5M2)
        return oct_e5m2_encode(x, OCT_SATURATE);
    return oct_hif8_encode(x, OCT_HIF8_TA, OCT_SATURATE);
}

float oct_fp8_value(oct_dtype format, uint8_t code) {
    if (format == OCT_E4M3)
        return oct_e4m3_decode(code);
    if (format == OCT_E5M2)
        return oct_e5m2_decode(code);
    return oct_hif8_decode(code);
}

float oct_fp8_largest(oct_dtype format) {
    return format == OCT_E4M3 ? 448 : format == OCT_E5M2 ? 57344 : 32768;
}
