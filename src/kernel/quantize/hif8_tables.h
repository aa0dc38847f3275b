/* Tables for SIMD encoders of HiF8.
 *
 * Ties go away from zero, so a rounding depends on the four mantissa bits below the leading one at
 * most: the upper 16 bits of an fp32 decide (sign, exponent, 7 mantissa bits). With those in w:
 *
 *   e = exponent field of w - 103 (at least 0);  w += half[e];  e again;
 *   code = low byte of place[e] + (the 7 mantissa bits >> upper byte of place[e])
 *
 * Entry 0 means "rounds to zero". docs/numerics.md has the layout of the codes. */
#ifndef OCT_KERNEL_QUANTIZE_HIF8_TABLES_H
#define OCT_KERNEL_QUANTIZE_HIF8_TABLES_H

#include <stdint.h>

enum { OCT_HIF8_EXPONENTS = 64, OCT_HIF8_BELOW = 103 };

static inline void oct_hif8_fill_tables(uint16_t half[OCT_HIF8_EXPONENTS],
                                        uint16_t place[OCT_HIF8_EXPONENTS]) {
    for (int i = 0; i < OCT_HIF8_EXPONENTS; i++) {
        half[i] = 0;
        place[i] = 7 << 8;
    }
    for (int e = -23; e <= 15; e++) {
        int n = e < 0 ? -e : e; /* |exponent| */
        int bits = n < 4 ? 3 : n < 8 ? 2 : n < 16 ? 1 : 0;
        int down = e < 0;
        int code = n == 0   ? 0x08
                   : n == 1 ? 0x10 | down << 3
                   : n < 4  ? 0x20 | down << 4 | (n & 1) << 3
                   : n < 8  ? 0x40 | down << 4 | (n & 3) << 2
                   : n < 16 ? 0x60 | down << 4 | (n & 7) << 1
                            : 23 - n;
        half[e + 24] = (uint16_t)(e == -23 ? 128 : 64 >> bits); /* 2^-23 and more: 2^-22 */
        place[e + 24] = (uint16_t)((7 - bits) << 8 | code);
    }
}

#endif
