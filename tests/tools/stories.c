/* Stories of each kind of end, for test_run_tests.py: how cmocka tells of them is counted there. */
#include <stdio.h>

static void given_an_assertion_it_passes(void **state) {
    (void)state;
    assert_true(1);
}

static void given_a_false_one_it_fails(void **state) {
    (void)state;
    assert_int_equal(1, 2);
}

static void given_no_assertion_it_fails(void **state) {
    (void)state;
}

static int asserts(void **state) {
    (void)state;
    assert_true(1);
    return 0;
}

static void given_skip_it_is_skipped(void **state) {
    (void)state;
    printf("Skipped: there is nothing here\n");
    skip();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_an_assertion_it_passes),
        cmocka_unit_test(given_skip_it_is_skipped),
        cmocka_unit_test_setup_teardown(given_no_assertion_it_fails, asserts, asserts),
        cmocka_unit_test(given_a_false_one_it_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
