/* Grouped products of experts: one call over all groups against the dense product of as many
 * tokens, and against a loop of fp32 library products over the experts. */
#include "bench.h"

#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "kernel/quantize.h"
#include "kernel/select.h"

enum { MAX_EXPERTS = 64, TOKENS = 2048, DIM = 1024, FFN = 2816 };

typedef enum pass { FORWARD, DGRAD, WGRAD, N_PASSES } pass;

/* A matrix (rows, K), contracted over K, in fp32 and as MX blocks of E4M3. */
typedef struct operand {
    int64_t rows, K;
    float *x;
    uint8_t *codes, *scales;
} operand;

typedef struct groups {
    int64_t n;
    operand a[MAX_EXPERTS], b[MAX_EXPERTS];
    float *c[MAX_EXPERTS];
    oct_gemm_problem problems[MAX_EXPERTS];
    bench_sgemm sgemms[MAX_EXPERTS];
    void *workspace;
} groups;

static int64_t blocks(int64_t k) {
    return oct_ceil_div(k, OCT_MX_BLOCK);
}

static void operand_free(operand *o) {
    oct_free(o->x);
    oct_free(o->codes);
    oct_free(o->scales);
}

static void groups_free(groups *g) {
    for (int64_t i = 0; g && i < g->n; i++) {
        operand_free(&g->a[i]);
        operand_free(&g->b[i]);
        oct_free(g->c[i]);
    }
    if (g)
        oct_free(g->workspace);
    oct_free(g);
}

/* `like` (NULL: none) has the same shape: its values are copied, drawing takes longer. */
static bool operand_make(operand *o, int64_t rows, int64_t K, uint64_t stream,
                         const operand *like) {
    size_t n = (size_t)(rows * K), n_scales = (size_t)(rows * blocks(K));
    *o = (operand){.rows = rows, .K = K};
    o->x = oct_malloc_array(n, sizeof(float));
    o->codes = oct_malloc(n);
    o->scales = oct_malloc(n_scales);
    if (!o->x || !o->codes || !o->scales)
        return false;
    if (like && like->rows == rows && like->K == K) {
        memcpy(o->x, like->x, n * sizeof(float));
        memcpy(o->codes, like->codes, n);
        memcpy(o->scales, like->scales, n_scales);
        return true;
    }
    bench_fill(o->x, rows, K, BENCH_GAUSSIAN, stream);
    oct_matrix_view x = {o->x, OCT_F32, rows, K, K};
    oct_mx_output out = {o->codes, K, o->scales, blocks(K)};
    oct_kernels_current()->quantize->mx_rows(&x, OCT_E4M3, OCT_SCALE_RCEIL, &out);
    return true;
}

static oct_operand mx_operand(const operand *o) {
    return (oct_operand){.dtype = OCT_E4M3,
                         .data = o->codes,
                         .ld = o->K,
                         .scaling = OCT_SCALING_MX,
                         .scales = o->scales,
                         .ld_scales = blocks(o->K),
                         .block_rows = 1};
}

/* What a library finds transposed differs by pass, as in training. */
static bool group_make(groups *g, pass which, int64_t n_tokens) {
    int64_t i = g->n++;
    int64_t M = which == WGRAD ? FFN : n_tokens, N = which == FORWARD ? FFN : DIM;
    int64_t K = which == FORWARD ? DIM : which == DGRAD ? FFN : n_tokens;
    if (!operand_make(&g->a[i], M, K, 1, i ? &g->a[0] : NULL) ||
        !operand_make(&g->b[i], N, K, 2, i ? &g->b[0] : NULL))
        return false;
    g->c[i] = oct_malloc_array((size_t)(M * N), sizeof(float));
    if (!g->c[i])
        return false;
    g->problems[i] = (oct_gemm_problem){.M = M,
                                        .N = N,
                                        .K = K,
                                        .a = mx_operand(&g->a[i]),
                                        .b = mx_operand(&g->b[i]),
                                        .c = g->c[i],
                                        .c_dtype = OCT_F32,
                                        .ld_c = N};
    g->sgemms[i] =
        (bench_sgemm){M, N, K, which == WGRAD, which == FORWARD, g->a[i].x, g->b[i].x, g->c[i]};
    return true;
}

static groups *groups_make(pass which, int64_t E, const int64_t *sizes) {
    groups *g = oct_calloc_array(1, sizeof *g);
    bool made = g != NULL;
    for (int64_t e = 0; e < E && made; e++)
        made = group_make(g, which, sizes[e]);
    if (made)
        g->workspace = oct_malloc(oct_gemm_workspace(g->problems, g->n, OCT_GEMM_AUTO));
    if (made && g->workspace)
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

static json_t *rates(const bench_candidate *c, int n, double flops) {
    json_t *object = json_object();
    for (int i = 0; i < n; i++)
        if (c[i].run)
            json_object_set_new(object, c[i].name,
                                json_pack("{s:f,s:f}", "gflops", flops / c[i].seconds * 1e-9,
                                          "spread", c[i].spread));
    return object;
}

static oct_status measure(pass which, const char *name, int64_t E, const int64_t *sizes,
                          bench_rows *rows, oct_error *err) {
    static const char *const passes[] = {"forward", "dgrad", "wgrad"};
    const int64_t all = TOKENS;
    groups *grouped = groups_make(which, E, sizes), *dense = groups_make(which, 1, &all);
    if (!grouped || !dense) {
        groups_free(grouped);
        groups_free(dense);
        return oct_fail(err, OCT_NO_MEMORY, "bench: no memory for the products of %lld experts",
                        (long long)E);
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
                                  rates(c, 3, 2.0 * TOKENS * (double)DIM * FFN), "dense_ratio",
                                  c[1].seconds / c[2].seconds, "mx_ratio", library));
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
    for (int which = FORWARD; which < N_PASSES && status == OCT_OK; which++) {
        for (int64_t e = 0; e < 8; e++)
            sizes[e] = TOKENS / 8;
        status = measure((pass)which, "even", 8, sizes, rows, err);
        zipf_sizes(8, sizes);
        if (status == OCT_OK)
            status = measure((pass)which, "zipf", 8, sizes, rows, err);
        for (int64_t e = 0; e < MAX_EXPERTS; e++)
            sizes[e] = TOKENS / MAX_EXPERTS;
        if (status == OCT_OK)
            status = measure((pass)which, "even", MAX_EXPERTS, sizes, rows, err);
    }
    return status;
}
