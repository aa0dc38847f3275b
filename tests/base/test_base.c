/* The foundation: allocation, arenas, random numbers, nearest names, threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/cgroup.h"
#include "base/claim.h"
#include "base/count.h"
#include "base/fs.h"
#include "base/nearest.h"
#include "base/rng.h"
#include "base/thread.h"
#include "base/utf8.h"

static void given_any_size_blocks_are_aligned_and_counted(void **state) {
    (void)state;
    size_t before = oct_alloc_live_bytes();
    for (size_t n = 0; n < 300; n++) {
        char *block = oct_malloc(n);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % 64, 0);
        memset(block, 1, n);
        assert_int_equal(oct_alloc_live_bytes(), before + n);
        oct_free(block);
    }
    assert_int_equal(oct_alloc_live_bytes(), before);
}

static void given_an_overflowing_size_nothing_is_allocated(void **state) {
    (void)state;
    assert_null(oct_malloc(SIZE_MAX));
    assert_null(oct_malloc_array(SIZE_MAX / 2, 3));
    assert_null(oct_calloc_array((size_t)1 << 40, (size_t)1 << 40));
}

static void given_a_failing_heap_the_nth_allocation_and_later_ones_fail(void **state) {
    (void)state;
    oct_alloc_fail_at(2);
    void *first = oct_malloc(1), *second = oct_malloc(1), *third = oct_malloc(1);
    oct_alloc_fail_at(0);
    assert_non_null(first);
    assert_null(second);
    assert_null(third);
    oct_free(first);
}

static void given_growing_arrays_what_is_in_them_stays_and_refusals_change_nothing(void **state) {
    (void)state;
    size_t capacity = 0;
    int *array = NULL;
    for (int n = 0; n < 1000; n++) {
        int *grown = oct_grow_array(array, (size_t)n, &capacity, sizeof *grown);
        assert_non_null(grown);
        assert_true(grown != array || n > 0);
        array = grown;
        array[n] = n;
    }
    assert_int_equal(capacity, 1024);
    for (int n = 0; n < 1000; n++)
        assert_int_equal(array[n], n);
    oct_alloc_fail_at(1);
    assert_ptr_equal(oct_grow_array(array, 1000, &capacity, sizeof *array), array);
    assert_null(oct_grow_array(array, 1024, &capacity, sizeof *array));
    oct_alloc_fail_at(0);
    assert_int_equal(capacity, 1024);
    oct_free(array);
}

static void given_a_mark_release_gives_the_same_memory_again(void **state) {
    (void)state;
    oct_arena *arena = oct_arena_create();
    char *kept = oct_arena_alloc(arena, 100);
    memset(kept, 7, 100);
    oct_arena_mark mark = oct_arena_get_mark(arena);
    char *first = oct_arena_alloc(arena, 1000);
    char *large = oct_arena_alloc(arena, (size_t)9 << 20);
    memset(first, 1, 1000);
    memset(large, 2, (size_t)9 << 20);
    oct_arena_release(arena, mark);
    assert_ptr_equal(oct_arena_alloc(arena, 1000), first);
    assert_ptr_equal(oct_arena_alloc(arena, (size_t)9 << 20), large);
    assert_int_equal(kept[99], 7);
    assert_int_equal(oct_arena_used_bytes(arena), 128 + 1024 + ((size_t)9 << 20));
    oct_arena_destroy(arena);
}

/* Known answers of Philox4x32-10 from the Random123 distribution (kat_vectors). */
static void given_the_published_keys_philox_gives_the_published_words(void **state) {
    (void)state;
    oct_rng_block zero = oct_rng_draw(0, 0, 0);
    const uint32_t expected_zero[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    assert_memory_equal(zero.word, expected_zero, sizeof expected_zero);
    oct_rng_block ones = oct_rng_draw(UINT64_MAX, UINT64_MAX, UINT64_MAX);
    const uint32_t expected_ones[4] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
    assert_memory_equal(ones.word, expected_ones, sizeof expected_ones);
}

static void given_a_misspelt_name_the_neighbour_is_named(void **state) {
    (void)state;
    const char *names[] = {"recipe_name", "filter_fqns", "scale_mode", "gemm"};
    assert_string_equal(oct_nearest_name("recipe-nmae", names, 4), "recipe_name");
    assert_string_equal(oct_nearest_name("filter_fqn", names, 4), "filter_fqns");
    assert_null(oct_nearest_name("zebra", names, 4));
    assert_string_equal(oct_nearest_name("gem", names, 4), "gemm");
}

static void given_a_name_unlike_the_known_ones_none_is_named(void **state) {
    (void)state;
    const char *names[] = {"lr", "gemm", "seed", "scale_mode"};
    const char *odd[] = {"", "x", "xy", "=", "ab", "abcd", "12", "sc", "mode", "lrrr", "\"\""};
    for (size_t i = 0; i < OCT_COUNT(odd); i++)
        assert_null(oct_nearest_name(odd[i], names, 4));
    char text[3001];
    for (size_t n = 20; n < sizeof text; n = n * 3 / 2) { /* as long as you like, of one letter */
        memset(text, 's', n);
        text[n] = '\0';
        assert_null(oct_nearest_name(text, names, 4));
    }
    memset(text, 'x', sizeof text - 1); /* equal in all that is compared, and still another */
    const char *cut = text + 2000;
    assert_null(oct_nearest_name(text, &cut, 1));
}

static void fill_square(void *context, int64_t task, int thread) {
    (void)thread;
    ((int64_t *)context)[task] = task * task;
}

static void given_any_thread_count_every_task_runs_once(void **state) {
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        int64_t squares[100] = {0};
        oct_threads_set(threads);
        oct_parallel(100, fill_square, squares);
        for (int64_t i = 0; i < 100; i++)
            assert_int_equal(squares[i], i * i);
    }
}

/* Open MP 5.2, 21.1.2: a list of positive integers, the first for the outermost level. */
static void given_threads_in_the_environment_only_whole_positive_numbers_are_taken(void **state) {
    (void)state;
    static const char *const right[] = {"", "1", " 3 ", "1024", "4,2", "4 , 3,2", "007"};
    static const char *const wrong[] = {
        "abc", "0",   "-1", "+2",  "2.5", "2x",  "1025",
        "0x2", "4,",  ",4", "4,0", " ",   "4 2", "99999999999999999999",
        "4,a", "1e3", "1;2"};
    const char *set = getenv("OMP_NUM_THREADS");
    char *before = set ? oct_strdup(set) : NULL;
    for (size_t i = 0; i < OCT_COUNT(right); i++) {
        setenv("OMP_NUM_THREADS", right[i], 1);
        assert_int_equal(oct_threads_init(NULL), OCT_OK);
    }
    for (size_t i = 0; i < OCT_COUNT(wrong); i++) {
        oct_error err = {0};
        setenv("OMP_NUM_THREADS", wrong[i], 1);
        assert_int_equal(oct_threads_init(&err), OCT_INVALID);
        assert_non_null(
            strstr(err.message, "OMP_NUM_THREADS: expected a number of threads from 1"));
        assert_non_null(strstr(err.message, wrong[i]));
    }
    unsetenv("OMP_NUM_THREADS");
    assert_int_equal(oct_threads_init(NULL), OCT_OK);
    if (before)
        setenv("OMP_NUM_THREADS", before, 1);
    oct_free(before);
}

/* One file below `root`, with its folders. */
static void put_file(const char *root, const char *name, const char *text) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    *strrchr(path, '/') = '\0';
    assert_int_equal(oct_make_folders(path, NULL), OCT_OK);
    path[strlen(path)] = '/';
    assert_int_equal(oct_file_write(path, text, strlen(text), NULL), OCT_OK);
}

typedef struct made_group {
    const char *proc; /* /proc/self/cgroup */
    struct {
        const char *name, *text;
    } files[4]; /* below sys/fs/cgroup */
    double cpus;
} made_group;

/* As Docker, Kubernetes and systemd make them. */
static const made_group made_groups[] = {
    {"0::/\n", {{"cpu.max", "150000 100000\n"}}, 1.5},
    {"0::/\n", {{"cpu.max", "max 100000\n"}}, 0},
    {"0::/\n", {{"cgroup.procs", "1\n"}}, 0},
    {"0::/\n", {{"cpu.max", "50000\n"}}, 0.5},
    /* the smallest of the groups around it, whichever it is */
    {"0::/kube.slice/pod.slice/c\n",
     {{"kube.slice/cpu.max", "800000 100000\n"},
      {"kube.slice/pod.slice/cpu.max", "300000 100000\n"},
      {"kube.slice/pod.slice/c/cpu.max", "max 100000\n"}},
     3},
    {"0::/user.slice/app\n",
     {{"user.slice/cpu.max", "max 100000\n"}, {"user.slice/app/cpu.max", "20000 10000\n"}},
     2},
    /* a namespace hides the path that the kernel tells: the root is the container's group */
    {"0::/../docker/0123\n", {{"cpu.max", "200000 100000\n"}}, 2},
    {"5:cpu,cpuacct:/docker/0123\n4:memory:/docker/0123\n",
     {{"cpu,cpuacct/cpu.cfs_quota_us", "250000\n"}, {"cpu,cpuacct/cpu.cfs_period_us", "100000\n"}},
     2.5},
    {"11:cpuset:/a\n5:cpu:/a\n0::/\n",
     {{"cpu/a/cpu.cfs_quota_us", "400000\n"}, {"cpu/a/cpu.cfs_period_us", "50000\n"}},
     8},
    {"5:cpu:/a\n",
     {{"cpu/a/cpu.cfs_quota_us", "-1\n"}, {"cpu/a/cpu.cfs_period_us", "100000\n"}},
     0},
    /* cpuset is no cpu, and nonsense is no quota */
    {"3:cpuset:/\n",
     {{"cpuset/cpu.cfs_quota_us", "1000\n"}, {"cpuset/cpu.cfs_period_us", "1000\n"}},
     0},
    {"0::/\n", {{"cpu.max", "lots of\n"}}, 0},
    {"0::/\n", {{"cpu.max", "100000 0\n"}}, 0},
    {"0::/\n", {{"cpu.max", ""}}, 0},
    {"nonsense\n::\n", {{"cpu.max", "100000 100000\n"}}, 1},
};

static void given_a_control_group_its_smallest_quota_is_found(void **state) {
    (void)state;
    for (size_t i = 0; i < OCT_COUNT(made_groups); i++) {
        const made_group *made = &made_groups[i];
        char root[] = "/tmp/octet-test-XXXXXX", command[64], name[128];
        assert_non_null(mkdtemp(root));
        put_file(root, "proc/self/cgroup", made->proc);
        for (size_t k = 0; k < 4 && made->files[k].name; k++) {
            snprintf(name, sizeof name, "sys/fs/cgroup/%s", made->files[k].name);
            put_file(root, name, made->files[k].text);
        }
        assert_true(oct_cgroup_cpus(root) == made->cpus);
        snprintf(command, sizeof command, "rm -r %s", root);
        assert_int_equal(system(command), 0);
    }
    assert_true(oct_cgroup_cpus("/tmp/octet-no-such-root") == 0);
}

static void given_a_quota_no_more_threads_than_it_has_cpus_are_taken(void **state) {
    (void)state;
    assert_int_equal(oct_threads_for(8, 0), 8);
    assert_int_equal(oct_threads_for(8, 1.5), 2);
    assert_int_equal(oct_threads_for(8, 2), 2);
    assert_int_equal(oct_threads_for(8, 0.1), 1);
    assert_int_equal(oct_threads_for(2, 64), 2);
    assert_int_equal(oct_threads_for(5000, 0), 1024);
    assert_int_equal(oct_threads_for(0, 0), 1);
}

static void given_a_refused_write_the_old_file_stays(void **state) {
    (void)state;
    char folder[] = "/tmp/octet-test-XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *path = oct_path_join(folder, "file");
    assert_int_equal(oct_file_write(path, "old", 3, NULL), OCT_OK);
    char *below = oct_path_join(path, "no-such-folder");
    oct_error err = {0};
    assert_int_equal(oct_file_write(below, "new", 3, &err), OCT_FAILED);
    assert_non_null(strstr(err.message, below));
    char *text;
    assert_int_equal(oct_file_read(path, 100, &text, NULL, NULL), OCT_OK);
    assert_string_equal(text, "old");
    oct_free(text);
    assert_int_equal(oct_file_read(path, 2, &text, NULL, NULL), OCT_INVALID);
    assert_int_equal(oct_file_read(folder, 100, &text, NULL, NULL), OCT_INVALID);
    /* A device that is renamed onto would be gone. */
    oct_error device = {0};
    assert_int_equal(oct_file_write("/dev/null", "new", 3, &device), OCT_INVALID);
    assert_non_null(strstr(device.message, "/dev/null: expected a regular file"));
    unlink(path);
    rmdir(folder);
    oct_free(below);
    oct_free(path);
}

/* The character as its number says; the number of bytes. */
static size_t spell(uint32_t code, size_t n_bytes, char text[5]) {
    static const unsigned char leads[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = n_bytes; i-- > 1; code >>= 6)
        text[i] = (char)(0x80 | (code & 0x3F));
    text[0] = (char)(leads[n_bytes] | code);
    text[n_bytes] = '\0';
    return n_bytes;
}

static void given_any_character_its_utf8_is_known_and_nothing_else_is(void **state) {
    (void)state;
    char text[5];
    for (uint32_t code = 1; code < 0x200000; code++) {
        size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
        bool valid = code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
        spell(code, n, text);
        assert_int_equal(oct_utf8_length(text, n), valid ? n : 0);
        assert_int_equal(oct_utf8_is_valid(text), valid);
        assert_int_equal(oct_utf8_length(text, n - 1), 0);
        for (size_t longer = n + 1; longer <= 4; longer++)
            assert_int_equal(oct_utf8_length(text, spell(code, longer, text)), 0);
    }
    for (int byte = 0x80; byte < 0x100; byte++) {
        const char alone[] = {(char)byte, 'x', 'x', 'x', '\0'};
        assert_int_equal(oct_utf8_length(alone, 4), 0);
        assert_false(oct_utf8_is_valid(alone));
    }
    assert_true(oct_utf8_is_valid(""));
    assert_true(oct_utf8_is_valid("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z"));
    assert_false(oct_utf8_is_valid("a\xc3"));
}

static void given_a_message_of_any_length_its_beginning_and_end_stay(void **state) {
    (void)state;
    static char path[8 * OCT_ERROR_SIZE];
    for (size_t n = OCT_ERROR_SIZE - 40; n < sizeof path; n += n < OCT_ERROR_SIZE + 20 ? 1 : 997) {
        oct_error err = {0};
        memset(path, 'x', n);
        path[n] = '\0';
        assert_int_equal(oct_fail(&err, OCT_FAILED, "job.toml:3: %s: no\nspace", path), OCT_FAILED);
        size_t length = strlen(err.message), whole = n + strlen("job.toml:3: : no space");
        assert_true(length < OCT_ERROR_SIZE && length + 3 > (whole < 1020 ? whole : 1020));
        assert_memory_equal(err.message, "job.toml:3: xxx", 15);
        assert_string_equal(err.message + length - 13, "xxx: no?space");
        assert_int_equal(strstr(err.message, "x ... x") != NULL, whole >= OCT_ERROR_SIZE);
    }
    oct_error poor = {0};
    oct_alloc_fail_at(1);
    oct_fail(&poor, OCT_FAILED, "job.toml:3: %s: no space", path);
    oct_alloc_fail_at(0);
    assert_int_equal(strlen(poor.message), OCT_ERROR_SIZE - 1);
    assert_string_equal(poor.message + OCT_ERROR_SIZE - 6, "xx...");
}

static void given_a_claimed_folder_another_claim_is_told_whose_it_is(void **state) {
    (void)state;
    char folder[] = "/tmp/octet-claim-XXXXXX", inner[64], words[64], host[256] = "";
    oct_claim first, second;
    oct_error err = {0};
    assert_non_null(mkdtemp(folder));
    snprintf(inner, sizeof inner, "%s/a/b", folder);
    assert_int_equal(oct_claim_take(inner, &first, &err), OCT_OK);
    assert_int_equal(oct_claim_take(inner, &second, &err), OCT_FAILED);
    assert_null(second.folder);
    snprintf(words, sizeof words, "another run writes there: process %ld on ", (long)getpid());
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    assert_non_null(strstr(err.message, inner));
    assert_non_null(strstr(err.message, words));
    assert_non_null(strstr(err.message, host));
    assert_non_null(strstr(err.message, " since 20"));
    oct_claim_release(&first);
    oct_claim_release(&first);            /* nothing is claimed: fine */
    assert_false(oct_path_exists(inner)); /* it was made for the claim and is empty */
    assert_true(oct_path_exists(folder)); /* it was there */
    assert_int_equal(oct_claim_take(inner, &second, &err), OCT_OK);
    oct_claim_release(&second);
    assert_int_equal(rmdir(folder), 0);
}

/* What a killed holder leaves, or what somebody put there, is no claim. */
static void given_a_holder_that_was_killed_the_folder_is_free(void **state) {
    (void)state;
    char folder[] = "/tmp/octet-claim-XXXXXX", path[64];
    oct_claim claim;
    oct_error err = {0};
    int ready[2];
    char byte;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        byte = oct_claim_take(folder, &claim, NULL) == OCT_OK;
        if (write(ready[1], &byte, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 1);
    assert_int_equal(oct_claim_take(folder, &claim, &err), OCT_FAILED);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    snprintf(path, sizeof path, "%s/.octet.lock", folder);
    assert_true(oct_path_exists(path));
    assert_int_equal(oct_claim_take(folder, &claim, &err), OCT_OK);
    oct_claim_release(&claim);
    assert_false(oct_path_exists(path));
    assert_int_equal(symlink("/tmp/octet-claim-elsewhere", path), 0);
    assert_int_equal(oct_claim_take(folder, &claim, &err), OCT_FAILED);
    assert_false(oct_path_exists("/tmp/octet-claim-elsewhere"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
    close(ready[0]);
    close(ready[1]);
}

/* Its holder has removed the file's name and not yet let go of the lock: the name decides. */
static void given_a_lock_on_a_file_without_a_name_the_folder_is_free(void **state) {
    (void)state;
    char folder[] = "/tmp/octet-claim-XXXXXX", path[64];
    oct_claim ending, next;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(oct_claim_take(folder, &ending, NULL), OCT_OK);
    snprintf(path, sizeof path, "%s/.octet.lock", folder);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(oct_claim_take(folder, &next, NULL), OCT_OK);
    assert_int_equal(oct_claim_take(folder, &(oct_claim){0}, NULL), OCT_FAILED);
    oct_claim_release(&next);
    oct_claim_release(&ending);
    assert_int_equal(rmdir(folder), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_any_size_blocks_are_aligned_and_counted),
        cmocka_unit_test(given_an_overflowing_size_nothing_is_allocated),
        cmocka_unit_test(given_a_failing_heap_the_nth_allocation_and_later_ones_fail),
        cmocka_unit_test(given_growing_arrays_what_is_in_them_stays_and_refusals_change_nothing),
        cmocka_unit_test(given_a_mark_release_gives_the_same_memory_again),
        cmocka_unit_test(given_the_published_keys_philox_gives_the_published_words),
        cmocka_unit_test(given_a_misspelt_name_the_neighbour_is_named),
        cmocka_unit_test(given_a_name_unlike_the_known_ones_none_is_named),
        cmocka_unit_test(given_any_thread_count_every_task_runs_once),
        cmocka_unit_test(given_threads_in_the_environment_only_whole_positive_numbers_are_taken),
        cmocka_unit_test(given_a_control_group_its_smallest_quota_is_found),
        cmocka_unit_test(given_a_quota_no_more_threads_than_it_has_cpus_are_taken),
        cmocka_unit_test(given_a_claimed_folder_another_claim_is_told_whose_it_is),
        cmocka_unit_test(given_a_holder_that_was_killed_the_folder_is_free),
        cmocka_unit_test(given_a_lock_on_a_file_without_a_name_the_folder_is_free),
        cmocka_unit_test(given_a_refused_write_the_old_file_stays),
        cmocka_unit_test(given_any_character_its_utf8_is_known_and_nothing_else_is),
        cmocka_unit_test(given_a_message_of_any_length_its_beginning_and_end_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
