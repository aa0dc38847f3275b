/* Adam and AdamW against their formulas in fp64, gradient norm and clipping against theirs. */
#include "story.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/count.h"
#include "base/rng.h"
#include "base/thread.h"
#include "train/optimizer.h"

enum { N = 3001, STEPS = 7 };

typedef struct fixture {
    oct_param params[2];
    oct_param *list[2];
    float values[2][N];
} fixture;

static void fill(fixture *f) {
    for (int p = 0; p < 2; p++) {
        f->params[p] = (oct_param){.n_dims = 1, .shape = {N}, .n_held = N, .value = f->values[p]};
        f->list[p] = &f->params[p];
        for (int i = 0; i < N; i++)
            f->values[p][i] = oct_rng_normal(1, (uint64_t)p, (uint64_t)i);
    }
}

static void release(fixture *f) {
    oct_free(f->params[0].grad);
    oct_free(f->params[1].grad);
}

static float gradient(int step, int p, int i) {
    return 0.1f * oct_rng_normal(2, (uint64_t)(10 * step + p), (uint64_t)i);
}

static oct_adam adam_of(oct_weight_decay decay) {
    return (oct_adam){
        .lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .decay = decay};
}

/* torch.optim's formulas, element by element, in fp64. */
static void naive_adam(const oct_adam *a, int step, double g, double *x, double *m, double *v) {
    if (a->decay == OCT_DECAY_DECOUPLED)
        *x -= a->lr * a->weight_decay * *x;
    else
        g += a->weight_decay * *x;
    *m = a->beta1 * *m + (1 - a->beta1) * g;
    *v = a->beta2 * *v + (1 - a->beta2) * g * g;
    double m_hat = *m / (1 - pow(a->beta1, step));
    double v_hat = *v / (1 - pow(a->beta2, step));
    *x -= a->lr * m_hat / (sqrt(v_hat) + a->eps);
}

static void follow(oct_weight_decay decay, float grad_scale) {
    static fixture f;
    static double x[2][N], m[2][N], v[2][N];
    oct_adam adam = adam_of(decay);
    oct_optimizer *o;
    fill(&f);
    assert_int_equal(oct_optimizer_create(f.list, 2, &adam, &o), OCT_OK);
    memset(m, 0, sizeof m);
    memset(v, 0, sizeof v);
    for (int p = 0; p < 2; p++)
        for (int i = 0; i < N; i++)
            x[p][i] = f.values[p][i];
    for (int step = 1; step <= STEPS; step++) {
        for (int p = 0; p < 2; p++)
            for (int i = 0; i < N; i++) {
                f.params[p].grad[i] = gradient(step, p, i);
                naive_adam(&adam, step, (double)grad_scale * gradient(step, p, i), &x[p][i],
                           &m[p][i], &v[p][i]);
            }
        oct_flaw flaw;
        assert_int_equal(oct_optimizer_step(o, grad_scale, &flaw), OCT_OK);
        assert_null(flaw.param);
    }
    for (int p = 0; p < 2; p++)
        for (int i = 0; i < N; i++)
            assert_true(fabs(x[p][i] - f.values[p][i]) < 2e-6);
    assert_true(f.params[0].version >= STEPS);
    oct_optimizer_destroy(o);
    release(&f);
}

static void given_adamw_it_follows_the_formula_in_fp64(void **state) {
    (void)state;
    follow(OCT_DECAY_DECOUPLED, 1);
}

static void given_adam_its_decay_goes_into_the_gradient(void **state) {
    (void)state;
    follow(OCT_DECAY_L2, 1);
}

static void given_a_clip_factor_gradients_are_read_multiplied_by_it(void **state) {
    (void)state;
    follow(OCT_DECAY_DECOUPLED, 0.25f);
}

static void given_two_parameters_the_norm_is_that_of_one_vector(void **state) {
    (void)state;
    static fixture f;
    oct_adam adam = adam_of(OCT_DECAY_DECOUPLED);
    oct_optimizer *o;
    oct_arena *scratch = oct_arena_create();
    double norm, norm_of_three_threads, sum = 0;
    int threads = oct_threads();
    fill(&f);
    assert_int_equal(oct_optimizer_create(f.list, 2, &adam, &o), OCT_OK);
    for (int p = 0; p < 2; p++)
        for (int i = 0; i < N; i++) {
            f.params[p].grad[i] = gradient(1, p, i);
            sum += (double)f.params[p].grad[i] * f.params[p].grad[i];
        }
    oct_threads_set(1);
    assert_int_equal(oct_optimizer_gradient_norm(o, &norm, scratch), OCT_OK);
    oct_threads_set(3);
    assert_int_equal(oct_optimizer_gradient_norm(o, &norm_of_three_threads, scratch), OCT_OK);
    oct_threads_set(threads);
    assert_true(fabs(norm - sqrt(sum)) < 1e-12 * norm);
    assert_true(norm == norm_of_three_threads);
    f.params[1].grad[N - 1] = NAN;
    assert_int_equal(oct_optimizer_gradient_norm(o, &norm, scratch), OCT_OK);
    assert_false(isfinite(norm));
    oct_optimizer_clear_gradients(o);
    assert_int_equal(oct_optimizer_gradient_norm(o, &norm, scratch), OCT_OK);
    assert_true(norm == 0);
    oct_optimizer_destroy(o);
    oct_arena_destroy(scratch);
    release(&f);
}

static void given_a_norm_above_the_limit_gradients_shrink_to_it(void **state) {
    (void)state;
    assert_true(oct_clip_factor(0.5, 1) == 1);
    assert_true(oct_clip_factor(0, 1) == 1);
    assert_true(fabs(oct_clip_factor(4, 1) - 0.25) < 1e-6);
    assert_true(oct_clip_factor(1e30, INFINITY) == 1);
}

/* What one step says of gradients that are 1, or `odd` in an element of a parameter. */
static oct_flaw step_with(const oct_adam *adam, int p, int element, float odd, float start) {
    static fixture f;
    oct_optimizer *o;
    oct_flaw flaw;
    fill(&f);
    f.params[1].first = 100; /* a shard */
    assert_int_equal(oct_optimizer_create(f.list, 2, adam, &o), OCT_OK);
    for (int q = 0; q < 2; q++)
        for (int i = 0; i < N; i++)
            f.params[q].grad[i] = q == p && i == element ? odd : 1;
    f.values[p][element] = start;
    assert_int_equal(oct_optimizer_step(o, 1, &flaw), OCT_OK);
    assert_true(!flaw.param || flaw.param == &f.params[p]);
    oct_optimizer_destroy(o);
    release(&f);
    return flaw;
}

static void given_a_number_that_overflows_the_update_names_it(void **state) {
    (void)state;
    oct_adam adam = adam_of(OCT_DECAY_DECOUPLED), no_eps = adam, wild = adam;
    no_eps.eps = 0;
    wild.lr = 3.3e38;
    static const int elements[] = {0, 1, 17, N - 2, N - 1};
    for (int p = 0; p < 2; p++)
        for (size_t i = 0; i < OCT_COUNT(elements); i++) {
            int64_t element = elements[i] + (p == 1 ? 100 : 0);
            assert_null(step_with(&adam, p, elements[i], 0, 1).param);
            oct_flaw flaw = step_with(&no_eps, p, elements[i], 0, 1); /* 0 / 0 */
            assert_string_equal(flaw.what, "value");
            assert_true(isnan(flaw.got) && flaw.element == element);
            flaw = step_with(&adam, p, elements[i], 1e30f, 1); /* its square; the value stays */
            assert_string_equal(flaw.what, "exp_avg_sq");
            assert_true(flaw.got == INFINITY && flaw.element == element);
            flaw = step_with(&adam, p, elements[i], -INFINITY, 1);
            assert_string_equal(flaw.what, "exp_avg");
            assert_true(flaw.got == -INFINITY && flaw.element == element);
        }
    oct_flaw first = step_with(&wild, 0, 5, 1, 3e38f);
    assert_true(first.param && first.element == 0); /* 3.3e38 and the decay of all */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_adamw_it_follows_the_formula_in_fp64),
        cmocka_unit_test(given_adam_its_decay_goes_into_the_gradient),
        cmocka_unit_test(given_a_clip_factor_gradients_are_read_multiplied_by_it),
        cmocka_unit_test(given_two_parameters_the_norm_is_that_of_one_vector),
        cmocka_unit_test(given_a_number_that_overflows_the_update_names_it),
        cmocka_unit_test(given_a_norm_above_the_limit_gradients_shrink_to_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
