/* What several seeds say of a gap. Expected numbers: scipy 1.16, stats.t. */
#include "story.h"

#include <math.h>

#include "base/count.h"
#include "compare/gap.h"

static void expect_near(double value, double expected, double tolerance) {
    assert_that(fabs(value - expected) <= tolerance, "%.9g, expected %.9g", value, expected);
}

static void given_degrees_of_freedom_the_quantile_is_students(void **state) {
    (void)state;
    static const struct {
        int64_t df;
        double t;
    } known[] = {{1, 12.7062}, {2, 4.3027},  {5, 2.5706},  {7, 2.3646},   {20, 2.0860},
                 {21, 2.0796}, {30, 2.0423}, {60, 2.0003}, {100, 1.9840}, {999, 1.9623}};
    for (size_t i = 0; i < OCT_COUNT(known); i++)
        expect_near(oct_student_t95(known[i].df), known[i].t, 1e-4);
}

static void given_differences_of_seeds_mean_error_and_interval_are_students(void **state) {
    (void)state;
    const oct_gap three = oct_gap_of((const double[]){0.018, -0.008, 0.020}, 3);
    expect_near(three.mean, 0.01, 1e-12);
    expect_near(three.se, 0.0090184995, 1e-9);
    expect_near(three.low, -0.02880347, 1e-6);
    expect_near(three.high, 0.04880347, 1e-6);
    const oct_gap six =
        oct_gap_of((const double[]){0.0021, 0.0008, 0.0015, 0.0030, 0.0011, 0.0018}, 6);
    expect_near(six.mean, 0.0017166667, 1e-9);
    expect_near(six.se, 0.00031980897, 1e-9);
    expect_near(six.low, 0.00089457, 1e-7);
    expect_near(six.high, 0.00253876, 1e-7);
}

static void given_an_interval_the_verdict_is_where_it_lies_to_the_gate(void **state) {
    (void)state;
    const oct_gap six =
        oct_gap_of((const double[]){0.0021, 0.0008, 0.0015, 0.0030, 0.0011, 0.0018}, 6);
    assert_int_equal(oct_gap_verdict(&six, 0.01), OCT_VERDICT_EQUIVALENT);
    assert_int_equal(oct_gap_verdict(&six, 0.0026), OCT_VERDICT_EQUIVALENT);
    assert_int_equal(oct_gap_verdict(&six, 0.0025), OCT_VERDICT_UNRESOLVED);
    assert_int_equal(oct_gap_verdict(&six, 0.0009), OCT_VERDICT_UNRESOLVED);
    assert_int_equal(oct_gap_verdict(&six, 0.0008), OCT_VERDICT_WORSE);
}

static void given_one_seed_nothing_is_ever_decided(void **state) {
    (void)state;
    for (double gap = -1; gap <= 1; gap += 1) {
        const oct_gap one = oct_gap_of(&gap, 1);
        assert_int_equal(oct_gap_verdict(&one, 0.01), OCT_VERDICT_UNRESOLVED);
        assert_int_equal(oct_gap_seeds_to_decide(&one, 0.01), -1);
    }
    const oct_gap none = oct_gap_of(NULL, 0);
    assert_int_equal(oct_gap_verdict(&none, 0.01), OCT_VERDICT_UNRESOLVED);
}

/* Three seeds of sd 0.01562 and mean 0.01 at a gate of 0.02: t(n - 1) x sd / sqrt(n) < 0.01 first
 * holds at n = 12 (2.2010 x 0.01562 / 3.4641 = 0.00993; at 11: 0.01049). */
static void given_an_unresolved_gap_the_missing_seeds_are_counted(void **state) {
    (void)state;
    const oct_gap three = oct_gap_of((const double[]){0.018, -0.008, 0.020}, 3);
    assert_int_equal(oct_gap_seeds_to_decide(&three, 0.02), 9);
    assert_int_equal(oct_gap_seeds_to_decide(&three, three.mean), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_degrees_of_freedom_the_quantile_is_students),
        cmocka_unit_test(given_differences_of_seeds_mean_error_and_interval_are_students),
        cmocka_unit_test(given_an_interval_the_verdict_is_where_it_lies_to_the_gate),
        cmocka_unit_test(given_one_seed_nothing_is_ever_decided),
        cmocka_unit_test(given_an_unresolved_gap_the_missing_seeds_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
