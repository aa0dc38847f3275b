/* Look-up tables of the 8-bit formats for SIMD decoders. */
#ifndef OCT_KERNEL_BF16_OF_CODES_H
#define OCT_KERNEL_BF16_OF_CODES_H

#include <octet/tensor.h>
#include <stdint.h>

/* words[c], c = 0 .. 127, is the upper half of the fp32 that code c of `format` (E4M3, E5M2, HIF8)
 * decodes to; the lower half is 0. Codes 128 .. 255 are these with the sign bit, but HiF8's 0x80,
 * which is NaN. */
const uint16_t *oct_bf16_of_codes(oct_dtype format);

/* What all 256 codes of `format` decode to. */
void oct_values_of_codes(oct_dtype format, float values[256]);

#endif
