/* Where frameworks compute otherwise than docs/numerics.md. */
#ifndef OCTET_QUIRK_H
#define OCTET_QUIRK_H

/* Bits of oct_quantizer.quirks; presets (octet/preset.h) set them. */
typedef enum oct_quirk {
    /* E8M0 scales */
    OCT_QUIRK_LOG2_ROUNDED = 1 << 0,     /* rceil: k = ceil(fp32(log2(fp32(amax / largest)))) */
    OCT_QUIRK_LOWEST_BY_ONE = 1 << 1,    /* under scale code 0 elements are encoded as they are */
    OCT_QUIRK_LOWEST_BY_2_126 = 1 << 2,  /* under scale code 0 they are divided by 2^-126 */
    OCT_QUIRK_INF_IS_LARGE = 1 << 3,     /* an Inf is 2^128 to floor, ceil and even; 254 in rceil */
    OCT_QUIRK_NAN_IS_NOTHING = 1 << 4,   /* a NaN doesn't count in amax */
    OCT_QUIRK_NAN_LEAVES_ZEROS = 1 << 5, /* in a block of scale 255 finite elements are zeros */
    /* fp32 scales */
    OCT_QUIRK_MULTIPLIES = 1 << 6,   /* f = fp32(target / amax) in fp64, codes of fp32(x * f), the
                                        scale is fp32(1 / f) */
    OCT_QUIRK_POWER_OF_TWO = 1 << 7, /* f is rounded down to a power of two */
    OCT_QUIRK_AMAX_FLOOR = 1 << 8,   /* amax counts as at least 1e-12 */
    OCT_QUIRK_IDLE_IS_ONE = 1 << 9,  /* f is 1 where amax is 0 or Inf */
    OCT_QUIRKS_ALL = (1 << 10) - 1
} oct_quirk;

#endif
