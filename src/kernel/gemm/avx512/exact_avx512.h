/* What the exact and the fast products of AVX-512 sets share. */
#ifndef OCT_KERNEL_GEMM_AVX512_EXACT_AVX512_H
#define OCT_KERNEL_GEMM_AVX512_EXACT_AVX512_H

#include "kernel/gemm/kernels.h"

/* Up to 32 rows of k .. k+kc-1, decoded: panel[(k' * 32) + row'], zeros beyond n_rows. 64-byte
 * aligned. */
void oct_gemm_pack_32_avx512(const oct_gemm_source *from, void *panel);

/* oct_gemm_kernels.store */
void oct_gemm_store_avx512(const float *acc, int64_t ld_acc, int64_t n_rows, int64_t n_cols,
                           void *c, oct_dtype c_dtype, int64_t ld_c, oct_accumulate accumulate,
                           const float *bias, oct_dtype sum_dtype);

#endif
