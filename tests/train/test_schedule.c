/* The learning rate of each step, against values worked out by hand. */
#include "story.h"

#include <math.h>

#include "base/log.h"
#include "train/schedule.h"

static oct_job job_of(int64_t steps, int64_t warmup, double decay_ratio, oct_job_decay type,
                      double min_lr_factor) {
    oct_job job = {0};
    job.training.steps = steps;
    job.lr_scheduler.total_steps = -1;
    job.lr_scheduler.warmup_steps = warmup;
    job.lr_scheduler.decay_ratio = decay_ratio;
    job.lr_scheduler.decay_type = type;
    job.lr_scheduler.min_lr_factor = min_lr_factor;
    return job;
}

static void check(const oct_job *job, const double *expected, int64_t n) {
    oct_schedule schedule = oct_schedule_create(job);
    for (int64_t i = 0; i < n; i++)
        assert_true(fabs(oct_schedule_factor(&schedule, i) - expected[i]) < 1e-12);
}

static void given_no_ratio_the_rate_decays_right_after_the_warm_up(void **state) {
    (void)state;
    /* 10 steps, 2 of warm-up, 8 of decay, one stable step between */
    oct_job job = job_of(10, 2, -1, OCT_JOB_DECAY_LINEAR, 0);
    const double expected[] = {0.5, 1, 1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125};
    check(&job, expected, 10);
}

static void given_a_ratio_the_rate_is_stable_until_the_decay(void **state) {
    (void)state;
    oct_job job = job_of(10, 2, 0.4, OCT_JOB_DECAY_LINEAR, 0.1);
    const double expected[] = {0.5, 1, 1, 1, 1, 1, 1, 0.775, 0.55, 0.325};
    check(&job, expected, 10);
}

static void given_cosine_and_sqrt_their_curves_are_followed(void **state) {
    (void)state;
    oct_job job = job_of(4, 0, -1, OCT_JOB_DECAY_COSINE, 0);
    const double cosine[] = {1, 0.85355339059327376, 0.5, 0.14644660940672624};
    check(&job, cosine, 4);
    job = job_of(4, 0, -1, OCT_JOB_DECAY_SQRT, 0.2);
    const double root[] = {1, 0.6, 0.2 + 0.8 * (1 - 0.70710678118654752),
                           0.2 + 0.8 * (1 - 0.86602540378443865)};
    check(&job, root, 4);
}

static void given_a_ratio_that_ends_in_a_half_it_rounds_to_even(void **state) {
    (void)state;
    /* 5 * 0.5 = 2.5 -> 2 steps of decay: three stable ones and the virtual fourth */
    oct_job job = job_of(5, 0, 0.5, OCT_JOB_DECAY_LINEAR, 0);
    const double expected[] = {1, 1, 1, 1, 0.5};
    check(&job, expected, 5);
}

static void count_warning(void *user, oct_log_level level, const char *line) {
    (void)line;
    *(int *)user += level == OCT_LOG_WARNING;
}

static void given_a_warm_up_longer_than_the_run_it_is_cut_with_a_warning(void **state) {
    (void)state;
    int n_warnings = 0;
    oct_job job = job_of(4, 8, -1, OCT_JOB_DECAY_LINEAR, 0);
    const double expected[] = {0.25, 0.5, 0.75, 1};
    oct_log_set_sink(count_warning, &n_warnings);
    check(&job, expected, 4);
    oct_log_set_sink(NULL, NULL);
    assert_int_equal(n_warnings, 1);
}

static void given_a_decay_too_long_for_the_run_it_is_cut_with_a_warning(void **state) {
    (void)state;
    int n_warnings = 0;
    oct_job job = job_of(4, 2, 0.9, OCT_JOB_DECAY_LINEAR, 0);
    const double expected[] = {0.5, 1, 1, 0.5};
    oct_log_set_sink(count_warning, &n_warnings);
    check(&job, expected, 4);
    oct_log_set_sink(NULL, NULL);
    assert_int_equal(n_warnings, 1);
}

static void given_total_steps_the_schedule_follows_them_instead_of_the_run(void **state) {
    (void)state;
    oct_job job = job_of(2, 0, -1, OCT_JOB_DECAY_LINEAR, 0);
    job.lr_scheduler.total_steps = 4;
    const double expected[] = {1, 0.75, 0.5, 0.25, 0, 0};
    check(&job, expected, 6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_no_ratio_the_rate_decays_right_after_the_warm_up),
        cmocka_unit_test(given_a_ratio_the_rate_is_stable_until_the_decay),
        cmocka_unit_test(given_cosine_and_sqrt_their_curves_are_followed),
        cmocka_unit_test(given_a_ratio_that_ends_in_a_half_it_rounds_to_even),
        cmocka_unit_test(given_a_warm_up_longer_than_the_run_it_is_cut_with_a_warning),
        cmocka_unit_test(given_a_decay_too_long_for_the_run_it_is_cut_with_a_warning),
        cmocka_unit_test(given_total_steps_the_schedule_follows_them_instead_of_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
