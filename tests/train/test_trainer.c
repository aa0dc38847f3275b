/* The trainer as a whole, on a model of two small layers: the same run whatever its batches,
 * threads and interruptions; what it refuses; what it leaves behind when a loss isn't finite. */
#include "train_support.h"

#include <math.h>

#include "base/count.h"
#include "base/thread.h"
#include "checkpoint/checkpoint.h"

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})
#define CONVERT "--model.converters=quantize.linear.mx"

static void given_an_accumulated_batch_it_equals_the_big_one(void **state) {
    (void)state;
    workshop w;
    oct_job big, small;
    char folder[160] = "--job.dump_folder=";
    workshop_open(&w, 4000);
    workshop_path(&w, "small", folder + strlen(folder));
    load_job(&w, &big,
             LIST("--training.local_batch_size=4", "--training.mixed_precision_param=float32"));
    load_job(&w, &small,
             LIST("--training.local_batch_size=1", "--training.global_batch_size=4", folder,
                  "--training.mixed_precision_param=float32"));
    oct_trainer *a = make_trainer(&big), *b = make_trainer(&small);
    for (int i = 0; i < 4; i++) {
        oct_step_result x = step_once(a), y = step_once(b);
        assert_int_equal(x.n_tokens, 4 * 32);
        assert_int_equal(y.n_tokens, 4 * 32);
        assert_true(fabs(x.loss - y.loss) < 1e-5);
        assert_true(fabs(x.grad_norm - y.grad_norm) < 1e-4 * x.grad_norm);
    }
    oct_trainer_destroy(a);
    oct_trainer_destroy(b);
    oct_job_free(&big);
    oct_job_free(&small);
    workshop_close(&w);
}

/* Two sequences are all the data: the model learns them by heart. */
static void overfit(const char *const *overrides) {
    workshop w;
    oct_job job;
    double loss = INFINITY;
    char text[128];
    workshop_open(&w, 4000);
    workshop_path(&w, "text.txt", text);
    write_words(text, 67);
    load_job(&w, &job, overrides);
    oct_trainer *t = make_trainer(&job);
    for (int i = 0; i < 300 && loss >= 0.05; i++)
        loss = step_once(t).loss;
    if (loss >= 0.05)
        fail_msg("%s: loss %f", overrides[2] ? overrides[2] : "bf16", loss);
    oct_trainer_destroy(t);
    oct_job_free(&job);
    workshop_close(&w);
}
#define OVERFIT "--training.steps=1000", "--lr_scheduler.warmup_steps=10"

static void given_one_batch_bf16_learns_it_by_heart(void **state) {
    (void)state;
    overfit(LIST(OVERFIT));
}
static void given_one_batch_mxfp8_learns_it_by_heart(void **state) {
    (void)state;
    overfit(LIST(OVERFIT, CONVERT));
}
static void given_one_batch_hif8_learns_it_by_heart(void **state) {
    (void)state;
    overfit(LIST(OVERFIT, CONVERT, "--quantize.linear.mx.recipe_name=hif8"));
}

static void given_one_batch_hif8_full_range_learns_it_by_heart(void **state) {
    (void)state;
    overfit(LIST(OVERFIT, CONVERT, "--quantize.linear.mx.recipe_name=hif8_full_range"));
}

/* Runs 6 steps at one go; then again from step 3, in the same folder; and compares all bits and all
 * lines of metrics.jsonl. */
static void resume(const char *const *overrides, const char *const *again) {
    workshop w;
    oct_job job, resumed;
    char metrics[128];
    char *text[2];
    float *values[2];
    int64_t n_floats;
    size_t n_bytes;
    oct_error err = {0};
    workshop_open(&w, 4000);
    workshop_path(&w, "out/metrics.jsonl", metrics);
    load_job(&w, &job, overrides);
    load_job(&w, &resumed, again);
    for (int run = 0; run < 2; run++) {
        oct_trainer *t = make_trainer(run ? &resumed : &job);
        assert_int_equal(oct_trainer_steps_done(t), run ? 3 : 0);
        if (oct_trainer_run(t, &err) != OCT_OK)
            fail_msg("%s", err.message);
        values[run] = copy_parameters(t, &n_floats);
        assert_int_equal(oct_file_read(metrics, 1 << 20, &text[run], &n_bytes, NULL), OCT_OK);
        oct_trainer_destroy(t);
    }
    assert_memory_equal(values[0], values[1], (size_t)n_floats * sizeof **values);
    char *a = text[0], *b = text[1];
    for (int step = 1; step <= 6; step++) {
        /* everything up to the first measured time */
        size_t n = (size_t)(strstr(a, "\"tps\"") - a);
        assert_memory_equal(a, b, n);
        a = strchr(a, '\n') + 1;
        b = strchr(b, '\n') + 1;
    }
    assert_string_equal(a, "");
    assert_string_equal(b, "");
    for (int run = 0; run < 2; run++) {
        oct_free(values[run]);
        oct_free(text[run]);
    }
    oct_job_free(&job);
    oct_job_free(&resumed);
    workshop_close(&w);
}

static void given_a_resumed_run_its_bits_are_those_of_one_that_never_stopped(void **state) {
    (void)state;
    resume(
        LIST("--training.global_batch_size=4", "--checkpoint.enable"),
        LIST("--training.global_batch_size=4", "--checkpoint.enable", "--checkpoint.load_step=3"));
}
static void given_delayed_scales_a_resumed_run_remembers_them(void **state) {
    (void)state;
#define DELAYED                                                                                    \
    CONVERT, "--quantize.linear.mx.recipe_name=delayed_per_tensor_HiF8_HiF8_HiF8",                 \
        "--checkpoint.enable"
    resume(LIST(DELAYED), LIST(DELAYED, "--checkpoint.load_step=3"));
}

#define EXPERTS                                                                                    \
    "--model.name=deepseek_v3", "--model.args.moe_inter_dim=32", "--model.args.kv_lora_rank=32",   \
        "--model.converters=npu_gmm,quantize.linear.mx,quantize.grouped_mm.mx"

static void
given_experts_one_recipe_for_them_and_another_for_linears_learn_it_by_heart(void **state) {
    (void)state;
    overfit(LIST(OVERFIT, EXPERTS, "--quantize.linear.mx.recipe_name=mxfp8",
                 "--quantize.grouped_mm.mx.recipe_name=hif8"));
    overfit(LIST(OVERFIT, EXPERTS, "--quantize.linear.mx.recipe_name=hif8",
                 "--quantize.grouped_mm.mx.recipe_name=mxfp8"));
}

/* The routers' biases move fast here, so that forgetting them would show; so would the amaxes. */
static void given_experts_a_resumed_run_remembers_their_biases_and_scales(void **state) {
    (void)state;
#define BALANCED                                                                                   \
    EXPERTS, "--model.args.load_balance_coeff=0.1", "--checkpoint.enable",                         \
        "--training.global_batch_size=4",                                                          \
        "--quantize.grouped_mm.mx.recipe_name=delayed_per_tensor_HiF8_HiF8_HiF8"
    resume(LIST(BALANCED), LIST(BALANCED, "--checkpoint.load_step=3"));
}

/* All tokens go to the last two experts of each layer: a bias outweighs every score. */
static void favour_two(oct_model *model) {
    for (int64_t i = 0; i < oct_model_get_args(model)->n_layers; i++) {
        oct_moe *moe = oct_model_moe(model, i);
        for (int64_t e = 1; moe && e <= 2; e++)
            moe->expert_bias[moe->config.rule.n_experts - e] = 100;
    }
}

static void fill_gradients(oct_model *model, float garbage) {
    int64_t n;
    oct_param *const *params = oct_model_params(model, &n);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < params[i]->n_held; k++)
            params[i]->grad[k] = garbage;
}

static void check_two_learn(oct_model *model) {
    int n_layers = 0;
    for (int64_t i = 0; i < oct_model_get_args(model)->n_layers; i++) {
        const oct_moe *moe = oct_model_moe(model, i);
        for (int w = 0; moe && w < OCT_N_EXPERT_WEIGHTS; w++) {
            const oct_param *param = moe->experts->w[w];
            int64_t per_expert = param->shape[1] * param->shape[2];
            int64_t first = (param->shape[0] - 2) * per_expert, n = first + 2 * per_expert, k = 0;
            for (; k < first; k++)
                assert_true(param->grad[k] == 0 && !signbit(param->grad[k]));
            while (k < n && param->grad[k] == 0)
                k++;
            assert_true(k < n);
        }
        n_layers += moe != NULL;
    }
    assert_true(n_layers > 0);
}

/* Losses of 4 steps, with `garbage` in the gradients' memory before each. */
static void lose(const oct_job *job, float garbage, double losses[4]) {
    oct_trainer *t = make_trainer(job);
    favour_two(oct_trainer_model(t));
    for (int i = 0; i < 4; i++) {
        fill_gradients(oct_trainer_model(t), garbage);
        losses[i] = step_once(t).loss;
        check_two_learn(oct_trainer_model(t));
    }
    oct_trainer_destroy(t);
}

static void given_garbage_in_the_gradients_memory_empty_experts_still_get_zeros(void **state) {
    (void)state;
#define ACCUMULATED "--training.global_batch_size=4", EXPERTS
    const char *const *const jobs[] = {
        LIST(ACCUMULATED, "--model.converters="),
        LIST(ACCUMULATED, "--model.converters=npu_gmm"),
        LIST(ACCUMULATED, "--quantize.grouped_mm.mx.recipe_name=mxfp8"),
        LIST(ACCUMULATED, "--quantize.grouped_mm.mx.recipe_name=hif8"),
    };
    static const float garbage[] = {NAN, INFINITY, -1e30f, 1e-40f};
    workshop w;
    workshop_open(&w, 4000);
    for (size_t i = 0; i < OCT_COUNT(jobs); i++) {
        double clean[4], dirty[4];
        oct_job job;
        load_job(&w, &job, jobs[i]);
        lose(&job, 0, clean);
        for (size_t g = 0; g < OCT_COUNT(garbage); g++) {
            lose(&job, garbage[g], dirty);
            assert_memory_equal(dirty, clean, sizeof clean);
        }
        oct_job_free(&job);
    }
    workshop_close(&w);
}

static void given_a_forced_balance_every_step_reports_an_even_load(void **state) {
    (void)state;
    workshop w;
    oct_job job;
    workshop_open(&w, 4000);
    load_job(&w, &job,
             LIST("--model.name=qwen3", "--model.flavor=demo_moe", "--model.args.moe_inter_dim=32",
                  "--debug.moe_force_load_balance"));
    oct_trainer *t = make_trainer(&job);
    for (int i = 0; i < 2; i++) {
        oct_step_result result = step_once(t);
        assert_int_equal(result.expert_load.n_experts, 2 * 8);
        assert_true(result.expert_load.largest_over_mean == 1.0);
        assert_true(result.expert_load.idle_share == 0.0);
    }
    oct_trainer_destroy(t);
    oct_job_free(&job);
    workshop_close(&w);
}

/* A finished run's checkpoint as the start of another: its weights alone, or all of it. */
static void given_a_checkpoint_to_start_from_it_is_read(void **state) {
    (void)state;
    workshop w;
    oct_job job;
    oct_error err = {0};
    char elsewhere[192], from[192];
    float *values[2];
    int64_t n_floats;
    workshop_open(&w, 4000);
    snprintf(elsewhere, sizeof elsewhere, "--job.dump_folder=%s/elsewhere", w.folder);
    snprintf(from, sizeof from, "--checkpoint.initial_load_path=%s/out/checkpoint/step-3",
             w.folder);
    load_job(&w, &job, LIST("--checkpoint.enable", "--training.steps=3"));
    oct_trainer *t = make_trainer(&job);
    assert_int_equal(oct_trainer_run(t, &err), OCT_OK);
    values[0] = copy_parameters(t, &n_floats);
    oct_trainer_destroy(t);
    oct_job_free(&job);
    for (int all = 0; all < 2; all++) {
        load_job(&w, &job,
                 LIST("--checkpoint.enable", elsewhere, from,
                      all ? "--checkpoint.no-initial_load_model_only"
                          : "--checkpoint.initial_load_model_only"));
        t = make_trainer(&job);
        assert_int_equal(oct_trainer_steps_done(t), all ? 3 : 0);
        values[1] = copy_parameters(t, &n_floats);
        assert_memory_equal(values[0], values[1], (size_t)n_floats * sizeof **values);
        oct_free(values[1]);
        oct_trainer_destroy(t);
        oct_job_free(&job);
    }
    oct_free(values[0]);
    workshop_close(&w);
}

/* The last save holds the model alone, rounded; it can be started from, not gone on from. */
static void given_a_model_for_export_training_does_not_go_on_from_it(void **state) {
    (void)state;
    workshop w;
    oct_job job;
    oct_error err = {0};
    oct_trainer *t;
    const oct_trainer_options options = {0};
    workshop_open(&w, 4000);
    load_job(&w, &job,
             LIST("--checkpoint.enable", "--training.steps=2", "--checkpoint.last_save_model_only",
                  "--checkpoint.export_dtype=bfloat16"));
    t = make_trainer(&job);
    assert_int_equal(oct_trainer_run(t, &err), OCT_OK);
    oct_trainer_destroy(t);
    t = make_trainer(&job);
    assert_int_equal(oct_trainer_steps_done(t), 2);
    oct_trainer_destroy(t);
    oct_job_free(&job);
    load_job(&w, &job, LIST("--checkpoint.enable", "--training.steps=4"));
    assert_int_equal(oct_trainer_create(&job, &options, &t, &err), OCT_INVALID);
    assert_non_null(strstr(err.message, "model only"));
    oct_job_free(&job);
    workshop_close(&w);
}

static void given_one_or_two_threads_the_bits_are_the_same(void **state) {
    (void)state;
    static const char *const recipes[] = {"mxfp8", "hif8"};
    int threads = oct_threads();
    for (int r = 0; r < 2; r++) {
        char recipe[64];
        workshop w;
        oct_job job;
        float *values[2];
        int64_t n_floats;
        snprintf(recipe, sizeof recipe, "--quantize.linear.mx.recipe_name=%s", recipes[r]);
        workshop_open(&w, 4000);
        load_job(&w, &job, LIST(CONVERT, recipe));
        for (int run = 0; run < 2; run++) {
            oct_threads_set(run + 1);
            oct_trainer *t = make_trainer(&job);
            for (int i = 0; i < 3; i++)
                step_once(t);
            values[run] = copy_parameters(t, &n_floats);
            oct_trainer_destroy(t);
        }
        assert_memory_equal(values[0], values[1], (size_t)n_floats * sizeof **values);
        oct_free(values[0]);
        oct_free(values[1]);
        oct_job_free(&job);
        workshop_close(&w);
    }
    oct_threads_set(threads);
}

static oct_trainer *victim;
static void break_a_weight(void) {
    int64_t n;
    oct_model_params(oct_trainer_model(victim), &n)[1]->value[3] = NAN;
    oct_model_changed(oct_trainer_model(victim));
}

/* Called by the loop after each step: breaks one weight after the second. */
static void poison(void *user, const char *what, int64_t done, int64_t total) {
    (void)user;
    (void)total;
    if (strncmp(what, "training", 8) == 0 && done == 2)
        break_a_weight();
}

/* Called by validation after each batch: breaks one in the midst of the third step's. */
static void poison_validation(void *user, const char *what, int64_t done, int64_t total) {
    (void)user;
    if (strcmp(what, "validating") == 0 && oct_trainer_steps_done(victim) == 3 && done == total - 1)
        break_a_weight();
}

/* A run that fails at step 3 and leaves the checkpoint of step 2. */
static void expect_failure_at_3(oct_progress progress, const char *message) {
    workshop w;
    oct_job job;
    oct_error err = {0};
    oct_checkpoint *latest = NULL;
    char path[128];
    char *text;
    size_t n_bytes;
    const oct_trainer_options options = {.progress = progress};
    workshop_open(&w, 4000);
    load_job(&w, &job,
             LIST("--checkpoint.enable", "--checkpoint.interval=1", "--validation.enable",
                  "--validation.freq=1", "--validation.seq_len=32", "--validation.steps=2"));
    assert_int_equal(oct_trainer_create(&job, &options, &victim, &err), OCT_OK);
    assert_int_equal(oct_trainer_run(victim, &err), OCT_FAILED);
    if (!strstr(err.message, message) ||
        !strstr(err.message, "the run stops and the checkpoint of step 2 stays"))
        fail_msg("%s", err.message);
    oct_trainer_destroy(victim);
    workshop_path(&w, "out/checkpoint", path);
    assert_int_equal(oct_checkpoint_find(path, OCT_CHECKPOINT_LATEST, &latest, NULL), OCT_OK);
    assert_int_equal(oct_checkpoint_step(latest), 2);
    oct_checkpoint_close(latest);
    for (int step = 3; step <= 6; step++) {
        char name[64];
        snprintf(name, sizeof name, "out/checkpoint/step-%d", step);
        workshop_path(&w, name, path);
        assert_false(oct_path_exists(path));
    }
    workshop_path(&w, "out/metrics.jsonl", path);
    assert_int_equal(oct_file_read(path, 1 << 20, &text, &n_bytes, NULL), OCT_OK);
    assert_null(strstr(text, "\"step\": 3"));
    oct_free(text);
    oct_job_free(&job);
    workshop_close(&w);
}

static void given_a_loss_that_is_not_finite_at_step_3_nothing_is_saved_from_there(void **state) {
    (void)state;
    expect_failure_at_3(poison, "step 3: the loss is not finite (nan)");
}

static void given_a_validation_loss_that_is_not_finite_nothing_is_saved_from_there(void **state) {
    (void)state;
    expect_failure_at_3(poison_validation, "step 3: the validation loss is not finite (nan)");
}

static void given_an_update_that_overflows_a_weight_nothing_of_it_is_saved(void **state) {
    (void)state;
    workshop w;
    oct_job job;
    oct_error err = {0};
    oct_trainer *t = NULL;
    oct_step_result result;
    char path[128];
    const oct_trainer_options options = {0};
    workshop_open(&w, 4000);
    load_job(&w, &job, LIST("--checkpoint.enable", "--training.steps=3"));
    t = make_trainer(&job);
    assert_int_equal(oct_trainer_run(t, &err), OCT_OK);
    oct_trainer_destroy(t);
    oct_job_free(&job);
    load_job(&w, &job,
             LIST("--checkpoint.enable", "--lr_scheduler.warmup_steps=0", "--optimizer.lr=3.3e38",
                  "--checkpoint.interval=1"));
    assert_int_equal(oct_trainer_create(&job, &options, &t, &err), OCT_OK);
    assert_int_equal(oct_trainer_run(t, &err), OCT_FAILED);
    if (!strstr(err.message,
                "step 4: after the update (learning rate 1.65e+38, eps 1e-08) the value of "
                "tok_embeddings.weight[0, ") ||
        !strstr(err.message, "the run stops and the checkpoint of step 3 stays"))
        fail_msg("%s", err.message);
    err = (oct_error){0};
    assert_int_equal(oct_trainer_save(t, &err), OCT_FAILED); /* nor in another way */
    assert_int_equal(oct_trainer_step(t, &result, &err), OCT_FAILED);
    assert_int_equal(oct_trainer_steps_done(t), 3);
    oct_trainer_destroy(t);
    workshop_path(&w, "out/checkpoint/step-3", path);
    assert_true(oct_path_exists(path));
    workshop_path(&w, "out/checkpoint/step-4", path);
    assert_false(oct_path_exists(path));
    oct_job_free(&job);
    workshop_close(&w);
}

static void given_any_batch_size_the_validation_loss_is_that_of_all_tokens(void **state) {
    (void)state;
    workshop w;
    oct_error err = {0};
    double losses[2];
    workshop_open(&w, 12000);
    for (int i = 0; i < 2; i++) {
        oct_job job;
        oct_validation validation;
        load_job(&w, &job,
                 LIST("--validation.enable", "--validation.seq_len=32", "--validation.steps=-1",
                      i ? "--validation.local_batch_size=7" : "--validation.local_batch_size=1",
                      "--training.mixed_precision_param=float32"));
        oct_trainer *t = make_trainer(&job);
        step_once(t);
        assert_int_equal(oct_trainer_validate(t, &validation, &err), OCT_OK);
        assert_true(validation.n_tokens % 32 == 0 && validation.n_tokens > 7 * 32);
        losses[i] = validation.loss;
        oct_trainer_destroy(t);
        oct_job_free(&job);
    }
    assert_true(fabs(losses[0] - losses[1]) < 1e-6);
    workshop_close(&w);
}

static void refuse(const workshop *w, const char *const *overrides, const char *word) {
    oct_job job;
    oct_error err = {0};
    oct_trainer *t = NULL;
    const oct_trainer_options options = {0};
    int n = 0;
    while (overrides[n])
        n++;
    oct_status status = oct_job_load(w->job_path, overrides, n, &job, &err); /* or what it sees */
    if (!status)
        status = oct_trainer_create(&job, &options, &t, &err);
    assert_int_equal(status, OCT_INVALID);
    assert_null(t);
    if (!strstr(err.message, word))
        fail_msg("no '%s' in: %s", word, err.message);
    oct_job_free(&job);
}

static void given_a_job_that_cannot_be_the_key_is_named(void **state) {
    (void)state;
    workshop w;
    workshop_open(&w, 4000);
    refuse(&w, LIST("--training.global_batch_size=3"), "training.global_batch_size");
    refuse(&w, LIST("--parallelism.data_parallel_shard_degree=2"),
           "parallelism.data_parallel_shard_degree");
    refuse(&w, LIST("--model.args.n_heads=5"), "command line: --model.args.n_heads: doesn't");
    refuse(&w, LIST("--model.args.dim=6"), "command line: --model.args.dim: n_heads: doesn't");
    refuse(&w, LIST("--model.args.n_layer=5"), "command line: --model.args.n_layer: unknown");
    refuse(&w, LIST("--model.args.vocab_size=280"), "vocabulary");
    refuse(&w, LIST("--model.flavor=dem"), "demo");
    refuse(&w, LIST("--model.args.n_layers=100", "--model.args.dim=65536"), "GiB");
    refuse(&w, LIST("--training.seq_len=1000000"), "training.dataset_path");
    refuse(&w, LIST("--training.dataset_path=/nowhere"), "doesn't exist");
    refuse(&w, LIST("--training.dataset_path=data/nowhere.txt"), "make data");
    refuse(&w, LIST("--checkpoint.enable", "--checkpoint.load_step=7"), "7");
    refuse(&w, LIST(CONVERT, "--quantize.linear.mx.recipe_name=mxfp9"), "hif8_full_range");
    workshop_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_an_accumulated_batch_it_equals_the_big_one),
        cmocka_unit_test(given_one_batch_bf16_learns_it_by_heart),
        cmocka_unit_test(given_one_batch_mxfp8_learns_it_by_heart),
        cmocka_unit_test(given_one_batch_hif8_learns_it_by_heart),
        cmocka_unit_test(given_one_batch_hif8_full_range_learns_it_by_heart),
        cmocka_unit_test(given_a_resumed_run_its_bits_are_those_of_one_that_never_stopped),
        cmocka_unit_test(given_delayed_scales_a_resumed_run_remembers_them),
        cmocka_unit_test(
            given_experts_one_recipe_for_them_and_another_for_linears_learn_it_by_heart),
        cmocka_unit_test(given_experts_a_resumed_run_remembers_their_biases_and_scales),
        cmocka_unit_test(given_garbage_in_the_gradients_memory_empty_experts_still_get_zeros),
        cmocka_unit_test(given_a_forced_balance_every_step_reports_an_even_load),
        cmocka_unit_test(given_a_checkpoint_to_start_from_it_is_read),
        cmocka_unit_test(given_a_model_for_export_training_does_not_go_on_from_it),
        cmocka_unit_test(given_one_or_two_threads_the_bits_are_the_same),
        cmocka_unit_test(given_a_loss_that_is_not_finite_at_step_3_nothing_is_saved_from_there),
        cmocka_unit_test(given_an_update_that_overflows_a_weight_nothing_of_it_is_saved),
        cmocka_unit_test(given_a_validation_loss_that_is_not_finite_nothing_is_saved_from_there),
        cmocka_unit_test(given_any_batch_size_the_validation_loss_is_that_of_all_tokens),
        cmocka_unit_test(given_a_job_that_cannot_be_the_key_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
