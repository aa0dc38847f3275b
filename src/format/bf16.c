/* bf16: the upper 16 bits of an fp32. */
#include <octet/format.h>

#include "format/fp32.h"

uint16_t oct_bf16_encode(float x) {
    uint32_t bits = oct_f32_bits(x);
    if (oct_f32_is_nan(bits))
        return (uint16_t)(bits >> 16 | 0x40); /* rounding could turn a NaN's mantissa into Inf's */
    uint32_t odd = bits >> 16 & 1;
    return (uint16_t)((bits + 0x7fff + odd) >> 16); /* a carry gives the next binade, or Inf */
}

float oct_bf16_decode(uint16_t code) {
    return oct_f32_from_bits((uint32_t)code << 16);
}
