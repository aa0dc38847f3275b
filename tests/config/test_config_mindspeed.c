/* MindSpeed MM's jobs: its own keys, its plans, and values that would change the result. */
#include <math.h>

#include "base/count.h"
#include "job_texts.h"

/* Every key that MindSpeed MM's dataclasses have and the other tests don't show. */
static const char mm_keys[] =
    "data:\n"
    "  dataset_param:\n"
    "    basic_parameters: &basic\n"
    "      dataset: train.jsonl\n"
    "      cutoff_len: 64\n"
    "      chat_template: null\n"
    "      tool_format: null\n"
    "      max_samples: null\n"
    "      val_max_samples: null\n"
    "      val_rate: null\n"
    "      preprocess_on_fly: true\n"
    "      neat_packing: false\n"
    "      async_preprocess: true\n"
    "      async_preprocess_buffer_size: 8\n"
    "      stage: pretrain\n"
    "  val_dataset_param:\n"
    "    dataset_type: huggingface\n"
    "    attr: {messages: messages, role_tag: role}\n"
    "    preprocess_parameters: {model_name_or_path: ./ckpt, image_max_pixels: 262144}\n"
    "    basic_parameters:\n"
    "      <<: *basic\n"
    "      dataset: held.jsonl\n"
    "      cutoff_len: 32\n"
    "  dataloader_param: {enable_preload: true}\n"
    "model:\n"
    "  model_id: qwen3\n"
    "  skip_flash_attn_recompute: true\n"
    "  enable_chunk_loss: true\n"
    "  chunkloss_plan: {apply_module: lm_head, chunk_size: 1024}\n"
    "features:\n"
    "  swap_plan: {capacity_mb: 0, eviction_policy: belady}\n"
    "  recompute: true\n"
    "  recompute_plan: {apply_modules: ['model.layers.{0-20,22-40}'], op_replay_scopes: []}\n"
    "parallel:\n"
    "  context_parallel_size: 1\n"
    "  pregather: true\n"
    "  fsdp_plan: {sub_modules_to_wrap: ['model.layers.{0-20,22-40}']}\n"
    "training:\n"
    "  load: ./ckpt/dcp\n"
    "  load_format: dcp\n"
    "  save: ./save\n"
    "  save_format: dcp\n"
    "  val_interval: 25\n"
    "  micro_batch_size: 4\n"
    "  val_micro_batch_size: 2\n"
    "  manual_gc_interval: 10\n"
    "  optimizer: adamw_swap\n"
    "  mem_fraction_static: 0.5\n"
    "  save_ckpt_dtype: fp32\n"
    "  no_save_rng: true\n"
    "  quantization_plan: {recipe_name: mxfp8, extra_args: {}}\n";

static void given_mindspeed_mms_own_keys_each_has_its_meaning(void **state) {
    (void)state;
    oct_job job;
    load_form_good(OCT_JOB_MINDSPEED, mm_keys, &job);
    assert_string_equal(job.training.dataset_path, "train.jsonl");
    assert_int_equal(job.training.seq_len, 64);
    assert_true(job.validation.enable);
    assert_string_equal(job.validation.dataset_path, "held.jsonl");
    assert_int_equal(job.validation.seq_len, 32);
    assert_int_equal(job.validation.freq, 25);
    assert_int_equal(job.validation.local_batch_size, 2);
    assert_int_equal(job.validation.steps, -1);
    assert_int_equal(job.optimizer.name, OCT_JOB_ADAMW);
    assert_false(job.checkpoint.initial_load_in_hf);
    assert_true(job.checkpoint.enable);
    assert_int_equal(job.activation_checkpoint.apply_modules.n, 1);
    assert_string_equal(job.activation_checkpoint.apply_modules.items[0],
                        "model.layers.{0-20,22-40}");
    oct_job_free(&job);
}

static void given_mindspeed_mms_validation_it_is_as_there(void **state) {
    (void)state;
    oct_job job;
    oct_error err;
#define TRAIN_DATA "data:\n  dataset_param:\n    basic_parameters: {dataset: a.txt, cutoff_len: 48"
    load_form_good(OCT_JOB_MINDSPEED,
                   TRAIN_DATA
                   ", val_dataset: b.txt}\ntraining: {val_interval: 5, micro_batch_size: 3}\n",
                   &job);
    assert_true(job.validation.enable);
    assert_string_equal(job.validation.dataset_path, "b.txt");
    assert_int_equal(job.validation.seq_len, 48);
    assert_int_equal(job.validation.local_batch_size, 3);
    oct_job_free(&job);
    load_form_good(OCT_JOB_MINDSPEED, TRAIN_DATA ", val_dataset: b.txt}\n", &job);
    assert_false(job.validation.enable); /* val_interval is 0 */
    oct_job_free(&job);
    load_form_good(OCT_JOB_MINDSPEED,
                   TRAIN_DATA "}\n  val_dataset_param: {basic_parameters: {dataset: b.txt}}\n"
                              "training: {val_interval: 5}\n",
                   &job);
    assert_int_equal(job.validation.seq_len, 1024); /* the dataclass's default */
    oct_job_free(&job);
    assert_int_equal(load_form(OCT_JOB_MINDSPEED, TRAIN_DATA "}\ntraining: {val_interval: 5}\n",
                               NULL, &job, &err),
                     OCT_INVALID);
    assert_string_equal(err.message,
                        "job.yaml:4: training.val_interval: there is no data to validate on; "
                        "expected data.val_dataset_param.basic_parameters.dataset, or 0; got 5");
    oct_job_free(&job);
}

static void given_a_mindspeed_value_that_would_change_the_result_it_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } jobs[] = {
        {"data: {dataset_param: {basic_parameters: {max_samples: 10000}}}\n",
         "job.yaml:1: data.dataset_param.basic_parameters.max_samples: a data set is read whole; "
         "expected none; got 10000"},
        {"data: {dataset_param: {basic_parameters: {val_rate: 0.1}}}\n",
         "job.yaml:1: data.dataset_param.basic_parameters.val_rate: validation has a data set of "
         "its own; expected 0.0; got 0.1"},
        {"data: {dataset_param: {basic_parameters: {neat_packing: true}}}\n",
         "job.yaml:1: data.dataset_param.basic_parameters.neat_packing: tokens attend to all "
         "before them in a sequence; expected false; got true"},
        {"data: {dataset_param: {basic_parameters: {stage: rm}}}\n",
         "job.yaml:1: data.dataset_param.basic_parameters.stage: other stages, such as that of "
         "reward models, aren't supported; "
         "expected one of sft, pretrain; got \"rm\""},
        {"data: {dataset_param: {basic_parameters: {packing: false}}}\n",
         "job.yaml:1: data.dataset_param.basic_parameters.packing: texts are always packed into "
         "whole sequences; expected true; got false"},
        {"data: {dataloader_param: {shuffle: false}}\n",
         "job.yaml:1: data.dataloader_param.shuffle: sequences are always shuffled, by the seed; "
         "expected true; got false"},
        {"data: {dataloader_param: {drop_last: false}}\n",
         "job.yaml:1: data.dataloader_param.drop_last: a short last batch is always dropped; "
         "expected true; got false"},
        {"model: {attn_implementation: native-sparse}\n",
         "job.yaml:1: model.attn_implementation: these are the same exact attention; others aren't "
         "supported; expected one of eager, sdpa, flash_attention_2, flash_attention_3; got "
         "\"native-sparse\""},
        {"features: {loss_cfg: {loss_type: custom}}\n",
         "job.yaml:1: features.loss_cfg.loss_type: the loss is the mean over tokens, which these "
         "give for full sequences; expected one of raw, default, per_sample_loss, "
         "per_token_loss; got \"custom\""},
        {"parallel: {context_parallel_size: 2}\n",
         "job.yaml:1: parallel.context_parallel_size: context parallelism isn't supported; "
         "expected 1; got 2"},
        {"training: {save: here, save_format: hf}\n",
         "job.yaml:1: training.save_format: a run saves checkpoints of its own form; expected auto "
         "or dcp; got \"hf\""},
        {"training: {save: here, save_ckpt_dtype: bf16}\n",
         "job.yaml:1: training.save_ckpt_dtype: a checkpoint holds the fp32 masters; expected "
         "fp32; got \"bf16\""},
        {"training: {quantization_plan: {recipe_name: mxfp8, extra_args: {a: 1}}}\n",
         "job.yaml:1: training.quantization_plan.extra_args: nothing reads them; expected none; "
         "got a table"},
    };
    for (size_t i = 0; i < OCT_COUNT(jobs); i++) {
        oct_job job;
        oct_error err;
        assert_int_equal(load_form(OCT_JOB_MINDSPEED, jobs[i].text, NULL, &job, &err), OCT_INVALID);
        assert_string_equal(err.message, jobs[i].message);
        assert_null(job.others);
        oct_job_free(&job);
    }
    oct_job job;
    load_form_good(OCT_JOB_MINDSPEED, "training: {save_format: hf, save_ckpt_dtype: bf16}\n", &job);
    oct_job_free(&job);
}

typedef struct plan_case {
    const char *text, *recipe;
    size_t n_converters;
    const char *ignored;
} plan_case;

static void given_a_plan_in_any_spelling_it_is_the_same_plan(void **state) {
    (void)state;
#define NEWER                                                                                      \
    "training:\n  quantization_plan:\n    quant_recipe: mxfp8\n    block_size: 32\n"               \
    "    quant_apply_modules: ['model.layers.{*}']\n"                                              \
    "    quant_ignored_modules: ['*lm_head', '*gate']\n"
#define LLM "model:\n  quant_recipe_name: mxfp8\n  quant_block_size: 32\n"
    static const plan_case cases[] = {
        {"training:\n  quantization_plan: {recipe_name: mxfp8}\n", "mxfp8", 2, "lm_head"},
        {NEWER "    quant_format: e4m3\n    converters: [quantize.linear.mx, quantize.moe.mx]\n",
         "mxfp8", 2, "*lm_head"},
        {NEWER "    converters: [quantize.linear.mx]\n    quant_gmm: true\n", "mxfp8", 2,
         "*lm_head"},
        {NEWER "    converters: [quantize.linear.mx]\n    quant_gmm: false\n", "mxfp8", 1,
         "*lm_head"},
        {NEWER "    quant_format: HYBRID\n", "dynamic_mx-1-1-32_E4M3_E4M3_E5M2", 2, "*lm_head"},
        {LLM "  quant_format: E4M3\n", "mxfp8", 1, "*lm_head"},
        {LLM "  quant_format: E5M2\n", "dynamic_mx-1-1-32_E5M2_E5M2_E5M2", 1, "*lm_head"},
        {LLM "  quant_converters: [quantize.linear.mx, quantize.moe.mx]\n", "mxfp8", 2, "*lm_head"},
        {LLM "  quant_ignored_modules: ['*o_proj']\n", "mxfp8", 1, "*o_proj"},
        {"model:\n  quant_recipe_name: hif8\n  quant_format: HIF8\n", "hif8", 1, "*lm_head"},
    };
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        oct_job job;
        load_form_good(OCT_JOB_MINDSPEED, cases[i].text, &job);
        assert_string_equal(job.quantization_plan.recipe_name, cases[i].recipe);
        assert_int_equal(job.quantization_plan.quant_converters.n, cases[i].n_converters);
        assert_string_equal(job.quantization_plan.quant_converters.items[0], "quantize.linear.mx");
        assert_string_equal(job.quantization_plan.apply_modules.items[0], "model.layers.{*}");
        assert_string_equal(job.quantization_plan.ignored_modules.items[0], cases[i].ignored);
        oct_job_free(&job);
    }
    oct_job job;
    load_form_good(OCT_JOB_MINDSPEED, NEWER, &job);
    assert_string_equal(oct_job_at(&job, "training.quantization_plan.recipe_name"),
                        "job.yaml:3: training.quantization_plan.quant_recipe");
    oct_job_free(&job);
}

static void given_a_plan_that_cannot_be_its_own_word_is_named(void **state) {
    (void)state;
    static const struct {
        const char *text, *override, *message;
    } jobs[] = {
        {LLM "  quant_format: HIF8\n", NULL,
         "job.yaml:4: model.quant_format: HiF8 is for one scale a tensor, and the recipe is for "
         "blocks; expected the recipe hif8 instead; got \"HIF8\""},
        {LLM "  quant_format: E3M4\n", NULL,
         "job.yaml:4: model.quant_format: the format is unknown; expected one of E4M3, E5M2, "
         "HYBRID, HIF8; got \"E3M4\""},
        {"model:\n  quant_recipe_name: hif8\n  quant_format: E4M3\n", NULL,
         "job.yaml:3: model.quant_format: the recipe has other formats; expected no format beside "
         "such a recipe; got \"E4M3\""},
        {"model:\n  quant_recipe_name: mxfp8\n  quant_block_size: 64\n", NULL,
         "job.yaml:3: model.quant_block_size: a block has 32 elements; expected 32; got 64"},
        {NEWER "    recipe_name: hif8\n", NULL,
         "job.yaml:3: training.quantization_plan.quant_recipe: it is given as "
         "training.quantization_plan.recipe_name too; expected one of them"},
        {"model:\n  quant_recipe_name: mxfp8\n" NEWER, NULL,
         "job.yaml:5: training.quantization_plan.quant_recipe: it is given as "
         "model.quant_recipe_name too; expected one of them"},
        {NEWER "    converters: [quantize.linear.my]\n", NULL,
         "job.yaml:7: training.quantization_plan.converters: an unknown converter; expected "
         "quantize.linear.mx or quantize.moe.mx; got quantize.linear.my"},
        {NEWER "    converters: 3\n", NULL,
         "job.yaml:7: training.quantization_plan.converters: the type is wrong; expected a list of "
         "texts; got 3"},
    };
    for (size_t i = 0; i < OCT_COUNT(jobs); i++) {
        oct_job job;
        oct_error err;
        assert_int_equal(load_form(OCT_JOB_MINDSPEED, jobs[i].text, jobs[i].override, &job, &err),
                         OCT_INVALID);
        assert_string_equal(err.message, jobs[i].message);
        assert_null(job.others);
        oct_job_free(&job);
    }
}

static void given_another_spelling_on_the_command_line_it_wins(void **state) {
    (void)state;
    oct_job job;
    const char *overrides[] = {"--training.quantization_plan.recipe_name=hif8",
                               "--training.quantization_plan.apply_modules=a.{0-2,4},b",
                               "--features.recompute_plan.apply_modules=c"};
    oct_error err = {0};
    put_text("job.yaml", NEWER "features:\n  recompute_plan: [x, y]\n");
    if (oct_job_load("job.yaml", overrides, OCT_COUNT(overrides), &job, &err))
        fail_msg("%s", err.message);
    assert_string_equal(job.quantization_plan.recipe_name, "hif8");
    assert_int_equal(job.quantization_plan.apply_modules.n, 2);
    assert_string_equal(job.quantization_plan.apply_modules.items[0], "a.{0-2,4}");
    assert_int_equal(job.activation_checkpoint.apply_modules.n, 1);
    assert_string_equal(job.activation_checkpoint.apply_modules.items[0], "c");
    oct_job_free(&job);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_mindspeed_mms_own_keys_each_has_its_meaning),
        cmocka_unit_test(given_mindspeed_mms_validation_it_is_as_there),
        cmocka_unit_test(given_a_mindspeed_value_that_would_change_the_result_it_is_refused),
        cmocka_unit_test(given_a_plan_in_any_spelling_it_is_the_same_plan),
        cmocka_unit_test(given_a_plan_that_cannot_be_its_own_word_is_named),
        cmocka_unit_test(given_another_spelling_on_the_command_line_it_wins),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
