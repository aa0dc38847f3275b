/* IEEE 754 binary16: 5 exponent bits, 10 of mantissa, largest 65504. Only files hold it. */
#ifndef OCT_FORMAT_F16_H
#define OCT_FORMAT_F16_H

#include <stdint.h>

#define OCT_F16_MAX 65504.0f

/* To the nearest, ties to even; what rounds beyond OCT_F16_MAX is Inf; a NaN stays one. */
uint16_t oct_f16_encode(float x);
float oct_f16_decode(uint16_t code); /* exact */

#endif
