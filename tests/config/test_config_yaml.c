/* MindSpeed MM's job form: its keys in octet's fields, and what is wrong with one. */
#include <math.h>

#include <octet/format.h>

#include "base/count.h"
#include "job_texts.h"
#include "quant/rules.h"

#define PLANNED "training:\n  quantization_plan:\n    recipe_name: mxfp8\n"

static const char full_yaml[] =
    "model:\n"
    "  model_id: qwen3_moe\n"
    "  model_name_or_path: &weights ./ckpt/Qwen3-30B-A3B\n"
    "  trust_remote_code: true\n"
    "  attn_implementation: sdpa\n"
    "  freeze: [model.embed_tokens]\n"
    "data:\n"
    "  dataset_param:\n"
    "    dataset_type: huggingface\n"
    "    attr: {messages: messages, role_tag: role}\n"
    "    preprocess_parameters:\n"
    "      model_name_or_path: *weights\n"
    "    basic_parameters: {cutoff_len: 1024, dataset: ./data/text.jsonl, max_samples: null}\n"
    "  dataloader_param: {pin_memory: True, shuffle: yes, num_workers: 0}\n"
    "features:\n"
    "  recompute: true\n"
    "  recompute_plan:\n"
    "    apply_modules: &layers ['model.layers.{*}']\n"
    "parallel:\n"
    "  fully_shard_parallel_size: auto\n"
    "  fsdp_plan: {apply_modules: *layers, param_dtype: bf16, reduce_dtype: fp32}\n"
    "  expert_parallel_size: 2\n"
    "  ep_plan:\n"
    "    apply_modules: ['model.layers.{*}.mlp.experts']\n"
    "    dispatcher: alltoall\n"
    "training:\n"
    "  micro_batch_size: 2\n"
    "  gradient_accumulation_steps: 4\n"
    "  seed: 1234\n"
    "  lr: 1e-5\n"
    "  lr_min: 1.0e-6\n"
    "  lr_decay_style: cosine\n"
    "  lr_warmup_ratio: 0.1\n"
    "  weight_decay: 0\n"
    "  train_iters: 2000\n"
    "  clip_grad: 0.0\n"
    "  optimizer: adamw\n"
    "  save: ./save_path\n"
    "  load: *weights\n"
    "  save_interval: 500\n"
    "  plugin: [mindspeed_mm/fsdp/models/qwen3]\n"
    "  quantization_plan:\n"
    "    recipe_name: mxfp8\n"
    "    apply_modules: *layers\n"
    "    ignored_modules: ['*lm_head', '*gate']\n"
    "    quant_converters: ['quantize.linear.mx', 'quantize.moe.mx']\n"
    "    enable_fsdp_low_precision_all_gather: True\n"
    "    fsdp_low_precision_all_gather_mode: 'on-demand'\n";

static void given_a_mindspeed_job_its_keys_fill_the_fields_that_mean_the_same(void **state) {
    (void)state;
    oct_job job;
    load_yaml(full_yaml, NULL, 0, &job);
    assert_int_equal(job.form, OCT_JOB_MINDSPEED);
    assert_string_equal(job.model.name, "qwen3");
    assert_string_equal(job.model.flavor, "");
    assert_string_equal(job.model.hf_assets_path, "./ckpt/Qwen3-30B-A3B");
    assert_string_equal(job.model.freeze.items[0], "model.embed_tokens");
    assert_string_equal(job.training.dataset_path, "./data/text.jsonl");
    assert_int_equal(job.training.seq_len, 1024);
    assert_int_equal(job.activation_checkpoint.mode, OCT_JOB_RECOMPUTE_FULL);
    assert_string_equal(job.activation_checkpoint.apply_modules.items[0], "model.layers.{*}");
    assert_int_equal(job.parallelism.data_parallel_shard_degree, -1);
    assert_int_equal(job.parallelism.expert_parallel_degree, 2);
    assert_int_equal(job.parallelism.fsdp_reshard_after_forward, OCT_JOB_RESHARD_ALWAYS);
    assert_int_equal(job.training.mixed_precision_param, OCT_JOB_BFLOAT16);
    assert_int_equal(job.training.local_batch_size, 2);
    assert_int_equal(job.training.gradient_accumulation_steps, 4);
    assert_int_equal(job.debug.seed, 1234);
    assert_true(job.optimizer.lr == 1e-5);
    assert_true(job.optimizer.beta2 == 0.999 && job.optimizer.weight_decay == 0);
    assert_int_equal(job.lr_scheduler.decay_type, OCT_JOB_DECAY_COSINE);
    assert_int_equal(job.lr_scheduler.warmup_steps, 200);
    assert_true(fabs(job.lr_scheduler.min_lr_factor - 0.1) < 1e-12);
    assert_int_equal(job.training.steps, 2000);
    assert_true(isinf(job.training.max_norm));
    assert_string_equal(job.job.dump_folder, "./save_path");
    assert_true(job.checkpoint.enable);
    assert_int_equal(job.checkpoint.interval, 500);
    assert_string_equal(job.checkpoint.initial_load_path, "./ckpt/Qwen3-30B-A3B");
    assert_string_equal(job.quantization_plan.recipe_name, "mxfp8");
    assert_string_equal(job.quantization_plan.apply_modules.items[0], "model.layers.{*}");
    assert_string_equal(job.quantization_plan.ignored_modules.items[1], "*gate");
    assert_int_equal(job.quantization_plan.quant_converters.n, 2);
    assert_true(job.quantization_plan.enable_fsdp_low_precision_all_gather);
    assert_string_equal(oct_job_where(&job, "training.quantization_plan.recipe_name"),
                        "job.yaml:43");
    assert_string_equal(oct_job_where(&job, "optimizer.lr"), "job.yaml:30");
    assert_string_equal(oct_job_at(&job, "optimizer.lr"), "job.yaml:30: training.lr");
    assert_string_equal(oct_job_where(&job, "training.lr"), "job.yaml:30");
    assert_false(oct_job_is_set(&job, "optimizer.eps"));
    oct_job_free(&job);
}

static void given_a_mindspeed_job_defaults_and_command_line_of_both_forms_work(void **state) {
    (void)state;
    oct_job job;
    const char *overrides[] = {"--training.lr_warmup_ratio=0.5", "--optimizer.lr=2e-3",
                               "--training.steps=40", "--training.global_batch_size=32",
                               "--job.dump_folder=out"};
    load_yaml("training:\n  train_iters: 50\n  save: there\nparallel:\n", overrides,
              OCT_COUNT(overrides), &job);
    assert_int_equal(job.training.steps, 40);
    assert_int_equal(job.lr_scheduler.warmup_steps, 20);
    assert_true(job.optimizer.lr == 2e-3);
    assert_int_equal(job.lr_scheduler.decay_type, OCT_JOB_DECAY_CONSTANT);
    assert_int_equal(job.training.global_batch_size, 32);
    assert_int_equal(job.training.gradient_accumulation_steps, 0);
    assert_int_equal(job.training.local_batch_size, 1);
    assert_int_equal(job.activation_checkpoint.mode, OCT_JOB_RECOMPUTE_NONE);
    assert_int_equal(job.debug.seed, 42);
    assert_string_equal(job.job.dump_folder, "out");
    assert_true(job.checkpoint.enable);
    assert_null(job.quantization_plan.recipe_name);
    assert_string_equal(job.model.name, "");
    assert_string_equal(oct_job_where(&job, "optimizer.lr"), "command line");
    oct_job_free(&job);
}

static void given_the_plan_of_the_guide_it_is_read(void **state) {
    (void)state;
    oct_job job;
    load_yaml("training:\n  quantization_plan:\n    recipe_name: hif8\n"
              "    apply_modules: 'model.layers.{*}'\n",
              NULL, 0, &job);
    assert_int_equal(job.quantization_plan.apply_modules.n, 1);
    assert_string_equal(job.quantization_plan.ignored_modules.items[0], "lm_head");
    assert_string_equal(job.quantization_plan.ignored_modules.items[1], "gate");
    assert_int_equal(job.quantization_plan.fsdp_low_precision_all_gather_mode,
                     OCT_JOB_GATHER_ON_DEMAND);
    oct_job_free(&job);
}

static void given_a_plan_without_its_recipe_its_modules_do_not_matter(void **state) {
    (void)state;
    oct_job job;
    const char *overrides[] = {"--training.quantization_plan.recipe_name=none"};
    load_yaml("training:\n  quantization_plan:\n    recipe_name: mxfp8\n"
              "    apply_modules: []\n",
              overrides, 1, &job);
    assert_null(job.quantization_plan.recipe_name);
    oct_job_free(&job);
}

static void given_a_yaml_job_quantize_keys_of_the_command_line_count(void **state) {
    (void)state;
    oct_job job;
    const char *overrides[] = {"--quantize.linear.mx.recipe_name=hif8",
                               "--quantize.grouped_mm.mx.scale_mode=ceil",
                               "--quantize.grouped_mm.mx.gemm=exact",
                               "--quantize.grouped_mm.mx.no-enable_fsdp_low_precision_all_gather"};
    load_yaml(PLANNED "    fsdp_low_precision_all_gather_mode: all\nquantize: {rules: octet}\n",
              overrides, OCT_COUNT(overrides), &job);
    const oct_job_mx *linear = &job.quantize.linear.mx, *experts = &job.quantize.grouped_mm.mx;
    assert_string_equal(linear->recipe_name, "hif8");
    assert_string_equal(experts->recipe_name, "mxfp8"); /* the plan's */
    assert_int_equal(experts->scale_mode, OCT_SCALE_CEIL);
    assert_int_equal(linear->scale_mode, OCT_JOB_UNSAID);
    assert_int_equal(experts->gemm, OCT_JOB_GEMM_EXACT);
    assert_true(linear->enable_fsdp_low_precision_all_gather); /* the plan's default */
    assert_false(experts->enable_fsdp_low_precision_all_gather);
    assert_int_equal(linear->fsdp_low_precision_all_gather_mode, OCT_JOB_GATHER_ALL);
    assert_int_equal(experts->fsdp_low_precision_all_gather_mode, OCT_JOB_GATHER_ALL);
    assert_string_equal(oct_job_rules(&job)->name, "octet");
    assert_string_equal(oct_job_at(&job, "quantize.grouped_mm.mx.recipe_name"),
                        "job.yaml:3: training.quantization_plan.recipe_name");
    assert_string_equal(oct_job_at(&job, "quantize.linear.mx.recipe_name"),
                        "command line: --quantize.linear.mx.recipe_name");
    oct_job_free(&job);
}

static void given_a_jobs_form_its_framework_is_another(void **state) {
    (void)state;
    static const struct {
        const char *path, *override, *rules, *second_filter;
    } cases[] = {{"job.toml", "--quantize.rules=framework", "torchtitan-npu@0.2.2", NULL},
                 {"job.yaml", "--quantize.rules=framework", "mindspeed@2026-07", NULL},
                 {"job.toml", "--quantize.rules=octet", "octet", "router.gate"},
                 {"job.toml", "--quantize.rules=torchtitan@0.2.2", "torchtitan@0.2.2", NULL}};
    put_text("job.toml", "");
    put_text("job.yaml", PLANNED);
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        oct_job job;
        oct_error err = {0};
        assert_int_equal(oct_job_load(cases[i].path, &cases[i].override, 1, &job, &err), OCT_OK);
        assert_string_equal(oct_job_rules(&job)->name, cases[i].rules);
        const oct_job_list *filter = &job.quantize.linear.mx.filter_fqns;
        assert_int_equal(filter->n, cases[i].second_filter ? 2 : 1);
        assert_string_equal(filter->items[0], "output");
        if (cases[i].second_filter)
            assert_string_equal(filter->items[1], cases[i].second_filter);
        oct_job_free(&job);
    }
}

static void given_a_wrong_yaml_job_one_line_says_where_what_and_expected(void **state) {
    (void)state;
    static const wrong_job jobs[] = {
        {"training:\n  train_iter: 1\n", NULL,
         "job.yaml:2: training.train_iter: unknown key; the nearest known one is "
         "training.train_iters"},
        {"training:\n  '': 1\n", NULL,
         "job.yaml:2: training: a key in it is empty; expected a name"},
        {"training:\n  lr: 1\n  : 1\n", NULL,
         "job.yaml:3: training: a key in it is empty; expected a name"},
        {"model:\n\n'':\n  lr: 1\n", NULL, "job.yaml:3: a key is empty; expected a name"},
        {"model:\n\n: 1\n", NULL, "job.yaml:3: a key is empty; expected a name"},
        {"training:\n  quantization_plan:\n    recipe_name: mxfp8\n    apply_modules: []\n", NULL,
         "job.yaml:4: training.quantization_plan.apply_modules: the list is empty; expected at "
         "least one pattern, such as model.layers.{*}; got []"},
        {"training:\n  adam_eps: 0.0\n", NULL,
         "job.yaml:2: training.adam_eps: the value is impossible; expected a number of at least "
         "1.2e-38; got 0.0"},
        {"training:\n  lr: fast\n", NULL,
         "job.yaml:2: training.lr: the type is wrong; expected a number of at least 0; got "
         "\"fast\""},
        {"training:\n  optimizer: muon\n", NULL,
         "job.yaml:2: training.optimizer: Muon isn't supported; expected one of adamw, adam, "
         "adamw_swap; got \"muon\""},
        {"training:\n  quantization_plan:\n    apply_modules: [a]\n", NULL,
         "job.yaml: training.quantization_plan.recipe_name: the key is missing; expected a recipe "
         "such as mxfp8"},
        {"training:\n  quantization_plan:\n    recipe_name: mxfp8\n    quant_converters: [x]\n",
         NULL,
         "job.yaml:4: training.quantization_plan.quant_converters: an unknown converter; expected "
         "quantize.linear.mx or quantize.moe.mx; got x"},
        {"training:\n  lora:\n    enable: true\n", NULL,
         "job.yaml:3: training.lora.enable: LoRA isn't supported; expected false; got true"},
        {"parallel:\n  ulysses_parallel_size: 2\n", NULL,
         "job.yaml:2: parallel.ulysses_parallel_size: context parallelism isn't supported; "
         "expected 1; got 2"},
        {"parallel:\n  fully_shard_parallel_size: most\n", NULL,
         "job.yaml:2: parallel.fully_shard_parallel_size: the value is impossible; expected auto "
         "or an integer of at least 1; got \"most\""},
        {"model:\n  model_id: qwen3_5\n", NULL,
         "job.yaml:2: model.model_id: the model isn't supported; expected one of qwen3, qwen3_moe, "
         "llama, llama3, deepseek_v3; got \"qwen3_5\""},
        {"model:\n  mtp_num_layers: 1\n", NULL,
         "job.yaml:2: model.mtp_num_layers: multi-token prediction isn't supported; expected 0; "
         "got 1"},
        {"training:\n  lr: 1.0e-5\n  lr_min: 1.0e-4\n", NULL,
         "job.yaml:3: training.lr_min: it is above training.lr; expected at most training.lr; got "
         "0.0001"},
        {"features:\n  recompute: 3\n", NULL,
         "job.yaml:2: features.recompute: the type is wrong; expected true or false; got 3"},
        {"", "--features.recompute=3",
         "command line: --features.recompute: the type is wrong; expected true or false; got "
         "\"3\""},
        {"", "--parallel.fully_shard_parallel_size=0",
         "command line: --parallel.fully_shard_parallel_size: the value is impossible; expected "
         "auto or an integer of at least 1; got 0"},
        {"", "--features.recompute_plan=[a",
         "command line: --features.recompute_plan: not valid YAML: flow sequence without a closing "
         "bracket; expected a value as a YAML file has it; got \"[a\""},
        {PLANNED, "--training.quantization_plan.recipe_name=",
         "command line: --training.quantization_plan.recipe_name: the value is empty; expected a "
         "path or a name, or none; got \"\""},
        {PLANNED, "--model.converters=quantize.linear.mx",
         "command line: --model.converters: a YAML job names what it quantizes in its plan; "
         "expected --training.quantization_plan.quant_converters; got a list"},
        {PLANNED, "--quantize.linear.mx.filter_fqns=output",
         "command line: --quantize.linear.mx.filter_fqns: a YAML job names modules by patterns of "
         "its own; expected --training.quantization_plan.ignored_modules; got a list"},
        {PLANNED, "--quantize.grouped_mm.mx.fqns=experts",
         "command line: --quantize.grouped_mm.mx.fqns: a YAML job names modules by patterns of "
         "its own; expected --training.quantization_plan.apply_modules; got a list"},
        {"", "--quantize.linear.mx.scale_mode=ceil",
         "command line: --quantize.linear.mx.scale_mode: the job has no plan; expected a "
         "recipe in --training.quantization_plan.recipe_name beside it; got \"ceil\""},
        {PLANNED "    quant_converters: ['quantize.linear.mx']\n",
         "--quantize.grouped_mm.mx.recipe_name=hif8",
         "command line: --quantize.grouped_mm.mx.recipe_name: the plan doesn't have its converter; "
         "expected quantize.moe.mx in training.quantization_plan.quant_converters"},
        {"quantize:\n  rules: mindspeed\n", NULL,
         "job.yaml:2: quantize.rules: the word is unknown; expected one of framework, octet, "
         "torchtitan-npu@0.2.2, mindspeed@2026-07, torchtitan@0.2.2; got \"mindspeed\""},
        {"data:\n  dataset_param:\n    attr: {messages: messages}\n"
         "    basic_parameters:\n      template: qwen3\n",
         NULL,
         "job.yaml:5: data.dataset_param.basic_parameters.template: it decides the loss of chat "
         "data, which isn't supported; expected plain text; got columns of roles: "
         "data.dataset_param.attr.messages"},
        {"data:\n  val_dataset_param:\n    attr: {prompt: question}\n"
         "    basic_parameters:\n      train_on_prompt: true\n",
         NULL,
         "job.yaml:5: data.val_dataset_param.basic_parameters.train_on_prompt: it decides the loss "
         "of chat data, which isn't supported; expected plain text; got columns of roles: "
         "data.val_dataset_param.attr.prompt"},
        {"- a\n", NULL, "job.yaml:1: expected a table of keys; got a list"},
        {"%YAML 9.9\n---\na: 1\n", NULL, "job.yaml: not valid YAML; expected YAML 1.1 to 1.3"},
    };
    for (size_t i = 0; i < OCT_COUNT(jobs); i++)
        expect_error("job.yaml", jobs[i].text, jobs[i].override, jobs[i].message);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_a_yaml_job_quantize_keys_of_the_command_line_count),
        cmocka_unit_test(given_a_jobs_form_its_framework_is_another),
        cmocka_unit_test(given_a_mindspeed_job_its_keys_fill_the_fields_that_mean_the_same),
        cmocka_unit_test(given_a_mindspeed_job_defaults_and_command_line_of_both_forms_work),
        cmocka_unit_test(given_the_plan_of_the_guide_it_is_read),
        cmocka_unit_test(given_a_plan_without_its_recipe_its_modules_do_not_matter),
        cmocka_unit_test(given_a_wrong_yaml_job_one_line_says_where_what_and_expected),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
