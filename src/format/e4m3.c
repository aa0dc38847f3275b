/* E4M3: S EEEE MMM, bias 7, no Inf; S.1111.111 is NaN (OCP 8-bit Floating Point Specification,
 * OFP8).
 *
 *   e > 0:  (1 + m/8) * 2^(e-7)        e = 0:  m/8 * 2^-6
 *
 * Invariant: magnitudes are in the order of their codes, so a rounding that carries out of the
 * mantissa is the next code. */
#include <math.h>
#include <octet/format.h>

#include "format/fp32.h"
#include "format/fp8.h"

enum { LARGEST = 0x7e, NOT_A_NUMBER = 0x7f, MIN_EXPONENT = -6, MANTISSA_BITS = 3 };

uint8_t oct_e4m3_encode_by(float x, oct_rounder by, oct_overflow overflow) {
    uint32_t bits = oct_f32_bits(x);
    oct_f32_parts p = oct_f32_split(bits);
    uint8_t sign = (uint8_t)(p.sign << 7);
    if (oct_f32_is_nan(bits))
        return sign | NOT_A_NUMBER;
    uint32_t magnitude = oct_f32_to_grid(p, MIN_EXPONENT, MANTISSA_BITS, by);
    if (magnitude > LARGEST) /* |x| > 464, the tie between 448 and the code of NaN, or Inf */
        return sign | (overflow == OCT_SATURATE ? LARGEST : NOT_A_NUMBER);
    return sign | (uint8_t)magnitude;
}

uint8_t oct_e4m3_encode(float x, oct_overflow overflow) {
    return oct_e4m3_encode_by(x, (oct_rounder){OCT_ROUND_EVEN, 0}, overflow);
}

float oct_e4m3_decode(uint8_t code) {
    int e = code >> 3 & 15, m = code & 7;
    float magnitude;
    if ((code & 0x7f) == NOT_A_NUMBER)
        magnitude = NAN;
    else if (e > 0)
        magnitude = ldexpf(1 + (float)m / 8, e - 7);
    else
        magnitude = ldexpf((float)m / 8, -6);
    return code & 0x80 ? -magnitude : magnitude;
}
