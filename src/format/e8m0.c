/* E8M0: code c is 2^(c-127), 255 is NaN; no sign, no zero, no Inf (OCP Microscaling Formats v1.0,
 * 5.4.1). */
#include <octet/format.h>

#include "format/fp32.h"

float oct_e8m0_decode(uint8_t code) {
    if (code == 255)
        return oct_f32_from_bits(OCT_F32_NAN);
    if (code == 0)
        return oct_f32_from_bits(0x00400000); /* 2^-127, an fp32 subnormal */
    return oct_f32_from_bits((uint32_t)code << 23);
}
