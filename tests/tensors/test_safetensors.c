/* Safetensors files: what is written is read back; what is wrong is refused in one line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/count.h"
#include "file_support.h"
#include "tensors/safetensors.h"

/* A file in memory: header length, header, data. */
typedef struct image {
    unsigned char bytes[4096];
    size_t n_bytes, n_header;
} image;

static image make_image(const char *header, size_t n_data) {
    image m = {.n_header = strlen(header)};
    for (int i = 0; i < 8; i++)
        m.bytes[i] = (unsigned char)((uint64_t)m.n_header >> 8 * i);
    memcpy(m.bytes + 8, header, m.n_header);
    for (size_t i = 0; i < n_data; i++)
        m.bytes[8 + m.n_header + i] = (unsigned char)(i + 1);
    m.n_bytes = 8 + m.n_header + n_data;
    return m;
}

static oct_status parse(const void *bytes, size_t n_bytes, oct_error *err) {
    oct_safetensors *file = NULL;
    oct_status status = oct_safetensors_parse(bytes, n_bytes, "m.safetensors", &file, err);
    oct_safetensors_close(file);
    return status;
}

static void assert_refused(const char *header, size_t n_data, const char *part) {
    image m = make_image(header, n_data);
    oct_error err = {0};
    size_t live = oct_alloc_live_bytes();
    assert_int_equal(parse(m.bytes, m.n_bytes, &err), OCT_INVALID);
    assert_int_equal(oct_alloc_live_bytes(), live);
    assert_one_line(err.message);
    assert_contains(err.message, "m.safetensors:");
    assert_contains(err.message, part);
}

static oct_safetensors_writer *new_writer(const char *path) {
    oct_safetensors_writer *w = NULL;
    assert_int_equal(oct_safetensors_writer_create(path, &w, NULL), OCT_OK);
    return w;
}

static const oct_dtype all_dtypes[] = {OCT_F64,  OCT_F32,  OCT_F16, OCT_BF16, OCT_E4M3,
                                       OCT_E5M2, OCT_E8M0, OCT_I64, OCT_I32,  OCT_I16,
                                       OCT_I8,   OCT_U8,   OCT_BOOL};
#define N_ALL (OCT_COUNT(all_dtypes))

static void given_every_dtype_written_it_is_read_back_aligned(void **state) {
    (void)state;
    static const unsigned char data[3 * 5 * 8] = {1, 2, 3, 4, 5, 6, 7, 8, 0xff};
    oct_safetensors_writer *w = new_writer("all.safetensors");
    for (size_t i = 0; i < N_ALL; i++) {
        oct_safetensors_item item = {.name = oct_safetensors_dtype_name(all_dtypes[N_ALL - 1 - i]),
                                     .dtype = all_dtypes[N_ALL - 1 - i],
                                     .n_dims = 2,
                                     .shape = {3, 5},
                                     .data = data};
        assert_int_equal(oct_safetensors_writer_add(w, &item, NULL), OCT_OK);
    }
    assert_int_equal(oct_safetensors_writer_commit(w, NULL, NULL), OCT_OK);
    oct_safetensors_writer_destroy(w);

    oct_safetensors *file = NULL;
    assert_int_equal(oct_safetensors_open("all.safetensors", &file, NULL), OCT_OK);
    assert_int_equal(oct_safetensors_count(file), N_ALL);
    for (size_t i = 0; i < N_ALL; i++) {
        const char *name = oct_safetensors_dtype_name(all_dtypes[i]);
        const oct_safetensors_tensor *t = oct_safetensors_find(file, name);
        size_t width = oct_safetensors_dtype_bytes(all_dtypes[i]);
        assert_non_null(t);
        assert_string_equal(t->dtype_name, name);
        assert_int_equal(t->dtype, all_dtypes[i]);
        assert_int_equal(t->n_dims, 2);
        assert_int_equal(t->shape[0], 3);
        assert_int_equal(t->shape[1], 5);
        assert_int_equal(t->n_bytes, 15 * width);
        assert_int_equal((uintptr_t)t->data % width, 0);
        assert_memory_equal(t->data, data, t->n_bytes);
    }
    assert_null(oct_safetensors_find(file, "F33"));
    assert_null(oct_safetensors_find(file, ""));
    oct_safetensors_close(file);
    assert_null(oct_safetensors_dtype_name(OCT_HIF8));
}

static void given_scalars_empty_tensors_and_eight_dimensions_they_survive(void **state) {
    (void)state;
    const float pi = 3.25f;
    const unsigned char bytes[256] = {7};
    oct_safetensors_item items[] = {
        {.name = "scalar", .dtype = OCT_F32, .n_dims = 0, .data = &pi},
        {.name = "empty", .dtype = OCT_F32, .n_dims = 3, .shape = {4, 0, 7}},
        {.name = "deep",
         .dtype = OCT_U8,
         .n_dims = 8,
         .shape = {2, 2, 2, 2, 2, 2, 2, 2},
         .data = bytes},
        {.name = "quote\" back\\slash \n \xc3\xa9",
         .dtype = OCT_U8,
         .n_dims = 1,
         .shape = {3},
         .data = bytes},
    };
    oct_safetensors_writer *w = new_writer("odd.safetensors");
    assert_int_equal(oct_safetensors_writer_set_metadata(w, "format", "pt", NULL), OCT_OK);
    assert_int_equal(oct_safetensors_writer_set_metadata(w, "k", "a \"v\"\t", NULL), OCT_OK);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(oct_safetensors_writer_add(w, &items[i], NULL), OCT_OK);
    assert_int_equal(oct_safetensors_writer_commit(w, NULL, NULL), OCT_OK);
    oct_safetensors_writer_destroy(w);

    oct_safetensors *file = NULL;
    assert_int_equal(oct_safetensors_open("odd.safetensors", &file, NULL), OCT_OK);
    assert_string_equal(oct_safetensors_metadata(file, "format"), "pt");
    assert_string_equal(oct_safetensors_metadata(file, "k"), "a \"v\"\t");
    assert_null(oct_safetensors_metadata(file, "missing"));
    assert_string_equal(oct_safetensors_path(file), "odd.safetensors");
    const oct_safetensors_tensor *scalar = oct_safetensors_find(file, "scalar");
    assert_int_equal(scalar->n_dims, 0);
    assert_memory_equal(scalar->data, &pi, 4);
    assert_int_equal(oct_safetensors_find(file, "empty")->n_bytes, 0);
    assert_int_equal(oct_safetensors_find(file, "deep")->n_bytes, 256);
    assert_int_equal(oct_safetensors_find(file, items[3].name)->n_bytes, 3);
    oct_safetensors_close(file);
}

static void given_no_tensors_the_file_is_valid_and_empty(void **state) {
    (void)state;
    oct_safetensors_writer *w = new_writer("none.safetensors");
    oct_file_receipt receipt;
    assert_int_equal(oct_safetensors_writer_commit(w, &receipt, NULL), OCT_OK);
    oct_safetensors_writer_destroy(w);
    size_t n_bytes;
    char *text = get_file("none.safetensors", &n_bytes);
    assert_int_equal(n_bytes, 16); /* 8 of length, "{}" and six spaces */
    assert_int_equal(receipt.n_bytes, n_bytes);
    assert_memory_equal(text + 8, "{}      ", 8);
    oct_free(text);
    oct_safetensors *file = NULL;
    assert_int_equal(oct_safetensors_open("none.safetensors", &file, NULL), OCT_OK);
    assert_int_equal(oct_safetensors_count(file), 0);
    assert_null(oct_safetensors_find(file, "x"));
    oct_safetensors_close(file);
}

/* ---- streaming ---- */

typedef struct trickle {
    size_t total, piece;
    oct_status end;
} trickle;

static oct_status pour(void *context, oct_safetensors_stream *to, oct_error *err) {
    const trickle *t = context;
    unsigned char bytes[600000];
    for (size_t at = 0; at < t->total; at += t->piece) {
        size_t n = t->piece < t->total - at ? t->piece : t->total - at;
        for (size_t i = 0; i < n; i++)
            bytes[i] = (unsigned char)((at + i) * 7 >> 3);
        oct_status status = oct_safetensors_write_piece(to, bytes, n, err);
        if (status)
            return status;
    }
    return t->end ? oct_fail(err, t->end, "the source is gone") : OCT_OK;
}

static oct_status write_trickle(trickle t, int64_t declared, oct_error *err) {
    oct_safetensors_item item = {.name = "w",
                                 .dtype = OCT_U8,
                                 .n_dims = 1,
                                 .shape = {declared},
                                 .source = pour,
                                 .context = &t};
    oct_safetensors_writer *w = new_writer("s.safetensors");
    assert_int_equal(oct_safetensors_writer_add(w, &item, NULL), OCT_OK);
    oct_status status = oct_safetensors_writer_commit(w, NULL, err);
    oct_safetensors_writer_destroy(w);
    return status;
}

static void given_a_source_in_any_piece_size_the_bytes_are_the_same(void **state) {
    (void)state;
    const size_t pieces[] = {1000, 65536, 262144, 262145, 600000};
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(write_trickle((trickle){1234567, pieces[i], OCT_OK}, 1234567, NULL),
                         OCT_OK);
        oct_safetensors *file = NULL;
        assert_int_equal(oct_safetensors_open("s.safetensors", &file, NULL), OCT_OK);
        const unsigned char *data = oct_safetensors_get(file, 0)->data;
        for (size_t k = 0; k < 1234567; k++)
            if (data[k] != (unsigned char)(k * 7 >> 3))
                fail_msg("byte %zu differs with pieces of %zu", k, pieces[i]);
        oct_safetensors_close(file);
    }
}

static void
given_a_source_that_gives_too_little_too_much_or_fails_the_old_file_stays(void **state) {
    (void)state;
    put_text("s.safetensors", "old");
    const struct {
        trickle t;
        const char *part;
    } cases[] = {{{99, 10, OCT_OK}, "expected 100 bytes; got 99"},
                 {{101, 10, OCT_OK}, "expected 100 bytes; got more"},
                 {{100, 10, OCT_FAILED}, "the source is gone"}};
    for (size_t i = 0; i < 3; i++) {
        oct_error err = {0};
        assert_int_equal(write_trickle(cases[i].t, 100, &err), OCT_FAILED);
        assert_contains(err.message, cases[i].part);
        size_t n_bytes;
        char *text = get_file("s.safetensors", &n_bytes);
        assert_string_equal(text, "old");
        oct_free(text);
        assert_int_equal(system("test -z \"$(ls | grep tmp)\""), 0);
    }
}

static void given_a_full_disk_the_old_file_stays_and_no_temporary_is_left(void **state) {
    (void)state;
    struct rlimit before, small;
    put_text("s.safetensors", "old");
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    small = (struct rlimit){500000, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    oct_error err = {0};
    oct_status status = write_trickle((trickle){1234567, 1000, OCT_OK}, 1234567, &err);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(status, OCT_FAILED);
    assert_contains(err.message, "s.safetensors: can't be written: File too large");
    size_t n_bytes;
    char *text = get_file("s.safetensors", &n_bytes);
    assert_string_equal(text, "old");
    oct_free(text);
    assert_int_equal(system("test -z \"$(ls | grep tmp)\""), 0);
}

static void given_items_that_the_format_cannot_hold_add_refuses_them(void **state) {
    (void)state;
    const int x = 0;
    const struct {
        oct_safetensors_item item;
        const char *part;
    } cases[] = {
        {{.name = "", .dtype = OCT_F32, .data = &x}, "not empty"},
        {{.name = "__metadata__", .dtype = OCT_F32, .data = &x}, "__metadata__"},
        {{.name = "a\xff", .dtype = OCT_F32, .data = &x}, "UTF-8"},
        {{.name = "h", .dtype = OCT_HIF8, .data = &x}, "dtype"},
        {{.name = "d", .dtype = OCT_F32, .n_dims = 9, .data = &x}, "0 to 8 dimensions; got 9"},
        {{.name = "n", .dtype = OCT_F32, .n_dims = 1, .shape = {-1}, .data = &x}, "got -1"},
        {{.name = "o", .dtype = OCT_F32, .n_dims = 2, .shape = {INT64_MAX / 4, 2}, .data = &x},
         "fewer than 2^63 bytes"},
        {{.name = "nothing", .dtype = OCT_F32, .n_dims = 0}, "data or a source"},
    };
    oct_safetensors_writer *w = new_writer("x.safetensors");
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        oct_error err = {0};
        assert_int_equal(oct_safetensors_writer_add(w, &cases[i].item, &err), OCT_INVALID);
        assert_contains(err.message, cases[i].part);
    }
    oct_safetensors_item twice = {.name = "twice", .dtype = OCT_I32, .data = &x};
    oct_error err = {0};
    oct_safetensors_writer_add(w, &twice, NULL);
    oct_safetensors_writer_add(w, &twice, NULL);
    assert_int_equal(oct_safetensors_writer_commit(w, NULL, &err), OCT_INVALID);
    assert_contains(err.message, "'twice': expected one of that name; got two");
    assert_false(oct_path_exists("x.safetensors"));
    oct_safetensors_writer_destroy(w);
}

/* ---- hostile files ---- */

#define T(shape, offsets)                                                                          \
    "{\"a\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static void given_a_wrong_header_one_line_says_what(void **state) {
    (void)state;
    assert_refused("[]", 0, "starts with '{'");
    assert_refused("{", 0, "not JSON");
    assert_refused("{} x", 0, "not JSON");
    assert_refused("{\"a\":{},\"a\":{}}", 0, "duplicate");
    assert_refused("{\"a\":1}", 0, "'a': expected an object with a dtype string; got an integer");
    assert_refused("{\"a\":{}}", 0, "dtype");
    assert_refused("{\"a\":{\"dtype\":7}}", 0, "dtype");
    assert_refused("{\"a\":{\"dtype\":\"F32\"}}", 0, "shape: expected a list; got nothing");
    assert_refused("{\"__metadata__\":[]}", 0, "__metadata__: expected an object; got a list");
    assert_refused("{\"__metadata__\":{\"k\":1}}", 0, "'k': expected a string; got an integer");
    assert_refused("{\"a\\nb\":1}", 0, "'a?b'");
    assert_refused("{\"a\\u0000b\":1}", 0, "not JSON");
}

/* A file may hold what octet can't write, for nobody to use. */
static void given_more_dimensions_than_are_written_they_are_read(void **state) {
    (void)state;
    image m = make_image("{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,2,1,1,1,1,1,3],"
                         "\"data_offsets\":[0,24]}}",
                         24);
    oct_safetensors *file = NULL;
    assert_int_equal(oct_safetensors_parse(m.bytes, m.n_bytes, "m", &file, NULL), OCT_OK);
    const oct_safetensors_tensor *a = oct_safetensors_get(file, 0);
    assert_int_equal(a->n_dims, 9);
    assert_int_equal(a->shape[2], 2);
    assert_int_equal(a->shape[8], 3);
    oct_safetensors_close(file);
}

static void given_wrong_shapes_and_offsets_one_line_says_what(void **state) {
    (void)state;
    assert_refused(T("[1.5]", "[0,4]"), 4, "shape[0]: expected an integer >= 0; got a real");
    assert_refused(T("[-1]", "[0,4]"), 4, "shape[0]: expected an integer >= 0; got a negative");
    assert_refused(T("[99999999999999999999]", "[0,4]"), 4, "expected an integer");
    assert_refused(T("[4611686018427387904,4]", "[0,4]"), 4, "fewer than 2^63 elements");
    assert_refused(T("[9223372036854775807]", "[0,4]"), 4, "fewer than 2^64 bytes");
    assert_refused(T("[4611686018427387904]", "[0,0]"), 0, "fewer than 2^64 bytes");
    assert_refused(T("[1]", "[0]"), 4, "a list of 2 integers");
    assert_refused(T("[1]", "[0,4.0]"), 4, "a list of 2 integers");
    assert_refused(T("[1]", "\"0,4\""), 4, "a list of 2 integers");
    assert_refused(T("[1]", "[4,0]"), 4, "got [4, 0]");
    assert_refused(T("[1]", "[-4,0]"), 4, "got [-4, 0]");
    assert_refused(T("[1]", "[0,8]"), 4, "expected 0 <= begin <= end <= 4; got [0, 8]");
    assert_refused(T("[1]", "[0,9223372036854775807]"), 4, "begin <= end");
    assert_refused(T("[2]", "[0,4]"), 4, "expected 8 bytes for its shape and F32; got 4");
    assert_refused(T("[1]", "[0,4]"), 5, "expected 4 bytes of data, the sum of its tensors; got 5");
    assert_refused(T("[1]", "[1,5]"), 5, "expected to begin at 0");
    assert_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                   "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]}}",
                   6, "'b': data_offsets: expected to begin at 4");
    assert_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                   "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
                   4, "got 0 (an overlap)");
    assert_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                   "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[6,10]}}",
                   10, "got 6 (a gap)");
}

static void given_a_wrong_header_length_it_is_refused(void **state) {
    (void)state;
    const uint64_t lengths[] = {0,         1,          51,        1u << 20,
                                100000001, UINT64_MAX, INT64_MAX, UINT64_MAX - 7};
    for (size_t i = 0; i < OCT_COUNT(lengths); i++) {
        image m = make_image(T("[1]", "[0,4]"), 4);
        for (int b = 0; b < 8; b++)
            m.bytes[b] = (unsigned char)(lengths[i] >> 8 * b);
        oct_error err = {0};
        assert_int_equal(parse(m.bytes, m.n_bytes, &err), OCT_INVALID);
        assert_one_line(err.message);
    }
    oct_error err = {0};
    assert_int_equal(parse(NULL, 0, &err), OCT_INVALID);
    assert_contains(err.message, "at least 8 bytes; got 0");
}

static void given_a_dtype_that_is_not_known_it_is_listed_without_data(void **state) {
    (void)state;
    image m = make_image("{\"a\":{\"dtype\":\"F4\",\"shape\":[8],\"data_offsets\":[0,4]}}", 4);
    oct_safetensors *file = NULL;
    assert_int_equal(oct_safetensors_parse(m.bytes, m.n_bytes, "m", &file, NULL), OCT_OK);
    const oct_safetensors_tensor *t = oct_safetensors_find(file, "a");
    assert_int_equal(t->dtype, OCT_N_DTYPES);
    assert_string_equal(t->dtype_name, "F4");
    assert_null(t->data);
    assert_int_equal(t->n_bytes, 4);
    oct_safetensors_close(file);
}

static const char *const sample =
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"a.b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
    "\"c\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[24,32]}}   ";

/* In a block of its own, so that the sanitizer sees a read behind the end. */
static oct_status parse_copy(const image *m, size_t n_bytes, oct_error *err) {
    void *copy = malloc(n_bytes ? n_bytes : 1);
    assert_non_null(copy);
    memcpy(copy, m->bytes, n_bytes);
    oct_status status = parse(copy, n_bytes, err);
    free(copy);
    return status;
}

static void given_a_file_cut_at_any_byte_it_is_refused(void **state) {
    (void)state;
    image m = make_image(sample, 32);
    assert_int_equal(parse_copy(&m, m.n_bytes, NULL), OCT_OK);
    for (size_t n = 0; n < m.n_bytes; n++) {
        oct_error err = {0};
        assert_int_equal(parse_copy(&m, n, &err), OCT_INVALID);
        assert_one_line(err.message);
    }
}

static void given_a_header_cut_at_any_byte_with_its_length_it_is_refused(void **state) {
    (void)state;
    image m = make_image(sample, 32);
    for (size_t n = 0; n + 4 < m.n_header; n++) {
        char header[512];
        memcpy(header, sample, n);
        header[n] = '\0';
        image cut = make_image(header, 32);
        assert_int_equal(parse_copy(&cut, cut.n_bytes, NULL), OCT_INVALID);
    }
}

static void given_any_byte_of_the_header_changed_nothing_breaks(void **state) {
    (void)state;
    const image m = make_image(sample, 32);
    static const unsigned char values[] = {0,   1,   '"', ',', '0', '9', '[',  ']', '{',
                                           '}', ':', '-', 'e', '.', ' ', 0x80, 0xff};
    size_t live = oct_alloc_live_bytes(), n_refused = 0;
    for (size_t at = 0; at < 8 + m.n_header; at++)
        for (size_t v = 0; v < sizeof values + 8; v++) {
            image bad = m;
            bad.bytes[at] = v < sizeof values
                                ? values[v]
                                : (unsigned char)(bad.bytes[at] ^ 1u << (v - sizeof values));
            oct_error err = {0};
            oct_status status = parse_copy(&bad, bad.n_bytes, &err);
            assert_true(!status || status == OCT_INVALID);
            if (status)
                assert_one_line(err.message);
            n_refused += status;
            assert_int_equal(oct_alloc_live_bytes(), live);
        }
    assert_true(n_refused > 2000);
}

static void given_no_file_or_a_folder_the_path_is_named(void **state) {
    (void)state;
    oct_safetensors *file = NULL;
    oct_error err = {0};
    assert_int_equal(oct_safetensors_open("missing.safetensors", &file, &err), OCT_INVALID);
    assert_contains(err.message, "missing.safetensors");
    err = (oct_error){0};
    assert_int_equal(oct_safetensors_open(".", &file, &err), OCT_INVALID);
    put_text("empty.safetensors", "");
    err = (oct_error){0};
    assert_int_equal(oct_safetensors_open("empty.safetensors", &file, &err), OCT_INVALID);
    assert_contains(err.message, "empty.safetensors: header length");
    assert_null(file);
}

/* ---- memory ---- */

static oct_status open_sample(oct_error *err) {
    oct_safetensors *file = NULL;
    oct_status status = oct_safetensors_open("sample.safetensors", &file, err);
    oct_safetensors_close(file);
    return status;
}

static oct_status write_sample(oct_error *err) {
    const float x[4] = {1, 2, 3, 4};
    oct_safetensors_writer *w = NULL;
    oct_status status = oct_safetensors_writer_create("w.safetensors", &w, err);
    if (!status)
        status = oct_safetensors_writer_set_metadata(w, "format", "pt", err);
    for (int i = 0; i < 20 && !status; i++) {
        static const char names[] = "abcdefghijklmnopqrst"; /* each suffix is a name */
        oct_safetensors_item item = {
            .name = names + i, .dtype = OCT_F32, .n_dims = 1, .shape = {4}, .data = x};
        status = oct_safetensors_writer_add(w, &item, err);
    }
    if (!status)
        status = oct_safetensors_writer_commit(w, NULL, err);
    oct_safetensors_writer_destroy(w);
    return status;
}

static void given_any_allocation_refused_nothing_leaks(void **state) {
    (void)state;
    image m = make_image(sample, 32);
    put_file("sample.safetensors", m.bytes, m.n_bytes);
    sweep_allocations(open_sample);
    sweep_allocations(write_sample);
    assert_int_equal(system("test -z \"$(ls | grep tmp)\""), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_every_dtype_written_it_is_read_back_aligned),
        cmocka_unit_test(given_scalars_empty_tensors_and_eight_dimensions_they_survive),
        cmocka_unit_test(given_no_tensors_the_file_is_valid_and_empty),
        cmocka_unit_test(given_a_source_in_any_piece_size_the_bytes_are_the_same),
        cmocka_unit_test(given_a_source_that_gives_too_little_too_much_or_fails_the_old_file_stays),
        cmocka_unit_test(given_a_full_disk_the_old_file_stays_and_no_temporary_is_left),
        cmocka_unit_test(given_items_that_the_format_cannot_hold_add_refuses_them),
        cmocka_unit_test(given_a_wrong_header_one_line_says_what),
        cmocka_unit_test(given_more_dimensions_than_are_written_they_are_read),
        cmocka_unit_test(given_wrong_shapes_and_offsets_one_line_says_what),
        cmocka_unit_test(given_a_wrong_header_length_it_is_refused),
        cmocka_unit_test(given_a_dtype_that_is_not_known_it_is_listed_without_data),
        cmocka_unit_test(given_a_file_cut_at_any_byte_it_is_refused),
        cmocka_unit_test(given_a_header_cut_at_any_byte_with_its_length_it_is_refused),
        cmocka_unit_test(given_any_byte_of_the_header_changed_nothing_breaks),
        cmocka_unit_test(given_no_file_or_a_folder_the_path_is_named),
        cmocka_unit_test(given_any_allocation_refused_nothing_leaks),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
