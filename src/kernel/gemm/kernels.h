/* What a kernel set brings to a matrix product; driver.c calls it. Which one is called, and with
 * what blocks, stands in tuning.c.
 *
 * The anatomy is that of BLIS: the driver packs panels of MR rows of A and NR rows of B (decoded,
 * scales folded in, k outermost inside a panel), then a microkernel multiplies one A panel by one B
 * panel for one step of K. Packed panels are shared by all threads; a step of K is at most
 * `k_step`, so a panel is stored step by step.
 *
 *   for each super-block that fits the workspace (all of K for most problems):
 *       pack, in parallel over (panels, step):  A -> a_panel[step][m / MR],  B ->
 *           b_panel[step][n / NR]
 *       multiply, in parallel over tiles of C:
 *           for each step of K, each A panel of the tile, each B panel of the tile:
 *               multiply(A panel, B panel) -> accumulators; after the last step: store -> C
 *
 * A panel that one tile alone reads isn't packed before but by that tile. A set that can multiply
 * blocks of panels does the inner loops itself; its tiles also pack panels of B that others read
 * too, if those wouldn't stay in cache.
 *
 * Invariants that make `exact` the same bits everywhere: an element's sum depends on its own rows
 * of A and B only; `multiply` starts every step from 0 and adds the finished step to the
 * accumulator once. Two kinds of panels exist: fp32 (`exact`, all sets) and whatever a `fast`
 * set packs into its bytes (int16, row scales, residuals); the driver treats both as bytes. */
#ifndef OCT_KERNEL_GEMM_KERNELS_H
#define OCT_KERNEL_GEMM_KERNELS_H

#include "kernel/gemm.h"

/* How finished sums are written: as usual, or past the caches, which won't be asked for them. */
typedef enum oct_block_output { OCT_OUTPUT_CACHED, OCT_OUTPUT_STREAMED } oct_block_output;

/* What a panel is packed from. n_rows may be 0: nothing. */
typedef struct oct_gemm_source {
    const oct_operand *operand;
    int64_t row, n_rows, k, kc;
} oct_gemm_source;

/* Some panels of A against some of B, one step of K: s as `multiply` has it for each pair, then
 *   t = s (OVERWRITE) or acc + s (ADD_TO_OUTPUT)
 *   acc = t; or, in the last step, c = t or c + t, and acc is left as it is. */
typedef struct oct_gemm_block {
    const unsigned char *a, *b; /* the first panels */
    size_t a_stride, b_stride;  /* bytes to the next */
    int64_t kc;
    int64_t n_rows, n_cols; /* the number of panels follows from them */
    float *acc;
    int64_t ld_acc;
    oct_accumulate accumulate;
    float *c; /* NULL: not the last step */
    int64_t ld_c;
    oct_accumulate c_accumulate;
    oct_block_output output; /* of c */
    /* Where there is one panel of B: `next` is packed in its place as `pack_b` does, once it isn't
     * needed any more. */
    oct_gemm_source next;
    void *next_panel; /* b */
    /* What is likely to be packed after that, or after the block, and a panel of A that is likely
     * to be multiplied then (NULL: none): both may be brought near. */
    oct_gemm_source fetch;
    const unsigned char *a_next;
} oct_gemm_block;

/* pack_a and pack_b of oct_gemm_kernels. */
typedef void oct_gemm_pack(const oct_gemm_source *from, void *panel);

typedef struct oct_gemm_kernels {
    int64_t MR, NR; /* rows of A and of B in a panel */
    int64_t k_step; /* OCT_GEMM_K_CHUNK for exact */

    /* A packed panel of kc <= k_step takes kc * bytes_per_k + bytes_fixed bytes, rounded up to 64.
     * Exact: MR * 4 (NR * 4) and 0. */
    size_t a_bytes_per_k, a_bytes_fixed;
    size_t b_bytes_per_k, b_bytes_fixed;

    /* Rows row .. row+n_rows-1 (n_rows <= MR or NR) and k .. k+kc-1 of the operand, decoded with
     * the scale folded in, to panel[(k' * MR) + row'] (exact). Rows from n_rows on are written as
     * zeros. The panel is 64-byte aligned. */
    void (*pack_a)(const oct_gemm_source *from, void *panel);
    void (*pack_b)(const oct_gemm_source *from, void *panel);

    /* s(i,j) = sum over k' < kc of a(i,k') b(j,k'), from 0, by fma in order of k'; then
     * acc[i * ld_acc + j] = s (OVERWRITE) or acc + s (ADD_TO_OUTPUT), for i < n_rows <= MR and
     * j < n_cols <= NR. Nothing else is written: acc may be C itself. kc >= 1. acc is aligned as a
     * float only. NULL: the set has `multiply_block`. */
    void (*multiply)(const void *a_panel, const void *b_panel, int64_t kc, float *acc,
                     int64_t ld_acc, int64_t n_rows, int64_t n_cols, oct_accumulate accumulate);

    /* The same for a block, whose pairs it may overlap; NULL: the driver calls `multiply`. */
    void (*multiply_block)(const oct_gemm_block *block);

    /* The end of a product: t = acc rounded to sum_dtype; t = C + t if accumulating; t = t +
     * bias[j] if bias; C = t rounded to its dtype. n_rows <= MR, n_cols <= NR; `c` and `bias` point
     * at the element for (0,0). acc may be c itself when C is F32 and not accumulating. */
    void (*store)(const float *acc, int64_t ld_acc, int64_t n_rows, int64_t n_cols, void *c,
                  oct_dtype c_dtype, int64_t ld_c, oct_accumulate accumulate, const float *bias,
                  oct_dtype sum_dtype);
} oct_gemm_kernels;

/* `exact`. */
extern const oct_gemm_kernels oct_gemm_kernels_ref, oct_gemm_kernels_avx2, oct_gemm_kernels_avx512;
/* `fast`, of 8-bit operands. */
extern const oct_gemm_kernels oct_gemm_kernels_vnni, oct_gemm_kernels_bf16, oct_gemm_kernels_amx;
/* The same for at most MR rows of A and a B whose K is contiguous; the first needs VBMI and GFNI
 * alone. */
extern const oct_gemm_kernels oct_gemm_kernels_few_rows_avx512, oct_gemm_kernels_few_rows_amx;

#endif
