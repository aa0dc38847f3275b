/* The driver of matrix products: cuts problems into jobs that fit the workspace, packs, multiplies.
 * See gemm.h for what is computed and gemm_kernels.h for the anatomy.
 *
 * Invariant: the cuts depend on the problem and the kernel set only, never on threads or on the
 * other problems of a call; an element's accumulation order is that of its steps of K. */
#include "kernel/gemm.h"

#include <string.h>

#include "base/checked.h"
#include "base/thread.h"
#include "kernel/gemm_kernels.h"
#include "kernel/select.h"

enum {
    MAX_JOBS = 64,       /* a round's plan lives on the stack */
    MAX_STEPS = 8,       /* of K in one job: bounds the packed bytes of a long K */
    PANELS_PER_TASK = 8, /* of packing */
    MIN_TILES = 8,       /* a job is cut finer than MC x NC to have this many, if they are large */
    ALIGNMENT = 64
};
static const size_t A_BUDGET = (size_t)8 << 20, B_BUDGET = (size_t)32 << 20; /* packed bytes */
static const size_t A_KEPT = (size_t)512 << 10; /* packed bytes that fit L2 beside all else */
static const double SERIAL_WORK = 1 << 19;      /* multiply-adds that aren't worth waking threads */
static const double TILE_WORK = 1 << 21;        /* a tile with less isn't cut further */

/* One operand's share of a job: rows first .. first+n-1 packed in panels, step by step. */
typedef struct side {
    int64_t first, n, n_panels;
    size_t stride; /* bytes from a panel to the next */
    size_t offset; /* of the first in its part of the workspace */
    int64_t tile;  /* rows of a tile: a multiple of the panel's */
    int64_t n_tiles;
    int64_t n_groups; /* of panels to pack; 0: the round before left them in place */
    bool by_tile; /* only one tile reads each panel, so the tile packs it and it stays in cache */
} side;

/* A block of one problem, with all or a part of its K. */
typedef struct job {
    const oct_gemm_problem *problem;
    const oct_gemm_kernels *kernels;
    side a, b;
    int64_t k, n_k, n_steps;
    int64_t first_pack, first_tile; /* task numbers within the round */
} job;

/* Jobs that are packed together, then multiplied together. */
typedef struct gemm_round {
    job jobs[MAX_JOBS];
    int64_t n_jobs, n_packs, n_tiles;
    double work;
    size_t a_bytes, b_bytes;
} gemm_round;

/* Where the next round begins: a problem and, if it is cut, the block of it. */
typedef struct cursor {
    int64_t problem, m, n, k;
} cursor;

typedef struct layout {
    size_t a_bytes, b_bytes, acc_bytes;
    size_t scratch_bytes, panel_bytes; /* per thread */
} layout;

typedef struct gemm_plan {
    const oct_gemm_problem *problems;
    int64_t n_problems;
    oct_gemm_mode mode;
} gemm_plan;

/* The largest block that one job takes of a problem. */
typedef struct extent {
    int64_t m, n, k;
} extent;

typedef struct gemm_run {
    const gemm_round *round;
    unsigned char *a, *b, *scratch;
    float *acc;
    size_t scratch_bytes, panel_bytes; /* per thread: first accumulators, then one panel */
} gemm_run;

static size_t align_up(size_t n) {
    return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static size_t max_size(size_t a, size_t b) {
    return a > b ? a : b;
}

static bool is_8bit(const oct_operand *x) {
    return x->dtype == OCT_E4M3 || x->dtype == OCT_E5M2 || x->dtype == OCT_HIF8;
}

static const oct_gemm_kernels *kernels_for(const oct_gemm_problem *p, oct_gemm_mode mode) {
    const oct_kernels *table = oct_kernels_current();
    if (mode == OCT_GEMM_EXACT || !table->gemm_aligned || !is_8bit(&p->a) || !is_8bit(&p->b))
        return table->gemm;
    bool skinny = p->M <= OCT_SKINNY_ROWS && p->b.layout == OCT_K_CONTIGUOUS;
    return skinny ? table->gemm_skinny : table->gemm_aligned;
}

/* Whether C itself can hold the accumulators: an fp32 sum that nothing else is added to. */
static bool accumulates_in_place(const oct_gemm_problem *p) {
    return p->c_dtype == OCT_F32 && p->accumulate == OCT_OVERWRITE && p->K > 0;
}

static bool is_cut(const oct_gemm_problem *p, const extent *e) {
    return e->m < p->M || e->n < p->N || e->k < p->K;
}

static size_t a_stride(const oct_gemm_kernels *kernels, int64_t n_k) {
    int64_t kc = oct_min_i64(n_k, kernels->k_step);
    return align_up((size_t)kc * kernels->a_bytes_per_k + kernels->a_bytes_fixed);
}

static size_t b_stride(const oct_gemm_kernels *kernels, int64_t n_k) {
    int64_t kc = oct_min_i64(n_k, kernels->k_step);
    return align_up((size_t)kc * kernels->b_bytes_per_k + kernels->b_bytes_fixed);
}

/* Rows whose panels fit the budget, at least one panel. */
static int64_t rows_within(size_t budget, size_t panel_bytes, int64_t panel_rows, int64_t rows) {
    int64_t n_panels = panel_bytes ? (int64_t)(budget / panel_bytes) : rows;
    int64_t fit = oct_max_i64(n_panels, 1);
    return fit >= oct_ceil_div(rows, panel_rows) ? rows : fit * panel_rows;
}

static extent job_extent(const oct_gemm_problem *p, const oct_gemm_kernels *kernels) {
    int64_t k = oct_min_i64(p->K, MAX_STEPS * kernels->k_step);
    size_t n_steps = (size_t)oct_ceil_div(k, kernels->k_step);
    return (extent){
        .m = rows_within(A_BUDGET, n_steps * a_stride(kernels, k), kernels->MR, p->M),
        .n = rows_within(B_BUDGET, n_steps * b_stride(kernels, k), kernels->NR, p->N),
        .k = k,
    };
}

static side make_side(int64_t first, int64_t n, int64_t panel_rows, size_t stride,
                      int64_t max_tile) {
    side s = {.first = first, .n = n, .stride = stride};
    s.n_panels = oct_ceil_div(n, panel_rows);
    s.n_groups = oct_ceil_div(s.n_panels, PANELS_PER_TASK);
    int64_t n_tiles = oct_ceil_div(s.n_panels * panel_rows, max_tile);
    s.tile = oct_ceil_div(s.n_panels, n_tiles) * panel_rows; /* even tiles */
    s.n_tiles = oct_ceil_div(n, s.tile);
    return s;
}

static void halve_tiles(side *s, int64_t panel_rows) {
    s->tile = oct_ceil_div(s->tile / panel_rows, 2) * panel_rows;
    s->n_tiles = oct_ceil_div(s->n, s->tile);
}

/* Few large tiles would leave threads idle. */
static void refine_tiles(job *j) {
    const oct_gemm_kernels *kernels = j->kernels;
    for (;;) {
        int64_t a_panels = j->a.tile / kernels->MR, b_panels = j->b.tile / kernels->NR;
        double work = (double)j->a.tile * (double)j->b.tile * (double)j->n_k;
        if (j->a.n_tiles * j->b.n_tiles >= MIN_TILES || work < TILE_WORK)
            return;
        bool halve_b = b_panels >= a_panels || j->a.n_tiles == 1;
        if (halve_b && b_panels > 1)
            halve_tiles(&j->b, kernels->NR);
        else if (a_panels > 1)
            halve_tiles(&j->a, kernels->MR);
        else
            return;
    }
}

/* A single row of tiles reads each panel of B once, a single column each of A. Nothing is packed
 * twice: the other blocks of a problem that is cut don't read these panels either. */
static void choose_packing(job *j) {
    j->b.by_tile = j->a.n_tiles == 1 && j->a.n == j->problem->M;
    j->a.by_tile = !j->b.by_tile && j->b.n_tiles == 1 && j->b.n == j->problem->N;
    if (j->a.by_tile)
        j->a.n_groups = 0;
    if (j->b.by_tile)
        j->b.n_groups = 0;
}

static job make_job(const oct_gemm_problem *p, const oct_gemm_kernels *kernels, const cursor *at,
                    const extent *e) {
    job j = {.problem = p, .kernels = kernels, .k = at->k, .n_k = oct_min_i64(e->k, p->K - at->k)};
    j.n_steps = oct_ceil_div(j.n_k, kernels->k_step);
    j.a = make_side(at->m, oct_min_i64(e->m, p->M - at->m), kernels->MR, a_stride(kernels, j.n_k),
                    kernels->MC);
    j.b = make_side(at->n, oct_min_i64(e->n, p->N - at->n), kernels->NR, b_stride(kernels, j.n_k),
                    kernels->NC);
    refine_tiles(&j);
    choose_packing(&j);
    return j;
}

static size_t packed_bytes(const side *s, int64_t n_steps) {
    return s->by_tile ? 0 : (size_t)(n_steps * s->n_panels) * s->stride;
}

static void clear_round(gemm_round *r) {
    r->n_jobs = r->n_packs = r->n_tiles = 0;
    r->work = 0;
    r->a_bytes = r->b_bytes = 0;
}

static void add_job(gemm_round *r, job j) {
    j.a.offset = r->a_bytes;
    j.b.offset = r->b_bytes;
    j.first_pack = r->n_packs;
    j.first_tile = r->n_tiles;
    r->a_bytes += packed_bytes(&j.a, j.n_steps);
    r->b_bytes += packed_bytes(&j.b, j.n_steps);
    r->n_packs += j.n_steps * (j.a.n_groups + j.b.n_groups);
    r->n_tiles += j.a.n_tiles * j.b.n_tiles;
    r->work += (double)j.a.n * (double)j.b.n * (double)(j.n_k + 1);
    r->jobs[r->n_jobs++] = j;
}

/* To the next block of a problem that is cut: K innermost (its accumulators wait), then M, then N.
 */
static void advance_within(cursor *at, const oct_gemm_problem *p, const extent *e) {
    at->k += e->k;
    if (at->k < p->K)
        return;
    at->k = 0;
    at->m += e->m;
    if (at->m < p->M)
        return;
    at->m = 0;
    at->n += e->n;
    if (at->n < p->N)
        return;
    *at = (cursor){.problem = at->problem + 1};
}

/* The last round was one block of the same problem: what it packed of A or B may serve again. */
static void reuse_panels(job *j, const gemm_round *last) {
    if (last->n_jobs != 1 || last->jobs[0].problem != j->problem || last->jobs[0].k != j->k)
        return;
    if (last->jobs[0].a.first == j->a.first)
        j->a.n_groups = 0;
    if (last->jobs[0].b.first == j->b.first)
        j->b.n_groups = 0;
}

/* As many whole problems as fit; the one at the cursor fits for sure. */
static void add_whole_problems(const gemm_plan *plan, cursor *at, gemm_round *r) {
    for (; at->problem < plan->n_problems && r->n_jobs < MAX_JOBS; at->problem++) {
        const oct_gemm_problem *p = &plan->problems[at->problem];
        if (p->M <= 0 || p->N <= 0)
            continue;
        const oct_gemm_kernels *kernels = kernels_for(p, plan->mode);
        extent e = job_extent(p, kernels);
        if (is_cut(p, &e))
            return;
        job j = make_job(p, kernels, &(cursor){0}, &e);
        bool fits = r->a_bytes + packed_bytes(&j.a, j.n_steps) <= A_BUDGET &&
                    r->b_bytes + packed_bytes(&j.b, j.n_steps) <= B_BUDGET;
        if (r->n_jobs > 0 && !fits)
            return;
        add_job(r, j);
    }
}

/* Plans the next round; false at the end. `r` holds the round before. */
static bool next_round(const gemm_plan *plan, cursor *at, gemm_round *r) {
    while (at->problem < plan->n_problems &&
           (plan->problems[at->problem].M <= 0 || plan->problems[at->problem].N <= 0))
        at->problem++;
    if (at->problem >= plan->n_problems)
        return false;
    const oct_gemm_problem *p = &plan->problems[at->problem];
    const oct_gemm_kernels *kernels = kernels_for(p, plan->mode);
    extent e = job_extent(p, kernels);
    if (!is_cut(p, &e)) {
        clear_round(r);
        add_whole_problems(plan, at, r);
        return true;
    }
    job j = make_job(p, kernels, at, &e);
    reuse_panels(&j, r);
    clear_round(r);
    add_job(r, j);
    advance_within(at, p, &e);
    return true;
}

/* Where a job's accumulators live. */
typedef enum acc_place {
    ACC_IN_C,     /* C itself */
    ACC_IN_BLOCK, /* across the rounds of a K that is cut: the whole job's, shared */
    ACC_IN_TILE,  /* across the steps of one job: the tile's, per thread */
    ACC_IN_PANEL  /* one step: one panel pair's, per thread */
} acc_place;

static acc_place place_of(const job *j) {
    if (accumulates_in_place(j->problem))
        return ACC_IN_C;
    if (j->n_k < j->problem->K)
        return ACC_IN_BLOCK;
    return j->n_steps > 1 ? ACC_IN_TILE : ACC_IN_PANEL;
}

/* Bytes of one side's panels in the largest job of a problem. A side that is cut may fill its
 * budget in a problem a little smaller. */
static size_t side_bytes(int64_t rows, int64_t job_rows, int64_t panel_rows, size_t panel_bytes,
                         size_t budget) {
    size_t n = (size_t)oct_ceil_div(job_rows, panel_rows) * panel_bytes;
    return job_rows < rows ? max_size(n, budget) : n;
}

static size_t scratch_floats(const oct_gemm_problem *p, const oct_gemm_kernels *kernels) {
    size_t panels = (size_t)(kernels->MR * kernels->NR);
    if (accumulates_in_place(p) || p->K <= kernels->k_step)
        return panels; /* in place, K = 0 still stores zeros through it */
    int64_t rows = oct_min_i64(oct_ceil_div(p->M, kernels->MR) * kernels->MR, kernels->MC);
    int64_t cols = oct_min_i64(oct_ceil_div(p->N, kernels->NR) * kernels->NR, kernels->NC);
    return (size_t)(rows * cols);
}

/* Adds up what the problems could need, without regard to how they'd share rounds, whether a panel
 * is kept, or how tiles are cut: so the layout of a problem is large enough for any that is smaller
 * in some dimensions and else alike, as gemm.h promises. */
static layout measure(const gemm_plan *plan) {
    layout l = {0};
    size_t largest_a = A_BUDGET, largest_b = B_BUDGET;
    for (int64_t i = 0; i < plan->n_problems; i++) {
        const oct_gemm_problem *p = &plan->problems[i];
        if (p->M <= 0 || p->N <= 0)
            continue;
        const oct_gemm_kernels *kernels = kernels_for(p, plan->mode);
        extent e = job_extent(p, kernels);
        size_t n_steps = (size_t)oct_ceil_div(e.k, kernels->k_step);
        size_t a = a_stride(kernels, e.k), b = b_stride(kernels, e.k);
        size_t a_bytes = side_bytes(p->M, e.m, kernels->MR, n_steps * a, A_BUDGET);
        size_t b_bytes = side_bytes(p->N, e.n, kernels->NR, n_steps * b, B_BUDGET);
        l.a_bytes += a_bytes;
        l.b_bytes += b_bytes;
        largest_a = max_size(largest_a, a_bytes);
        largest_b = max_size(largest_b, b_bytes);
        if (e.k < p->K && !accumulates_in_place(p))
            l.acc_bytes = max_size(l.acc_bytes, align_up((size_t)(e.m * e.n) * sizeof(float)));
        l.scratch_bytes =
            max_size(l.scratch_bytes, align_up(scratch_floats(p, kernels) * sizeof(float)));
        l.panel_bytes = max_size(l.panel_bytes, max_size(a, b));
    }
    /* A round holds no more than a budget, or one job. */
    l.a_bytes = l.a_bytes < largest_a ? l.a_bytes : largest_a;
    l.b_bytes = l.b_bytes < largest_b ? l.b_bytes : largest_b;
    return l;
}

static unsigned char *panel_at(unsigned char *base, const side *s, int64_t step, int64_t panel) {
    return base + s->offset + (size_t)(step * s->n_panels + panel) * s->stride;
}

static int64_t step_length(const job *j, int64_t step) {
    return oct_min_i64(j->kernels->k_step, j->n_k - step * j->kernels->k_step);
}

static void pack_a_panel(const job *j, int64_t step, int64_t panel, void *out) {
    int64_t row = panel * j->kernels->MR, n_rows = oct_min_i64(j->kernels->MR, j->a.n - row);
    j->kernels->pack_a(&j->problem->a, j->a.first + row, n_rows, j->k + step * j->kernels->k_step,
                       step_length(j, step), out);
}

static void pack_b_panel(const job *j, int64_t step, int64_t panel, void *out) {
    int64_t row = panel * j->kernels->NR, n_rows = oct_min_i64(j->kernels->NR, j->b.n - row);
    j->kernels->pack_b(&j->problem->b, j->b.first + row, n_rows, j->k + step * j->kernels->k_step,
                       step_length(j, step), out);
}

/* One group of panels of one step, of A; then the same of B. */
static void pack_a_group(const job *j, int64_t step, int64_t group, unsigned char *base) {
    int64_t end = oct_min_i64((group + 1) * PANELS_PER_TASK, j->a.n_panels);
    for (int64_t panel = group * PANELS_PER_TASK; panel < end; panel++)
        pack_a_panel(j, step, panel, panel_at(base, &j->a, step, panel));
}

static void pack_b_group(const job *j, int64_t step, int64_t group, unsigned char *base) {
    int64_t end = oct_min_i64((group + 1) * PANELS_PER_TASK, j->b.n_panels);
    for (int64_t panel = group * PANELS_PER_TASK; panel < end; panel++)
        pack_b_panel(j, step, panel, panel_at(base, &j->b, step, panel));
}

static void pack_task(void *context, int64_t task, int thread) {
    (void)thread;
    const gemm_run *run = context;
    int64_t i = run->round->n_jobs - 1;
    while (run->round->jobs[i].first_pack > task)
        i--;
    const job *j = &run->round->jobs[i];
    int64_t local = task - j->first_pack, n_a = j->n_steps * j->a.n_groups;
    if (local < n_a)
        pack_a_group(j, local / j->a.n_groups, local % j->a.n_groups, run->a);
    else
        pack_b_group(j, (local - n_a) / j->b.n_groups, (local - n_a) % j->b.n_groups, run->b);
}

/* A tile of a job and where its sums go. */
typedef struct tile {
    const job *job;
    int64_t row, col, n_rows, n_cols; /* within the job */
    float *acc;                       /* of (row, col) */
    int64_t ld_acc;
    unsigned char *panel; /* the thread's, for a side that is packed by tile */
    acc_place place;
} tile;

static void store_panel(const tile *t, int64_t row, int64_t col, int64_t n_rows, int64_t n_cols,
                        const float *acc) {
    const oct_gemm_problem *p = t->job->problem;
    if (t->place == ACC_IN_C && p->bias == NULL)
        return;
    int64_t m = t->job->a.first + row, n = t->job->b.first + col;
    size_t size = p->c_dtype == OCT_F32 ? sizeof(float) : sizeof(uint16_t);
    unsigned char *c = (unsigned char *)p->c + (size_t)(m * p->ld_c + n) * size;
    t->job->kernels->store(acc, t->ld_acc, n_rows, n_cols, c, p->c_dtype, p->ld_c, p->accumulate,
                           p->bias ? p->bias + n : NULL);
}

/* The panels at row i and column k of the tile. */
static void multiply_pair(const tile *t, int64_t step, int64_t i, int64_t k, const unsigned char *a,
                          const unsigned char *b) {
    const job *j = t->job;
    int64_t n_rows = oct_min_i64(j->kernels->MR, t->n_rows - i);
    int64_t n_cols = oct_min_i64(j->kernels->NR, t->n_cols - k);
    bool begins = j->k == 0 && step == 0;
    bool ends = j->k + j->n_k == j->problem->K && step == j->n_steps - 1;
    float *acc = t->place == ACC_IN_PANEL ? t->acc : t->acc + i * t->ld_acc + k;
    j->kernels->multiply(a, b, step_length(j, step), acc, t->ld_acc, n_rows, n_cols,
                         begins ? OCT_OVERWRITE : OCT_ADD_TO_OUTPUT);
    if (ends)
        store_panel(t, t->row + i, t->col + k, n_rows, n_cols, acc);
}

/* One panel of B, which this tile alone reads, and one step of K. */
static void pack_and_multiply(const gemm_run *run, const tile *t, int64_t step, int64_t k) {
    const job *j = t->job;
    const int64_t MR = j->kernels->MR, NR = j->kernels->NR;
    pack_b_panel(j, step, (t->col + k) / NR, t->panel);
    for (int64_t i = 0; i < t->n_rows; i += MR)
        multiply_pair(t, step, i, k, panel_at(run->a, &j->a, step, (t->row + i) / MR), t->panel);
}

/* One step of K of a tile: every pair of its panels. The outer panel stays in L1. */
static void multiply_step(const gemm_run *run, const tile *t, int64_t step) {
    const job *j = t->job;
    const int64_t MR = j->kernels->MR, NR = j->kernels->NR;
    const int64_t a_first = t->row / MR, b_first = t->col / NR;
    if (j->b.by_tile) {
        for (int64_t k = 0; k < t->n_cols; k += NR)
            pack_and_multiply(run, t, step, k);
        return;
    }
    for (int64_t i = 0; i < t->n_rows; i += MR) {
        const unsigned char *a = t->panel;
        if (j->a.by_tile)
            pack_a_panel(j, step, a_first + i / MR, t->panel);
        else
            a = panel_at(run->a, &j->a, step, a_first + i / MR);
        for (int64_t k = 0; k < t->n_cols; k += NR)
            multiply_pair(t, step, i, k, a, panel_at(run->b, &j->b, step, b_first + k / NR));
    }
}

static void multiply_tile(const gemm_run *run, const tile *t) {
    const job *j = t->job;
    /* A few rows of A stay in cache for all steps: then B, read once, is read along its rows. */
    if (j->b.by_tile && packed_bytes(&j->a, j->n_steps) <= A_KEPT) {
        for (int64_t k = 0; k < t->n_cols; k += j->kernels->NR)
            for (int64_t step = 0; step < j->n_steps; step++)
                pack_and_multiply(run, t, step, k);
        return;
    }
    for (int64_t step = 0; step < j->n_steps; step++)
        multiply_step(run, t, step);
}

/* K = 0: the sums are zeros. */
static void store_zeros(const tile *t) {
    const int64_t MR = t->job->kernels->MR, NR = t->job->kernels->NR;
    memset(t->acc, 0, (size_t)(MR * NR) * sizeof(float));
    for (int64_t i = 0; i < t->n_rows; i += MR)
        for (int64_t k = 0; k < t->n_cols; k += NR)
            store_panel(t, t->row + i, t->col + k, oct_min_i64(MR, t->n_rows - i),
                        oct_min_i64(NR, t->n_cols - k), t->acc);
}

static void place_accumulators(tile *t, const gemm_run *run, int thread) {
    const job *j = t->job;
    const oct_gemm_problem *p = j->problem;
    unsigned char *own = run->scratch + (size_t)thread * (run->scratch_bytes + run->panel_bytes);
    float *scratch = (float *)(void *)own;
    t->panel = own + run->scratch_bytes;
    switch (t->place) {
    case ACC_IN_C:
        t->ld_acc = p->ld_c;
        t->acc = (float *)p->c + (j->a.first + t->row) * p->ld_c + j->b.first + t->col;
        break;
    case ACC_IN_BLOCK:
        t->ld_acc = j->b.n;
        t->acc = run->acc + t->row * t->ld_acc + t->col;
        break;
    case ACC_IN_TILE:
        t->ld_acc = j->b.tile;
        t->acc = scratch;
        break;
    case ACC_IN_PANEL:
        t->ld_acc = j->kernels->NR;
        t->acc = scratch;
        break;
    }
}

static void tile_task(void *context, int64_t task, int thread) {
    const gemm_run *run = context;
    int64_t i = run->round->n_jobs - 1;
    while (run->round->jobs[i].first_tile > task)
        i--;
    const job *j = &run->round->jobs[i];
    int64_t local = task - j->first_tile;
    tile t = {.job = j, .place = place_of(j)};
    t.row = local % j->a.n_tiles * j->a.tile; /* neighbours share the tile of B */
    t.col = local / j->a.n_tiles * j->b.tile;
    t.n_rows = oct_min_i64(j->a.tile, j->a.n - t.row);
    t.n_cols = oct_min_i64(j->b.tile, j->b.n - t.col);
    place_accumulators(&t, run, thread);
    if (j->problem->K <= 0)
        store_zeros(&t);
    multiply_tile(run, &t);
}

static void run_tasks(int64_t n_tasks, oct_task task, gemm_run *run) {
    if (run->round->work > SERIAL_WORK) {
        oct_parallel(n_tasks, task, run);
        return;
    }
    for (int64_t i = 0; i < n_tasks; i++)
        task(run, i, 0);
}

size_t oct_gemm_workspace(const oct_gemm_problem *problems, int64_t n_problems,
                          oct_gemm_mode mode) {
    layout l = measure(&(gemm_plan){problems, n_problems, mode});
    return l.a_bytes + l.b_bytes + l.acc_bytes +
           (l.scratch_bytes + l.panel_bytes) * (size_t)oct_threads();
}

void oct_gemm(const oct_gemm_problem *problems, int64_t n_problems, oct_gemm_mode mode,
              void *workspace) {
    gemm_plan plan = {problems, n_problems, mode};
    layout l = measure(&plan);
    gemm_round r;
    clear_round(&r);
    unsigned char *base = workspace;
    gemm_run run = {.round = &r,
                    .a = base,
                    .b = base + l.a_bytes,
                    .acc = (float *)(void *)(base + l.a_bytes + l.b_bytes),
                    .scratch = base + l.a_bytes + l.b_bytes + l.acc_bytes,
                    .scratch_bytes = l.scratch_bytes,
                    .panel_bytes = l.panel_bytes};
    cursor at = {0};
    while (next_round(&plan, &at, &r)) {
        run_tasks(r.n_packs, pack_task, &run);
        run_tasks(r.n_tiles, tile_task, &run);
    }
}

bool oct_gemm_supports(oct_gemm_mode mode) {
    return mode != OCT_GEMM_ALIGNED || oct_kernels_current()->gemm_aligned != NULL;
}
