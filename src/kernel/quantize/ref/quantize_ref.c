/* The quantizers in plain C: what every kernel set must give, bit for bit (quantize.h). A reader
 * checks this file against docs/numerics.md; it is not meant to be fast.
 *
 * Invariant: an element is x / 2^k by exact scaling and is encoded once. */
#include "kernel/quantize.h"

#include <math.h>

#include "base/checked.h"
#include "format/fp8.h"

static float load(const oct_matrix_view *x, int64_t r, int64_t c) {
    int64_t i = r * x->ld + c;
    return x->dtype == OCT_F32 ? ((const float *)x->data)[i]
                               : oct_bf16_decode(((const uint16_t *)x->data)[i]);
}

/* Largest magnitude of rows r .. r+n_r-1, columns c .. c+n_c-1; Inf when any is NaN or Inf. */
static float block_amax(const oct_matrix_view *x, int64_t r, int64_t n_r, int64_t c, int64_t n_c) {
    float amax = 0;
    for (int64_t i = r; i < r + n_r; i++)
        for (int64_t j = c; j < c + n_c; j++) {
            float magnitude = fabsf(load(x, i, j));
            if (!isfinite(magnitude))
                return INFINITY;
            if (magnitude > amax)
                amax = magnitude;
        }
    return amax;
}

/* 1 / 2^(scale - 127), which as an fp32 could overflow; NaN for a poisoned block. */
static double inverse_of(uint8_t scale) {
    return scale == 255 ? (double)NAN : ldexp(1, 127 - scale);
}

/* encode(x / 2^k), saturating. The product is exact in fp64. Beyond fp32's range at either end the
 * code is the largest or zero already, so the conversion to fp32 changes nothing. */
static uint8_t encode_mx(float x, double inverse, oct_dtype format) {
    if (isnan(inverse))
        return oct_fp8_code(format, NAN);
    return oct_fp8_code(format, (float)((double)x * inverse));
}

static void mx_rows(const oct_matrix_view *x, oct_dtype format, oct_scale_mode mode,
                    const oct_mx_output *out) {
    for (int64_t r = 0; r < x->rows; r++)
        for (int64_t c = 0; c < x->cols; c += OCT_MX_BLOCK) {
            int64_t n = oct_min_i64(OCT_MX_BLOCK, x->cols - c);
            uint8_t scale = oct_mx_scale_code(block_amax(x, r, 1, c, n), format, mode);
            double inverse = inverse_of(scale);
            out->scales[r * out->ld_scales + c / OCT_MX_BLOCK] = scale;
            for (int64_t j = c; j < c + n; j++)
                out->codes[r * out->ld_codes + j] = encode_mx(load(x, r, j), inverse, format);
        }
}

static void mx_cols(const oct_matrix_view *x, oct_dtype format, oct_scale_mode mode,
                    const oct_mx_output *out) {
    for (int64_t c = 0; c < x->cols; c++)
        for (int64_t r = 0; r < x->rows; r += OCT_MX_BLOCK) {
            int64_t n = oct_min_i64(OCT_MX_BLOCK, x->rows - r);
            uint8_t scale = oct_mx_scale_code(block_amax(x, r, n, c, 1), format, mode);
            double inverse = inverse_of(scale);
            out->scales[c * out->ld_scales + r / OCT_MX_BLOCK] = scale;
            for (int64_t i = r; i < r + n; i++)
                out->codes[c * out->ld_codes + i] = encode_mx(load(x, i, c), inverse, format);
        }
}

static void mx_both(const oct_matrix_view *x, oct_dtype format, oct_scale_mode mode,
                    const oct_mx_output *by_rows, const oct_mx_output *by_cols) {
    mx_rows(x, format, mode, by_rows);
    mx_cols(x, format, mode, by_cols);
}

static void mx_tiles(const oct_matrix_view *x, oct_dtype format, oct_scale_mode mode,
                     const oct_mx_output *out) {
    for (int64_t r = 0; r < x->rows; r += OCT_MX_BLOCK)
        for (int64_t c = 0; c < x->cols; c += OCT_MX_BLOCK) {
            int64_t n_r = oct_min_i64(OCT_MX_BLOCK, x->rows - r);
            int64_t n_c = oct_min_i64(OCT_MX_BLOCK, x->cols - c);
            uint8_t scale = oct_mx_scale_code(block_amax(x, r, n_r, c, n_c), format, mode);
            double inverse = inverse_of(scale);
            out->scales[r / OCT_MX_BLOCK * out->ld_scales + c / OCT_MX_BLOCK] = scale;
            for (int64_t i = r; i < r + n_r; i++)
                for (int64_t j = c; j < c + n_c; j++)
                    out->codes[i * out->ld_codes + j] = encode_mx(load(x, i, j), inverse, format);
        }
}

static float amax(const oct_matrix_view *x) {
    return block_amax(x, 0, x->rows, 0, x->cols);
}

static void scaled(const oct_matrix_view *x, oct_dtype format, float scale, uint8_t *codes,
                   int64_t ld_codes) {
    for (int64_t r = 0; r < x->rows; r++)
        for (int64_t c = 0; c < x->cols; c++)
            codes[r * ld_codes + c] = oct_fp8_code(format, load(x, r, c) / scale);
}

static void decode_scaled(const uint8_t *codes, int64_t rows, int64_t cols, int64_t ld_codes,
                          oct_dtype format, float scale, float *y, int64_t ld_y) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            y[r * ld_y + c] = oct_fp8_value(format, codes[r * ld_codes + c]) * scale;
}

static void f32_to_bf16(const float *x, int64_t n, uint16_t *y) {
    for (int64_t i = 0; i < n; i++)
        y[i] = oct_bf16_encode(x[i]);
}

static void bf16_to_f32(const uint16_t *x, int64_t n, float *y) {
    for (int64_t i = 0; i < n; i++)
        y[i] = oct_bf16_decode(x[i]);
}

const oct_quantize_kernels oct_quantize_kernels_ref = {
    .mx_rows = mx_rows,
    .mx_cols = mx_cols,
    .mx_both = mx_both,
    .mx_tiles = mx_tiles,
    .amax = amax,
    .scaled = scaled,
    .decode_scaled = decode_scaled,
    .f32_to_bf16 = f32_to_bf16,
    .bf16_to_f32 = bf16_to_f32,
};
