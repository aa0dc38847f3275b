/* Quantizer kernels: fp32 or bf16 matrices to 8-bit codes and scales.
 *
 * x is R x C, row-major, `ld_x` elements between rows, dtype OCT_F32 or OCT_BF16. All results are
 * bit-exact in every kernel set (docs/numerics.md; the scalar rules are octet/format.h). A block
 * with a NaN or an Inf gets scale 255 and NaN codes (E4M3 0x7f, E5M2 0x7f, HiF8 0x80). A short last
 * block acts as if padded with zeros. Kernels read and write only the elements named, so tails and
 * strides are safe next to foreign memory. Kernels are single-threaded and never allocate;
 * operators cut matrices at multiples of 32 rows. */
#ifndef OCT_KERNEL_QUANTIZE_H
#define OCT_KERNEL_QUANTIZE_H

#include <octet/format.h>
#include <octet/tensor.h>
#include <stdint.h>

typedef struct oct_matrix_view { /* the source */
    const void *data;
    oct_dtype dtype; /* OCT_F32 or OCT_BF16 */
    int64_t rows, cols, ld;
} oct_matrix_view;

typedef struct oct_mx_output { /* codes (n, k) with blocks of 32 along k; scales (n, ceil(k/32)) */
    uint8_t *codes;
    int64_t ld_codes;
    uint8_t *scales;
    int64_t ld_scales;
} oct_mx_output;

typedef struct oct_quantize_kernels {
    /* Blocks along a row: codes (R, C), scales (R, ceil(C/32)). */
    void (*mx_rows)(const oct_matrix_view *x, oct_dtype format, oct_scale_mode mode,
                    const oct_mx_output *out);
    /* Blocks along a column, written transposed: codes (C, R), scales (C, ceil(R/32)). */
    void (*mx_cols)(const oct_matrix_view *x, oct_dtype format, oct_scale_mode mode,
                    const oct_mx_output *out);
    /* Both of the above in one read of x. */
    void (*mx_both)(const oct_matrix_view *x, oct_dtype format, oct_scale_mode mode,
                    const oct_mx_output *by_rows, const oct_mx_output *by_cols);
    /* One scale per 32x32 tile (recipe mx-1-32-32): codes (R, C), scales (ceil(R/32), ceil(C/32)).
     */
    void (*mx_tiles)(const oct_matrix_view *x, oct_dtype format, oct_scale_mode mode,
                     const oct_mx_output *out);
    /* Largest magnitude of the matrix, 0 when empty; Inf when any element is NaN or Inf. */
    float (*amax)(const oct_matrix_view *x);
    /* codes (R, C) = encode(fp32(x / scale)), saturating, HiF8 rounding TA; `scale` a positive
     * normal fp32, or NaN (every code is then NaN). */
    void (*scaled)(const oct_matrix_view *x, oct_dtype format, float scale, uint8_t *codes,
                   int64_t ld_codes);
    /* Decode codes (R, C) times scale, rounded to fp32 once. */
    void (*decode_scaled)(const uint8_t *codes, int64_t rows, int64_t cols, int64_t ld_codes,
                          oct_dtype format, float scale, float *y, int64_t ld_y);
    /* fp32 <-> bf16, n contiguous elements. */
    void (*f32_to_bf16)(const float *x, int64_t n, uint16_t *y);
    void (*bf16_to_f32)(const uint16_t *x, int64_t n, float *y);
} oct_quantize_kernels;

extern const oct_quantize_kernels oct_quantize_kernels_ref, oct_quantize_kernels_avx2,
    oct_quantize_kernels_avx512;

/* The fp32 scale of per-tensor and per-channel quantization: fp32(amax / target), at least 2^-126;
 * 1 when amax is 0; NaN when amax is Inf or NaN. */
float oct_scale_from_amax(float amax, float target);

#endif
