/* Runs read back from their metrics, and the page that shows them. */
#include "story.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/count.h"
#include "base/fs.h"
#include "report/html.h"

static oct_status read_text(const char *text, oct_run *run, oct_error *err) {
    char path[] = "/tmp/octet-report-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), (ssize_t)strlen(text));
    close(file);
    oct_status status = oct_run_read(path, run, err);
    unlink(path);
    return status;
}

static void given_a_run_its_curves_and_speed_are_read(void **state) {
    (void)state;
    oct_run run;
    assert_int_equal(
        read_text("{\"step\": 1, \"loss\": 8, \"n_tokens\": 100, \"duration_s\": 9}\n"
                  "{\"step\": 2, \"loss\": null, \"n_tokens\": 100, \"duration_s\": 0.5}\n"
                  "{\"step\": 3, \"loss\": 6, \"validation_loss\": 7, \"n_tokens\": 100, "
                  "\"duration_s\": 0.5}\n"
                  "{\"step\": 4, \"loss\"",
                  &run, NULL),
        OCT_OK);
    assert_int_equal(run.loss.n, 3);
    assert_true(run.loss.y[0] == 8 && isnan(run.loss.y[1]) && run.loss.y[2] == 6);
    assert_int_equal(run.validation_loss.n, 1);
    assert_true(run.validation_loss.x[0] == 3 && run.validation_loss.y[0] == 7);
    assert_true(run.n_tokens == 200 && run.duration_s == 1);
    oct_run_free(&run);
}

static void given_a_line_of_something_else_its_place_is_named(void **state) {
    (void)state;
    oct_run run;
    oct_error err = {0};
    assert_int_equal(read_text("{\"step\": 1}\nhello\n", &run, &err), OCT_INVALID);
    assert_non_null(strstr(err.message, ":2:"));
}

static oct_series series_of(const double *x, const double *y, int64_t n) {
    oct_series s = {0};
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(oct_series_append(&s, x[i], y[i]), OCT_OK);
    return s;
}

static void given_two_series_their_difference_is_taken_where_both_are(void **state) {
    (void)state;
    const double xa[] = {1, 2, 4}, ya[] = {5, 6, 8}, xb[] = {2, 3, 4}, yb[] = {1, 1, 2};
    oct_series a = series_of(xa, ya, 3), b = series_of(xb, yb, 3), d, smooth;
    assert_int_equal(oct_series_difference(&a, &b, &d), OCT_OK);
    assert_int_equal(d.n, 2);
    assert_true(d.x[0] == 2 && d.y[0] == 5 && d.x[1] == 4 && d.y[1] == 6);
    assert_int_equal(oct_series_smooth(&a, 2, &smooth), OCT_OK);
    assert_true(smooth.y[0] == 5 && smooth.y[1] == 5.5 && smooth.y[2] == 7);
    assert_true(oct_series_tail_mean(&a, 2) == 7);
    assert_true(isnan(oct_series_tail_mean(&(oct_series){0}, 2)));
    oct_series_free(&a);
    oct_series_free(&b);
    oct_series_free(&d);
    oct_series_free(&smooth);
}

static void chart(oct_strbuf *b, const oct_series *series, const char *name) {
    oct_html_line_chart(b, &(oct_html_chart){.title = "<loss>",
                                             .x_label = "step",
                                             .y_label = "nats",
                                             .names = &name,
                                             .series = &series,
                                             .n_series = 1});
}

static void given_hostile_texts_they_are_escaped(void **state) {
    (void)state;
    const double x[] = {1, 2}, y[] = {3, 4};
    const char *cells[] = {"<b>", "\"&\""};
    oct_series s = series_of(x, y, 2);
    oct_strbuf b = {0};
    oct_html_begin(&b, "<script>");
    oct_html_table(&b, cells, 2, 1);
    chart(&b, &s, "<img>");
    oct_html_end(&b);
    assert_false(b.failed);
    assert_null(strstr(b.text, "<script>"));
    assert_null(strstr(b.text, "<b>"));
    assert_null(strstr(b.text, "<img>"));
    assert_non_null(strstr(b.text, "&lt;b&gt;"));
    assert_non_null(strstr(b.text, "&quot;&amp;&quot;"));
    oct_strbuf_free(&b);
    oct_series_free(&s);
}

static void given_extreme_values_a_chart_ends(void **state) {
    (void)state;
    const double x[] = {1, 2, 3};
    const double ys[][3] = {{1e300, 1e300, nextafter(1e300, INFINITY)},
                            {-DBL_MAX, 0, DBL_MAX},
                            {NAN, INFINITY, -INFINITY},
                            {0, 0, 0},
                            {5e-324, 0, 5e-324}};
    for (size_t i = 0; i < OCT_COUNT(ys); i++) {
        oct_series s = series_of(x, ys[i], 3);
        oct_strbuf b = {0};
        chart(&b, &s, "a");
        assert_false(b.failed);
        assert_true(b.length < 100000);
        oct_strbuf_free(&b);
        oct_series_free(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_a_run_its_curves_and_speed_are_read),
        cmocka_unit_test(given_a_line_of_something_else_its_place_is_named),
        cmocka_unit_test(given_two_series_their_difference_is_taken_where_both_are),
        cmocka_unit_test(given_hostile_texts_they_are_escaped),
        cmocka_unit_test(given_extreme_values_a_chart_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
