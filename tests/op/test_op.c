/* Norm, gates, embedding, products, loss and optimizer against naive fp64 versions. */
#include "op_support.h"

#include "base/checked.h"
#include "op/elementwise.h"
#include "op/loss.h"
#include "op/matmul.h"
#include "op/norm.h"
#include "op/optimizer.h"

static const oct_dtype DTYPES[] = {OCT_F32, OCT_BF16};

/* Runs `story` with 1, 2 and 3 threads; the bytes that it leaves must be the same. */
static void check_threads(void (*story)(oct_arena *arena, oct_dtype dtype, oct_tensor *results,
                                        int *n_results)) {
    int threads = oct_threads();
    for (int d = 0; d < 2; d++) {
        oct_arena *arena = oct_arena_create();
        oct_tensor first[4], now[4];
        for (int n = 1; n <= 3; n++) {
            int n_results = 0;
            oct_threads_set(n);
            story(arena, DTYPES[d], n == 1 ? first : now, &n_results);
            for (int i = 0; n > 1 && i < n_results; i++)
                test_same_bytes(&now[i], &first[i]);
        }
        oct_arena_destroy(arena);
    }
    oct_threads_set(threads);
}

/* y of RMSNorm in fp64. */
static void naive_norm(const double *x, const double *w, int64_t R, int64_t D, double eps,
                       double *y) {
    for (int64_t r = 0; r < R; r++) {
        double sum = 0;
        for (int64_t d = 0; d < D; d++)
            sum += x[r * D + d] * x[r * D + d];
        for (int64_t d = 0; d < D; d++)
            y[r * D + d] = x[r * D + d] / sqrt(sum / (double)D + eps) * w[d];
    }
}

static double dot(const double *a, const double *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Central differences of <norm(x, w), dy> in *at. */
static double norm_difference(double *at, const double *x, const double *w, int64_t R, int64_t D,
                              const double *dy, double *y) {
    const double step = 1e-5, kept = *at;
    *at = kept + step;
    naive_norm(x, w, R, D, 1e-5, y);
    double up = dot(y, dy, R * D);
    *at = kept - step;
    naive_norm(x, w, R, D, 1e-5, y);
    double down = dot(y, dy, R * D);
    *at = kept;
    return (up - down) / (2 * step);
}

static void check_norm(int64_t R, int64_t D, oct_dtype dtype, oct_dtype weight_dtype) {
    oct_arena *arena = oct_arena_create();
    oct_tensor x = test_random(arena, dtype, R, D, 1),
               w = test_random(arena, weight_dtype, 1, D, 2);
    oct_tensor y = test_tensor(arena, dtype, R, D), dy = test_random(arena, dtype, R, D, 3);
    oct_tensor rstd = test_tensor(arena, OCT_F32, R, 1);
    double *x64 = test_values(arena, &x), *w64 = test_values(arena, &w);
    double *dy64 = test_values(arena, &dy), *y64 = test_zeros(arena, R * D);
    naive_norm(x64, w64, R, D, 1e-5, y64);
    assert_int_equal(oct_rmsnorm_forward(&x, &w, 1e-5f, &y, rstd.data, arena), OCT_OK);
    test_close(&y, y64, 1e-6);

    oct_tensor dx = test_random(arena, dtype, R, D, 4), dw = test_random(arena, OCT_F32, 1, D, 5);
    double *dx64 = test_values(arena, &dx), *dw64 = test_values(arena, &dw);
    for (int64_t i = 0; i < R * D; i++)
        dx64[i] += norm_difference(&x64[i], x64, w64, R, D, dy64, y64);
    for (int64_t d = 0; d < D; d++)
        dw64[d] += norm_difference(&w64[d], x64, w64, R, D, dy64, y64);
    assert_int_equal(
        oct_rmsnorm_backward(&dy, &x, &w, rstd.data, &dx, OCT_ADD_TO_OUTPUT, dw.data, arena),
        OCT_OK);
    test_close(&dx, dx64, 1e-5);
    test_close(&dw, dw64, 1e-5);

    /* Overwriting dy itself gives the same without what dx held. */
    for (int64_t i = 0; i < R * D; i++)
        dx64[i] = norm_difference(&x64[i], x64, w64, R, D, dy64, y64);
    assert_int_equal(oct_rmsnorm_backward(&dy, &x, &w, rstd.data, &dy, OCT_OVERWRITE, NULL, arena),
                     OCT_OK);
    test_close(&dy, dx64, 1e-5);
    oct_arena_destroy(arena);
}

static void given_any_width_rmsnorm_and_its_gradients_are_right(void **state) {
    (void)state;
    check_norm(3, 1, OCT_F32, OCT_F32);
    check_norm(5, 17, OCT_F32, OCT_BF16);
    check_norm(4, 48, OCT_BF16, OCT_F32);
    check_norm(9, 33, OCT_BF16, OCT_BF16);
}

static void norm_story(oct_arena *arena, oct_dtype dtype, oct_tensor *results, int *n) {
    const int64_t R = 1000, D = 96;
    oct_tensor x = test_random(arena, dtype, R, D, 1), w = test_random(arena, OCT_F32, 1, D, 2);
    oct_tensor dy = test_random(arena, dtype, R, D, 3), rstd = test_tensor(arena, OCT_F32, R, 1);
    oct_tensor y = test_tensor(arena, dtype, R, D), dx = test_tensor(arena, dtype, R, D);
    oct_tensor dw = test_random(arena, OCT_F32, 1, D, 4);
    assert_int_equal(oct_rmsnorm_forward(&x, &w, 1e-6f, &y, rstd.data, arena), OCT_OK);
    assert_int_equal(
        oct_rmsnorm_backward(&dy, &x, &w, rstd.data, &dx, OCT_OVERWRITE, dw.data, arena), OCT_OK);
    results[(*n)++] = y;
    results[(*n)++] = dx;
    results[(*n)++] = dw;
}

static void given_other_thread_counts_rmsnorm_keeps_its_bits(void **state) {
    (void)state;
    check_threads(norm_story);
}

static double silu(double a) {
    return a / (1 + exp(-a));
}

static void given_gates_of_any_size_swiglu_and_its_gradients_are_right(void **state) {
    (void)state;
    for (int d = 0; d < 2; d++) {
        oct_arena *arena = oct_arena_create();
        const int64_t n = 37 * 1003;
        oct_tensor a = test_random(arena, DTYPES[d], 37, 1003, 1);
        oct_tensor b = test_random(arena, DTYPES[d], 37, 1003, 2);
        oct_tensor dy = test_random(arena, DTYPES[d], 37, 1003, 3);
        oct_tensor y = test_tensor(arena, DTYPES[d], 37, 1003);
        for (int64_t i = 0; i < n; i++)
            test_set(&a, i, 20 * test_get(&a, i));
        test_set(&a, 5, -200); /* exp(200) overflows: silu is -0 and its slope 0 */
        test_set(&a, 6, 200);
        double *y64 = test_zeros(arena, n), *da = test_zeros(arena, n), *db = test_zeros(arena, n);
        for (int64_t i = 0; i < n; i++) {
            double x = test_get(&a, i), g = test_get(&dy, i), step = 1e-5;
            y64[i] = silu(x) * test_get(&b, i);
            da[i] = g * test_get(&b, i) * (silu(x + step) - silu(x - step)) / (2 * step);
            db[i] = g * silu(x);
        }
        assert_int_equal(oct_swiglu_forward(&a, &b, &y), OCT_OK);
        test_close(&y, y64, 1e-6);
        assert_int_equal(oct_swiglu_backward(&dy, &a, &b, &a, &b), OCT_OK); /* in place */
        test_close(&a, da, 2e-6);
        test_close(&b, db, 2e-6);
        oct_arena_destroy(arena);
    }
}

static void given_mixed_dtypes_sums_scales_and_casts_round_once(void **state) {
    (void)state;
    oct_arena *arena = oct_arena_create();
    oct_tensor a = test_random(arena, OCT_F32, 3, 7001, 1);
    oct_tensor b = test_random(arena, OCT_BF16, 3, 7001, 2);
    oct_tensor y = test_tensor(arena, OCT_BF16, 3, 7001), c = test_tensor(arena, OCT_F32, 3, 7001);
    assert_int_equal(oct_add(&a, &b, &y), OCT_OK);
    for (int64_t i = 0; i < 3 * 7001; i++)
        assert_int_equal(((uint16_t *)y.data)[i],
                         oct_bf16_encode((float)test_get(&a, i) + (float)test_get(&b, i)));
    assert_int_equal(oct_scale(&b, 0.3f, &c), OCT_OK);
    for (int64_t i = 0; i < 3 * 7001; i++)
        assert_true(((float *)c.data)[i] == (float)test_get(&b, i) * 0.3f);
    assert_int_equal(oct_cast(&a, &y), OCT_OK);
    for (int64_t i = 0; i < 3 * 7001; i++)
        assert_int_equal(((uint16_t *)y.data)[i], oct_bf16_encode((float)test_get(&a, i)));
    oct_tensor shorter = oct_tensor_2d(OCT_F32, 2, 7001, a.data);
    assert_int_equal(oct_add(&a, &b, &shorter), OCT_INVALID);
    oct_arena_destroy(arena);
}

static void given_repeated_tokens_the_embedding_gathers_and_adds_in_order(void **state) {
    (void)state;
    oct_arena *arena = oct_arena_create();
    const int64_t V = 9, T = 200, D = 75;
    int32_t tokens[200];
    for (int t = 0; t < T; t++)
        tokens[t] = (t * t) % 8; /* 8 never comes */
    oct_tensor w = test_random(arena, OCT_F32, V, D, 1), y = test_tensor(arena, OCT_BF16, T, D);
    assert_int_equal(oct_embedding_forward(&w, tokens, &y), OCT_OK);
    for (int64_t i = 0; i < T * D; i++)
        assert_int_equal(((uint16_t *)y.data)[i],
                         oct_bf16_encode(((float *)w.data)[tokens[i / D] * D + i % D]));
    oct_tensor dy = test_random(arena, OCT_BF16, T, D, 2),
               dw = test_random(arena, OCT_F32, V, D, 3);
    oct_tensor expected = test_copy(arena, &dw);
    for (int64_t i = 0; i < T * D; i++)
        ((float *)expected.data)[tokens[i / D] * D + i % D] += (float)test_get(&dy, i);
    assert_int_equal(oct_embedding_backward(&dy, tokens, V, dw.data), OCT_OK);
    test_same_bytes(&dw, &expected);
    tokens[3] = 9;
    assert_int_equal(oct_embedding_forward(&w, tokens, &y), OCT_INVALID);
    tokens[3] = -1;
    assert_int_equal(oct_embedding_backward(&dy, tokens, V, dw.data), OCT_INVALID);
    test_same_bytes(&dw, &expected);
    oct_arena_destroy(arena);
}

/* c (M,N) += a b^T, with a(i,k) = a[i * ai + k * ak] and so on. */
static void naive_product(int64_t M, int64_t N, int64_t K, const double *a, int64_t ai, int64_t ak,
                          const double *b, int64_t bi, int64_t bk, double *c) {
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++)
            for (int64_t k = 0; k < K; k++)
                c[i * N + j] += a[i * ai + k * ak] * b[j * bi + k * bk];
}

static void given_a_linear_its_three_products_are_right(void **state) {
    (void)state;
    for (int d = 0; d < 2; d++) {
        oct_arena *arena = oct_arena_create();
        const int64_t T = 70, K = 33, N = 19;
        oct_tensor x = test_random(arena, DTYPES[d], T, K, 1);
        oct_tensor w = test_random(arena, DTYPES[d], N, K, 2);
        oct_tensor dy = test_random(arena, DTYPES[d], T, N, 3);
        oct_tensor bias = test_random(arena, OCT_F32, 1, N, 4);
        oct_tensor y = test_tensor(arena, DTYPES[d], T, N);
        oct_tensor dx = test_random(arena, DTYPES[d], T, K, 5);
        oct_tensor dw = test_random(arena, OCT_F32, N, K, 6);
        oct_tensor db = test_random(arena, OCT_F32, 1, N, 7);
        double *x64 = test_values(arena, &x), *w64 = test_values(arena, &w);
        double *dy64 = test_values(arena, &dy), *y64 = test_zeros(arena, T * N);
        double *dx64 = test_values(arena, &dx), *dw64 = test_values(arena, &dw);
        double *db64 = test_values(arena, &db);
        for (int64_t i = 0; i < T * N; i++) {
            y64[i] = test_get(&bias, i % N);
            db64[i % N] += dy64[i];
        }
        naive_product(T, N, K, x64, K, 1, w64, K, 1, y64);
        naive_product(T, K, N, dy64, N, 1, w64, 1, K, dx64);
        naive_product(N, K, T, dy64, 1, N, x64, 1, K, dw64);
        assert_int_equal(oct_matmul_forward(&x, &w, bias.data, &y, arena), OCT_OK);
        assert_int_equal(oct_matmul_input_gradient(&dy, &w, &dx, OCT_ADD_TO_OUTPUT, arena), OCT_OK);
        assert_int_equal(oct_matmul_weight_gradient(&dy, &x, dw.data, OCT_F32, arena), OCT_OK);
        assert_int_equal(oct_matmul_bias_gradient(&dy, db.data, arena), OCT_OK);
        test_close(&y, y64, 1e-5);
        test_close(&dx, dx64, 1e-5);
        test_close(&dw, dw64, 2e-5);
        test_close(&db, db64, 1e-5);
        assert_int_equal(oct_matmul_forward(&x, &dy, NULL, &y, arena), OCT_INVALID);
        oct_arena_destroy(arena);
    }
}

static void matmul_story(oct_arena *arena, oct_dtype dtype, oct_tensor *results, int *n) {
    const int64_t T = 300, K = 200, N = 150;
    oct_tensor x = test_random(arena, dtype, T, K, 1), w = test_random(arena, dtype, N, K, 2);
    oct_tensor dy = test_random(arena, dtype, T, N, 3), dx = test_tensor(arena, dtype, T, K);
    oct_tensor dw = test_random(arena, OCT_F32, N, K, 4), db = test_random(arena, OCT_F32, 1, N, 5);
    assert_int_equal(oct_matmul_input_gradient(&dy, &w, &dx, OCT_OVERWRITE, arena), OCT_OK);
    assert_int_equal(oct_matmul_weight_gradient(&dy, &x, dw.data, OCT_F32, arena), OCT_OK);
    assert_int_equal(oct_matmul_bias_gradient(&dy, db.data, arena), OCT_OK);
    results[(*n)++] = dx;
    results[(*n)++] = dw;
    results[(*n)++] = db;
}

static void given_other_thread_counts_products_keep_their_bits(void **state) {
    (void)state;
    check_threads(matmul_story);
}

/* Loss, and dlogits in place of the logits. */
static double naive_loss(double *x, const int32_t *labels, int64_t T, int64_t V, double scale) {
    double loss = 0;
    for (int64_t t = 0; t < T; t++, x += V) {
        double max = -INFINITY, sum = 0;
        for (int64_t j = 0; j < V; j++)
            max = fmax(max, x[j]);
        for (int64_t j = 0; j < V; j++)
            sum += exp(x[j] - max);
        bool counts = labels[t] != OCT_IGNORE_LABEL;
        if (counts)
            loss += log(sum) + (max - x[labels[t]]);
        for (int64_t j = 0; j < V; j++)
            x[j] = counts ? (exp(x[j] - max) / sum - (labels[t] == j)) * scale : 0;
    }
    return loss;
}

static void given_ignored_labels_and_extreme_logits_the_loss_is_right(void **state) {
    (void)state;
    for (int d = 0; d < 2; d++) {
        oct_arena *arena = oct_arena_create();
        const int64_t T = 11, V = 5003;
        int32_t labels[11];
        for (int t = 0; t < T; t++)
            labels[t] = t % 4 == 3 ? OCT_IGNORE_LABEL : (t * 997) % (int)V;
        oct_tensor x = test_random(arena, DTYPES[d], T, V, 1);
        for (int64_t i = 0; i < V; i++) {
            test_set(&x, i, 4e4 * test_get(&x, i));            /* one wins by far */
            test_set(&x, V + i, -3e38);                        /* all equal */
            test_set(&x, 2 * V + i, i == 5 ? 100 : -INFINITY); /* certain, and wrong */
            test_set(&x, 3 * V + i, NAN);                      /* ignored */
        }
        test_set(&x, 2 * V + labels[2], 99);
        double *x64 = test_values(arena, &x);
        double expected = naive_loss(x64, labels, T, V, 0.125);
        oct_loss_sum sum = {0}, again = {0};
        assert_int_equal(oct_cross_entropy(&x, labels, &sum, arena), OCT_OK);
        assert_int_equal(oct_cross_entropy_gradient(&x, labels, 0.125f, &again, arena), OCT_OK);
        assert_true(fabs(sum.loss - expected) <= 1e-6 * fabs(expected));
        assert_int_equal(sum.count, 9);
        assert_memory_equal(&sum, &again, sizeof sum);
        test_close(&x, x64, 1e-7);
        labels[0] = (int32_t)V;
        assert_int_equal(oct_cross_entropy(&x, labels, &sum, arena), OCT_INVALID);
        labels[0] = -1;
        oct_tensor before = test_copy(arena, &x);
        assert_int_equal(oct_cross_entropy_gradient(&x, labels, 1, &sum, arena), OCT_INVALID);
        test_same_bytes(&x, &before);
        oct_arena_destroy(arena);
    }
}

static void given_a_logit_that_is_not_finite_the_loss_is_not_finite(void **state) {
    (void)state;
    const float bad[] = {NAN, INFINITY};
    for (int i = 0; i < 2; i++) {
        oct_arena *arena = oct_arena_create();
        oct_tensor x = test_random(arena, OCT_F32, 1, 40, 1);
        test_set(&x, 39, (double)bad[i]);
        oct_loss_sum sum;
        assert_int_equal(oct_cross_entropy(&x, (int32_t[]){3}, &sum, arena), OCT_OK);
        assert_false(isfinite(sum.loss));
        oct_arena_destroy(arena);
    }
}

static void loss_story(oct_arena *arena, oct_dtype dtype, oct_tensor *results, int *n) {
    const int64_t T = 50, V = 1000;
    int32_t labels[50];
    for (int t = 0; t < T; t++)
        labels[t] = t * 7;
    oct_tensor x = test_random(arena, dtype, T, V, 1), loss = test_tensor(arena, OCT_F32, 1, 2);
    oct_loss_sum sum;
    assert_int_equal(oct_cross_entropy_gradient(&x, labels, 0.5f, &sum, arena), OCT_OK);
    memcpy(loss.data, &sum.loss, sizeof sum.loss);
    results[(*n)++] = x;
    results[(*n)++] = loss;
}

static void given_other_thread_counts_the_loss_keeps_its_bits(void **state) {
    (void)state;
    check_threads(loss_story);
}

/* torch.optim.Adam and AdamW in fp64, three steps on a long parameter. */
static void check_adam(oct_weight_decay decay) {
    oct_arena *arena = oct_arena_create();
    const int64_t n = 70001;
    const oct_adam adam = {1e-2, 0.9, 0.95, 1e-8, 0.1, decay};
    oct_tensor p = test_random(arena, OCT_F32, 1, n, 1), m = test_random(arena, OCT_F32, 1, n, 2);
    oct_tensor v = test_random(arena, OCT_F32, 1, n, 3);
    memset(m.data, 0, oct_tensor_bytes(&m));
    memset(v.data, 0, oct_tensor_bytes(&v));
    double *p64 = test_values(arena, &p), *m64 = test_zeros(arena, n), *v64 = test_zeros(arena, n);
    for (int step = 1; step <= 3; step++) {
        oct_tensor grad = test_random(arena, OCT_F32, 1, n, (uint64_t)(10 + step));
        for (int64_t i = 0; i < n; i++) {
            double g = 0.5 * test_get(&grad, i);
            if (decay == OCT_DECAY_L2)
                g += 0.1 * p64[i];
            else
                p64[i] -= 1e-2 * 0.1 * p64[i];
            m64[i] = 0.9 * m64[i] + 0.1 * g;
            v64[i] = 0.95 * v64[i] + 0.05 * g * g;
            double m_hat = m64[i] / (1 - pow(0.9, step)), v_hat = v64[i] / (1 - pow(0.95, step));
            p64[i] -= 1e-2 * m_hat / (sqrt(v_hat) + 1e-8);
        }
        unsigned flaws = 7;
        assert_int_equal(
            oct_adam_step(&adam, step, n, grad.data, 0.5f, p.data, m.data, v.data, &flaws), OCT_OK);
        assert_int_equal(flaws, 0);
    }
    test_close(&m, m64, 1e-7);
    test_close(&v, v64, 1e-7);
    test_close(&p, p64, 2e-6);
    unsigned flaws;
    assert_int_equal(oct_adam_step(&adam, 0, n, p.data, 1, p.data, m.data, v.data, &flaws),
                     OCT_INVALID);
    oct_arena_destroy(arena);
}

static void given_three_steps_adam_and_adamw_equal_torchs(void **state) {
    (void)state;
    check_adam(OCT_DECAY_DECOUPLED);
    check_adam(OCT_DECAY_L2);
}

static void given_a_long_gradient_the_sum_of_squares_is_exact_and_the_same(void **state) {
    (void)state;
    oct_arena *arena = oct_arena_create();
    int threads = oct_threads();
    const int64_t n = 200003;
    oct_tensor x = test_random(arena, OCT_F32, 1, n, 1);
    ((float *)x.data)[77] = 1e30f; /* its square overflows fp32 */
    double expected = 0, first = 0;
    for (int64_t i = 0; i < n; i++)
        expected += test_get(&x, i) * test_get(&x, i);
    for (int t = 1; t <= 3; t++) {
        double sum = 0;
        oct_threads_set(t);
        assert_int_equal(oct_sum_of_squares(x.data, n, &sum, arena), OCT_OK);
        assert_true(fabs(sum - expected) <= 1e-12 * expected);
        first = t == 1 ? sum : first;
        assert_true(sum == first);
    }
    double none = 1;
    assert_int_equal(oct_sum_of_squares(x.data, 0, &none, arena), OCT_OK);
    assert_true(none == 0);
    oct_threads_set(threads);
    oct_arena_destroy(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_any_width_rmsnorm_and_its_gradients_are_right),
        cmocka_unit_test(given_other_thread_counts_rmsnorm_keeps_its_bits),
        cmocka_unit_test(given_gates_of_any_size_swiglu_and_its_gradients_are_right),
        cmocka_unit_test(given_mixed_dtypes_sums_scales_and_casts_round_once),
        cmocka_unit_test(given_repeated_tokens_the_embedding_gathers_and_adds_in_order),
        cmocka_unit_test(given_a_linear_its_three_products_are_right),
        cmocka_unit_test(given_other_thread_counts_products_keep_their_bits),
        cmocka_unit_test(given_ignored_labels_and_extreme_logits_the_loss_is_right),
        cmocka_unit_test(given_a_logit_that_is_not_finite_the_loss_is_not_finite),
        cmocka_unit_test(given_other_thread_counts_the_loss_keeps_its_bits),
        cmocka_unit_test(given_three_steps_adam_and_adamw_equal_torchs),
        cmocka_unit_test(given_a_long_gradient_the_sum_of_squares_is_exact_and_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
