/* How the driver cuts products into jobs that fit the workspace, and how large that is.
 *
 * Invariant: blocks depend on the problem and the level's tuning only, their tiles also on whether
 * a call has other problems; nothing on threads. */
#ifndef OCT_KERNEL_GEMM_PLAN_H
#define OCT_KERNEL_GEMM_PLAN_H

#include <stdbool.h>

#include "kernel/gemm/tuning.h"

enum {
    OCT_GEMM_MAX_JOBS = 64,      /* a round's plan lives on the stack */
    OCT_GEMM_PANELS_PER_TASK = 8 /* of packing */
};

/* One operand's share of a job: rows first .. first+n-1 packed in panels, step by step. */
typedef struct oct_gemm_side {
    const oct_operand *operand;
    int64_t panel_rows;
    oct_gemm_pack *pack;
    int64_t first, n, n_panels;
    size_t stride; /* bytes from a panel to the next */
    size_t offset; /* of the first in its part of the workspace */
    int64_t tile;  /* rows of a tile: a multiple of the panel's */
    int64_t n_tiles;
    int64_t n_groups; /* of panels to pack; 0: the round before left them in place */
    bool by_tile;     /* each tile packs the panels that it reads, and they stay in cache */
} oct_gemm_side;

/* A block of one problem, with all or a part of its K. */
typedef struct oct_gemm_job {
    const oct_gemm_problem *problem;
    const oct_gemm_kernels *kernels;
    const oct_gemm_blocks *blocks;
    const oct_gemm_limits *limits;
    oct_gemm_side a, b;
    int64_t k, n_k, n_steps;
    int64_t first_pack, first_tile; /* task numbers within the round */
} oct_gemm_job;

/* Jobs that are packed together, then multiplied together. */
typedef struct oct_gemm_round {
    oct_gemm_job jobs[OCT_GEMM_MAX_JOBS];
    int64_t n_jobs, n_packs, n_tiles;
    double work;
    size_t a_bytes, b_bytes;
} oct_gemm_round;

/* Where the next round begins: a problem and, if it is cut, the block of it. */
typedef struct oct_gemm_cursor {
    int64_t problem, m, n, k;
} oct_gemm_cursor;

typedef struct oct_gemm_layout {
    size_t a_bytes, b_bytes, acc_bytes;
    size_t scratch_bytes, panel_bytes; /* per thread */
} oct_gemm_layout;

typedef struct oct_gemm_plan {
    const oct_gemm_problem *problems;
    int64_t n_problems;
    oct_gemm_mode mode;
    const oct_gemm_tuning *tuning;
} oct_gemm_plan;

/* Whether C itself can hold the accumulators: an fp32 sum that nothing else is added to. */
static inline bool oct_gemm_in_place(const oct_gemm_problem *p) {
    return p->c_dtype == OCT_F32 && p->accumulate == OCT_OVERWRITE && p->K > 0 &&
           p->sum_dtype == OCT_F32;
}

static inline size_t oct_gemm_packed_bytes(const oct_gemm_side *s, int64_t n_steps) {
    return s->by_tile ? 0 : (size_t)(n_steps * s->n_panels) * s->stride;
}

/* Bytes that the parts of the workspace need. */
oct_gemm_layout oct_gemm_measure(const oct_gemm_plan *plan);

/* Plans the next round; false at the end. `r` holds the round before; n_jobs = 0 before the first.
 */
bool oct_gemm_next_round(const oct_gemm_plan *plan, oct_gemm_cursor *at, oct_gemm_round *r);

#endif
