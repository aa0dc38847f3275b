/* Name patterns: torchtitan's substrings and MindSpeed MM's globs. */
#include "story.h"

#include <string.h>

#include "base/count.h"
#include "convert/pattern.h"

static void given_globs_they_are_anchored_and_braces_hold_integers(void **state) {
    (void)state;
    const struct {
        const char *pattern, *text;
        bool matches;
    } cases[] = {
        {"model.layers.{*}", "model.layers.0", true},
        {"model.layers.{*}", "model.layers.123", true},
        {"model.layers.{*}", "model.layers.x", false},
        {"model.layers.{*}", "model.layers.", false},
        {"model.layers.{*}", "model.layers.1x", false},
        {"model.layers.{2-11}.mlp", "model.layers.2.mlp", true},
        {"model.layers.{2-11}.mlp", "model.layers.11.mlp", true},
        {"model.layers.{2-11}.mlp", "model.layers.12.mlp", false},
        {"model.layers.{2-11}.mlp", "model.layers.1.mlp", false},
        {"*q_proj", "model.layers.0.self_attn.q_proj", true},
        {"*q_proj", "q_proj", true},
        {"*q_proj", "model.q_proj.x", false},
        {"*gate", "mlp.gate", true},
        {"*gate", "mlp.gate_proj", false},
        {"*", "", true},
        {"a?c", "abc", true},
        {"a?c", "ac", false},
        {"*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
        {"model.layers.{0-20,22-40}", "model.layers.0", true},
        {"model.layers.{0-20,22-40}", "model.layers.20", true},
        {"model.layers.{0-20,22-40}", "model.layers.21", false},
        {"model.layers.{0-20,22-40}", "model.layers.22", true},
        {"model.layers.{0-20,22-40}", "model.layers.40", true},
        {"model.layers.{0-20,22-40}", "model.layers.41", false},
        {"model.layers.{1,3,5}.mlp", "model.layers.3.mlp", true},
        {"model.layers.{1,3,5}.mlp", "model.layers.4.mlp", false},
        {"model.layers.{1,3,5}.mlp", "model.layers.35.mlp", false},
        {"model.layers.{7}", "model.layers.7", true},
        {"model.layers.{7}", "model.layers.77", false},
        {"model.layers.{ 0 - 3, 7 }", "model.layers.7", true},
        {"{*}{*}", "12", false}, /* an integer takes all its digits */
    };
    for (size_t i = 0; i < OCT_COUNT(cases); i++)
        assert_that(oct_glob_matches(cases[i].pattern, cases[i].text) == cases[i].matches,
                    "%s on %s", cases[i].pattern, cases[i].text);
}

static void given_a_module_all_below_it_is_selected(void **state) {
    (void)state;
    const char *name = "model.layers.0.self_attn.q_proj";
    assert_true(oct_pattern_selects(OCT_PATTERN_GLOB, "model.layers.{*}", name));
    assert_true(oct_pattern_selects(OCT_PATTERN_GLOB, "model.layers.0.self_attn", name));
    assert_true(oct_pattern_selects(OCT_PATTERN_GLOB, "*q_proj", name));
    assert_false(oct_pattern_selects(OCT_PATTERN_GLOB, "model.layers.1", name));
    assert_false(oct_pattern_selects(OCT_PATTERN_GLOB, "layers.0", name));
}

static void given_a_bare_word_it_is_a_whole_component(void **state) {
    (void)state;
    assert_true(oct_pattern_selects(OCT_PATTERN_GLOB, "gate", "model.layers.0.mlp.gate"));
    assert_false(oct_pattern_selects(OCT_PATTERN_GLOB, "gate", "model.layers.0.mlp.gate_proj"));
    assert_true(oct_pattern_selects(OCT_PATTERN_GLOB, "lm_head", "lm_head"));
    assert_true(
        oct_pattern_selects(OCT_PATTERN_GLOB, "self_attn", "model.layers.0.self_attn.q_proj"));
}

static void given_torchtitans_filters_any_substring_counts(void **state) {
    (void)state;
    assert_true(oct_pattern_selects(OCT_PATTERN_SUBSTRING, "gate", "layers.0.mlp.gate_proj"));
    assert_true(oct_pattern_selects(OCT_PATTERN_SUBSTRING, "layers.1", "layers.10.attention.wq"));
    assert_false(oct_pattern_selects(OCT_PATTERN_SUBSTRING, "Output", "output"));
}

static void given_a_malformed_brace_the_error_shows_the_place(void **state) {
    (void)state;
    const char *wrong[] = {"a.{",     "a.{}",    "a.{x}",   "a.{1,}",    "a.{3-1}",
                           "a.{1-}",  "a.{*",    "a}",      "a.{,1}",    "a.{1-2-3}",
                           "a.{1,*}", "a.{*,1}", "a.{1;2}", "a.{1,2-1}", "{1-99999999999999999999}",
                           ""};
    for (size_t i = 0; i < OCT_COUNT(wrong); i++) {
        oct_error err = {0};
        assert_int_equal(oct_glob_check(wrong[i], &err), OCT_INVALID);
        assert_non_null(strstr(err.message, "pattern"));
    }
    assert_int_equal(oct_glob_check("model.layers.{0-3}.{*}.*?", NULL), OCT_OK);
}

static void given_a_list_of_globs_the_first_that_is_none_is_told_with_the_others(void **state) {
    (void)state;
    const char *patterns[] = {"a", "{", "{0-3}", "b}", ""};
    oct_pattern_list list = {
        .kind = OCT_PATTERN_GLOB, .patterns = patterns, .n = 5, .where = "job.yaml:7: key"};
    oct_error err = {0};
    assert_int_equal(oct_pattern_list_check(&list, &err), OCT_INVALID);
    assert_string_equal(err.message,
                        "job.yaml:7: key: pattern \"{\": malformed brace at \"{\"; expected {*} or "
                        "{a-b,c,...} with integers a <= b; wrong as well: \"b}\", \"\"");
    list.kind = OCT_PATTERN_SUBSTRING; /* all of them are substrings */
    assert_int_equal(oct_pattern_list_check(&list, &err), OCT_OK);
    list = (oct_pattern_list){.kind = OCT_PATTERN_GLOB, .patterns = &patterns[2], .n = 1};
    assert_int_equal(oct_pattern_list_check(&list, &err), OCT_OK);
}

/* More wrong patterns than a message holds. */
static void given_many_globs_that_are_none_the_message_ends_in_time(void **state) {
    (void)state;
    enum { N = 300 };
    const char *patterns[N];
    for (int i = 0; i < N; i++)
        patterns[i] = "a.rather.long.name.with{brace";
    const oct_pattern_list list = {
        .kind = OCT_PATTERN_GLOB, .patterns = patterns, .n = N, .where = "key"};
    oct_error err = {0};
    assert_int_equal(oct_pattern_list_check(&list, &err), OCT_INVALID);
    assert_true(strlen(err.message) < sizeof err.message);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_a_list_of_globs_the_first_that_is_none_is_told_with_the_others),
        cmocka_unit_test(given_many_globs_that_are_none_the_message_ends_in_time),
        cmocka_unit_test(given_globs_they_are_anchored_and_braces_hold_integers),
        cmocka_unit_test(given_a_module_all_below_it_is_selected),
        cmocka_unit_test(given_a_bare_word_it_is_a_whole_component),
        cmocka_unit_test(given_torchtitans_filters_any_substring_counts),
        cmocka_unit_test(given_a_malformed_brace_the_error_shows_the_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
