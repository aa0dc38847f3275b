/* `exact` products against their definition (kernel/gemm.h), bit for bit in every kernel set and
 * for 1, 2, 3 threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/alloc.h"
#include "base/count.h"
#include "base/thread.h"
#include "gemm_cases.h"

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
        for (uint64_t i = 0; i < OCT_COUNT(shapes); i++)
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

static void given_any_operands_exact_products_meet_the_error_bound(void **state) {
    (void)state;
    check_mode_bound(OCT_GEMM_EXACT, "exact");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_every_pair_of_operands_the_product_is_exact),
        cmocka_unit_test(given_hostile_codes_and_scales_the_product_is_exact),
        cmocka_unit_test(given_every_depth_and_thin_shapes_the_product_is_exact),
        cmocka_unit_test(given_large_problems_one_two_and_three_threads_agree),
        cmocka_unit_test(given_a_batch_each_product_is_what_it_is_alone),
        cmocka_unit_test(given_products_inside_tasks_they_are_exact_too),
        cmocka_unit_test(given_any_operands_exact_products_meet_the_error_bound),
    };
    report_skipped_sets();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
