/* Options that would act on nothing, and what is told of them. */
#include <math.h>

#include "base/count.h"
#include "base/log.h"
#include "job_texts.h"

#define PLANNED "training:\n  quantization_plan:\n    recipe_name: mxfp8\n"
#define MX "--model.converters=quantize.linear.mx"
#define BOTH "--model.converters=quantize.linear.mx,quantize.grouped_mm.mx"
#define LINEARS "--quantize.linear.mx."
#define GROUPED "--quantize.grouped_mm.mx."
#define PLANS "--training.quantization_plan."
#define NO_PLAN PLANS "recipe_name=none"

static void given_an_option_of_a_recipe_that_cannot_act_it_is_refused_and_told_why(void **state) {
    (void)state;
    static const struct {
        const char *path, *text, *first, *second, *message;
    } cases[] = {
        {"job.toml", "", LINEARS "recipe_name=hif8", NULL,
         LINEARS "recipe_name: nothing here is quantized by quantize.linear.mx; expected "
                 "quantize.linear.mx in model.converters beside it; got \"hif8\""},
        {"job.toml", "", GROUPED "groups=true", MX,
         GROUPED "groups: nothing here is quantized by quantize.grouped_mm.mx; expected "
                 "quantize.grouped_mm.mx in model.converters beside it; got \"true\""},
        {"job.toml", "[quantize.linear.mx]\nrecipe_name = \"hif8\"\n", MX,
         LINEARS "scale_mode=floor",
         LINEARS "scale_mode: the recipe hif8 has no block scales; expected none, or an MX recipe "
                 "such as mxfp8; got \"floor\""},
        {"job.toml", "", MX, LINEARS "amax_history_len=4",
         LINEARS "amax_history_len: the recipe mxfp8 keeps no amax of earlier steps; expected a "
                 "delayed recipe such as delayed_per_tensor_HiF8_HiF8_HiF8; got 4"},
        {"job.toml", "", BOTH, GROUPED "groups=upstream",
         GROUPED "groups: the recipe mxfp8 has no scales of whole tensors; expected none, or a "
                 "per-tensor recipe such as hif8; got \"upstream\""},
        {"job.toml", "", MX, LINEARS "fsdp_low_precision_all_gather_mode=all",
         LINEARS
         "fsdp_low_precision_all_gather_mode: weights aren't gathered in 8 bits; expected "
         "--quantize.linear.mx.enable_fsdp_low_precision_all_gather beside it; got \"all\""},
        {"job.yaml", PLANNED "    enable_fsdp_low_precision_all_gather: false\n",
         PLANS "fsdp_low_precision_all_gather_mode=on-demand", NULL,
         PLANS "fsdp_low_precision_all_gather_mode: weights aren't gathered in 8 bits; expected "
               "--training.quantization_plan.enable_fsdp_low_precision_all_gather beside it; got "
               "\"on-demand\""},
        {"job.yaml", PLANNED, "--model.fsdp_low_precision_all_gather_mode=all",
         PLANS "no-enable_fsdp_low_precision_all_gather",
         "--model.fsdp_low_precision_all_gather_mode: weights aren't gathered in 8 bits; expected "
         "--training.quantization_plan.enable_fsdp_low_precision_all_gather beside it; got "
         "\"all\""},
        {"job.yaml", PLANNED, GROUPED "recipe_name=hif8", GROUPED "groups=upstream",
         GROUPED "groups: the rules mindspeed@2026-07 group rows so without it; expected none, or "
                 "true to differ; got \"upstream\""},
        {"job.yaml", PLANNED, NO_PLAN, LINEARS "recipe_name=hif8",
         LINEARS "recipe_name: training.quantization_plan.recipe_name is none; expected a recipe "
                 "in --training.quantization_plan.recipe_name beside it; got \"hif8\""},
    };
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        const char *overrides[] = {cases[i].first, cases[i].second};
        int n = cases[i].second ? 2 : 1;
        char message[512];
        oct_job job;
        oct_error err;
        assert_int_equal(load_text(cases[i].path, cases[i].text, overrides, n, &job, &err),
                         OCT_INVALID);
        snprintf(message, sizeof message, "command line: %s", cases[i].message);
        assert_string_equal(err.message, message);
        assert_null(job.others);
        oct_job_free(&job);
        /* One arm of several, or a run that goes on: it's for another, or was taken so before. */
        for (int reading = OCT_JOB_READ_ARMS; reading <= OCT_JOB_READ_SAVED; reading++) {
            assert_int_equal(
                oct_job_load_as((oct_job_reading)reading, cases[i].path, overrides, n, &job, &err),
                OCT_OK);
            oct_job_free(&job);
        }
    }
}

static void given_any_spelling_of_an_option_its_key_is_known(void **state) {
    (void)state;
    static const char key[] = "training.a_flag.mx_key";
    static const struct {
        const char *option;
        bool sets;
    } cases[] = {
        {"--training.a_flag.mx_key", true},
        {"--training.a_flag.mx_key=1", true},
        {"--training.a-flag.mx-key=1", true},
        {"--training.a_flag.no-mx_key", true},
        {"--training.a_flag.no_mx_key", true},
        {"--no-training.a-flag.mx_key", true},
        {"--training.a_flag.mx_key2=1", false},
        {"--training.a_flag.mx_ke=1", false},
        {"--training.no-a_flag.mx_key", false},
        {"training.a_flag.mx_key", false},
        {"--training.a_flag.no-no-mx_key", false},
        {"--training=training.a_flag.mx_key", false},
        {"1", false},
        {"", false},
    };
    for (size_t i = 0; i < OCT_COUNT(cases); i++)
        if (oct_job_option_sets(cases[i].option, key, sizeof key - 1) != cases[i].sets)
            fail_msg("%s", cases[i].option);
    assert_false(oct_job_option_sets("--training.a_flag.mx_key", key, sizeof key - 2));
    assert_true(oct_job_option_sets("--training.no_save_optim", "training.no_save_optim", 22));
}

static void given_a_files_table_without_its_converter_only_its_grammar_counts(void **state) {
    (void)state;
    oct_job job;
    oct_error err;
    const char table[] =
        "[quantize.grouped_mm.mx]\nrecipe_name = \"hif8\"\nscale_mode = \"floor\"\n";
    const char *off[] = {LINEARS "scale_mode=none",
                         GROUPED "enable_fsdp_low_precision_all_gather=false"};
    load_toml(table, off, 2, &job);
    oct_job_free(&job);
    assert_int_equal(load_text("job.toml", "[quantize.grouped_mm.mx]\nrecipe_name = \"hif99\"\n",
                               NULL, 0, &job, &err),
                     OCT_INVALID);
    assert_non_null(strstr(err.message, "job.toml:2: quantize.grouped_mm.mx.recipe_name: "));
    oct_job_free(&job);
}

static void add_line(void *user, oct_log_level level, const char *line) {
    oct_strbuf_printf(user, "%d %s\n", (int)level, line);
}

static void
given_options_of_a_file_that_its_recipe_has_no_use_for_the_log_tells_each(void **state) {
    (void)state;
    static const char text[] = "[model]\nconverters = [\"quantize.linear.mx\", "
                               "\"quantize.grouped_mm.mx\"]\n"
                               "[quantize.linear.mx]\nrecipe_name = \"hif8\"\n"
                               "scale_mode = \"floor\"\namax_history_len = 4\n"
                               "[quantize.grouped_mm.mx]\nscale_mode = \"even\"\n"
                               "groups = \"true\"\n";
    static const char *const used[] = {"--quantize.linear.mx.recipe_name=mxfp8",
                                       "--quantize.linear.mx.recipe_name=delayed_hif8_pertensor"};
    static const char *const told[] = {"quantize.linear.mx.scale_mode: not used, since the recipe ",
                                       "quantize.linear.mx.amax_history_len: not used, since ",
                                       "quantize.grouped_mm.mx.groups: not used, since the recipe "
                                       "mxfp8 has no scales of whole tensors"};
    for (int k = -1; k < (int)OCT_COUNT(used); k++) {
        oct_job job;
        oct_strbuf log = {0};
        load_toml(text, k < 0 ? NULL : &used[k], k >= 0, &job);
        oct_log_set_sink(add_line, &log);
        oct_job_log_notes(&job);
        oct_log_set_sink(NULL, NULL);
        /* with mxfp8 the scale rule is used, with a delayed recipe the history */
        const bool expected[] = {k != 0, k != 1, true};
        for (size_t i = 0; i < OCT_COUNT(told); i++)
            if ((strstr(log.text, told[i]) != NULL) != expected[i])
                fail_msg("%d: %s", k, log.text);
        if (k < 0)
            assert_non_null(strstr(log.text, " job.toml:5: quantize.linear.mx.scale_mode: not"));
        oct_strbuf_free(&log);
        oct_job_free(&job);
    }
}

static void given_a_recipe_that_names_its_scale_rule_another_beside_it_is_refused(void **state) {
    (void)state;
    const char text[] = "[quantize.linear.mx]\nrecipe_name = \"mxfp8_cublas\"\n";
    const char *same[] = {MX, LINEARS "scale_mode=floor"},
               *other[] = {MX, LINEARS "scale_mode=rceil"};
    oct_job job;
    oct_error err;
    load_toml(text, same, 2, &job);
    oct_job_free(&job);
    assert_int_equal(load_text("job.toml", text, other, 2, &job, &err), OCT_INVALID);
    assert_string_equal(
        err.message, "command line: --quantize.linear.mx.scale_mode: the recipe's name says "
                     "another rule; expected \"floor\" or none; got \"rceil\" beside job.toml:2: "
                     "quantize.linear.mx.recipe_name = \"mxfp8_cublas\"");
    oct_job_free(&job);
    const char *yaml[] = {LINEARS "recipe_name=mxfp8_cublas_rceil", LINEARS "scale_mode=floor"};
    assert_int_equal(load_text("job.yaml", PLANNED, yaml, 2, &job, &err), OCT_INVALID);
    assert_non_null(strstr(err.message, "expected \"rceil\" or none; got \"floor\""));
    oct_job_free(&job);
}

static void given_an_empty_path_on_the_command_line_it_is_not_taken_for_none(void **state) {
    (void)state;
    static const char *const keys[] = {"checkpoint.initial_load_path", "validation.dataset_path",
                                       "training.dataset_path", "model.tokenizer_path"};
    for (size_t i = 0; i < OCT_COUNT(keys); i++) {
        char override[128], message[256];
        const char *const overrides[] = {override};
        oct_job job;
        snprintf(override, sizeof override, "--%s=", keys[i]);
        snprintf(message, sizeof message,
                 "command line: --%s: the value is empty; expected a path or a name, or none; got "
                 "\"\"",
                 keys[i]);
        expect_error("job.toml", "", override, message);
        snprintf(override, sizeof override, "--%s=none", keys[i]);
        load_toml("", overrides, 1, &job);
        oct_job_free(&job);
    }
    oct_job job;
    oct_error err;
    const char *yaml[] = {"--training.load=", "--training.save="};
    for (size_t i = 0; i < OCT_COUNT(yaml); i++) {
        assert_int_equal(load_text("job.yaml", PLANNED, &yaml[i], 1, &job, &err), OCT_INVALID);
        assert_non_null(strstr(err.message, ": the value is empty; expected "));
        oct_job_free(&job);
    }
}

static void given_one_argument_under_two_names_both_are_named(void **state) {
    (void)state;
    oct_job job;
    oct_error err;
    expect_error("job.toml", "[model.args]\nnum-experts = 16\nnum_experts = 4\n", NULL,
                 "job.toml:3: model.args.num_experts: another name of an argument that is there; "
                 "expected one of both; got it beside job.toml:2: model.args.num-experts");
    const char *typed[] = {"--model.args.rope_factor=2", "--model.args.rope_scaling_factor=4"};
    assert_int_equal(load_text("job.toml", "", typed, 2, &job, &err), OCT_INVALID);
    assert_string_equal(err.message,
                        "command line: --model.args.rope_scaling_factor: another name of an "
                        "argument that is there; expected one of both; got it beside command line: "
                        "--model.args.rope_factor");
    oct_job_free(&job);
    const char *over[] = {"--model.args.n_expert_groups=2"};
    load_toml("[model.args]\nnum_expert_groups = 4\ndim = 64\n", over, 1, &job);
    assert_int_equal(job.model.args->items.n, 2);
    assert_null(oct_value_find(job.model.args, "num_expert_groups"));
    assert_int_equal(oct_value_find(job.model.args, "n_expert_groups")->integer, 2);
    oct_job_free(&job);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_an_option_of_a_recipe_that_cannot_act_it_is_refused_and_told_why),
        cmocka_unit_test(given_any_spelling_of_an_option_its_key_is_known),
        cmocka_unit_test(given_a_files_table_without_its_converter_only_its_grammar_counts),
        cmocka_unit_test(given_options_of_a_file_that_its_recipe_has_no_use_for_the_log_tells_each),
        cmocka_unit_test(given_a_recipe_that_names_its_scale_rule_another_beside_it_is_refused),
        cmocka_unit_test(given_an_empty_path_on_the_command_line_it_is_not_taken_for_none),
        cmocka_unit_test(given_one_argument_under_two_names_both_are_named),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
