/* Model dimensions, trees, initial values and Hugging Face names: all that needs no product. */
#include "story.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/count.h"
#include "base/thread.h"
#include "model/args_list.h"
#include "model/hf_names.h"
#include "model/model.h"

static oct_model_args flavor(const char *name, const char *flavor_name) {
    oct_model_args args;
    oct_error err = {0};
    if (oct_model_args_flavor(name, flavor_name, &args, &err))
        fail_msg("%s", err.message);
    return args;
}

static oct_model *create(const oct_model_args *args, oct_params_mode mode) {
    oct_model *model;
    oct_error err = {0};
    if (oct_model_create(args, mode, &model, &err))
        fail_msg("%s", err.message);
    return model;
}

/* ---- flavors ---- */

/* Sizes from the model cards and by hand: V D (twice if untied) + L (2 D + D hd (2 H + 2 G)
 * [+ 2 hd] + 3 D F) + D. */
static void given_every_flavor_the_number_of_parameters_is_the_published_one(void **state) {
    (void)state;
    static const struct {
        const char *name, *flavor;
        int64_t n;
    } cases[] = {
        {"llama3", "8B", 8030261248},
        {"llama3", "70B", 70553706496},
        {"llama3", "405B", 405853388800},
        {"llama3", "debugmodel", 6 * (512 + 4 * 65536 + 3 * 256 * 768) + 2 * 2048 * 256 + 256},
        {"llama3", "30M", 8 * (1024 + 4 * 512 * 512 + 3 * 512 * 1376) + 2 * 4096 * 512 + 512},
        {"llama3", "125M", 12 * (1536 + 4 * 768 * 768 + 3 * 768 * 2048) + 2 * 32000 * 768 + 768},
        {"llama3", "demo", 6 * (512 + 3 * 256 * 256 + 3 * 256 * 704) + 2 * 4096 * 256 + 256},
        {"qwen3", "0.6B", 596049920},
        {"qwen3", "1.7B", 1720574976},
        {"qwen3", "4B", 4022468096},
        {"qwen3", "8B", 8190735360},
        {"qwen3", "14B", 14768307200},
        {"qwen3", "32B", 32762123264},
        {"qwen3", "30B-A3B", 30532122624},
        {"qwen3", "235B-A22B", 235093634560},
        {"deepseek_v3", "16B", 15706484224},
        {"deepseek_v3", "236B", 235741434880},
        {"deepseek_v3", "671B", 671026404352},
    };
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        oct_model_args args = flavor(cases[i].name, cases[i].flavor);
        oct_model *model = create(&args, OCT_PARAMS_SHAPES_ONLY);
        assert_int_equal(oct_model_n_parameters(model), cases[i].n);
        oct_model_destroy(model);
    }
}

/* torchtitan v0.2.2: attn_type flex or varlen, with attn_mask_type block_causal. */
static void given_a_flavor_documents_see_each_other_where_they_do_in_torchtitan(void **state) {
    (void)state;
    static const char *const families[] = {"llama3", "qwen3", "deepseek_v3"};
    static const char *const inside[] = {"llama3 debugmodel_flex_attn",
                                         "llama3 debugmodel_varlen_attn",
                                         "llama3 8B_flex",
                                         "llama3 8B_varlen",
                                         "deepseek_v3 16B",
                                         "deepseek_v3 debugmodel_flex_attn",
                                         "deepseek_v3 236B",
                                         "deepseek_v3 671B"};
    int n = 0;
    for (size_t f = 0; f < 3; f++)
        for (const char *const *name = oct_model_flavors(families[f]); *name; name++) {
            char full[64];
            snprintf(full, sizeof full, "%s %s", families[f], *name);
            bool expected = false;
            for (size_t i = 0; i < OCT_COUNT(inside); i++)
                expected |= strcmp(inside[i], full) == 0;
            oct_model_args args = flavor(families[f], *name);
            if ((args.attn_mask_type == OCT_ATTN_BLOCK_CAUSAL) != expected)
                fail_msg("%s: %s", full, oct_attn_mask_name(args.attn_mask_type));
            n += expected;
        }
    assert_int_equal(n, OCT_COUNT(inside));
}

static void given_llama3_flavors_hidden_dim_follows_the_rule_of_llama(void **state) {
    (void)state;
    static const struct {
        const char *flavor;
        int64_t hidden_dim;
    } cases[] = {{"debugmodel", 768}, {"8B", 14336}, {"70B", 28672}, {"405B", 53248}};
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        oct_model_args args = flavor("llama3", cases[i].flavor);
        assert_int_equal(oct_model_args_resolve(&args, NULL), OCT_OK);
        assert_int_equal(args.hidden_dim, cases[i].hidden_dim);
    }
}

static void given_shapes_only_the_largest_model_takes_no_parameter_memory(void **state) {
    (void)state;
    size_t before = oct_alloc_live_bytes();
    oct_model_args args = flavor("llama3", "405B");
    oct_model *model = create(&args, OCT_PARAMS_SHAPES_ONLY);
    assert_true(oct_alloc_live_bytes() - before < ((size_t)4 << 20));
    int64_t n;
    oct_param *const *params = oct_model_params(model, &n);
    assert_int_equal(n, 126 * 9 + 3);
    for (int64_t i = 0; i < n; i++)
        assert_null(params[i]->value);
    oct_model_destroy(model);
    assert_int_equal(oct_alloc_live_bytes(), before);
}

static void given_a_flavor_flops_follow_the_formula_of_torchtitan(void **state) {
    (void)state;
    oct_model_args args = flavor("llama3", "30M");
    oct_model *model = create(&args, OCT_PARAMS_SHAPES_ONLY);
    double n = (double)oct_model_n_parameters(model) - 4096 * 512;
    double expected = 6 * n + 12.0 * 8 * 8 * 64 * 256;
    assert_true(oct_model_flops_per_token(model, 256) == expected);
    oct_model_destroy(model);

    args = flavor("qwen3", "debugmodel"); /* tied: the table is the head */
    model = create(&args, OCT_PARAMS_SHAPES_ONLY);
    expected = 6.0 * (double)oct_model_n_parameters(model) + 12.0 * 8 * 16 * 128 * 64;
    assert_true(oct_model_flops_per_token(model, 64) == expected);
    oct_model_destroy(model);
}

/* What is recorded of sets of layers comes back, and nothing else is taken for one. */
static void given_sets_of_layers_they_are_written_as_runs_and_come_back(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int layers[6]; /* -1 ends */
    } cases[] = {{"\"\"", {-1}},
                 {"\"0\"", {0, -1}},
                 {"\"1-3,7\"", {1, 2, 3, 7, -1}},
                 {"\"0-1,62-64,1023\"", {0, 1, 62, 63, 64, 1023}}};
    size_t windowed = 0;
    while (strcmp(oct_model_args_name(windowed), "windowed") != 0)
        windowed++;
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        oct_model_args args = flavor("llama3", "demo"), back = args;
        oct_strbuf text = {0};
        oct_error err = {0};
        char bare[64];
        for (int k = 0; k < 6 && cases[i].layers[k] >= 0; k++)
            oct_layer_set_add(&args.windowed, cases[i].layers[k]);
        oct_model_args_put(&args, windowed, &text);
        assert_string_equal(text.text, cases[i].text);
        snprintf(bare, sizeof bare, "%.*s", (int)strlen(text.text) - 2, text.text + 1);
        const oct_arg arg = {.type = OCT_ARG_TEXT, .text = bare};
        assert_int_equal(oct_model_args_take(&back, "windowed", arg, &err), OCT_OK);
        assert_memory_equal(&back.windowed, &args.windowed, sizeof back.windowed);
        oct_strbuf_free(&text);
    }
    static const char *const wrong[] = {"1024", "3-1", "-1",   "1-",
                                        "a",    "1;2", "1--2", "99999999999999999999"};
    for (size_t i = 0; i < OCT_COUNT(wrong); i++) {
        oct_model_args args = flavor("llama3", "demo");
        oct_error err = {0};
        const oct_arg arg = {.type = OCT_ARG_TEXT, .text = wrong[i]};
        assert_int_equal(oct_model_args_take(&args, "windowed", arg, &err), OCT_INVALID);
        assert_non_null(strstr(err.message, "windowed: impossible value; expected layers"));
    }
}

static void given_a_tree_names_are_those_of_torchtitan(void **state) {
    (void)state;
    oct_model_args args = flavor("qwen3", "0.6B");
    oct_model *model = create(&args, OCT_PARAMS_SHAPES_ONLY);
    static const char *const names[] = {"tok_embeddings",
                                        "layers",
                                        "layers.0",
                                        "layers.27.attention_norm",
                                        "layers.3.attention",
                                        "layers.3.attention.wq",
                                        "layers.3.attention.wk",
                                        "layers.3.attention.wv",
                                        "layers.3.attention.wo",
                                        "layers.3.attention.q_norm",
                                        "layers.3.attention.k_norm",
                                        "layers.3.ffn_norm",
                                        "layers.3.feed_forward",
                                        "layers.3.feed_forward.w1",
                                        "layers.3.feed_forward.w2",
                                        "layers.3.feed_forward.w3",
                                        "norm",
                                        "output"};
    for (size_t i = 0; i < OCT_COUNT(names); i++) {
        oct_module *m = oct_module_find(oct_model_root(model), names[i]);
        assert_non_null(m);
        assert_string_equal(m->name, names[i]);
    }
    assert_null(oct_module_find(oct_model_root(model), "layers.28"));
    assert_non_null(oct_model_find_param(model, "layers.0.attention.q_norm.weight"));
    assert_null(oct_model_find_param(model, "output.weight")); /* tied */
    oct_linear *head = oct_linear_from(oct_module_find(oct_model_root(model), "output"));
    assert_ptr_equal(head->weight, oct_model_find_param(model, "tok_embeddings.weight"));
    oct_model_destroy(model);

    args = flavor("llama3", "8B");
    model = create(&args, OCT_PARAMS_SHAPES_ONLY);
    assert_null(oct_module_find(oct_model_root(model), "layers.0.attention.q_norm"));
    assert_non_null(oct_model_find_param(model, "output.weight"));
    oct_model_destroy(model);
}

/* ---- what users write ---- */

static void expect_refusal(oct_status status, const oct_error *err, const char *const *words) {
    assert_int_equal(status, OCT_INVALID);
    for (; *words; words++)
        if (!strstr(err->message, *words))
            fail_msg("\"%s\" lacks \"%s\"", err->message, *words);
    assert_null(strchr(err->message, '\n'));
}

static void given_an_unknown_model_or_flavor_the_nearest_and_the_list_are_named(void **state) {
    (void)state;
    oct_model_args args;
    oct_error err = {0};
    oct_status status = oct_model_args_flavor("lama3", "8B", &args, &err);
    expect_refusal(status, &err,
                   (const char *[]){"model.name", "\"llama3\"", "qwen3", "lama3", NULL});
    err = (oct_error){0};
    status = oct_model_args_flavor("llama3", "debugmodl", &args, &err);
    expect_refusal(status, &err,
                   (const char *[]){"model.flavor", "\"debugmodel\"", "405B", "125M", NULL});
    err = (oct_error){0};
    status = oct_model_args_flavor("qwen3", "9000B", &args, &err);
    expect_refusal(status, &err, (const char *[]){"model.flavor", "0.6B", "got \"9000B\"", NULL});
}

static void given_values_for_dimensions_they_are_set_or_refused_in_one_line(void **state) {
    (void)state;
    oct_model_args args = flavor("llama3", "demo");
    oct_arg four = {.type = OCT_ARG_INT, .i = 4}, yes = {.type = OCT_ARG_BOOL, .b = true},
            half = {.type = OCT_ARG_DOUBLE, .d = 0.5}, minus = {.type = OCT_ARG_INT, .i = -4},
            nan = {.type = OCT_ARG_DOUBLE, .d = NAN}, huge = {.type = OCT_ARG_INT, .i = INT64_MAX};
    assert_int_equal(oct_model_args_set(&args, "n_layers", four, NULL), OCT_OK);
    assert_int_equal(oct_model_args_set(&args, "n-heads", four, NULL), OCT_OK);
    assert_int_equal(oct_model_args_set(&args, "enable_weight_tying", yes, NULL), OCT_OK);
    assert_int_equal(oct_model_args_set(&args, "rope_scaling", yes, NULL), OCT_OK);
    assert_int_equal(oct_model_args_set(&args, "rope_theta", four, NULL), OCT_OK);
    assert_int_equal(oct_model_args_set(&args, "norm_eps", half, NULL), OCT_OK);
    assert_int_equal(args.n_layers, 4);
    assert_int_equal(args.n_heads, 4);
    assert_true(args.enable_weight_tying);
    assert_int_equal(args.rope_scaling, OCT_ROPE_LLAMA3);
    assert_true(args.rope_theta == 4.0 && args.norm_eps == 0.5);

    static const char *const unknown[] = {"n_layer:", "\"n_layers\"", NULL};
    oct_error err = {0};
    expect_refusal(oct_model_args_set(&args, "n_layer", four, &err), &err, unknown);
    const struct {
        const char *key;
        oct_arg value;
        const char *words[4];
    } refused[] = {
        {"dim", minus, {"dim:", "from 1", "got -4"}},
        {"dim", half, {"dim:", "an integer", "got 0.5"}},
        {"dim", yes, {"dim:", "an integer", "got true"}},
        {"vocab_size", huge, {"vocab_size:", "got 9223372036854775807"}},
        {"qk_norm", four, {"qk_norm:", "true or false", "got 4"}},
        {"rope_theta", nan, {"rope_theta:", "a number", "got"}},
        {"rope_scaling", half, {"rope_scaling:", "true or false", "got 0.5"}},
    };
    oct_model_args before = args;
    for (size_t i = 0; i < OCT_COUNT(refused); i++) {
        err = (oct_error){0};
        oct_status status = oct_model_args_set(&args, refused[i].key, refused[i].value, &err);
        expect_refusal(status, &err, refused[i].words);
    }
    assert_memory_equal(&args, &before, sizeof args);
}

static void given_dimensions_that_do_not_fit_together_creation_says_which(void **state) {
    (void)state;
    const struct {
        const char *key, *key2;
        int64_t i, i2;
        const char *words[4];
    } cases[] = {
        {"n_heads", "n_layers", 7, 1, {"n_heads:", "divisor of 256", "got 7"}},
        {"n_kv_heads", "n_layers", 3, 1, {"n_kv_heads:", "divisor of 8", "got 3"}},
        {"n_kv_heads", "n_layers", 16, 1, {"n_kv_heads:", "divisor of 8", "got 16"}},
        {"head_dim", "n_layers", 31, 1, {"head_dim:", "even", "got 31"}},
        {"head_dim", "n_heads", 65536, 65536, {"head_dim:", "at most", "got"}},
    };
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        oct_model_args args = flavor("llama3", "demo");
        oct_arg value = {.type = OCT_ARG_INT, .i = cases[i].i};
        assert_int_equal(oct_model_args_set(&args, cases[i].key, value, NULL), OCT_OK);
        value.i = cases[i].i2;
        assert_int_equal(oct_model_args_set(&args, cases[i].key2, value, NULL), OCT_OK);
        oct_model *model;
        oct_error err = {0};
        oct_status status = oct_model_create(&args, OCT_PARAMS_ALLOCATED, &model, &err);
        expect_refusal(status, &err, cases[i].words);
    }
}

static void given_refused_memory_creation_fails_cleanly_at_every_allocation(void **state) {
    (void)state;
    oct_model_args args = flavor("qwen3", "debugmodel");
    args.n_layers = 1;
    size_t before = oct_alloc_live_bytes();
    int64_t n = 1;
    for (;; n++) {
        oct_model *model;
        oct_error err = {0};
        oct_alloc_fail_at(n);
        oct_status status = oct_model_create(&args, OCT_PARAMS_SHAPES_ONLY, &model, &err);
        oct_alloc_fail_at(0);
        if (!status) {
            oct_model_destroy(model);
            break;
        }
        assert_int_equal(status, OCT_NO_MEMORY);
        assert_int_equal(oct_alloc_live_bytes(), before);
    }
    assert_true(n > 50);
}

/* ---- initial values ---- */

typedef struct moments {
    double mean, std, low, high;
} moments;

static moments moments_of(const oct_param *param) {
    int64_t n = oct_param_elements(param);
    moments m = {.low = INFINITY, .high = -INFINITY};
    double squares = 0;
    for (int64_t i = 0; i < n; i++) {
        m.mean += param->value[i] / (double)n;
        squares += (double)param->value[i] * param->value[i] / (double)n;
        m.low = fmin(m.low, param->value[i]);
        m.high = fmax(m.high, param->value[i]);
    }
    m.std = sqrt(squares - m.mean * m.mean);
    return m;
}

/* The sample's deviation of n values is within 5 / sqrt(2 n) of the true one, relatively. */
static void expect_std(const oct_model *model, const char *name, double std) {
    const oct_param *param = oct_model_find_param(model, name);
    assert_non_null(param);
    moments m = moments_of(param);
    double n = (double)oct_param_elements(param);
    if (fabs(m.std / std - 1) > 5 / sqrt(2 * n) || fabs(m.mean) > 5 * std / sqrt(n))
        fail_msg("%s: mean %g, deviation %g, expected %g", name, m.mean, m.std, std);
}

static void given_a_seed_parameters_start_as_torchtitan_starts_them(void **state) {
    (void)state;
    oct_model_args args = flavor("llama3", "demo");
    oct_model *model = create(&args, OCT_PARAMS_ALLOCATED);
    oct_model_init(model, 7);
    expect_std(model, "tok_embeddings.weight", 1.0);
    expect_std(model, "layers.4.attention.wq.weight", 0.02);
    expect_std(model, "layers.4.attention.wv.weight", 0.02);
    expect_std(model, "layers.4.feed_forward.w1.weight", 0.02);
    expect_std(model, "layers.0.attention.wo.weight", 0.02 / sqrt(2));
    expect_std(model, "layers.4.attention.wo.weight", 0.02 / sqrt(10));
    expect_std(model, "layers.4.feed_forward.w2.weight", 0.02 / sqrt(10));
    expect_std(model, "layers.4.feed_forward.w3.weight", 0.02 / sqrt(10));
    /* Cutting a normal at 3 leaves 0.98658 of its deviation. */
    expect_std(model, "output.weight", 0.98658 / 16);
    moments head = moments_of(oct_model_find_param(model, "output.weight"));
    assert_true(head.low >= -3.0 / 16 && head.high <= 3.0 / 16);
    assert_true(head.low < -2.9 / 16 && head.high > 2.9 / 16);
    moments norm = moments_of(oct_model_find_param(model, "layers.2.ffn_norm.weight"));
    assert_true(norm.low == 1 && norm.high == 1);
    oct_model_destroy(model);
}

static void given_a_shard_it_is_drawn_alone_with_the_same_values(void **state) {
    (void)state;
    oct_model_args args = flavor("llama3", "demo");
    args.n_layers = 1;
    oct_model *model = create(&args, OCT_PARAMS_ALLOCATED);
    oct_model_init(model, 11);
    const oct_param *param = oct_model_find_param(model, "layers.0.attention.wq.weight");
    enum { FIRST = 32 * 256, N = 20000 };
    float shard[N];
    int threads = oct_threads();
    oct_threads_set(1);
    oct_param_draw(param, 11, FIRST, N, shard);
    oct_threads_set(threads);
    assert_memory_equal(shard, param->value + FIRST, sizeof shard);
    oct_param_draw(param, 12, FIRST, N, shard);
    assert_memory_not_equal(shard, param->value + FIRST, sizeof shard);
    oct_model_destroy(model);
}

/* ---- Hugging Face ---- */

static void given_every_module_and_parameter_hugging_faces_name_leads_back(void **state) {
    (void)state;
    static const char *const models[] = {"llama3", "qwen3"};
    for (size_t k = 0; k < 2; k++) {
        oct_model_args args = flavor(models[k], "debugmodel");
        args.enable_weight_tying = false;
        oct_model *model = create(&args, OCT_PARAMS_SHAPES_ONLY);
        int64_t n;
        oct_param *const *params = oct_model_params(model, &n);
        for (int64_t i = 0; i < n; i++) {
            char hf[OCT_HF_MODULE_NAME_SIZE], back[OCT_HF_MODULE_NAME_SIZE];
            assert_true(oct_hf_name(args.family, params[i]->name, hf));
            assert_true(oct_name_from_hf(args.family, hf, back));
            assert_string_equal(back, params[i]->name);
        }
        oct_model_destroy(model);
    }
    static const char *const pairs[][2] = {
        {"layers.12.attention.wq", "model.layers.12.self_attn.q_proj"},
        {"layers.0.attention", "model.layers.0.self_attn"},
        {"layers.0", "model.layers.0"},
        {"layers", "model.layers"},
        {"layers.3.feed_forward.w1.weight", "model.layers.3.mlp.gate_proj.weight"},
        {"layers.3.feed_forward.w2.weight", "model.layers.3.mlp.down_proj.weight"},
        {"layers.3.feed_forward.w3.weight", "model.layers.3.mlp.up_proj.weight"},
        {"layers.3.ffn_norm.weight", "model.layers.3.post_attention_layernorm.weight"},
        {"tok_embeddings.weight", "model.embed_tokens.weight"},
        {"norm.weight", "model.norm.weight"},
        {"output", "lm_head"},
    };
    char name[OCT_HF_MODULE_NAME_SIZE];
    for (size_t i = 0; i < OCT_COUNT(pairs); i++) {
        assert_true(oct_hf_name(OCT_MODEL_QWEN3, pairs[i][0], name));
        assert_string_equal(name, pairs[i][1]);
        assert_true(oct_name_from_hf(OCT_MODEL_QWEN3, pairs[i][1], name));
        assert_string_equal(name, pairs[i][0]);
    }
}

static void given_models_with_experts_every_name_is_known_there(void **state) {
    (void)state;
    static const struct {
        oct_model_family family;
        const char *name, *hf_name;
    } cases[] = {
        {OCT_MODEL_DEEPSEEK_V3, "layers.4.attention.wq_a.weight",
         "model.layers.4.self_attn.q_a_proj.weight"},
        {OCT_MODEL_DEEPSEEK_V3, "layers.4.attention.q_norm.weight",
         "model.layers.4.self_attn.q_a_layernorm.weight"},
        {OCT_MODEL_DEEPSEEK_V3, "layers.4.attention.wq_b.weight",
         "model.layers.4.self_attn.q_b_proj.weight"},
        {OCT_MODEL_DEEPSEEK_V3, "layers.4.attention.wkv_a.weight",
         "model.layers.4.self_attn.kv_a_proj_with_mqa.weight"},
        {OCT_MODEL_DEEPSEEK_V3, "layers.4.attention.kv_norm.weight",
         "model.layers.4.self_attn.kv_a_layernorm.weight"},
        {OCT_MODEL_DEEPSEEK_V3, "layers.4.attention.wkv_b.weight",
         "model.layers.4.self_attn.kv_b_proj.weight"},
        {OCT_MODEL_DEEPSEEK_V3, "layers.0.feed_forward.w2.weight",
         "model.layers.0.mlp.down_proj.weight"},
        {OCT_MODEL_DEEPSEEK_V3, "layers.4.moe.router.gate.weight",
         "model.layers.4.mlp.gate.weight"},
        {OCT_MODEL_DEEPSEEK_V3, "layers.4.moe.expert_bias",
         "model.layers.4.mlp.gate.e_score_correction_bias"},
        {OCT_MODEL_DEEPSEEK_V3, "layers.4.moe.shared_experts.w1.weight",
         "model.layers.4.mlp.shared_experts.gate_proj.weight"},
        {OCT_MODEL_QWEN3, "layers.4.moe.router.gate", "model.layers.4.mlp.gate"},
        {OCT_MODEL_QWEN3, "layers.4.moe.experts", "model.layers.4.mlp.experts"},
    };
    char name[OCT_HF_MODULE_NAME_SIZE];
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        assert_true(oct_hf_name(cases[i].family, cases[i].name, name));
        assert_string_equal(name, cases[i].hf_name);
        assert_true(oct_name_from_hf(cases[i].family, cases[i].hf_name, name));
        assert_string_equal(name, cases[i].name);
    }
    assert_false(oct_hf_name(OCT_MODEL_LLAMA3, "layers.4.moe.router.gate", name));
    assert_false(oct_hf_name(OCT_MODEL_DEEPSEEK_V3, "layers.4.attention.wk", name));
}

static void given_an_expert_its_matrices_are_tensors_of_their_own_there(void **state) {
    (void)state;
    static const char *const models[][2] = {{"qwen3", "debugmodel_moe"}, {"deepseek_v3", "60M"}};
    char name[OCT_HF_MODULE_NAME_SIZE];
    for (size_t k = 0; k < 2; k++) {
        oct_model_args args = flavor(models[k][0], models[k][1]);
        oct_model *model = create(&args, OCT_PARAMS_SHAPES_ONLY);
        int64_t n;
        oct_param *const *params = oct_model_params(model, &n);
        for (int64_t i = 0; i < n; i++) {
            bool experts = params[i]->n_dims == 3;
            assert_true(oct_hf_expert_name(args.family, params[i]->name, 11, name) == experts);
            assert_true(oct_hf_name(args.family, params[i]->name, name) == !experts);
        }
        oct_model_destroy(model);
    }
    assert_true(oct_hf_expert_name(OCT_MODEL_DEEPSEEK_V3, "layers.3.moe.experts.w2", 17, name));
    assert_string_equal(name, "model.layers.3.mlp.experts.17.down_proj.weight");
    assert_false(oct_hf_expert_name(OCT_MODEL_LLAMA3, "layers.3.moe.experts.w2", 17, name));
    assert_false(oct_hf_expert_name(OCT_MODEL_QWEN3, "layers.3.moe.experts.w4", 17, name));
}

static void given_names_that_are_not_the_familys_there_is_no_translation(void **state) {
    (void)state;
    char name[OCT_HF_MODULE_NAME_SIZE];
    static const char *const wrong[] = {"",
                                        "layers.",
                                        "layers.x.attention",
                                        "layers.1.",
                                        "layers.1.weight",
                                        "layers.1x",
                                        "model.layers.0",
                                        "layers.1.attention.w",
                                        "layers.1.attention.wqq",
                                        ".weight",
                                        "outputs"};
    for (size_t i = 0; i < OCT_COUNT(wrong); i++)
        assert_false(oct_hf_name(OCT_MODEL_QWEN3, wrong[i], name));
    assert_false(oct_hf_name(OCT_MODEL_LLAMA3, "layers.0.attention.q_norm", name));
    assert_false(
        oct_name_from_hf(OCT_MODEL_LLAMA3, "model.layers.0.self_attn.k_norm.weight", name));
    char long_name[4096] = "model.layers.";
    memset(long_name + strlen(long_name), '1', 4000);
    assert_false(oct_name_from_hf(OCT_MODEL_QWEN3, long_name, name));
}

static void given_llama_rows_of_each_head_are_permuted_there_and_back(void **state) {
    (void)state;
    oct_model_args args = flavor("llama3", "8B");
    assert_int_equal(oct_model_args_resolve(&args, NULL), OCT_OK);
    assert_int_equal(oct_hf_permuted_heads(&args, "layers.9.attention.wq.weight"), 32);
    assert_int_equal(oct_hf_permuted_heads(&args, "layers.9.attention.wk.weight"), 8);
    assert_int_equal(oct_hf_permuted_heads(&args, "layers.9.attention.wv.weight"), 0);
    args = flavor("qwen3", "8B");
    assert_int_equal(oct_hf_permuted_heads(&args, "layers.9.attention.wq.weight"), 0);
    /* Two heads of six rows: pairs (0,1) (2,3) (4,5) become (0,3) (1,4) (2,5). */
    const float rows[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    const float expected[12] = {0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11};
    float hf[12], back[12];
    oct_hf_permute_rows(OCT_TO_HF, 2, 6, sizeof *rows, rows, hf);
    assert_memory_equal(hf, expected, sizeof hf);
    oct_hf_permute_rows(OCT_FROM_HF, 2, 6, sizeof *rows, hf, back);
    assert_memory_equal(back, rows, sizeof back);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_every_flavor_the_number_of_parameters_is_the_published_one),
        cmocka_unit_test(given_a_flavor_documents_see_each_other_where_they_do_in_torchtitan),
        cmocka_unit_test(given_llama3_flavors_hidden_dim_follows_the_rule_of_llama),
        cmocka_unit_test(given_shapes_only_the_largest_model_takes_no_parameter_memory),
        cmocka_unit_test(given_a_flavor_flops_follow_the_formula_of_torchtitan),
        cmocka_unit_test(given_sets_of_layers_they_are_written_as_runs_and_come_back),
        cmocka_unit_test(given_a_tree_names_are_those_of_torchtitan),
        cmocka_unit_test(given_an_unknown_model_or_flavor_the_nearest_and_the_list_are_named),
        cmocka_unit_test(given_values_for_dimensions_they_are_set_or_refused_in_one_line),
        cmocka_unit_test(given_dimensions_that_do_not_fit_together_creation_says_which),
        cmocka_unit_test(given_refused_memory_creation_fails_cleanly_at_every_allocation),
        cmocka_unit_test(given_a_seed_parameters_start_as_torchtitan_starts_them),
        cmocka_unit_test(given_a_shard_it_is_drawn_alone_with_the_same_values),
        cmocka_unit_test(given_every_module_and_parameter_hugging_faces_name_leads_back),
        cmocka_unit_test(given_models_with_experts_every_name_is_known_there),
        cmocka_unit_test(given_an_expert_its_matrices_are_tensors_of_their_own_there),
        cmocka_unit_test(given_names_that_are_not_the_familys_there_is_no_translation),
        cmocka_unit_test(given_llama_rows_of_each_head_are_permuted_there_and_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
