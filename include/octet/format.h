/* The element formats, one scalar at a time: the specification in code.
 *
 * E4M3, E5M2 and E8M0 follow the OCP Microscaling Formats v1.0 and OCP FP8; HiF8 follows the
 * HiFloat8 paper (arXiv 2409.16626). Every encoder rounds once from the full fp32 value, subnormals
 * included. All functions are pure and thread-safe, and give the same in any floating-point mode of
 * the caller's (rounding, flushing of subnormals). docs/numerics.md has the bit layouts. */
#ifndef OCTET_FORMAT_H
#define OCTET_FORMAT_H

#include <octet/api.h>
#include <octet/status.h>
#include <octet/tensor.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum oct_overflow {
    OCT_NO_SATURATE = 0, /* E4M3: NaN above 464; E5M2: Inf from 61440; HiF8: Inf from 40960 */
    OCT_SATURATE = 1     /* the largest finite value; NaN stays NaN */
} oct_overflow;

typedef enum oct_hif8_rounding {
    OCT_HIF8_TA = 0,    /* to nearest, ties away from zero */
    OCT_HIF8_HYBRID = 1 /* TA for exponents -3..3, else the hybrid rule of docs/numerics.md */
} oct_hif8_rounding;

/* How the exponent of an MX block's scale follows from its largest magnitude (docs/numerics.md). */
typedef enum oct_scale_mode {
    OCT_SCALE_FLOOR = 0,
    OCT_SCALE_CEIL = 1,
    OCT_SCALE_EVEN = 2,
    OCT_SCALE_RCEIL = 3
} oct_scale_mode;

#define OCT_MX_BLOCK 32

OCT_API uint8_t oct_e4m3_encode(float x, oct_overflow overflow); /* to nearest, ties to even */
OCT_API uint8_t oct_e5m2_encode(float x, oct_overflow overflow);
OCT_API uint8_t oct_hif8_encode(float x, oct_hif8_rounding rounding, oct_overflow overflow);
OCT_API float oct_e4m3_decode(uint8_t code);
OCT_API float oct_e5m2_decode(uint8_t code);
OCT_API float oct_hif8_decode(uint8_t code);
OCT_API float oct_e8m0_decode(uint8_t code); /* 255: NaN; 0: 2^-127, a subnormal */

/* bf16: the upper half of an fp32; to nearest, ties to even; a NaN stays a (quiet) NaN. */
OCT_API uint16_t oct_bf16_encode(float x);
OCT_API float oct_bf16_decode(uint16_t bits);

/* By dtype: OCT_E4M3, OCT_E5M2 or OCT_HIF8; any other is OCT_INVALID, and so is NULL. Nothing is
 * written then. Encoding is what training uses, saturating; HiF8 rounds TA. */
OCT_API oct_status oct_fp8_encode(oct_dtype format, float x, uint8_t *code);
OCT_API oct_status oct_fp8_decode(oct_dtype format, uint8_t code, float *value);
/* Largest finite value: 448, 57344, 32768. */
OCT_API oct_status oct_fp8_max(oct_dtype format, float *value);

/* E8M0 scale code of an MX block whose largest magnitude is amax (>= 0) for elements of `format`,
 * OCT_E4M3 or OCT_E5M2. A NaN or Inf amax gives 255. Another format or mode, a negative amax and
 * NULL are OCT_INVALID. */
OCT_API oct_status oct_mx_scale(float amax, oct_dtype format, oct_scale_mode mode, uint8_t *code);

#ifdef __cplusplus
}
#endif
#endif
