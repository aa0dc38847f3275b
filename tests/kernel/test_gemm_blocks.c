/* How `fast` products are cut, and what their kernels do with codes of every kind: blocks of a
 * large product are what they are alone, and a workspace is large enough for smaller problems. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/count.h"
#include "format/fp8.h"
#include "gemm_cases.h"
#include "kernel/gemm/tuning.h"

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
                                "%s: %" PRId64 "x%" PRId64 "x%" PRId64 ", add %d: C(%" PRId64
                                ",%" PRId64 "): expected %a, got %a",
                                set, p->M, p->N, p->K, p->accumulate, (i + r), (j + k),
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
    for (uint64_t i = 0; i < OCT_COUNT(shapes); i++)
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
    for_each_fast_set(check_large_outputs);
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
            if (!isfinite(oct_fp8_value(format, code)))
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
        a_codes[k * a.operand.ld + k] = oct_fp8_code(OCT_E4M3, 1);
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
                        "%s, %s, %" PRId64 "x%" PRId64 "x%" PRId64 ": B(%" PRId64 ",%" PRId64
                        ") = %a came out as %a",
                        set->name, oct_dtype_name(spec.dtype), n_rows, N, K, j, k,
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
    if (!set->kernels.features.amx_bf16 && !set->kernels.features.avx512_bf16)
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
    large->a.dtype = large->b.dtype = bits & 8 ? bits & 128 ? OCT_BF16 : OCT_F32 : OCT_E4M3;
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
                        "%s: %" PRId64 " problems, the first of %" PRId64 "x%" PRId64 "x%" PRId64
                        ", need more than those of %" PRId64 "x%" PRId64 "x%" PRId64,
                        sets[k].name, n, small[0].M, small[0].N, small[0].K, large[0].M, large[0].N,
                        large[0].K);
        }
    }
    oct_kernels_use(before);
}

/* A problem with K contiguous in both, for choosing alone. */
static oct_gemm_problem rows_by(int64_t M, oct_dtype a, oct_dtype b) {
    return (oct_gemm_problem){.M = M, .N = 64, .K = 64, .a.dtype = a, .b.dtype = b};
}

static const oct_gemm_kernels *chosen(const oct_gemm_tuning *level, oct_gemm_problem p) {
    return oct_gemm_choose(level, &p, OCT_GEMM_AUTO)->kernels;
}

/* What docs/numerics.md says of 8-bit operands and rows of A. */
static void given_few_rows_the_level_says_whose_kernels_they_take(void **state) {
    (void)state;
    kernel_set sets[MAX_KERNEL_SETS];
    const size_t n_sets = product_sets(sets);
    for (size_t s = 0; s < n_sets; s++) {
        const oct_gemm_tuning *level = sets[s].kernels.gemm;
        const oct_gemm_kernels *exact = oct_gemm_exact_kernels(level);
        const oct_gemm_kernels *many = chosen(level, rows_by(17, OCT_E4M3, OCT_E4M3));
        const bool amx = sets[s].kernels.features.amx_bf16;
        const int64_t few = amx ? 16 : 8;
        oct_gemm_problem strided = rows_by(1, OCT_E4M3, OCT_E4M3);
        strided.b.layout = OCT_K_STRIDED;
        assert_ptr_equal(chosen(level, rows_by(1, OCT_F32, OCT_E4M3)), exact);
        assert_ptr_equal(chosen(level, rows_by(1, OCT_E4M3, OCT_BF16)), exact);
        assert_ptr_equal(chosen(level, strided), many);
        assert_true((chosen(level, rows_by(1, OCT_BF16, OCT_BF16)) != exact) ==
                    (amx || sets[s].kernels.features.avx512_bf16));
        assert_true((many != exact) == oct_gemm_has_fast(level));
        if (!oct_gemm_has_fast(level))
            continue;
        const oct_gemm_kernels *one = chosen(level, rows_by(1, OCT_E4M3, OCT_HIF8));
        const oct_gemm_kernels *some = chosen(level, rows_by(few, OCT_E4M3, OCT_E4M3));
        assert_ptr_equal(oct_gemm_choose(level, &strided, OCT_GEMM_EXACT)->kernels, exact);
        assert_true(one != many && some != many && (one != some) == amx);
        assert_true(one->MR >= 2 && some->MR >= few);
        assert_ptr_equal(chosen(level, rows_by(2, OCT_HIF8, OCT_E4M3)), one);
        assert_ptr_equal(chosen(level, rows_by(2, OCT_E4M3, OCT_E5M2)), some);
        assert_ptr_equal(chosen(level, rows_by(3, OCT_E4M3, OCT_E4M3)), some);
        assert_ptr_equal(chosen(level, rows_by(few + 1, OCT_E5M2, OCT_E5M2)), many);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_few_rows_the_level_says_whose_kernels_they_take),
        cmocka_unit_test(given_large_outputs_each_block_is_what_it_is_alone),
        cmocka_unit_test(given_codes_of_every_kind_kernels_that_do_not_round_hold_their_values),
        cmocka_unit_test(given_smaller_problems_the_larger_ones_workspace_is_enough),
    };
    report_skipped_sets();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
