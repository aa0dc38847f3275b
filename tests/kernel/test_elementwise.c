/* Every set's elementwise kernels against the reference set, bit for bit, on hostile inputs, tails
 * and alignments; and the reference against the rules where they are easy to state. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <octet/format.h>
#include <stdio.h>
#include <string.h>

#include "base/count.h"
#include "harness.h"
#include "kernel/elementwise.h"

/* Tails of every register width, and rows around a chunk of sums. */
static const int64_t sizes[] = {0,  1,  2,  4,  7,  8,   15,   16,   17,   30,  31,
                                32, 33, 63, 64, 66, 100, 2047, 2048, 2049, 4100};
enum { N_SIZES = OCT_COUNT(sizes) };

/* What a kernel may read and write: n elements each, in guarded memory of its own. */
typedef struct operands {
    int64_t n;
    oct_source a, b, c;
    oct_target x, y;
    const float *w, *u;
    float *f, *g, *h;
    double numbers[4]; /* returned by the kernel */
} operands;

enum { N_DENSE = 5, N_FLOATS = 5, N_BUFFERS = N_DENSE + N_FLOATS };

typedef struct ground {
    guarded memory[N_BUFFERS];
    operands o;
} ground;

static ground make_ground(int64_t n, oct_dtype dtype, flavour kind, placement where) {
    ground s = {.o.n = n};
    unsigned char *at[N_BUFFERS];
    for (int i = 0; i < N_BUFFERS; i++) {
        oct_dtype type = i < N_DENSE ? dtype : OCT_F32;
        size_t size = oct_dtype_bytes(type);
        s.memory[i] = guarded_alloc((size_t)n * size, size, where);
        at[i] = s.memory[i].data;
        hostile_fill(at[i], type, n, kind, (uint64_t)i);
    }
    s.o.a = (oct_source){at[0], dtype};
    s.o.b = (oct_source){at[1], dtype};
    s.o.c = (oct_source){at[2], dtype};
    s.o.x = (oct_target){at[3], dtype};
    s.o.y = (oct_target){at[4], dtype};
    s.o.w = (const float *)(void *)at[5];
    s.o.u = (const float *)(void *)at[6];
    s.o.f = (float *)(void *)at[7];
    s.o.g = (float *)(void *)at[8];
    s.o.h = (float *)(void *)at[9];
    return s;
}

static void free_ground(ground *s) {
    for (int i = 0; i < N_BUFFERS; i++)
        guarded_free(&s->memory[i]);
}

typedef void (*run_kernel)(const oct_elementwise_kernels *k, operands *o);

static void run_maps(const oct_elementwise_kernels *k, operands *o) {
    k->add(o->a, o->b, o->n, o->x);
    k->scale(o->c, -0.37f, o->n, o->y);
    k->exp(o->w, o->n, o->f);
}

static void run_mixed_dtypes(const oct_elementwise_kernels *k, operands *o) {
    k->cast(o->a, o->n, (oct_target){o->f, OCT_F32});
    k->cast((oct_source){o->w, OCT_F32}, o->n, o->x);
    k->add((oct_source){o->g, OCT_F32}, o->b, o->n, (oct_target){o->g, OCT_F32});
}

static void run_swiglu(const oct_elementwise_kernels *k, operands *o) {
    k->swiglu(o->a, o->b, o->n, o->x);
}

static void run_swiglu_backward(const oct_elementwise_kernels *k, operands *o) {
    k->swiglu_backward(o->a, o->b, o->c, o->n, o->x, o->y);
}

static void run_norm(const oct_elementwise_kernels *k, operands *o) {
    o->numbers[0] = (double)k->rmsnorm(o->a, o->w, 1e-5f, o->n, o->x);
}

static void run_norm_backward(const oct_elementwise_kernels *k, operands *o) {
    k->rmsnorm_backward(o->a, o->b, o->w, 0.7f, o->n, o->x, OCT_ADD_TO_OUTPUT, o->f);
    k->rmsnorm_backward(o->a, o->b, o->w, 0.7f, o->n, o->y, OCT_OVERWRITE, NULL);
    k->rmsnorm_backward(o->a, o->b, o->w, 0.7f, o->n, (oct_target){NULL, o->y.dtype}, OCT_OVERWRITE,
                        o->g);
}

static void run_rope(const oct_elementwise_kernels *k, operands *o) {
    int64_t dims = o->n / 2 * 2;
    k->rope(o->x, o->w, o->u, 1, OCT_ROPE_INTERLEAVED, dims);
    k->rope(o->y, o->w, o->u, -1, OCT_ROPE_HALVES, dims);
}

static void run_sums(const oct_elementwise_kernels *k, operands *o) {
    o->numbers[0] = k->sum_of_squares(o->w, o->n);
    o->numbers[1] = (double)k->dot(o->a, o->b, o->n);
    o->numbers[2] = (double)k->max(o->a, o->n);
    o->numbers[3] = k->sum_exp(o->b, o->n, 0.25f);
}

static void run_softmax(const oct_elementwise_kernels *k, operands *o) {
    float max = -INFINITY, sum = 0;
    int64_t half = o->n / 2;
    o->numbers[0] = (double)k->softmax_block(o->f, half, o->n, 0.3f, &max, &sum);
    o->numbers[1] = (double)k->softmax_block(o->g, o->n, o->n, 0.3f, &max, &sum);
    o->numbers[2] = (double)max;
    o->numbers[3] = (double)sum;
}

static void run_softmax_backward(const oct_elementwise_kernels *k, operands *o) {
    k->softmax_backward(o->f, o->g, o->n - o->n / 3, o->n, 0.3f, 1.5f, 0.2f);
}

static void run_cross_entropy(const oct_elementwise_kernels *k, operands *o) {
    if (o->n > 0)
        k->cross_entropy_gradient(o->x, o->n, 1.25f, 0.01f, o->n / 2, 0.125f);
}

static void run_adam(const oct_elementwise_kernels *k, operands *o) {
    const oct_adam_factors factors = {.grad_scale = 0.5f,
                                      .l2 = 0.01f,
                                      .keep = 0.99f,
                                      .beta2 = 0.95f,
                                      .new1 = 0.1f,
                                      .new2 = 0.05f,
                                      .step_size = 1e-3f,
                                      .inv_sqrt_bias2 = 2,
                                      .eps = 1e-8f};
    o->numbers[0] = (double)k->adam(&factors, o->n, o->w, o->f, o->g, o->h);
}

static const struct {
    const char *name;
    run_kernel run;
} kernels[] = {{"maps", run_maps},
               {"mixed dtypes", run_mixed_dtypes},
               {"swiglu", run_swiglu},
               {"swiglu backward", run_swiglu_backward},
               {"rmsnorm", run_norm},
               {"rmsnorm backward", run_norm_backward},
               {"rope", run_rope},
               {"sums", run_sums},
               {"softmax block", run_softmax},
               {"softmax backward", run_softmax_backward},
               {"cross-entropy", run_cross_entropy},
               {"adam", run_adam}};
enum { N_KERNELS = OCT_COUNT(kernels) };

/* Which NaN comes out of an operation on two isn't defined; that one does, is. */
static bool same_element(const unsigned char *a, const unsigned char *b, oct_dtype dtype) {
    if (dtype == OCT_F32) {
        float x, y;
        memcpy(&x, a, sizeof x);
        memcpy(&y, b, sizeof y);
        return same_float(x, y);
    }
    uint16_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return same_float(oct_bf16_decode(x), oct_bf16_decode(y));
}

static bool same_number(double a, double b) {
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

static void compare(const ground *got, const ground *expected, const char *what) {
    for (int i = 0; i < N_BUFFERS; i++) {
        oct_dtype type = i < N_DENSE ? got->o.a.dtype : OCT_F32;
        size_t size = oct_dtype_bytes(type);
        assert_that(guarded_intact(&got->memory[i]), "%s wrote outside buffer %d", what, i);
        for (int64_t e = 0; e < got->o.n; e++)
            assert_that(same_element(got->memory[i].data + (size_t)e * size,
                                     expected->memory[i].data + (size_t)e * size, type),
                        "%s differs in element %" PRId64 " of buffer %d", what, e, i);
    }
    for (int i = 0; i < 4; i++)
        assert_that(same_number(got->o.numbers[i], expected->o.numbers[i]),
                    "%s returns %.17g, not %.17g", what, got->o.numbers[i], expected->o.numbers[i]);
}

static void check_kernel(const kernel_set *set, int kernel, int64_t n, oct_dtype dtype,
                         flavour kind, placement where) {
    ground expected = make_ground(n, dtype, kind, AT_PAGE_END);
    ground got = make_ground(n, dtype, kind, where);
    kernels[kernel].run(&oct_elementwise_kernels_ref, &expected.o);
    kernels[kernel].run(set->kernels.elementwise, &got.o);
    char what[128];
    snprintf(what, sizeof what, "%s of set %s, n %" PRId64 ", dtype %d, flavour %d",
             kernels[kernel].name, set->name, n, (int)dtype, (int)kind);
    compare(&got, &expected, what);
    free_ground(&got);
    free_ground(&expected);
}

static void given_hostile_inputs_every_set_gives_the_references_bits(void **state) {
    (void)state;
    report_skipped_sets();
    kernel_set sets[MAX_KERNEL_SETS];
    size_t n_sets = kernel_sets(sets);
    for (size_t s = 0; s < n_sets; s++) {
        if (s > 0 && sets[s].kernels.elementwise == sets[s - 1].kernels.elementwise)
            continue;
        for (int kernel = 0; kernel < N_KERNELS; kernel++)
            for (int i = 0; i < N_SIZES; i++)
                for (int kind = 0; kind < N_FLAVOURS; kind++)
                    check_kernel(&sets[s], kernel, sizes[i], kind % 2 ? OCT_F32 : OCT_BF16,
                                 (flavour)((kind + i) % N_FLAVOURS),
                                 (placement)((kind + i) % N_PLACEMENTS));
    }
}

static void given_every_dtype_and_placement_each_size_gives_the_references_bits(void **state) {
    (void)state;
    kernel_set sets[MAX_KERNEL_SETS];
    size_t n_sets = kernel_sets(sets);
    for (int kernel = 0; kernel < N_KERNELS; kernel++)
        for (int i = 0; i < N_SIZES; i++)
            for (int where = 0; where < N_PLACEMENTS; where++)
                for (int bf16 = 0; bf16 < 2; bf16++)
                    check_kernel(&sets[n_sets - 1], kernel, sizes[i], bf16 ? OCT_BF16 : OCT_F32,
                                 GAUSSIAN, (placement)where);
}

/* ulp of the fp32 that is nearest to y. */
static double ulp_of(double y) {
    int exponent;
    frexp(y, &exponent);
    return ldexp(1, (exponent < -125 ? -125 : exponent) - 24);
}

static void check_exp(const oct_elementwise_kernels *k, float x) {
    float y;
    k->exp(&x, 1, &y);
    double expected = exp((double)x);
    if (isnan(x)) {
        assert_true(isnan(y));
    } else if (isinf((float)expected)) {
        assert_true(y == INFINITY);
    } else if (!(fabs((double)y - expected) <= 2 * ulp_of(expected))) {
        fail_msg("exp(%.9g) is %.9g, not %.9g", (double)x, (double)y, expected);
    }
}

static void given_any_float_exp_is_within_two_ulp(void **state) {
    (void)state;
    const float edges[] = {0,      -0.0f,  1,       -1,     88.72283f, 88.722839f,
                           88.73f, -87.4f, -103.9f, -104,   -103.97f,  -1e30f,
                           1e30f,  NAN,    -NAN,    1e-45f, INFINITY,  -INFINITY};
    kernel_set sets[MAX_KERNEL_SETS];
    size_t n_sets = kernel_sets(sets);
    for (size_t s = 0; s < n_sets; s++) {
        const oct_elementwise_kernels *k = sets[s].kernels.elementwise;
        for (size_t i = 0; i < OCT_COUNT(edges); i++)
            check_exp(k, edges[i]);
        for (uint32_t bits = 0; bits < 0xff000000u; bits += 0x7fff) { /* all exponents and signs */
            float x;
            memcpy(&x, &bits, sizeof x);
            check_exp(k, x);
        }
    }
    float zero = 0, one;
    oct_elementwise_kernels_ref.exp(&zero, 1, &one);
    assert_true(one == 1);
}

static void given_floats_a_bf16_store_rounds_to_nearest_even_and_keeps_nan(void **state) {
    (void)state;
    kernel_set sets[MAX_KERNEL_SETS];
    size_t n_sets = kernel_sets(sets);
    enum { N = 1000 };
    float x[N];
    uint16_t y[N];
    for (int kind = 0; kind < N_FLAVOURS; kind++) {
        hostile_fill(x, OCT_F32, N, (flavour)kind, 3);
        for (size_t s = 0; s < n_sets; s++) {
            sets[s].kernels.elementwise->cast((oct_source){x, OCT_F32}, N,
                                              (oct_target){y, OCT_BF16});
            for (int i = 0; i < N; i++)
                assert_int_equal(y[i], oct_bf16_encode(x[i]));
        }
    }
}

static void given_a_masked_row_the_softmax_is_zero_and_leaves_max_and_sum(void **state) {
    (void)state;
    float x[5] = {NAN, 1, 2, 3, INFINITY}, max = 0.5f, sum = 2;
    assert_true(oct_elementwise_kernels_ref.softmax_block(x, 0, 5, 1, &max, &sum) == 1);
    for (int i = 0; i < 5; i++)
        assert_true(x[i] == 0);
    assert_true(max == 0.5f && sum == 2);
}

/* Arrays of one step in which nothing but an element may be odd. */
typedef struct adam_arrays {
    float grad[100], value[100], m[100], v[100];
} adam_arrays;

static unsigned adam_flaws(const oct_elementwise_kernels *k, int64_t n, adam_arrays a) {
    const oct_adam_factors factors = {.grad_scale = 1,
                                      .keep = 1,
                                      .beta2 = 0.95f,
                                      .new1 = 0.1f,
                                      .new2 = 0.05f,
                                      .step_size = 1e-3f,
                                      .inv_sqrt_bias2 = 1,
                                      .eps = 1e-8f};
    return k->adam(&factors, n, a.grad, a.value, a.m, a.v);
}

static void given_one_number_that_is_not_finite_in_any_place_adam_tells_where(void **state) {
    (void)state;
    kernel_set sets[MAX_KERNEL_SETS];
    size_t n_sets = kernel_sets(sets);
    const float odd[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (size_t s = 0; s < n_sets; s++)
        for (int i = 0; i < N_SIZES && sizes[i] <= 100; i++) {
            const oct_elementwise_kernels *k = sets[s].kernels.elementwise;
            adam_arrays a = {0};
            for (int64_t e = 0; e < 100; e++) {
                a.grad[e] = e % 3 ? 1e15f : -0.0f;
                a.value[e] = e % 2 ? 3e38f : -3e38f;
                a.m[e] = e % 2 ? 1e30f : -1e30f;
                a.v[e] = e % 2 ? 3.4e38f : 1;
            }
            assert_int_equal(adam_flaws(k, sizes[i], a), 0);
            for (int64_t e = 0; e < sizes[i]; e++) {
                adam_arrays b = a;
                b.grad[e] = b.v[e] = 0;
                b.m[e] = 1e34f; /* over eps alone */
                assert_int_equal(adam_flaws(k, sizes[i], b), OCT_ADAM_VALUE);
                b = a;
                b.v[e] = INFINITY; /* the update is nothing, the value stays */
                assert_int_equal(adam_flaws(k, sizes[i], b), OCT_ADAM_V);
                b.v[e] = 1;
                b.m[e] = odd[e % 4];
                assert_int_equal(adam_flaws(k, sizes[i], b), OCT_ADAM_VALUE | OCT_ADAM_M);
            }
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_hostile_inputs_every_set_gives_the_references_bits),
        cmocka_unit_test(given_every_dtype_and_placement_each_size_gives_the_references_bits),
        cmocka_unit_test(given_any_float_exp_is_within_two_ulp),
        cmocka_unit_test(given_floats_a_bf16_store_rounds_to_nearest_even_and_keeps_nan),
        cmocka_unit_test(given_one_number_that_is_not_finite_in_any_place_adam_tells_where),
        cmocka_unit_test(given_a_masked_row_the_softmax_is_zero_and_leaves_max_and_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
