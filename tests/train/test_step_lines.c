/* What a run says while it goes on. */
#include "train_support.h"

#include <math.h>

#include "base/count.h"
#include "infer/validate.h"
#include "train/metrics.h"
#include "train/pace.h"

static void given_batches_of_different_sizes_the_mean_is_weighted_by_tokens(void **state) {
    (void)state;
    oct_loss_sum total = {0};
    oct_loss_sum_add(&total, 2, 1);
    oct_loss_sum_add(&total, 30, 3);
    assert_true(oct_loss_sum_mean(&total) == 8);
    total = (oct_loss_sum){0};
    assert_true(isnan(oct_loss_sum_mean(&total)));
}

static void given_a_step_its_line_has_torchtitans_form(void **state) {
    (void)state;
    const oct_step_line line = {.step = 1,
                                .loss = 8.0403,
                                .grad_norm = 1.347,
                                .memory = 1.02 * 1073741824,
                                .machine_memory = 24 * 1073741824.0,
                                .tokens_per_s = 27483.2,
                                .flops_per_s = 1.97e12};
    oct_strbuf b = {0};
    oct_step_line_render(&line, OCT_COLOUR_OFF, &b);
    assert_string_equal(b.text, "step:  1  loss:  8.04030  grad_norm:  1.3470  "
                                "memory:  1.02GiB(4.25%)  tps: 27,483  tflops: 1.97");
    oct_strbuf_free(&b);
    oct_step_line_render(&line, OCT_COLOUR_ON, &b);
    assert_non_null(strstr(b.text, "\033[31mstep:  1  \033[32mloss:"));
    oct_strbuf_free(&b);
}

static void given_seconds_the_duration_is_said_to_plan_by(void **state) {
    (void)state;
    static const struct {
        double seconds;
        const char *said;
    } cases[] = {{0, "0 s"},           {40.4, "40 s"},         {99.4, "99 s"},
                 {100, "2 min"},       {3569, "59 min"},       {3570, "1 h 00 min"},
                 {7500, "2 h 05 min"}, {86400, "24 h 00 min"}, {7 * 86400, "7 days"}};
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        char text[32];
        oct_pace_duration(cases[i].seconds, text, sizeof text);
        assert_string_equal(text, cases[i].said);
    }
}

static void given_large_numbers_their_digits_are_grouped(void **state) {
    (void)state;
    oct_strbuf b = {0};
    oct_append_grouped(&b, 7);
    oct_strbuf_puts(&b, " ");
    oct_append_grouped(&b, 999);
    oct_strbuf_puts(&b, " ");
    oct_append_grouped(&b, 1000);
    oct_strbuf_puts(&b, " ");
    oct_append_grouped(&b, -1234567);
    assert_string_equal(b.text, "7 999 1,000 -1,234,567");
    oct_strbuf_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_batches_of_different_sizes_the_mean_is_weighted_by_tokens),
        cmocka_unit_test(given_a_step_its_line_has_torchtitans_form),
        cmocka_unit_test(given_seconds_the_duration_is_said_to_plan_by),
        cmocka_unit_test(given_large_numbers_their_digits_are_grouped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
