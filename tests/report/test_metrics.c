/* metrics.jsonl and TensorBoard events. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/log.h"
#include "file/json.h"
#include "file_support.h"
#include "report/event_file.h"
#include "report/metrics_file.h"
#include "report/tfrecord.h"

static int n_warnings;

static void count_warning(void *user, oct_log_level level, const char *line) {
    (void)user;
    (void)line;
    n_warnings += level == OCT_LOG_WARNING;
}

static int setup(void **state) {
    n_warnings = 0;
    oct_log_set_sink(count_warning, NULL);
    return enter_folder(state);
}

static int teardown(void **state) {
    oct_log_set_sink(NULL, NULL);
    return leave_folder(state);
}

/* ---- metrics.jsonl ---- */

static void add_steps(int64_t last_step, int64_t from, int64_t to) {
    oct_metrics_file *file = NULL;
    oct_error err = {0};
    if (oct_metrics_file_open("m.jsonl", last_step, OCT_METRICS_DROP, &file, &err))
        fail_msg("%s", err.message);
    for (int64_t step = from; step <= to; step++) {
        const oct_metric loss = oct_metric_real("loss", (double)step / 2);
        assert_int_equal(oct_metrics_file_append(file, step, &loss, 1, NULL), OCT_OK);
    }
    oct_metrics_file_close(file);
}

static void assert_file(const char *expected) {
    size_t n_bytes;
    char *text = get_file("m.jsonl", &n_bytes);
    assert_string_equal(text, expected);
    assert_int_equal(n_bytes, strlen(expected));
    oct_free(text);
}

static void given_every_kind_of_value_the_line_is_json(void **state) {
    (void)state;
    const oct_metric metrics[] = {
        oct_metric_real("loss", 8.0403),        oct_metric_real("nan", NAN),
        oct_metric_real("inf", -INFINITY),      oct_metric_real("tiny", 4.9406564584124654e-324),
        oct_metric_real("third", 1.0 / 3),      oct_metric_real("whole", 3),
        oct_metric_real("zero", -0.0),          oct_metric_integer("tokens", INT64_MIN),
        oct_metric_text("note", "a\"\\\n\xff"), oct_metric_real("large", 1e300),
    };
    oct_metrics_file *file = NULL;
    assert_int_equal(oct_metrics_file_open("m.jsonl", -1, OCT_METRICS_DROP, &file, NULL), OCT_OK);
    assert_int_equal(oct_metrics_file_append(file, 1, metrics, 10, NULL), OCT_OK);
    assert_int_equal(oct_metrics_file_append(file, 2, NULL, 0, NULL), OCT_OK);
    oct_metrics_file_close(file);
    assert_file("{\"step\": 1, \"loss\": 8.0403, \"nan\": null, \"inf\": null, "
                "\"tiny\": 4.94066e-324, \"third\": 0.3333333333333333, \"whole\": 3.0, "
                "\"zero\": -0.0, \"tokens\": -9223372036854775808, "
                "\"note\": \"a\\\"\\\\\\u000a\xef\xbf\xbd\", \"large\": 1e+300}\n{\"step\": 2}\n");
}

static void given_random_reals_they_read_back_exactly(void **state) {
    (void)state;
    uint64_t bits = 88172645463325252u;
    for (int i = 0; i < 20000; i++) {
        double x, back;
        oct_strbuf text = {0};
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        memcpy(&x, &bits, sizeof x);
        oct_json_put_real(&text, x);
        if (isfinite(x)) {
            back = strtod(text.text, NULL);
            assert_memory_equal(&back, &x, sizeof x);
        } else {
            assert_string_equal(text.text, "null");
        }
        oct_strbuf_free(&text);
    }
}

static void given_a_resume_lines_of_later_steps_go(void **state) {
    (void)state;
    add_steps(-1, 1, 5);
    add_steps(2, 3, 3);
    assert_file("{\"step\": 1, \"loss\": 0.5}\n{\"step\": 2, \"loss\": 1.0}\n"
                "{\"step\": 3, \"loss\": 1.5}\n");
    add_steps(9, 10, 10); /* a resume beyond the end keeps all */
    assert_file("{\"step\": 1, \"loss\": 0.5}\n{\"step\": 2, \"loss\": 1.0}\n"
                "{\"step\": 3, \"loss\": 1.5}\n{\"step\": 10, \"loss\": 5.0}\n");
    add_steps(-1, 7, 7); /* a fresh run */
    assert_file("{\"step\": 7, \"loss\": 3.5}\n");
    assert_int_equal(n_warnings, 0);
}

static void given_a_last_line_cut_at_any_byte_it_is_dropped(void **state) {
    (void)state;
    const char *whole = "{\"step\": 1, \"loss\": 0.5}\n", *line = "{\"step\": 2, \"loss\": 1.0}\n";
    for (size_t n = 0; n < strlen(line); n++) {
        char text[128];
        snprintf(text, sizeof text, "%s%.*s", whole, (int)n, line);
        put_text("m.jsonl", text);
        add_steps(5, 5, 5);
        assert_file("{\"step\": 1, \"loss\": 0.5}\n{\"step\": 5, \"loss\": 2.5}\n");
        snprintf(text, sizeof text, "%.*s", (int)n, line); /* the first line of all, cut */
        put_text("m.jsonl", text);
        add_steps(5, 5, 5);
        assert_file("{\"step\": 5, \"loss\": 2.5}\n");
    }
}

static void given_damage_in_the_middle_what_follows_goes_with_a_warning(void **state) {
    (void)state;
    put_file("m.jsonl", "{\"step\": 1}\n\0\0\0\0\n{\"step\": 3}\n", 30);
    add_steps(3, 4, 4);
    assert_file("{\"step\": 1}\n{\"step\": 4, \"loss\": 2.0}\n");
    assert_int_equal(n_warnings, 1);
}

static void given_somebody_elses_file_it_is_left_alone(void **state) {
    (void)state;
    const char *const texts[] = {
        "my notes\n", "{\"epoch\": 1}\n",    "[1]\n{\"step\": 1}\n", "notes",
        "\n",         "{\"step\": \"1\"}\n", "{\"step\": -1}\n"};
    for (size_t i = 0; i < 7; i++) {
        oct_metrics_file *file = NULL;
        oct_error err = {0};
        put_text("m.jsonl", texts[i]);
        assert_int_equal(oct_metrics_file_open("m.jsonl", -1, OCT_METRICS_DROP, &file, &err),
                         OCT_INVALID);
        assert_contains(err.message, "m.jsonl:1: expected an object with a step");
        assert_file(texts[i]);
    }
}

static void given_a_full_disk_the_file_ends_with_a_whole_line(void **state) {
    (void)state;
    struct rlimit before;
    oct_metrics_file *file = NULL;
    assert_int_equal(oct_metrics_file_open("m.jsonl", -1, OCT_METRICS_DROP, &file, NULL), OCT_OK);
    const oct_metric note = oct_metric_text("note", "0123456789");
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    struct rlimit small = {50, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    oct_error err = {0};
    oct_status first = oct_metrics_file_append(file, 1, &note, 1, NULL);
    oct_status second = oct_metrics_file_append(file, 2, &note, 1, &err);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(first, OCT_OK);
    assert_int_equal(second, OCT_FAILED);
    assert_contains(err.message, "m.jsonl: can't be written: File too large");
    assert_file("{\"step\": 1, \"note\": \"0123456789\"}\n");
    assert_int_equal(oct_metrics_file_append(file, 3, NULL, 0, NULL), OCT_OK);
    oct_metrics_file_close(file);
    assert_file("{\"step\": 1, \"note\": \"0123456789\"}\n{\"step\": 3}\n");
    assert_int_equal(oct_metrics_file_open("missing/m.jsonl", -1, OCT_METRICS_DROP, &file, NULL),
                     OCT_FAILED);
}

/* ---- events ---- */

static void given_the_vectors_of_rfc_3720_the_checksum_agrees(void **state) {
    (void)state;
    uint8_t bytes[32] = {0};
    assert_int_equal(oct_crc32c(bytes, 32), 0x8a9136aa);
    memset(bytes, 0xff, 32);
    assert_int_equal(oct_crc32c(bytes, 32), 0x62a8ab43);
    for (int i = 0; i < 32; i++)
        bytes[i] = (uint8_t)i;
    assert_int_equal(oct_crc32c(bytes, 32), 0x46dd794e);
    for (int i = 0; i < 32; i++)
        bytes[i] = (uint8_t)(31 - i);
    assert_int_equal(oct_crc32c(bytes, 32), 0x113fdb5c);
    assert_int_equal(oct_crc32c("123456789", 9), 0xe3069283);
    assert_int_equal(oct_crc32c("", 0), 0);
    assert_int_equal(oct_crc32c_mask(0), 0xa282ead8);
    assert_int_equal(oct_crc32c_mask(0x8000), 0xa282ead9);
    assert_int_equal(oct_crc32c_mask(1), 0xa284ead8);
}

static void given_scalars_the_message_is_these_bytes(void **state) {
    (void)state;
    const oct_metric metrics[] = {oct_metric_real("loss", 1.5), oct_metric_text("t", "left out"),
                                  oct_metric_integer("n", 2)};
    const uint8_t expected[] = {
        0x09, 0,    0,    0,    0,   0,   0,    0xf0, 0x3f, /* wall_time 1.0 */
        0x10, 0xac, 0x02,                                   /* step 300 */
        0x2a, 23,                                           /* summary */
        0x0a, 11,   0x0a, 4,    'l', 'o', 's',  's',  0x15, 0, 0,    0xc0,
        0x3f, 0x0a, 8,    0x0a, 1,   'n', 0x15, 0,    0,    0, 0x40,
    };
    oct_strbuf event = {0};
    oct_event_put_scalars(&event, 1.0, 300, metrics, 3);
    assert_int_equal(event.length, sizeof expected);
    assert_memory_equal(event.text, expected, sizeof expected);
    oct_strbuf_free(&event);
}

/* The little-endian double at `from`. */
static double double_at(const char *from) {
    double value;
    memcpy(&value, from, sizeof value);
    return value;
}

static void given_a_histogram_the_message_holds_its_bins(void **state) {
    (void)state;
    const double limits[] = {0.5, 1.5, 2.5, 3.5, 4.5}, counts[] = {0, 3, 0, 1, 0};
    const char *middle = "\x10\x07\x2a\x68\x0a\x66\x0a\x01h\x2a\x61\x09"; /* step 7, a value "h" */
    oct_strbuf event = {0};
    oct_event_put_histogram(&event, 1.0, 7, "h", limits, counts, 5);
    /* wall time 9; 11 bytes of headers; 5 doubles of 9; two packed lists of 2 + 24 */
    assert_int_equal(event.length, 9 + 11 + 5 * 9 + 2 * (2 + 24));
    assert_memory_equal(event.text + 9, middle, 12);
    const char *at = event.text + 9 + 11;
    const double numbers[5] = {0.5, 3.5, 4, 3 * 1 + 3, 3 * 1 + 9}; /* min, max, num, sum, squares */
    for (int i = 0; i < 5; i++, at += 9) {
        assert_int_equal(*at, (i + 1) << 3 | 1);
        assert_true(double_at(at + 1) == numbers[i]);
    }
    for (int list = 0; list < 2; list++, at += 26) {
        assert_int_equal(at[0], (6 + list) << 3 | 2);
        assert_int_equal(at[1], 24);
        for (int i = 0; i < 3; i++)
            assert_true(double_at(at + 2 + 8 * i) == (list ? counts : limits)[i + 1]);
    }
    oct_strbuf_free(&event);
}

static uint32_t little32(const char *from) {
    const uint8_t *b = (const uint8_t *)from;
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

/* Walks the frames of a file and returns their number; each checksum must hold. */
static int count_frames(const char *path, const char *firsts[], size_t lengths[], char **text) {
    size_t n_bytes, at = 0;
    int n = 0;
    *text = get_file(path, &n_bytes);
    while (at < n_bytes) {
        assert_true(n_bytes - at >= 16);
        uint32_t length = little32(*text + at);
        assert_int_equal(little32(*text + at + 4), 0);
        assert_int_equal(little32(*text + at + 8), oct_crc32c_mask(oct_crc32c(*text + at, 8)));
        assert_true(n_bytes - at >= 16 + (size_t)length);
        assert_int_equal(little32(*text + at + 12 + length),
                         oct_crc32c_mask(oct_crc32c(*text + at + 12, length)));
        assert_true(n < 8);
        firsts[n] = *text + at + 12;
        lengths[n++] = length;
        at += 16 + (size_t)length;
    }
    return n;
}

static void given_an_event_file_its_frames_hold_the_events(void **state) {
    (void)state;
    const oct_metric metrics[] = {oct_metric_real("loss_metrics/global_avg_loss", 2.5),
                                  oct_metric_real("grad_norm", NAN)};
    const char *frames[8];
    char *text;
    size_t lengths[8];
    oct_event_file *file = NULL;
    assert_int_equal(oct_event_file_create("tb/deep", -1, &file, NULL), OCT_OK);
    assert_int_equal(oct_event_file_append(file, 7, metrics, 2, NULL), OCT_OK);
    assert_int_equal(strncmp(oct_event_file_path(file), "tb/deep/events.out.tfevents.", 28), 0);
    assert_int_equal(count_frames(oct_event_file_path(file), frames, lengths, &text), 2);
    assert_int_equal(lengths[0], 9 + 2 + 13);
    assert_memory_equal(frames[0] + 9,
                        "\x1a\x0d"
                        "brain.Event:2",
                        15);
    assert_memory_equal(frames[1] + 9, "\x10\x07\x2a", 3);
    oct_free(text);

    oct_event_file *resumed = NULL; /* the same second and process: another name */
    assert_int_equal(oct_event_file_create("tb/deep", 4, &resumed, NULL), OCT_OK);
    assert_string_not_equal(oct_event_file_path(resumed), oct_event_file_path(file));
    assert_int_equal(count_frames(oct_event_file_path(resumed), frames, lengths, &text), 2);
    assert_memory_equal(frames[1] + 9, "\x10\x05\x3a\x02\x08\x01", 6); /* START at step 5 */
    oct_free(text);
    oct_event_file_close(resumed);
    oct_event_file_close(file);

    oct_error err = {0};
    put_text("file", "");
    assert_int_equal(oct_event_file_create("file", -1, &file, &err), OCT_FAILED);
    assert_contains(err.message, "file: the folder can't be made");
}

/* ---- memory ---- */

static oct_status write_swept(oct_error *err) {
    const oct_metric metrics[] = {oct_metric_real("loss", 2.5),
                                  oct_metric_text("note",
                                                  "a text long enough to grow the buffer "
                                                  "once more than it was at first, and then "
                                                  "a little longer than that again")};
    oct_metrics_file *lines = NULL;
    oct_event_file *events = NULL;
    oct_status status = oct_metrics_file_open("m.jsonl", 3, OCT_METRICS_DROP, &lines, err);
    if (!status)
        status = oct_event_file_create("tb", 3, &events, err);
    if (!status)
        status = oct_metrics_file_append(lines, 4, metrics, 2, err);
    if (!status)
        status = oct_event_file_append(events, 4, metrics, 2, err);
    oct_metrics_file_close(lines);
    oct_event_file_close(events);
    return status;
}

static oct_status open_swept(oct_error *err) {
    oct_metrics_file *file = NULL;
    oct_status status = oct_metrics_file_open("m.jsonl", 9, OCT_METRICS_DROP, &file, err);
    oct_metrics_file_close(file);
    return status;
}

static void given_any_allocation_refused_nothing_leaks_and_no_line_is_lost(void **state) {
    (void)state;
    sweep_allocations(write_swept);
    add_steps(-1, 1, 3);
    sweep_allocations(open_swept);
    assert_file("{\"step\": 1, \"loss\": 0.5}\n{\"step\": 2, \"loss\": 1.0}\n"
                "{\"step\": 3, \"loss\": 1.5}\n");
    assert_int_equal(n_warnings, 0);
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        STORY(given_every_kind_of_value_the_line_is_json),
        STORY(given_random_reals_they_read_back_exactly),
        STORY(given_a_resume_lines_of_later_steps_go),
        STORY(given_a_last_line_cut_at_any_byte_it_is_dropped),
        STORY(given_damage_in_the_middle_what_follows_goes_with_a_warning),
        STORY(given_somebody_elses_file_it_is_left_alone),
        STORY(given_a_full_disk_the_file_ends_with_a_whole_line),
        STORY(given_the_vectors_of_rfc_3720_the_checksum_agrees),
        STORY(given_scalars_the_message_is_these_bytes),
        STORY(given_a_histogram_the_message_holds_its_bins),
        STORY(given_an_event_file_its_frames_hold_the_events),
        STORY(given_any_allocation_refused_nothing_leaks_and_no_line_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
