/* The reader of golden vectors against files that aren't what they should be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/count.h"
#include "base/fs.h"
#include "golden.h"

typedef struct outcome {
    oct_status status;
    golden_counts counts;
    char log[4096];
} outcome;

/* Checks a folder with one file of these bytes (none when `name` is NULL). */
static outcome check(const char *name, const char *bytes, size_t n_bytes) {
    outcome o = {0};
    char folder[] = "/tmp/octet-golden-XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *path = oct_path_join(folder, name ? name : "none");
    if (name)
        assert_int_equal(oct_file_write(path, bytes, n_bytes, NULL), OCT_OK);
    FILE *log = fmemopen(o.log, sizeof o.log, "w");
    assert_non_null(log);
    o.status = golden_check_folder(folder, log, &o.counts);
    fclose(log);
    unlink(path);
    rmdir(folder);
    oct_free(path);
    return o;
}

static outcome check_text(const char *name, const char *text) {
    return check(name, text, strlen(text));
}

static void given_right_rows_they_pass(void **state) {
    (void)state;
    outcome o = check_text("decode_e4m3.csv", "code,fp32\n38,3f800000\nff,7fc00000\n");
    assert_int_equal(o.status, OCT_OK);
    assert_int_equal(o.counts.n_passed, 2);
    assert_int_equal(o.counts.n_failed, 0);
}

static void given_a_wrong_value_the_row_fails_with_its_place(void **state) {
    (void)state;
    outcome o = check_text("decode_e4m3.csv", "code,fp32\n38,3f800000\n39,3f800000\n");
    assert_int_equal(o.status, OCT_OK);
    assert_int_equal(o.counts.n_passed, 1);
    assert_int_equal(o.counts.n_failed, 1);
    assert_non_null(strstr(o.log, "decode_e4m3.csv:3: codec: decoded; expected 3f800000; got"));
}

static void given_the_wrong_sign_of_a_zero_the_row_fails(void **state) {
    (void)state;
    outcome o = check_text("encode_e5m2.csv", "x,nosat,sat\n80000000,80,80\n80000000,00,80\n");
    assert_int_equal(o.counts.n_passed, 1);
    assert_int_equal(o.counts.n_failed, 1);
}

static void given_another_nan_of_the_type_the_row_passes(void **state) {
    (void)state;
    outcome o = check_text("encode_e5m2.csv", "x,nosat,sat\n7fc00000,7d,fe\n");
    assert_int_equal(o.counts.n_passed, 1);
    o = check_text("encode_e5m2.csv", "x,nosat,sat\n7fc00000,7c,fe\n");
    assert_int_equal(o.counts.n_failed, 1);
}

static void given_an_empty_or_missing_folder_it_is_an_error(void **state) {
    (void)state;
    assert_int_equal(check(NULL, NULL, 0).status, OCT_INVALID);
    golden_counts counts = {0};
    FILE *log = tmpfile();
    assert_int_equal(golden_check_folder("/nonexistent/folder", log, &counts), OCT_INVALID);
    fclose(log);
}

static void given_an_unknown_csv_the_nearest_name_is_told(void **state) {
    (void)state;
    outcome o = check_text("decode_e4m33.csv", "code,fp32\n");
    assert_int_equal(o.status, OCT_INVALID);
    assert_int_equal(o.counts.n_failed, 1);
    assert_non_null(strstr(o.log, "nearest is decode_e4m3.csv"));
}

static void given_malformed_files_each_is_one_clear_error(void **state) {
    (void)state;
    static const struct {
        const char *name, *text, *says;
    } cases[] = {
        {"decode_e4m3.csv", "", ":1: wrong header"},
        {"decode_e4m3.csv", "code;fp32\n", ":1: wrong header"},
        {"decode_e4m3.csv", "code,fp32\n", "no rows"},
        {"decode_e4m3.csv", "code,fp32\n38\n", ":2: wrong number of fields; expected 2; got 1"},
        {"decode_e4m3.csv", "code,fp32\n\n", ":2: wrong number of fields"},
        {"decode_e4m3.csv", "code,fp32\n38,3f800000,\n", ":2: wrong number of fields"},
        {"decode_e4m3.csv", "code,fp32\n,,,,,,,,,,,,\n", ":2: too many fields"},
        {"decode_e4m3.csv", "code,fp32\n38,3F800000\n", ":2: column 2: not a number"},
        {"decode_e4m3.csv", "code,fp32\n38,3f80000\n", ":2: column 2: wrong length"},
        {"decode_e4m3.csv", "code,fp32\n38,3f800000\r\n", ":2: column 2: wrong length"},
        {"decode_e4m3.csv", "code,fp32\n 8,3f800000\n", ":2: column 1: not a number"},
        {"mx_dequant.csv", "fmt,scale,code,fp32\ne6m1,00,00,00000000\n",
         ":2: column 1: unknown name; expected one of e4m3 e5m2; got \"e6m1\""},
        {"mx_quant.csv", "case,fmt,mode,n,x,scales,codes\na,e4m3,floor,99999999999999999999,,,\n",
         ":2: column 4: not a number"},
        {"mx_quant.csv", "case,fmt,mode,n,x,scales,codes\na,e4m3,floor,999999999,,,\n",
         ":2: column 4: too large"},
        {"mx_quant.csv", "case,fmt,mode,n,x,scales,codes\na,e4m3,floor,-1,,,\n",
         ":2: column 4: not a number"},
        {"mx_quant.csv", "case,fmt,mode,n,x,scales,codes\na,e4m3,floor,2,00000000,00,00\n",
         ":2: column 5: wrong length"},
        {"hif8_tensor.csv", "case,target,n,x,scale,codes\na,1.5,0,,3f800000,\n",
         ":2: column 2: not a number"},
    };
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        outcome o = check_text(cases[i].name, cases[i].text);
        assert_int_equal(o.status, OCT_INVALID);
        assert_int_equal(o.counts.n_failed, 1);
        if (strstr(o.log, cases[i].says) == NULL)
            fail_msg("case %zu: expected \"%s\" in: %s", i, cases[i].says, o.log);
    }
}

static void given_a_zero_byte_the_file_is_refused(void **state) {
    (void)state;
    outcome o = check("decode_e4m3.csv", "code,fp32\n38,\0f800000\n", 22);
    assert_int_equal(o.status, OCT_INVALID);
    assert_non_null(strstr(o.log, "zero byte"));
}

static void given_empty_tensors_they_are_cases_too(void **state) {
    (void)state;
    outcome o =
        check_text("hif8_tensor.csv", "case,target,n,x,scale,codes\nempty,15,0,,3f800000,\n");
    assert_int_equal(o.counts.n_passed, 1);
    o = check_text("mx_quant.csv", "case,fmt,mode,n,x,scales,codes\nempty,e4m3,rceil,0,,,\n");
    assert_int_equal(o.counts.n_passed, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_right_rows_they_pass),
        cmocka_unit_test(given_a_wrong_value_the_row_fails_with_its_place),
        cmocka_unit_test(given_the_wrong_sign_of_a_zero_the_row_fails),
        cmocka_unit_test(given_another_nan_of_the_type_the_row_passes),
        cmocka_unit_test(given_an_empty_or_missing_folder_it_is_an_error),
        cmocka_unit_test(given_an_unknown_csv_the_nearest_name_is_told),
        cmocka_unit_test(given_malformed_files_each_is_one_clear_error),
        cmocka_unit_test(given_a_zero_byte_the_file_is_refused),
        cmocka_unit_test(given_empty_tensors_they_are_cases_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
