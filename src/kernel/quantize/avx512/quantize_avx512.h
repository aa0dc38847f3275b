/* What the files of the AVX-512 quantizers share. */
#ifndef OCT_KERNEL_QUANTIZE_AVX512_QUANTIZE_AVX512_H
#define OCT_KERNEL_QUANTIZE_AVX512_QUANTIZE_AVX512_H

#include "kernel/quantize.h"

/* Members of oct_quantize_kernels_avx512: see oct_quantize_kernels. by_rows may be NULL. */
void oct_mx_cols_avx512(const oct_matrix_view *x, oct_dtype format, oct_scale_mode mode,
                        const oct_mx_output *out);
void oct_mx_both_avx512(const oct_matrix_view *x, oct_dtype format, oct_scale_mode mode,
                        const oct_mx_output *by_rows, const oct_mx_output *by_cols);
float oct_amax_avx512(const oct_matrix_view *x);
void oct_scaled_avx512(const oct_matrix_view *x, oct_dtype format, float scale, uint8_t *codes,
                       int64_t ld_codes);
void oct_decode_scaled_avx512(const uint8_t *codes, int64_t rows, int64_t cols, int64_t ld_codes,
                              oct_dtype format, float scale, float *y, int64_t ld_y);
void oct_f32_to_bf16_avx512(const float *x, int64_t n, uint16_t *y);
void oct_bf16_to_f32_avx512(const uint16_t *x, int64_t n, float *y);

#endif
