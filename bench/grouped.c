/* Grouped products of experts: one call over all groups against the dense product of as many
 * tokens, and against a loop of fp32 library products over the experts. Operands and outputs lie as
 * training has them: all tokens are one matrix, all weights and all their gradients one tensor. */
#include "bench.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "kernel/quantize.h"
#include "kernel/select.h"

enum { MAX_EXPERTS = 64, TOKENS = 2048, DIM = 1024, FFN = 2816 };

typedef enum pass { FORWARD, DGRAD, WGRAD, N_PASSES } pass;

/* Matrices (rows, K) of all groups one after the other, contracted over K, in fp32 and as MX blocks
 * of E4M3. `n`, `n_scales`: elements so far. */
typedef struct operands {
    float *x;
    uint8_t *codes, *scales;
    size_t n, n_scales;
} operands;

typedef struct groups {
    int64_t n;
    operands a, b;
    float *c;
    oct_gemm_problem problems[MAX_EXPERTS];
    bench_sgemm sgemms[MAX_EXPERTS];
    void *workspace;
} groups;

static int64_t blocks(int64_t k) {
    return oct_ceil_div(k, OCT_MX_BLOCK);
}

/* A product's shape: its tokens are rows of A and C, or K. */
typedef struct shape {
    int64_t M, N, K;
} shape;

static shape shape_of(pass which, int64_t n_tokens) {
    return (shape){.M = which == WGRAD ? FFN : n_tokens,
                   .N = which == FORWARD ? FFN : DIM,
                   .K = which == FORWARD ? DIM
                        : which == DGRAD ? FFN
                                         : n_tokens};
}

static void operands_free(operands *o) {
    oct_free(o->x);
    oct_free(o->codes);
    oct_free(o->scales);
}

static void groups_free(groups *g) {
    if (!g)
        return;
    operands_free(&g->a);
    operands_free(&g->b);
    oct_free(g->c);
    oct_free(g->workspace);
    oct_free(g);
}

static bool operands_alloc(operands *o, size_t n, size_t n_scales) {
    o->x = oct_malloc_array(n, sizeof(float));
    o->codes = oct_malloc(n);
    o->scales = oct_malloc(n_scales);
    return o->x && o->codes && o->scales;
}

static bool groups_alloc(groups *g, pass which, int64_t E, const int64_t *sizes) {
    size_t a = 0, a_scales = 0, b = 0, b_scales = 0, c = 0;
    for (int64_t e = 0; e < E; e++) {
        const shape s = shape_of(which, sizes[e]);
        a += (size_t)(s.M * s.K);
        a_scales += (size_t)(s.M * blocks(s.K));
        b += (size_t)(s.N * s.K);
        b_scales += (size_t)(s.N * blocks(s.K));
        c += (size_t)(s.M * s.N);
    }
    g->c = oct_malloc_array(c, sizeof(float));
    return g->c && operands_alloc(&g->a, a, a_scales) && operands_alloc(&g->b, b, b_scales);
}

/* The next matrix; the first one's values again where the shape is the same (drawing takes longer),
 * which `like` says. */
static oct_operand next_operand(operands *o, int64_t rows, int64_t K, uint64_t stream, bool like) {
    size_t n = (size_t)(rows * K), n_scales = (size_t)(rows * blocks(K));
    float *x = o->x + o->n;
    uint8_t *codes = o->codes + o->n, *scales = o->scales + o->n_scales;
    if (like) {
        memcpy(x, o->x, n * sizeof(float));
        memcpy(codes, o->codes, n);
        memcpy(scales, o->scales, n_scales);
    } else {
        bench_fill(x, rows, K, BENCH_GAUSSIAN, stream);
        oct_matrix_view view = {x, OCT_F32, rows, K, K};
        oct_mx_output out = {codes, K, scales, blocks(K)};
        oct_kernels_current()->quantize->mx_rows(&view, OCT_E4M3, OCT_SCALE_RCEIL, &out);
    }
    o->n += n;
    o->n_scales += n_scales;
    return (oct_operand){.dtype = OCT_E4M3,
                         .data = codes,
                         .ld = K,
                         .scaling = OCT_SCALING_MX,
                         .scales = scales,
                         .ld_scales = blocks(K),
                         .block_rows = 1};
}

/* What a library finds transposed differs by pass, as in training. */
static void group_add(groups *g, pass which, int64_t n_tokens, float *c) {
    const shape s = shape_of(which, n_tokens);
    const oct_gemm_problem *first = &g->problems[0];
    const bool like_a = g->n && first->M == s.M && first->K == s.K;
    const bool like_b = g->n && first->N == s.N && first->K == s.K;
    const float *x = g->a.x + g->a.n, *y = g->b.x + g->b.n;
    oct_gemm_problem p = {.M = s.M, .N = s.N, .K = s.K, .c = c, .c_dtype = OCT_F32, .ld_c = s.N};
    p.a = next_operand(&g->a, s.M, s.K, 1, like_a);
    p.b = next_operand(&g->b, s.N, s.K, 2, like_b);
    g->problems[g->n] = p;
    g->sgemms[g->n++] = (bench_sgemm){s.M, s.N, s.K, which == WGRAD, which == FORWARD, x, y, c};
}

static groups *groups_make(pass which, int64_t E, const int64_t *sizes) {
    groups *g = oct_calloc_array(1, sizeof *g);
    if (!g || !groups_alloc(g, which, E, sizes)) {
        groups_free(g);
        return NULL;
    }
    float *c = g->c;
    for (int64_t e = 0; e < E; e++) {
        group_add(g, which, sizes[e], c);
        c += g->problems[e].M * g->problems[e].N;
    }
    g->workspace = oct_malloc(oct_gemm_workspace(g->problems, g->n, OCT_GEMM_AUTO));
    if (g->workspace)
        return g;
    groups_free(g);
    return NULL;
}

static void run_mx(void *context) {
    groups *g = context;
    oct_gemm(g->problems, g->n, OCT_GEMM_AUTO, g->workspace);
}

static void run_onednn_loop(void *context) {
    groups *g = context;
    for (int64_t i = 0; i < g->n; i++)
        bench_run_onednn(&g->sgemms[i]);
}

static oct_status measure(pass which, const char *name, int64_t E, const int64_t *sizes,
                          bench_rows *rows, oct_error *err) {
    static const char *const passes[] = {"forward", "dgrad", "wgrad"};
    const int64_t all = TOKENS;
    groups *grouped = groups_make(which, E, sizes), *dense = groups_make(which, 1, &all);
    if (!grouped || !dense) {
        groups_free(grouped);
        groups_free(dense);
        return oct_fail(err, OCT_NO_MEMORY,
                        "bench: no memory for the products of %" PRId64 " experts", E);
    }
    bench_candidate c[] = {
        {"onednn", bench_has_onednn() ? run_onednn_loop : NULL, grouped, 0, 0},
        {"dense", run_mx, dense, 0, 0},
        {"mx", run_mx, grouped, 0, 0},
    };
    bench_measure(c, 3, 1.5);
    double library = c[0].run ? c[0].seconds / c[2].seconds : 0;
    bench_add_row(rows, json_pack("{s:s,s:s,s:s,s:I,s:i,s:i,s:i,s:o,s:f,s:f}", "what", "grouped",
                                  "pass", passes[which], "groups", name, "experts", (json_int_t)E,
                                  "tokens", TOKENS, "dim", DIM, "ffn", FFN, "rates",
                                  bench_rates(c, 3, 2.0 * TOKENS * (double)DIM * FFN),
                                  "dense_ratio", c[1].seconds / c[2].seconds, "mx_ratio", library));
    groups_free(grouped);
    groups_free(dense);
    return OCT_OK;
}

/* Sizes in proportion to 1, 1/2, 1/3, ...; they sum to TOKENS. */
static void zipf_sizes(int64_t E, int64_t *sizes) {
    double sum = 0, done = 0;
    int64_t given = 0;
    for (int64_t e = 0; e < E; e++)
        sum += 1.0 / (double)(e + 1);
    for (int64_t e = 0; e < E; e++) {
        done += 1.0 / (double)(e + 1);
        int64_t end = e == E - 1 ? TOKENS : (int64_t)(TOKENS * (done / sum));
        sizes[e] = end - given;
        given = end;
    }
}

oct_status bench_grouped(const bench_options *options, bench_rows *rows, oct_error *err) {
    int64_t sizes[MAX_EXPERTS];
    oct_status status = OCT_OK;
    (void)options;
    for (int which = FORWARD; which < N_PASSES && !status; which++) {
        for (int64_t e = 0; e < 8; e++)
            sizes[e] = TOKENS / 8;
        status = measure((pass)which, "even", 8, sizes, rows, err);
        zipf_sizes(8, sizes);
        if (!status)
            status = measure((pass)which, "zipf", 8, sizes, rows, err);
        for (int64_t e = 0; e < MAX_EXPERTS; e++)
            sizes[e] = TOKENS / MAX_EXPERTS;
        if (!status)
            status = measure((pass)which, "even", MAX_EXPERTS, sizes, rows, err);
    }
    return status;
}
