/* Full disks, processes that are killed, memory and file handles that are refused: the earlier
 * checkpoint stays. */
#include <setjmp.h>

#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "checkpoint_support.h"
#include "text/documents.h"

static void given_a_full_disk_at_any_byte_the_earlier_checkpoint_stays(void **state) {
    (void)state;
    struct rlimit before;
    save_well(1, 0);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    for (rlim_t limit = 0; limit < 1200;
         limit += 50) { /* the manifest and both shards are larger */
        oct_error err = {0};
        struct rlimit small = {limit, before.rlim_max};
        setrlimit(RLIMIT_FSIZE, &small);
        oct_status status = save(2, 1, &err);
        setrlimit(RLIMIT_FSIZE, &before);
        assert_int_equal(status, OCT_FAILED);
        assert_contains(err.message, "File too large");
        assert_nothing_temporary();
        assert_int_equal(latest(), 1);
    }
    save_well(2, 1);
    assert_int_equal(latest(), 2);
}

static void given_a_small_file_system_that_fills_up_the_earlier_checkpoint_stays(void **state) {
    (void)state;
    assert_int_equal(mkdir("ckpt", 0777), 0);
    if (mount("tmpfs", "ckpt", "tmpfs", 0, "size=48k") != 0) {
        print_message("skipped: a tmpfs can't be mounted here\n");
        skip();
    }
    oct_status status = OCT_OK;
    oct_error err = {0};
    int64_t step = 0;
    while (!status && step < 20)
        status = save(++step, 0, &err);
    int64_t last = latest();
    int left = system("test -z \"$(find . -name '*tmp*')\"");
    oct_status again = save(step, 1, NULL); /* still no room: what is there stays */
    int64_t still = latest();
    assert_int_equal(umount("ckpt"), 0);
    assert_int_equal(status, OCT_FAILED);
    assert_contains(err.message, "No space left on device");
    assert_int_equal(last, step - 1);
    assert_int_equal(left, 0);
    assert_int_equal(again, OCT_FAILED);
    assert_int_equal(still, step - 1);
}

static oct_status die(void *context, oct_safetensors_stream *to, oct_error *err) {
    const float x = 1;
    (void)context;
    oct_safetensors_write_piece(to, &x, sizeof x, err);
    raise(SIGKILL);
    return OCT_FAILED;
}

static void given_a_process_killed_while_it_writes_the_next_one_recovers(void **state) {
    (void)state;
    save_well(1, 0);
    pid_t child = fork();
    if (child == 0) {
        fake f;
        make_fake(&f, 2);
        f.optimizer[1].data = NULL;
        f.optimizer[1].source = die;
        oct_checkpoint_save("ckpt", &f.contents, 1, NULL);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(system("test -n \"$(ls ckpt | grep 'step-2.tmp-')\""), 0);
    assert_int_equal(latest(), 1);
    assert_invalid(2, "step-2");
    save_well(3, 0); /* sweeps what the dead process left */
    assert_nothing_temporary();
    assert_int_equal(latest(), 3);
}

static void given_kills_at_random_moments_there_is_always_a_valid_checkpoint(void **state) {
    (void)state;
    save_well(1, 0);
    int64_t step = 1;
    for (int round = 0; round < 25; round++) {
        pid_t child = fork();
        if (child == 0) {
            for (int64_t s = step + 1;; s++)
                if (save(s, 2, NULL))
                    _exit(1);
        }
        usleep((useconds_t)(1000 + 937 * round % 12000));
        kill(child, SIGKILL);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        warnings[0] = '\0';
        int64_t now = latest();
        assert_true(now >= step);
        assert_string_equal(warnings, ""); /* no half of one under a step's name */
        step = now;
    }
    save_well(step + 1, 1);
    assert_nothing_temporary();
}

static oct_status save_swept(oct_error *err) {
    return save(2, 1, err);
}

static oct_status find_swept(oct_error *err) {
    oct_checkpoint *c = NULL;
    oct_status status = oct_checkpoint_find("ckpt", OCT_CHECKPOINT_LATEST, &c, err);
    oct_checkpoint_close(c);
    return status;
}

static void given_any_allocation_refused_nothing_leaks_and_the_earlier_one_stays(void **state) {
    (void)state;
    save_well(1, 0);
    sweep_allocations(save_swept);
    sweep_allocations(find_swept);
    assert_null(strstr(warnings, "is skipped")); /* no memory says nothing about a checkpoint */
    save_well(3, 1);
    assert_nothing_temporary();
    assert_int_equal(latest(), 3);
}

static oct_status read_a_file(oct_error *err) {
    char *text;
    return oct_file_read("ckpt/step-1/manifest.json", 1 << 20, &text, NULL, err);
}

static oct_status map_a_file(oct_error *err) {
    oct_mapping mapping;
    return oct_file_map("ckpt/step-1/manifest.json", &mapping, err);
}

static oct_status find_the_newest(oct_error *err) {
    oct_checkpoint *c;
    return oct_checkpoint_find("ckpt", OCT_CHECKPOINT_LATEST, &c, err);
}

static oct_status find_one_before(oct_error *err) {
    oct_checkpoint *c;
    return oct_checkpoint_find_before("ckpt", 2, &c, err);
}

static oct_status set_the_first_aside(oct_error *err) {
    char *aside;
    size_t n;
    return oct_checkpoint_set_aside("ckpt", 0, &aside, &n, err);
}

static oct_status open_the_first(oct_error *err) {
    oct_checkpoint *c;
    return oct_checkpoint_open("ckpt/step-1", &c, err);
}

static oct_status list_a_file(oct_error *err) {
    oct_file_list list = {0};
    oct_status status =
        oct_file_list_add(&list, "ckpt/step-1/manifest.json", OCT_READ_AS_TEXT, err);
    oct_file_list_free(&list);
    return status;
}

static oct_status list_a_folder(oct_error *err) {
    oct_file_list list = {0};
    oct_status status = oct_file_list_add(&list, "ckpt", OCT_READ_AS_TEXT, err);
    oct_file_list_free(&list);
    return status;
}

static void given_no_file_handle_left_the_run_fails_and_no_file_is_blamed(void **state) {
    (void)state;
    save_well(1, 0);
    assert_no_handle_fails(read_a_file);
    assert_no_handle_fails(map_a_file);
    assert_no_handle_fails(find_the_newest);
    assert_no_handle_fails(find_one_before);
    assert_no_handle_fails(set_the_first_aside);
    assert_no_handle_fails(open_the_first);
    assert_no_handle_fails(list_a_file);
    assert_no_handle_fails(list_a_folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        STORY(given_a_full_disk_at_any_byte_the_earlier_checkpoint_stays),
        STORY(given_a_small_file_system_that_fills_up_the_earlier_checkpoint_stays),
        STORY(given_a_process_killed_while_it_writes_the_next_one_recovers),
        STORY(given_kills_at_random_moments_there_is_always_a_valid_checkpoint),
        STORY(given_no_file_handle_left_the_run_fails_and_no_file_is_blamed),
        STORY(given_any_allocation_refused_nothing_leaks_and_the_earlier_one_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
