/* The parts of an fp32, for the codecs of this room: |x| = significand * 2^(exponent - 23).
 *
 * Invariant: exact for every finite x; a subnormal has exponent -126 and no hidden bit, so it needs
 * no case of its own. */
#ifndef OCT_FORMAT_FP32_H
#define OCT_FORMAT_FP32_H

#include <octet/codec.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define OCT_F32_SIGN 0x80000000u
#define OCT_F32_INF 0x7f800000u
#define OCT_F32_NAN 0x7fc00000u

typedef struct oct_f32_parts {
    uint32_t sign; /* 0 or 1 */
    int exponent;
    uint32_t significand; /* hidden bit included: below 2^24 */
} oct_f32_parts;

static inline uint32_t oct_f32_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float oct_f32_from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline bool oct_f32_is_nan(uint32_t bits) {
    return (bits & ~OCT_F32_SIGN) > OCT_F32_INF;
}

/* Of a finite x; Inf reads as 2^128. */
static inline oct_f32_parts oct_f32_split(uint32_t bits) {
    int field = (int)(bits >> 23 & 0xff);
    uint32_t mantissa = bits & 0x7fffff;
    return (oct_f32_parts){.sign = bits >> 31,
                           .exponent = field ? field - 127 : -126,
                           .significand = field ? mantissa | 0x800000 : mantissa};
}

/* v / 2^shift to the nearest integer, ties to even; v < 2^24, shift >= 1. */
static inline uint32_t oct_shift_ties_even(uint32_t v, int shift) {
    if (shift > 25)
        return 0;
    uint32_t half = 1u << (shift - 1), odd = v >> shift & 1;
    return (v + half - 1 + odd) >> shift;
}

/* The same, ties away from zero. */
static inline uint32_t oct_shift_ties_away(uint32_t v, int shift) {
    if (shift > 25)
        return 0;
    return (v + (1u << (shift - 1))) >> shift;
}

/* The same, up with the probability of the distance to the lower one. `random`: 64 random bits;
 * what they can't tell from 0 is 0. */
static inline uint32_t oct_shift_random(uint32_t v, int shift, uint64_t random) {
    if (shift > 63)
        return 0;
    return (uint32_t)((v + (random >> (64 - shift))) >> shift);
}

/* How an element is rounded. */
typedef struct oct_rounder {
    oct_rounding rounding;
    uint64_t random; /* OCT_ROUND_STOCHASTIC: this element's bits */
} oct_rounder;

static inline uint32_t oct_shift_rounded(uint32_t v, int shift, oct_rounder by) {
    if (by.rounding == OCT_ROUND_STOCHASTIC)
        return oct_shift_random(v, shift, by.random);
    if (by.rounding == OCT_ROUND_AWAY)
        return oct_shift_ties_away(v, shift);
    return oct_shift_ties_even(v, shift);
}

/* |x| on a format's grid, as the code without its sign: exponents from min_exponent, whose steps
 * the subnormals share. Codes that the format doesn't have follow on. OCT_ROUND_OWN is to even. */
static inline uint32_t oct_f32_to_grid(oct_f32_parts x, int min_exponent, int mantissa_bits,
                                       oct_rounder by) {
    int steps_up = x.exponent > min_exponent ? x.exponent - min_exponent : 0;
    int steps_down = x.exponent < min_exponent ? min_exponent - x.exponent : 0;
    uint32_t rounded = oct_shift_rounded(x.significand, 23 - mantissa_bits + steps_down, by);
    return ((uint32_t)steps_up << mantissa_bits) + rounded;
}

#endif
