/* Quantizing and multiplying 8-bit matrices in the two usual ways, MX and per tensor.
 *
 * Matrices are row-major and contiguous; sizes are in elements and at least 0. All functions are
 * thread-safe and use oct_threads() threads; results are the same bits for any number of them and
 * in any floating-point mode of the caller's.
 * They fail with OCT_INVALID for arguments that make no sense (a format of another family, a
 * negative size, NULL where there are elements, a scale that is missing) and OCT_NO_MEMORY for
 * refused workspace, and then write nothing. Formats and rules: octet/format.h and
 * docs/numerics.md. */
#ifndef OCTET_QUANTIZE_H
#define OCTET_QUANTIZE_H

#include <octet/api.h>
#include <octet/format.h>
#include <octet/status.h>
#include <octet/tensor.h>
#include <octet/threads.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Scale bytes of an (R, C) matrix in MX blocks along its rows: R * ceil(C / 32). */
OCT_API size_t oct_mx_scale_bytes(int64_t rows, int64_t cols);

/* x (R, C) of x_dtype (OCT_F32 or OCT_BF16) in MX blocks of 32 along each row: codes (R, C), scales
 * (R, ceil(C/32)). `format` is OCT_E4M3 or OCT_E5M2. */
OCT_API oct_status oct_mx_quantize(const void *x, oct_dtype x_dtype, int64_t rows, int64_t cols,
                                   oct_dtype format, oct_scale_mode mode, uint8_t *codes,
                                   uint8_t *scales);
/* The same with blocks along each column, written transposed: codes (C, R), scales (C, ceil(R/32)).
 */
OCT_API oct_status oct_mx_quantize_transposed(const void *x, oct_dtype x_dtype, int64_t rows,
                                              int64_t cols, oct_dtype format, oct_scale_mode mode,
                                              uint8_t *codes, uint8_t *scales);
/* y (R, C) = codes times scales, rounded once to fp32. */
OCT_API oct_status oct_mx_dequantize(const uint8_t *codes, const uint8_t *scales, int64_t rows,
                                     int64_t cols, oct_dtype format, float *y);

/* One fp32 scale for the whole matrix: scale = fp32(amax / target), codes = encode(x / scale),
 * saturating; `format` is OCT_HIF8 (targets 15 and 224, or 32768), OCT_E4M3 (448) or OCT_E5M2
 * (57344). */
OCT_API oct_status oct_tensor_quantize(const void *x, oct_dtype x_dtype, int64_t rows, int64_t cols,
                                       oct_dtype format, float target, uint8_t *codes,
                                       float *scale);
OCT_API oct_status oct_tensor_dequantize(const uint8_t *codes, float scale, int64_t rows,
                                         int64_t cols, oct_dtype format, float *y);

/* One operand of a product: codes (R, K), K contiguous. */
typedef struct oct_codes {
    oct_dtype format;
    const uint8_t *codes;
    const uint8_t *mx_scales; /* (R, ceil(K/32)); NULL: tensor_scale applies */
    float tensor_scale;       /* positive, or NaN */
} oct_codes;

/* c (M, N) fp32 = a (M, K) b (N, K)^T, by the fastest product of this CPU that meets the error
 * bound of docs/numerics.md. */
OCT_API oct_status oct_codes_multiply(const oct_codes *a, const oct_codes *b, int64_t M, int64_t N,
                                      int64_t K, float *c);

#ifdef __cplusplus
}
#endif
#endif
