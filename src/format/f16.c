/* IEEE 754 binary16: see f16.h. */
#include "format/f16.h"

#include <math.h>

#include "format/fp32.h"

uint16_t oct_f16_encode(float x) {
    uint32_t bits = oct_f32_bits(x);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    if (oct_f32_is_nan(bits))
        return (uint16_t)(sign | 0x7e00);
    float magnitude = fabsf(x);
    if (magnitude >= 65520.0f) /* half way to what would be the next number */
        return (uint16_t)(sign | 0x7c00);
    /* Normal numbers have steps of 2^(exponent - 10), all below the smallest of them 2^-24. */
    int exponent = magnitude < 0x1p-14f ? -14 : oct_f32_split(oct_f32_bits(magnitude)).exponent;
    uint32_t steps = (uint32_t)rintf(ldexpf(magnitude, 10 - exponent));
    /* A carry out of the mantissa is the next exponent's first number. */
    return (uint16_t)(sign | (((uint32_t)(exponent + 14) << 10) + steps));
}

float oct_f16_decode(uint16_t code) {
    int exponent = code >> 10 & 31, mantissa = code & 1023;
    float magnitude;
    if (exponent == 31)
        magnitude = mantissa ? NAN : INFINITY;
    else if (exponent == 0)
        magnitude = ldexpf((float)mantissa, -24);
    else
        magnitude = ldexpf((float)(1024 + mantissa), exponent - 25);
    return code >> 15 ? -magnitude : magnitude;
}
