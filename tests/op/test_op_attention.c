/* Attention against a naive fp64 version and its finite differences; caches; threads. */
#include "op_support.h"

#include <stdbool.h>

#include "base/count.h"
#include "op/attention.h"

typedef struct problem {
    oct_attention_shape s;
    oct_tensor q, k, v, o, d_o, dq, dk, dv;
    float *lse;
} problem;

static int64_t stride_of(const oct_attention_shape *s) {
    return s->kv_stride ? s->kv_stride : s->past + s->S;
}

static problem make_problem(oct_arena *arena, oct_attention_shape s, oct_dtype dtype) {
    int64_t T = s.B * s.S, keys = s.B * stride_of(&s);
    int64_t qw = s.n_heads * s.qk_dim, ow = s.n_heads * s.v_dim;
    int64_t kw = s.n_kv_heads * s.qk_dim, vw = s.n_kv_heads * s.v_dim;
    problem p = {.s = s,
                 .q = test_random(arena, dtype, T, qw, 1),
                 .k = test_random(arena, dtype, keys, kw, 2),
                 .v = test_random(arena, dtype, keys, vw, 3),
                 .o = test_tensor(arena, dtype, T, ow),
                 .d_o = test_random(arena, dtype, T, ow, 4),
                 .dq = test_random(arena, dtype, T, qw, 5),
                 .dk = test_random(arena, dtype, keys, kw, 6),
                 .dv = test_random(arena, dtype, keys, vw, 7)};
    p.lse = oct_arena_alloc_array(arena, (size_t)(s.n_heads * T), sizeof(float));
    assert_non_null(p.lse);
    return p;
}

/* Whether query i of sequence b sees key j: the mask, element by element. */
static bool sees(const oct_attention_shape *s, int64_t b, int64_t i, int64_t j) {
    int64_t at = s->past + i;
    return j <= at && (!s->window || at - j < s->window) &&
           (!s->first_keys || j >= s->first_keys[b * s->S + i]);
}

/* o and lse in fp64, one query of one head. */
static void naive_query(const oct_attention_shape *s, const double *q, const double *k,
                        const double *v, int64_t b, int64_t i, int64_t h, double *o, double *lse) {
    int64_t g = h / (s->n_heads / s->n_kv_heads), seen = s->past + i + 1;
    const double *query = q + ((b * s->S + i) * s->n_heads + h) * s->qk_dim;
    double max = -INFINITY, sum = 0, scores[1024];
    for (int64_t j = 0; j < seen; j++) {
        scores[j] = -INFINITY;
        if (!sees(s, b, i, j))
            continue;
        const double *key = k + ((b * stride_of(s) + j) * s->n_kv_heads + g) * s->qk_dim;
        scores[j] = 0;
        for (int64_t d = 0; d < s->qk_dim; d++)
            scores[j] += query[d] * key[d];
        scores[j] *= (double)s->scale;
        max = fmax(max, scores[j]);
    }
    for (int64_t j = 0; j < seen; j++)
        sum += exp(scores[j] - max);
    *lse = max + log(sum);
    for (int64_t d = 0; d < s->v_dim; d++)
        o[d] = 0;
    for (int64_t j = 0; j < seen; j++)
        for (int64_t d = 0; d < s->v_dim; d++)
            o[d] += exp(scores[j] - *lse) *
                    v[((b * stride_of(s) + j) * s->n_kv_heads + g) * s->v_dim + d];
}

static void naive_forward(const oct_attention_shape *s, const double *q, const double *k,
                          const double *v, double *o, double *lse) {
    for (int64_t b = 0; b < s->B; b++)
        for (int64_t i = 0; i < s->S; i++)
            for (int64_t h = 0; h < s->n_heads; h++)
                naive_query(s, q, k, v, b, i, h, o + ((b * s->S + i) * s->n_heads + h) * s->v_dim,
                            lse + (b * s->n_heads + h) * s->S + i);
}

static double naive_objective(const oct_attention_shape *s, const double *q, const double *k,
                              const double *v, const double *d_o, double *o, double *lse) {
    naive_forward(s, q, k, v, o, lse);
    double sum = 0;
    for (int64_t i = 0; i < s->B * s->S * s->n_heads * s->v_dim; i++)
        sum += o[i] * d_o[i];
    return sum;
}

static void check_forward(oct_attention_shape s, oct_dtype dtype) {
    /* exp turns the fp32 error of a score into a relative error of its probability */
    double slack = 3e-6 * fmax(1, (double)s.scale);
    oct_arena *arena = oct_arena_create();
    problem p = make_problem(arena, s, dtype);
    double *o = test_zeros(arena, oct_tensor_elements(&p.o));
    double *lse = test_zeros(arena, s.B * s.n_heads * s.S);
    naive_forward(&s, test_values(arena, &p.q), test_values(arena, &p.k), test_values(arena, &p.v),
                  o, lse);
    size_t used = oct_arena_used_bytes(arena);
    assert_int_equal(oct_attention_forward(&s, &p.q, &p.k, &p.v, &p.o, p.lse, arena), OCT_OK);
    assert_int_equal(oct_arena_used_bytes(arena), used);
    test_close(&p.o, o, slack);
    for (int64_t i = 0; i < s.B * s.n_heads * s.S; i++)
        assert_true(fabs((double)p.lse[i] - lse[i]) <= 3e-6 * (1 + fabs(lse[i])));
    oct_arena_destroy(arena);
}

static void given_many_shapes_forward_equals_the_naive_version(void **state) {
    (void)state;
    const int64_t lengths[] = {1, 31, 64, 65, 300, 600};
    for (size_t i = 0; i < OCT_COUNT(lengths); i++) {
        int64_t S = lengths[i];
        check_forward((oct_attention_shape){2, S, 4, 2, 16, 16, 0.25f, 0, 0}, OCT_F32);
        check_forward((oct_attention_shape){1, S, 3, 3, 24, 8, 0.2f, 0, 0}, OCT_BF16);
        check_forward((oct_attention_shape){1, S, 6, 1, 7, 5, 1.5f, 0, 0}, OCT_F32);
    }
}

static void given_a_cache_new_queries_see_all_that_came_before(void **state) {
    (void)state;
    check_forward((oct_attention_shape){2, 1, 4, 2, 16, 16, 0.25f, 37, 64}, OCT_F32);
    check_forward((oct_attention_shape){3, 1, 4, 2, 16, 8, 0.25f, 600, 700}, OCT_BF16);
    check_forward((oct_attention_shape){2, 5, 4, 4, 16, 16, 0.25f, 70, 80}, OCT_BF16);
    check_forward((oct_attention_shape){1, 70, 2, 1, 16, 16, 0.25f, 500, 0}, OCT_F32);
    check_forward((oct_attention_shape){1, 1, 130, 1, 4, 4, 0.25f, 9, 0}, OCT_F32);
}

static void given_huge_scores_the_softmax_does_not_overflow(void **state) {
    (void)state;
    check_forward((oct_attention_shape){1, 70, 2, 2, 16, 16, 500.0f, 0, 0}, OCT_F32);
}

/* Analytic naive gradients in fp64, from p = softmax and ds = p (dp - delta). */
static void naive_backward(const oct_attention_shape *s, const double *q, const double *k,
                           const double *v, const double *o, const double *lse, const double *d_o,
                           double *dq, double *dk, double *dv) {
    int64_t H = s->n_heads, Hk = s->n_kv_heads, D = s->qk_dim, E = s->v_dim;
    for (int64_t b = 0; b < s->B; b++)
        for (int64_t h = 0; h < H; h++)
            for (int64_t i = 0; i < s->S; i++) {
                int64_t g = h / (H / Hk), row = (b * s->S + i) * H + h;
                double delta = 0;
                for (int64_t d = 0; d < E; d++)
                    delta += o[row * E + d] * d_o[row * E + d];
                for (int64_t j = 0; j <= i; j++) {
                    if (!sees(s, b, i, j))
                        continue;
                    int64_t key = (b * s->S + j) * Hk + g;
                    double score = 0, dp = 0;
                    for (int64_t d = 0; d < D; d++)
                        score += q[row * D + d] * k[key * D + d];
                    for (int64_t d = 0; d < E; d++)
                        dp += d_o[row * E + d] * v[key * E + d];
                    double p = exp(score * (double)s->scale - lse[(b * H + h) * s->S + i]);
                    double ds = p * (dp - delta) * (double)s->scale;
                    for (int64_t d = 0; d < D; d++) {
                        dq[row * D + d] += ds * k[key * D + d];
                        dk[key * D + d] += ds * q[row * D + d];
                    }
                    for (int64_t d = 0; d < E; d++)
                        dv[key * E + d] += p * d_o[row * E + d];
                }
            }
}

static void check_backward(oct_attention_shape s, oct_dtype dtype) {
    oct_arena *arena = oct_arena_create();
    problem p = make_problem(arena, s, dtype);
    double *q = test_values(arena, &p.q), *k = test_values(arena, &p.k);
    double *v = test_values(arena, &p.v), *d_o = test_values(arena, &p.d_o);
    double *o = test_zeros(arena, oct_tensor_elements(&p.o));
    double *lse = test_zeros(arena, s.B * s.n_heads * s.S);
    double *dq = test_zeros(arena, oct_tensor_elements(&p.q));
    double *dk = test_zeros(arena, oct_tensor_elements(&p.k));
    double *dv = test_zeros(arena, oct_tensor_elements(&p.v));
    naive_forward(&s, q, k, v, o, lse);
    naive_backward(&s, q, k, v, o, lse, d_o, dq, dk, dv);
    assert_int_equal(oct_attention_forward(&s, &p.q, &p.k, &p.v, &p.o, p.lse, arena), OCT_OK);
    size_t used = oct_arena_used_bytes(arena);
    assert_int_equal(oct_attention_backward(&s, &p.q, &p.k, &p.v, &p.o, p.lse, &p.d_o, &p.dq, &p.dk,
                                            &p.dv, arena),
                     OCT_OK);
    assert_int_equal(oct_arena_used_bytes(arena), used);
    /* delta comes from an o that was rounded to the activation's dtype */
    double slack = dtype == OCT_F32 ? 2e-5 : 2e-2;
    test_close(&p.dq, dq, slack);
    test_close(&p.dk, dk, slack);
    test_close(&p.dv, dv, slack);
    oct_arena_destroy(arena);
}

static void given_many_shapes_backward_equals_the_naive_version(void **state) {
    (void)state;
    const int64_t lengths[] = {1, 31, 64, 65, 300, 600};
    for (size_t i = 0; i < OCT_COUNT(lengths); i++) {
        int64_t S = lengths[i];
        check_backward((oct_attention_shape){2, S, 4, 2, 16, 16, 0.25f, 0, 0}, OCT_F32);
        check_backward((oct_attention_shape){1, S, 3, 3, 24, 8, 0.2f, 0, 0}, OCT_BF16);
        check_backward((oct_attention_shape){1, S, 6, 1, 7, 5, 0.5f, 0, 0}, OCT_F32);
    }
}

/* The naive gradients themselves, and ours, against central differences in fp64. */
static void check_differences(const oct_attention_shape *s, double *x, const oct_tensor *dx,
                              const double *const inputs[3], const double *d_o, double *o,
                              double *lse) {
    const double step = 1e-5;
    for (int64_t i = 0; i < oct_tensor_elements(dx); i++) {
        double kept = x[i];
        x[i] = kept + step;
        double up = naive_objective(s, inputs[0], inputs[1], inputs[2], d_o, o, lse);
        x[i] = kept - step;
        double down = naive_objective(s, inputs[0], inputs[1], inputs[2], d_o, o, lse);
        x[i] = kept;
        double expected = (up - down) / (2 * step);
        assert_true(fabs(test_get(dx, i) - expected) <= 1e-5);
    }
}

static void given_a_small_problem_gradients_equal_finite_differences(void **state) {
    (void)state;
    oct_arena *arena = oct_arena_create();
    oct_attention_shape s = {2, 9, 4, 2, 6, 4, 0.4f, 0, 0};
    problem p = make_problem(arena, s, OCT_F32);
    double *q = test_values(arena, &p.q), *k = test_values(arena, &p.k);
    double *v = test_values(arena, &p.v), *d_o = test_values(arena, &p.d_o);
    double *o = test_zeros(arena, oct_tensor_elements(&p.o));
    double *lse = test_zeros(arena, s.B * s.n_heads * s.S);
    const double *inputs[3] = {q, k, v};
    assert_int_equal(oct_attention_forward(&s, &p.q, &p.k, &p.v, &p.o, p.lse, arena), OCT_OK);
    assert_int_equal(oct_attention_backward(&s, &p.q, &p.k, &p.v, &p.o, p.lse, &p.d_o, &p.dq, &p.dk,
                                            &p.dv, arena),
                     OCT_OK);
    check_differences(&s, q, &p.dq, inputs, d_o, o, lse);
    check_differences(&s, k, &p.dk, inputs, d_o, o, lse);
    check_differences(&s, v, &p.dv, inputs, d_o, o, lse);
    oct_arena_destroy(arena);
}

static void given_a_window_queries_see_only_the_last_keys(void **state) {
    (void)state;
    const int64_t lengths[] = {1, 31, 65, 300, 700}, windows[] = {1, 2, 64, 100, 513};
    for (size_t i = 0; i < OCT_COUNT(lengths); i++)
        for (size_t j = 0; j < OCT_COUNT(windows); j++) {
            int64_t S = lengths[i], W = windows[j];
            oct_attention_shape grouped = {2, S, 4, 2, 16, 16, 0.25f, 0, 0, W};
            oct_attention_shape half = {1, S, 3, 3, 24, 8, 0.2f, 0, 0, W};
            check_forward(grouped, OCT_F32);
            check_forward(half, OCT_BF16);
            check_backward(grouped, OCT_F32);
            check_backward(half, OCT_BF16);
            check_forward((oct_attention_shape){2, 1, 4, 2, 16, 16, 0.25f, S, 0, W}, OCT_F32);
            check_forward((oct_attention_shape){1, 70, 4, 2, 16, 8, 0.25f, S, 800, W}, OCT_BF16);
        }
}

/* First keys of documents of these lengths in turn, from entry `from` on; the last goes on. */
static const int32_t *documents(oct_arena *arena, int64_t n_seq, int64_t S, int64_t past,
                                const int64_t *lengths, int64_t n_lengths) {
    int32_t *first_keys = oct_arena_alloc_array(arena, (size_t)(n_seq * S), sizeof *first_keys);
    assert_non_null(first_keys);
    for (int64_t b = 0; b < n_seq; b++) {
        int64_t first = 0, next = b;
        for (int64_t at = 0; at < past + S; at++) {
            while (next < n_lengths && at >= first + lengths[next])
                first += lengths[next++];
            if (at >= past)
                first_keys[b * S + at - past] = (int32_t)first;
        }
    }
    return first_keys;
}

/* Documents of one token, of a few, that end on a block's border, and longer than blocks of keys;
 * with windows too. */
static void given_documents_queries_see_none_before_their_own(void **state) {
    (void)state;
    static const int64_t lengths[] = {1, 1, 30, 32, 64, 3, 70, 600, 2}, windows[] = {0, 1, 40};
    const int64_t sizes[] = {1, 31, 65, 128, 300, 900}, n = OCT_COUNT(lengths);
    oct_arena *arena = oct_arena_create();
    for (size_t i = 0; i < OCT_COUNT(sizes); i++)
        for (size_t j = 0; j < 3; j++) {
            int64_t S = sizes[i], W = windows[j];
            const int32_t *new = documents(arena, 2, S, 0, lengths, n);
            oct_attention_shape grouped = {2, S, 4, 2, 16, 16, 0.25f, 0, 0, W, new};
            oct_attention_shape half = {1, S, 3, 3, 24, 8, 0.2f, 0, 0, W, new};
            check_forward(grouped, OCT_F32);
            check_forward(half, OCT_BF16);
            check_backward(grouped, OCT_F32);
            check_backward(half, OCT_BF16);
            const int32_t *one = documents(arena, 2, 1, S, lengths, n);
            check_forward((oct_attention_shape){2, 1, 4, 2, 16, 16, 0.25f, S, 0, W, one}, OCT_F32);
            const int32_t *some = documents(arena, 1, 70, S, lengths, n);
            check_forward((oct_attention_shape){1, 70, 4, 2, 16, 8, 0.25f, S, 1000, W, some},
                          OCT_BF16);
        }
    oct_arena_destroy(arena);
}

/* A window as long as the sequence hides nothing: the same bits as without. */
static void given_a_window_that_holds_all_keys_the_bits_are_those_without(void **state) {
    (void)state;
    oct_arena *arena = oct_arena_create();
    oct_attention_shape s = {2, 150, 4, 2, 32, 16, 0.2f, 0, 0, 0};
    problem all[2];
    for (int i = 0; i < 2; i++) {
        s.window = i ? 150 : 0;
        problem p = all[i] = make_problem(arena, s, OCT_F32);
        assert_int_equal(oct_attention_forward(&s, &p.q, &p.k, &p.v, &p.o, p.lse, arena), OCT_OK);
        assert_int_equal(oct_attention_backward(&s, &p.q, &p.k, &p.v, &p.o, p.lse, &p.d_o, &p.dq,
                                                &p.dk, &p.dv, arena),
                         OCT_OK);
    }
    test_same_bytes(&all[0].o, &all[1].o);
    test_same_bytes(&all[0].dq, &all[1].dq);
    test_same_bytes(&all[0].dk, &all[1].dk);
    test_same_bytes(&all[0].dv, &all[1].dv);
    oct_arena_destroy(arena);
}

static void given_other_thread_counts_the_bits_stay(void **state) {
    (void)state;
    oct_arena *arena = oct_arena_create();
    oct_attention_shape s = {2, 150, 4, 2, 32, 16, 0.2f, 0, 0};
    int threads = oct_threads();
    problem first = {0};
    for (int n = 1; n <= 3; n++) {
        oct_threads_set(n);
        problem p = make_problem(arena, s, OCT_BF16);
        assert_int_equal(oct_attention_forward(&s, &p.q, &p.k, &p.v, &p.o, p.lse, arena), OCT_OK);
        assert_int_equal(oct_attention_backward(&s, &p.q, &p.k, &p.v, &p.o, p.lse, &p.d_o, &p.dq,
                                                &p.dk, &p.dv, arena),
                         OCT_OK);
        if (n == 1)
            first = p;
        test_same_bytes(&p.o, &first.o);
        test_same_bytes(&p.dq, &first.dq);
        test_same_bytes(&p.dk, &first.dk);
        test_same_bytes(&p.dv, &first.dv);
        assert_memory_equal(p.lse, first.lse, (size_t)(s.B * s.n_heads * s.S) * sizeof(float));
    }
    oct_threads_set(threads);
    oct_arena_destroy(arena);
}

static void given_wrong_shapes_attention_refuses(void **state) {
    (void)state;
    oct_arena *arena = oct_arena_create();
    oct_attention_shape s = {1, 8, 4, 2, 8, 8, 0.3f, 0, 0};
    problem p = make_problem(arena, s, OCT_F32);
    oct_attention_shape wrong[] = {s, s, s, s, s, s, s, s, s, s};
    wrong[6].window = -1;
    wrong[7].first_keys = (const int32_t[]){0, 0, 3, 3, 3, 3, 3, 3};   /* not its own key */
    wrong[8].first_keys = (const int32_t[]){0, 1, 0, 0, 0, 0, 0, 0};   /* back again */
    wrong[9].first_keys = (const int32_t[]){-1, -1, 0, 0, 0, 0, 0, 0}; /* none */
    wrong[0].n_kv_heads = 3;
    wrong[1].S = 9;
    wrong[2].kv_stride = 7;
    wrong[3].past = -1;
    wrong[4].past = INT64_MAX;
    wrong[5].n_heads = 0;
    for (size_t i = 0; i < OCT_COUNT(wrong); i++)
        assert_int_equal(oct_attention_forward(&wrong[i], &p.q, &p.k, &p.v, &p.o, p.lse, arena),
                         OCT_INVALID);
    oct_tensor o_bf16 = p.o;
    o_bf16.dtype = OCT_BF16;
    assert_int_equal(oct_attention_forward(&s, &p.q, &p.k, &p.v, &o_bf16, p.lse, arena),
                     OCT_INVALID);
    s.past = 1;
    assert_int_equal(oct_attention_backward(&s, &p.q, &p.k, &p.v, &p.o, p.lse, &p.d_o, &p.dq, &p.dk,
                                            &p.dv, arena),
                     OCT_INVALID);
    oct_arena_destroy(arena);
}

static void given_no_memory_attention_says_so(void **state) {
    (void)state;
    oct_arena *arena = oct_arena_create(), *empty = oct_arena_create();
    oct_attention_shape s = {1, 8, 4, 2, 8, 8, 0.3f, 0, 0};
    problem p = make_problem(arena, s, OCT_F32);
    oct_alloc_fail_at(1);
    oct_status status = oct_attention_forward(&s, &p.q, &p.k, &p.v, &p.o, p.lse, empty);
    oct_alloc_fail_at(0);
    assert_int_equal(status, OCT_NO_MEMORY);
    oct_arena_destroy(empty);
    oct_arena_destroy(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_many_shapes_forward_equals_the_naive_version),
        cmocka_unit_test(given_a_cache_new_queries_see_all_that_came_before),
        cmocka_unit_test(given_huge_scores_the_softmax_does_not_overflow),
        cmocka_unit_test(given_many_shapes_backward_equals_the_naive_version),
        cmocka_unit_test(given_a_small_problem_gradients_equal_finite_differences),
        cmocka_unit_test(given_a_window_queries_see_only_the_last_keys),
        cmocka_unit_test(given_documents_queries_see_none_before_their_own),
        cmocka_unit_test(given_a_window_that_holds_all_keys_the_bits_are_those_without),
        cmocka_unit_test(given_other_thread_counts_the_bits_stay),
        cmocka_unit_test(given_wrong_shapes_attention_refuses),
        cmocka_unit_test(given_no_memory_attention_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
