/* What is measured of a machine: which kernels a product runs on, and how large its blocks are. The
 * numbers stand in tuning.c, a table a level; the planner and the driver know none.
 *
 * Invariant: everything here depends on the level and the problem alone, never on threads. */
#ifndef OCT_KERNEL_GEMM_TUNING_H
#define OCT_KERNEL_GEMM_TUNING_H

#include <stdbool.h>

#include "kernel/gemm/kernels.h"

/* How many panels of A (of MR rows each) and of B (of NR) make a block. */
typedef struct oct_gemm_blocks {
    /* The largest tile of C of one task: a_panels * MR rows of an A step fit in L2 beside the
     * accumulators. For whole steps of K: where K is shorter, tiles are larger. */
    int64_t a_panels, b_panels;
    int64_t b_panels_of_many; /* b_panels where there are more tiles than one beside each other; 0:
                                 the same */
    int64_t streamed_steps;   /* of K, up to which sums wait in the thread's own memory if C is to
                                 be written once, past the caches; 0 without `multiply_block` */
    /* If packed panels of B are to be read from near memory: bytes of them in a job at most, and of
     * A's beside them. 0: as much of both as suits most kernels. */
    size_t b_near, a_beside;
    /* Where a tile packs a panel of B faster than it would read it from beyond L2: how often panels
     * are packed at most, so that tiles needn't share them. Else 0. */
    int64_t b_packs;
} oct_gemm_blocks;

/* Kernels, their blocks, and the problems that they are for. */
typedef struct oct_gemm_choice {
    const oct_gemm_kernels *kernels;
    const oct_gemm_blocks *blocks;
    bool is_fast;       /* only two 8-bit operands, in another mode than `exact` */
    bool takes_bf16;    /* two bf16 ones besides */
    int64_t few_rows;   /* only so many rows of A, and K contiguous in B; 0: any, and either */
    unsigned b_formats; /* only B of these: a sum of OCT_GEMM_FORMAT; 0: any */
} oct_gemm_choice;

#define OCT_GEMM_FORMAT(dtype) (1u << (dtype))

/* Sizes that follow from caches and from what threads cost, whatever the kernels. */
typedef struct oct_gemm_limits {
    size_t a_packed, b_packed; /* bytes that are packed at once */
    int64_t max_steps;         /* of K in one job: bounds the packed bytes of a long K */
    size_t a_kept;             /* packed bytes of A that fit L2 beside all else */
    size_t b_shared;           /* packed bytes of B that stay in L2 for the next row of tiles */
    size_t acc_kept;           /* bytes of a tile's accumulators that do, beside a step of A */
    int64_t max_wider;         /* the largest tile is so many times a block, where K is short */
    /* A job is cut finer than blocks to have this many tiles, or this many where there are other
     * problems, as long as a tile has this much work (multiply-adds). */
    int64_t min_tiles, min_tiles_each;
    double tile_work;
    double serial_work;      /* multiply-adds that aren't worth waking threads */
    int64_t streamed_output; /* elements of C that no cache would keep */
} oct_gemm_limits;

/* A level's page: the first choice that fits a problem is taken; the last is `exact` and fits all.
 */
typedef struct oct_gemm_tuning {
    const char *name; /* what decides the bits of a product: "ref", "avx512+amx", ... */
    const oct_gemm_choice *choices;
    int n_choices;
    const oct_gemm_limits *limits;
} oct_gemm_tuning;

extern const oct_gemm_tuning oct_gemm_tuning_ref, oct_gemm_tuning_avx2, oct_gemm_tuning_avx512,
    oct_gemm_tuning_vnni, oct_gemm_tuning_bf16, oct_gemm_tuning_amx;

const oct_gemm_choice *oct_gemm_choose(const oct_gemm_tuning *tuning, const oct_gemm_problem *p,
                                       oct_gemm_mode mode);

/* The kernels of `exact`. */
const oct_gemm_kernels *oct_gemm_exact_kernels(const oct_gemm_tuning *tuning);
bool oct_gemm_has_fast(const oct_gemm_tuning *tuning);

#endif
