/* Real jobs: keys of the frameworks' own, one report of all that is wrong, and no key anywhere that
 * is passed over. Dimensions and words are those of torchtitan v0.2.2, torchtitan-npu v0.2.2 and
 * its development branch, MindSpeed MM and MindSpeed LLM. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/nearest.h"
#include "base/strbuf.h"
#include "config/schema.h"
#include "io_support.h"
#include "model/args.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char *path_of(oct_job_form form) {
    return form == OCT_JOB_MINDSPEED ? "job.yaml" : "job.toml";
}

static oct_status load(oct_job_form form, const char *text, const char *override, oct_job *job,
                       oct_error *err) {
    put_text(path_of(form), text);
    *err = (oct_error){0};
    return oct_job_load(path_of(form), &override, override ? 1 : 0, job, err);
}

static void load_good(oct_job_form form, const char *text, oct_job *job) {
    oct_error err;
    if (load(form, text, NULL, job, &err))
        fail_msg("%s\n%s", err.message, text);
}

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
    oct_status status = load(form, text, override, &job, &err);
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
    for (size_t f = 0; f < COUNT(forms); f++)
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
                oct_status status = load(forms[f].form, b.text, NULL, &job, &err);
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
    load_good(OCT_JOB_MINDSPEED,
              "features:\n  recompute: true\n  recompute_plan:\n"
              "    apply_modules: ['model.layers.{*}']\n    use_reentrant: false\n"
              "    op_replay_scopes:\n    - name: attn\n      apply_modules: [a]\n"
              "      save_rng: true\n      cache_ops: [aten.mm.default]\n",
              &job);
    assert_int_equal(job.activation_checkpoint.apply_modules.n, 1);
    oct_job_free(&job);
    oct_status status = load(OCT_JOB_MINDSPEED,
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
    oct_status status = load(OCT_JOB_TITAN,
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
    oct_status status = load(OCT_JOB_TITAN,
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
    for (size_t i = 1; i < COUNT(lines); i++) {
        assert_ptr_equal(strstr(line, lines[i]), line);
        line = strchr(line, '\n');
        assert_true((line == NULL) == (i + 1 == COUNT(lines)));
        line += line != NULL;
    }
    oct_job_free(&job);
}

static void given_a_model_that_is_not_here_that_is_said_first(void **state) {
    (void)state;
    oct_job job;
    oct_error err;
    oct_status status = load(OCT_JOB_MINDSPEED,
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
    status = load(OCT_JOB_TITAN,
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
    assert_int_equal(load(OCT_JOB_MINDSPEED, text, NULL, &job, &err), OCT_INVALID);
    assert_string_equal(err.message,
                        "job.yaml:1: compute_environment: unknown key, and no section of a "
                        "MindSpeed MM job is in the file; expected model, data, parallel, "
                        "training, features or tools");
    assert_null(job.others);
    oct_job_free(&job);
    text = "param_dtype: bf16\nsharding_size: auto\nreshard_after_forward: true\n";
    assert_int_equal(load(OCT_JOB_MINDSPEED, text, NULL, &job, &err), OCT_INVALID);
    assert_string_equal(err.message,
                        "job.yaml:1: param_dtype: unknown key, and no section of a MindSpeed MM "
                        "job is in the file; expected model, data, parallel, training, features or "
                        "tools; the nearest known key is parallel.fsdp_plan.param_dtype");
    assert_null(job.others);
    oct_job_free(&job);
    text = "gpt_args: {lr: 1.0e-5}\ndata: {dataset_param: {dataset_type: huggingface}}\n";
    assert_int_equal(load(OCT_JOB_MINDSPEED, text, NULL, &job, &err), OCT_INVALID);
    assert_string_equal(err.message, "job.yaml:1: gpt_args: jobs of the Megatron back end aren't "
                                     "read; expected none; got a table");
    assert_null(job.others);
    oct_job_free(&job);
}

static void given_thousands_of_mistakes_the_first_are_told_and_the_rest_counted(void **state) {
    (void)state;
    oct_job job;
    oct_error err;
    oct_strbuf b = {0};
    oct_strbuf_puts(&b, "[training]\n");
    for (int i = 0; i < 1000; i++)
        oct_strbuf_printf(&b, "zz%d = 1\n", i);
    assert_int_equal(load(OCT_JOB_TITAN, b.text, NULL, &job, &err), OCT_INVALID);
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
    load_good(OCT_JOB_TITAN, MX_JOB, &job);
    oct_job_free(&job);
    load_good(OCT_JOB_TITAN,
              NPU_MODULE "[model]\nconverters = [\"npu_gmm\", \"quantize.grouped_mm.mx\"]\n", &job);
    oct_job_free(&job);
    const char *wrong[] = {
        NPU_MODULE MX_JOB,
        "[experimental]\ncustom_args_module = \"torchtitan_npu.config.custom_config\"\n" MX_JOB,
        "[model]\nconverters = [\"quantize.grouped_mm.mx\", \"npu_gmm\"]\n",
        NPU_MODULE "[model]\nconverters = [\"quantize.grouped_mm.mx\", \"npu_gmm\"]\n"};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        assert_int_equal(load(OCT_JOB_TITAN, wrong[i], NULL, &job, &err), OCT_INVALID);
        assert_non_null(strstr(err.message, "model.converters: \"quantize.grouped_mm.mx\" needs "
                                            "\"npu_gmm\" before it"));
        oct_job_free(&job);
    }
}

static void given_a_converter_that_changes_the_model_it_is_refused(void **state) {
    (void)state;
    const char *wrong[] = {"npu_dsa", "npu_foo", "npu_gmn", "npu_mhc_pre", "deepseek_v4_sfa"};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        oct_job job;
        oct_error err;
        char text[128];
        snprintf(text, sizeof text, "[model]\nconverters = [\"npu_rope\", \"%s\"]\n", wrong[i]);
        assert_int_equal(load(OCT_JOB_TITAN, text, NULL, &job, &err), OCT_INVALID);
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
    for (size_t i = 0; i < COUNT(jobs); i++) {
        oct_job job;
        oct_error err;
        oct_status status = load(OCT_JOB_TITAN, jobs[i].text, NULL, &job, &err);
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
    for (size_t i = 0; i < COUNT(flavors); i++) {
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
    load_good(OCT_JOB_TITAN,
              "[checkpoint]\nsync_files = false\ndrop_page_cache_after_save = true\n"
              "empty_cache_after_save = false\n[optimizer]\nvirtual_allocator = true\n"
              "extra_param_group_split_rules = []\n",
              &job);
    oct_job_free(&job);
    assert_int_equal(load(OCT_JOB_TITAN,
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
    for (size_t i = 0; i < COUNT(overrides); i++) {
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
    for (size_t i = 0; i < COUNT(wrong); i++) {
        oct_job job;
        oct_error err = {0};
        assert_int_equal(oct_job_load("job.toml", &wrong[i], 1, &job, &err), OCT_INVALID);
        assert_non_null(strstr(err.message, "command line: --no-validation."));
        oct_job_free(&job);
    }
}

/* ---- MindSpeed ---- */

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
    load_good(OCT_JOB_MINDSPEED, mm_keys, &job);
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
    load_good(OCT_JOB_MINDSPEED,
              TRAIN_DATA
              ", val_dataset: b.txt}\ntraining: {val_interval: 5, micro_batch_size: 3}\n",
              &job);
    assert_true(job.validation.enable);
    assert_string_equal(job.validation.dataset_path, "b.txt");
    assert_int_equal(job.validation.seq_len, 48);
    assert_int_equal(job.validation.local_batch_size, 3);
    oct_job_free(&job);
    load_good(OCT_JOB_MINDSPEED, TRAIN_DATA ", val_dataset: b.txt}\n", &job);
    assert_false(job.validation.enable); /* val_interval is 0 */
    oct_job_free(&job);
    load_good(OCT_JOB_MINDSPEED,
              TRAIN_DATA "}\n  val_dataset_param: {basic_parameters: {dataset: b.txt}}\n"
                         "training: {val_interval: 5}\n",
              &job);
    assert_int_equal(job.validation.seq_len, 1024); /* the dataclass's default */
    oct_job_free(&job);
    assert_int_equal(
        load(OCT_JOB_MINDSPEED, TRAIN_DATA "}\ntraining: {val_interval: 5}\n", NULL, &job, &err),
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
         "job.yaml:1: data.dataset_param.basic_parameters.stage: reward models aren't supported; "
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
    for (size_t i = 0; i < COUNT(jobs); i++) {
        oct_job job;
        oct_error err;
        assert_int_equal(load(OCT_JOB_MINDSPEED, jobs[i].text, NULL, &job, &err), OCT_INVALID);
        assert_string_equal(err.message, jobs[i].message);
        assert_null(job.others);
        oct_job_free(&job);
    }
    oct_job job;
    load_good(OCT_JOB_MINDSPEED, "training: {save_format: hf, save_ckpt_dtype: bf16}\n", &job);
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
    for (size_t i = 0; i < COUNT(cases); i++) {
        oct_job job;
        load_good(OCT_JOB_MINDSPEED, cases[i].text, &job);
        assert_string_equal(job.quantization_plan.recipe_name, cases[i].recipe);
        assert_int_equal(job.quantization_plan.quant_converters.n, cases[i].n_converters);
        assert_string_equal(job.quantization_plan.quant_converters.items[0], "quantize.linear.mx");
        assert_string_equal(job.quantization_plan.apply_modules.items[0], "model.layers.{*}");
        assert_string_equal(job.quantization_plan.ignored_modules.items[0], cases[i].ignored);
        oct_job_free(&job);
    }
    oct_job job;
    load_good(OCT_JOB_MINDSPEED, NEWER, &job);
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
    for (size_t i = 0; i < COUNT(jobs); i++) {
        oct_job job;
        oct_error err;
        assert_int_equal(load(OCT_JOB_MINDSPEED, jobs[i].text, jobs[i].override, &job, &err),
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
    if (oct_job_load("job.yaml", overrides, COUNT(overrides), &job, &err))
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
        cmocka_unit_test(given_an_unknown_key_at_any_place_its_neighbour_there_is_named),
        cmocka_unit_test(given_a_table_where_a_value_stands_what_is_in_it_is_refused),
        cmocka_unit_test(given_a_list_of_tables_their_keys_are_known_too),
        cmocka_unit_test(given_several_mistakes_one_report_lists_them_by_line),
        cmocka_unit_test(given_wrong_dimensions_and_recipes_they_are_in_the_report),
        cmocka_unit_test(given_a_model_that_is_not_here_that_is_said_first),
        cmocka_unit_test(given_a_file_for_another_program_one_line_says_so),
        cmocka_unit_test(given_thousands_of_mistakes_the_first_are_told_and_the_rest_counted),
        cmocka_unit_test(given_a_refused_allocation_anywhere_a_report_fails_cleanly),
        cmocka_unit_test(given_torchtitans_experts_they_are_quantized_without_npu_gmm),
        cmocka_unit_test(given_a_converter_that_changes_the_model_it_is_refused),
        cmocka_unit_test(given_nothing_to_export_the_exports_dtype_does_not_matter),
        cmocka_unit_test(given_torchtitan_npus_debug_flavors_they_have_its_dimensions),
        cmocka_unit_test(given_torchtitan_npus_newer_keys_they_are_known),
        cmocka_unit_test(given_a_section_turned_off_its_flag_is),
        cmocka_unit_test(given_mindspeed_mms_own_keys_each_has_its_meaning),
        cmocka_unit_test(given_mindspeed_mms_validation_it_is_as_there),
        cmocka_unit_test(given_a_mindspeed_value_that_would_change_the_result_it_is_refused),
        cmocka_unit_test(given_a_plan_in_any_spelling_it_is_the_same_plan),
        cmocka_unit_test(given_a_plan_that_cannot_be_its_own_word_is_named),
        cmocka_unit_test(given_another_spelling_on_the_command_line_it_wins),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
