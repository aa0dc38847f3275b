/* E5M2: S EEEEE MM, bias 15, Inf and NaN as in IEEE 754 (OCP 8-bit Floating Point Specification,
 * OFP8).
 *
 *   0 < e < 31:  (1 + m/4) * 2^(e-15)      e = 0:  m/4 * 2^-14      e = 31:  m = 0 Inf, else NaN
 *
 * Invariant: magnitudes are in the order of their codes, so a rounding that carries out of the
 * mantissa is the next code, and out of the largest it is Inf. */
#include <math.h>
#include <octet/format.h>

#include "format/fp32.h"
#include "format/fp8.h"

enum {
    LARGEST = 0x7b,
    INFINITE = 0x7c,
    NOT_A_NUMBER = 0x7f,
    MIN_EXPONENT = -14,
    MANTISSA_BITS = 2
};

uint8_t oct_e5m2_encode_by(float x, oct_rounder by, oct_overflow overflow) {
    uint32_t bits = oct_f32_bits(x);
    oct_f32_parts p = oct_f32_split(bits);
    uint8_t sign = (uint8_t)(p.sign << 7);
    if (oct_f32_is_nan(bits))
        return sign | NOT_A_NUMBER;
    uint32_t magnitude = oct_f32_to_grid(p, MIN_EXPONENT, MANTISSA_BITS, by);
    if (magnitude >= INFINITE) /* |x| >= 61440, the tie between 57344 and 2^16, or Inf */
        return sign | (overflow == OCT_SATURATE ? LARGEST : INFINITE);
    return sign | (uint8_t)magnitude;
}

uint8_t oct_e5m2_encode(float x, oct_overflow overflow) {
    return oct_e5m2_encode_by(x, (oct_rounder){OCT_ROUND_EVEN, 0}, overflow);
}

float oct_e5m2_decode(uint8_t code) {
    int e = code >> 2 & 31, m = code & 3;
    float magnitude;
    if (e == 31)
        magnitude = m == 0 ? INFINITY : NAN;
    else if (e > 0)
        magnitude = ldexpf(1 + (float)m / 4, e - 15);
    else
        magnitude = ldexpf((float)m / 4, -14);
    return code & 0x80 ? -magnitude : magnitude;
}
