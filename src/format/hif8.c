/* HiFloat8 (arXiv 2409.16626, section 2): the nearer the exponent to 0, the more mantissa bits.
 *
 *   bits 6..0      exponent E               value
 *   11 s aaa m     s, magnitude 1aaa        (1 + m/2) * 2^E     |E| = 8 .. 15
 *   10 s aa mm     s, magnitude 1aa         (1 + m/4) * 2^E     |E| = 4 .. 7
 *   01 s a mmm     s, magnitude 1a          (1 + m/8) * 2^E     |E| = 2, 3
 *   001 s mmm      s, magnitude 1           (1 + m/8) * 2^E     |E| = 1
 *   0001 mmm       none                     1 + m/8              E  = 0
 *   0000 mmm       none, m = 1 .. 7         2^(m-23)             E  = -22 .. -16
 *
 * 00 is the only zero, 80 the only NaN, 6f and ef are Inf (they'd be 1.5 * 2^15).
 * Invariant: the input's exponent decides how many mantissa bits are kept; a rounding that carries
 * into the next exponent leaves a mantissa of zeros, which every width can hold. */
#include <math.h>
#include <octet/format.h>

#include "format/fp32.h"
#include "format/fp8.h"

enum {
    NOT_A_NUMBER = 0x80,
    INFINITE = 0x6f,
    LARGEST = 0x6e, /* 2^15 */
    MAX_EXPONENT = 15,
    MIN_EXPONENT = -22,
    F_BITS = 14 /* hybrid rounding compares this many bits */
};

/* The tie between 2^15 and 1.5 * 2^15; hybrid rounding overflows from here too. */
static const float OVERFLOW_FROM = 40960;

static int mantissa_bits(int exponent) {
    int e = exponent < 0 ? -exponent : exponent;
    return e <= 3 ? 3 : e <= 7 ? 2 : e <= 15 ? 1 : 0;
}

/* Within exponents -3 .. 3 the hybrid rule is to nearest, ties away, as the format's own is. */
static oct_rounder hif8_rounder(oct_rounder by) {
    if (by.rounding == OCT_ROUND_OWN || by.rounding == OCT_ROUND_HYBRID)
        by.rounding = OCT_ROUND_AWAY;
    return by;
}

/* |x| in units of the last kept mantissa bit, 2^(exponent - width). */
static uint32_t round_hybrid(uint32_t significand, int width) {
    uint32_t kept = significand >> (23 - width);
    uint32_t next = significand >> (23 - width - F_BITS) & ((1u << F_BITS) - 1);
    uint32_t threshold = significand & ((1u << F_BITS) - 1);
    return kept + (next >= threshold);
}

/* The code of (1 + m / 2^width) * 2^e with width = mantissa_bits(e). */
static uint8_t assemble(int e, uint32_t m) {
    uint32_t s = e < 0, a = (uint32_t)(e < 0 ? -e : e);
    if (e < -15)
        return (uint8_t)(e + 23);
    if (a >= 8)
        return (uint8_t)(0x60 | s << 4 | (a & 7) << 1 | m);
    if (a >= 4)
        return (uint8_t)(0x40 | s << 4 | (a & 3) << 2 | m);
    if (a >= 2)
        return (uint8_t)(0x20 | s << 4 | (a & 1) << 3 | m);
    if (a == 1)
        return (uint8_t)(0x10 | s << 3 | m);
    return (uint8_t)(0x08 | m);
}

uint8_t oct_hif8_encode_by(float x, oct_rounder by, oct_overflow overflow) {
    uint32_t bits = oct_f32_bits(x);
    if (oct_f32_is_nan(bits))
        return NOT_A_NUMBER;
    oct_f32_parts p = oct_f32_split(bits);
    uint8_t sign = (uint8_t)(p.sign << 7);
    if (p.exponent < MIN_EXPONENT - 1 && by.rounding != OCT_ROUND_STOCHASTIC)
        return 0; /* below 2^-23, either sign */

    /* Below exponent -22 the grid is that of -22: a "mantissa" shorter than none. */
    int width = p.exponent < MIN_EXPONENT ? p.exponent - MIN_EXPONENT : mantissa_bits(p.exponent);
    uint32_t rounded;
    if (by.rounding == OCT_ROUND_HYBRID && (p.exponent < -3 || p.exponent > 3))
        rounded = round_hybrid(p.significand, width);
    else
        rounded = oct_shift_rounded(p.significand, 23 - width, hif8_rounder(by));
    if (rounded == 0)
        return 0;

    int e = p.exponent;
    if (width < 0) { /* one unit is 2^-22 */
        e = MIN_EXPONENT;
        width = 0;
    } else if (rounded >> (width + 1)) { /* carried: the mantissa is zero */
        e++;
        width = mantissa_bits(e);
        rounded = 1u << width;
    }
    uint32_t m = rounded & ((1u << width) - 1);
    bool overflows = e > MAX_EXPONENT || (e == MAX_EXPONENT && m > 0) || fabsf(x) >= OVERFLOW_FROM;
    if (overflows)
        return sign | (overflow == OCT_SATURATE ? LARGEST : INFINITE);
    return sign | assemble(e, m);
}

uint8_t oct_hif8_encode(float x, oct_hif8_rounding rounding, oct_overflow overflow) {
    const oct_rounder by = {rounding == OCT_HIF8_HYBRID ? OCT_ROUND_HYBRID : OCT_ROUND_AWAY, 0};
    return oct_hif8_encode_by(x, by, overflow);
}

float oct_hif8_decode(uint8_t code) {
    int low = code & 0x7f, s, a, m;
    float magnitude;
    if (code == NOT_A_NUMBER)
        return NAN;
    if (low == INFINITE) {
        magnitude = INFINITY;
    } else if (low >= 0x40) { /* 1x s ...: 3 or 2 bits of exponent, 1 or 2 of mantissa */
        s = low >> 4 & 1;
        a = low >= 0x60 ? 8 | (low >> 1 & 7) : 4 | (low >> 2 & 3);
        m = low >= 0x60 ? (low & 1) << 2 : (low & 3) << 1;
        magnitude = ldexpf(1 + (float)m / 8, s ? -a : a);
    } else if (low >= 0x20) { /* 01 s a mmm */
        s = low >> 4 & 1;
        a = 2 | (low >> 3 & 1);
        magnitude = ldexpf(1 + (float)(low & 7) / 8, s ? -a : a);
    } else if (low >= 0x10) { /* 001 s mmm */
        magnitude = ldexpf(1 + (float)(low & 7) / 8, low >> 3 & 1 ? -1 : 1);
    } else if (low >= 0x08) { /* 0001 mmm */
        magnitude = 1 + (float)(low & 7) / 8;
    } else { /* 0000 mmm */
        magnitude = low ? ldexpf(1, low - 23) : 0;
    }
    return code & 0x80 ? -magnitude : magnitude;
}
