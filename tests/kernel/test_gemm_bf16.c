/* The arithmetic of vdpbf16ps products (docs/numerics.md) by a scalar twin: it meets the error
 * bound, which any CPU can show, and kernels have its bits where the CPU has the instruction. */
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
#include "base/thread.h"
#include "gemm_cases.h"

enum { PIECE = 512, STEP = 2048 };

/* The instruction: the odd product first, each fused with the sum; subnormals are zeros everywhere.
 */
static float flush(float x) {
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

static float add_pair(float sum, const float *a, const float *b, bool has_odd) {
    if (has_odd)
        sum = flush(fmaf(flush(a[1]), flush(b[1]), sum));
    return flush(fmaf(flush(a[0]), flush(b[0]), sum));
}

/* Words have values relative to a row's unit; here units are 1. */
static float twin(const float *a, const float *b, int64_t K) {
    float total = 0;
    for (int64_t first = 0; first < K; first += STEP) {
        const int64_t end = oct_min_i64(first + STEP, K);
        float step = 0;
        for (int64_t piece = first; piece < end; piece += PIECE) {
            const int64_t piece_end = oct_min_i64(piece + PIECE, end);
            float sum = 0;
            for (int64_t k = piece; k < piece_end; k += 2)
                sum = add_pair(sum, a + k, b + k, k + 1 < piece_end);
            step = step + sum;
        }
        total = first == 0 ? step : total + step;
    }
    return total;
}

static void decode_all(test_operand *t, int64_t rows, int64_t K) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < K; k++)
            t->decoded[r * K + k] = decode(&t->operand, r, k);
}

/* 8-bit operands with a scale of 1, in any format and layout. */
static void for_each_case(void (*check)(test_problem *t, int64_t i)) {
    static const operand_spec kinds[] = {{OCT_HIF8, OCT_K_CONTIGUOUS, OCT_SCALING_TENSOR, 0},
                                         {OCT_E4M3, OCT_K_STRIDED, OCT_SCALING_TENSOR, 0},
                                         {OCT_E5M2, OCT_K_CONTIGUOUS, OCT_SCALING_TENSOR, 0},
                                         {OCT_E4M3, OCT_K_CONTIGUOUS, OCT_SCALING_TENSOR, 0}};
    static const int64_t lengths[] = {1, 2, 31, 64, 65, 511, 512, 513, 1100, 2048, 2049, 4700};
    for (int64_t i = 0; i < 48; i++) {
        problem_spec s = {.M = i % 2 ? 9 + i : 33 + i % 11,
                          .N = 1 + i * 7 % 70,
                          .K = lengths[i % 12],
                          .a = kinds[i % 4],
                          .b = kinds[i / 12],
                          .fill = ORDINARY,
                          .c_dtype = OCT_F32,
                          .stream = 990000 + (uint64_t)i * 100};
        test_problem t = make_problem(&s);
        *(float *)(void *)t.a.scales.data = *(float *)(void *)t.b.scales.data = 1;
        decode_all(&t.a, s.M, s.K);
        decode_all(&t.b, s.N, s.K);
        check(&t, i);
        free_problem(&t);
    }
}

/* bf16 operands of every flavour: one has numbers near 1, since nothing is said of overflow within
 * a sum. */
static void for_each_bf16_case(void (*check)(test_problem *t, int64_t i)) {
    static const flavour flavours[] = {GAUSSIAN, TINY, WITH_NANS, ZEROS, WIDE};
    static const int64_t shapes[][3] = {{1, 1, 1},    {40, 33, 31},  {1, 70, 64},   {33, 65, 33},
                                        {64, 20, 97}, {70, 40, 513}, {12, 34, 2100}};
    for (int64_t i = 0; i < 5 * 7 * 4; i++) {
        problem_spec s = {.M = shapes[i % 7][0],
                          .N = shapes[i % 7][1],
                          .K = shapes[i % 7][2],
                          .a = specs[i & 1 ? 1 : 3],
                          .b = specs[i & 2 ? 1 : 3],
                          .c_dtype = OCT_F32,
                          .where = (placement)(i % N_PLACEMENTS),
                          .stream = 995000 + (uint64_t)i * 100};
        test_problem t = make_problem(&s);
        hostile_fill(t.a.data.data, OCT_BF16, (int64_t)t.a.data.n_bytes / 2, flavours[i / 7 % 5],
                     s.stream + 50);
        decode_all(&t.a, s.M, s.K);
        check(&t, i);
        free_problem(&t);
    }
}

static float twin_at(const test_problem *t, int64_t i, int64_t j) {
    const int64_t K = t->problem.K;
    return twin(t->a.decoded + i * K, t->b.decoded + j * K, K);
}

static void check_twin(test_problem *t, int64_t i) {
    const oct_gemm_problem *p = &t->problem;
    (void)i;
    for (int64_t r = 0; r < p->M; r++)
        for (int64_t j = 0; j < p->N; j++)
            ((float *)p->c)[r * p->ld_c + j] = twin_at(t, r, j);
    const error_sums sums = check_bound(t, "scalar twin of vdpbf16ps");
    if (p->M * p->N > 64)
        check_whole(&sums, p->K, "scalar twin of vdpbf16ps");
}

static void given_any_cpu_the_arithmetic_of_bf16_pairs_meets_the_error_bound(void **state) {
    (void)state;
    for_each_case(check_twin);
}

static void check_kernels(test_problem *t, int64_t i) {
    const oct_gemm_problem *p = &t->problem;
    run_problems(&t, 1, OCT_GEMM_FAST);
    for (int64_t r = 0; r < p->M; r++)
        for (int64_t j = 0; j < p->N; j++) {
            const float expected = twin_at(t, r, j), got = ((float *)p->c)[r * p->ld_c + j];
            assert_that(expected == got || (isnan(expected) && isnan(got)),
                        "case %" PRId64 ", %" PRId64 "x%" PRId64 "x%" PRId64 ": C(%" PRId64
                        ",%" PRId64 "): expected %a, got %a",
                        i, p->M, p->N, p->K, r, j, (double)expected, (double)got);
        }
}

static void given_avx512_bf16_kernels_have_the_bits_of_their_scalar_twin(void **state) {
    (void)state;
    kernel_set sets[MAX_KERNEL_SETS];
    const size_t n_sets = product_sets(sets);
    const oct_kernels before = *oct_kernels_current();
    for (size_t k = 0; k < n_sets; k++) {
        if (strcmp(sets[k].kernels.name, "avx512+bf16") != 0)
            continue;
        oct_kernels_use(sets[k].kernels);
        for_each_case(check_kernels);
        for_each_bf16_case(check_kernels);
    }
    oct_kernels_use(before);
}

/* What is subnormal, and products and sums that would be, may be zeros: an element's error bound
 * grows by as much. */
static void check_bf16_bound(test_problem *t, int64_t i) {
    const oct_gemm_problem *p = &t->problem;
    run_problems(&t, 1, OCT_GEMM_FAST);
    for (int64_t r = 0; r < p->M; r++)
        for (int64_t j = 0; j < p->N; j++) {
            const float got = ((float *)p->c)[r * p->ld_c + j];
            double sum = 0, size = 0, flushed = 0;
            for (int64_t k = 0; k < p->K; k++) {
                const double a = (double)t->a.decoded[r * p->K + k];
                const double b = (double)t->b.decoded[j * p->K + k];
                sum += a * b;
                size += fabs(a * b);
                flushed += 0x1p-125 + (fabs(a) < 0x1p-126 || fabs(b) < 0x1p-126 ? fabs(a * b) : 0);
            }
            if (!isfinite(size)) {
                assert_that(!isfinite(got),
                            "case %" PRId64 ": C(%" PRId64 ",%" PRId64
                            "): NaN or Inf expected, got %a",
                            i, r, j, (double)got);
                continue;
            }
            const double bound = 4 * (double)p->K * 0x1p-24 * size + flushed;
            assert_that(size > 0x1p120 || fabs((double)got - sum) <= bound,
                        "case %" PRId64 ", %" PRId64 "x%" PRId64 "x%" PRId64 ": C(%" PRId64
                        ",%" PRId64 "): expected %a within %a, got %a",
                        i, p->M, p->N, p->K, r, j, sum, bound, (double)got);
        }
    assert_true(guarded_intact(&t->c));
}

static void check_bf16_of_set(const char *set) {
    (void)set;
    for_each_bf16_case(check_bf16_bound);
}

static void given_bf16_operands_every_fast_set_meets_the_error_bound(void **state) {
    (void)state;
    for_each_fast_set(check_bf16_of_set);
}

/* The bits of bf16 products are an element's own too: not those of neighbours, threads, tiles. */
static void check_bf16_is_stable(const char *set) {
    const int threads_before = oct_threads();
    problem_spec s = {.M = 330,
                      .N = 290,
                      .K = 1100,
                      .a = specs[1],
                      .b = specs[3],
                      .c_dtype = OCT_F32,
                      .stream = 998000};
    test_problem t = make_problem(&s);
    oct_threads_set(1);
    for (int64_t m = 0; m < 330; m += 32) {
        oct_gemm_problem q = t.problem;
        q.M = oct_min_i64(32, 330 - m);
        q.a.data = (const uint16_t *)q.a.data + m * q.a.ld;
        q.c = (float *)q.c + m * q.ld_c;
        void *workspace = oct_malloc(oct_gemm_workspace(&q, 1, OCT_GEMM_AUTO));
        assert_non_null(workspace);
        oct_gemm(&q, 1, OCT_GEMM_AUTO, workspace);
        oct_free(workspace);
    }
    memcpy(t.c_expected, t.c.data, t.c.n_bytes);
    for (int threads = 1; threads <= 3; threads++) {
        oct_threads_set(threads);
        run_problems(&(test_problem *){&t}, 1, OCT_GEMM_AUTO);
        check_exact(&t, set, threads);
    }
    oct_threads_set(threads_before);
    free_problem(&t);
}

static void given_bf16_operands_threads_and_tiles_change_no_bit(void **state) {
    (void)state;
    for_each_fast_set(check_bf16_is_stable);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_any_cpu_the_arithmetic_of_bf16_pairs_meets_the_error_bound),
        cmocka_unit_test(given_bf16_operands_every_fast_set_meets_the_error_bound),
        cmocka_unit_test(given_bf16_operands_threads_and_tiles_change_no_bit),
        cmocka_unit_test(given_avx512_bf16_kernels_have_the_bits_of_their_scalar_twin),
    };
    report_skipped_sets();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
