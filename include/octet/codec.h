/* Encoding and decoding arrays of elements, with every rounding that the formats know.
 *
 * Functions are thread-safe; `threads` is how many they use, 0: oct_threads(). The same bits come
 * for any number of them, in any floating-point mode of the caller's. OCT_INVALID: NULL where there
 * are elements, a dtype of another family, a rounding that the format doesn't have; then nothing is
 * written. */
#ifndef OCTET_CODEC_H
#define OCTET_CODEC_H

#include <octet/api.h>
#include <octet/format.h>
#include <octet/status.h>
#include <octet/tensor.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum oct_rounding {
    OCT_ROUND_OWN = 0,    /* the format's own: to even for E4M3 and E5M2, away for HiF8 */
    OCT_ROUND_EVEN = 1,   /* to nearest, ties to the even mantissa */
    OCT_ROUND_AWAY = 2,   /* to nearest, ties away from zero */
    OCT_ROUND_HYBRID = 3, /* the HiFloat8 paper's, HiF8 alone (docs/numerics.md) */
    /* Up with the probability of the distance to the lower neighbour, by 64 random bits that are a
     * pure function of (seed, counter + index of the element): Philox4x32-10. */
    OCT_ROUND_STOCHASTIC = 4
} oct_rounding;

typedef struct oct_codec {
    size_t struct_size; /* sizeof(oct_codec) */
    oct_dtype format;   /* OCT_E4M3, OCT_E5M2, OCT_HIF8 */
    oct_rounding rounding;
    oct_overflow overflow;
    uint64_t seed, counter; /* OCT_ROUND_STOCHASTIC */
} oct_codec;

/* codes[i] of x[i], n contiguous elements of x_dtype: OCT_F32, OCT_BF16 or OCT_F16. */
OCT_API oct_status oct_encode_array(const oct_codec *codec, const void *x, oct_dtype x_dtype,
                                    int64_t n, uint8_t *codes, int threads);
/* y[i] of codes[i]: `format` besides those above may be OCT_E8M0; y_dtype is OCT_F32, OCT_BF16 or
 * OCT_F16, to which a value that it lacks is rounded to nearest, ties to even. */
OCT_API oct_status oct_decode_array(oct_dtype format, const uint8_t *codes, int64_t n, void *y,
                                    oct_dtype y_dtype, int threads);

#ifdef __cplusplus
}
#endif
#endif
