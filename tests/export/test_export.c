/* Exports whose memory ends, that are stopped, and that are read back as another model. */
#include "train_support.h"

#include "file_support.h"

#include <inttypes.h>
#include <unistd.h>

#include "base/count.h"
#include "export/export_check.h"
#include "export/export_source.h"
#include "job/conversion.h"
#include "tensors/dcp.h"
#include "tensors/unpickle.h"

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
    for (int64_t n = 1; status; n += 1 + n / 40) {
        oct_error err = {0};
        size_t live = oct_alloc_live_bytes();
        oct_alloc_fail_at(n);
        status = oct_export_source(s->source, &request, s->target, &summary, &err);
        oct_alloc_fail_at(0);
        assert_int_equal(oct_alloc_live_bytes(), live);
        if (!status)
            break;
        if (status != OCT_NO_MEMORY)
            fail_msg("allocation %" PRId64 ": %s", n, err.message);
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

/* All that a folder says, whatever it is. */
static oct_status read_all(const char *folder) {
    oct_dcp *dcp = NULL;
    oct_error err = {0};
    oct_status status = oct_dcp_open(folder, &dcp, &err);
    for (size_t i = 0; !status && i < oct_dcp_count(dcp); i++) {
        const oct_dcp_tensor *t = oct_dcp_get(dcp, i);
        size_t n = 4;
        for (int d = 0; d < t->n_dims; d++)
            n *= (size_t)t->shape[d];
        void *to = n <= (1 << 24) ? malloc(n) : NULL;
        status = to ? oct_dcp_read(dcp, t, to, &err) : OCT_INVALID;
        free(to);
    }
    oct_dcp_close(dcp);
    if (status && err.message[0])
        assert_one_line(err.message);
    return status;
}

static void put_bytes(const scene *s, const char *name, const char *bytes, size_t n) {
    char path[192];
    snprintf(path, sizeof path, "%s/%s", s->target, name);
    FILE *file = fopen(path, "wb"); /* no fsync: ten thousand of them */
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

/* Bytes are changed, cut, doubled; what is read is refused or reads, and no memory is lost. */
static void mutate(const scene *s, const char *name, int n_rounds) {
    char path[192], *bytes = NULL;
    size_t n, live = oct_alloc_live_bytes();
    int n_refused = 0;
    snprintf(path, sizeof path, "%s/%s", s->target, name);
    assert_int_equal(oct_file_read(path, 1 << 24, &bytes, &n, NULL), OCT_OK);
    char *copy = malloc(n + 64);
    assert_non_null(copy);
    for (uint64_t round = 0; round < (uint64_t)n_rounds; round++) {
        size_t length = n;
        memcpy(copy, bytes, n);
        uint64_t n_changes = 1 + oct_rng_below(1, 0, round, 4);
        for (uint64_t k = 0; k < n_changes; k++) {
            size_t at = oct_rng_below(2, k, round, length - 40);
            switch (oct_rng_below(3, k, round, 4)) {
            case 0:
                copy[at] = (char)oct_rng_below(4, k, round, 256);
                break;
            case 1: /* another opcode of those that there are */
                copy[at] = "(.NJKMX)]}tausReqbhj\x80\x81\x85\x88\x8a\x93\x94"[oct_rng_below(
                    5, k, round, 27)];
                break;
            case 2: /* a piece twice */
                memmove(copy + at, copy + oct_rng_below(6, k, round, length - 40), 32);
                break;
            default:
                length -= oct_rng_below(7, k, round, 8);
            }
        }
        put_bytes(s, name, copy, length);
        n_refused += read_all(s->target) != OCT_OK;
    }
    put_bytes(s, name, bytes, n);
    assert_int_equal(read_all(s->target), OCT_OK);
    assert_true(n_refused > n_rounds / 2);
    free(copy);
    oct_free(bytes);
    assert_int_equal(oct_alloc_live_bytes(), live);
}

static void given_ten_thousand_changed_folders_of_torchs_each_is_read_or_refused(void **state) {
    const scene *s = *state;
    const oct_export_request request = {.format = OCT_EXPORT_DCP};
    oct_export_summary summary;
    oct_error err = {0};
    if (oct_export_source(s->source, &request, s->target, &summary, &err))
        fail_msg("%s", err.message);
    mutate(s, ".metadata", 10000);
    mutate(s, "__0_0.distcp", 1000);
}

/* What a hostile pickle would run; and forms that aren't one. */
static void given_a_pickle_that_would_run_something_it_is_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *bytes, *said;
    } cases[] = {
        {"\x80\x02"
         "cos\nsystem\nX\x04\0\0\0true\x85R.",
         "it names os.system"},
        {"\x80\x02"
         "cbuiltins\neval\nX\x01\0\0\0001\x85R.",
         "it names builtins.eval"},
        {"\x80\x02"
         "ctorch\nload\n)R.",
         "it names torch.load"},
        {"\x80\x02"
         "c__builtin__\neval\n.",
         "it names __builtin__.eval"},
        {"\x80\x04\x8c\x02os\x8c\x06system\x93.", "it names os.system"},
        {"\x80\x02"
         "i",
         "opcode 0x69 isn't allowed"}, /* INST */
        {"\x80\x02"
         "(o.",
         "opcode 0x6f isn't allowed"},                      /* OBJ */
        {"\x80\x02\x82\x01.", "opcode 0x82 isn't allowed"}, /* EXT1 */
        {"\x80\x02}R.", "opcode 0x52"},
        {"\x80\x02)b.", "opcode 0x62"},
        {"\x80\x02t.", "opcode 0x74"},
        {"\x80\x02(u.", "opcode 0x75"},
        {"\x80\x02h\x07.", "opcode 0x68"},
        {"\x80\x09.", "opcode 0x80"},
        {"\x80\x02.", "its end isn't one"},
        {"\x80\x02NN.", "its end isn't one"},
        {"\x80\x02N", "it ends before"},
    };
    static const size_t lengths[] = {27, 30, 17, 25, 15, 3, 5, 5, 5, 5, 4, 5, 5, 3, 3, 5, 3};
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        const oct_pickle *root;
        oct_error err = {0};
        oct_arena *arena = oct_arena_create();
        assert_int_equal(oct_unpickle(cases[i].bytes, lengths[i], "f", arena, &root, &err),
                         OCT_INVALID);
        assert_contains(err.message, cases[i].said);
        assert_one_line(err.message);
        oct_arena_destroy(arena);
    }
}

#define SCENE(story) cmocka_unit_test_setup_teardown(story, open_scene, close_scene)

int main(void) {
    const struct CMUnitTest tests[] = {
        SCENE(given_memory_that_ends_anywhere_an_export_fails_and_leaves_nothing),
        SCENE(given_a_stop_between_tensors_an_export_leaves_nothing),
        SCENE(given_any_other_value_the_check_of_an_export_names_its_tensor),
        SCENE(given_ten_thousand_changed_folders_of_torchs_each_is_read_or_refused),
        cmocka_unit_test(given_a_pickle_that_would_run_something_it_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
