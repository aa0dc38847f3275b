/* Matrix products: C (M,N) = [C +] A (M,K) B (N,K)^T [+ bias (N)], for operands in any of the
 * library's formats. One kernel serves forward, dgrad and wgrad, high precision and 8-bit: only
 * packing differs.
 *
 * `exact` is defined to the bit, the same in every kernel set and for any number of threads:
 *   a(i,k), b(j,k) are the operands decoded to fp32 with their scale folded in (one rounding);
 *   for each chunk of OCT_GEMM_K_CHUNK consecutive k: s = 0; s = fma(a, b, s) in order of k;
 *   chunk sums are added in order: acc = s0; acc = acc + s1; ...
 *   then acc is rounded to the problem's sum_dtype, acc = C + acc if accumulating (C widened to
 * fp32 first), acc = acc + bias, and one rounding to C's dtype. K = 0 gives acc = 0.
 *
 * `fast` is for two 8-bit operands, and two bf16 ones where there is AVX512-BF16 or AMX: integers
 * with a list of residuals where there is AVX512-VNNI, bf16 where there is AVX512-BF16 or AMX, and
 * for few rows of A (8, with AMX 16) codes that are decoded while they are multiplied
 * (gemm/tuning.c, docs/numerics.md). It meets the error bound but not the same bits, and doesn't
 * depend on the number of threads either. */
#ifndef OCT_KERNEL_GEMM_H
#define OCT_KERNEL_GEMM_H

#include <octet/tensor.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel/cpu.h"

#define OCT_GEMM_K_CHUNK 512

typedef enum oct_gemm_mode { OCT_GEMM_AUTO, OCT_GEMM_EXACT, OCT_GEMM_FAST } oct_gemm_mode;

typedef enum oct_layout {
    OCT_K_CONTIGUOUS, /* element (r,k) at data[r * ld + k] */
    OCT_K_STRIDED     /* element (r,k) at data[k * ld + r] */
} oct_layout;

typedef enum oct_scaling {
    OCT_SCALING_NONE,   /* F32 and BF16 operands */
    OCT_SCALING_MX,     /* E8M0; element (p,q) of the *stored* matrix has scale[(p / block_rows) *
                           ld_scales + q / 32] */
    OCT_SCALING_TENSOR, /* one fp32 */
    OCT_SCALING_ROW     /* one fp32 per operand row r */
} oct_scaling;

typedef struct oct_operand {
    oct_dtype dtype; /* F32, BF16, E4M3, E5M2, HIF8 */
    oct_layout layout;
    const void *data;
    int64_t ld;
    oct_scaling scaling;
    const void *scales; /* uint8_t E8M0 codes or float */
    int64_t ld_scales;  /* MX only */
    int64_t block_rows; /* MX only: 1 (blocks of 1x32, K contiguous) or 32 (tiles of 32x32, either
                           layout) */
} oct_operand;

typedef enum oct_accumulate { OCT_OVERWRITE, OCT_ADD_TO_OUTPUT } oct_accumulate;

typedef struct oct_gemm_problem {
    int64_t M, N, K; /* each >= 0 */
    oct_operand a, b;
    void *c;           /* (M,N), ld_c elements between rows; must not overlap the operands */
    oct_dtype c_dtype; /* F32 or BF16 */
    int64_t ld_c;
    oct_accumulate accumulate;
    const float *bias;   /* (N) or NULL */
    oct_dtype sum_dtype; /* what the sum is rounded to before it is added to C: F32 (not at all) or
                            BF16 */
} oct_gemm_problem;

/* Bytes of workspace (64-byte aligned) that oct_gemm needs for these problems with the current
 * thread count, or for such problems with smaller dimensions. */
size_t oct_gemm_workspace(const oct_gemm_problem *problems, int64_t n_problems, oct_gemm_mode mode);

/* Runs all problems, with threads over the tiles of all of them (so grouped products balance). Each
 * C equals, bit for bit, what the problem gives alone. Modes: AUTO takes FAST where this CPU has
 * it for both operands, else EXACT; FAST is AUTO. Called from inside an oct_parallel task it runs
 * serially in that task. */
void oct_gemm(const oct_gemm_problem *problems, int64_t n_problems, oct_gemm_mode mode,
              void *workspace);

/* Whether the current kernel set can do `mode`. */
bool oct_gemm_supports(oct_gemm_mode mode);

#endif
