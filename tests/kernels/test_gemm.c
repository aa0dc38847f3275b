/* Matrix products against their definition (kernel/gemm.h), written here once more from the scalar
 * codecs: `exact` bit for bit in every kernel set and for 1, 2, 3 threads; `aligned` within the
 * error bound of docs/numerics.md. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/rng.h"
#include "base/thread.h"
#include "harness.h"
#include "kernel/gemm.h"

/* What fills an operand. */
typedef enum filling {
    ORDINARY, /* Gaussian values, codes with no NaN or Inf, scales near 1 */
    HOSTILE,  /* any code, any scale byte (0, 1, 254, 255 often), wide values, NaN, Inf */
    ZERO_BLOCKS,
    WIDE_SCALES /* MX scales from 2^-55 to 2^55 */
} filling;

/* An operand in guarded memory, and its elements decoded. */
typedef struct test_operand {
    guarded data, scales;
    oct_operand operand;
    float *decoded; /* (rows, K) */
} test_operand;

/* What to build. */
typedef struct operand_spec {
    oct_dtype dtype;
    oct_layout layout;
    oct_scaling scaling;
    int64_t block_rows;
} operand_spec;

static const operand_spec specs[] = {
    {OCT_F32, OCT_K_CONTIGUOUS, OCT_SCALING_NONE, 0},
    {OCT_BF16, OCT_K_CONTIGUOUS, OCT_SCALING_NONE, 0},
    {OCT_F32, OCT_K_STRIDED, OCT_SCALING_NONE, 0},
    {OCT_BF16, OCT_K_STRIDED, OCT_SCALING_NONE, 0},
    {OCT_E4M3, OCT_K_CONTIGUOUS, OCT_SCALING_MX, 1},
    {OCT_E5M2, OCT_K_CONTIGUOUS, OCT_SCALING_MX, 1},
    {OCT_E4M3, OCT_K_CONTIGUOUS, OCT_SCALING_MX, 32},
    {OCT_E4M3, OCT_K_STRIDED, OCT_SCALING_MX, 32},
    {OCT_E5M2, OCT_K_STRIDED, OCT_SCALING_MX, 32},
    {OCT_HIF8, OCT_K_CONTIGUOUS, OCT_SCALING_TENSOR, 0},
    {OCT_HIF8, OCT_K_STRIDED, OCT_SCALING_TENSOR, 0},
    {OCT_E4M3, OCT_K_STRIDED, OCT_SCALING_TENSOR, 0},
    {OCT_E5M2, OCT_K_CONTIGUOUS, OCT_SCALING_TENSOR, 0},
    {OCT_E4M3, OCT_K_CONTIGUOUS, OCT_SCALING_ROW, 0},
    {OCT_E5M2, OCT_K_STRIDED, OCT_SCALING_ROW, 0},
};
enum { N_SPECS = sizeof specs / sizeof specs[0] };

static uint32_t draw(uint64_t stream, uint64_t i) {
    return oct_rng_draw(31, stream, i).word[0];
}

static uint8_t draw_code(oct_dtype format, filling fill, uint64_t stream, uint64_t i) {
    if (fill == HOSTILE)
        return (uint8_t)draw(stream, i);
    if (fill == ZERO_BLOCKS && i / 64 % 2)
        return 0;
    return oct_fp8_encode(format, oct_rng_normal(32, stream, i) * 4);
}

static uint8_t draw_scale_byte(filling fill, uint64_t stream, uint64_t i) {
    static const uint8_t extremes[] = {0, 1, 254, 255};
    uint32_t word = draw(stream, i);
    if (fill == HOSTILE)
        return word % 3 ? (uint8_t)(100 + word % 60) : extremes[word / 3 % 4];
    if (fill == WIDE_SCALES)
        return (uint8_t)(127 - 55 + word % 111);
    return (uint8_t)(120 + word % 12);
}

static float draw_scale(filling fill, uint64_t stream, uint64_t i) {
    /* With the last two, products with codes are rounded. */
    static const float extremes[] = {0x1p-126f, 0x1.8p127f, NAN, 0.3f, 0x1.4dp-128f, -0x1.37p-135f};
    return fill == HOSTILE && i % 2 ? extremes[draw(stream, i) % 6]
                                    : 0.01f + fabsf(oct_rng_normal(33, stream, i));
}

static void fill_data(test_operand *t, int64_t n, filling fill, uint64_t stream) {
    oct_dtype dtype = t->operand.dtype;
    if (dtype == OCT_F32 || dtype == OCT_BF16) {
        hostile_fill(t->data.data, dtype, n, fill == HOSTILE ? WITH_NANS : GAUSSIAN, stream);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        t->data.data[i] = draw_code(dtype, fill, stream, (uint64_t)i);
}

/* Scales for a stored matrix of P x Q. */
static void make_scales(test_operand *t, int64_t rows, int64_t P, int64_t Q, filling fill,
                        placement where, uint64_t stream) {
    oct_operand *x = &t->operand;
    if (x->scaling == OCT_SCALING_MX) {
        x->ld_scales = oct_ceil_div(Q, OCT_MX_BLOCK) + 1;
        int64_t n_rows = oct_max_i64(oct_ceil_div(P, x->block_rows), 1);
        size_t n = (size_t)(n_rows * x->ld_scales - 1);
        t->scales = guarded_alloc(n, 1, where);
        for (size_t i = 0; i < n; i++)
            t->scales.data[i] = draw_scale_byte(fill, stream, i);
    } else {
        int64_t n = x->scaling == OCT_SCALING_ROW ? rows : 1;
        t->scales = guarded_alloc((size_t)n * sizeof(float), sizeof(float), where);
        for (int64_t i = 0; i < n; i++) {
            float scale = draw_scale(fill, stream, (uint64_t)i);
            memcpy(t->scales.data + (size_t)i * sizeof scale, &scale, sizeof scale);
        }
    }
    x->scales = x->scaling == OCT_SCALING_NONE ? NULL : t->scales.data;
}

/* The definition: the element times its scale, rounded once. */
static float decode(const oct_operand *x, int64_t r, int64_t k) {
    int64_t p = x->layout == OCT_K_CONTIGUOUS ? r : k, q = x->layout == OCT_K_CONTIGUOUS ? k : r;
    int64_t i = p * x->ld + q;
    float value = x->dtype == OCT_F32    ? ((const float *)x->data)[i]
                  : x->dtype == OCT_BF16 ? oct_bf16_decode(((const uint16_t *)x->data)[i])
                                         : oct_fp8_decode(x->dtype, ((const uint8_t *)x->data)[i]);
    switch (x->scaling) {
    case OCT_SCALING_NONE:
        return value;
    case OCT_SCALING_MX:
        return value * oct_e8m0_decode(
                           ((const uint8_t *)
                                x->scales)[p / x->block_rows * x->ld_scales + q / OCT_MX_BLOCK]);
    case OCT_SCALING_TENSOR:
        return value * ((const float *)x->scales)[0];
    case OCT_SCALING_ROW:
        return value * ((const float *)x->scales)[r];
    }
    return NAN;
}

static test_operand make_operand(operand_spec spec, int64_t rows, int64_t K, filling fill,
                                 placement where, uint64_t stream) {
    test_operand t = {.operand = {.dtype = spec.dtype,
                                  .layout = spec.layout,
                                  .scaling = spec.scaling,
                                  .block_rows = spec.block_rows}};
    bool contiguous = spec.layout == OCT_K_CONTIGUOUS;
    int64_t P = contiguous ? rows : K, Q = contiguous ? K : rows;
    size_t size = oct_dtype_bytes(spec.dtype);
    t.operand.ld = Q + (int64_t)(stream % 3);
    int64_t n = P > 0 && Q > 0 ? (P - 1) * t.operand.ld + Q : 0;
    t.data = guarded_alloc((size_t)n * size, size, where);
    t.operand.data = t.data.data;
    fill_data(&t, n, fill, stream);
    make_scales(&t, rows, P, Q, fill, where, stream + 1);
    t.decoded = oct_malloc_array((size_t)(rows * K), sizeof(float));
    assert_non_null(t.decoded);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < K; k++)
            t.decoded[r * K + k] = decode(&t.operand, r, k);
    return t;
}

static void free_operand(test_operand *t) {
    guarded_free(&t->data);
    guarded_free(&t->scales);
    oct_free(t->decoded);
}

/* A problem with its operands, its first C and the C that the definition gives. */
typedef struct test_problem {
    test_operand a, b;
    guarded c, bias;
    unsigned char *c_before, *c_expected;
    oct_gemm_problem problem;
} test_problem;

typedef struct problem_spec {
    int64_t M, N, K;
    operand_spec a, b;
    filling fill;
    oct_dtype c_dtype;
    oct_accumulate accumulate;
    bool has_bias;
    oct_dtype sum_dtype;
    placement where;
    uint64_t stream;
} problem_spec;

static float load_c(const oct_gemm_problem *p, int64_t i) {
    return p->c_dtype == OCT_F32 ? ((float *)p->c)[i] : oct_bf16_decode(((uint16_t *)p->c)[i]);
}

static float exact_sum(const float *a, const float *b, int64_t K) {
    float acc = 0;
    for (int64_t first = 0; first < K; first += OCT_GEMM_K_CHUNK) {
        float s = 0;
        for (int64_t k = first; k < oct_min_i64(first + OCT_GEMM_K_CHUNK, K); k++)
            s = fmaf(a[k], b[k], s);
        acc = first == 0 ? s : acc + s;
    }
    return acc;
}

/* Writes C by the definition; p->c holds the C to add to. */
static void define_c(const test_problem *t) {
    const oct_gemm_problem *p = &t->problem;
    for (int64_t i = 0; i < p->M; i++)
        for (int64_t j = 0; j < p->N; j++) {
            int64_t at = i * p->ld_c + j;
            float acc = exact_sum(t->a.decoded + i * p->K, t->b.decoded + j * p->K, p->K);
            if (p->sum_dtype == OCT_BF16)
                acc = oct_bf16_decode(oct_bf16_encode(acc));
            if (p->accumulate == OCT_ADD_TO_OUTPUT)
                acc = load_c(p, at) + acc;
            if (p->bias)
                acc = acc + p->bias[j];
            if (p->c_dtype == OCT_F32)
                ((float *)p->c)[at] = acc;
            else
                ((uint16_t *)p->c)[at] = oct_bf16_encode(acc);
        }
}

static test_problem make_problem(const problem_spec *s) {
    test_problem t = {.a = make_operand(s->a, s->M, s->K, s->fill, s->where, s->stream),
                      .b = make_operand(s->b, s->N, s->K, s->fill, s->where, s->stream + 10)};
    size_t size = oct_dtype_bytes(s->c_dtype);
    int64_t ld_c = s->N + (int64_t)(s->stream % 4);
    int64_t n = s->M > 0 && s->N > 0 ? (s->M - 1) * ld_c + s->N : 0;
    t.c = guarded_alloc((size_t)n * size, size, s->where);
    t.bias = guarded_alloc((size_t)s->N * sizeof(float), sizeof(float), s->where);
    hostile_fill(t.bias.data, OCT_F32, s->N, GAUSSIAN, s->stream + 20);
    for (int64_t i = 0; i < s->M; i++) /* gaps keep their guard bytes */
        hostile_fill(t.c.data + (size_t)(i * ld_c) * size, s->c_dtype, s->N, GAUSSIAN,
                     s->stream + 21 + (uint64_t)i);
    t.problem = (oct_gemm_problem){.M = s->M,
                                   .N = s->N,
                                   .K = s->K,
                                   .a = t.a.operand,
                                   .b = t.b.operand,
                                   .c = t.c.data,
                                   .c_dtype = s->c_dtype,
                                   .ld_c = ld_c,
                                   .accumulate = s->accumulate,
                                   .bias = s->has_bias ? (float *)(void *)t.bias.data : NULL,
                                   .sum_dtype = s->sum_dtype};
    t.c_before = oct_malloc(t.c.n_bytes);
    t.c_expected = oct_malloc(t.c.n_bytes);
    assert_true(t.c_before && t.c_expected);
    memcpy(t.c_before, t.c.data, t.c.n_bytes);
    define_c(&t);
    memcpy(t.c_expected, t.c.data, t.c.n_bytes);
    return t;
}

static void free_problem(test_problem *t) {
    free_operand(&t->a);
    free_operand(&t->b);
    guarded_free(&t->c);
    guarded_free(&t->bias);
    oct_free(t->c_before);
    oct_free(t->c_expected);
}

/* Puts the first C back, runs all problems in one call, workspace and all outputs guarded. */
static void run_problems(test_problem *const *problems, int64_t n, oct_gemm_mode mode) {
    oct_gemm_problem *list = oct_malloc_array((size_t)n, sizeof *list);
    assert_non_null(list);
    for (int64_t i = 0; i < n; i++) {
        memcpy(problems[i]->c.data, problems[i]->c_before, problems[i]->c.n_bytes);
        list[i] = problems[i]->problem;
    }
    size_t n_bytes = (oct_gemm_workspace(list, n, mode) + 63) / 64 * 64;
    guarded workspace = guarded_alloc(n_bytes, 1, AT_PAGE_END);
    oct_gemm(list, n, mode, workspace.data);
    assert_true(guarded_intact(&workspace));
    guarded_free(&workspace);
    oct_free(list);
}

static float expected_at(const test_problem *t, int64_t i) {
    oct_gemm_problem p = t->problem;
    p.c = t->c_expected;
    return load_c(&p, i);
}

static void check_exact(const test_problem *t, const char *set, int threads) {
    const oct_gemm_problem *p = &t->problem;
    size_t size = oct_dtype_bytes(p->c_dtype);
    for (int64_t i = 0; i < p->M; i++)
        for (int64_t j = 0; j < p->N; j++) {
            float expected = expected_at(t, i * p->ld_c + j), got = load_c(p, i * p->ld_c + j);
            assert_that(same_float(expected, got),
                        "%s, %d threads: %lldx%lldx%lld, A %s layout %d scaling %d, B %s layout "
                        "%d scaling %d, add %d, bias %d: C(%lld,%lld): expected %a, got %a",
                        set, threads, (long long)p->M, (long long)p->N, (long long)p->K,
                        oct_dtype_name(p->a.dtype), p->a.layout, p->a.scaling,
                        oct_dtype_name(p->b.dtype), p->b.layout, p->b.scaling, p->accumulate,
                        p->bias != NULL, (long long)i, (long long)j, (double)expected, (double)got);
        }
    assert_true(guarded_intact(&t->c));
    assert_true(t->c.n_bytes == 0 ||
                gaps_intact(&t->c, p->M, (size_t)p->N * size, (size_t)p->ld_c * size));
}

/* One set for each distinct family of products. */
static size_t product_sets(kernel_set sets[MAX_KERNEL_SETS]) {
    kernel_set all[MAX_KERNEL_SETS];
    size_t n_all = kernel_sets(all), n = 0;
    for (size_t i = 0; i < n_all; i++) {
        bool known = false;
        for (size_t k = 0; k < n; k++)
            known = known || all[i].kernels.gemm == sets[k].kernels.gemm;
        if (!known)
            sets[n++] = all[i];
    }
    return n;
}

static void check_everywhere(test_problem *const *problems, int64_t n, int max_threads) {
    kernel_set sets[MAX_KERNEL_SETS];
    size_t n_sets = product_sets(sets);
    oct_kernels before = *oct_kernels_current();
    int threads_before = oct_threads();
    for (size_t k = 0; k < n_sets; k++)
        for (int threads = 1; threads <= max_threads; threads++) {
            oct_kernels_use(sets[k].kernels);
            oct_threads_set(threads);
            run_problems(problems, n, OCT_GEMM_EXACT);
            for (int64_t i = 0; i < n; i++)
                check_exact(problems[i], sets[k].name, threads);
        }
    oct_kernels_use(before);
    oct_threads_set(threads_before);
}

static void check_spec(const problem_spec *s, int max_threads) {
    test_problem t = make_problem(s);
    check_everywhere(&(test_problem *){&t}, 1, max_threads);
    free_problem(&t);
}

static const int64_t depths[] = {0, 1, 31, 32, 33, 255, 256, 257, 512, 513, 1100};
enum { N_DEPTHS = sizeof depths / sizeof depths[0] };

static void given_every_pair_of_operands_the_product_is_exact(void **state) {
    (void)state;
    static const int64_t widths[] = {1, 7, 16, 31, 33, 40};
    uint64_t turn = 0;
    for (int a = 0; a < N_SPECS; a++)
        for (int b = 0; b < N_SPECS; b++, turn++) {
            problem_spec s = {.M = widths[turn % 6],
                              .N = widths[(turn + turn / 6) % 6],
                              .K = depths[(turn * 5 + turn / 11) % N_DEPTHS],
                              .a = specs[a],
                              .b = specs[b],
                              .fill = ORDINARY,
                              .c_dtype = turn % 3 ? OCT_F32 : OCT_BF16,
                              .accumulate = turn / 2 % 2 ? OCT_ADD_TO_OUTPUT : OCT_OVERWRITE,
                              .has_bias = turn / 4 % 2,
                              .sum_dtype = turn / 8 % 2 ? OCT_BF16 : OCT_F32,
                              .where = (placement)(turn % N_PLACEMENTS),
                              .stream = turn * 100};
            check_spec(&s, 2);
        }
}

static void given_hostile_codes_and_scales_the_product_is_exact(void **state) {
    (void)state;
    for (uint64_t turn = 0; turn < 6 * N_SPECS; turn++) {
        problem_spec s = {.M = 5 + (int64_t)(turn % 13),
                          .N = 3 + (int64_t)(turn % 37),
                          .K = depths[turn % N_DEPTHS],
                          .a = specs[turn % N_SPECS],
                          .b = specs[(turn * 7 + 4) % N_SPECS],
                          .fill = turn % 3 ? HOSTILE : ZERO_BLOCKS,
                          .c_dtype = turn % 2 ? OCT_F32 : OCT_BF16,
                          .accumulate = turn / 2 % 2 ? OCT_ADD_TO_OUTPUT : OCT_OVERWRITE,
                          .has_bias = turn / 4 % 2,
                          .where = (placement)(turn % N_PLACEMENTS),
                          .stream = 100000 + turn * 100};
        check_spec(&s, 2);
    }
}

static void given_every_depth_and_thin_shapes_the_product_is_exact(void **state) {
    (void)state;
    static const int64_t shapes[][2] = {{1, 1},   {1, 70},  {70, 1}, {2, 33}, {14, 32},
                                        {15, 33}, {29, 65}, {0, 5},  {5, 0},  {0, 0}};
    for (int d = 0; d < N_DEPTHS; d++)
        for (uint64_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
            for (int variant = 0; variant < 4; variant++) {
                problem_spec s = {.M = shapes[i][0],
                                  .N = shapes[i][1],
                                  .K = depths[d],
                                  .a = specs[(i + 4) % N_SPECS],
                                  .b = specs[(i * 3 + (uint64_t)d) % N_SPECS],
                                  .fill = ORDINARY,
                                  .c_dtype = variant == 3 ? OCT_BF16 : OCT_F32,
                                  .accumulate = variant == 1 ? OCT_ADD_TO_OUTPUT : OCT_OVERWRITE,
                                  .has_bias = variant >= 2,
                                  .sum_dtype = i % 2 ? OCT_BF16 : OCT_F32,
                                  .where = (placement)((i + (uint64_t)d) % N_PLACEMENTS),
                                  .stream = 200000 + i * 100 + (uint64_t)d};
                check_spec(&s, 1);
            }
}

/* Many tiles, several steps, K cut into jobs (more than 8 steps), more panels than the budget. */
static void given_large_problems_one_two_and_three_threads_agree(void **state) {
    (void)state;
    static const int64_t shapes[][3] = {
        {150, 300, 600}, {31, 97, 4700}, {1300, 5, 2100}, {2, 2100, 4200}};
    for (uint64_t i = 0; i < 4; i++)
        for (int variant = 0; variant < 3; variant++) {
            problem_spec s = {.M = shapes[i][0],
                              .N = shapes[i][1],
                              .K = shapes[i][2],
                              .a = specs[4],
                              .b = specs[variant == 1 ? 7 : 4],
                              .fill = ORDINARY,
                              .c_dtype = variant == 2 ? OCT_BF16 : OCT_F32,
                              .accumulate = variant == 1 ? OCT_ADD_TO_OUTPUT : OCT_OVERWRITE,
                              .has_bias = variant == 2,
                              .where = AT_PAGE_END,
                              .stream = 300000 + i * 10 + (uint64_t)variant};
            if (variant == (int)(i % 3) || i == 1)
                check_spec(&s, 3);
        }
}

static void given_a_batch_each_product_is_what_it_is_alone(void **state) {
    (void)state;
    enum { N = 100 };
    test_problem *problems[N];
    for (uint64_t i = 0; i < N; i++) {
        problem_spec s = {.M = (int64_t)(i * 7 % 23), /* some are empty */
                          .N = (int64_t)(i * 11 % 41),
                          .K = depths[i % N_DEPTHS] % 300,
                          .a = specs[i % N_SPECS],
                          .b = specs[i * 4 % N_SPECS],
                          .fill = i % 5 ? ORDINARY : HOSTILE,
                          .c_dtype = i % 2 ? OCT_F32 : OCT_BF16,
                          .accumulate = i % 3 ? OCT_OVERWRITE : OCT_ADD_TO_OUTPUT,
                          .has_bias = i % 4 == 0,
                          .where = (placement)(i % N_PLACEMENTS),
                          .stream = 400000 + i * 100};
        problems[i] = oct_malloc(sizeof *problems[i]);
        assert_non_null(problems[i]);
        *problems[i] = make_problem(&s);
    }
    check_everywhere(problems, N, 3);
    check_everywhere(problems, 0, 2);
    for (int i = 0; i < N; i++) {
        free_problem(problems[i]);
        oct_free(problems[i]);
    }
}

/* Products inside tasks, as attention does: each in its own workspace. */
typedef struct nested {
    test_problem *problems;
    unsigned char *workspaces;
    size_t n_bytes;
} nested;

static void nested_task(void *context, int64_t task, int thread) {
    (void)thread;
    nested *n = context;
    oct_gemm(&n->problems[task].problem, 1, OCT_GEMM_EXACT,
             n->workspaces + (size_t)task * n->n_bytes);
}

static void given_products_inside_tasks_they_are_exact_too(void **state) {
    (void)state;
    enum { N = 6 };
    test_problem problems[N];
    nested context = {.problems = problems};
    int threads_before = oct_threads();
    oct_threads_set(2);
    for (uint64_t i = 0; i < N; i++) {
        problem_spec s = {.M = 64,
                          .N = 256,
                          .K = 64,
                          .a = specs[1],
                          .b = specs[i % 4],
                          .fill = ORDINARY,
                          .c_dtype = OCT_F32,
                          .accumulate = OCT_ADD_TO_OUTPUT,
                          .stream = 500000 + i * 100};
        problems[i] = make_problem(&s);
        memcpy(problems[i].c.data, problems[i].c_before, problems[i].c.n_bytes);
        size_t n_bytes = oct_gemm_workspace(&problems[i].problem, 1, OCT_GEMM_EXACT);
        context.n_bytes = n_bytes > context.n_bytes ? n_bytes : context.n_bytes;
    }
    context.n_bytes = (context.n_bytes + 63) / 64 * 64;
    context.workspaces = oct_malloc(N * context.n_bytes);
    assert_non_null(context.workspaces);
    oct_parallel(N, nested_task, &context);
    for (int i = 0; i < N; i++) {
        check_exact(&problems[i], "current", 2);
        free_problem(&problems[i]);
    }
    oct_free(context.workspaces);
    oct_threads_set(threads_before);
}

/* ---- the error bound, for any mode ---- */

/* Sums over C of squared errors and squares, against fp64. */
typedef struct error_sums {
    double error, reference, sgemm_error;
} error_sums;

/* What C was before and the bias give to an element, and what they and C's type may round. */
static double added_at(const test_problem *t, int64_t i, int64_t j, double product,
                       double magnitude, double *rounding) {
    oct_gemm_problem p = t->problem;
    p.c = t->c_before;
    const double before = p.accumulate == OCT_ADD_TO_OUTPUT ? load_c(&p, i * p.ld_c + j) : 0;
    const double bias = p.bias ? (double)p.bias[j] : 0;
    const double sum = product + before + bias;
    *rounding =
        before != 0 || bias != 0 ? 3 * 0x1p-24 * (magnitude + fabs(before) + fabs(bias)) : 0;
    if (p.c_dtype == OCT_BF16)
        *rounding += 0x1p-8 * fabs(sum) + 0x1p-133;
    return before + bias;
}

/* |err| <= 4 K 2^-24 sum|ab| + K 2^-149, element by element, and what is added and rounded
 * afterwards; and the sums for the whole. */
static error_sums check_bound(const test_problem *t, const char *set) {
    const oct_gemm_problem *p = &t->problem;
    error_sums sums = {0};
    for (int64_t i = 0; i < p->M; i++)
        for (int64_t j = 0; j < p->N; j++) {
            double exact = 0, magnitude = 0;
            float single = 0;
            for (int64_t k = 0; k < p->K; k++) {
                float a = t->a.decoded[i * p->K + k], b = t->b.decoded[j * p->K + k];
                exact += (double)a * (double)b;
                magnitude += fabs((double)a * (double)b);
                single = fmaf(a, b, single);
            }
            double rounding = 0, added = added_at(t, i, j, exact, magnitude, &rounding);
            exact += added;
            float got = load_c(p, i * p->ld_c + j);
            double error = (double)got - exact, K = (double)p->K;
            if (!isfinite(magnitude + added)) {
                assert_that(!isfinite(got), "%s: C(%lld,%lld): NaN or Inf expected, got %a", set,
                            (long long)i, (long long)j, (double)got);
                continue;
            }
            double bound = 4 * K * 0x1p-24 * magnitude + K * 0x1p-149 + rounding;
            if (magnitude > 0x1p120)
                continue; /* fp32 may overflow where fp64 doesn't */
            assert_that(fabs(error) <= bound,
                        "%s: %lldx%lldx%lld C(%lld,%lld): expected %a within %a, got %a", set,
                        (long long)p->M, (long long)p->N, (long long)p->K, (long long)i,
                        (long long)j, exact, bound, (double)got);
            sums.error += error * error;
            sums.sgemm_error += ((double)single - exact) * ((double)single - exact);
            sums.reference += exact * exact;
        }
    return sums;
}

/* As a whole: at most 4 times the relative Frobenius error of an fp32 product. Tiny sums of errors
 * (few terms, or all exact) say nothing. */
static void check_whole(const error_sums *sums, int64_t K, const char *set) {
    double ours = sqrt(sums->error), theirs = sqrt(sums->sgemm_error);
    double floor = 0x1p-24 * sqrt(sums->reference);
    assert_that(K < 32 || ours <= 4 * (theirs > floor ? theirs : floor),
                "%s: Frobenius error %g, an fp32 product's %g", set, ours, theirs);
}

static error_sums check_one_bound(const problem_spec *s, oct_gemm_mode mode, const char *set) {
    test_problem t = make_problem(s);
    run_problems(&(test_problem *){&t}, 1, mode);
    error_sums sums = check_bound(&t, set);
    assert_true(guarded_intact(&t.c));
    free_problem(&t);
    return sums;
}

static void check_mode_bound(oct_gemm_mode mode, const char *name) {
    static const int64_t shapes[][3] = {
        {1, 1, 1},     {1, 64, 512},   {17, 33, 31},   {33, 65, 257}, {40, 40, 512},
        {29, 70, 513}, {20, 50, 1100}, {64, 96, 2300}, {3, 70, 513},  {8, 33, 1100},
        {5, 20, 4200}, {18, 40, 32},   {20, 1, 33},    {17, 34, 255}, {33, 1, 256}};
    oct_kernels before = *oct_kernels_current();
    kernel_set sets[MAX_KERNEL_SETS];
    size_t n_sets = product_sets(sets);
    int n_run = 0;
    for (size_t k = 0; k < n_sets; k++) {
        oct_kernels_use(sets[k].kernels);
        if (!oct_gemm_supports(mode)) {
            printf("SKIPPED: %s has no %s product\n", sets[k].name, name);
            continue;
        }
        n_run++;
        for (uint64_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
            for (int fill = ORDINARY; fill <= WIDE_SCALES; fill++)
                for (uint64_t pair = 0; pair < 5; pair++) {
                    problem_spec s = {.M = shapes[i][0],
                                      .N = shapes[i][1],
                                      .K = shapes[i][2],
                                      .a = specs[4 + (pair + i) % (N_SPECS - 4)],
                                      .b = specs[4 + (pair * 3 + i * 5) % (N_SPECS - 4)],
                                      .fill = (filling)fill,
                                      .c_dtype = pair == 3 ? OCT_BF16 : OCT_F32,
                                      .accumulate = pair == 2 || pair == 3 ? OCT_ADD_TO_OUTPUT
                                                                           : OCT_OVERWRITE,
                                      .has_bias = pair == 1 || pair == 3,
                                      .where = (placement)(pair % N_PLACEMENTS),
                                      .stream = 600000 + i * 100 + pair};
                    error_sums sums = check_one_bound(&s, mode, sets[k].name);
                    if (fill == ORDINARY && !s.has_bias && s.accumulate == OCT_OVERWRITE)
                        check_whole(&sums, s.K, sets[k].name);
                }
    }
    oct_kernels_use(before);
    if (mode == OCT_GEMM_EXACT)
        assert_true(n_run > 0);
}

static void given_any_operands_exact_products_meet_the_error_bound(void **state) {
    (void)state;
    check_mode_bound(OCT_GEMM_EXACT, "exact");
}

static void given_any_operands_aligned_products_meet_the_error_bound(void **state) {
    (void)state;
    check_mode_bound(OCT_GEMM_FAST, "fast");
}

/* In turn, each set that has aligned products. */
static void for_each_aligned_set(void (*check)(const char *set)) {
    kernel_set sets[MAX_KERNEL_SETS];
    const size_t n_sets = product_sets(sets);
    const oct_kernels before = *oct_kernels_current();
    for (size_t k = 0; k < n_sets; k++) {
        oct_kernels_use(sets[k].kernels);
        if (oct_gemm_supports(OCT_GEMM_FAST))
            check(sets[k].name);
        else
            printf("SKIPPED: %s has no aligned product\n", sets[k].name);
    }
    oct_kernels_use(before);
}

/* Scales by row so small that their products with codes are rounded, if B has such scales. */
static void make_scales_tiny(test_problem *t, uint64_t stream) {
    const oct_gemm_problem *p = &t->problem;
    float *scales = (float *)(void *)t->b.scales.data;
    for (int64_t j = 0; j < p->N; j++)
        scales[j] =
            ldexpf(1 + (float)(draw(stream, (uint64_t)j) % 100) / 128, -149 + (int)(j % 60));
    for (int64_t j = 0; j < p->N; j++)
        for (int64_t k = 0; k < p->K; k++)
            t->b.decoded[j * p->K + k] = decode(&t->b.operand, j, k);
}

static void check_tiny_scales(const char *set) {
    int n_run = 0;
    for (int b = 4; b < N_SPECS; b++)
        for (int64_t i = 0; i < 24; i++) {
            if (specs[b].layout != OCT_K_CONTIGUOUS || specs[b].scaling != OCT_SCALING_ROW)
                continue;
            problem_spec s = {.M = 1 + i % 4,
                              .N = 65,
                              .K = (int64_t[]){1, 64, 300, 512, 1030, 31}[i / 4],
                              .a = specs[4],
                              .b = specs[b],
                              .fill = ORDINARY,
                              .c_dtype = OCT_F32,
                              .stream = 680000 + (uint64_t)i * 100};
            test_problem t = make_problem(&s);
            make_scales_tiny(&t, s.stream);
            run_problems(&(test_problem *){&t}, 1, OCT_GEMM_FAST);
            check_bound(&t, set);
            free_problem(&t);
            n_run++;
        }
    assert_true(n_run > 0);
}

static void given_tiny_scales_few_rows_meet_the_error_bound(void **state) {
    (void)state;
    for_each_aligned_set(check_tiny_scales);
}

/* Few rows of A have kernels of their own, by number, which read B as it lies: where K is
 * contiguous. */
static void check_few_rows(const char *set) {
    static const int b_specs[] = {4, 5, 6, 9, 12, 13};
    static const int64_t lengths[] = {1, 31, 64, 100, 513, 1100, 4200},
                         widths[] = {1, 5, 16, 70, 133};
    for (uint64_t i = 0; i < 17 * 6 * 3; i++) {
        problem_spec s = {.M = 1 + (int64_t)(i % 17),
                          .N = widths[i % 5],
                          .K = lengths[i / 17 % 7],
                          .a = specs[4 + i % (N_SPECS - 4)],
                          .b = specs[b_specs[i / 17 % 6]],
                          .fill = (filling)(i / (17 * 6)),
                          .c_dtype = OCT_F32,
                          .accumulate = OCT_OVERWRITE,
                          .where = (placement)(i % N_PLACEMENTS),
                          .stream = 650000 + i * 100};
        error_sums sums = check_one_bound(&s, OCT_GEMM_FAST, set);
        if (s.fill == ORDINARY && s.M * s.N > 64)
            check_whole(&sums, s.K, set);
    }
}

static void given_few_rows_aligned_products_meet_the_error_bound(void **state) {
    (void)state;
    for_each_aligned_set(check_few_rows);
}

/* Aligned sums have no definition to the bit, but threads and neighbours must not change them. */
static void check_aligned_is_stable(const char *set) {
    enum { N = 20, MANY_ROWS = 12 };
    test_problem problems[N], *list[N];
    oct_threads_set(1);
    for (uint64_t i = 0; i < N; i++) {
        problem_spec s = {.M = 1 + (int64_t)(i < MANY_ROWS ? i * 37 % 150 : (i - MANY_ROWS) * 2),
                          .N = 1 + (int64_t)(i * 53 % 210),
                          .K = depths[i % N_DEPTHS],
                          .a = specs[4 + i % (N_SPECS - 4)],
                          .b = specs[4 + i * 3 % (N_SPECS - 4)],
                          .fill = i % 4 ? ORDINARY : HOSTILE,
                          .c_dtype = i % 2 ? OCT_F32 : OCT_BF16,
                          .accumulate = i % 3 ? OCT_OVERWRITE : OCT_ADD_TO_OUTPUT,
                          .has_bias = i % 2,
                          .stream = 700000 + i * 100};
        problems[i] = make_problem(&s);
        list[i] = &problems[i];
        run_problems(&list[i], 1, OCT_GEMM_FAST);
        memcpy(problems[i].c_expected, problems[i].c.data, problems[i].c.n_bytes);
    }
    for (int threads = 1; threads <= 3; threads++) {
        oct_threads_set(threads);
        run_problems(list, N, OCT_GEMM_FAST);
        for (int i = 0; i < N; i++)
            check_exact(&problems[i], set, threads);
    }
    for (int i = 0; i < N; i++)
        free_problem(&problems[i]);
}

/* A sum that is rounded before it is added: the plain product's bits, rounded, whatever way C is
 * written otherwise. */
static void check_rounded_sums(const char *set) {
    static const int64_t shapes[][3] = {
        {5, 40, 70}, {64, 96, 600}, {330, 832, 1100}, {70, 2100, 40}, {33, 8000, 513}};
    for (uint64_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        problem_spec s = {.M = shapes[i][0],
                          .N = shapes[i][1],
                          .K = shapes[i][2],
                          .a = specs[4 + i % 2],
                          .b = specs[4 + (i + 1) % 2],
                          .c_dtype = OCT_F32,
                          .accumulate = OCT_ADD_TO_OUTPUT,
                          .sum_dtype = OCT_BF16,
                          .stream = 800000 + i * 100};
        test_problem t = make_problem(&s), *list[] = {&t};
        oct_gemm_problem plain = t.problem;
        float *sums = oct_malloc_array((size_t)(s.M * s.N), sizeof *sums);
        plain.c = sums;
        plain.ld_c = s.N;
        plain.accumulate = OCT_OVERWRITE;
        plain.sum_dtype = OCT_F32;
        void *workspace = oct_malloc(oct_gemm_workspace(&plain, 1, OCT_GEMM_FAST));
        assert_true(sums && workspace);
        oct_gemm(&plain, 1, OCT_GEMM_FAST, workspace);
        memcpy(t.c.data, t.c_before, t.c.n_bytes);
        for (int64_t r = 0; r < s.M; r++)
            for (int64_t k = 0; k < s.N; k++)
                ((float *)(void *)t.c.data)[r * t.problem.ld_c + k] +=
                    oct_bf16_decode(oct_bf16_encode(sums[r * s.N + k]));
        memcpy(t.c_expected, t.c.data, t.c.n_bytes);
        run_problems(list, 1, OCT_GEMM_FAST);
        check_exact(&t, set, oct_threads());
        free_problem(&t);
        oct_free(sums);
        oct_free(workspace);
    }
}

static void given_a_sum_that_is_rounded_first_it_is_the_plain_products(void **state) {
    (void)state;
    for_each_aligned_set(check_rounded_sums);
}

static void given_aligned_products_threads_and_batches_change_no_bit(void **state) {
    (void)state;
    const int threads_before = oct_threads();
    for_each_aligned_set(check_aligned_is_stable);
    oct_threads_set(threads_before);
}

/* Rows from `first` on of an operand without scales by row; a multiple of 32. */
static oct_operand rows_from(const oct_operand *x, int64_t first) {
    oct_operand y = *x;
    bool contiguous = x->layout == OCT_K_CONTIGUOUS;
    y.data = (const uint8_t *)x->data + (contiguous ? first * x->ld : first);
    if (x->scaling == OCT_SCALING_MX)
        y.scales = (const uint8_t *)x->scales +
                   (contiguous ? first / x->block_rows * x->ld_scales : first / OCT_MX_BLOCK);
    return y;
}

/* Elements of a large C, which may be written in other ways than a small one, are those of small
 * products of the same rows; what was in C before doesn't show. */
static void check_blocks(const oct_gemm_problem *p, const char *set) {
    enum { BLOCK = 224 }; /* whole panels in every set; the shapes leave no few rows */
    static float small[BLOCK * BLOCK];
    float *c = p->c, *before = oct_malloc_array((size_t)(p->M * p->N), sizeof(float));
    void *workspace = oct_malloc(oct_gemm_workspace(p, 1, OCT_GEMM_FAST));
    assert_true(before && workspace);
    memcpy(before, c, (size_t)(p->M * p->N) * sizeof(float));
    oct_gemm(p, 1, OCT_GEMM_FAST, workspace);
    for (int64_t i = 0; i < p->M; i += BLOCK)
        for (int64_t j = 0; j < p->N; j += BLOCK) {
            oct_gemm_problem q = *p;
            q.M = oct_min_i64(BLOCK, p->M - i);
            q.N = oct_min_i64(BLOCK, p->N - j);
            q.a = rows_from(&p->a, i);
            q.b = rows_from(&p->b, j);
            q.c = small;
            q.ld_c = BLOCK;
            for (int64_t r = 0; r < q.M; r++)
                memcpy(small + r * BLOCK, before + (i + r) * p->N + j, (size_t)q.N * sizeof(float));
            oct_gemm(&q, 1, OCT_GEMM_FAST, workspace);
            for (int64_t r = 0; r < q.M; r++)
                for (int64_t k = 0; k < q.N; k++)
                    assert_that(same_float(small[r * BLOCK + k], c[(i + r) * p->N + j + k]),
                                "%s: %lldx%lldx%lld, add %d: C(%lld,%lld): expected %a, got %a",
                                set, (long long)p->M, (long long)p->N, (long long)p->K,
                                p->accumulate, (long long)(i + r), (long long)(j + k),
                                (double)small[r * BLOCK + k], (double)c[(i + r) * p->N + j + k]);
        }
    oct_free(before);
    oct_free(workspace);
}

static void check_large_outputs(const char *set) {
    static const int64_t shapes[][3] = {{330, 832, 100},   {330, 832, 1100},  {64, 4160, 1100},
                                        {700, 416, 600},   {33, 8000, 513},   {2300, 250, 40},
                                        {470, 1024, 1537}, {1100, 250, 2500}, {330, 1400, 2100},
                                        {53088, 40, 33}}; /* more rows than are packed at once */
    static const int b_specs[] = {4, 5, 7, 9};
    for (uint64_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (uint64_t variant = 0; variant < 4; variant++) {
            const int64_t M = shapes[i][0], N = shapes[i][1], K = shapes[i][2];
            const filling fill = variant == 3 ? HOSTILE : ORDINARY;
            test_operand a = make_operand(specs[4], M, K, fill, AT_PAGE_END, 900000 + i * 100);
            test_operand b =
                make_operand(specs[b_specs[variant]], N, K, fill, AT_PAGE_END, 900050 + i * 100);
            oct_gemm_problem p = {.M = M,
                                  .N = N,
                                  .K = K,
                                  .a = a.operand,
                                  .b = b.operand,
                                  .c_dtype = OCT_F32,
                                  .ld_c = N,
                                  .accumulate = variant == 1 ? OCT_ADD_TO_OUTPUT : OCT_OVERWRITE};
            p.c = oct_malloc_array((size_t)(M * N), sizeof(float));
            assert_non_null(p.c);
            hostile_fill(p.c, OCT_F32, M * N, variant == 1 ? GAUSSIAN : WITH_NANS, 900099);
            check_blocks(&p, set);
            oct_free(p.c);
            free_operand(&a);
            free_operand(&b);
        }
}

static void given_large_outputs_each_block_is_what_it_is_alone(void **state) {
    (void)state;
    for_each_aligned_set(check_large_outputs);
}

/* Normal codes, and in each block of every other sixteen rows one code of any kind that is finite.
 */
static void fill_with_any_codes(test_operand *t, int64_t rows, int64_t K) {
    const oct_dtype format = t->operand.dtype;
    uint8_t *codes = t->data.data;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < K; k++) {
            const uint64_t i = (uint64_t)(r * K + k), block = i / 32;
            uint8_t code = (uint8_t)(32 + draw(950000, i) % 64 + 128 * (draw(950001, i) % 2));
            if (r / 16 % 2 && i % 32 == block * 7 % 32)
                code = (uint8_t)(block * 37);
            if (!isfinite(oct_fp8_decode(format, code)))
                code = 0;
            codes[r * t->operand.ld + k] = code;
            t->decoded[r * K + k] = decode(&t->operand, r, k);
        }
}

/* Rows of A that are zero but for a one pick elements of B, in which nothing is rounded; `n_rows`
 * of them a product. The last row of B has a NaN among normal codes. */
static void check_picked_codes(const kernel_set *set, operand_spec spec, int64_t N, int64_t K,
                               int64_t n_rows) {
    test_operand a = make_operand(specs[4], K, K, ZERO_BLOCKS, AT_PAGE_END, 960000);
    test_operand b = make_operand(spec, N, K, ORDINARY, AT_PAGE_END, 960001);
    uint8_t *a_codes = a.data.data;
    memset(a.data.data, 0, a.data.n_bytes);
    memset(a.scales.data, 127, a.scales.n_bytes);
    for (int64_t k = 0; k < K; k++)
        a_codes[k * a.operand.ld + k] = oct_fp8_encode(OCT_E4M3, 1);
    fill_with_any_codes(&b, N, K);
    b.data.data[(N - 1) * b.operand.ld + K / 2] = spec.dtype == OCT_HIF8 ? 0x80 : 0x7f;
    float *c = oct_malloc_array((size_t)(K * N), sizeof(float));
    assert_non_null(c);
    for (int64_t first = 0; first < K; first += n_rows) {
        oct_gemm_problem p = {.M = oct_min_i64(n_rows, K - first),
                              .N = N,
                              .K = K,
                              .a = a.operand,
                              .b = b.operand,
                              .c = c + first * N,
                              .c_dtype = OCT_F32,
                              .ld_c = N};
        p.a.data = a_codes + first * a.operand.ld;
        p.a.scales = (const uint8_t *)a.operand.scales + first * a.operand.ld_scales;
        void *workspace = oct_malloc(oct_gemm_workspace(&p, 1, OCT_GEMM_FAST));
        assert_non_null(workspace);
        oct_gemm(&p, 1, OCT_GEMM_FAST, workspace);
        oct_free(workspace);
    }
    for (int64_t k = 0; k < K; k++)
        for (int64_t j = 0; j < N; j++)
            assert_that(j == N - 1 ? isnan(c[k * N + j]) : c[k * N + j] == b.decoded[j * K + k],
                        "%s, %s, %lldx%lldx%lld: B(%lld,%lld) = %a came out as %a", set->name,
                        oct_dtype_name(spec.dtype), (long long)n_rows, (long long)N, (long long)K,
                        (long long)j, (long long)k,
                        j == N - 1 ? (double)NAN : (double)b.decoded[j * K + k],
                        (double)c[k * N + j]);
    oct_free(c);
    free_operand(&a);
    free_operand(&b);
}

static void check_picked_codes_of(const kernel_set *set, operand_spec spec) {
    if (spec.layout != OCT_K_CONTIGUOUS || spec.scaling != OCT_SCALING_MX)
        return;
    for (int64_t n_rows = 1; n_rows <= 8; n_rows++)
        check_picked_codes(set, spec, 96, 200, n_rows);
    check_picked_codes(set, spec, 70, 600, 2);
    if (!set->kernels.features.amx_bf16)
        return; /* many rows are rounded */
    check_picked_codes(set, spec, 96, 96, 96);
    check_picked_codes(set, spec, 1100, 600, 600);
}

static void given_codes_of_every_kind_kernels_that_do_not_round_hold_their_values(void **state) {
    (void)state;
    kernel_set sets[MAX_KERNEL_SETS];
    size_t n_sets = product_sets(sets);
    oct_kernels before = *oct_kernels_current();
    for (size_t k = 0; k < n_sets; k++) {
        oct_kernels_use(sets[k].kernels);
        for (int i = 4; i < N_SPECS && oct_gemm_supports(OCT_GEMM_FAST); i++)
            check_picked_codes_of(&sets[k], specs[i]);
    }
    oct_kernels_use(before);
}

/* A large problem, up to few rows of it; the small one is smaller in all dimensions, or the same.
 */
static void make_two_sizes(uint64_t i, oct_gemm_problem *large, oct_gemm_problem *small) {
    const uint32_t bits = draw(800000, i);
    *large = (oct_gemm_problem){.M = 1 + draw(800001, i) % (bits & 16 ? 6000 : 20),
                                .N = 1 + draw(800002, i) % (bits & 32 ? 5000 : 90000),
                                .K = 1 + draw(800003, i) % (bits & 4    ? 600
                                                            : bits & 64 ? 9000
                                                                        : 90000),
                                .c_dtype = bits & 1 ? OCT_F32 : OCT_BF16,
                                .accumulate = bits & 2 ? OCT_OVERWRITE : OCT_ADD_TO_OUTPUT};
    large->a.dtype = large->b.dtype = bits & 8 ? OCT_F32 : OCT_E4M3;
    *small = *large;
    small->M = draw(800004, i) % (large->M + 1);
    small->N = draw(800005, i) % (large->N + 1);
    small->K = draw(800006, i) % (large->K + 1);
}

/* Callers size one workspace by their largest block and use it for ragged ones too. */
static void given_smaller_problems_the_larger_ones_workspace_is_enough(void **state) {
    (void)state;
    enum { MOST = 4 };
    kernel_set sets[MAX_KERNEL_SETS];
    size_t n_sets = product_sets(sets);
    oct_kernels before = *oct_kernels_current();
    for (size_t k = 0; k < n_sets; k++) {
        oct_kernels_use(sets[k].kernels);
        for (uint64_t i = 0; i < 20000; i++) {
            oct_gemm_problem large[MOST], small[MOST];
            const int64_t n = i % 2 ? 1 : MOST;
            for (int64_t j = 0; j < n; j++)
                make_two_sizes(i * MOST + (uint64_t)j, &large[j], &small[j]);
            assert_that(oct_gemm_workspace(small, n, OCT_GEMM_AUTO) <=
                            oct_gemm_workspace(large, n, OCT_GEMM_AUTO),
                        "%s: %lld problems, the first of %lldx%lldx%lld, need more than those of "
                        "%lldx%lldx%lld",
                        sets[k].name, (long long)n, (long long)small[0].M, (long long)small[0].N,
                        (long long)small[0].K, (long long)large[0].M, (long long)large[0].N,
                        (long long)large[0].K);
        }
    }
    oct_kernels_use(before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_smaller_problems_the_larger_ones_workspace_is_enough),
        cmocka_unit_test(given_every_pair_of_operands_the_product_is_exact),
        cmocka_unit_test(given_hostile_codes_and_scales_the_product_is_exact),
        cmocka_unit_test(given_every_depth_and_thin_shapes_the_product_is_exact),
        cmocka_unit_test(given_large_problems_one_two_and_three_threads_agree),
        cmocka_unit_test(given_a_batch_each_product_is_what_it_is_alone),
        cmocka_unit_test(given_products_inside_tasks_they_are_exact_too),
        cmocka_unit_test(given_any_operands_exact_products_meet_the_error_bound),
        cmocka_unit_test(given_any_operands_aligned_products_meet_the_error_bound),
        cmocka_unit_test(given_few_rows_aligned_products_meet_the_error_bound),
        cmocka_unit_test(given_tiny_scales_few_rows_meet_the_error_bound),
        cmocka_unit_test(given_a_sum_that_is_rounded_first_it_is_the_plain_products),
        cmocka_unit_test(given_aligned_products_threads_and_batches_change_no_bit),
        cmocka_unit_test(given_large_outputs_each_block_is_what_it_is_alone),
        cmocka_unit_test(given_codes_of_every_kind_kernels_that_do_not_round_hold_their_values),
    };
    report_skipped_sets();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
