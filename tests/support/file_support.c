/* See file_support.h. */
#include "file_support.h"

#include <ftw.h>
#include <jansson.h>
#include <sys/resource.h>

char test_folder[64];

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *place) {
    (void)st;
    (void)kind;
    (void)place;
    return remove(path);
}

int enter_folder(void **state) {
    (void)state;
    json_set_alloc_funcs(oct_malloc, oct_free);
    strcpy(test_folder, "/tmp/octet-test-XXXXXX");
    return mkdtemp(test_folder) && chdir(test_folder) == 0 ? 0 : -1;
}

int leave_folder(void **state) {
    (void)state;
    return chdir("/") == 0 ? nftw(test_folder, remove_one, 16, FTW_DEPTH | FTW_PHYS) : -1;
}

void put_file(const char *path, const void *bytes, size_t n_bytes) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n_bytes, f), n_bytes);
    assert_int_equal(fclose(f), 0);
}

void put_text(const char *path, const char *text) {
    put_file(path, text, strlen(text));
}

char *get_file(const char *path, size_t *n_bytes) {
    static char *text; /* outlives the call that is given its place */
    assert_int_equal(oct_file_read(path, (size_t)1 << 30, &text, n_bytes, NULL), OCT_OK);
    return text;
}

void assert_contains(const char *text, const char *part) {
    assert_that(strstr(text, part), "expected \"%s\" in \"%s\"", part, text);
}

void assert_one_line(const char *text) {
    assert_true(text[0]);
    assert_null(strchr(text, '\n'));
}

void assert_no_handle_fails(oct_status (*call)(oct_error *err)) {
    oct_error err = {0};
    struct rlimit limit, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    oct_status status = call(&err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(status, OCT_FAILED);
    assert_contains(err.message, "Too many open files");
}

void sweep_allocations(oct_status (*call)(oct_error *err)) {
    for (int64_t n = 1; n < 100000; n++) {
        oct_error err = {0};
        size_t live = oct_alloc_live_bytes();
        oct_alloc_fail_at(n);
        oct_status status = call(&err);
        oct_alloc_fail_at(0);
        assert_int_equal(oct_alloc_live_bytes(), live);
        if (!status)
            return;
        assert_one_line(err.message);
    }
    fail_msg("the call never succeeded");
}
