/* Runs a program's stories through cmocka: see story.h. */
#include "story.h"

#include <stdio.h>
#include <stdlib.h>

unsigned long story_n_checks;
int story_skips;

static const struct CMUnitTest *stories; /* as the program listed them */
static size_t n_begun;
static int comes_to_its_end;

static const struct CMUnitTest *current(void) {
    return &stories[n_begun - 1];
}

static int begin(void **state) {
    n_begun++;
    comes_to_its_end = story_skips = 0;
    int failure = current()->setup_func ? current()->setup_func(state) : 0;
    story_n_checks = 0; /* what a setup asserts isn't what the test is for */
    return failure;
}

static void run(void **state) {
    current()->test_func(state);
    if (story_n_checks == 0)
        fail_msg("%s checked nothing: it has come to its end without an assertion or skip(); "
                 "write `if (wrong) fail_msg(...)` as `assert_that(right, ...)`",
                 current()->name);
    comes_to_its_end = 1;
}

static int end(void **state) {
    int failure = current()->teardown_func ? current()->teardown_func(state) : 0;
    if (!comes_to_its_end && !story_skips && getenv("OCTET_STOP_AT_FAILURE")) {
        printf("stopped at %s\n", current()->name);
        fflush(stdout);
        _Exit(1);
    }
    return failure;
}

int story_run_tests(const char *name, const struct CMUnitTest *tests, size_t n,
                    CMFixtureFunction group_setup, CMFixtureFunction group_teardown) {
    struct CMUnitTest *counted = calloc(n + 1, sizeof *counted);
    if (!counted)
        return -1;
    stories = tests;
    n_begun = 0;
    for (size_t i = 0; i < n; i++)
        counted[i] = (struct CMUnitTest){tests[i].name, run, begin, end, tests[i].initial_state};
    int n_failed = (_cmocka_run_group_tests)(name, counted, n, group_setup, group_teardown);
    free(counted);
    return n_failed;
}
