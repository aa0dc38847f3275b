/* Checkpoints of older versions, which record no model, no hashes and an absolute tokenizer: runs
 * go on from them, and are compared by the job that they hold. */
#include "train_support.h"

#include <jansson.h>

#include "base/count.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "infer/inference.h"

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})
#define SAVE "--checkpoint.enable"

enum { MAX_TENSORS = 100 };

static char lines[1 << 16];

static void keep_line(void *user, oct_log_level level, const char *line) {
    (void)user;
    (void)level;
    strncat(lines, line, sizeof lines - strlen(lines) - 2);
    strcat(lines, "\n");
}

/* The tensors of a group, copied. */
static int64_t read_group(const oct_checkpoint *from, oct_checkpoint_group group,
                          oct_safetensors_item *items) {
    int64_t n = oct_checkpoint_count(from, group);
    assert_in_range(n, 1, MAX_TENSORS);
    for (int64_t i = 0; i < n; i++) {
        const oct_checkpoint_tensor *tensor = oct_checkpoint_get(from, group, i);
        oct_tensor copy = {.dtype = tensor->dtype, .n_dims = tensor->n_dims};
        memcpy(copy.shape, tensor->shape, (size_t)tensor->n_dims * sizeof *copy.shape);
        copy.data = oct_malloc(oct_tensor_bytes(&copy));
        assert_int_equal(oct_checkpoint_copy(from, group, tensor->name, &copy, NULL), OCT_OK);
        items[i] = oct_safetensors_item_of(tensor->name, &copy);
    }
    return n;
}

/* Saves step 3 again as an older version would have. */
static void make_old(const workshop *w, const char *tokenizer) {
    static const char *const newer[] = {"model", "data_hash", "validation_hash", "tokenizer_hash"};
    static oct_safetensors_item items[OCT_CHECKPOINT_N_GROUPS][MAX_TENSORS];
    char folder[128];
    oct_checkpoint *from = NULL;
    oct_error err = {0};
    workshop_path(w, "out/checkpoint", folder);
    assert_int_equal(oct_checkpoint_find(folder, 3, &from, NULL), OCT_OK);
    json_t *state = json_loads(oct_checkpoint_state(from), 0, NULL);
    for (size_t i = 0; i < OCT_COUNT(newer); i++)
        assert_int_equal(json_object_del(state, newer[i]), 0);
    json_object_set_new(state, "tokenizer", json_string(tokenizer));
    char *text = json_dumps(state, 0);
    oct_checkpoint_contents contents = {.step = 3,
                                        .state_json = text,
                                        .config_name = oct_checkpoint_config_name(from),
                                        .config_text = oct_checkpoint_config(from),
                                        .kernel_set = oct_checkpoint_kernel_set(from),
                                        .gemm = oct_checkpoint_gemm(from)};
    for (int g = 0; g < OCT_CHECKPOINT_N_GROUPS; g++) {
        contents.n_tensors[g] = read_group(from, (oct_checkpoint_group)g, items[g]);
        contents.tensors[g] = items[g];
    }
    if (oct_checkpoint_save(folder, &contents, 0, &err))
        fail_msg("%s", err.message);
    for (int g = 0; g < OCT_CHECKPOINT_N_GROUPS; g++)
        for (int64_t i = 0; i < contents.n_tensors[g]; i++)
            oct_free((void *)items[g][i].data);
    oct_checkpoint_close(from);
    json_decref(state);
    free(text);
}

/* A run of 6 steps with checkpoints of 3 and 6, the first of which is an older version's. */
static void run_once(const workshop *w, oct_step_result *last) {
    oct_job job;
    char tokenizer[128];
    oct_error err = {0};
    load_job(w, &job, LIST(SAVE));
    oct_trainer *t = make_trainer(&job);
    for (int step = 1; step <= 6; step++) {
        *last = step_once(t);
        if (step % 3 == 0 && oct_trainer_save(t, &err))
            fail_msg("%s", err.message);
    }
    oct_trainer_destroy(t);
    oct_job_free(&job);
    workshop_path(w, "tokenizer.json", tokenizer);
    make_old(w, tokenizer);
}

static void given_an_older_checkpoint_a_run_goes_on_from_it_with_the_same_numbers(void **state) {
    (void)state;
    workshop w;
    oct_job job;
    oct_step_result whole, resumed = {0};
    workshop_open(&w, 4000);
    run_once(&w, &whole);
    load_job(&w, &job, LIST(SAVE, "--checkpoint.load_step=3"));
    lines[0] = '\0';
    oct_log_set_sink(keep_line, NULL);
    oct_trainer *t = make_trainer(&job);
    oct_log_set_sink(NULL, NULL);
    assert_non_null(strstr(lines, "Resumed from "));
    assert_null(strstr(lines, "can't be told"));
    assert_null(strstr(lines, "resumed with another training"));
    for (int step = 4; step <= 6; step++)
        resumed = step_once(t);
    assert_true(resumed.loss == whole.loss);
    assert_true(resumed.grad_norm == whole.grad_norm);
    oct_trainer_destroy(t);
    oct_job_free(&job);
    workshop_close(&w);
}

static void given_an_older_checkpoint_another_model_is_refused_all_the_same(void **state) {
    (void)state;
    workshop w;
    oct_job job;
    oct_trainer *t = NULL;
    oct_step_result whole;
    oct_error err = {0};
    const oct_trainer_options options = {0};
    workshop_open(&w, 4000);
    run_once(&w, &whole);
    load_job(&w, &job, LIST(SAVE, "--checkpoint.load_step=3", "--model.args.norm_eps=0.1"));
    assert_int_equal(oct_trainer_create(&job, &options, &t, &err), OCT_INVALID);
    assert_non_null(strstr(err.message, "--model.args.norm_eps: another norm_eps than the model"));
    oct_job_free(&job);
    workshop_close(&w);
}

static void given_an_older_checkpoint_its_tokenizer_is_found_where_it_was(void **state) {
    (void)state;
    workshop w;
    oct_step_result whole;
    oct_inference *inference = NULL;
    oct_error err = {0};
    char path[128];
    const oct_inference_options options = {0};
    workshop_open(&w, 4000);
    run_once(&w, &whole);
    workshop_path(&w, "out/checkpoint/step-3", path);
    if (oct_inference_open(path, &options, &inference, &err))
        fail_msg("%s", err.message);
    oct_inference_close(inference);
    workshop_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_an_older_checkpoint_a_run_goes_on_from_it_with_the_same_numbers),
        cmocka_unit_test(given_an_older_checkpoint_another_model_is_refused_all_the_same),
        cmocka_unit_test(given_an_older_checkpoint_its_tokenizer_is_found_where_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
