/* The recipe grammar: what users write, and what they are told. */
#include "story.h"

#include <string.h>

#include "base/count.h"
#include "quant/recipe.h"

static oct_recipe parse(const char *name) {
    oct_recipe recipe;
    oct_error err = {0};
    if (oct_recipe_parse(name, &recipe, &err))
        fail_msg("%s: %s", name, err.message);
    return recipe;
}

static void given_mxfp8_it_means_the_long_name_in_any_case(void **state) {
    (void)state;
    oct_recipe a = parse("mxfp8"), b = parse("dynamic_MX-1-1-32_E4M3_E4M3_E4M3"),
               c = parse("DYNAMIC_mx_e4m3_E4M3_e4m3");
    assert_string_equal(a.name, "mxfp8");
    memset(a.name, 0, sizeof a.name);
    memset(b.name, 0, sizeof b.name);
    memset(c.name, 0, sizeof c.name);
    assert_memory_equal(&a, &b, sizeof a);
    assert_memory_equal(&a, &c, sizeof a);
    assert_int_equal(a.granularity, OCT_MX);
    assert_int_equal(a.weight_block_rows, 1);
    assert_int_equal(a.scale_mode, OCT_SCALE_RCEIL);
    assert_int_equal(parse("mxfp8-32x32").weight_block_rows, 32);
}

static void given_hif8_targets_depend_on_the_role(void **state) {
    (void)state;
    oct_recipe r = parse("hif8"), full = parse("hif8_full_range");
    assert_true(r.target[OCT_ROLE_INPUT] == 15 && r.target[OCT_ROLE_WEIGHT] == 15);
    assert_true(r.target[OCT_ROLE_GRAD] == 224);
    for (int role = 0; role < OCT_N_ROLES; role++)
        assert_true(full.target[role] == 32768);
}

static void given_dtypes_by_role_each_role_gets_its_own(void **state) {
    (void)state;
    oct_recipe r = parse("delayed_per_tensor_HiF8_E4M3_E5M2");
    assert_int_equal(r.strategy, OCT_DELAYED);
    assert_int_equal(r.granularity, OCT_PER_TENSOR);
    assert_int_equal(r.format[OCT_ROLE_INPUT], OCT_HIF8);
    assert_int_equal(r.format[OCT_ROLE_WEIGHT], OCT_E4M3);
    assert_int_equal(r.format[OCT_ROLE_GRAD], OCT_E5M2);
    assert_true(r.target[OCT_ROLE_INPUT] == 15 && r.target[OCT_ROLE_WEIGHT] == 448);
    assert_true(r.target[OCT_ROLE_GRAD] == 57344);
    assert_int_equal(parse("dynamic_perchannel_E4M3_E4M3_E5M2").granularity, OCT_PER_CHANNEL);
    assert_int_equal(parse("dynamic_per_channel_E4M3_E4M3_E5M2").granularity, OCT_PER_CHANNEL);
}

static void given_what_is_not_accepted_the_error_lists_what_is(void **state) {
    (void)state;
    const char *wrong[] = {
        "mxfp9",
        "",
        "dynamic",
        "dynamic_mx_hif8_hif8_hif8",
        "delayed_mx_E4M3_E4M3_E4M3",
        "delayed_per_channel_E4M3_E4M3_E4M3",
        "dynamic_per_channel_E4M3_HiF8_E4M3",
        "dynamic_mx-1-1-16_E4M3_E4M3_E4M3",
        "dynamic_mx-32-32_E4M3_E4M3_E4M3",
        "dynamic_mxx_E4M3_E4M3_E4M3",
        "dynamic_per_tensor-1-1-32_E4M3_E4M3_E4M3",
        "static_mx_E4M3_E4M3_E4M3",
        "dynamic_mx_E4M3_E4M3",
        "dynamic_mx_E4M3_E4M3_E4M3_E4M3",
        "dynamic_mx_E4M3_E4M3_E3M4",
        "_________________________________________",
        "dynamic_mx_E4M3_E4M3_E4M3xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"};
    for (size_t i = 0; i < OCT_COUNT(wrong); i++) {
        oct_recipe recipe;
        oct_error err = {0};
        assert_int_equal(oct_recipe_parse(wrong[i], &recipe, &err), OCT_INVALID);
        assert_non_null(strstr(err.message, "mxfp8-32x32"));
        assert_non_null(strstr(err.message, "hif8_full_range"));
    }
    oct_recipe recipe;
    oct_error err = {0};
    oct_recipe_parse("mxfp9", &recipe, &err);
    assert_non_null(strstr(err.message, "did you mean \"mxfp8\""));
}

static void given_the_former_name_of_a_mode_it_means_the_same(void **state) {
    (void)state;
    oct_gemm_mode fast = OCT_GEMM_AUTO, former = OCT_GEMM_AUTO, exact = OCT_GEMM_AUTO;
    oct_error err = {0};
    assert_int_equal(oct_gemm_mode_parse("fast", &fast, &err), OCT_OK);
    assert_int_equal(oct_gemm_mode_parse("aligned", &former, &err), OCT_OK);
    assert_int_equal(oct_gemm_mode_parse("exact", &exact, &err), OCT_OK);
    assert_int_equal(fast, OCT_GEMM_FAST);
    assert_int_equal(former, OCT_GEMM_FAST);
    assert_int_equal(exact, OCT_GEMM_EXACT);
    assert_string_equal(oct_gemm_mode_name(former), "fast");
    assert_int_equal(oct_gemm_mode_parse("align", &fast, &err), OCT_INVALID);
    assert_non_null(strstr(err.message, "auto, exact or fast"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_mxfp8_it_means_the_long_name_in_any_case),
        cmocka_unit_test(given_hif8_targets_depend_on_the_role),
        cmocka_unit_test(given_dtypes_by_role_each_role_gets_its_own),
        cmocka_unit_test(given_what_is_not_accepted_the_error_lists_what_is),
        cmocka_unit_test(given_the_former_name_of_a_mode_it_means_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
