/* Checkpoints: what was saved comes back; what was damaged is never taken for one; a crash or a
 * full disk leaves the one before. */
#include <setjmp.h>

#include "base/count.h"
#include "checkpoint_support.h"

static void given_a_save_everything_comes_back(void **state) {
    (void)state;
    save_well(12, 0);
    oct_checkpoint *c = NULL;
    assert_int_equal(oct_checkpoint_find("ckpt", 12, &c, NULL), OCT_OK);
    assert_holds(c, 12);
    assert_string_equal(oct_checkpoint_path(c), "ckpt/step-12");
    const oct_checkpoint_tensor *t =
        oct_checkpoint_tensor_find(c, OCT_CHECKPOINT_MODEL, "norm.weight");
    assert_int_equal(t->n_dims, 1);
    assert_int_equal(t->shape[0], COLS);
    assert_ptr_equal(oct_checkpoint_get(c, OCT_CHECKPOINT_MODEL, 1), t);
    assert_null(oct_checkpoint_tensor_find(c, OCT_CHECKPOINT_OPTIMIZER, "norm.weight"));
    oct_checkpoint_close(c);
    assert_true(oct_path_exists("ckpt/step-12/model-00001-of-00001.safetensors"));
    assert_true(oct_path_exists("ckpt/step-12/optimizer-00001-of-00001.safetensors"));
    assert_nothing_temporary();
}

static void given_two_groups_a_tensor_is_looked_for_in_its_own(void **state) {
    (void)state;
    fake f;
    float rows[3 * COLS];
    make_fake(&f, 4);
    f.contents.n_tensors[OCT_CHECKPOINT_OPTIMIZER] = 1;
    assert_int_equal(oct_checkpoint_save("ckpt", &f.contents, 0, NULL), OCT_OK);
    oct_checkpoint *c = NULL;
    assert_int_equal(oct_checkpoint_find("ckpt", 4, &c, NULL), OCT_OK);
    assert_int_equal(oct_checkpoint_count(c, OCT_CHECKPOINT_MODEL), 2);
    assert_int_equal(oct_checkpoint_count(c, OCT_CHECKPOINT_OPTIMIZER), 1);
    for (int g = 0; g < 2; g++) {
        const oct_checkpoint_group group = (oct_checkpoint_group)g;
        const oct_safetensors_item *item = f.contents.tensors[g];
        assert_string_equal(oct_checkpoint_get(c, group, 0)->name, item->name);
        assert_int_equal(oct_checkpoint_copy_rows(c, group, item->name, 5, 3, rows, NULL), OCT_OK);
        assert_memory_equal(rows, (const float *)item->data + 5 * COLS, sizeof rows);
    }
    assert_int_equal(
        oct_checkpoint_copy_rows(c, OCT_CHECKPOINT_MODEL, "norm.weight", 2, 3, rows, NULL), OCT_OK);
    assert_memory_equal(rows, f.norm + 2, 3 * sizeof *rows);
    oct_error err = {0};
    assert_int_equal(
        oct_checkpoint_copy_rows(c, OCT_CHECKPOINT_OPTIMIZER, "norm.weight", 0, 1, rows, &err),
        OCT_INVALID);
    assert_one_line(err.message);
    assert_contains(err.message, "norm.weight");
    oct_checkpoint_close(c);
}

static void given_a_shard_limit_tensors_spread_over_files(void **state) {
    (void)state;
    fake f;
    make_fake(&f, 3);
    f.contents.max_shard_bytes = ROWS * COLS * 4 + 8;
    assert_int_equal(oct_checkpoint_save("ckpt", &f.contents, 0, NULL), OCT_OK);
    assert_true(oct_path_exists("ckpt/step-3/model-00002-of-00002.safetensors"));
    assert_true(oct_path_exists("ckpt/step-3/optimizer-00002-of-00002.safetensors"));
    assert_int_equal(latest(), 3);
}

static void given_no_tensors_and_no_config_a_checkpoint_is_still_one(void **state) {
    (void)state;
    oct_checkpoint_contents bare = {.state_json = "{}", .kernel_set = "ref", .gemm = "exact"};
    assert_int_equal(oct_checkpoint_save("deep/er/ckpt", &bare, 1, NULL), OCT_OK);
    oct_checkpoint *c = NULL;
    assert_int_equal(oct_checkpoint_find("deep/er/ckpt", 0, &c, NULL), OCT_OK);
    assert_null(oct_checkpoint_config(c));
    assert_int_equal(oct_checkpoint_count(c, OCT_CHECKPOINT_MODEL), 0);
    oct_checkpoint_close(c);
}

static void given_a_wrong_name_or_shape_the_copy_is_refused(void **state) {
    (void)state;
    float x[ROWS * COLS];
    save_well(1, 0);
    oct_checkpoint *c = NULL;
    assert_int_equal(oct_checkpoint_find("ckpt", 1, &c, NULL), OCT_OK);
    const struct {
        const char *name;
        oct_tensor to;
        const char *part;
    } cases[] = {
        {"norm.wieght", oct_tensor_1d(OCT_F32, COLS, x), "the nearest is norm.weight"},
        {"zzz", oct_tensor_1d(OCT_F32, COLS, x), "expected a tensor 'zzz'; there is none"},
        {"norm.weight", oct_tensor_1d(OCT_F32, 7, x), "expected F32 (7); got F32 (6)"},
        {"norm.weight", oct_tensor_1d(OCT_BF16, COLS, x), "expected BF16 (6); got F32 (6)"},
        {"norm.weight", oct_tensor_2d(OCT_F32, 1, COLS, x), "expected F32 (1, 6); got F32 (6)"},
    };
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        oct_error err = {0};
        assert_int_equal(
            oct_checkpoint_copy(c, OCT_CHECKPOINT_MODEL, cases[i].name, &cases[i].to, &err),
            OCT_INVALID);
        assert_contains(err.message, cases[i].part);
    }
    oct_checkpoint_close(c);
}

static void given_nothing_saved_latest_is_none_and_a_step_is_an_error(void **state) {
    (void)state;
    assert_int_equal(latest(), -1);
    assert_invalid(5, "ckpt: there is no checkpoint step-5; there are none at all");
    assert_string_equal(warnings, "");
}

static void given_keep_latest_two_the_older_ones_go(void **state) {
    (void)state;
    for (int64_t step = 10; step <= 50; step += 10)
        save_well(step, 2);
    assert_int_equal(system("test \"$(ls ckpt | sort | tr '\\n' ' ')\" = 'step-40 step-50 '"), 0);
    save_well(60, 1);
    assert_int_equal(system("test \"$(ls ckpt)\" = step-60"), 0);
    save_well(70, 0);
    save_well(80, 0);
    assert_int_equal(latest(), 80);
    assert_int_equal(system("test $(ls ckpt | wc -l) = 3"), 0);
}

static void given_a_damaged_newer_folder_keeping_one_never_deletes_the_good_one(void **state) {
    (void)state;
    save_well(10, 0);
    save_well(90, 0);
    unlink("ckpt/step-90/manifest.json");
    save_well(20, 2);
    assert_int_equal(latest(), 20);
    assert_true(oct_path_exists("ckpt/step-10/manifest.json"));
    save_well(30, 1); /* the step just written always stays */
    assert_int_equal(latest(), 30);
}

static void given_the_same_step_again_the_new_one_takes_its_place(void **state) {
    (void)state;
    fake f;
    save_well(5, 0);
    make_fake(&f, 5);
    f.contents.state_json = "{\"second\": true}";
    assert_int_equal(oct_checkpoint_save("ckpt", &f.contents, 0, NULL), OCT_OK);
    oct_checkpoint *c = NULL;
    assert_int_equal(oct_checkpoint_find("ckpt", 5, &c, NULL), OCT_OK);
    assert_string_equal(oct_checkpoint_state(c), "{\"second\": true}");
    oct_checkpoint_close(c);
    assert_nothing_temporary();
}

/* What can happen to step 20 from outside. */
static const struct {
    const char *damage, *part;
} damages[] = {
    {"rm ckpt/step-20/manifest.json", "no manifest.json"},
    {"rm ckpt/step-20/state.json", "state.json"},
    {"rm ckpt/step-20/config.toml", "config.toml"},
    {"rm ckpt/step-20/model-*", "model-00001-of-00001.safetensors"},
    {"truncate -s -1 ckpt/step-20/model-*",
     "model-00001-of-00001.safetensors: expected 1176 bytes; got 1175"},
    {"truncate -s +1 ckpt/step-20/optimizer-*", "bytes; got"},
    {"printf X | dd of=$(ls ckpt/step-20/model-*) bs=1 seek=900 conv=notrunc status=none",
     "checksum: expected"},
    {"printf X | dd of=ckpt/step-20/state.json bs=1 seek=3 conv=notrunc status=none",
     "state.json: checksum"},
    {"truncate -s 100 ckpt/step-20/manifest.json", "not JSON"},
    {": > ckpt/step-20/manifest.json", "not JSON"},
    {"sed -i 's/\"step\": 20/\"step\": 21/' ckpt/step-20/manifest.json",
     "step: expected 20; got 21"},
    {"sed -i 's/octet-checkpoint/other/' ckpt/step-20/manifest.json", "format: expected"},
    {"sed -i 's/\"version\": 1/\"version\": 2/' ckpt/step-20/manifest.json",
     "version: expected 1; got 2"},
    {"sed -i 's/norm.weight/norm.wight/' ckpt/step-20/manifest.json", "it isn't there"},
    {"sed -i 's/\"state.json\"/\"..\\/x.json\"/' ckpt/step-20/manifest.json", "plain file name"},
    {"sed -i 's/\"rows\": 40/\"rows\": 39/' ckpt/step-20/manifest.json", "differ"},
    {"sed -i 's/\"row\": 0/\"row\": 1/' ckpt/step-20/manifest.json", "begin at row 0; got 1"},
    {"sed -i 's/\\[40, 6\\]/[6, 40]/' ckpt/step-20/manifest.json", "differ"},
    {"sed -i 's/\\[40, 6\\]/[80, 6]/' ckpt/step-20/manifest.json",
     "pieces of 80 rows in all; got 40"},
    {"sed -i 's/\"F32\"/\"BF16\"/' ckpt/step-20/manifest.json", "differ"},
    {"sed -i 's/\"kernel_set\"/\"kernels\"/' ckpt/step-20/manifest.json",
     "kernel_set: expected a string; got nothing"},
    {"sed -i 's/\"tensors\"/\"other\"/' ckpt/step-20/manifest.json",
     "tensors: expected an object; got nothing"},
    {"sed -i 's/\"xxh3\": \"./\"xxh3\": \"/' ckpt/step-20/manifest.json", "16 hexadecimal"},
    {"rm -r ckpt/step-20 && touch ckpt/step-20", "step-20"},
};

static void given_any_file_damaged_resume_takes_the_one_before_and_says_why(void **state) {
    (void)state;
    for (size_t i = 0; i < OCT_COUNT(damages); i++) {
        assert_int_equal(system("rm -rf ckpt"), 0);
        warnings[0] = '\0';
        save_well(10, 0);
        save_well(20, 0);
        assert_int_equal(latest(), 20);
        assert_int_equal(system(damages[i].damage), 0);
        assert_int_equal(latest(), 10);
        assert_contains(warnings, "checkpoint step-20 is skipped: ");
        assert_contains(warnings, damages[i].part);
        assert_invalid(20, "step-20");
    }
}

static void given_a_damaged_one_it_counts_for_nothing_and_the_good_ones_stay(void **state) {
    (void)state;
    for (size_t i = 0; i < OCT_COUNT(damages); i++) {
        assert_int_equal(system("rm -rf ckpt"), 0);
        save_well(5, 0);
        save_well(10, 0);
        save_well(20, 0);
        assert_int_equal(system(damages[i].damage), 0);
        save_well(30, 2);
        assert_int_equal(
            system("test \"$(ls -v ckpt | tr '\\n' ' ')\" = 'step-10 step-20 step-30 '"), 0);
    }
}

static void given_copies_under_other_names_they_push_out_no_good_one(void **state) {
    (void)state;
    for (int64_t step = 10; step <= 30; step += 10)
        save_well(step, 3);
    assert_int_equal(system("for s in 15 91 92 93; do cp -r ckpt/step-10 ckpt/step-$s; done; "
                            "mv ckpt/step-93 ckpt/step-30.old"),
                     0);
    save_well(40, 3);
    assert_int_equal(system("test \"$(ls -v ckpt | tr '\\n' ' ')\" = "
                            "'step-15 step-20 step-30 step-30.old step-40 step-91 step-92 '"),
                     0);
    assert_int_equal(latest(), 40);
}

static void save_model_alone(int64_t step, int64_t keep) {
    fake f;
    make_fake(&f, step);
    f.contents.n_tensors[OCT_CHECKPOINT_OPTIMIZER] = 0;
    assert_int_equal(oct_checkpoint_save("ckpt", &f.contents, keep, NULL), OCT_OK);
}

static void given_models_without_their_state_they_push_out_nothing_and_go_with_age(void **state) {
    (void)state;
    save_well(10, 2);
    save_well(20, 2);
    save_model_alone(25, 2); /* the end of a run */
    assert_int_equal(system("test \"$(ls -v ckpt | tr '\\n' ' ')\" = 'step-10 step-20 step-25 '"),
                     0);
    save_well(30, 2); /* and how it went on */
    assert_int_equal(system("test \"$(ls -v ckpt | tr '\\n' ' ')\" = 'step-20 step-25 step-30 '"),
                     0);
    save_well(40, 2);
    assert_int_equal(system("test \"$(ls -v ckpt | tr '\\n' ' ')\" = 'step-30 step-40 '"), 0);
}

static void given_all_damaged_none_is_taken_and_the_newest_is_named(void **state) {
    (void)state;
    for (size_t i = 0; i < OCT_COUNT(damages); i++) {
        assert_int_equal(system("rm -rf ckpt"), 0);
        warnings[0] = '\0';
        save_well(10, 0);
        save_well(20, 0);
        assert_int_equal(system("rm ckpt/step-10/manifest.json"), 0);
        assert_int_equal(system(damages[i].damage), 0);
        assert_invalid(OCT_CHECKPOINT_LATEST,
                       "ckpt: none of its 2 checkpoints is valid; the newest: "
                       "ckpt/step-20");
        assert_invalid(OCT_CHECKPOINT_LATEST, damages[i].part);
        assert_string_equal(warnings, "");
    }
}

static void given_other_folders_beside_they_are_left_alone(void **state) {
    (void)state;
    assert_int_equal(system("mkdir -p ckpt/step-007 ckpt/step-x ckpt/step- ckpt/notes "
                            "ckpt/step-99999999999999999999 ckpt/step-3.tmp-x ckpt/step-3.old-1"),
                     0);
    save_well(4, 1);
    assert_int_equal(latest(), 4);
    assert_int_equal(system("test $(ls ckpt | wc -l) = 8"), 0);
    assert_string_equal(warnings, "");
}

/* ---- contents that can't be stored ---- */

static void given_impossible_contents_nothing_is_written(void **state) {
    (void)state;
    static const struct {
        int64_t step;
        const char *json, *config, *name, *part;
    } cases[] = {{-1, "{}", NULL, NULL, "step: expected >= 0; got -1"},
                 {1, "[]", NULL, NULL, "state:1: expected a JSON object; got a list"},
                 {1, "{", NULL, NULL, "not JSON"},
                 {1, "{}", "../evil", NULL, "config name"},
                 {1, "{}", "manifest.json", NULL, "config name"},
                 {1, "{}", "a.safetensors", NULL, "config name"},
                 {1, "{}", NULL, "", "not empty"},
                 {1, "{}", NULL, "norm.weight", "got two"}};
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        fake f;
        oct_error err = {0};
        make_fake(&f, cases[i].step);
        f.contents.state_json = cases[i].json;
        if (cases[i].config)
            f.contents.config_name = cases[i].config;
        if (cases[i].name)
            f.model[0].name = cases[i].name;
        assert_int_equal(oct_checkpoint_save("ckpt", &f.contents, 0, &err), OCT_INVALID);
        assert_contains(err.message, cases[i].part);
    }
    fake f;
    oct_error err = {0};
    make_fake(&f, 1);
    f.contents.max_shard_bytes = 1; /* the two of one name lie in two files */
    f.model[0].name = "norm.weight";
    assert_int_equal(oct_checkpoint_save("ckpt", &f.contents, 0, &err), OCT_INVALID);
    assert_contains(err.message, "got two");
    assert_int_equal(system("test -z \"$(find ckpt -mindepth 1 2>/dev/null)\""), 0);
}

static void given_further_files_they_come_back_and_a_damaged_one_is_seen(void **state) {
    (void)state;
    fake f;
    oct_checkpoint *c = NULL;
    oct_error err = {0};
    const oct_checkpoint_file files[] = {{"tokenizer.json", "{\"a\": 0}", 8}, {"b", "x\0y", 3}};
    make_fake(&f, 3);
    f.contents.files = files;
    f.contents.n_files = 2;
    assert_int_equal(oct_checkpoint_save("ckpt", &f.contents, 0, &err), OCT_OK);
    assert_int_equal(oct_checkpoint_find("ckpt", 3, &c, &err), OCT_OK);
    assert_holds(c, 3);
    assert_true(oct_checkpoint_has_file(c, "tokenizer.json"));
    assert_false(oct_checkpoint_has_file(c, "config.json"));
    oct_checkpoint_close(c);
    char *bytes = NULL;
    size_t n;
    assert_int_equal(oct_file_read("ckpt/step-3/b", 10, &bytes, &n, NULL), OCT_OK);
    assert_int_equal(n, 3);
    assert_memory_equal(bytes, "x\0y", 3);
    oct_free(bytes);
    put_text("ckpt/step-3/b", "xzy");
    assert_int_equal(oct_checkpoint_find("ckpt", 3, &c, &err), OCT_INVALID);
    assert_non_null(strstr(err.message, "checksum"));
}

static void given_a_name_that_another_file_has_nothing_is_saved(void **state) {
    (void)state;
    static const char *const names[] = {
        "manifest.json", "state.json", "config.toml",
        "a/b",           "..",         "model-00001-of-00001.safetensors"};
    for (size_t i = 0; i < OCT_COUNT(names); i++) {
        fake f;
        oct_error err = {0};
        const oct_checkpoint_file file = {names[i], "x", 1};
        make_fake(&f, 3);
        f.contents.files = &file;
        f.contents.n_files = 1;
        assert_int_equal(oct_checkpoint_save("ckpt", &f.contents, 0, &err), OCT_INVALID);
        assert_non_null(strstr(err.message, names[i]));
        assert_int_equal(latest(), -1);
    }
}

static void
given_later_steps_they_are_set_aside_whole_and_each_time_in_a_folder_of_their_own(void **state) {
    (void)state;
    oct_checkpoint *c = NULL;
    char *aside = NULL;
    size_t n;
    oct_error err = {0};
    for (int64_t step = 1; step <= 4; step++)
        save_well(step, 0);
    assert_int_equal(oct_checkpoint_find_before("ckpt", 3, &c, &err), OCT_OK);
    assert_holds(c, 2);
    oct_checkpoint_close(c);
    assert_int_equal(oct_checkpoint_find_before("ckpt", 1, &c, &err), OCT_OK);
    assert_null(c);
    assert_int_equal(oct_checkpoint_set_aside("ckpt", 4, &aside, &n, &err), OCT_OK);
    assert_null(aside);
    assert_int_equal(oct_checkpoint_set_aside("ckpt", 2, &aside, &n, &err), OCT_OK);
    assert_int_equal(n, 2);
    assert_string_equal(aside, "ckpt/aside-1");
    oct_free(aside);
    assert_int_equal(latest(), 2);
    assert_int_equal(oct_checkpoint_open("ckpt/aside-1/step-4", &c, &err), OCT_OK);
    assert_holds(c, 4);
    oct_checkpoint_close(c);
    save_well(4, 0);
    assert_int_equal(oct_checkpoint_set_aside("ckpt", 2, &aside, &n, &err), OCT_OK);
    assert_string_equal(aside, "ckpt/aside-2");
    oct_free(aside);
    assert_int_equal(latest(), 2);
}

static void given_a_file_as_folder_setting_aside_and_finding_before_say_so(void **state) {
    (void)state;
    oct_checkpoint *c = NULL;
    char *aside = (char *)"unset";
    size_t n = 7;
    oct_error err = {0};
    save_well(1, 0);
    assert_int_equal(oct_checkpoint_set_aside("ckpt/step-1/state.json", 0, &aside, &n, &err),
                     OCT_INVALID);
    assert_string_equal(err.message, "ckpt/step-1/state.json: can't be read: Not a directory");
    assert_null(aside);
    assert_int_equal(n, 0);
    err = (oct_error){0};
    assert_int_equal(oct_checkpoint_find_before("ckpt/step-1/state.json", 2, &c, &err),
                     OCT_INVALID);
    assert_string_equal(err.message, "ckpt/step-1/state.json: can't be read: Not a directory");
    assert_null(c);
}

static void given_all_before_a_step_damaged_none_is_taken_though_a_later_one_is_good(void **state) {
    (void)state;
    oct_checkpoint *c = NULL;
    oct_error err = {0};
    for (int64_t step = 1; step <= 3; step++)
        save_well(step, 0);
    assert_int_equal(system("rm ckpt/step-1/manifest.json ckpt/step-2/manifest.json"), 0);
    assert_int_equal(oct_checkpoint_find_before("ckpt", 3, &c, &err), OCT_INVALID);
    assert_non_null(strstr(err.message, "ckpt: none of its 2 checkpoints is valid; the newest: "
                                        "ckpt/step-2"));
    assert_null(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        STORY(given_a_save_everything_comes_back),
        STORY(given_two_groups_a_tensor_is_looked_for_in_its_own),
        STORY(given_a_shard_limit_tensors_spread_over_files),
        STORY(given_no_tensors_and_no_config_a_checkpoint_is_still_one),
        STORY(given_a_wrong_name_or_shape_the_copy_is_refused),
        STORY(given_nothing_saved_latest_is_none_and_a_step_is_an_error),
        STORY(given_keep_latest_two_the_older_ones_go),
        STORY(given_a_damaged_newer_folder_keeping_one_never_deletes_the_good_one),
        STORY(given_the_same_step_again_the_new_one_takes_its_place),
        STORY(given_any_file_damaged_resume_takes_the_one_before_and_says_why),
        STORY(given_all_damaged_none_is_taken_and_the_newest_is_named),
        STORY(given_a_damaged_one_it_counts_for_nothing_and_the_good_ones_stay),
        STORY(given_copies_under_other_names_they_push_out_no_good_one),
        STORY(given_models_without_their_state_they_push_out_nothing_and_go_with_age),
        STORY(given_other_folders_beside_they_are_left_alone),
        STORY(given_impossible_contents_nothing_is_written),
        STORY(given_further_files_they_come_back_and_a_damaged_one_is_seen),
        STORY(given_a_name_that_another_file_has_nothing_is_saved),
        STORY(given_later_steps_they_are_set_aside_whole_and_each_time_in_a_folder_of_their_own),
        STORY(given_a_file_as_folder_setting_aside_and_finding_before_say_so),
        STORY(given_all_before_a_step_damaged_none_is_taken_though_a_later_one_is_good),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
