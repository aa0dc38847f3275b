/* Attention forward: see attention.h. One task is one block of queries of one head. */
#include "op/attention.h"

#include <math.h>
#include <string.h>

#include "op/attention_blocks.h"

/* The rows of queries of one task. For one new token a sequence they are the heads that share a
 * key/value head (keys are then packed once for all of them), otherwise neighbouring queries. */
typedef struct query_rows {
    int64_t b, g;            /* sequence and key/value head */
    int64_t n;               /* rows */
    int64_t q_at, ld_q;      /* elements */
    int64_t o_at, ld_o;      /* elements */
    int64_t lse_at;          /* of the first row; rows are neighbours */
    int64_t seen, seen_step; /* keys that row r sees: seen + r * seen_step */
} query_rows;

typedef struct forward_slice {
    float *scores; /* (n, n_keys) */
    float *acc;    /* (n, v_dim) */
    float *max, *sum;
    void *gemm;
} forward_slice;

bool oct_attention_tensor_fits(const oct_tensor *x, int64_t rows, int64_t heads, int64_t dim) {
    int64_t n;
    return oct_op_is_dense(x) && oct_mul_i64(heads, dim, &n) && oct_mul_i64(n, rows, &n) &&
           oct_tensor_elements(x) == n;
}

/* Whether x has the rows that B sequences `stride` apart need, of heads * dim elements. */
static bool cache_fits(const oct_attention_shape *s, const oct_tensor *x, int64_t dim) {
    int64_t rows, n;
    if (s->B == 0)
        return oct_op_is_dense(x);
    return oct_op_is_dense(x) && oct_mul_i64(s->B - 1, s->kv_stride, &rows) &&
           !__builtin_add_overflow(rows, s->past + s->S, &rows) &&
           oct_mul_i64(s->n_kv_heads, dim, &n) && oct_mul_i64(n, rows, &n) &&
           oct_tensor_elements(x) >= n;
}

/* Whether every query sees its own key, and none an earlier document than the query before. */
static bool documents_fit(const oct_attention_shape *s) {
    for (int64_t i = 0; s->first_keys && i < s->B * s->S; i++) {
        int64_t q = i % s->S, first = s->first_keys[i];
        if (first < (q > 0 ? s->first_keys[i - 1] : 0) || first > s->past + q)
            return false;
    }
    return true;
}

bool oct_attention_shape_fits(oct_attention_shape *s, const oct_tensor *q, const oct_tensor *k,
                              const oct_tensor *v) {
    int64_t n_keys;
    if (s->B < 0 || s->S < 0 || s->past < 0 || s->window < 0 || s->n_heads <= 0 ||
        s->n_kv_heads <= 0 || s->n_heads % s->n_kv_heads != 0 || s->qk_dim <= 0 || s->v_dim <= 0 ||
        __builtin_add_overflow(s->past, s->S, &n_keys))
        return false;
    if (s->kv_stride == 0)
        s->kv_stride = n_keys;
    int64_t rows;
    return s->kv_stride >= n_keys && q->dtype == k->dtype && q->dtype == v->dtype &&
           oct_mul_i64(s->B, s->S, &rows) &&
           oct_attention_tensor_fits(q, rows, s->n_heads, s->qk_dim) &&
           cache_fits(s, k, s->qk_dim) && cache_fits(s, v, s->v_dim) && documents_fit(s);
}

static bool stacks_heads(const oct_attention_run *run) {
    return run->s.S == 1;
}

static int64_t rows_per_head(const oct_attention_run *run) {
    return stacks_heads(run) ? run->group : run->s.S;
}

static int64_t count_tasks(const oct_attention_run *run) {
    int64_t heads = stacks_heads(run) ? run->s.n_kv_heads : run->s.n_heads;
    return run->s.B * heads * oct_ceil_div(rows_per_head(run), OCT_QUERY_BLOCK);
}

static query_rows rows_of_task(const oct_attention_run *run, int64_t task) {
    const oct_attention_shape *s = &run->s;
    const int64_t H = s->n_heads;
    int64_t heads = stacks_heads(run) ? s->n_kv_heads : H;
    int64_t first = task / (s->B * heads) * OCT_QUERY_BLOCK, head = task % (s->B * heads);
    query_rows r = {.b = head / heads,
                    .n = oct_min_i64(OCT_QUERY_BLOCK, rows_per_head(run) - first)};
    if (stacks_heads(run)) {
        r.g = head % heads;
        int64_t h = r.g * run->group + first;
        r.q_at = (r.b * H + h) * s->qk_dim;
        r.ld_q = s->qk_dim;
        r.o_at = (r.b * H + h) * s->v_dim;
        r.ld_o = s->v_dim;
        r.lse_at = r.b * H + h;
        r.seen = s->past + 1;
        return r;
    }
    int64_t h = head % heads, row = r.b * s->S + first;
    r.g = h / run->group;
    r.q_at = (row * H + h) * s->qk_dim;
    r.ld_q = H * s->qk_dim;
    r.o_at = (row * H + h) * s->v_dim;
    r.ld_o = H * s->v_dim;
    r.lse_at = (r.b * H + h) * s->S + first;
    r.seen = s->past + first + 1;
    r.seen_step = 1;
    return r;
}

/* scores (n, n_keys) = q k^T over the keys from k0 on. */
static oct_gemm_problem scores_problem(const oct_attention_run *run, const query_rows *r,
                                       int64_t k0, int64_t n_keys, float *scores) {
    const oct_attention_shape *s = &run->s;
    int64_t ld_k = s->n_kv_heads * s->qk_dim;
    int64_t k_at = (r->b * s->kv_stride + k0) * ld_k + r->g * s->qk_dim;
    return (oct_gemm_problem){.M = r->n,
                              .N = n_keys,
                              .K = s->qk_dim,
                              .a = oct_attention_rows(oct_source_at(run->q, r->q_at), r->ld_q),
                              .b = oct_attention_rows(oct_source_at(run->k, k_at), ld_k),
                              .c = scores,
                              .c_dtype = OCT_F32,
                              .ld_c = n_keys};
}

/* acc (n, v_dim) = [acc +] p v. */
static oct_gemm_problem values_problem(const oct_attention_run *run, const query_rows *r,
                                       int64_t k0, int64_t n_keys, const float *p, float *acc,
                                       oct_accumulate accumulate) {
    const oct_attention_shape *s = &run->s;
    int64_t ld_v = s->n_kv_heads * s->v_dim;
    int64_t v_at = (r->b * s->kv_stride + k0) * ld_v + r->g * s->v_dim;
    return (oct_gemm_problem){.M = r->n,
                              .N = s->v_dim,
                              .K = n_keys,
                              .a = oct_attention_rows(oct_attention_f32(p), n_keys),
                              .b = oct_attention_cols(oct_source_at(run->v, v_at), ld_v),
                              .c = acc,
                              .c_dtype = OCT_F32,
                              .ld_c = s->v_dim,
                              .accumulate = accumulate};
}

static size_t gemm_bytes(const oct_attention_run *run, int64_t n_keys) {
    query_rows r = {.n = OCT_QUERY_BLOCK, .ld_q = run->s.n_heads * run->s.qk_dim};
    oct_gemm_problem scores = scores_problem(run, &r, 0, n_keys, NULL);
    oct_gemm_problem values = values_problem(run, &r, 0, n_keys, NULL, NULL, OCT_ADD_TO_OUTPUT);
    size_t a = oct_gemm_workspace(&scores, 1, OCT_GEMM_EXACT);
    size_t b = oct_gemm_workspace(&values, 1, OCT_GEMM_EXACT);
    return a > b ? a : b;
}

/* Workspace grows with every dimension of a product, so full blocks serve the shorter ones. */
static forward_slice cut_slice(const oct_attention_run *run, oct_attention_slice *slice) {
    int64_t n_keys = oct_min_i64(OCT_KEY_BLOCK, run->s.past + run->s.S);
    return (forward_slice){
        .scores = oct_attention_take_floats(slice, OCT_QUERY_BLOCK * n_keys),
        .acc = oct_attention_take_floats(slice, OCT_QUERY_BLOCK * run->s.v_dim),
        .max = oct_attention_take_floats(slice, OCT_QUERY_BLOCK),
        .sum = oct_attention_take_floats(slice, OCT_QUERY_BLOCK),
        .gemm = oct_attention_take(slice, slice->base ? 0 : gemm_bytes(run, n_keys))};
}

static void softmax_rows(const oct_attention_run *run, const query_rows *r, int64_t k0,
                         int64_t n_keys, oct_accumulate accumulate, const forward_slice *w) {
    for (int64_t i = 0; i < r->n; i++) {
        float *row = w->scores + i * n_keys;
        oct_attention_span span =
            oct_attention_seen(&run->s, r->b, r->seen + i * r->seen_step, k0, n_keys);
        /* The kernel clears what lies behind the span; a row that sees nothing yet has no maximum
         * to be relative to. */
        bool may_see_nothing = run->s.window > 0 || run->s.first_keys;
        int64_t hidden = span.begin == span.end && may_see_nothing ? n_keys : span.begin;
        memset(row, 0, (size_t)hidden * sizeof *row);
        if (hidden == n_keys)
            continue;
        float factor =
            run->kernels->softmax_block(row + span.begin, span.end - span.begin,
                                        n_keys - span.begin, run->s.scale, &w->max[i], &w->sum[i]);
        if (accumulate == OCT_OVERWRITE || factor == 1)
            continue;
        oct_target acc = {w->acc + i * run->s.v_dim, OCT_F32};
        run->kernels->scale(oct_source_of(acc), factor, run->s.v_dim, acc);
    }
}

static void store_rows(const oct_attention_run *run, const query_rows *r, const forward_slice *w) {
    for (int64_t i = 0; i < r->n; i++) {
        run->kernels->scale(oct_attention_f32(w->acc + i * run->s.v_dim), 1 / w->sum[i],
                            run->s.v_dim, oct_target_at(run->out, r->o_at + i * r->ld_o));
        if (run->lse_out)
            run->lse_out[r->lse_at + i] = (float)((double)w->max[i] + log((double)w->sum[i]));
    }
}

static void forward_task(void *context, int64_t task, int thread) {
    const oct_attention_run *run = context;
    /* The longest rows first, so that threads end together. */
    query_rows r = rows_of_task(run, count_tasks(run) - 1 - task);
    oct_attention_slice slice = {.base = run->workspace + (size_t)thread * run->slice_bytes};
    forward_slice w = cut_slice(run, &slice);
    for (int64_t i = 0; i < r.n; i++) {
        w.max[i] = -INFINITY;
        w.sum[i] = 0;
    }
    int64_t end = r.seen + (r.n - 1) * r.seen_step;
    int64_t begin = oct_attention_first(&run->s, r.b, r.seen);
    for (int64_t k0 = begin; k0 < end; k0 += OCT_KEY_BLOCK) {
        int64_t n_keys = oct_min_i64(OCT_KEY_BLOCK, end - k0);
        oct_accumulate accumulate = k0 > begin ? OCT_ADD_TO_OUTPUT : OCT_OVERWRITE;
        oct_gemm_problem scores = scores_problem(run, &r, k0, n_keys, w.scores);
        oct_gemm(&scores, 1, OCT_GEMM_EXACT, w.gemm);
        softmax_rows(run, &r, k0, n_keys, accumulate, &w);
        oct_gemm_problem values = values_problem(run, &r, k0, n_keys, w.scores, w.acc, accumulate);
        oct_gemm(&values, 1, OCT_GEMM_EXACT, w.gemm);
    }
    store_rows(run, &r, &w);
}

oct_status oct_attention_execute(oct_attention_run *run, size_t slice_bytes, int64_t n_tasks,
                                 void (*task)(void *run, int64_t task, int thread),
                                 oct_arena *scratch) {
    oct_arena_mark mark = oct_arena_get_mark(scratch);
    run->slice_bytes = slice_bytes;
    run->workspace = oct_arena_alloc_array(scratch, (size_t)oct_threads(), slice_bytes);
    if (!run->workspace)
        return OCT_NO_MEMORY;
    oct_parallel(n_tasks, task, run);
    oct_arena_release(scratch, mark);
    return OCT_OK;
}

oct_status oct_attention_forward(const oct_attention_shape *shape, const oct_tensor *q,
                                 const oct_tensor *k, const oct_tensor *v, oct_tensor *o,
                                 float *lse, oct_arena *scratch) {
    oct_attention_run run = {.kernels = oct_op_kernels(), .s = *shape, .lse_out = lse};
    if (!oct_attention_shape_fits(&run.s, q, k, v) || o->dtype != q->dtype ||
        !oct_attention_tensor_fits(o, run.s.B * run.s.S, run.s.n_heads, run.s.v_dim))
        return OCT_INVALID;
    if (run.s.B * run.s.S == 0)
        return OCT_OK;
    run.group = run.s.n_heads / run.s.n_kv_heads;
    run.q = oct_op_source(q);
    run.k = oct_op_source(k);
    run.v = oct_op_source(v);
    run.out = oct_op_target(o);
    oct_attention_slice measure = {0};
    cut_slice(&run, &measure);
    return oct_attention_execute(&run, measure.used, count_tasks(&run), forward_task, scratch);
}
