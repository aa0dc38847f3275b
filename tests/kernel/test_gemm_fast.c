/* `fast` products: within the error bound of docs/numerics.md, and the same bits whatever else
 * runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/count.h"
#include "base/thread.h"
#include "gemm_cases.h"

static void given_any_operands_fast_products_meet_the_error_bound(void **state) {
    (void)state;
    check_mode_bound(OCT_GEMM_FAST, "fast");
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
    for_each_fast_set(check_tiny_scales);
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

static void given_few_rows_fast_products_meet_the_error_bound(void **state) {
    (void)state;
    for_each_fast_set(check_few_rows);
}

/* Fast sums have no definition to the bit, but threads and neighbours must not change them. */
static void check_fast_is_stable(const char *set) {
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
    for (uint64_t i = 0; i < OCT_COUNT(shapes); i++) {
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
    for_each_fast_set(check_rounded_sums);
}

static void given_fast_products_threads_and_batches_change_no_bit(void **state) {
    (void)state;
    const int threads_before = oct_threads();
    for_each_fast_set(check_fast_is_stable);
    oct_threads_set(threads_before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_any_operands_fast_products_meet_the_error_bound),
        cmocka_unit_test(given_tiny_scales_few_rows_meet_the_error_bound),
        cmocka_unit_test(given_few_rows_fast_products_meet_the_error_bound),
        cmocka_unit_test(given_a_sum_that_is_rounded_first_it_is_the_plain_products),
        cmocka_unit_test(given_fast_products_threads_and_batches_change_no_bit),
    };
    report_skipped_sets();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
