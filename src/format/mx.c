/* The scale of an MX block from its largest magnitude (OCP Microscaling Formats v1.0, 6.3, for
 * floor; the other modes are those of torchao and of the OCP follow-ups): code 127 + k for 2^k.
 *
 *   emax = 8 (E4M3) or 15 (E5M2)
 *   floor  k = floor(log2 amax) - emax
 *   ceil   k = ceil(log2 amax) - emax
 *   even   k = floor(log2 r) - emax, r = amax rounded to the element's mantissa bits, ties away
 *   rceil  k = ceil(log2 d), d = fp32(amax * fp32(1 / largest)): the largest element just fits
 *
 * Invariant: log2 is exact, read from the bits. */
#include <octet/format.h>

#include "format/fp32.h"
#include "format/fp8.h"

/* floor(log2 x) of a positive finite x. */
static int floor_log2(float x) {
    oct_f32_parts p = oct_f32_split(oct_f32_bits(x));
    while (p.significand < 0x800000) {
        p.significand <<= 1;
        p.exponent--;
    }
    return p.exponent;
}

static int ceil_log2(float x) {
    oct_f32_parts p = oct_f32_split(oct_f32_bits(x));
    int is_power = (p.significand & (p.significand - 1)) == 0;
    return floor_log2(x) + !is_power;
}

/* floor(log2) of x rounded to `mantissa_bits`, ties away; up to 128. x is normal: in a subnormal
 * the units would be others, but there any k is clamped to the same code. */
static int rounded_log2(float x, int mantissa_bits) {
    uint32_t half = 1u << (22 - mantissa_bits);
    return (int)((oct_f32_bits(x) + half) >> 23) - 127;
}

uint8_t oct_mx_scale_code(float amax, oct_dtype format, oct_scale_mode mode) {
    int emax = format == OCT_E4M3 ? 8 : 15;
    int k = 0;
    if ((oct_f32_bits(amax) & ~OCT_F32_SIGN) >= OCT_F32_INF)
        return 255;
    if (amax == 0)
        return 0;
    switch (mode) {
    case OCT_SCALE_FLOOR:
        k = floor_log2(amax) - emax;
        break;
    case OCT_SCALE_CEIL:
        k = ceil_log2(amax) - emax;
        break;
    case OCT_SCALE_EVEN:
        k = rounded_log2(amax, format == OCT_E4M3 ? 3 : 2) - emax;
        break;
    case OCT_SCALE_RCEIL: {
        float inverse = format == OCT_E4M3 ? 1.0f / 448 : 1.0f / 57344;
        float d = amax * inverse;
        if (d == 0)
            return 0;
        k = ceil_log2(d);
        break;
    }
    }
    int code = 127 + k;
    return (uint8_t)(code < 0 ? 0 : code > 254 ? 254 : code);
}
