/* From a job to its parts: models of Hugging Face folders, frozen modules, recipes put in place. */
#include "train_support.h"

#include "base/count.h"
#include "hf/hf_folder.h"
#include "job/hf_model.h"
#include "job/hf_words.h"
#include "job/ranks.h"
#include "job/setup.h"
#include "job/variant.h"
#include "model/args_list.h"
#include "model/hf_names.h"

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

/* What most tests have around them: a folder, a job in it, and what is made of the job. */
typedef struct scene {
    workshop w;
    oct_job job;
    oct_model *model, *written; /* written: what a folder is made of */
    oct_conversion *conversion;
} scene;

static int open_scene(void **state) {
    static scene s;
    s = (scene){0};
    workshop_open(&s.w, 400);
    *state = &s;
    return 0;
}

static int close_scene(void **state) {
    scene *s = *state;
    oct_model_destroy(s->model);
    oct_model_destroy(s->written);
    oct_conversion_destroy(s->conversion);
    oct_job_free(&s->job);
    workshop_close(&s->w);
    return 0;
}

static const char config_json[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 64, "
    "\"intermediate_size\": 96, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
    "\"num_key_value_heads\": 2, \"vocab_size\": 320, \"rms_norm_eps\": 1e-6, \"rope_theta\": "
    "5000, "
    "\"hidden_act\": \"%s\"}";

static void write_config(const workshop *w, const char *activation) {
    char path[128], text[1024];
    workshop_path(w, "config.json", path);
    int n = snprintf(text, sizeof text, config_json, activation);
    assert_int_equal(oct_file_write(path, text, (size_t)n, NULL), OCT_OK);
}

/* A model as the job says, drawn from `seed`. */
static oct_model *make_model(const oct_job *job, uint64_t seed) {
    oct_model_args args;
    oct_model *model = NULL;
    oct_error err = {0};
    if (oct_setup_model_args(job, &args, &err) != OCT_OK ||
        oct_model_create(&args, OCT_PARAMS_ALLOCATED, &model, &err) != OCT_OK)
        fail_msg("%s", err.message);
    oct_model_init(model, seed);
    return model;
}

static void expect_same_parameters(oct_model *got, oct_model *expected) {
    int64_t n;
    oct_param *const *a = oct_model_params(got, &n), *const *b = oct_model_params(expected, &n);
    for (int64_t i = 0; i < n; i++)
        assert_memory_equal(a[i]->value, b[i]->value,
                            (size_t)oct_param_elements(a[i]) * sizeof(float));
}

/* Writes a model as Hugging Face lays it out, by hand. */
static void write_hf(oct_model *model, const char *folder) {
    const oct_model_args *args = oct_model_get_args(model);
    int64_t n;
    oct_param *const *params = oct_model_params(model, &n);
    oct_safetensors_item *items = oct_calloc_array((size_t)n, sizeof *items);
    char(*names)[OCT_HF_MODULE_NAME_SIZE] = oct_calloc_array((size_t)n, sizeof *names);
    float **copies = oct_calloc_array((size_t)n, sizeof *copies);
    for (int64_t i = 0; i < n; i++) {
        const oct_param *p = params[i];
        int64_t size = oct_param_elements(p), heads = oct_hf_permuted_heads(args, p->name);
        int64_t cols = size / p->shape[0], head_dim = heads ? p->shape[0] / heads : 0;
        copies[i] = oct_malloc_array((size_t)size, sizeof **copies);
        /* torchtitan's rows of a head are pairs (0,1), (2,3), ...; Hugging Face's are two halves */
        for (int64_t r = 0; r < p->shape[0]; r++) {
            int64_t in_head = head_dim ? r % head_dim : 0;
            int64_t to = head_dim ? r - in_head + in_head % 2 * (head_dim / 2) + in_head / 2 : r;
            memcpy(copies[i] + to * cols, p->value + r * cols, (size_t)cols * sizeof **copies);
        }
        assert_true(oct_hf_name(args->family, p->name, names[i]));
        oct_tensor tensor = {.dtype = OCT_F32, .n_dims = p->n_dims, .data = copies[i]};
        memcpy(tensor.shape, p->shape, sizeof p->shape);
        items[i] = oct_safetensors_item_of(names[i], &tensor);
    }
    assert_int_equal(oct_hf_model_write(folder, items, n, 0, NULL), OCT_OK);
    for (int64_t i = 0; i < n; i++)
        oct_free(copies[i]);
    oct_free(copies);
    oct_free(names);
    oct_free(items);
}

static void given_a_hugging_face_folder_its_weights_are_read(void **state) {
    scene *s = *state;
    oct_error err = {0};
    char from[128];
    snprintf(from, sizeof from, "--checkpoint.initial_load_path=%s", s->w.folder);
    load_job(&s->w, &s->job, LIST("--checkpoint.enable", "--checkpoint.initial_load_in_hf", from));
    s->written = make_model(&s->job, 1);
    s->model = make_model(&s->job, 2);
    write_hf(s->written, s->w.folder);
    assert_int_equal(oct_setup_parameters(&s->job, 3, s->model, &err), OCT_OK);
    expect_same_parameters(s->model, s->written);
}

/* A model with experts as Hugging Face lays it out: a tensor an expert, the biases under their own
 * name. `left_out` (NULL: nothing) is missing. */
static void write_hf_experts(const oct_model *model, const char *folder, const char *left_out) {
    enum { MAX = 512 };
    static oct_safetensors_item items[MAX];
    static char names[MAX][OCT_HF_MODULE_NAME_SIZE];
    const oct_model_args *args = oct_model_get_args(model);
    int64_t n, n_items = 0;
    oct_param *const *params = oct_model_params(model, &n);
    for (int64_t i = 0; i < n; i++) {
        const oct_param *p = params[i];
        int64_t n_slices = p->n_dims == 3 ? p->shape[0] : 1,
                size = oct_param_elements(p) / n_slices;
        for (int64_t e = 0; e < n_slices; e++) {
            char *name = names[n_items];
            assert_true(n_slices > 1 ? oct_hf_expert_name(args->family, p->name, e, name)
                                     : oct_hf_name(args->family, p->name, name));
            oct_tensor tensor = {.dtype = OCT_F32, .n_dims = n_slices > 1 ? 2 : p->n_dims};
            memcpy(tensor.shape, p->shape + (n_slices > 1), 2 * sizeof(int64_t));
            tensor.data = p->value + e * size;
            if (!left_out || strcmp(name, left_out) != 0)
                items[n_items++] = oct_safetensors_item_of(name, &tensor);
        }
    }
    for (int64_t i = args->n_dense_layers; i < args->n_layers; i++) {
        const oct_tensor bias =
            oct_tensor_1d(OCT_F32, args->num_experts, oct_model_moe(model, i)->expert_bias);
        snprintf(names[n_items], sizeof names[0],
                 "model.layers.%d.mlp.gate.e_score_correction_bias", (int)i);
        items[n_items] = oct_safetensors_item_of(names[n_items], &bias);
        n_items++;
    }
    assert_in_range(n_items, 1, MAX);
    assert_int_equal(oct_hf_model_write(folder, items, n_items, 0, NULL), OCT_OK);
}

static void given_a_hugging_face_folder_with_experts_weights_and_biases_are_read(void **state) {
    scene *s = *state;
    oct_error err = {0};
    load_job(&s->w, &s->job,
             LIST("--model.name=deepseek_v3", "--model.args.moe_inter_dim=24",
                  "--model.args.n_layers=3", "--model.args.q_lora_rank=16"));
    s->written = make_model(&s->job, 1);
    s->model = make_model(&s->job, 2);
    for (int e = 0; e < 8; e++)
        oct_model_moe(s->written, 2)->expert_bias[e] = (float)e / 8;
    write_hf_experts(s->written, s->w.folder, NULL);
    if (oct_setup_parameters_from_hf(s->w.folder, OCT_HF_ANY_WEIGHTS, s->model, &err) != OCT_OK)
        fail_msg("%s", err.message);
    expect_same_parameters(s->model, s->written);
    assert_memory_equal(oct_model_moe(s->model, 2)->expert_bias,
                        oct_model_moe(s->written, 2)->expert_bias, 8 * sizeof(float));
    write_hf_experts(s->written, s->w.folder, "model.layers.1.mlp.experts.7.up_proj.weight");
    assert_int_equal(oct_setup_parameters_from_hf(s->w.folder, OCT_HF_ANY_WEIGHTS, s->model, &err),
                     OCT_INVALID);
    assert_non_null(
        strstr(err.message, "missing: model.layers.1.mlp.experts.7.up_proj.weight (24, 64)"));
}

/* Values whose binary16 is known, as the first elements of each weight. */
static void given_half_precision_weights_they_are_widened_exactly(void **state) {
    scene *s = *state;
    static const uint16_t halves[] = {0x3c00, 0xc000, 0x0001, 0x83ff, 0x0400, 0x7bff, 0x8000};
    static const float floats[] = {1, -2, 0x1p-24f, -0x1.ff8p-15f, 0x1p-14f, 65504, -0.0f};
    oct_error err = {0};
    int64_t n;
    load_job(&s->w, &s->job, NULL);
    oct_model *model = s->model = make_model(&s->job, 1);
    oct_param *const *params = oct_model_params(model, &n);
    oct_safetensors_item *items = oct_calloc_array((size_t)n, sizeof *items);
    char(*names)[OCT_HF_MODULE_NAME_SIZE] = oct_calloc_array((size_t)n, sizeof *names);
    uint16_t *bits = oct_calloc_array(320 * 64, sizeof *bits); /* the largest weight */
    memcpy(bits, halves, sizeof halves);
    for (int64_t i = 0; i < n; i++) {
        assert_true(oct_hf_name(OCT_MODEL_LLAMA3, params[i]->name, names[i]));
        oct_tensor tensor = {.dtype = OCT_F16, .n_dims = params[i]->n_dims, .data = bits};
        memcpy(tensor.shape, params[i]->shape, sizeof params[i]->shape);
        items[i] = oct_safetensors_item_of(names[i], &tensor);
    }
    assert_int_equal(oct_hf_model_write(s->w.folder, items, n, 0, NULL), OCT_OK);
    if (oct_setup_parameters_from_hf(s->w.folder, OCT_HF_ANY_WEIGHTS, model, &err) != OCT_OK)
        fail_msg("%s", err.message);
    assert_memory_equal(oct_model_find_param(model, "output.weight")->value, floats, sizeof floats);
    oct_free(bits);
    oct_free(names);
    oct_free(items);
}

/* The scene's job from a YAML file: its model is that of config.json. */
static void load_yaml(scene *s, const char *rest, const char *const *overrides, int n) {
    char path[128], text[1024];
    oct_error err = {0};
    workshop_path(&s->w, "job.yaml", path);
    int length = snprintf(text, sizeof text,
                          "model:\n  model_name_or_path: %s\n"
                          "training:\n  train_iters: 2\n  micro_batch_size: 2\n%s",
                          s->w.folder, rest);
    assert_int_equal(oct_file_write(path, text, (size_t)length, NULL), OCT_OK);
    if (oct_job_load(path, overrides, n, &s->job, &err) != OCT_OK)
        fail_msg("%s", err.message);
}

/* The scene's model, and the plan of its conversion. */
static const oct_plan *make_plan(scene *s) {
    oct_error err = {0};
    s->model = make_model(&s->job, 1);
    if (oct_conversion_create(&s->job, s->model, &s->conversion, &err) != OCT_OK)
        fail_msg("%s", err.message);
    return oct_conversion_plan(s->conversion);
}

static void write_text(const workshop *w, const char *name, const char *text) {
    char path[128];
    workshop_path(w, name, path);
    assert_int_equal(oct_file_write(path, text, strlen(text), NULL), OCT_OK);
}

static void given_config_json_of_models_with_experts_their_dimensions_are_read(void **state) {
    scene *s = *state;
    oct_model_args args;
    oct_error err = {0};
#define COMMON                                                                                     \
    "\"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 3, "                   \
    "\"num_attention_heads\": 4, \"vocab_size\": 320, \"moe_intermediate_size\": 24, "             \
    "\"num_experts_per_tok\": 2, \"hidden_act\": \"silu\""
    write_text(&s->w, "config.json",
               "{\"model_type\": \"qwen3_moe\", " COMMON ", \"num_experts\": 6, \"head_dim\": 16, "
               "\"norm_topk_prob\": true}");
    if (oct_setup_model_args_from_hf(s->w.folder, &args, &err) ||
        oct_model_args_resolve(&args, &err))
        fail_msg("%s", err.message);
    assert_int_equal(args.family, OCT_MODEL_QWEN3);
    assert_int_equal(args.num_experts, 6);
    assert_int_equal(args.top_k, 2);
    assert_int_equal(args.moe_inter_dim, 24);
    assert_int_equal(args.n_dense_layers, 0);
    assert_int_equal(args.score_func, OCT_SCORE_SOFTMAX);
    assert_true(args.route_norm);
    write_text(
        &s->w, "config.json",
        "{\"model_type\": \"deepseek_v3\", " COMMON ", \"n_routed_experts\": 8, "
        "\"n_shared_experts\": 1, \"n_group\": 4, \"topk_group\": 2, "
        "\"first_k_dense_replace\": 1, \"routed_scaling_factor\": 2.5, \"q_lora_rank\": null, "
        "\"kv_lora_rank\": 32, \"qk_nope_head_dim\": 12, \"qk_rope_head_dim\": 8, "
        "\"v_head_dim\": 10, \"scoring_func\": \"sigmoid\", \"rope_scaling\": {\"type\": "
        "\"yarn\", \"factor\": 40, \"beta_fast\": 32, \"beta_slow\": 1, \"mscale\": 1.0, "
        "\"mscale_all_dim\": 0.7, \"original_max_position_embeddings\": 4096}}");
    if (oct_setup_model_args_from_hf(s->w.folder, &args, &err) ||
        oct_model_args_resolve(&args, &err))
        fail_msg("%s", err.message);
    assert_int_equal(args.family, OCT_MODEL_DEEPSEEK_V3);
    assert_int_equal(args.num_expert_groups, 4);
    assert_int_equal(args.num_limited_groups, 2);
    assert_int_equal(args.num_shared_experts, 1);
    assert_int_equal(args.n_dense_layers, 1);
    assert_int_equal(args.q_lora_rank, 0);
    assert_int_equal(args.head_dim, 20);
    assert_int_equal(args.score_func, OCT_SCORE_SIGMOID);
    assert_true(args.route_norm);
    assert_true(args.route_scale == 2.5);
    assert_true(args.mscale == 0.7);
    assert_int_equal(args.rope_scaling, OCT_ROPE_YARN);
    write_text(&s->w, "config.json",
               "{\"model_type\": \"qwen3_moe\", " COMMON ", \"num_experts\": 6, "
               "\"mlp_only_layers\": [1]}");
    if (oct_setup_model_args_from_hf(s->w.folder, &args, &err))
        fail_msg("%s", err.message);
    for (int64_t i = 0; i < 3; i++)
        assert_int_equal(oct_model_args_has_experts(&args, i), i != 1);
}

/* The job of a YAML plan on experts: Hugging Face's names, the gate left alone. */
static void given_a_yaml_plan_experts_are_converted_and_the_gate_is_not(void **state) {
    scene *s = *state;
    write_text(&s->w, "config.json",
               "{\"model_type\": \"qwen3_moe\", " COMMON ", \"num_experts\": 6, \"head_dim\": 16}");
    load_yaml(s, "  quantization_plan:\n    recipe_name: mxfp8\n", NULL, 0);
    const oct_plan *plan = make_plan(s);
    int n_experts = 0;
    for (int64_t i = 0; i < plan->n_rows; i++) {
        const oct_plan_row *row = &plan->rows[i];
        bool gate = strstr(row->name, ".mlp.gate") != NULL;
        if (row->is_experts) {
            assert_non_null(strstr(row->name, ".mlp.experts"));
            assert_true(row->grouped && row->recipe);
            n_experts++;
        }
        if (gate)
            assert_null(row->recipe);
    }
    assert_int_equal(n_experts, 3);
}

static void given_a_yaml_job_the_dimensions_are_those_of_config_json(void **state) {
    scene *s = *state;
    oct_error err = {0};
    oct_model_args args;
    write_config(&s->w, "silu");
    load_yaml(s, "", NULL, 0);
    if (oct_setup_model_args(&s->job, &args, &err) != OCT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(args.family, OCT_MODEL_LLAMA3);
    assert_int_equal(args.dim, 64);
    assert_int_equal(args.hidden_dim, 96);
    assert_int_equal(args.n_layers, 2);
    assert_int_equal(args.n_kv_heads, 2);
    assert_int_equal(args.vocab_size, 320);
    assert_true(args.norm_eps == 1e-6 && args.rope_theta == 5000);
    write_config(&s->w, "gelu");
    assert_int_equal(oct_setup_model_args(&s->job, &args, &err), OCT_INVALID);
    assert_non_null(strstr(err.message, "hidden_act"));
}

static void given_a_yaml_plan_hugging_face_names_decide(void **state) {
    scene *s = *state;
    write_config(&s->w, "silu");
    load_yaml(s,
              "  quantization_plan:\n    recipe_name: dynamic_MX-1-1-32_E4M3_E4M3_E4M3\n"
              "    apply_modules: ['model.layers.{*}']\n"
              "    ignored_modules: ['*down_proj', 'lm_head']\n",
              NULL, 0);
    const oct_plan *plan = make_plan(s);
    int n_converted = 0;
    for (int64_t i = 0; i < plan->n_rows; i++) {
        const oct_plan_row *row = &plan->rows[i];
        n_converted += row->recipe != NULL;
        if (strstr(row->name, "down_proj") || strcmp(row->name, "lm_head") == 0)
            assert_null(row->recipe);
    }
    assert_int_equal(plan->n_rows, 2 * 7 + 1);
    assert_int_equal(n_converted, 2 * 6);
}

static void given_frozen_modules_their_parameters_do_not_train(void **state) {
    scene *s = *state;
    const char *freeze = "--model.freeze=model.embed_tokens,model.layers.0";
    write_config(&s->w, "silu");
    load_yaml(s, "", &freeze, 1);
    oct_model *model = s->model = make_model(&s->job, 1);
    oct_setup_frozen(&s->job, model);
    assert_true(oct_model_find_param(model, "tok_embeddings.weight")->frozen);
    assert_true(oct_model_find_param(model, "layers.0.attention.wq.weight")->frozen);
    assert_true(oct_model_find_param(model, "layers.0.ffn_norm.weight")->frozen);
    assert_false(oct_model_find_param(model, "layers.1.attention.wq.weight")->frozen);
    assert_false(oct_model_find_param(model, "output.weight")->frozen);
}

static int n_converters(const oct_job *job, const char *name) {
    int n = 0;
    for (size_t i = 0; i < job->model.converters.n; i++)
        n += strcmp(job->model.converters.items[i], name) == 0;
    return n;
}

static void given_another_recipe_the_job_changes_only_in_it(void **state) {
    scene *s = *state;
    oct_error err = {0};
    const char *overrides[] = {"--model.converters=npu_rope,quantize.linear.mx",
                               "--training.mixed_precision_param=float32"};
    assert_int_equal(oct_variant_load(s->w.job_path, overrides, 2, "bf16", &s->job, &err), OCT_OK);
    assert_int_equal(n_converters(&s->job, "quantize.linear.mx"), 0);
    assert_int_equal(n_converters(&s->job, "npu_rope"), 1);
    assert_int_equal(s->job.training.mixed_precision_param, OCT_JOB_BFLOAT16);
    oct_job_free(&s->job);
    assert_int_equal(oct_variant_load(s->w.job_path, NULL, 0, "FP32", &s->job, &err), OCT_OK);
    assert_int_equal(s->job.training.mixed_precision_param, OCT_JOB_FLOAT32);
    oct_job_free(&s->job);
    assert_int_equal(oct_variant_load(s->w.job_path, overrides, 2, "hif8", &s->job, &err), OCT_OK);
    assert_int_equal(n_converters(&s->job, "quantize.linear.mx"), 1);
    assert_string_equal(s->job.quantize.linear.mx.recipe_name, "hif8");
    assert_int_equal(s->job.training.mixed_precision_param, OCT_JOB_FLOAT32);
    oct_job_free(&s->job);
    assert_int_equal(oct_variant_load(s->w.job_path, NULL, 0, "mxfp9", &s->job, &err), OCT_INVALID);
}

#define SCENE(story) cmocka_unit_test_setup_teardown(story, open_scene, close_scene)

/* What config.json can't say: starts, training, lengths; and what has no effect. */
static bool is_said(const char *name, const oct_model_args *a) {
    static const char *const never[] = {
        "max_seq_len",           "depth_init",         "multiple_of",
        "ffn_dim_multiplier",    "load_balance_coeff", "latent_norm_eps",
        "rope_attention_factor", "yarn_always",        "attn_mask_type"};
    for (size_t i = 0; i < OCT_COUNT(never); i++)
        if (strcmp(name, never[i]) == 0)
            return false;
    bool of_scaling = strncmp(name, "rope_scaling", 12) == 0 || strncmp(name, "beta_", 5) == 0 ||
                      strcmp(name, "mscale") == 0 || strstr(name, "_freq_factor") ||
                      strstr(name, "rope_original");
    if (of_scaling)
        return a->rope_scaling == OCT_ROPE_LLAMA3
                   ? !strncmp(name, "rope", 4)
                   : oct_model_args_uses_yarn(a) && !strstr(name, "_freq_factor");
    if (strcmp(name, "num_limited_groups") == 0 && a->num_expert_groups == 0)
        return false;
    return a->num_experts > 0 ||
           (strcmp(name, "route_scale") != 0 && strcmp(name, "route_norm") != 0 &&
            strcmp(name, "moe_inter_dim") != 0 && strcmp(name, "num_limited_groups") != 0);
}

static void check_config(const workshop *w, oct_model_args *args) {
    oct_strbuf text = {0};
    oct_model_args back;
    oct_error err = {0};
    char path[128];
    const char *name;
    if (oct_model_args_resolve(args, &err) != OCT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(oct_hf_words_put(args, NULL, "float32", &text, NULL, NULL), OCT_OK);
    assert_true(text.length > 0);
    workshop_path(w, "config.json", path);
    assert_int_equal(oct_file_write(path, text.text, text.length, NULL), OCT_OK);
    oct_strbuf_free(&text);
    if (oct_setup_model_args_from_hf(w->folder, &back, &err) != OCT_OK ||
        oct_model_args_resolve(&back, &err) != OCT_OK)
        fail_msg("%s", err.message);
    for (size_t i = 0; (name = oct_model_args_name(i)); i++) {
        oct_strbuf there = {0};
        oct_model_args_put(&back, i, &text);
        oct_model_args_put(args, i, &there);
        if (is_said(name, args) && strcmp(text.text, there.text) != 0)
            fail_msg("%s %s: %s: %s comes back as %s", oct_model_family_name(args->family),
                     args->flavor, name, there.text, text.text);
        oct_strbuf_free(&text);
        oct_strbuf_free(&there);
    }
}

static void given_any_flavor_the_config_of_its_checkpoints_says_the_same_model(void **state) {
    scene *s = *state;
    static const char *const families[] = {"llama3", "qwen3", "deepseek_v3"};
    for (size_t f = 0; f < 3; f++)
        for (const char *const *flavor = oct_model_flavors(families[f]); *flavor; flavor++)
            for (int long_one = 0; long_one < 2; long_one++) { /* with yarn in force, and without */
                oct_model_args args;
                assert_int_equal(oct_model_args_flavor(families[f], *flavor, &args, NULL), OCT_OK);
                args.max_seq_len = long_one ? 8192 : 512;
                check_config(&s->w, &args);
            }
}

static void given_a_model_without_words_there_is_no_config(void **state) {
    (void)state;
    oct_model_args args;
    oct_strbuf text = {0};
    assert_int_equal(oct_model_args_flavor("llama3", "demo", &args, NULL), OCT_OK);
    assert_int_equal(oct_model_args_resolve(&args, NULL), OCT_OK);
    args.qk_norm = true;
    assert_int_equal(oct_hf_words_put(&args, NULL, "float32", &text, NULL, NULL), OCT_OK);
    args.qk_norm = false;
    args.mlp_bias = args.qkv_bias = true;
    assert_int_equal(oct_hf_words_put(&args, NULL, "float32", &text, NULL, NULL), OCT_OK);
    assert_int_equal(text.length, 0);
}

/* Accumulation steps of the file and a global batch of the command line: both can't be. */
static void given_a_global_batch_that_accumulation_steps_contradict_it_is_refused(void **state) {
    scene *s = *state;
    static const char text[] =
        "training:\n  micro_batch_size: 2\n  gradient_accumulation_steps: 3\n";
    char path[128];
    int64_t n;
    oct_error err = {0};
    workshop_path(&s->w, "job.yaml", path);
    assert_int_equal(oct_file_write(path, text, strlen(text), NULL), OCT_OK);
    if (oct_job_load(path, LIST("--training.global_batch_size=12"), 1, &s->job, &err) != OCT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(oct_ranks_micro_batches(&s->job, 2, &n, &err), OCT_OK);
    assert_int_equal(n, 3);
    assert_int_equal(oct_ranks_micro_batches(&s->job, 1, &n, &err), OCT_INVALID);
    assert_non_null(strstr(err.message, "2 x 3 x 1; got 12"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        SCENE(given_a_hugging_face_folder_its_weights_are_read),
        SCENE(given_a_hugging_face_folder_with_experts_weights_and_biases_are_read),
        SCENE(given_config_json_of_models_with_experts_their_dimensions_are_read),
        SCENE(given_a_yaml_plan_experts_are_converted_and_the_gate_is_not),
        SCENE(given_half_precision_weights_they_are_widened_exactly),
        SCENE(given_a_yaml_job_the_dimensions_are_those_of_config_json),
        SCENE(given_a_yaml_plan_hugging_face_names_decide),
        SCENE(given_frozen_modules_their_parameters_do_not_train),
        SCENE(given_another_recipe_the_job_changes_only_in_it),
        cmocka_unit_test_setup_teardown(
            given_any_flavor_the_config_of_its_checkpoints_says_the_same_model, open_scene,
            close_scene),
        cmocka_unit_test(given_a_model_without_words_there_is_no_config),
        cmocka_unit_test_setup_teardown(
            given_a_global_batch_that_accumulation_steps_contradict_it_is_refused, open_scene,
            close_scene),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
