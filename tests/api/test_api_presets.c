/* Presets of the public API: what each framework's rules make of a recipe, down to its quirks on
 * special blocks. Expected values are from the frameworks' own formulas. */
#include "story.h"

#include <math.h>
#include <octet/octet.h>
#include <string.h>

#include "base/count.h"

#define SIZED(type, ...) ((type){.struct_size = sizeof(type), __VA_ARGS__})

static oct_quantizer preset(const char *recipe, const char *rules, oct_use use, int axis) {
    oct_quantizer q = SIZED(oct_quantizer, 0);
    oct_error err = {0};
    if (oct_quantizer_preset(recipe, rules, use, axis, &q, &err))
        fail_msg("%s", err.message);
    return q;
}

static void given_rules_a_recipe_is_the_quantizer_that_they_say(void **state) {
    (void)state;
    oct_quantizer q = preset("mxfp8", "torchtitan-npu", OCT_USE_WEIGHT, 1);
    assert_true(q.scale_mode == OCT_SCALE_RCEIL && q.source == OCT_BF16 && q.quirks == 0);
    assert_true(q.block_rows == 1 && q.block_cols == 32 && q.scale_dtype == OCT_E8M0);
    q = preset("mxfp8", "torchtitan-npu@0.2.2", OCT_USE_EXPERT_INPUT, 0);
    assert_true(q.scale_mode == OCT_SCALE_FLOOR && q.block_rows == 32 && q.block_cols == 1);
    assert_true(preset("mxfp8", "mindspeed", OCT_USE_INPUT, 1).scale_mode == OCT_SCALE_FLOOR);
    assert_true(preset("hif8", "mindspeed", OCT_USE_GRADIENT, 1).target == 224);
    assert_true(preset("hif8", "torchtitan-npu", OCT_USE_INPUT, 1).target == 32768);
    assert_true(preset("mxfp8-32x32", "octet", OCT_USE_WEIGHT, 0).block_rows == 32);
    q = preset("e4m3:1x128", "transformer-engine", OCT_USE_INPUT, 0);
    assert_true(q.block_rows == 128 && q.block_cols == 1 && q.scale_dtype == OCT_F32);
    assert_true(q.quirks & OCT_QUIRK_POWER_OF_TWO && q.target == 448);
    assert_true(preset("e5m2:tensor", "torchao", OCT_USE_INPUT, 1).quirks ==
                (OCT_QUIRK_MULTIPLIES | OCT_QUIRK_AMAX_FLOOR));
    static const struct {
        const char *recipe, *rules, *says;
    } wrong[] = {{"mxfp8", "torchaoo", "did you mean \"torchao\""},
                 {"hif8", "torchao", "has no HiF8"},
                 {"hif8:mx", "octet", "mx is for e4m3 and e5m2"},
                 {"e4m3:12y", "octet", ":RxC"},
                 {"e3m4:mx", "octet", "expected e4m3, e5m2 or hif8 first"},
                 {"delayed_hif8_pertensor", "octet", "expected a dynamic recipe"},
                 {"mxfp9", "octet", "mxfp8"}};
    for (size_t i = 0; i < OCT_COUNT(wrong); i++) {
        oct_error err = {0};
        assert_int_equal(
            oct_quantizer_preset(wrong[i].recipe, wrong[i].rules, OCT_USE_INPUT, 1, &q, &err),
            OCT_INVALID);
        assert_that(strstr(err.message, wrong[i].says), "%s", err.message);
    }
    assert_string_equal(oct_rules_name(0), "octet");
    assert_null(oct_rules_name(99));
}

/* A block's scale and first code by rules' quirks, from the frameworks' own formulas. */
static void given_special_blocks_each_framework_has_its_own_scale_and_codes(void **state) {
    (void)state;
    static const struct {
        const char *recipe, *rules;
        float x, rest; /* the first element, all others */
        uint8_t scale, code, rest_code;
    } cases[] = {
        {"mxfp8", "octet", INFINITY, 1, 255, 0x7f, 0x7f},
        {"mxfp8", "ocp", NAN, 1, 255, 0x7f, 0x7f},
        {"mxfp8", "torchao", INFINITY, 1, 247, 0x7e, 0}, /* 2^120: 1 is below the smallest */
        {"mxfp8", "torchao", NAN, -1, 255, 0x7f, 0x80},
        {"mxfp8_cublas_rceil", "torchao", NAN, -1, 255, 0x7f, 0x7f},
        {"mxfp8_cublas_rceil", "torchao", INFINITY, 0x1p127f, 254, 0x7e, 0x38},
        /* one step above 448 * 2^4: log2 in fp32 is 4 */
        {"mxfp8_cublas_rceil", "torchao", 7168.0005f, 1, 131, 0x7e, 0x18},
        {"mxfp8", "octet", 7168.0005f, 1, 132, 0x76, 0x10},
        {"mxfp8", "transformer-engine", NAN, 448, 127, 0x7f, 0x7e},
        {"mxfp8", "transformer-engine", INFINITY, 0x1p127f, 254, 0x7e, 0x38},
        {"mxfp8", "torchao", 0x1p-119f, 0x1p-126f, 0, 0x70, 0x38}, /* over 2^-126, not 2^-127 */
        {"mxfp8", "octet", 0x1p-119f, 0x1p-126f, 0, 0x78, 0x40},
    };
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        float x[32];
        uint8_t codes[32], scale;
        const oct_quantizer q = preset(cases[i].recipe, cases[i].rules, OCT_USE_INPUT, 1);
        for (int k = 0; k < 32; k++)
            x[k] = k == 0 ? cases[i].x : cases[i].rest;
        const oct_matrix m = SIZED(oct_matrix, .dtype = OCT_F32, .data = x, .rows = 1, .cols = 32,
                                   .row_stride = 32, .col_stride = 1);
        oct_coded out = SIZED(oct_coded, .codes = codes, .row_stride = 32, .col_stride = 1,
                              .scales = &scale, .scale_row_stride = 1, .scale_col_stride = 1);
        assert_int_equal(oct_matrix_quantize(&q, &m, &out, 0), OCT_OK);
        assert_that(scale == cases[i].scale && codes[0] == cases[i].code &&
                        codes[31] == cases[i].rest_code,
                    "case %d (%s, %s): scale %d, codes %02x %02x; expected %d, %02x %02x", (int)i,
                    cases[i].recipe, cases[i].rules, scale, codes[0], codes[31], cases[i].scale,
                    cases[i].code, cases[i].rest_code);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_rules_a_recipe_is_the_quantizer_that_they_say),
        cmocka_unit_test(given_special_blocks_each_framework_has_its_own_scale_and_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
