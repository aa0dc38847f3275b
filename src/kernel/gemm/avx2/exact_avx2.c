/* `exact` products in AVX2 and FMA: fp32 panels of 6 rows of A and 16 rows of B.
 *
 * Invariant: every sum is one chain of fused multiply-adds in order of k, a lane a column of C, so
 * the bits are those of the scalar reference. */
#include "kernel/gemm/kernels.h"

#include <immintrin.h>
#include <math.h>
#include <octet/format.h>
#include <stdalign.h>
#include <string.h>

#include "kernel/bf16_of_codes.h"
#include "kernel/inline.h"
#include "kernel/gemm/plain.h"

enum { MR = 6, NR = 16, BLOCK = OCT_MX_BLOCK };

/* --- packing --- */

static float wide_value(const oct_operand *x, int64_t at) {
    if (x->dtype == OCT_F32)
        return ((const float *)x->data)[at];
    return oct_bf16_decode(((const uint16_t *)x->data)[at]);
}

/* Blocks of K by rows; k starts at a multiple of 32. */
OCT_INLINE void pack(const oct_gemm_source *from, float *panel, int64_t width) {
    const oct_operand *x = from->operand;
    const int64_t row = from->row, n_rows = from->n_rows, k = from->k, kc = from->kc;
    const bool coded = x->dtype != OCT_F32 && x->dtype != OCT_BF16;
    const uint8_t *codes = x->data;
    const int64_t r_stride = x->layout == OCT_K_CONTIGUOUS ? x->ld : 1;
    const int64_t k_stride = x->layout == OCT_K_CONTIGUOUS ? 1 : x->ld;
    float values[256];
    if (coded)
        oct_values_of_codes(x->dtype, values);
    if (n_rows < width)
        memset(panel, 0, (size_t)(kc * width) * sizeof *panel);
    for (int64_t i = 0; i < kc; i += BLOCK) {
        int64_t n = kc - i < BLOCK ? kc - i : BLOCK;
        for (int64_t r = 0; r < n_rows; r++) {
            int64_t at = (row + r) * r_stride + (k + i) * k_stride;
            float *to = panel + i * width + r;
            if (!coded) {
                for (int64_t j = 0; j < n; j++)
                    to[j * width] = wide_value(x, at + j * k_stride);
                continue;
            }
            float f = oct_operand_scale(x, row + r, k + i);
            for (int64_t j = 0; j < n; j++)
                to[j * width] = values[codes[at + j * k_stride]] * f;
        }
    }
}

static void pack_a(const oct_gemm_source *from, void *panel) {
    pack(from, panel, MR);
}

static void pack_b(const oct_gemm_source *from, void *panel) {
    pack(from, panel, NR);
}

/* --- multiplying --- */

/* A whole tile of `rows` (a constant) by 16. */
OCT_INLINE void tile(const float *a, const float *b, int64_t kc, float *acc, int64_t ld_acc,
                     oct_accumulate accumulate, int rows) {
    __m256 s[MR][2];
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
        s[i][0] = s[i][1] = _mm256_setzero_ps();
    for (int64_t k = 0; k < kc; k++) {
        __m256 b0 = _mm256_load_ps(b), b1 = _mm256_load_ps(b + 8);
#pragma GCC unroll 6
        for (int i = 0; i < rows; i++) {
            __m256 x = _mm256_broadcast_ss(a + i);
            s[i][0] = _mm256_fmadd_ps(x, b0, s[i][0]);
            s[i][1] = _mm256_fmadd_ps(x, b1, s[i][1]);
        }
        a += MR;
        b += NR;
    }
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) {
        float *to = acc + i * ld_acc;
        if (accumulate == OCT_ADD_TO_OUTPUT) {
            s[i][0] = _mm256_add_ps(_mm256_loadu_ps(to), s[i][0]);
            s[i][1] = _mm256_add_ps(_mm256_loadu_ps(to + 8), s[i][1]);
        }
        _mm256_storeu_ps(to, s[i][0]);
        _mm256_storeu_ps(to + 8, s[i][1]);
    }
}

static void multiply_rows(const float *a, const float *b, int64_t kc, float *acc, int64_t ld_acc,
                          int64_t n_rows, oct_accumulate accumulate) {
    switch (n_rows) {
    case 1:
        tile(a, b, kc, acc, ld_acc, accumulate, 1);
        break;
    case 2:
        tile(a, b, kc, acc, ld_acc, accumulate, 2);
        break;
    case 3:
        tile(a, b, kc, acc, ld_acc, accumulate, 3);
        break;
    case 4:
        tile(a, b, kc, acc, ld_acc, accumulate, 4);
        break;
    case 5:
        tile(a, b, kc, acc, ld_acc, accumulate, 5);
        break;
    default:
        tile(a, b, kc, acc, ld_acc, accumulate, 6);
        break;
    }
}

static void multiply(const void *a_panel, const void *b_panel, int64_t kc, float *acc,
                     int64_t ld_acc, int64_t n_rows, int64_t n_cols, oct_accumulate accumulate) {
    if (n_cols == NR) {
        multiply_rows(a_panel, b_panel, kc, acc, ld_acc, n_rows, accumulate);
        return;
    }
    alignas(32) float edge[MR][NR];
    multiply_rows(a_panel, b_panel, kc, edge[0], NR, n_rows, OCT_OVERWRITE);
    for (int64_t i = 0; i < n_rows; i++)
        for (int64_t j = 0; j < n_cols; j++) {
            float *to = acc + i * ld_acc + j;
            *to = accumulate == OCT_ADD_TO_OUTPUT ? *to + edge[i][j] : edge[i][j];
        }
}

/* --- storing --- */

static void store(const float *acc, int64_t ld_acc, int64_t n_rows, int64_t n_cols, void *c,
                  oct_dtype c_dtype, int64_t ld_c, oct_accumulate accumulate, const float *bias,
                  oct_dtype sum_dtype) {
    oct_store_plain(acc, ld_acc, n_rows, n_cols, c, c_dtype, ld_c, accumulate, bias, sum_dtype);
}

const oct_gemm_kernels oct_gemm_kernels_avx2 = {
    .MR = MR,
    .NR = NR,
    .k_step = OCT_GEMM_K_CHUNK,
    .a_bytes_per_k = MR * sizeof(float),
    .b_bytes_per_k = NR * sizeof(float),
    .pack_a = pack_a,
    .pack_b = pack_b,
    .multiply = multiply,
    .store = store,
};
