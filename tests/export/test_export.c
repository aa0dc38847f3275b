/* Exports whose memory ends, that are stopped, and that are read back as another model. */
#include "train_support.h"

#include "file_support.h"

#include <unistd.h>

#include "export/export_check.h"
#include "export/export_source.h"
#include "job/conversion.h"

typedef struct scene {
    workshop w;
    char target[128];
    oct_model_source *source;
    oct_model *model;
    oct_conversion *conversion;
} scene;

/* A checkpoint of a model in MXFP8, and what it holds. */
static int open_scene(void **state) {
    static scene s;
    oct_job job;
    oct_error err = {0};
    const oct_model_use use = {0};
    static const char *const overrides[] = {"--checkpoint.enable", "--training.steps=1",
                                            "--model.converters=quantize.linear.mx", NULL};
    const oct_trainer_options options = {.overrides = overrides, .n_overrides = 3};
    oct_trainer *t = NULL;
    s = (scene){0};
    workshop_open(&s.w, 400);
    workshop_path(&s.w, "exported", s.target);
    load_job(&s.w, &job, overrides);
    if (oct_trainer_create(&job, &options, &t, &err) != OCT_OK)
        fail_msg("%s", err.message);
    step_once(t);
    assert_int_equal(oct_trainer_save(t, &err), OCT_OK);
    char *from = oct_path_join(job.job.dump_folder, job.checkpoint.folder);
    oct_trainer_destroy(t);
    if (oct_model_source_open(from, &use, &s.source, &err) ||
        oct_model_create(&s.source->args, OCT_PARAMS_ALLOCATED, &s.model, &err) ||
        oct_model_source_read(s.source, s.model, &err) ||
        oct_conversion_create(&s.source->job, s.model, &s.conversion, &err))
        fail_msg("%s", err.message);
    oct_free(from);
    oct_job_free(&job);
    *state = &s;
    return 0;
}

static int close_scene(void **state) {
    scene *s = *state;
    oct_model_destroy(s->model);
    oct_conversion_destroy(s->conversion);
    oct_model_source_close(s->source);
    workshop_close(&s->w);
    return 0;
}

/* No folder of that name, nor what it is written as. */
static void expect_nothing(const scene *s) {
    char temporary[160];
    snprintf(temporary, sizeof temporary, "%s.tmp-%ld", s->target, (long)getpid());
    assert_false(oct_path_exists(s->target));
    assert_false(oct_path_exists(temporary));
}

static void run_out_of_memory(const scene *s, oct_export_format format) {
    const oct_export_request request = {.format = format};
    oct_export_summary summary;
    oct_status status = OCT_NO_MEMORY;
    int64_t n_failed = 0;
    for (int64_t n = 1; status != OCT_OK; n += 1 + n / 40) {
        oct_error err = {0};
        size_t live = oct_alloc_live_bytes();
        oct_alloc_fail_at(n);
        status = oct_export_source(s->source, &request, s->target, &summary, &err);
        oct_alloc_fail_at(0);
        assert_int_equal(oct_alloc_live_bytes(), live);
        if (status == OCT_OK)
            break;
        if (status != OCT_NO_MEMORY)
            fail_msg("allocation %lld: %s", (long long)n, err.message);
        expect_nothing(s);
        n_failed++;
    }
    assert_true(n_failed > 50);
    assert_true(oct_path_is_folder(s->target));
    assert_int_equal(oct_remove_tree(s->target, NULL), OCT_OK);
}

static void given_memory_that_ends_anywhere_an_export_fails_and_leaves_nothing(void **state) {
    run_out_of_memory(*state, OCT_EXPORT_MODELOPT);
    run_out_of_memory(*state, OCT_EXPORT_DCP);
}

static int stop_at_third(void *n_asked) {
    return ++*(int *)n_asked >= 3;
}

static void given_a_stop_between_tensors_an_export_leaves_nothing(void **state) {
    const scene *s = *state;
    int n_asked = 0;
    const oct_export_request request = {
        .format = OCT_EXPORT_HF, .stop = stop_at_third, .stop_user = &n_asked};
    oct_export_summary summary;
    oct_error err = {0};
    assert_int_equal(oct_export_source(s->source, &request, s->target, &summary, &err), OCT_FAILED);
    assert_int_equal(n_asked, 3);
    expect_nothing(s);
}

/* The check that comes before the folder gets its name, asked again after one value has changed. */
static void given_any_other_value_the_check_of_an_export_names_its_tensor(void **state) {
    const scene *s = *state;
    for (int format = 0; format < OCT_EXPORT_DCP; format++) {
        const oct_export_request request = {.format = (oct_export_format)format,
                                            .dtype = format % 2 ? "bfloat16" : "float32"};
        const oct_export e = {.format = request.format,
                              .dtype = format % 2 ? OCT_BF16 : OCT_F32,
                              .model = s->model,
                              .plan = oct_conversion_plan(s->conversion)};
        oct_export_summary summary;
        oct_error err = {0};
        int64_t n;
        oct_param *const *params = oct_model_params(s->model, &n);
        if (oct_export_source(s->source, &request, s->target, &summary, &err) ||
            oct_export_check_folder(&e, s->target, &err))
            fail_msg("%s", err.message);
        for (int64_t i = 0; i < n; i++) {
            float *value = &params[i]->value[oct_param_elements(params[i]) / 2], was = *value;
            err = (oct_error){0};
            *value = was + 3;
            assert_int_equal(oct_export_check_folder(&e, s->target, &err), OCT_FAILED);
            assert_contains(err.message, params[i]->name);
            *value = was;
        }
        assert_int_equal(oct_remove_tree(s->target, &err), OCT_OK);
    }
}

#define SCENE(story) cmocka_unit_test_setup_teardown(story, open_scene, close_scene)

int main(void) {
    const struct CMUnitTest tests[] = {
        SCENE(given_memory_that_ends_anywhere_an_export_fails_and_leaves_nothing),
        SCENE(given_a_stop_between_tensors_an_export_leaves_nothing),
        SCENE(given_any_other_value_the_check_of_an_export_names_its_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
