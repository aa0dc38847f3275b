/* Jobs: what a user writes, what the loader makes of it, and what it says when it can't. */
#include <math.h>

#include "base/count.h"
#include "base/log.h"
#include "config/schema.h"
#include "job_texts.h"

static void given_an_empty_file_the_defaults_are_those_of_torchtitan(void **state) {
    (void)state;
    oct_job job;
    load_toml("", NULL, 0, &job);
    assert_string_equal(job.job.dump_folder, "./outputs");
    assert_string_equal(job.model.name, "llama3");
    assert_string_equal(job.model.flavor, "debugmodel");
    assert_null(job.model.tokenizer_path);
    assert_null(job.model.args);
    assert_int_equal(job.model.converters.n, 0);
    assert_int_equal(job.optimizer.name, OCT_JOB_ADAMW);
    assert_true(job.optimizer.lr == 8e-4);
    assert_true(job.optimizer.beta1 == 0.9 && job.optimizer.beta2 == 0.95);
    assert_true(job.optimizer.eps == 1e-8 && job.optimizer.weight_decay == 0.1);
    assert_int_equal(job.lr_scheduler.warmup_steps, 200);
    assert_int_equal(job.lr_scheduler.total_steps, -1);
    assert_true(job.lr_scheduler.decay_ratio == -1);
    assert_int_equal(job.lr_scheduler.decay_type, OCT_JOB_DECAY_LINEAR);
    assert_true(job.lr_scheduler.min_lr_factor == 0);
    assert_string_equal(job.training.dataset, "c4_test");
    assert_null(job.training.dataset_path);
    assert_int_equal(job.training.local_batch_size, 8);
    assert_int_equal(job.training.global_batch_size, -1);
    assert_int_equal(job.training.seq_len, 2048);
    assert_true(job.training.max_norm == 1.0);
    assert_int_equal(job.training.steps, 10000);
    assert_int_equal(job.training.mixed_precision_param, OCT_JOB_BFLOAT16);
    assert_int_equal(job.parallelism.data_parallel_shard_degree, -1);
    assert_int_equal(job.checkpoint.interval, 500);
    assert_int_equal(job.checkpoint.keep_latest_k, 10);
    assert_int_equal(job.checkpoint.load_step, -1);
    assert_true(job.checkpoint.last_save_model_only);
    assert_int_equal(job.checkpoint.export_dtype, OCT_JOB_FLOAT32);
    assert_int_equal(job.activation_checkpoint.mode, OCT_JOB_RECOMPUTE_SELECTIVE);
    assert_string_equal(job.activation_checkpoint.selective_ac_option, "2");
    assert_string_equal(job.validation.dataset, "c4_validation");
    assert_int_equal(job.validation.freq, 10);
    assert_int_equal(job.validation.steps, -1);
    assert_int_equal(job.debug.seed, -1);
    assert_string_equal(job.quantize.linear.mx.recipe_name, "mxfp8");
    assert_string_equal(job.quantize.rules, "framework");
    assert_int_equal(job.quantize.linear.mx.filter_fqns.n, 1);
    assert_string_equal(job.quantize.linear.mx.filter_fqns.items[0], "output");
    assert_int_equal(job.quantize.grouped_mm.mx.fqns.n, 0);
    assert_int_equal(job.quantize.grouped_mm.mx.scale_mode, OCT_JOB_UNSAID);
    assert_int_equal(job.quantize.grouped_mm.mx.groups, OCT_JOB_UNSAID);
    assert_int_equal(job.quantize.linear.mx.amax_history_len, 16);
    assert_null(job.quantization_plan.recipe_name);
    assert_string_equal(oct_job_where(&job, "training.seq_len"), "default");
    assert_false(oct_job_is_set(&job, "training.seq_len"));
    oct_job_free(&job);
}

static void given_file_and_command_line_the_latter_wins_and_places_are_kept(void **state) {
    (void)state;
    oct_job job;
    const char *overrides[] = {"--training.steps=7",
                               "--optimizer.lr",
                               "1e-4",
                               "--metrics.enable-tensorboard",
                               "--checkpoint.no-last_save_model_only",
                               "--model.converters=quantize.linear.mx",
                               "--quantize.linear.mx.filter_fqns=wq, wk,output",
                               "--validation.steps",
                               "-1",
                               "--model.args.n_layers=4",
                               "--debug.moe_force_load_balance",
                               "True"};
    load_toml("# a job\n[training]\nsteps = 100\nseq_len = 128\n\n"
              "[quantize.linear.mx]\nrecipe_name = \"hif8\"\n"
              "[model.args]\ndim = 64\nn_layers = 2\nrope_theta = 1e4\n",
              overrides, OCT_COUNT(overrides), &job);
    assert_int_equal(job.training.steps, 7);
    assert_int_equal(job.training.seq_len, 128);
    assert_true(job.optimizer.lr == 1e-4);
    assert_true(job.metrics.enable_tensorboard);
    assert_false(job.checkpoint.last_save_model_only);
    assert_true(job.debug.moe_force_load_balance);
    assert_int_equal(job.quantize.linear.mx.filter_fqns.n, 3);
    assert_string_equal(job.quantize.linear.mx.filter_fqns.items[1], "wk");
    assert_int_equal(job.model.args->items.n, 3);
    assert_int_equal(oct_value_find(job.model.args, "n_layers")->integer, 4);
    assert_int_equal(oct_value_find(job.model.args, "dim")->integer, 64);
    assert_true(oct_value_find(job.model.args, "rope_theta")->number == 1e4);
    assert_string_equal(oct_job_where(&job, "training.steps"), "command line");
    assert_string_equal(oct_job_where(&job, "training.seq_len"), "job.toml:4");
    assert_string_equal(oct_job_where(&job, "quantize.linear.mx.recipe_name"), "job.toml:7");
    assert_string_equal(oct_job_where(&job, "model.args.dim"), "job.toml:9");
    assert_string_equal(oct_job_where(&job, "model.args.n_layers"), "command line");
    assert_string_equal(oct_job_where(&job, "optimizer.eps"), "default");
    assert_true(oct_job_is_set(&job, "quantize.linear.mx.filter_fqns"));
    assert_false(oct_job_is_set(&job, "quantize.grouped_mm.mx.fqns"));
    oct_job_free(&job);
}

typedef struct wrong_files {
    const char *overrides[3];
    int n;
    const char *message;
} wrong_files;

static void given_the_file_on_the_command_line_it_is_loaded(void **state) {
    (void)state;
    oct_job job;
    oct_error err = {0};
    const char *overrides[] = {"--job.config_file", "job.toml", "--training.steps=3"};
    put_text("job.toml", "[training]\nseq_len = 16\n");
    assert_int_equal(oct_job_load(NULL, overrides, 3, &job, &err), OCT_OK);
    assert_int_equal(job.training.seq_len, 16);
    assert_int_equal(job.training.steps, 3);
    assert_string_equal(job.path, "job.toml");
    oct_job_free(&job);
    assert_int_equal(oct_job_load("job.toml", overrides, 3, &job, &err), OCT_INVALID);
    assert_string_equal(err.message,
                        "command line: --job.config_file: two job files; expected one; "
                        "got job.toml and job.toml");
    static const wrong_files wrong[] = {
        {{"--job.config_file"}, 1, "--job.config_file: the value is missing; expected a .toml"},
        {{"--training.steps=3", "--job.config-file"}, 2, "--job.config-file: the value is missing"},
        {{"--job.config_file", "--training.steps=3"}, 2, "the value is missing"},
        {{"--job.config_file=job.toml", "--job.config_file", "b"}, 3, "got job.toml and b"},
    };
    for (size_t i = 0; i < OCT_COUNT(wrong); i++) {
        for (int named = 0; named < 2; named++) {
            err = (oct_error){0};
            assert_int_equal(
                oct_job_load(named ? "job.toml" : NULL, wrong[i].overrides, wrong[i].n, &job, &err),
                OCT_INVALID);
            assert_non_null(strstr(err.message, wrong[i].message));
        }
    }
    err = (oct_error){0};
    assert_int_equal(oct_job_load(NULL, NULL, 0, &job, &err), OCT_INVALID);
    assert_string_equal(err.message, "command line: no job file; expected a .toml or .yaml file");
    err = (oct_error){0};
    assert_int_equal(oct_job_load("missing.toml", NULL, 0, &job, &err), OCT_INVALID);
    assert_string_equal(err.message, "missing.toml: can't be read: No such file or directory");
}

#define TEN "1234567890"
#define DEEP SIXTEEN SIXTEEN SIXTEEN SIXTEEN "[" /* 65 levels */
#define SIXTEEN "[[[[[[[[[[[[[[[["
#define LONG TEN TEN TEN TEN TEN TEN TEN TEN "123456789" /* 89 characters */

static void given_a_wrong_toml_job_one_line_says_where_what_and_expected(void **state) {
    (void)state;
    static const wrong_job jobs[] = {
        {"[training]\nseqlen = 1\n", NULL,
         "job.toml:2: training.seqlen: unknown key; the nearest known one is training.seq_len"},
        {"[training]\nmoe_force_load_balance = true\n", NULL,
         "job.toml:2: training.moe_force_load_balance: unknown key; the nearest known one is "
         "debug.moe_force_load_balance"},
        {"\n[trainning]\nsteps = 1\n", NULL,
         "job.toml:2: trainning: unknown section; the nearest known one is training"},
        {"[quantize.liner.mx]\n", NULL,
         "job.toml:1: quantize.liner: unknown section; the nearest known one is quantize.linear"},
        {"[zzzzzz]\n", NULL,
         "job.toml:1: zzzzzz: unknown section, and no section of a torchtitan job is in the file; "
         "expected job, model, training, optimizer, ..."},
        {"[zzzzzz]\n[training]\n", NULL,
         "job.toml:1: zzzzzz: unknown section; `octet train --help-all` lists the known ones"},
        {"training = 3\n", NULL,
         "job.toml:1: training: a section isn't a value; expected a table of keys; got 3"},
        {"[training]\nsteps = \"ten\"\n", NULL,
         "job.toml:2: training.steps: the type is wrong; expected an integer of at least 1; got "
         "\"ten\""},
        {"[training]\nsteps = 1e3\n", NULL,
         "job.toml:2: training.steps: the type is wrong; expected an integer of at least 1; got "
         "1e+03"},
        {"[training]\nsteps = 0\n", NULL,
         "job.toml:2: training.steps: the value is impossible; expected an integer of at least 1; "
         "got 0"},
        {"[training]\nseq_len = 0\n", NULL,
         "job.toml:2: training.seq_len: the value is impossible; expected an integer of at least "
         "1; got 0"},
        {"[training]\nseq_len = 9223372036854775807\n", NULL,
         "job.toml:2: training.seq_len: the value is impossible; expected an integer of at most "
         "2147483647; got 9223372036854775807"},
        {"[checkpoint]\nkeep_latest_k = 2147483648\n", NULL,
         "job.toml:2: checkpoint.keep_latest_k: the value is impossible; expected an integer of at "
         "most 2147483647; got 2147483648"},
        {"", "--parallelism.data_parallel_shard_degree=4611686018427387904",
         "command line: --parallelism.data_parallel_shard_degree: the value is impossible; "
         "expected an integer of at most 2147483647; got 4611686018427387904"},
        {"[training]\nglobal_batch_size = 0\n", NULL,
         "job.toml:2: training.global_batch_size: the value is impossible; expected an integer of "
         "at least 1, or -1; got 0"},
        {"[training]\nmax_norm = 0\n", NULL,
         "job.toml:2: training.max_norm: the value is impossible; expected a number above 0; got "
         "0"},
        {"[optimizer]\nlr = -1e-3\n", NULL,
         "job.toml:2: optimizer.lr: the value is impossible; expected a number of at least 0; got "
         "-0.001"},
        {"[optimizer]\nlr = nan\n", NULL,
         "job.toml:2: optimizer.lr: the value is impossible; expected a number of at least 0; got "
         "nan"},
        {"[optimizer]\nbeta2 = 1\n", NULL,
         "job.toml:2: optimizer.beta2: the value is impossible; expected a number from 0 to below "
         "1; got 1"},
        {"[checkpoint]\nenable = true\n", "--checkpoint.export_dtype=float16",
         "command line: --checkpoint.export_dtype: a checkpoint isn't saved in float16; expected "
         "float32 or bfloat16, or checkpoint.last_save_in_hf = true beside it; got \"float16\""},
        {"[optimizer]\nname = \"Muon\"\n", NULL,
         "job.toml:2: optimizer.name: Muon isn't supported; expected one of AdamW, Adam; got "
         "\"Muon\""},
        {"[lr_scheduler]\ndecay_ratio = 1.5\n", NULL,
         "job.toml:2: lr_scheduler.decay_ratio: the value is impossible; expected a number from 0 "
         "to 1; got 1.5"},
        {"[lr_scheduler]\nwarmup_steps = -1\n", NULL,
         "job.toml:2: lr_scheduler.warmup_steps: the value is impossible; expected an integer of "
         "at least 0; got -1"},
        {"[parallelism]\ntensor_parallel_degree = 2\n", NULL,
         "job.toml:2: parallelism.tensor_parallel_degree: tensor parallelism isn't supported; "
         "expected 1; got 2"},
        {"[parallelism]\npipeline_parallel_degree = 4\n", NULL,
         "job.toml:2: parallelism.pipeline_parallel_degree: pipeline parallelism isn't supported; "
         "expected 1; got 4"},
        {"", "--parallelism.context_parallel_degree=2",
         "command line: --parallelism.context_parallel_degree: context parallelism isn't "
         "supported; "
         "expected 1; got 2"},
        {"[training]\nnum_mtp_modules = 1\n", NULL,
         "job.toml:2: training.num_mtp_modules: multi-token prediction isn't supported; expected "
         "0; got 1"},
        {"[training]\ndtype = \"bfloat16\"\n", NULL,
         "job.toml:2: training.dtype: master weights and optimizer states are float32; expected "
         "float32; got \"bfloat16\""},
        {"[activation_checkpoint]\nmode = \"memory_budget\"\n", NULL,
         "job.toml:2: activation_checkpoint.mode: a memory budget isn't supported: there is no "
         "compiler to keep it; expected one of none, selective, full; got \"memory_budget\""},
        {"[activation_checkpoint]\nselective_ac_option = \"0\"\n", NULL,
         "job.toml:2: activation_checkpoint.selective_ac_option: the option is unknown; expected "
         "\"op\" or a positive integer as a text; got 0"},
        {"[checkpoint]\nkeep_latest_k = 1\n", NULL,
         "job.toml:2: checkpoint.keep_latest_k: the only checkpoint would be the one that is being "
         "written; expected 0 (all) or at least 2; got 1"},
        {"[job]\ncustom_config_module = \"my.config\"\n", NULL,
         "job.toml:2: job.custom_config_module: Python can't be imported; the keys of "
         "torchtitan-npu are built in; expected one of \"\", torchtitan_npu.config.custom_config; "
         "got \"my.config\""},
        {"[experimental]\ncustom_import = \"my.module\"\n", NULL,
         "job.toml:2: experimental.custom_import: Python can't be imported; expected \"\"; got "
         "\"my.module\""},
        {"", "--job.device=npu",
         "command line: --job.device: nothing here drives an Ascend NPU yet; expected cpu; got "
         "npu"},
        {"", "--job.device=cuda",
         "command line: --job.device: the device isn't supported; expected cpu; got cuda"},
        {"[model]\nconverters = [\"quantize.linear.float8\"]\n", NULL,
         "job.toml:2: model.converters: float8 converters aren't supported; expected "
         "quantize.linear.mx or quantize.grouped_mm.mx with recipe_name = "
         "\"dynamic_per_tensor_E4M3_E4M3_E4M3\", the closest; got quantize.linear.float8"},
        {"[model]\nconverters = [\"quantise.linear.mx\"]\n", NULL,
         "job.toml:2: model.converters: an unknown converter; expected npu_gmm, "
         "quantize.linear.mx, "
         "quantize.grouped_mm.mx or one of torchtitan-npu's fused kernels; got quantise.linear.mx; "
         "the nearest known one is quantize.linear.mx"},
        {"[model]\nconverters = [\"npu_foo\"]\n", NULL,
         "job.toml:2: model.converters: an unknown converter; expected npu_gmm, "
         "quantize.linear.mx, "
         "quantize.grouped_mm.mx or one of torchtitan-npu's fused kernels; got npu_foo"},
        {"[quantize.linear.mx]\nrecipe_name = \"\"\n", NULL,
         "job.toml:2: quantize.linear.mx.recipe_name: the text is empty; expected a name; got "
         "\"\""},
        {"[model]\nconverters = [\"npu_gmn\"]\n", NULL,
         "job.toml:2: model.converters: an unknown converter; expected npu_gmm, "
         "quantize.linear.mx, "
         "quantize.grouped_mm.mx or one of torchtitan-npu's fused kernels; got npu_gmn; the "
         "nearest "
         "known one is npu_gmm"},
        {"[model]\nconverters = [3]\n", NULL,
         "job.toml:2: model.converters: an item has the wrong type; expected a text; got 3"},
        {"[model]\nargs = 3\n", NULL,
         "job.toml:2: model.args: the type is wrong; expected a table; got 3"},
        {"[model]\nflavor = \"\"\n", NULL,
         "job.toml:2: model.flavor: the text is empty; expected a name; got \"\""},
        {"[quantize.linear.mx]\nscale_mode = \"round\"\n", NULL,
         "job.toml:2: quantize.linear.mx.scale_mode: the word is unknown; expected one of floor, "
         "ceil, even, rceil; got \"round\""},
        {"\"\" = 1\n", NULL, "job.toml:1: a key is empty; expected a name"},
        {"\n[\"\"]\nsteps = 1\n", NULL, "job.toml:2: a key is empty; expected a name"},
        {"[training]\n\"\" = 1\n", NULL,
         "job.toml:2: training: a key in it is empty; expected a name"},
        {"[quantize.linear]\n\"\" = 1\n", NULL,
         "job.toml:2: quantize.linear: a key in it is empty; expected a name"},
        {"", "--training.=3", "command line: --training: a key in it is empty; expected a name"},
        {"", "--training.stepz=3",
         "command line: --training.stepz: unknown key; the nearest known one is --training.steps"},
        {"", "--training.foo=3",
         "command line: --training.foo: unknown key; `octet train --help-all` lists the known "
         "ones"},
        {"", "--trainig.stepps=3",
         "command line: --trainig.stepps: unknown key; the nearest known one is --training.steps"},
        {"", "--training." LONG LONG LONG LONG "=3",
         "command line: --training." LONG "...: unknown key"},
        {"[model.args]\ndim = 64\n\"\" = 1\n", NULL,
         "job.toml:3: model.args: a key in it is empty; expected a name"},
        {"", "--model.args.=3",
         "command line: --model.args: a key in it is empty; expected a name"},
        {"[optimizer]\nlr = 1e308\n", NULL,
         "job.toml:2: optimizer.lr: the value is impossible; expected a number that fits in 32 "
         "bits, of at most 3.4e38; got 1e+308"},
        {"", "--optimizer.eps=1e39",
         "command line: --optimizer.eps: the value is impossible; expected a number that fits in "
         "32 bits, of at most 3.4e38; got 1e+39"},
        {"[optimizer]\neps = 0\n", NULL, /* 0 / 0 wherever a gradient is 0 */
         "job.toml:2: optimizer.eps: the value is impossible; expected a number of at least "
         "1.2e-38; got 0"},
        {"[optimizer]\neps = inf\n", NULL, /* nothing would move */
         "job.toml:2: optimizer.eps: the value is impossible; expected a number of at least "
         "1.2e-38; got inf"},
        {"", "--optimizer.eps=1e-50", /* 0 in fp32 */
         "command line: --optimizer.eps: the value is impossible; expected a number of at least "
         "1.2e-38; got 1e-50"},
        {"[training]\nmax_norm = 1e300\n", NULL,
         "job.toml:2: training.max_norm: the value is impossible; expected a number that fits in "
         "32 bits, of at most 3.4e38; got 1e+300"},
        {"", "--optimizer.lr=0x1p3",
         "command line: --optimizer.lr: the type is wrong; expected a number of at least 0; got "
         "\"0x1p3\""},
        {"", "--parallelism.module_fqns_per_model_part={a: 1, a: 2}",
         "command line: --parallelism.module_fqns_per_model_part: a: a key is given twice; first "
         "on line 1; expected a value as a YAML file has it; got \"{a: 1, a: 2}\""},
        {"", "--parallelism.module_fqns_per_model_part=*x",
         "command line: --parallelism.module_fqns_per_model_part: *x: no such anchor before this "
         "line; expected a value as a YAML file has it; got \"*x\""},
        {"", "--parallelism.module_fqns_per_model_part=" DEEP,
         "command line: --parallelism.module_fqns_per_model_part: nested too deeply; at most 64 "
         "levels; expected a value as a YAML file has it; got \"" DEEP "\""},
        {"", "--training.steps=many",
         "command line: --training.steps: the type is wrong; expected an integer of at least 1; "
         "got "
         "\"many\""},
        {"", "--training.steps",
         "command line: --training.steps: the value is missing; expected an integer of at least 1"},
        {"", "--metrics.enable_tensorboard=maybe",
         "command line: --metrics.enable_tensorboard: the type is wrong; expected true or false; "
         "got "
         "\"maybe\""},
        {"", "--metrics.no_enable_tensorboard=true",
         "command line: --metrics.no_enable_tensorboard: a no-flag takes no value; got \"true\""},
        {"", "steps=3",
         "command line: an argument has no meaning here; expected --section.key=value; got "
         "\"steps=3\""},
        {"[training]\nsteps = 1\nsteps = 2\n", NULL,
         "job.toml:3: not valid TOML: Error while parsing key-value pair: cannot redefine existing "
         "integer 'steps'"},
        {"[training]\nsteps = 1\n\"st-eps\" = 2\n", NULL,
         "job.toml:3: training.st-eps: unknown key; the nearest known one is training.steps"},
        {"[training]\nseq_len = 1\nseq-len = 2\n", NULL,
         "job.toml:3: training.seq-len: a key is given twice"},
        {"[training]\nsteps = 1979-05-27\n", NULL,
         "job.toml:2: dates and times have no meaning here"},
    };
    for (size_t i = 0; i < OCT_COUNT(jobs); i++)
        expect_error("job.toml", jobs[i].text, jobs[i].override, jobs[i].message);
}

/* Every key that is used says what it decides, or stands for a TOML key that says it; so nobody who
 * compares jobs can forget one. */
static void given_any_key_what_it_decides_is_said(void **state) {
    (void)state;
    const oct_schema *const schemas[] = {&oct_schema_titan, &oct_schema_mindspeed};
    for (size_t s = 0; s < OCT_COUNT(schemas); s++)
        for (size_t i = 0; i < schemas[s]->n; i++) {
            const oct_key *key = &schemas[s]->keys[i], *target = NULL;
            if (key->target)
                target = oct_schema_find(&oct_schema_titan, key->target, strlen(key->target));
            if (key->target && !target) /* another spelling */
                target = oct_schema_find(&oct_schema_mindspeed, key->target, strlen(key->target));
            if (target && target->target) /* of a key that stands for one itself */
                target = oct_schema_find(&oct_schema_titan, target->target, strlen(target->target));
            bool said = key->effect != OCT_EFFECT_OF_TARGET;
            assert_that(said == (key->kind == OCT_KEY_USED && !key->target), "%s: effect %d",
                        key->name, (int)key->effect);
            if (key->target && (!target || target->target || target == key ||
                                target->effect == OCT_EFFECT_OF_TARGET))
                fail_msg("%s: its target %s says nothing", key->name, key->target);
        }
}

static void
given_a_yaml_job_its_keys_come_with_their_values_whether_or_not_they_have_members(void **state) {
    (void)state;
    oct_job job;
    oct_job_effect effect;
    size_t n = 0, n_seeds = 0;
    const char *key;
    load_yaml("features:\n  recompute_plan: {apply_modules: ['a.{*}', b]}\n"
              "training:\n  seed: 7\n",
              NULL, 0, &job);
    for (; (key = oct_job_key(&job, n, &effect)); n++) {
        oct_strbuf value = {0};
        oct_job_render_value(&job, key, &value);
        n_seeds += strcmp(key, "debug.seed") == 0 && strcmp(value.text, "7") == 0;
        if (strcmp(key, "features.recompute_plan.apply_modules") == 0)
            assert_string_equal(value.text, "[\"a.{*}\", \"b\"]");
        if (strcmp(key, "parallel.recompute_plan") == 0)
            assert_string_equal(value.text, "none");
        oct_strbuf_free(&value);
    }
    assert_int_equal(n_seeds, 1);
    assert_string_equal(oct_job_name(&job, "debug.seed"), "training.seed");
    assert_true(n > 80);
    oct_job_free(&job);
}

/* Keys that a YAML job is refused with, whatever their value. */
static bool has_another_name_in_yaml(const char *name) {
    return strcmp(name, "model.converters") == 0 ||
           strcmp(name, "quantize.linear.mx.filter_fqns") == 0 ||
           strcmp(name, "quantize.grouped_mm.mx.fqns") == 0;
}

/* Keys that act only beside a converter, or beside a recipe of their kind. */
static bool needs_a_recipe(const char *name) {
    return strstr(name, "quantize.linear.mx.") || strstr(name, "quantize.grouped_mm.mx.");
}

static void load_with_default(const char *path, const oct_schema *schema) {
    for (size_t i = 0; i < schema->n; i++) {
        oct_job job;
        oct_error err = {0};
        char override[512];
        const char *const overrides[] = {override};
        if (strcmp(schema->keys[i].name, "job.config_file") == 0 ||
            (schema->keys[i].kind == OCT_KEY_USED && needs_a_recipe(schema->keys[i].name)) ||
            (schema->keys[i].kind == OCT_KEY_USED && schema->keys[i].type == OCT_KEY_STRING &&
             !*schema->keys[i].fallback) ||
            (strstr(path, ".yaml") && has_another_name_in_yaml(schema->keys[i].name)))
            continue;
        snprintf(override, sizeof override, "--%s=%s", schema->keys[i].name,
                 schema->keys[i].fallback);
        if (oct_job_load(path, overrides, 1, &job, &err))
            fail_msg("%s: %s", override, err.message);
        oct_job_free(&job);
    }
}

static void given_any_keys_default_on_the_command_line_it_is_accepted(void **state) {
    (void)state;
    put_text("job.toml", "");
    put_text("job.yaml", "training: {quantization_plan: {recipe_name: mxfp8}}\n");
    load_with_default("job.toml", &oct_schema_titan);
    load_with_default("job.yaml", &oct_schema_titan);
    load_with_default("job.yaml", &oct_schema_mindspeed);
}

static void given_keys_of_any_type_the_command_line_reads_them_as_the_file_does(void **state) {
    (void)state;
    oct_job job;
    const char *overrides[] = {"--features.recompute=true",
                               "--features.recompute_plan={apply_modules: [a.*, b]}",
                               "--parallel.fully_shard_parallel_size=2",
                               "--model.args={n_layers: 3, dim: 64}", "--model.args.dim=32"};
    load_yaml("parallel:\n  fully_shard_parallel_size: auto\n", overrides, OCT_COUNT(overrides),
              &job);
    assert_int_equal(job.activation_checkpoint.mode, OCT_JOB_RECOMPUTE_FULL);
    assert_int_equal(job.activation_checkpoint.apply_modules.n, 2);
    assert_string_equal(job.activation_checkpoint.apply_modules.items[0], "a.*");
    assert_int_equal(job.parallelism.data_parallel_shard_degree, 2);
    assert_int_equal(oct_value_find(job.model.args, "dim")->integer, 32);
    assert_string_equal(oct_job_where(&job, "model.args.n_layers"), "command line");
    assert_string_equal(oct_job_at(&job, "model.args.dim"), "command line: --model.args.dim");
    assert_string_equal(oct_job_at(&job, "parallelism.data_parallel_shard_degree"),
                        "command line: --parallel.fully_shard_parallel_size");
    assert_string_equal(oct_job_at(&job, "model.hf_assets_path"),
                        "default: model.model_name_or_path");
    oct_job_free(&job);
    const char *flags[] = {"--parallel.recompute", "--parallel.fully_shard_parallel_size", "auto"};
    load_yaml("parallel:\n  fully_shard_parallel_size: 2\n", flags, OCT_COUNT(flags), &job);
    assert_int_equal(job.activation_checkpoint.mode, OCT_JOB_RECOMPUTE_FULL);
    assert_int_equal(job.parallelism.data_parallel_shard_degree, -1);
    oct_job_free(&job);
    const char *off[] = {"--features.no-recompute"};
    load_yaml("features:\n  recompute: true\n", off, 1, &job);
    assert_int_equal(job.activation_checkpoint.mode, OCT_JOB_RECOMPUTE_NONE);
    oct_job_free(&job);
}

static void given_a_bad_value_in_the_file_the_command_line_mends_it(void **state) {
    (void)state;
    oct_job job;
    const char *overrides[] = {"--parallelism.tensor_parallel_degree=1", "--training.steps=2"};
    load_toml("[parallelism]\ntensor_parallel_degree = 4\n[training]\nsteps = -3\n", overrides, 2,
              &job);
    assert_int_equal(job.training.steps, 2);
    oct_job_free(&job);
}

static void given_optional_keys_none_and_empty_mean_not_given(void **state) {
    (void)state;
    oct_job job;
    const char *overrides[] = {"--training.dataset_path=None", "--debug.seed=none",
                               "--quantize.linear.mx.filter_fqns=", "--job.description=none",
                               "--model.converters=quantize.linear.mx"};
    load_toml("[training]\ndataset_path = \"x.txt\"\n[debug]\nseed = 5\n[validation]\n"
              "dataset_path = \"\"\n[model]\ntokenizer_path = \"tok\"\n",
              overrides, OCT_COUNT(overrides), &job);
    assert_null(job.training.dataset_path);
    assert_null(job.validation.dataset_path);
    assert_string_equal(job.model.tokenizer_path, "tok");
    assert_int_equal(job.debug.seed, -1);
    assert_int_equal(job.quantize.linear.mx.filter_fqns.n, 0);
    assert_string_equal(job.job.description, "none");
    oct_job_free(&job);
}

typedef struct lines {
    char text[4096];
} lines;

static void take_line(void *user, oct_log_level level, const char *line) {
    lines *l = user;
    (void)level;
    size_t used = strlen(l->text);
    snprintf(l->text + used, sizeof l->text - used, "%s\n", line);
}

static void given_keys_without_effect_each_is_named_once_in_the_log(void **state) {
    (void)state;
    oct_job job;
    lines log = {{0}};
    load_toml("[profiling]\nenable_profiling = true\n[compile]\nenable = true\n"
              "[quantize.linear.float8]\nfilter_fqns = [\"output\"]\n"
              "[model]\nconverters = [\"npu_rope\", \"npu_gmm\", \"quantize.linear.mx\"]\n",
              NULL, 0, &job);
    oct_log_set_sink(take_line, &log);
    oct_job_log_notes(&job);
    oct_log_set_sink(NULL, NULL);
    assert_string_equal(
        log.text, "Accepted without effect here: profiling.enable_profiling, "
                  "compile.enable, quantize.linear.float8.filter_fqns\n"
                  "Converter npu_rope (a fused NPU kernel) is accepted without effect here\n");
    oct_job_free(&job);
}

static void
given_words_for_chat_and_columns_of_data_they_are_told_apart_and_null_is_nothing(void **state) {
    (void)state;
    oct_job job;
    lines log = {{0}};
    load_yaml("data:\n  dataset_param:\n    basic_parameters: {template: qwen3, tool_format: null, "
              "streaming: true, cache_dir: null}\n"
              "  val_dataset_param:\n    attr: {messages: talk, system: null}\n"
              "parallel: {fsdp_plan: {param_dtype: bf16}}\n",
              NULL, 0, &job);
    oct_log_set_sink(take_line, &log);
    oct_job_log_notes(&job);
    oct_log_set_sink(NULL, NULL);
    assert_string_equal(
        log.text,
        "Accepted without effect here: data.dataset_param.basic_parameters.streaming\n"
        "Not used, since plain text has no roles: data.dataset_param.basic_parameters.template\n"
        "Documents are their \"text\" alone, whatever columns the job names: "
        "data.val_dataset_param.attr.messages\n");
    oct_job_free(&job);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_an_empty_file_the_defaults_are_those_of_torchtitan),
        cmocka_unit_test(given_file_and_command_line_the_latter_wins_and_places_are_kept),
        cmocka_unit_test(given_the_file_on_the_command_line_it_is_loaded),
        cmocka_unit_test(given_a_wrong_toml_job_one_line_says_where_what_and_expected),
        cmocka_unit_test(given_any_keys_default_on_the_command_line_it_is_accepted),
        cmocka_unit_test(given_keys_of_any_type_the_command_line_reads_them_as_the_file_does),
        cmocka_unit_test(given_a_bad_value_in_the_file_the_command_line_mends_it),
        cmocka_unit_test(given_optional_keys_none_and_empty_mean_not_given),
        cmocka_unit_test(given_keys_without_effect_each_is_named_once_in_the_log),
        cmocka_unit_test(
            given_words_for_chat_and_columns_of_data_they_are_told_apart_and_null_is_nothing),
        cmocka_unit_test(given_any_key_what_it_decides_is_said),
        cmocka_unit_test(
            given_a_yaml_job_its_keys_come_with_their_values_whether_or_not_they_have_members),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
