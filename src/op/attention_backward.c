/* Attention backward: see attention.h.
 *
 * One task is one key/value head of one sequence: it alone adds to that head's dk and dv, in a
 * fixed order (query heads, blocks of queries, blocks of keys). Per block of queries and keys, with
 * s = scale q k^T and delta = the row sums of do * o:
 *     p = exp(s - lse), dv += p^T do, dp = do v^T, ds = p (dp - delta) scale,
 *     dq += ds k, dk += ds^T q */
#include <string.h>

#include "op/attention.h"
#include "op/attention_blocks.h"

typedef struct backward_slice {
    float *p, *ds;  /* (n, n_keys): scores and do v^T first */
    float *dq;      /* (n, qk_dim) */
    float *dk, *dv; /* (S, qk_dim), (S, v_dim): sums of a head; F32: the outputs themselves */
    int64_t ld_dk, ld_dv;
    float *delta;
    void *gemm;
} backward_slice;

/* One block of queries of head h of sequence b. */
typedef struct query_block {
    int64_t b, g, h, first, n;
    oct_source q, d_o; /* its first row */
} query_block;

static int64_t ld_q(const oct_attention_run *run) {
    return run->s.n_heads * run->s.qk_dim;
}
static int64_t ld_o(const oct_attention_run *run) {
    return run->s.n_heads * run->s.v_dim;
}
static int64_t ld_k(const oct_attention_run *run) {
    return run->s.n_kv_heads * run->s.qk_dim;
}
static int64_t ld_v(const oct_attention_run *run) {
    return run->s.n_kv_heads * run->s.v_dim;
}

static oct_gemm_problem product(int64_t M, int64_t N, int64_t K, oct_operand a, oct_operand b,
                                float *c, int64_t ld_c, oct_accumulate accumulate) {
    return (oct_gemm_problem){.M = M,
                              .N = N,
                              .K = K,
                              .a = a,
                              .b = b,
                              .c = c,
                              .c_dtype = OCT_F32,
                              .ld_c = ld_c,
                              .accumulate = accumulate};
}

/* Scores and do v^T of a block. */
static void score_problems(const oct_attention_run *run, const query_block *x, int64_t k0,
                           int64_t n_keys, const backward_slice *w, oct_gemm_problem problems[2]) {
    const oct_attention_shape *s = &run->s;
    int64_t key = x->b * s->S + k0;
    oct_source k = oct_source_at(run->k, key * ld_k(run) + x->g * s->qk_dim);
    oct_source v = oct_source_at(run->v, key * ld_v(run) + x->g * s->v_dim);
    problems[0] = product(x->n, n_keys, s->qk_dim, oct_attention_rows(x->q, ld_q(run)),
                          oct_attention_rows(k, ld_k(run)), w->p, n_keys, OCT_OVERWRITE);
    problems[1] = product(x->n, n_keys, s->v_dim, oct_attention_rows(x->d_o, ld_o(run)),
                          oct_attention_rows(v, ld_v(run)), w->ds, n_keys, OCT_OVERWRITE);
}

/* What a block adds to dv, dk and dq. */
static void gradient_problems(const oct_attention_run *run, const query_block *x, int64_t k0,
                              int64_t n_keys, oct_accumulate accumulate, const backward_slice *w,
                              oct_gemm_problem problems[3]) {
    const oct_attention_shape *s = &run->s;
    int64_t key = x->b * s->S + k0;
    oct_source k = oct_source_at(run->k, key * ld_k(run) + x->g * s->qk_dim);
    oct_source p = oct_attention_f32(w->p), ds = oct_attention_f32(w->ds);
    problems[0] = product(n_keys, s->v_dim, x->n, oct_attention_cols(p, n_keys),
                          oct_attention_cols(x->d_o, ld_o(run)), w->dv + k0 * w->ld_dv, w->ld_dv,
                          OCT_ADD_TO_OUTPUT);
    problems[1] = product(n_keys, s->qk_dim, x->n, oct_attention_cols(ds, n_keys),
                          oct_attention_cols(x->q, ld_q(run)), w->dk + k0 * w->ld_dk, w->ld_dk,
                          OCT_ADD_TO_OUTPUT);
    problems[2] = product(x->n, s->qk_dim, n_keys, oct_attention_rows(ds, n_keys),
                          oct_attention_cols(k, ld_k(run)), w->dq, s->qk_dim, accumulate);
}

static size_t gemm_bytes(const oct_attention_run *run, int64_t n_keys) {
    query_block x = {.n = OCT_QUERY_BLOCK, .q = run->q, .d_o = run->d_o};
    float any; /* only sizes matter here */
    backward_slice w = {.p = &any, .ds = &any, .dq = &any, .dk = &any, .dv = &any};
    oct_gemm_problem scores[2], gradients[3];
    score_problems(run, &x, 0, n_keys, &w, scores);
    gradient_problems(run, &x, 0, n_keys, OCT_ADD_TO_OUTPUT, &w, gradients);
    size_t a = oct_gemm_workspace(scores, 2, OCT_GEMM_EXACT);
    size_t b = oct_gemm_workspace(gradients, 3, OCT_GEMM_EXACT);
    return a > b ? a : b;
}

static backward_slice cut_slice(const oct_attention_run *run, oct_attention_slice *slice) {
    const oct_attention_shape *s = &run->s;
    int64_t n_keys = oct_min_i64(OCT_KEY_BLOCK, s->S);
    bool in_place = run->dk.dtype == OCT_F32;
    return (backward_slice){
        .p = oct_attention_take_floats(slice, OCT_QUERY_BLOCK * n_keys),
        .ds = oct_attention_take_floats(slice, OCT_QUERY_BLOCK * n_keys),
        .dq = oct_attention_take_floats(slice, OCT_QUERY_BLOCK * s->qk_dim),
        .dk = oct_attention_take_floats(slice, in_place ? 0 : s->S * s->qk_dim),
        .dv = oct_attention_take_floats(slice, in_place ? 0 : s->S * s->v_dim),
        .ld_dk = in_place ? ld_k(run) : s->qk_dim,
        .ld_dv = in_place ? ld_v(run) : s->v_dim,
        .delta = oct_attention_take_floats(slice, OCT_QUERY_BLOCK),
        .gemm = oct_attention_take(slice, slice->base ? 0 : gemm_bytes(run, n_keys))};
}

static void zero_rows(float *x, int64_t rows, int64_t cols, int64_t ld) {
    for (int64_t i = 0; i < rows; i++)
        memset(x + i * ld, 0, (size_t)cols * sizeof *x);
}

static void store_rows(const oct_attention_run *run, const float *x, int64_t rows, int64_t cols,
                       oct_target out, int64_t ld_out) {
    for (int64_t i = 0; i < rows; i++)
        run->kernels->cast(oct_attention_f32(x + i * cols), cols, oct_target_at(out, i * ld_out));
}

/* The scores and dp of a block become p and ds, zero where a query doesn't see. */
static void softmax_rows(const oct_attention_run *run, const query_block *x, int64_t k0,
                         int64_t n_keys, const float *lse, const backward_slice *w) {
    for (int64_t i = 0; i < x->n; i++) {
        float *p = w->p + i * n_keys, *ds = w->ds + i * n_keys;
        oct_attention_span span = oct_attention_seen(&run->s, x->b, x->first + i + 1, k0, n_keys);
        memset(p, 0, (size_t)span.begin * sizeof *p);
        memset(ds, 0, (size_t)span.begin * sizeof *ds);
        run->kernels->softmax_backward(p + span.begin, ds + span.begin, span.end - span.begin,
                                       n_keys - span.begin, run->s.scale, lse[i], w->delta[i]);
    }
}

static void backward_block(const oct_attention_run *run, const query_block *x,
                           const backward_slice *w) {
    const oct_attention_shape *s = &run->s;
    const float *lse = run->lse + (x->b * s->n_heads + x->h) * s->S + x->first;
    int64_t o_at = ((x->b * s->S + x->first) * s->n_heads + x->h) * s->v_dim;
    for (int64_t i = 0; i < x->n; i++)
        w->delta[i] = run->kernels->dot(oct_source_at(x->d_o, i * ld_o(run)),
                                        oct_source_at(run->o, o_at + i * ld_o(run)), s->v_dim);
    int64_t end = x->first + x->n;
    int64_t begin = oct_attention_first(s, x->b, x->first + 1);
    for (int64_t k0 = begin; k0 < end; k0 += OCT_KEY_BLOCK) {
        int64_t n_keys = oct_min_i64(OCT_KEY_BLOCK, end - k0);
        oct_gemm_problem scores[2], gradients[3];
        score_problems(run, x, k0, n_keys, w, scores);
        oct_gemm(scores, 2, OCT_GEMM_EXACT, w->gemm);
        softmax_rows(run, x, k0, n_keys, lse, w);
        gradient_problems(run, x, k0, n_keys, k0 > begin ? OCT_ADD_TO_OUTPUT : OCT_OVERWRITE, w,
                          gradients);
        oct_gemm(gradients, 3, OCT_GEMM_EXACT, w->gemm);
    }
    int64_t q_at = ((x->b * s->S + x->first) * s->n_heads + x->h) * s->qk_dim;
    store_rows(run, w->dq, x->n, s->qk_dim, oct_target_at(run->dq, q_at), ld_q(run));
}

static void backward_task(void *context, int64_t task, int thread) {
    const oct_attention_run *run = context;
    const oct_attention_shape *s = &run->s;
    int64_t b = task / s->n_kv_heads, g = task % s->n_kv_heads;
    oct_attention_slice slice = {.base = run->workspace + (size_t)thread * run->slice_bytes};
    backward_slice w = cut_slice(run, &slice);
    oct_target dk = oct_target_at(run->dk, b * s->S * ld_k(run) + g * s->qk_dim);
    oct_target dv = oct_target_at(run->dv, b * s->S * ld_v(run) + g * s->v_dim);
    bool in_place = run->dk.dtype == OCT_F32;
    if (in_place) {
        w.dk = dk.data;
        w.dv = dv.data;
    }
    zero_rows(w.dk, s->S, s->qk_dim, w.ld_dk);
    zero_rows(w.dv, s->S, s->v_dim, w.ld_dv);
    for (int64_t h = g * run->group; h < (g + 1) * run->group; h++)
        for (int64_t first = 0; first < s->S; first += OCT_QUERY_BLOCK) {
            int64_t row = b * s->S + first;
            query_block x = {.b = b,
                             .g = g,
                             .h = h,
                             .first = first,
                             .n = oct_min_i64(OCT_QUERY_BLOCK, s->S - first),
                             .q = oct_source_at(run->q, (row * s->n_heads + h) * s->qk_dim),
                             .d_o = oct_source_at(run->d_o, (row * s->n_heads + h) * s->v_dim)};
            backward_block(run, &x, &w);
        }
    if (!in_place) {
        store_rows(run, w.dk, s->S, s->qk_dim, dk, ld_k(run));
        store_rows(run, w.dv, s->S, s->v_dim, dv, ld_v(run));
    }
}

static bool gradients_fit(const oct_attention_shape *s, const oct_tensor *q, const oct_tensor *o,
                          const oct_tensor *d_o, const oct_tensor *dq, const oct_tensor *dk,
                          const oct_tensor *dv) {
    int64_t rows = s->B * s->S;
    return o->dtype == q->dtype && d_o->dtype == q->dtype && dq->dtype == q->dtype &&
           dk->dtype == q->dtype && dv->dtype == q->dtype &&
           oct_attention_tensor_fits(o, rows, s->n_heads, s->v_dim) &&
           oct_attention_tensor_fits(d_o, rows, s->n_heads, s->v_dim) &&
           oct_attention_tensor_fits(dq, rows, s->n_heads, s->qk_dim) &&
           oct_attention_tensor_fits(dk, rows, s->n_kv_heads, s->qk_dim) &&
           oct_attention_tensor_fits(dv, rows, s->n_kv_heads, s->v_dim);
}

oct_status oct_attention_backward(const oct_attention_shape *shape, const oct_tensor *q,
                                  const oct_tensor *k, const oct_tensor *v, const oct_tensor *o,
                                  const float *lse, const oct_tensor *d_o, oct_tensor *dq,
                                  oct_tensor *dk, oct_tensor *dv, oct_arena *scratch) {
    oct_attention_run run = {.kernels = oct_op_kernels(), .s = *shape, .lse = lse};
    if (!oct_attention_shape_fits(&run.s, q, k, v) || run.s.past != 0 ||
        run.s.kv_stride != run.s.S || !gradients_fit(&run.s, q, o, d_o, dq, dk, dv))
        return OCT_INVALID;
    if (run.s.B * run.s.S == 0)
        return OCT_OK;
    run.group = run.s.n_heads / run.s.n_kv_heads;
    run.q = oct_op_source(q);
    run.k = oct_op_source(k);
    run.v = oct_op_source(v);
    run.o = oct_op_source(o);
    run.d_o = oct_op_source(d_o);
    run.dq = oct_op_target(dq);
    run.dk = oct_op_target(dk);
    run.dv = oct_op_target(dv);
    oct_attention_slice measure = {0};
    cut_slice(&run, &measure);
    return oct_attention_execute(&run, measure.used, run.s.B * run.s.n_kv_heads, backward_task,
                                 scratch);
}
