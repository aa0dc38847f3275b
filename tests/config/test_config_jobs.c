/* Real jobs: keys of the frameworks' own, one report of all that is wrong, and no key anywhere that
 * is passed over. Dimensions and words are those of torchtitan v0.2.2, torchtitan-npu v0.2.2 and
 * its development branch, MindSpeed MM and MindSpeed LLM. */
#include <math.h>

#include "base/count.h"
#include "base/nearest.h"
#include "config/schema.h"
#include "job_texts.h"
#include "model/args.h"

/* ---- unknown keys at every place ---- */

/* `name` = value, as a file of the form has it: a.b.c = 1, or a: {b: {c: 1}}. */
static void put_key(oct_job_form form, const char *name, const char *value, oct_strbuf *b) {
    int depth = 0;
    if (form == OCT_JOB_TITAN) {
        oct_strbuf_printf(b, "%s = %s\n", name, value);
        return;
    }
    for (const char *c = name; *c; c++) {
        depth += *c == '.';
        if (*c == '.')
            oct_strbuf_puts(b, ": {");
        else
            oct_strbuf_append(b, c, 1);
    }
    oct_strbuf_printf(b, ": %s", value);
    while (depth-- > 0)
        oct_strbuf_puts(b, "}");
    oct_strbuf_puts(b, "\n");
}

static void expect_nearest(oct_job_form form, const char *text, const char *override,
                           const char *wrong, const char *near) {
    oct_job job;
    oct_error err;
    char expected[512];
    oct_status status = load_form(form, text, override, &job, &err);
    const char *dashes = override ? "--" : "";
    snprintf(expected, sizeof expected, "%s: %s%s: unknown %s; the nearest known one is %s%s",
             override                ? "command line"
             : form == OCT_JOB_TITAN ? "job.toml:1"
                                     : "job.yaml:1",
             dashes, wrong, strstr(err.message, "unknown section") ? "section" : "key", dashes,
             near);
    assert_int_equal(status, OCT_INVALID);
    if (strcmp(err.message, expected) != 0)
        fail_msg("%s\n%s\n%s", text, err.message, expected);
    assert_null(job.others);
    oct_job_free(&job);
}

/* Of the names one slip away from `wrong` on the schema's same level, is `name` the only one? */
static bool is_alone(const oct_schema *schema, const char *wrong, const char *name) {
    const char *last = strrchr(wrong, '.');
    size_t level = last ? (size_t)(last - wrong) + 1 : 0;
    for (size_t i = 0; i < schema->n; i++) {
        const char *row = schema->keys[i].name;
        if (strcmp(row, name) != 0 && strncmp(row, wrong, level) == 0 &&
            !strchr(row + level, '.') && oct_edit_distance(wrong + level, row + level) <= 1)
            return false;
    }
    return true;
}

static void misspell_every_key(oct_job_form form, const oct_schema *schema) {
    size_t n_tried = 0;
    for (size_t i = 0; i < schema->n; i++) {
        char wrong[256], override[300];
        oct_strbuf b = {0};
        const char *name = schema->keys[i].name;
        snprintf(wrong, sizeof wrong, "%sq", name);
        if (oct_schema_find(schema, wrong, strlen(wrong)) || !is_alone(schema, wrong, name))
            continue;
        put_key(form, wrong, "1", &b);
        assert_false(b.failed);
        expect_nearest(form, b.text, NULL, wrong, name);
        snprintf(override, sizeof override, "--%s=1", wrong);
        expect_nearest(form, "", override, wrong, name);
        oct_strbuf_free(&b);
        n_tried++;
    }
    assert_true(n_tried > schema->n * 9 / 10);
}

static void misspell_every_section(oct_job_form form, const oct_schema *schema) {
    size_t n_tried = 0;
    for (size_t i = 0; i < schema->n; i++) {
        const char *name = schema->keys[i].name;
        for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.')) {
            size_t n = (size_t)(dot - name);
            char wrong[256], inside[300], section[128], near[256];
            bool first = i == 0 || strncmp(schema->keys[i - 1].name, name, n + 1) != 0;
            snprintf(section, sizeof section, "%.*s", (int)n, name);
            snprintf(wrong, sizeof wrong, "%sq", section);
            if (!first || n < 3 || /* too short for a slip to be told from another word */
                !oct_schema_nearest_section(schema, wrong, near, sizeof near) ||
                strcmp(near, section) != 0)
                continue;
            oct_strbuf b = {0};
            snprintf(inside, sizeof inside, "%s.any", wrong);
            put_key(form, inside, "1", &b);
            assert_false(b.failed);
            expect_nearest(form, b.text, NULL, wrong, section);
            oct_strbuf_free(&b);
            n_tried++;
        }
    }
    assert_true(n_tried >= 20);
}

static void given_an_unknown_key_at_any_place_its_neighbour_there_is_named(void **state) {
    (void)state;
    misspell_every_key(OCT_JOB_TITAN, &oct_schema_titan);
    misspell_every_key(OCT_JOB_MINDSPEED, &oct_schema_mindspeed);
    misspell_every_section(OCT_JOB_TITAN, &oct_schema_titan);
    misspell_every_section(OCT_JOB_MINDSPEED, &oct_schema_mindspeed);
}

/* Nothing hides in a value: tables have keys of their own, or are refused. */
static void given_a_table_where_a_value_stands_what_is_in_it_is_refused(void **state) {
    (void)state;
    const struct {
        oct_job_form form;
        const oct_schema *schema;
    } forms[] = {{OCT_JOB_TITAN, &oct_schema_titan}, {OCT_JOB_MINDSPEED, &oct_schema_mindspeed}};
    for (size_t f = 0; f < OCT_COUNT(forms); f++)
        for (size_t i = 0; i < forms[f].schema->n; i++) {
            const oct_key *key = &forms[f].schema->keys[i];
            bool table = key->type == OCT_KEY_TABLE && key->kind == OCT_KEY_USED;
            static const char *const hidden[][2] = {{"{zz = 1}", "[{zz = 1}]"},
                                                    {"{zz: 1}", "[{zz: 1}]"}};
            for (int in_list = table; in_list < 2; in_list++) {
                oct_strbuf b = {0};
                oct_job job;
                oct_error err;
                put_key(forms[f].form, key->name, hidden[f][in_list], &b);
                oct_status status = load_form(forms[f].form, b.text, NULL, &job, &err);
                if (status != OCT_INVALID || !strstr(err.message, key->name))
                    fail_msg("%s: %s", b.text, status ? err.message : "it loaded");
                oct_job_free(&job);
                oct_strbuf_free(&b);
            }
        }
}

static void given_a_list_of_tables_their_keys_are_known_too(void **state) {
    (void)state;
    oct_job job;
    oct_error err;
    load_form_good(OCT_JOB_MINDSPEED,
                   "features:\n  recompute: true\n  recompute_plan:\n"
                   "    apply_modules: ['model.layers.{*}']\n    use_reentrant: false\n"
                   "    op_replay_scopes:\n    - name: attn\n      apply_modules: [a]\n"
                   "      save_rng: true\n      cache_ops: [aten.mm.default]\n",
                   &job);
    assert_int_equal(job.activation_checkpoint.apply_modules.n, 1);
    oct_job_free(&job);
    oct_status status = load_form(OCT_JOB_MINDSPEED,
                                  "features:\n  recompute_plan:\n    op_replay_scopes:\n"
                                  "    - name: attn\n      cache_op: [a]\n",
                                  NULL, &job, &err);
    assert_int_equal(status, OCT_INVALID);
    assert_string_equal(err.message,
                        "job.yaml:5: features.recompute_plan.op_replay_scopes.cache_op: "
                        "unknown key; the nearest known one is cache_ops");
    oct_job_free(&job);
}

/* ---- all that is wrong, at once ---- */

static void given_several_mistakes_one_report_lists_them_by_line(void **state) {
    (void)state;
    oct_job job;
    oct_error err;
    oct_status status = load_form(OCT_JOB_TITAN,
                                  "[training]\nseq_lem = 8\nsteps = 0\n"
                                  "[parallelism]\ntensor_parallel_degree = 2\n"
                                  "[model]\nflavor = \"8Q\"\nconverters = [\"npu_foo\"]\n"
                                  "[optimzer]\nlr = 1\n",
                                  "--validation.frek=3", &job, &err);
    assert_int_equal(status, OCT_INVALID);
    assert_string_equal(err.message, "job.toml:2: training.seq_lem: unknown key; the nearest known "
                                     "one is training.seq_len");
    assert_string_equal(
        job.others,
        "job.toml:3: training.steps: the value is impossible; expected an integer of at least 1; "
        "got 0\n"
        "job.toml:5: parallelism.tensor_parallel_degree: tensor parallelism isn't supported; "
        "expected 1; got 2\n"
        "job.toml:7: model.flavor: unknown, did you mean \"8B\"; expected one of debugmodel, "
        "debugmodel_flex_attn, debugmodel_varlen_attn, 8B, 8B_flex, 8B_varlen, 70B, 405B, demo, "
        "30M, 125M; got \"8Q\"\n"
        "job.toml:8: model.converters: an unknown converter; expected npu_gmm, quantize.linear.mx, "
        "quantize.grouped_mm.mx or one of torchtitan-npu's fused kernels; got npu_foo\n"
        "job.toml:9: optimzer: unknown section; the nearest known one is optimizer\n"
        "command line: --validation.frek: unknown key; the nearest known one is --validation.freq");
    oct_job_free(&job);
}

static void given_wrong_dimensions_and_recipes_they_are_in_the_report(void **state) {
    (void)state;
    oct_job job;
    oct_error err;
    oct_status status = load_form(OCT_JOB_TITAN,
                                  "[model]\nconverters = [\"quantize.linear.mx\"]\n"
                                  "[model.args]\nn_layer = 2\ndim = \"wide\"\nn_heads = 0\n"
                                  "[quantize.linear.mx]\nrecipe_name = \"mxfp9\"\n"
                                  "[quantize.grouped_mm.mx]\nrecipe_name = \"unused\"\n",
                                  "--model.args.vocab_size=1", &job, &err);
    assert_int_equal(status, OCT_INVALID);
    const char *lines[] = {"job.toml:4: model.args.n_layer: unknown, did you mean \"n_layers\"",
                           "job.toml:5: model.args.dim: impossible value",
                           "job.toml:6: model.args.n_heads: impossible value",
                           "job.toml:8: quantize.linear.mx.recipe_name: recipe \"mxfp9\"",
                           "job.toml:10: quantize.grouped_mm.mx.recipe_name: recipe \"unused\"",
                           "command line: --model.args.vocab_size: impossible value"};
    assert_ptr_equal(strstr(err.message, lines[0]), err.message);
    const char *line = job.others;
    for (size_t i = 1; i < OCT_COUNT(lines); i++) {
        assert_ptr_equal(strstr(line, lines[i]), line);
        line = strchr(line, '\n');
        assert_true((line == NULL) == (i + 1 == OCT_COUNT(lines)));
        line += line != NULL;
    }
    oct_job_free(&job);
}

static void given_a_model_that_is_not_here_that_is_said_first(void **state) {
    (void)state;
    oct_job job;
    oct_error err;
    oct_status status = load_form(OCT_JOB_MINDSPEED,
                                  "parallel:\n  ulysses_parallel_size: 2\n"
                                  "data:\n  dataloader_param: {enable_prelode: false}\n"
                                  "model:\n  model_id: qwen3_vl_moe\n",
                                  NULL, &job, &err);
    assert_int_equal(status, OCT_INVALID);
    assert_string_equal(err.message,
                        "job.yaml:6: model.model_id: the model isn't supported; expected one of "
                        "qwen3, qwen3_moe, llama, llama3, deepseek_v3; got \"qwen3_vl_moe\"");
    assert_string_equal(job.others,
                        "job.yaml:2: parallel.ulysses_parallel_size: context parallelism isn't "
                        "supported; expected 1; got 2\n"
                        "job.yaml:4: data.dataloader_param.enable_prelode: unknown key; the "
                        "nearest known one is data.dataloader_param.enable_preload");
    oct_job_free(&job);
    status =
        load_form(OCT_JOB_TITAN,
                  "[encoder]\nt5_encoder = \"t5\"\n[model]\nname = \"flux\"\nflavor = \"dev\"\n",
                  NULL, &job, &err);
    assert_int_equal(status, OCT_INVALID);
    assert_string_equal(err.message, "job.toml:4: model.name: the model isn't supported; expected "
                                     "one of llama3, qwen3, deepseek_v3; got \"flux\"");
    assert_non_null(strstr(job.others, "job.toml:1: encoder: unknown section"));
    oct_job_free(&job);
}

static void given_a_file_for_another_program_one_line_says_so(void **state) {
    (void)state;
    oct_job job;
    oct_error err;
    const char *text = "compute_environment: LOCAL_MACHINE\nfsdp_config: {a: 1}\nnum_machines: 1\n";
    assert_int_equal(load_form(OCT_JOB_MINDSPEED, text, NULL, &job, &err), OCT_INVALID);
    assert_string_equal(err.message,
                        "job.yaml:1: compute_environment: unknown key, and no section of a "
                        "MindSpeed MM job is in the file; expected model, data, parallel, "
                        "training, features or tools");
    assert_null(job.others);
    oct_job_free(&job);
    text = "param_dtype: bf16\nsharding_size: auto\nreshard_after_forward: true\n";
    assert_int_equal(load_form(OCT_JOB_MINDSPEED, text, NULL, &job, &err), OCT_INVALID);
    assert_string_equal(err.message,
                        "job.yaml:1: param_dtype: unknown key, and no section of a MindSpeed MM "
                        "job is in the file; expected model, data, parallel, training, features or "
                        "tools; the nearest known key is parallel.fsdp_plan.param_dtype");
    assert_null(job.others);
    oct_job_free(&job);
    text = "gpt_args: {lr: 1.0e-5}\ndata: {dataset_param: {dataset_type: huggingface}}\n";
    assert_int_equal(load_form(OCT_JOB_MINDSPEED, text, NULL, &job, &err), OCT_INVALID);
    assert_string_equal(err.message, "job.yaml:1: gpt_args: jobs of the Megatron back end aren't "
                                     "read; expected none; got a table");
    assert_null(job.others);
    oct_job_free(&job);
}

/* The words of examples/fsdp2 of MindSpeed LLM, at c77308a. */
static void given_a_job_of_mindspeed_llm_one_line_says_what_it_is(void **state) {
    (void)state;
    static const struct {
        const char *text, *start;
    } jobs[] = {
        {"model: {model_name_or_path: m, tokenizer_name_or_path: m, train_from_scratch: true}\n"
         "data: {dataset: d, cutoff_len: 4096, data_manager_type: mg}\n"
         "parallel: {fsdp_size: 8, ep_size: 2, fsdp_modules: [model.layers.0]}\n"
         "training: {stage: pt, max_steps: 10, min_lr: 1.0e-6, output_dir: o, zzz: 1}\n",
         "job.yaml:1: model.t"},
        {"data: {max_samples: 3}\nparallel: {recompute_modules: [a], cp_size: 1}\n",
         "job.yaml:1: data.max_samples: a job of MindSpeed LLM (3 of its words are here)"},
        {"training:\n  lr: 1.0e-5\n  logging_steps: 1\n  save_steps: 5\n  max_grad_norm: 1.0\n"
         "  warmup_ratio: 0.1\n  lr_scheduler_type: cosine\n  per_device_train_batch_size: 1\n",
         "job.yaml:3: training.logging_steps: a job of MindSpeed LLM (6 of its words are here)"}};
    for (size_t i = 0; i < OCT_COUNT(jobs); i++) {
        oct_job job;
        oct_error err;
        assert_int_equal(load_form(OCT_JOB_MINDSPEED, jobs[i].text, NULL, &job, &err), OCT_INVALID);
        if (strncmp(err.message, jobs[i].start, strlen(jobs[i].start)) != 0)
            fail_msg("%s", err.message);
        assert_non_null(strstr(err.message, "MindSpeed LLM"));
        assert_non_null(
            strstr(err.message, "expected a MindSpeed MM job, with data.dataset_param"));
        assert_null(job.others);
        oct_job_free(&job);
    }
}

/* One slip, and words of another trainer in a job of MindSpeed MM's, are told one by one. */
static void given_words_of_mindspeed_llm_in_a_job_each_is_told(void **state) {
    (void)state;
    oct_job job;
    oct_error err;
    static const char *const texts[] = {
        "training: {output_dir: o, lr: 1.0e-5}\n",
        "training: {train_iters: 4, output_dir: o, warmup_ratio: 0.1}\n",
        "data: {dataset_param: {}}\ntraining: {output_dir: o, warmup_ratio: 0.1}\n",
        "training: {micro_batch_size: 1, output_dir: o, warmup_ratio: 0.1}\n",
        "parallel: {fsdp_plan: {}}\ntraining: {output_dir: o, warmup_ratio: 0.1}\n"};
    for (size_t i = 0; i < OCT_COUNT(texts); i++) {
        assert_int_equal(load_form(OCT_JOB_MINDSPEED, texts[i], NULL, &job, &err), OCT_INVALID);
        assert_non_null(strstr(err.message, "training.output_dir: unknown key"));
        assert_int_equal(i > 0, job.others && strstr(job.others, "training.warmup_ratio") != NULL);
        oct_job_free(&job);
    }
}

/* What the command line says of a plan that it turns off would do nothing. */
static void given_options_of_a_plan_that_is_turned_off_each_is_refused(void **state) {
    (void)state;
#define PLAN "training.quantization_plan."
    static const char plan[] = "training: {quantization_plan: {recipe_name: mxfp8, "
                               "apply_modules: ['model.layers.{*}'], quant_gmm: true}}\n";
    static const char *const options[] = {"apply_modules=a",
                                          "ignored_modules=a",
                                          "quant_converters=quantize.linear.mx",
                                          "enable_fsdp_low_precision_all_gather=true",
                                          "fsdp_low_precision_all_gather_mode=all",
                                          "quant_format=E4M3",
                                          "block_size=32",
                                          "quant_gmm=true",
                                          "quant_apply_modules=a",
                                          "converters=quantize.linear.mx"};
    oct_job job;
    oct_error err = {0};
    put_text("job.yaml", plan);
    for (size_t i = 0; i < OCT_COUNT(options); i++) {
        char option[128], start[160];
        snprintf(option, sizeof option, "--" PLAN "%s", options[i]);
        snprintf(start, sizeof start, "command line: %.*s: ", (int)strcspn(option, "="), option);
        const char *overrides[] = {option, "--" PLAN "recipe_name=none"};
        err = (oct_error){0};
        if (oct_job_load("job.yaml", overrides, 1, &job, &err))
            fail_msg("%s", err.message);
        oct_job_free(&job);
        assert_int_equal(oct_job_load("job.yaml", overrides, 2, &job, &err), OCT_INVALID);
        if (strncmp(err.message, start, strlen(start)) != 0)
            fail_msg("%s", err.message);
        assert_non_null(strstr(err.message, PLAN "recipe_name is none"));
        oct_job_free(&job);
        err = (oct_error){0}; /* of a comparison, whose other recipes use it */
        assert_int_equal(oct_job_load_as(OCT_JOB_READ_ARM, "job.yaml", overrides, 2, &job, &err),
                         OCT_OK);
        oct_job_free(&job);
    }
    const char *asks_nothing[] = {"--" PLAN "recipe_name=none", "--" PLAN "quant_gmm=false"};
    assert_int_equal(oct_job_load("job.yaml", asks_nothing, 2, &job, &err), OCT_OK);
    oct_job_free(&job);
#undef PLAN
}

static void given_thousands_of_mistakes_the_first_are_told_and_the_rest_counted(void **state) {
    (void)state;
    oct_job job;
    oct_error err;
    oct_strbuf b = {0};
    oct_strbuf_puts(&b, "[training]\n");
    for (int i = 0; i < 1000; i++)
        oct_strbuf_printf(&b, "zz%d = 1\n", i);
    assert_int_equal(load_form(OCT_JOB_TITAN, b.text, NULL, &job, &err), OCT_INVALID);
    size_t n_lines = 2; /* the first, and the last of the others */
    for (const char *c = job.others; *c; c++)
        n_lines += *c == '\n';
    assert_int_equal(n_lines, 101);
    assert_non_null(strstr(job.others, "job.toml: 900 more keys or values are wrong"));
    oct_job_free(&job);
    oct_strbuf_free(&b);
}

static void given_a_refused_allocation_anywhere_a_report_fails_cleanly(void **state) {
    (void)state;
    const char *override = "--training.zz=1";
    put_text("job.yaml", "model: {model_id: other, zz: 1}\ntraining: {lr: x, train_iters: 0}\n");
    size_t before = oct_alloc_live_bytes();
    oct_status status = OCT_NO_MEMORY;
    for (int64_t n = 1; status != OCT_INVALID; n++) {
        oct_job job;
        oct_error err = {0};
        oct_alloc_fail_at(n);
        status = oct_job_load("job.yaml", &override, 1, &job, &err);
        oct_alloc_fail_at(0);
        assert_true(status == OCT_INVALID || status == OCT_NO_MEMORY);
        oct_job_free(&job);
        assert_int_equal(oct_alloc_live_bytes(), before);
        assert_true(n < 1000);
    }
}

/* ---- torchtitan, torchtitan-npu ---- */

static void given_torchtitans_experts_they_are_quantized_without_npu_gmm(void **state) {
    (void)state;
#define MX_JOB "[model]\nconverters = [\"quantize.linear.mx\", \"quantize.grouped_mm.mx\"]\n"
#define NPU_MODULE "[job]\ncustom_config_module = \"torchtitan_npu.config.custom_config\"\n"
    oct_job job;
    oct_error err;
    load_form_good(OCT_JOB_TITAN, MX_JOB, &job);
    oct_job_free(&job);
    load_form_good(OCT_JOB_TITAN,
                   NPU_MODULE "[model]\nconverters = [\"npu_gmm\", \"quantize.grouped_mm.mx\"]\n",
                   &job);
    oct_job_free(&job);
    const char *wrong[] = {
        NPU_MODULE MX_JOB,
        "[experimental]\ncustom_args_module = \"torchtitan_npu.config.custom_config\"\n" MX_JOB,
        "[model]\nconverters = [\"quantize.grouped_mm.mx\", \"npu_gmm\"]\n",
        NPU_MODULE "[model]\nconverters = [\"quantize.grouped_mm.mx\", \"npu_gmm\"]\n"};
    for (size_t i = 0; i < OCT_COUNT(wrong); i++) {
        assert_int_equal(load_form(OCT_JOB_TITAN, wrong[i], NULL, &job, &err), OCT_INVALID);
        assert_non_null(strstr(err.message, "model.converters: \"quantize.grouped_mm.mx\" needs "
                                            "\"npu_gmm\" before it"));
        oct_job_free(&job);
    }
}

static void given_a_converter_that_changes_the_model_it_is_refused(void **state) {
    (void)state;
    const char *wrong[] = {"npu_dsa", "npu_foo", "npu_gmn", "npu_mhc_pre", "deepseek_v4_sfa"};
    for (size_t i = 0; i < OCT_COUNT(wrong); i++) {
        oct_job job;
        oct_error err;
        char text[128];
        snprintf(text, sizeof text, "[model]\nconverters = [\"npu_rope\", \"%s\"]\n", wrong[i]);
        assert_int_equal(load_form(OCT_JOB_TITAN, text, NULL, &job, &err), OCT_INVALID);
        assert_non_null(strstr(err.message, "job.toml:2: model.converters: "));
        assert_non_null(strstr(err.message, wrong[i]));
        oct_job_free(&job);
    }
}

static void given_nothing_to_export_the_exports_dtype_does_not_matter(void **state) {
    (void)state;
#define EXPORT "[checkpoint]\nexport_dtype = \"float16\"\n"
    static const struct {
        const char *text;
        bool good;
    } jobs[] = {{EXPORT "enable = false\n", true},
                {EXPORT "enable = true\nlast_save_model_only = false\n", true},
                {EXPORT "enable = true\nload_only = true\n", true},
                {EXPORT "enable = true\nlast_save_in_hf = true\n", true},
                {EXPORT "enable = true\n", false},
                {EXPORT "enable = true\nlast_save_model_only = true\n", false}};
    for (size_t i = 0; i < OCT_COUNT(jobs); i++) {
        oct_job job;
        oct_error err;
        oct_status status = load_form(OCT_JOB_TITAN, jobs[i].text, NULL, &job, &err);
        assert_int_equal(status, jobs[i].good ? OCT_OK : OCT_INVALID);
        if (status)
            assert_string_equal(err.message,
                                "job.toml:2: checkpoint.export_dtype: a checkpoint isn't saved in "
                                "float16; expected float32 or bfloat16, or "
                                "checkpoint.last_save_in_hf = true beside it; got \"float16\"");
        oct_job_free(&job);
    }
}

static void given_torchtitan_npus_debug_flavors_they_have_its_dimensions(void **state) {
    (void)state;
    static const struct {
        const char *flavor;
        int64_t dim, inter, moe_inter, layers, experts;
    } flavors[] = {{"671B_debug", 128, 512, 128, 4, 8},
                   {"671B_debug_16die", 7168, 18432, 2048, 61, 32},
                   {"671B_debug_128die", 7168, 18432, 2048, 61, 256}};
    for (size_t i = 0; i < OCT_COUNT(flavors); i++) {
        oct_model_args a;
        oct_error err = {0};
        if (oct_model_args_flavor("deepseek_v3", flavors[i].flavor, &a, &err) ||
            oct_model_args_resolve(&a, &err))
            fail_msg("%s", err.message);
        assert_int_equal(a.vocab_size, 129280);
        assert_int_equal(a.dim, flavors[i].dim);
        assert_int_equal(a.hidden_dim, flavors[i].inter);
        assert_int_equal(a.moe_inter_dim, flavors[i].moe_inter);
        assert_int_equal(a.n_layers, flavors[i].layers);
        assert_int_equal(a.n_dense_layers, 3);
        assert_int_equal(a.n_heads, 128);
        assert_int_equal(a.num_experts, flavors[i].experts);
        assert_int_equal(a.num_shared_experts, 1);
        assert_int_equal(a.top_k, 8);
        assert_int_equal(a.num_expert_groups, 0);
        assert_int_equal(a.score_func, OCT_SCORE_SIGMOID);
        assert_true(a.route_norm && !a.score_before_experts && a.route_scale == 2.5);
        assert_int_equal(a.q_lora_rank, 1536);
        assert_int_equal(a.kv_lora_rank, 512);
        assert_int_equal(a.qk_nope_head_dim, 128);
        assert_int_equal(a.qk_rope_head_dim, 64);
        assert_int_equal(a.v_head_dim, 128);
        assert_true(a.mscale == 1.0 && a.rope_theta == 10000.0 && a.rope_scaling_factor == 40.0);
    }
}

static void given_torchtitan_npus_newer_keys_they_are_known(void **state) {
    (void)state;
    oct_job job;
    oct_error err;
    load_form_good(OCT_JOB_TITAN,
                   "[checkpoint]\nsync_files = false\ndrop_page_cache_after_save = true\n"
                   "empty_cache_after_save = false\n[optimizer]\nvirtual_allocator = true\n"
                   "extra_param_group_split_rules = []\n",
                   &job);
    oct_job_free(&job);
    assert_int_equal(load_form(OCT_JOB_TITAN,
                               "[[optimizer.extra_param_group_split_rules]]\n"
                               "str_match = \"output.weight\"\nlr = 1e-2\n",
                               NULL, &job, &err),
                     OCT_INVALID);
    assert_non_null(strstr(err.message, "optimizer.extra_param_group_split_rules: all parameters "
                                        "have the same learning rate and update rule"));
    oct_job_free(&job);
}

static void given_a_section_turned_off_its_flag_is(void **state) {
    (void)state;
    const char *overrides[] = {"--no-validation.enable", "--no_validation.enable",
                               "--validation.no-enable", "--validation.no_enable"};
    put_text("job.toml", "[validation]\nenable = true\n");
    for (size_t i = 0; i < OCT_COUNT(overrides); i++) {
        oct_job job;
        oct_error err = {0};
        if (oct_job_load("job.toml", &overrides[i], 1, &job, &err))
            fail_msg("%s", err.message);
        assert_false(job.validation.enable);
        assert_string_equal(oct_job_where(&job, "validation.enable"), "command line");
        oct_job_free(&job);
    }
    const char *wrong[] = {"--no-validation.enable=true", "--no-validation.freq",
                           "--no-validation.enabel"};
    for (size_t i = 0; i < OCT_COUNT(wrong); i++) {
        oct_job job;
        oct_error err = {0};
        assert_int_equal(oct_job_load("job.toml", &wrong[i], 1, &job, &err), OCT_INVALID);
        assert_non_null(strstr(err.message, "command line: --no-validation."));
        oct_job_free(&job);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_an_unknown_key_at_any_place_its_neighbour_there_is_named),
        cmocka_unit_test(given_a_table_where_a_value_stands_what_is_in_it_is_refused),
        cmocka_unit_test(given_a_list_of_tables_their_keys_are_known_too),
        cmocka_unit_test(given_several_mistakes_one_report_lists_them_by_line),
        cmocka_unit_test(given_wrong_dimensions_and_recipes_they_are_in_the_report),
        cmocka_unit_test(given_a_model_that_is_not_here_that_is_said_first),
        cmocka_unit_test(given_a_file_for_another_program_one_line_says_so),
        cmocka_unit_test(given_a_job_of_mindspeed_llm_one_line_says_what_it_is),
        cmocka_unit_test(given_words_of_mindspeed_llm_in_a_job_each_is_told),
        cmocka_unit_test(given_options_of_a_plan_that_is_turned_off_each_is_refused),
        cmocka_unit_test(given_thousands_of_mistakes_the_first_are_told_and_the_rest_counted),
        cmocka_unit_test(given_a_refused_allocation_anywhere_a_report_fails_cleanly),
        cmocka_unit_test(given_torchtitans_experts_they_are_quantized_without_npu_gmm),
        cmocka_unit_test(given_a_converter_that_changes_the_model_it_is_refused),
        cmocka_unit_test(given_nothing_to_export_the_exports_dtype_does_not_matter),
        cmocka_unit_test(given_torchtitan_npus_debug_flavors_they_have_its_dimensions),
        cmocka_unit_test(given_torchtitan_npus_newer_keys_they_are_known),
        cmocka_unit_test(given_a_section_turned_off_its_flag_is),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
