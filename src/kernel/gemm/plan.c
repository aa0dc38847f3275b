/* Planning products: see plan.h. */
#include "kernel/gemm/plan.h"

#include "base/checked.h"

/* The largest block that one job takes of a problem. */
typedef struct oct_gemm_extent {
    int64_t m, n, k;
    bool n_first; /* the next one is that of the next rows of B, not of A */
} oct_gemm_extent;

static size_t max_size(size_t a, size_t b) {
    return a > b ? a : b;
}

static bool is_cut(const oct_gemm_problem *p, const oct_gemm_extent *e) {
    return e->m < p->M || e->n < p->N || e->k < p->K;
}

static size_t a_stride(const oct_gemm_kernels *kernels, int64_t n_k) {
    int64_t kc = oct_min_i64(n_k, kernels->k_step);
    return oct_align_to_line((size_t)kc * kernels->a_bytes_per_k + kernels->a_bytes_fixed);
}

static size_t b_stride(const oct_gemm_kernels *kernels, int64_t n_k) {
    int64_t kc = oct_min_i64(n_k, kernels->k_step);
    return oct_align_to_line((size_t)kc * kernels->b_bytes_per_k + kernels->b_bytes_fixed);
}

/* Rows whose panels fit the budget, at least one panel. */
static int64_t rows_within(size_t budget, size_t panel_bytes, int64_t panel_rows, int64_t rows) {
    int64_t n_panels = panel_bytes ? (int64_t)(budget / panel_bytes) : rows;
    int64_t fit = oct_max_i64(n_panels, 1);
    return fit >= oct_ceil_div(rows, panel_rows) ? rows : fit * panel_rows;
}

/* Steps of K in one job. Where C holds the sums they may wait there between jobs, so K is cut
 * before M and N are: then each panel is packed once and read by all of the others. Kernels that
 * write C past the caches do so once, if they can. */
static int64_t steps_of_job(const oct_gemm_limits *limits, const oct_gemm_problem *p,
                            const oct_gemm_choice *choice) {
    const oct_gemm_kernels *kernels = choice->kernels;
    bool in_one = p->K <= choice->blocks->streamed_steps * kernels->k_step;
    if (!oct_gemm_in_place(p) || in_one)
        return limits->max_steps;
    size_t a = (size_t)oct_ceil_div(p->M, kernels->MR) * a_stride(kernels, p->K);
    size_t b = (size_t)oct_ceil_div(p->N, kernels->NR) * b_stride(kernels, p->K);
    int64_t fit = limits->max_steps;
    if (a > 0)
        fit = oct_min_i64(fit, (int64_t)(limits->a_packed / a));
    if (b > 0)
        fit = oct_min_i64(fit, (int64_t)(limits->b_packed / b));
    return oct_max_i64(fit, 1);
}

/* Whether B is packed in parts that are read from near memory. Several problems share rounds
 * instead; and where sums wait between jobs, a job's rows and columns decide how much memory they
 * take. */
static bool is_b_near(const oct_gemm_plan *plan, const oct_gemm_problem *p,
                      const oct_gemm_choice *choice, int64_t n_k) {
    const bool waits = n_k < p->K && !oct_gemm_in_place(p);
    return plan->n_problems == 1 && !waits && choice->blocks->b_near > 0;
}

/* The same in parts of equal size. */
static int64_t even_rows_within(size_t budget, size_t panel_bytes, int64_t panel_rows,
                                int64_t rows) {
    const int64_t n_parts = oct_ceil_div(rows, rows_within(budget, panel_bytes, panel_rows, rows));
    const int64_t n_panels = oct_ceil_div(oct_ceil_div(rows, panel_rows), n_parts);
    return n_parts == 1 ? rows : n_panels * panel_rows;
}

static oct_gemm_extent job_extent(const oct_gemm_plan *plan, const oct_gemm_problem *p,
                                  const oct_gemm_choice *choice) {
    const oct_gemm_limits *limits = plan->tuning->limits;
    const oct_gemm_kernels *kernels = choice->kernels;
    int64_t k = oct_min_i64(p->K, steps_of_job(limits, p, choice) * kernels->k_step);
    size_t n_steps = (size_t)oct_ceil_div(k, kernels->k_step);
    const size_t a = n_steps * a_stride(kernels, k), b = n_steps * b_stride(kernels, k);
    const bool near = is_b_near(plan, p, choice, k);
    return (oct_gemm_extent){
        .m = near ? even_rows_within(choice->blocks->a_beside, a, kernels->MR, p->M)
                  : rows_within(limits->a_packed, a, kernels->MR, p->M),
        .n = near ? even_rows_within(choice->blocks->b_near, b, kernels->NR, p->N)
                  : rows_within(limits->b_packed, b, kernels->NR, p->N),
        .k = k,
        .n_first = near,
    };
}

/* Cuts a side that has its rows and its panels' kind into panels and even tiles. */
static void cut_side(oct_gemm_side *s, int64_t max_tile) {
    s->n_panels = oct_ceil_div(s->n, s->panel_rows);
    s->n_groups = oct_ceil_div(s->n_panels, OCT_GEMM_PANELS_PER_TASK);
    int64_t n_tiles = oct_ceil_div(s->n_panels * s->panel_rows, max_tile);
    s->tile = oct_ceil_div(s->n_panels, n_tiles) * s->panel_rows;
    s->n_tiles = oct_ceil_div(s->n, s->tile);
}

/* Rows of a tile at most: as many as take the bytes of `panels` whole panels in a whole step. */
static int64_t tile_rows(const oct_gemm_job *j, int64_t panels, int64_t panel_rows) {
    const int64_t k_step = j->kernels->k_step;
    int64_t least = oct_max_i64(k_step / j->limits->max_wider, 1);
    int64_t kc = oct_max_i64(oct_min_i64(j->n_k, k_step), least);
    return panels * k_step / kc * panel_rows;
}

static void halve_tiles(oct_gemm_side *s) {
    s->tile = oct_ceil_div(s->tile / s->panel_rows, 2) * s->panel_rows;
    s->n_tiles = oct_ceil_div(s->n, s->tile);
}

/* Few large tiles would leave threads idle. A side that is one tile stays so: the other is packed
 * by tile then. */
static void refine_tiles(oct_gemm_job *j, int64_t min_tiles) {
    for (;;) {
        int64_t a_panels = j->a.tile / j->a.panel_rows, b_panels = j->b.tile / j->b.panel_rows;
        double work = (double)j->a.tile * (double)j->b.tile * (double)j->n_k;
        if (j->a.n_tiles * j->b.n_tiles >= min_tiles || work < j->limits->tile_work)
            return;
        bool halve_b = j->a.n_tiles == 1 || (j->b.n_tiles > 1 && b_panels >= a_panels);
        if (halve_b && b_panels > 1)
            halve_tiles(&j->b);
        else if (a_panels > 1)
            halve_tiles(&j->a);
        else
            return;
    }
}

/* Whether each tile packs the panels of B that it reads. A single row of tiles reads each once:
 * then nothing is packed twice, as the other blocks of a problem that is cut don't read these
 * panels either. More rows pack them again each, where the kernels allow it and L2 wouldn't keep
 * them. */
static bool tiles_pack_b(const oct_gemm_job *j, int64_t n) {
    const oct_gemm_kernels *kernels = j->kernels;
    if (j->a.n < j->problem->M)
        return false;
    size_t n_panels = (size_t)(j->n_steps * oct_ceil_div(n, kernels->NR));
    bool again = j->a.n_tiles <= j->blocks->b_packs && j->n_k == j->problem->K && j->n_steps > 1 &&
                 n_panels * b_stride(kernels, j->n_k) > j->limits->b_shared;
    return j->a.n_tiles == 1 || again;
}

/* Rows of B in a tile at most: where its sums wait for further steps of panels that it packs, they
 * should do so in L2. */
static int64_t max_columns(const oct_gemm_job *j, int64_t n) {
    const oct_gemm_kernels *kernels = j->kernels;
    int64_t columns = tile_rows(j, j->blocks->b_panels, kernels->NR);
    if (j->blocks->b_panels_of_many > 0 && n > columns)
        columns = tile_rows(j, j->blocks->b_panels_of_many, kernels->NR);
    if (j->blocks->b_packs == 0 || j->n_k < j->problem->K || j->n_steps == 1 || !tiles_pack_b(j, n))
        return columns;
    int64_t fit =
        (int64_t)(j->limits->acc_kept / sizeof(float)) / (j->a.tile * kernels->NR) * kernels->NR;
    return oct_min_i64(oct_max_i64(fit, kernels->NR), columns);
}

/* And a single column of tiles reads each panel of A once. */
static void choose_packing(oct_gemm_job *j) {
    j->b.by_tile = tiles_pack_b(j, j->b.n);
    j->a.by_tile = !j->b.by_tile && j->b.n_tiles == 1 && j->b.n == j->problem->N;
    if (j->a.by_tile)
        j->a.n_groups = 0;
    if (j->b.by_tile)
        j->b.n_groups = 0;
}

static oct_gemm_job make_job(const oct_gemm_plan *plan, const oct_gemm_problem *p,
                             const oct_gemm_cursor *at, const oct_gemm_extent *e) {
    const oct_gemm_choice *choice = oct_gemm_choose(plan->tuning, p, plan->mode);
    const oct_gemm_limits *limits = plan->tuning->limits;
    const oct_gemm_kernels *kernels = choice->kernels;
    oct_gemm_job j = {.problem = p,
                      .kernels = kernels,
                      .blocks = choice->blocks,
                      .limits = limits,
                      .k = at->k,
                      .n_k = oct_min_i64(e->k, p->K - at->k)};
    j.n_steps = oct_ceil_div(j.n_k, kernels->k_step);
    j.a = (oct_gemm_side){.operand = &p->a,
                          .first = at->m,
                          .n = oct_min_i64(e->m, p->M - at->m),
                          .panel_rows = kernels->MR,
                          .pack = kernels->pack_a,
                          .stride = a_stride(kernels, j.n_k)};
    j.b = (oct_gemm_side){.operand = &p->b,
                          .first = at->n,
                          .n = oct_min_i64(e->n, p->N - at->n),
                          .panel_rows = kernels->NR,
                          .pack = kernels->pack_b,
                          .stride = b_stride(kernels, j.n_k)};
    cut_side(&j.a, tile_rows(&j, choice->blocks->a_panels, kernels->MR));
    cut_side(&j.b, max_columns(&j, j.b.n));
    refine_tiles(&j, plan->n_problems > 1 && !is_cut(p, e) ? limits->min_tiles_each
                                                           : limits->min_tiles);
    choose_packing(&j);
    return j;
}

static void clear_round(oct_gemm_round *r) {
    r->n_jobs = r->n_packs = r->n_tiles = 0;
    r->work = 0;
    r->a_bytes = r->b_bytes = 0;
}

static void add_job(oct_gemm_round *r, oct_gemm_job j) {
    j.a.offset = r->a_bytes;
    j.b.offset = r->b_bytes;
    j.first_pack = r->n_packs;
    j.first_tile = r->n_tiles;
    r->a_bytes += oct_gemm_packed_bytes(&j.a, j.n_steps);
    r->b_bytes += oct_gemm_packed_bytes(&j.b, j.n_steps);
    r->n_packs += j.n_steps * (j.a.n_groups + j.b.n_groups);
    r->n_tiles += j.a.n_tiles * j.b.n_tiles;
    r->work += (double)j.a.n * (double)j.b.n * (double)(j.n_k + 1);
    r->jobs[r->n_jobs++] = j;
}

/* To the next of a dimension's parts; false, and back to the first, behind the last. */
static bool advance(int64_t *at, int64_t part, int64_t whole) {
    *at += part;
    if (*at < whole)
        return true;
    *at = 0;
    return false;
}

/* To the next block of a problem that is cut: K innermost, since its accumulators wait, or, where
 * they wait in C, outermost; then M, then N, or N, then M. */
static void advance_within(oct_gemm_cursor *at, const oct_gemm_problem *p,
                           const oct_gemm_extent *e) {
    const bool k_first = !oct_gemm_in_place(p);
    if (k_first && advance(&at->k, e->k, p->K))
        return;
    if (e->n_first && advance(&at->n, e->n, p->N))
        return;
    if (advance(&at->m, e->m, p->M) || (!e->n_first && advance(&at->n, e->n, p->N)))
        return;
    if (!k_first && advance(&at->k, e->k, p->K))
        return;
    *at = (oct_gemm_cursor){.problem = at->problem + 1};
}

/* The last round was one block of the same problem: what it packed of A or B may serve again. */
static void reuse_panels(oct_gemm_job *j, const oct_gemm_round *last) {
    if (last->n_jobs != 1 || last->jobs[0].problem != j->problem || last->jobs[0].k != j->k)
        return;
    if (last->jobs[0].a.first == j->a.first)
        j->a.n_groups = 0;
    if (last->jobs[0].b.first == j->b.first)
        j->b.n_groups = 0;
}

/* As many whole problems as fit; the one at the cursor fits for sure. */
static void add_whole_problems(const oct_gemm_plan *plan, oct_gemm_cursor *at, oct_gemm_round *r) {
    const oct_gemm_limits *limits = plan->tuning->limits;
    for (; at->problem < plan->n_problems && r->n_jobs < OCT_GEMM_MAX_JOBS; at->problem++) {
        const oct_gemm_problem *p = &plan->problems[at->problem];
        if (p->M <= 0 || p->N <= 0)
            continue;
        oct_gemm_extent e = job_extent(plan, p, oct_gemm_choose(plan->tuning, p, plan->mode));
        if (is_cut(p, &e))
            return;
        oct_gemm_job j = make_job(plan, p, &(oct_gemm_cursor){0}, &e);
        bool fits = r->a_bytes + oct_gemm_packed_bytes(&j.a, j.n_steps) <= limits->a_packed &&
                    r->b_bytes + oct_gemm_packed_bytes(&j.b, j.n_steps) <= limits->b_packed;
        if (r->n_jobs > 0 && !fits)
            return;
        add_job(r, j);
    }
}

/* Plans the next round; false at the end. `r` holds the round before. */
bool oct_gemm_next_round(const oct_gemm_plan *plan, oct_gemm_cursor *at, oct_gemm_round *r) {
    while (at->problem < plan->n_problems &&
           (plan->problems[at->problem].M <= 0 || plan->problems[at->problem].N <= 0))
        at->problem++;
    if (at->problem >= plan->n_problems)
        return false;
    const oct_gemm_problem *p = &plan->problems[at->problem];
    oct_gemm_extent e = job_extent(plan, p, oct_gemm_choose(plan->tuning, p, plan->mode));
    if (!is_cut(p, &e)) {
        clear_round(r);
        add_whole_problems(plan, at, r);
        return true;
    }
    oct_gemm_job j = make_job(plan, p, at, &e);
    reuse_panels(&j, r);
    clear_round(r);
    add_job(r, j);
    advance_within(at, p, &e);
    return true;
}

/* Bytes of one side's panels in the largest job of a problem. Where a dimension of the side is cut,
 * a problem a little smaller may fill the side's budget. */
static size_t side_bytes(int64_t job_rows, int64_t panel_rows, size_t panel_bytes, size_t budget,
                         bool side_is_cut) {
    size_t n = (size_t)oct_ceil_div(job_rows, panel_rows) * panel_bytes;
    return side_is_cut ? max_size(n, budget) : n;
}

static size_t scratch_floats(const oct_gemm_limits *limits, const oct_gemm_problem *p,
                             const oct_gemm_choice *choice) {
    const oct_gemm_kernels *kernels = choice->kernels;
    const int64_t MR = kernels->MR, NR = kernels->NR;
    const int64_t most_rows = choice->blocks->a_panels * MR * limits->max_wider;
    const int64_t most_cols = choice->blocks->b_panels * NR * limits->max_wider;
    int64_t at_once = MR * NR; /* in place, K = 0 still stores zeros through it */
    if (kernels->multiply_block)
        at_once = oct_max_i64(MR * most_cols, NR * most_rows);
    if (p->K <= kernels->k_step || (oct_gemm_in_place(p) && !kernels->multiply_block))
        return (size_t)at_once;
    int64_t rows = oct_min_i64(oct_ceil_div(p->M, MR) * MR, most_rows);
    int64_t cols = oct_min_i64(oct_ceil_div(p->N, NR) * NR, most_cols);
    return (size_t)oct_max_i64(at_once, rows * cols);
}

static oct_gemm_layout measure_problem(const oct_gemm_plan *plan, const oct_gemm_problem *p) {
    const oct_gemm_choice *choice = oct_gemm_choose(plan->tuning, p, plan->mode);
    const oct_gemm_limits *limits = plan->tuning->limits;
    const oct_gemm_kernels *kernels = choice->kernels;
    const oct_gemm_extent e = job_extent(plan, p, choice);
    const size_t n_steps = (size_t)oct_ceil_div(e.k, kernels->k_step);
    const size_t a = a_stride(kernels, e.k), b = b_stride(kernels, e.k);
    const bool k_is_cut = e.k < p->K, waits = k_is_cut && !oct_gemm_in_place(p);
    const size_t a_budget =
        max_size(limits->a_packed, choice->blocks->a_beside); /* a smaller one's, then */
    return (oct_gemm_layout){
        .a_bytes = side_bytes(e.m, kernels->MR, n_steps * a, a_budget, k_is_cut || e.m < p->M),
        .b_bytes =
            side_bytes(e.n, kernels->NR, n_steps * b, limits->b_packed, k_is_cut || e.n < p->N),
        .acc_bytes = waits ? oct_align_to_line((size_t)(e.m * e.n) * sizeof(float)) : 0,
        .scratch_bytes = oct_align_to_line(scratch_floats(limits, p, choice) * sizeof(float)),
        .panel_bytes = max_size(a, b)};
}

static oct_gemm_layout larger_of_each(oct_gemm_layout x, oct_gemm_layout y) {
    return (oct_gemm_layout){.a_bytes = max_size(x.a_bytes, y.a_bytes),
                             .b_bytes = max_size(x.b_bytes, y.b_bytes),
                             .acc_bytes = max_size(x.acc_bytes, y.acc_bytes),
                             .scratch_bytes = max_size(x.scratch_bytes, y.scratch_bytes),
                             .panel_bytes = max_size(x.panel_bytes, y.panel_bytes)};
}

/* What a problem or a smaller one needs: few rows have kernels of their own. */
static oct_gemm_layout measure_up_to(const oct_gemm_plan *plan, const oct_gemm_problem *p) {
    oct_gemm_layout l = measure_problem(plan, p);
    for (int i = 0; i < plan->tuning->n_choices; i++) {
        const int64_t few = plan->tuning->choices[i].few_rows;
        oct_gemm_problem q = *p;
        if (few == 0 || few >= p->M)
            continue;
        q.M = few;
        l = larger_of_each(l, measure_problem(plan, &q));
    }
    return l;
}

/* Adds up what the problems could need, without regard to how they'd share rounds, whether a panel
 * is kept, or how tiles are cut: so the layout of a problem is large enough for any that is smaller
 * in some dimensions and else alike, as gemm.h promises. */
oct_gemm_layout oct_gemm_measure(const oct_gemm_plan *plan) {
    oct_gemm_layout l = {0};
    size_t largest_a = plan->tuning->limits->a_packed, largest_b = plan->tuning->limits->b_packed;
    for (int64_t i = 0; i < plan->n_problems; i++) {
        const oct_gemm_problem *p = &plan->problems[i];
        if (p->M <= 0 || p->N <= 0)
            continue;
        const oct_gemm_layout one = measure_up_to(plan, p);
        const size_t a_bytes = l.a_bytes + one.a_bytes, b_bytes = l.b_bytes + one.b_bytes;
        largest_a = max_size(largest_a, one.a_bytes);
        largest_b = max_size(largest_b, one.b_bytes);
        l = larger_of_each(l, one);
        l.a_bytes = a_bytes;
        l.b_bytes = b_bytes;
    }
    /* A round holds no more than a budget, or one job. */
    l.a_bytes = l.a_bytes < largest_a ? l.a_bytes : largest_a;
    l.b_bytes = l.b_bytes < largest_b ? l.b_bytes : largest_b;
    return l;
}
