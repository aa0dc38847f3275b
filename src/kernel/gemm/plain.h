/* What sets without vectors of their own for it do element by element: where an operand's elements
 * and scales are, and how a sum becomes C. Compiled by each set with its own flags. */
#ifndef OCT_KERNEL_GEMM_PLAIN_H
#define OCT_KERNEL_GEMM_PLAIN_H

#include <octet/format.h>

#include "kernel/gemm.h"

/* The stored matrix holds (r,k) at row p, column q. */
typedef struct oct_position {
    int64_t p, q;
} oct_position;

static inline oct_position oct_operand_position(const oct_operand *x, int64_t r, int64_t k) {
    return x->layout == OCT_K_CONTIGUOUS ? (oct_position){r, k} : (oct_position){k, r};
}

/* Of element (r,k). */
static inline float oct_operand_scale(const oct_operand *x, int64_t r, int64_t k) {
    switch (x->scaling) {
    case OCT_SCALING_MX: {
        oct_position at = oct_operand_position(x, r, k);
        int64_t i = at.p / x->block_rows * x->ld_scales + at.q / OCT_MX_BLOCK;
        return oct_e8m0_decode(((const uint8_t *)x->scales)[i]);
    }
    case OCT_SCALING_TENSOR:
        return ((const float *)x->scales)[0];
    case OCT_SCALING_ROW:
        return ((const float *)x->scales)[r];
    case OCT_SCALING_NONE:
        break;
    }
    return 1;
}

/* oct_gemm_kernels.store */
static inline void oct_store_plain(const float *acc, int64_t ld_acc, int64_t n_rows, int64_t n_cols,
                                   void *c, oct_dtype c_dtype, int64_t ld_c,
                                   oct_accumulate accumulate, const float *bias,
                                   oct_dtype sum_dtype) {
    float *c_f32 = c;
    uint16_t *c_bf16 = c;
    for (int64_t i = 0; i < n_rows; i++)
        for (int64_t j = 0; j < n_cols; j++) {
            float t = acc[i * ld_acc + j];
            if (sum_dtype == OCT_BF16)
                t = oct_bf16_decode(oct_bf16_encode(t));
            int64_t at = i * ld_c + j;
            if (accumulate == OCT_ADD_TO_OUTPUT)
                t = (c_dtype == OCT_F32 ? c_f32[at] : oct_bf16_decode(c_bf16[at])) + t;
            if (bias)
                t = t + bias[j];
            if (c_dtype == OCT_F32)
                c_f32[at] = t;
            else
                c_bf16[at] = oct_bf16_encode(t);
        }
}

#endif
