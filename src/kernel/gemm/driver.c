/* The driver of matrix products: packs and multiplies, job by job as plan.h cuts them. See
 * gemm.h for what is computed and kernels.h for the anatomy.
 *
 * Invariant: an element's accumulation order is that of its steps of K, whatever the tiles. */
#include "kernel/gemm.h"

#include <string.h>

#include "base/checked.h"
#include "base/thread.h"
#include "kernel/gemm/plan.h"
#include "kernel/select.h"

typedef struct gemm_run {
    const oct_gemm_round *round;
    double serial_work; /* multiply-adds up to which the caller does all */
    unsigned char *a, *b, *scratch;
    float *acc;
    size_t scratch_bytes, panel_bytes; /* per thread: first accumulators, then one panel */
} gemm_run;

/* Where a job's accumulators live. */
typedef enum acc_place {
    ACC_IN_C,     /* C itself */
    ACC_IN_BLOCK, /* across the rounds of a K that is cut: the whole job's, shared */
    ACC_IN_TILE,  /* across the steps of one job: the tile's, per thread */
    ACC_IN_PANEL  /* those of what one call of a kernel gives, per thread: K in one step, or all
                     steps  of a strip before the next strip */
} acc_place;

/* A few rows of A stay in cache for all steps: then B, which is read once, is read along its rows.
 */
static bool keeps_a(const oct_gemm_job *j) {
    int64_t n_panels = oct_min_i64(j->a.tile / j->kernels->MR, j->a.n_panels);
    return j->b.by_tile && (size_t)(n_panels * j->n_steps) * j->a.stride <= j->limits->a_kept;
}

/* C that no cache would keep, and that nothing is added to, is written once, past them. */
static bool is_streamed(const oct_gemm_job *j) {
    const oct_gemm_problem *p = j->problem;
    return j->kernels->multiply_block && p->accumulate == OCT_OVERWRITE &&
           p->sum_dtype == OCT_F32 && p->M * p->N >= j->limits->streamed_output;
}

static acc_place place_of(const oct_gemm_job *j) {
    bool k_is_cut = j->n_k < j->problem->K;
    if (oct_gemm_in_place(j->problem) && (k_is_cut || !is_streamed(j)))
        return ACC_IN_C;
    if (k_is_cut)
        return ACC_IN_BLOCK;
    if (j->kernels->multiply_block && keeps_a(j))
        return ACC_IN_PANEL;
    return j->n_steps > 1 ? ACC_IN_TILE : ACC_IN_PANEL;
}

static unsigned char *panel_at(unsigned char *base, const oct_gemm_side *s, int64_t step,
                               int64_t panel) {
    return base + s->offset + (size_t)(step * s->n_panels + panel) * s->stride;
}

static int64_t step_length(const oct_gemm_job *j, int64_t step) {
    return oct_min_i64(j->kernels->k_step, j->n_k - step * j->kernels->k_step);
}

/* What a panel of a side is packed from; nothing, behind the last. */
static oct_gemm_source source_of(const oct_gemm_job *j, const oct_gemm_side *s, int64_t step,
                                 int64_t panel) {
    const int64_t row = panel * s->panel_rows, n_rows = oct_min_i64(s->panel_rows, s->n - row);
    return (oct_gemm_source){.operand = s->operand,
                             .row = s->first + row,
                             .n_rows = oct_max_i64(n_rows, 0),
                             .k = j->k + step * j->kernels->k_step,
                             .kc = step_length(j, step)};
}

static void pack_panel(const oct_gemm_job *j, const oct_gemm_side *s, int64_t step, int64_t panel,
                       void *out) {
    const oct_gemm_source from = source_of(j, s, step, panel);
    s->pack(&from, out);
}

/* A group of panels of one step: those of A first, then those of B. */
static void pack_task(void *context, int64_t task, int thread) {
    (void)thread;
    const gemm_run *run = context;
    int64_t i = run->round->n_jobs - 1;
    while (run->round->jobs[i].first_pack > task)
        i--;
    const oct_gemm_job *j = &run->round->jobs[i];
    const int64_t local = task - j->first_pack, n_a = j->n_steps * j->a.n_groups;
    const oct_gemm_side *s = local < n_a ? &j->a : &j->b;
    unsigned char *base = local < n_a ? run->a : run->b;
    const int64_t of_side = local < n_a ? local : local - n_a;
    const int64_t step = of_side / s->n_groups;
    const int64_t first = of_side % s->n_groups * OCT_GEMM_PANELS_PER_TASK;
    const int64_t end = oct_min_i64(first + OCT_GEMM_PANELS_PER_TASK, s->n_panels);
    for (int64_t panel = first; panel < end; panel++)
        pack_panel(j, s, step, panel, panel_at(base, s, step, panel));
}

/* A tile of a job and where its sums go. */
typedef struct tile {
    const oct_gemm_job *job;
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
                           p->bias ? p->bias + n : NULL, p->sum_dtype);
}

/* Part of a tile: panels of A from row i on, panels of B from column k on. Where the sums have no
 * place but the thread's own, one of the two is a single panel. */
typedef struct strip {
    int64_t i, n_rows, k, n_cols; /* within the tile */
    const unsigned char *a, *b;   /* the first panels */
    oct_gemm_source next, fetch;  /* see oct_gemm_block */
    void *next_panel;
    const unsigned char *a_next;
} strip;

static oct_accumulate accumulate_at(const oct_gemm_job *j, int64_t step) {
    return j->k == 0 && step == 0 ? OCT_OVERWRITE : OCT_ADD_TO_OUTPUT;
}

static bool is_last(const oct_gemm_job *j, int64_t step) {
    return j->k + j->n_k == j->problem->K && step == j->n_steps - 1;
}

static void store_strip(const tile *t, const strip *s, const float *acc) {
    const int64_t MR = t->job->kernels->MR, NR = t->job->kernels->NR;
    for (int64_t i = 0; i < s->n_rows; i += MR)
        for (int64_t k = 0; k < s->n_cols; k += NR)
            store_panel(t, t->row + s->i + i, t->col + s->k + k, oct_min_i64(MR, s->n_rows - i),
                        oct_min_i64(NR, s->n_cols - k), acc + i * t->ld_acc + k);
}

/* What a pair's end will read or write of C is fetched while the pair is multiplied. */
static void prefetch_output(const tile *t, const strip *s) {
    const oct_gemm_problem *p = t->job->problem;
    const size_t size = p->c_dtype == OCT_F32 ? sizeof(float) : sizeof(uint16_t);
    const int64_t row = t->job->a.first + t->row + s->i, col = t->job->b.first + t->col + s->k;
    const char *c = (const char *)p->c + (size_t)(row * p->ld_c + col) * size;
    for (int64_t i = 0; i < s->n_rows; i++, c += (size_t)p->ld_c * size)
        for (size_t byte = 0; byte < (size_t)s->n_cols * size; byte += 64)
            __builtin_prefetch(c + byte, 1, 2);
}

/* One pair of panels after the other. */
static void multiply_pairs(const tile *t, int64_t step, const strip *s) {
    const oct_gemm_job *j = t->job;
    const oct_gemm_kernels *kernels = j->kernels;
    for (int64_t i = 0; i < s->n_rows; i += kernels->MR)
        for (int64_t k = 0; k < s->n_cols; k += kernels->NR) {
            strip pair = {.i = s->i + i,
                          .n_rows = oct_min_i64(kernels->MR, s->n_rows - i),
                          .k = s->k + k,
                          .n_cols = oct_min_i64(kernels->NR, s->n_cols - k)};
            float *acc = t->place == ACC_IN_PANEL ? t->acc : t->acc + pair.i * t->ld_acc + pair.k;
            if (is_last(j, step) && t->place != ACC_IN_C)
                prefetch_output(t, &pair);
            kernels->multiply(s->a + (size_t)(i / kernels->MR) * j->a.stride,
                              s->b + (size_t)(k / kernels->NR) * j->b.stride, step_length(j, step),
                              acc, t->ld_acc, pair.n_rows, pair.n_cols, accumulate_at(j, step));
            if (is_last(j, step))
                store_strip(t, &pair, acc);
        }
}

static void multiply_strip(const tile *t, int64_t step, const strip *s) {
    const oct_gemm_job *j = t->job;
    const oct_gemm_problem *p = j->problem;
    if (!j->kernels->multiply_block) {
        multiply_pairs(t, step, s);
        return;
    }
    oct_gemm_block block = {.a = s->a,
                            .b = s->b,
                            .a_stride = j->a.stride,
                            .b_stride = j->b.stride,
                            .kc = step_length(j, step),
                            .n_rows = s->n_rows,
                            .n_cols = s->n_cols,
                            .acc = t->place == ACC_IN_PANEL ? t->acc
                                                            : t->acc + s->i * t->ld_acc + s->k,
                            .ld_acc = t->ld_acc,
                            .accumulate = accumulate_at(j, step),
                            .next = s->next,
                            .fetch = s->fetch,
                            .next_panel = s->next_panel,
                            .a_next = s->a_next};
    bool direct = is_last(j, step) && p->c_dtype == OCT_F32 && !p->bias && p->sum_dtype == OCT_F32;
    if (direct) {
        int64_t row = j->a.first + t->row + s->i, col = j->b.first + t->col + s->k;
        block.c = (float *)p->c + row * p->ld_c + col;
        block.ld_c = p->ld_c;
        block.c_accumulate = p->accumulate;
        block.output = is_streamed(j) ? OCT_OUTPUT_STREAMED : OCT_OUTPUT_CACHED;
    }
    j->kernels->multiply_block(&block);
    if (is_last(j, step) && !direct)
        store_strip(t, s, block.acc);
}

/* A panel of B of a tile that packs it itself: column k, a step of K. */
typedef struct place {
    int64_t step, k;
} place;

/* To the next panel; false at the end. A few rows of A stay in cache for all steps: then B, which
 * is read once, is read along its rows. */
static bool advance_panel(const tile *t, place *at) {
    const int64_t NR = t->job->kernels->NR, n_steps = t->job->n_steps;
    if (keeps_a(t->job)) {
        if (++at->step < n_steps)
            return true;
        at->step = 0;
        at->k += NR;
        return at->k < t->n_cols;
    }
    at->k += NR;
    if (at->k < t->n_cols)
        return true;
    at->k = 0;
    return ++at->step < n_steps;
}

static oct_gemm_source source_at(const tile *t, const place *at) {
    const oct_gemm_side *b = &t->job->b;
    return source_of(t->job, b, at->step, (t->col + at->k) / b->panel_rows);
}

/* The first panel of B that the thread's next tile is likely to read. */
static oct_gemm_source first_of_next_tile(const tile *t) {
    const bool same = t->row + t->n_rows < t->job->a.n;
    if (!same && t->col + t->n_cols >= t->job->b.n)
        return (oct_gemm_source){0};
    return source_at(t, &(place){.k = same ? 0 : t->n_cols});
}

/* A tile that packs its panels of B: packs and multiplies one after the other, or, where the
 * kernels can, packs the next one while it multiplies. */
static void multiply_alone(const gemm_run *run, const tile *t) {
    const oct_gemm_job *j = t->job;
    const int64_t MR = j->kernels->MR, NR = j->kernels->NR;
    const bool ahead = j->kernels->multiply_block != NULL;
    place at = {0}, next = {0}, later;
    bool more = j->n_steps > 0, packed = false;
    for (; more; at = next) {
        if (!packed)
            pack_panel(j, &j->b, at.step, (t->col + at.k) / NR, t->panel);
        strip s = {.n_rows = t->n_rows,
                   .k = at.k,
                   .n_cols = oct_min_i64(NR, t->n_cols - at.k),
                   .a = panel_at(run->a, &j->a, at.step, t->row / MR),
                   .b = t->panel};
        more = advance_panel(t, &next);
        packed = ahead && more;
        if (packed) {
            s.next = source_at(t, &next);
            s.next_panel = t->panel;
            later = next;
            if (advance_panel(t, &later))
                s.fetch = source_at(t, &later);
        } else {
            s.fetch = first_of_next_tile(t);
        }
        multiply_strip(t, at.step, &s);
    }
}

/* One step of K of a tile: every pair of its panels. The outer panel stays in L1. */
static void multiply_step(const gemm_run *run, const tile *t, int64_t step) {
    const oct_gemm_job *j = t->job;
    const int64_t MR = j->kernels->MR, NR = j->kernels->NR;
    const int64_t a_first = t->row / MR, b_first = t->col / NR;
    for (int64_t i = 0; i < t->n_rows; i += MR) {
        const int64_t panel = a_first + i / MR;
        strip s = {.i = i,
                   .n_rows = oct_min_i64(MR, t->n_rows - i),
                   .n_cols = t->n_cols,
                   .b = panel_at(run->b, &j->b, step, b_first)};
        if (j->a.by_tile) {
            pack_panel(j, &j->a, step, panel, t->panel);
            s.a = t->panel;
            s.fetch = source_of(j, &j->a, step, panel + 1);
        } else {
            s.a = panel_at(run->a, &j->a, step, panel);
            if (panel + 1 < j->a.n_panels)
                s.a_next = panel_at(run->a, &j->a, step, panel + 1);
        }
        multiply_strip(t, step, &s);
    }
}

static void multiply_tile(const gemm_run *run, const tile *t) {
    if (t->job->b.by_tile) {
        multiply_alone(run, t);
        return;
    }
    for (int64_t step = 0; step < t->job->n_steps; step++)
        multiply_step(run, t, step);
}

/* K = 0: the sums are zeros. */
static void store_zeros(tile *t) {
    const int64_t MR = t->job->kernels->MR, NR = t->job->kernels->NR;
    t->ld_acc = NR;
    memset(t->acc, 0, (size_t)(MR * NR) * sizeof(float));
    for (int64_t i = 0; i < t->n_rows; i += MR)
        for (int64_t k = 0; k < t->n_cols; k += NR)
            store_panel(t, t->row + i, t->col + k, oct_min_i64(MR, t->n_rows - i),
                        oct_min_i64(NR, t->n_cols - k), t->acc);
}

static void place_accumulators(tile *t, const gemm_run *run, int thread) {
    const oct_gemm_job *j = t->job;
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
        t->ld_acc = j->kernels->multiply_block && !j->b.by_tile ? j->b.tile : j->kernels->NR;
        t->acc = scratch;
        break;
    }
}

static void tile_task(void *context, int64_t task, int thread) {
    const gemm_run *run = context;
    int64_t i = run->round->n_jobs - 1;
    while (run->round->jobs[i].first_tile > task)
        i--;
    const oct_gemm_job *j = &run->round->jobs[i];
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
    if (run->round->work > run->serial_work) {
        oct_parallel(n_tasks, task, run);
        return;
    }
    for (int64_t i = 0; i < n_tasks; i++)
        task(run, i, 0);
}

size_t oct_gemm_workspace(const oct_gemm_problem *problems, int64_t n_problems,
                          oct_gemm_mode mode) {
    oct_gemm_layout l =
        oct_gemm_measure(&(oct_gemm_plan){problems, n_problems, mode, oct_kernels_current()->gemm});
    return l.a_bytes + l.b_bytes + l.acc_bytes +
           (l.scratch_bytes + l.panel_bytes) * (size_t)oct_threads();
}

void oct_gemm(const oct_gemm_problem *problems, int64_t n_problems, oct_gemm_mode mode,
              void *workspace) {
    oct_gemm_plan plan = {problems, n_problems, mode, oct_kernels_current()->gemm};
    oct_gemm_layout l = oct_gemm_measure(&plan);
    oct_gemm_round r;
    r.n_jobs = 0;
    unsigned char *base = workspace;
    gemm_run run = {.round = &r,
                    .serial_work = plan.tuning->limits->serial_work,
                    .a = base,
                    .b = base + l.a_bytes,
                    .acc = (float *)(void *)(base + l.a_bytes + l.b_bytes),
                    .scratch = base + l.a_bytes + l.b_bytes + l.acc_bytes,
                    .scratch_bytes = l.scratch_bytes,
                    .panel_bytes = l.panel_bytes};
    oct_gemm_cursor at = {0};
    while (oct_gemm_next_round(&plan, &at, &r)) {
        run_tasks(r.n_packs, pack_task, &run);
        run_tasks(r.n_tiles, tile_task, &run);
    }
}

bool oct_gemm_supports(oct_gemm_mode mode) {
    return mode != OCT_GEMM_FAST || oct_gemm_has_fast(oct_kernels_current()->gemm);
}
