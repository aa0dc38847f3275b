/* Small products of every kernel set and mode, in each layout and scaling, with
 * what a product ends with (C added to, bias, C in bf16), against fp64 products
 * of operands whose values come from the formats' tables (unit/exact.h).
 * test_gemm.c has the hostile and the large ones. */
#include "story.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/count.h"
#include "base/rng.h"
#include "exact.h"
#include "harness.h"
#include "kernel/gemm.h"
#include "kernel/gemm/tuning.h"

/* How an operand is stored. */
typedef struct kind {
    oct_dtype dtype;
    oct_layout layout;
    oct_scaling scaling;
} kind;

static const kind kinds[] = {
    {OCT_E4M3, OCT_K_CONTIGUOUS, OCT_SCALING_MX},   {OCT_E5M2, OCT_K_CONTIGUOUS, OCT_SCALING_MX},
    {OCT_HIF8, OCT_K_CONTIGUOUS, OCT_SCALING_ROW},  {OCT_E4M3, OCT_K_STRIDED, OCT_SCALING_TENSOR},
    {OCT_E4M3, OCT_K_STRIDED, OCT_SCALING_MX},      {OCT_HIF8, OCT_K_STRIDED, OCT_SCALING_TENSOR},
    {OCT_E5M2, OCT_K_CONTIGUOUS, OCT_SCALING_ROW},  {OCT_F32, OCT_K_CONTIGUOUS, OCT_SCALING_NONE},
    {OCT_BF16, OCT_K_STRIDED, OCT_SCALING_NONE},    {OCT_F32, OCT_K_STRIDED, OCT_SCALING_NONE},
    {OCT_BF16, OCT_K_CONTIGUOUS, OCT_SCALING_NONE},
};
enum { N_KINDS = OCT_COUNT(kinds), N_8_BIT = 7 };

typedef struct operand {
    oct_operand stored;
    void *data, *scales;
    double *values; /* (rows, K) */
} operand;

static uint32_t word(uint64_t stream, int64_t i) {
    return oct_rng_draw(31, stream, (uint64_t)i).word[0];
}

/* Writes element i of the stored matrix and returns its value without scale. */
static double store_element(operand *x, int64_t i, uint64_t stream) {
    const oct_dtype dtype = x->stored.dtype;
    float number = oct_rng_normal(32, stream, (uint64_t)i);
    if (dtype == OCT_F32) {
        memcpy((char *)x->data + i * 4, &number, 4);
        return (double)number;
    }
    if (dtype == OCT_BF16) { /* the upper half, so that no rounding is asked for */
        uint32_t bits;
        memcpy(&bits, &number, 4);
        bits &= 0xffff0000u;
        ((uint16_t *)x->data)[i] = (uint16_t)(bits >> 16);
        memcpy(&number, &bits, 4);
        return (double)number;
    }
    int code = (int)(word(stream, i) & 0xff);
    while (!isfinite(exact_value(dtype, code)) || fabs(exact_value(dtype, code)) > 448)
        code = (code + 37) & 0xff;
    ((uint8_t *)x->data)[i] = (uint8_t)code;
    return exact_value(dtype, code);
}

/* Scales of 2^-3 .. 2^4; fp32 ones aren't powers of two. */
static double scale_of(const operand *x, int64_t row, int64_t stored_row, int64_t stored_col) {
    const oct_operand *s = &x->stored;
    if (s->scaling == OCT_SCALING_NONE)
        return 1;
    if (s->scaling == OCT_SCALING_MX) {
        int64_t at = stored_row / s->block_rows * s->ld_scales + stored_col / 32;
        return ldexp(1, ((const uint8_t *)s->scales)[at] - 127);
    }
    return (double)((const float *)s->scales)[s->scaling == OCT_SCALING_ROW ? row : 0];
}

static operand make_operand(kind k, int64_t rows, int64_t K, uint64_t stream) {
    const bool strided = k.layout == OCT_K_STRIDED;
    const int64_t stored_rows = strided ? K : rows, stored_cols = strided ? rows : K;
    const int64_t n_scales = (stored_rows + 1) * (stored_cols / 32 + 1);
    operand x = {.data = oct_malloc_array((size_t)(rows * K) + 1, 4),
                 .scales = oct_malloc_array((size_t)(n_scales + rows), 4),
                 .values = oct_malloc_array((size_t)(rows * K) + 1, sizeof(double))};
    x.stored = (oct_operand){.dtype = k.dtype,
                             .layout = k.layout,
                             .data = x.data,
                             .ld = stored_cols,
                             .scaling = k.scaling,
                             .scales = x.scales,
                             .ld_scales = oct_ceil_div(stored_cols, 32),
                             .block_rows = strided ? 32 : 1};
    for (int64_t i = 0; i < n_scales + rows; i++) {
        uint32_t draw = word(stream + 1, i);
        if (k.scaling == OCT_SCALING_MX)
            ((uint8_t *)x.scales)[i] = (uint8_t)(124 + draw % 8);
        else
            ((float *)x.scales)[i] = ldexpf(1 + (float)(draw % 64) / 64, (int)(draw >> 8) % 8 - 3);
    }
    for (int64_t r = 0; r < stored_rows; r++)
        for (int64_t c = 0; c < stored_cols; c++) {
            int64_t row = strided ? c : r, at = strided ? r : c;
            double value = store_element(&x, r * stored_cols + c, stream);
            x.values[row * K + at] = value * scale_of(&x, row, r, c);
        }
    return x;
}

static void free_operand(operand *x) {
    oct_free(x->data);
    oct_free(x->scales);
    oct_free(x->values);
}

static float load(const oct_gemm_problem *p, int64_t i) {
    uint32_t bits;
    float x;
    if (p->c_dtype == OCT_F32)
        return ((const float *)p->c)[i];
    bits = (uint32_t)((const uint16_t *)p->c)[i] << 16;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* C before the product: small whole numbers, exact in bf16. */
static float earlier(int64_t i) {
    return (float)(i % 13 - 6);
}

static void fill_c(const oct_gemm_problem *p) {
    for (int64_t i = 0; i < p->M * p->ld_c; i++) {
        float x = earlier(i);
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        if (p->c_dtype == OCT_F32)
            ((float *)p->c)[i] = x;
        else
            ((uint16_t *)p->c)[i] = (uint16_t)(bits >> 16);
    }
}

static void check_c(const oct_gemm_problem *p, const operand *a, const operand *b,
                    const char *set) {
    for (int64_t i = 0; i < p->M; i++)
        for (int64_t j = 0; j < p->ld_c; j++) {
            double sum = 0, size = 0, before = (double)earlier(i * p->ld_c + j);
            double got = (double)load(p, i * p->ld_c + j);
            if (j >= p->N) {
                assert_true(got == before); /* beside C */
                continue;
            }
            for (int64_t k = 0; k < p->K; k++) {
                double product = a->values[i * p->K + k] * b->values[j * p->K + k];
                sum += product;
                size += fabs(product);
            }
            double bound = 4 * (double)p->K * 0x1p-24 * size;
            double added = p->accumulate == OCT_ADD_TO_OUTPUT ? before : 0;
            double bias = p->bias ? (double)p->bias[j] : 0, expected = sum + added + bias;
            bound += 0x1p-22 * (fabs(sum) + fabs(added) + fabs(bias));
            if (p->c_dtype == OCT_BF16)
                bound += 0x1p-8 * (fabs(expected) + bound);
            assert_that(fabs(got - expected) <= bound,
                        "%s: %" PRId64 "x%" PRId64 "x%" PRId64
                        ", A %s layout %d scaling %d, B %s layout %d scaling %d, C %s, add %d, "
                        "bias %d: C(%" PRId64 ",%" PRId64 ") is %g, expected %g within %g",
                        set, p->M, p->N, p->K, oct_dtype_name(p->a.dtype), p->a.layout,
                        p->a.scaling, oct_dtype_name(p->b.dtype), p->b.layout, p->b.scaling,
                        oct_dtype_name(p->c_dtype), p->accumulate, p->bias != NULL, i, j, got,
                        expected, bound);
        }
}

static void check_product(const kind *a_kind, const kind *b_kind, const int64_t shape[3], int end,
                          oct_gemm_mode mode, const char *set) {
    const int64_t M = shape[0], N = shape[1], K = shape[2];
    operand a = make_operand(*a_kind, M, K, 100), b = make_operand(*b_kind, N, K, 200);
    float bias[128];
    for (int64_t j = 0; j < N; j++)
        bias[j] = (float)(j % 7) * 40 - 100;
    oct_gemm_problem p = {.M = M,
                          .N = N,
                          .K = K,
                          .a = a.stored,
                          .b = b.stored,
                          .c_dtype = end & 1 ? OCT_BF16 : OCT_F32,
                          .ld_c = N + 3,
                          .accumulate = end & 2 ? OCT_ADD_TO_OUTPUT : OCT_OVERWRITE,
                          .bias = end & 4 ? bias : NULL};
    p.c = oct_malloc_array((size_t)(M * p.ld_c), sizeof(float));
    fill_c(&p);
    void *workspace = oct_malloc(oct_gemm_workspace(&p, 1, mode));
    oct_gemm(&p, 1, mode, workspace);
    check_c(&p, &a, &b, set);
    oct_free(workspace);
    oct_free(p.c);
    free_operand(&a);
    free_operand(&b);
}

/* Each pair of kinds, with shapes and ends in turn. */
static void check_mode(const kernel_set *set, oct_gemm_mode mode, int n_kinds) {
    static const int64_t shapes[][3] = {{1, 5, 70},   {33, 65, 40}, {8, 64, 130}, {2, 70, 33},
                                        {17, 33, 31}, {5, 40, 300}, {40, 70, 64}};
    enum { N_SHAPES = OCT_COUNT(shapes) };
    oct_kernels_use(set->kernels);
    if (!oct_gemm_supports(mode))
        return;
    for (int a = 0, turn = 0; a < n_kinds; a++)
        for (int b = 0; b < n_kinds; b++, turn++) {
            check_product(&kinds[a], &kinds[b], shapes[turn % N_SHAPES], turn % 8, mode, set->name);
            check_product(&kinds[a], &kinds[b], shapes[(turn + 3) % N_SHAPES], (turn + 5) % 8, mode,
                          set->name);
        }
}

static void for_each_set(oct_gemm_mode mode, int n_kinds) {
    kernel_set sets[MAX_KERNEL_SETS];
    const size_t n_sets = kernel_sets(sets);
    const oct_kernels before = *oct_kernels_current();
    int n_run = 0;
    for (size_t s = 0; s < n_sets; s++) {
        bool known = mode == OCT_GEMM_EXACT && s > 0 &&
                     oct_gemm_exact_kernels(sets[s].kernels.gemm) ==
                         oct_gemm_exact_kernels(sets[s - 1].kernels.gemm);
        if (known)
            continue;
        check_mode(&sets[s], mode, n_kinds);
        n_run += oct_gemm_supports(mode);
    }
    oct_kernels_use(before);
    if (n_run == 0) {
        printf("SKIPPED: %s has no fast product\n", oct_cpu_model_name());
        skip();
    }
}

static void given_small_operands_of_every_kind_aligned_products_are_right(void **state) {
    (void)state;
    for_each_set(OCT_GEMM_FAST, N_8_BIT);
}

static void given_small_operands_of_every_kind_exact_products_are_right(void **state) {
    (void)state;
    for_each_set(OCT_GEMM_EXACT, N_KINDS);
}

/* Four chunks of 512 and a rest, whose sums are added. */
static void given_a_deep_product_every_part_of_it_counts(void **state) {
    (void)state;
    static const int64_t shape[] = {17, 33, 2300}, few[] = {3, 64, 4200}, many[] = {1300, 17, 600};
    kernel_set sets[MAX_KERNEL_SETS];
    const size_t n_sets = kernel_sets(sets);
    const oct_kernels before = *oct_kernels_current();
    for (size_t s = 0; s < n_sets; s++) {
        oct_kernels_use(sets[s].kernels);
        for (int end = 0; end < 4; end += 2) {
            check_product(&kinds[0], &kinds[1], shape, end, OCT_GEMM_AUTO, sets[s].name);
            check_product(&kinds[2], &kinds[0], few, end, OCT_GEMM_AUTO, sets[s].name);
            if (end == 0 && oct_gemm_supports(OCT_GEMM_FAST)) /* tiles share panels of B */
                check_product(&kinds[0], &kinds[1], many, end, OCT_GEMM_AUTO, sets[s].name);
            check_product(&kinds[7], &kinds[8], shape, end, OCT_GEMM_AUTO, sets[s].name);
        }
    }
    oct_kernels_use(before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_small_operands_of_every_kind_aligned_products_are_right),
        cmocka_unit_test(given_small_operands_of_every_kind_exact_products_are_right),
        cmocka_unit_test(given_a_deep_product_every_part_of_it_counts),
    };
    report_skipped_sets();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
