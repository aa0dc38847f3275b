/* What every cmocka program includes, in the order that cmocka wants. The build includes it for all
 * of them (tests/meson.build), so that nobody can forget that
 *
 *   a test that checks nothing fails: each assertion is counted, and a test that comes to its end
 *   with neither one nor skip() has tested nothing;
 *   with OCTET_STOP_AT_FAILURE set a program ends at its first failure (tests/mutation). */
#ifndef OCT_TESTS_STORY_H
#define OCT_TESTS_STORY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

extern unsigned long story_n_checks; /* of the test that runs */
extern int story_skips;              /* it said skip() */

/* An assertion with a message of its own: what was expected, what was got. */
#define assert_that(condition, ...)                                                                \
    do {                                                                                           \
        story_n_checks++;                                                                          \
        if (!(condition))                                                                          \
            fail_msg(__VA_ARGS__);                                                                 \
    } while (0)

/* cmocka's own end in these functions. */
#define _assert_true(...) (story_n_checks++, _assert_true(__VA_ARGS__))
#define _assert_return_code(...) (story_n_checks++, _assert_return_code(__VA_ARGS__))
#define _assert_float_equal(...) (story_n_checks++, _assert_float_equal(__VA_ARGS__))
#define _assert_float_not_equal(...) (story_n_checks++, _assert_float_not_equal(__VA_ARGS__))
#define _assert_int_equal(...) (story_n_checks++, _assert_int_equal(__VA_ARGS__))
#define _assert_int_not_equal(...) (story_n_checks++, _assert_int_not_equal(__VA_ARGS__))
#define _assert_string_equal(...) (story_n_checks++, _assert_string_equal(__VA_ARGS__))
#define _assert_string_not_equal(...) (story_n_checks++, _assert_string_not_equal(__VA_ARGS__))
#define _assert_memory_equal(...) (story_n_checks++, _assert_memory_equal(__VA_ARGS__))
#define _assert_memory_not_equal(...) (story_n_checks++, _assert_memory_not_equal(__VA_ARGS__))
#define _assert_in_range(...) (story_n_checks++, _assert_in_range(__VA_ARGS__))
#define _assert_not_in_range(...) (story_n_checks++, _assert_not_in_range(__VA_ARGS__))
#define _assert_in_set(...) (story_n_checks++, _assert_in_set(__VA_ARGS__))
#define _assert_not_in_set(...) (story_n_checks++, _assert_not_in_set(__VA_ARGS__))
#define _skip(...) (story_skips = 1, _skip(__VA_ARGS__))

int story_run_tests(const char *name, const struct CMUnitTest *tests, size_t n,
                    CMFixtureFunction group_setup, CMFixtureFunction group_teardown);
#define _cmocka_run_group_tests(...) story_run_tests(__VA_ARGS__)

#endif
