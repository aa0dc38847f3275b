/* The scalar codecs where golden vectors have no rows: bf16, float16, the largest values; and that
 * training's codec by dtype is the one that the golden vectors check. */
#include "story.h"

#include <octet/octet.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/count.h"
#include "exact.h"
#include "format/f16.h"

static float from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* (1 + m/128) 2^(e-127), or m/128 2^-126; without sign. */
static double exact_bf16(uint32_t code) {
    int e = (int)(code >> 7 & 0xff), m = (int)(code & 0x7f);
    if (e == 255)
        return m ? NAN : INFINITY;
    return e ? ldexp(1 + m / 128.0, e - 127) : ldexp(m / 128.0, -126);
}

static void given_any_bf16_its_value_is_that_of_its_fields_and_comes_back(void **state) {
    (void)state;
    for (uint32_t code = 0; code < 0x10000; code++) {
        double magnitude = exact_bf16(code & 0x7fff),
               value = code & 0x8000 ? -magnitude : magnitude;
        double got = (double)oct_bf16_decode((uint16_t)code);
        if (isnan(value)) {
            assert_true(isnan(got));
            assert_true(isnan(exact_bf16(oct_bf16_encode((float)got) & 0x7fffu)));
            continue;
        }
        assert_true(got == value && !signbit(got) == !signbit(value));
        assert_int_equal(oct_bf16_encode((float)value), code);
    }
}

/* Between two neighbours, the middle goes to the even one, and what is beside it to the nearer. */
static void given_numbers_between_two_bf16_the_nearer_and_the_even_one_win(void **state) {
    (void)state;
    for (uint32_t code = 0; code < 0x7f80; code++)
        for (uint32_t sign = 0; sign < 2; sign++) {
            uint32_t even = (code + 1) & ~1u, bits = sign << 31 | code << 16 | 0x8000;
            assert_int_equal(oct_bf16_encode(from_bits(bits)), sign << 15 | even);
            assert_int_equal(oct_bf16_encode(from_bits(bits - 1)), sign << 15 | code);
            assert_int_equal(oct_bf16_encode(from_bits(bits + 1)), sign << 15 | (code + 1));
        }
}

/* (1 + m/1024) 2^(e-15), or m/1024 2^-14; without sign. */
static double exact_f16(uint32_t code) {
    int e = (int)(code >> 10 & 31), m = (int)(code & 1023);
    if (e == 31)
        return m ? NAN : INFINITY;
    return e ? ldexp(1 + m / 1024.0, e - 15) : ldexp(m / 1024.0, -14);
}

static void given_any_float16_its_value_is_that_of_its_fields_and_comes_back(void **state) {
    (void)state;
    for (uint32_t code = 0; code < 0x10000; code++) {
        double magnitude = exact_f16(code & 0x7fff), value = code & 0x8000 ? -magnitude : magnitude;
        double got = (double)oct_f16_decode((uint16_t)code);
        if (isnan(value)) {
            assert_true(isnan(got));
            assert_true(isnan(exact_f16(oct_f16_encode((float)got) & 0x7fffu)));
            continue;
        }
        assert_true(got == value && !signbit(got) == !signbit(value));
        assert_int_equal(oct_f16_encode((float)value), code);
    }
}

/* The middle between two is exact in fp32; beyond the largest the next step would be 65536. */
static void given_numbers_between_two_float16_the_nearer_and_the_even_one_win(void **state) {
    (void)state;
    for (uint32_t code = 0; code < 0x7c00; code++)
        for (uint32_t sign = 0; sign < 2; sign++) {
            uint32_t even = (code + 1) & ~1u;
            double next = code == 0x7bff ? 65536 : exact_f16(code + 1);
            float middle = (float)((exact_f16(code) + next) / 2 * (sign ? -1 : 1));
            assert_int_equal(oct_f16_encode(middle), sign << 15 | even);
            assert_int_equal(oct_f16_encode(nextafterf(middle, 0)), sign << 15 | code);
            assert_int_equal(oct_f16_encode(nextafterf(middle, sign ? -INFINITY : INFINITY)),
                             sign << 15 | (code + 1));
        }
    assert_int_equal(oct_f16_encode(0x1p-149f), 0);
    assert_int_equal(oct_f16_encode(-0x1p-149f), 0x8000);
    assert_int_equal(oct_f16_encode(3.4e38f), 0x7c00);
}

static void given_a_format_its_largest_value_is_that_of_its_codes(void **state) {
    (void)state;
    static const struct {
        oct_dtype format;
        float largest;
    } cases[] = {{OCT_E4M3, 448}, {OCT_E5M2, 57344}, {OCT_HIF8, 32768}};
    for (int i = 0; i < 3; i++) {
        assert_true((double)cases[i].largest == exact_largest(cases[i].format));
        float largest = 0, decoded = 0;
        uint8_t code = 0;
        assert_int_equal(oct_fp8_max(cases[i].format, &largest), OCT_OK);
        assert_true(largest == cases[i].largest);
        assert_int_equal(oct_fp8_encode(cases[i].format, 1e30f, &code), OCT_OK);
        assert_int_equal(oct_fp8_decode(cases[i].format, code, &decoded), OCT_OK);
        assert_true(decoded == cases[i].largest);
    }
}

static void given_a_dtype_of_another_family_or_no_memory_it_is_refused_untouched(void **state) {
    (void)state;
    for (int dtype = -1; dtype <= OCT_N_DTYPES; dtype++) {
        bool fp8 = dtype == OCT_E4M3 || dtype == OCT_E5M2 || dtype == OCT_HIF8;
        uint8_t code = 0x55;
        float value = 12345;
        oct_status expected = fp8 ? OCT_OK : OCT_INVALID;
        assert_int_equal(oct_fp8_encode((oct_dtype)dtype, 1, &code), expected);
        assert_int_equal(oct_fp8_decode((oct_dtype)dtype, 0x21, &value), expected);
        assert_true(fp8 || (code == 0x55 && value == 12345));
        assert_int_equal(oct_fp8_max((oct_dtype)dtype, &value), expected);
        assert_int_equal(oct_mx_scale(1, (oct_dtype)dtype, OCT_SCALE_FLOOR, &code),
                         fp8 && dtype != OCT_HIF8 ? OCT_OK : OCT_INVALID);
        assert_true(fp8 || (code == 0x55 && value == 12345));
    }
    uint8_t code;
    assert_int_equal(oct_fp8_encode(OCT_E4M3, 1, NULL), OCT_INVALID);
    assert_int_equal(oct_fp8_decode(OCT_E4M3, 1, NULL), OCT_INVALID);
    assert_int_equal(oct_fp8_max(OCT_E4M3, NULL), OCT_INVALID);
    assert_int_equal(oct_mx_scale(1, OCT_E4M3, OCT_SCALE_EVEN, NULL), OCT_INVALID);
    assert_int_equal(oct_mx_scale(-1, OCT_E4M3, OCT_SCALE_EVEN, &code), OCT_INVALID);
    assert_int_equal(oct_mx_scale(1, OCT_E4M3, (oct_scale_mode)4, &code), OCT_INVALID);
    assert_int_equal(oct_dtype_bytes((oct_dtype)99), 0);
    assert_string_equal(oct_dtype_name((oct_dtype)-1), "unknown");
}

static void given_a_library_its_version_is_that_of_its_headers(void **state) {
    (void)state;
    char expected[32];
    snprintf(expected, sizeof expected, "%d.%d.%d", OCT_VERSION_MAJOR, OCT_VERSION_MINOR,
             OCT_VERSION_PATCH);
    assert_string_equal(oct_version(), expected);
    assert_int_equal(oct_api_version(), 1);
}

static void given_a_dtype_its_size_and_name_are_known(void **state) {
    (void)state;
    static const struct {
        oct_dtype dtype;
        size_t n_bytes;
        const char *name;
    } cases[] = {{OCT_F32, 4, "float32"}, {OCT_BF16, 2, "bfloat16"}, {OCT_E4M3, 1, "E4M3"},
                 {OCT_E5M2, 1, "E5M2"},   {OCT_HIF8, 1, "HiF8"},     {OCT_F64, 8, "float64"},
                 {OCT_I64, 8, "int64"},   {OCT_I16, 2, "int16"}};
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        assert_int_equal(oct_dtype_bytes(cases[i].dtype), cases[i].n_bytes);
        assert_string_equal(oct_dtype_name(cases[i].dtype), cases[i].name);
    }
}

static void given_a_shape_views_know_their_elements_bytes_rows_and_columns(void **state) {
    (void)state;
    float x[24];
    const oct_tensor views[] = {oct_tensor_1d(OCT_F32, 24, x),
                                oct_tensor_2d(OCT_F32, 4, 6, x),
                                {.dtype = OCT_BF16, .n_dims = 3, .shape = {2, 3, 4}, .data = x}};
    static const int64_t rows[] = {1, 4, 6}, cols[] = {24, 6, 4}, bytes[] = {96, 96, 48};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(views[i].n_dims, i + 1);
        assert_int_equal(views[i].dtype, i < 2 ? OCT_F32 : OCT_BF16);
        assert_ptr_equal(views[i].data, x);
        assert_int_equal(oct_tensor_elements(&views[i]), 24);
        assert_int_equal(oct_tensor_bytes(&views[i]), bytes[i]);
        assert_int_equal(oct_tensor_rows(&views[i]), rows[i]);
        assert_int_equal(oct_tensor_cols(&views[i]), cols[i]);
    }
}

static void given_a_status_the_process_ends_with_its_code_and_memory_says_so(void **state) {
    (void)state;
    assert_int_equal(oct_status_exit_code(OCT_OK), 0);
    assert_int_equal(oct_status_exit_code(OCT_FAILED), 1);
    assert_int_equal(oct_status_exit_code(OCT_INVALID), 2);
    assert_int_equal(oct_status_exit_code(OCT_NO_MEMORY), 1);
    oct_error err = {0};
    assert_int_equal(oct_fail_memory(&err), OCT_NO_MEMORY);
    assert_int_equal(err.status, OCT_NO_MEMORY);
    assert_string_equal(err.message, "out of memory");
    assert_int_equal(oct_fail_memory(NULL), OCT_NO_MEMORY);
}

static void given_a_number_of_threads_it_is_kept_and_less_than_one_is_one(void **state) {
    (void)state;
    int before = oct_threads();
    assert_true(before >= 1);
    oct_threads_set(3);
    assert_int_equal(oct_threads(), 3);
    oct_threads_set(0);
    assert_int_equal(oct_threads(), 1);
    oct_threads_set(before);
    assert_int_equal(oct_threads(), before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_any_bf16_its_value_is_that_of_its_fields_and_comes_back),
        cmocka_unit_test(given_numbers_between_two_bf16_the_nearer_and_the_even_one_win),
        cmocka_unit_test(given_any_float16_its_value_is_that_of_its_fields_and_comes_back),
        cmocka_unit_test(given_numbers_between_two_float16_the_nearer_and_the_even_one_win),
        cmocka_unit_test(given_a_format_its_largest_value_is_that_of_its_codes),
        cmocka_unit_test(given_a_dtype_of_another_family_or_no_memory_it_is_refused_untouched),
        cmocka_unit_test(given_a_library_its_version_is_that_of_its_headers),
        cmocka_unit_test(given_a_dtype_its_size_and_name_are_known),
        cmocka_unit_test(given_a_shape_views_know_their_elements_bytes_rows_and_columns),
        cmocka_unit_test(given_a_status_the_process_ends_with_its_code_and_memory_says_so),
        cmocka_unit_test(given_a_number_of_threads_it_is_kept_and_less_than_one_is_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
