/* Matrices of any layout, quantized by any block of any rule, and back.
 *
 * Structs begin with their size, which the caller sets to sizeof; what it doesn't know of, a newer
 * library takes as 0. All memory is the caller's, before and after. Functions are thread-safe;
 * `threads` is how many they use, 0: oct_threads(). Results are the same bits for any number of
 * them and in any floating-point mode of the caller's. OCT_INVALID: an argument makes no sense
 * (octet/codec.h), OCT_NO_MEMORY: workspace was refused; then nothing is written. Rules, with their
 * sources: docs/numerics.md, docs/library.md. */
#ifndef OCTET_MATRIX_H
#define OCTET_MATRIX_H

#include <octet/api.h>
#include <octet/codec.h>
#include <octet/format.h>
#include <octet/quirk.h>
#include <octet/status.h>
#include <octet/tensor.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Element (r, c) is at data[r * row_stride + c * col_stride], strides in elements, of either sign.
 * What a function writes may not lie twice at one place. */
typedef struct oct_matrix {
    size_t struct_size; /* sizeof(oct_matrix) */
    oct_dtype dtype;    /* OCT_F32, OCT_BF16 or OCT_F16 */
    void *data;         /* read only where it is a source */
    int64_t rows, cols;
    int64_t row_stride, col_stride;
} oct_matrix;

typedef struct oct_quantizer {
    size_t struct_size;             /* sizeof(oct_quantizer) */
    oct_dtype format;               /* OCT_E4M3, OCT_E5M2; with fp32 scales OCT_HIF8 too */
    oct_dtype scale_dtype;          /* OCT_E8M0: powers of two; OCT_F32 */
    int64_t block_rows, block_cols; /* elements that share a scale; 0: all of that dimension */
    oct_scale_mode scale_mode;      /* of E8M0 scales */
    float target;                   /* of fp32 scales: what amax maps to; 0: the largest value */
    oct_dtype source;               /* OCT_BF16: elements are rounded to it first; OCT_F32: not */
    oct_rounding rounding;          /* saturating */
    uint32_t quirks;                /* of oct_quirk */
    uint64_t seed, counter;         /* OCT_ROUND_STOCHASTIC: element (r, c) draws by counter +
                                       r * cols + c */
} oct_quantizer;

/* Codes of (rows, cols) and their scales, those of ceil(rows / block_rows) by ceil(cols /
 * block_cols) blocks. As an operand (octet/product.h) `format` may be OCT_F32 or OCT_BF16 too; then
 * there are no scales (NULL). */
typedef struct oct_coded {
    size_t struct_size; /* sizeof(oct_coded) */
    oct_dtype format;
    int64_t rows, cols;
    void *codes;
    int64_t row_stride, col_stride;
    oct_dtype scale_dtype; /* OCT_E8M0 or OCT_F32 */
    int64_t block_rows, block_cols;
    void *scales;
    int64_t scale_row_stride, scale_col_stride;
} oct_coded;

/* How many scales a (rows, cols) matrix has, by rows and by columns of blocks. */
OCT_API oct_status oct_quantizer_scales(const oct_quantizer *quantizer, int64_t rows, int64_t cols,
                                        int64_t *scale_rows, int64_t *scale_cols);

/* x in 8 bits: writes out->codes and out->scales, whose memory and strides the caller has set, and
 * fills in the other fields. A block with a NaN or an Inf has scale 255 (fp32: NaN) and NaN codes,
 * but for quirks; an empty matrix has no blocks, one of a dimension's all has scale 1. */
OCT_API oct_status oct_matrix_quantize(const oct_quantizer *quantizer, const oct_matrix *x,
                                       oct_coded *out, int threads);

/* y = codes times scales, rounded once to fp32, then to y's dtype if that is another. */
OCT_API oct_status oct_matrix_dequantize(const oct_coded *coded, const oct_matrix *y, int threads);

/* What quantizing x cost. Elements that are NaN or Inf in x, or whose code's value isn't finite,
 * are counted and left out of the sums. */
typedef struct oct_statistics {
    size_t struct_size;   /* sizeof(oct_statistics) */
    int64_t n;            /* elements */
    int64_t n_special;    /* NaN or Inf, before or after */
    int64_t n_zero;       /* 0 before */
    int64_t n_underflow;  /* not 0 before, 0 after */
    int64_t n_saturated;  /* whose quotient by the scale rounds to more than the largest value */
    double signal, noise; /* sums of squares of x, and of x less its value in 8 bits; fp64, in a
                             fixed order */
    double sqnr_db;       /* 10 log10(signal / noise); Inf without noise, NaN without signal */
    double max_error;     /* largest magnitude of a difference */
} oct_statistics;

OCT_API oct_status oct_matrix_measure(const oct_matrix *x, const oct_coded *coded,
                                      oct_statistics *out, int threads);

#ifdef __cplusplus
}
#endif
#endif
