/* See gemm_cases.h. */
#include "gemm_cases.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/count.h"
#include "base/rng.h"
#include "format/fp8.h"

const operand_spec specs[N_SPECS] = {
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

const int64_t depths[N_DEPTHS] = {0, 1, 31, 32, 33, 255, 256, 257, 512, 513, 1100};

uint32_t draw(uint64_t stream, uint64_t i) {
    return oct_rng_draw(31, stream, i).word[0];
}

static uint8_t draw_code(oct_dtype format, filling fill, uint64_t stream, uint64_t i) {
    if (fill == HOSTILE)
        return (uint8_t)draw(stream, i);
    if (fill == ZERO_BLOCKS && i / 64 % 2)
        return 0;
    return oct_fp8_code(format, oct_rng_normal(32, stream, i) * 4);
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

float decode(const oct_operand *x, int64_t r, int64_t k) {
    int64_t p = x->layout == OCT_K_CONTIGUOUS ? r : k, q = x->layout == OCT_K_CONTIGUOUS ? k : r;
    int64_t i = p * x->ld + q;
    float value = x->dtype == OCT_F32    ? ((const float *)x->data)[i]
                  : x->dtype == OCT_BF16 ? oct_bf16_decode(((const uint16_t *)x->data)[i])
                                         : oct_fp8_value(x->dtype, ((const uint8_t *)x->data)[i]);
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

test_operand make_operand(operand_spec spec, int64_t rows, int64_t K, filling fill, placement where,
                          uint64_t stream) {
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

void free_operand(test_operand *t) {
    guarded_free(&t->data);
    guarded_free(&t->scales);
    oct_free(t->decoded);
}

float load_c(const oct_gemm_problem *p, int64_t i) {
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

test_problem make_problem(const problem_spec *s) {
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

void free_problem(test_problem *t) {
    free_operand(&t->a);
    free_operand(&t->b);
    guarded_free(&t->c);
    guarded_free(&t->bias);
    oct_free(t->c_before);
    oct_free(t->c_expected);
}

void run_problems(test_problem *const *problems, int64_t n, oct_gemm_mode mode) {
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

void check_exact(const test_problem *t, const char *set, int threads) {
    const oct_gemm_problem *p = &t->problem;
    size_t size = oct_dtype_bytes(p->c_dtype);
    for (int64_t i = 0; i < p->M; i++)
        for (int64_t j = 0; j < p->N; j++) {
            float expected = expected_at(t, i * p->ld_c + j), got = load_c(p, i * p->ld_c + j);
            assert_that(same_float(expected, got),
                        "%s, %d threads: %" PRId64 "x%" PRId64 "x%" PRId64
                        ", A %s layout %d scaling %d, B %s layout %d scaling %d, add %d, bias %d: "
                        "C(%" PRId64 ",%" PRId64 "): expected %a, got %a",
                        set, threads, p->M, p->N, p->K, oct_dtype_name(p->a.dtype), p->a.layout,
                        p->a.scaling, oct_dtype_name(p->b.dtype), p->b.layout, p->b.scaling,
                        p->accumulate, p->bias != NULL, i, j, (double)expected, (double)got);
        }
    assert_true(guarded_intact(&t->c));
    assert_true(t->c.n_bytes == 0 ||
                gaps_intact(&t->c, p->M, (size_t)p->N * size, (size_t)p->ld_c * size));
}

size_t product_sets(kernel_set sets[MAX_KERNEL_SETS]) {
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

/* ---- the error bound, for any mode ---- */

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

error_sums check_bound(const test_problem *t, const char *set) {
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
                assert_that(!isfinite(got),
                            "%s: C(%" PRId64 ",%" PRId64 "): NaN or Inf expected, got %a", set, i,
                            j, (double)got);
                continue;
            }
            double bound = 4 * K * 0x1p-24 * magnitude + K * 0x1p-149 + rounding;
            if (magnitude > 0x1p120)
                continue; /* fp32 may overflow where fp64 doesn't */
            assert_that(fabs(error) <= bound,
                        "%s: %" PRId64 "x%" PRId64 "x%" PRId64 " C(%" PRId64 ",%" PRId64
                        "): expected %a within %a, got %a",
                        set, p->M, p->N, p->K, i, j, exact, bound, (double)got);
            sums.error += error * error;
            sums.sgemm_error += ((double)single - exact) * ((double)single - exact);
            sums.reference += exact * exact;
        }
    return sums;
}

void check_whole(const error_sums *sums, int64_t K, const char *set) {
    double ours = sqrt(sums->error), theirs = sqrt(sums->sgemm_error);
    double floor = 0x1p-24 * sqrt(sums->reference);
    assert_that(K < 32 || ours <= 4 * (theirs > floor ? theirs : floor),
                "%s: Frobenius error %g, an fp32 product's %g", set, ours, theirs);
}

error_sums check_one_bound(const problem_spec *s, oct_gemm_mode mode, const char *set) {
    test_problem t = make_problem(s);
    run_problems(&(test_problem *){&t}, 1, mode);
    error_sums sums = check_bound(&t, set);
    assert_true(guarded_intact(&t.c));
    free_problem(&t);
    return sums;
}

void check_mode_bound(oct_gemm_mode mode, const char *name) {
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
        for (uint64_t i = 0; i < OCT_COUNT(shapes); i++)
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

void for_each_fast_set(void (*check)(const char *set)) {
    kernel_set sets[MAX_KERNEL_SETS];
    const size_t n_sets = product_sets(sets);
    const oct_kernels before = *oct_kernels_current();
    for (size_t k = 0; k < n_sets; k++) {
        oct_kernels_use(sets[k].kernels);
        if (oct_gemm_supports(OCT_GEMM_FAST))
            check(sets[k].name);
        else
            printf("SKIPPED: %s has no fast product\n", sets[k].name);
    }
    oct_kernels_use(before);
}
