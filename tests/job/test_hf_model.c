/* Models from Hugging Face folders: weights in 8 bits, tensors that don't fit, and what only such
 * models have. Against transformers itself: tests/peers/hf_peers.py. */
#include "train_support.h"

#include <math.h>
#include <octet/format.h>

#include "base/count.h"
#include "hf/hf_folder.h"
#include "job/hf_model.h"
#include "model/hf_names.h"

enum { MAX_ITEMS = 64, MAX_BYTES = 1 << 20 };

/* A folder in the making: its config.json and tensors. */
typedef struct scene {
    char folder[64];
    oct_safetensors_item items[MAX_ITEMS];
    char names[MAX_ITEMS][OCT_HF_MODULE_NAME_SIZE];
    int64_t n_items;
    unsigned char *bytes; /* what the items hold */
    size_t n_bytes;
    oct_model *model;
} scene;

static int open_scene(void **state) {
    static scene s;
    s = (scene){.bytes = oct_calloc_array(1, MAX_BYTES)};
    snprintf(s.folder, sizeof s.folder, "/tmp/octet-hf-XXXXXX");
    *state = &s;
    return s.bytes && mkdtemp(s.folder) ? 0 : -1;
}

static int close_scene(void **state) {
    scene *s = *state;
    char command[128];
    oct_model_destroy(s->model);
    oct_free(s->bytes);
    snprintf(command, sizeof command, "rm -rf '%s'", s->folder);
    return system(command);
}

/* Space for an item of that many bytes, with bytes that a seed decides. */
static unsigned char *add(scene *s, const char *name, oct_dtype dtype, int n_dims,
                          const int64_t *shape) {
    size_t n = oct_safetensors_dtype_bytes(dtype);
    oct_safetensors_item *item = &s->items[s->n_items];
    for (int i = 0; i < n_dims; i++)
        n *= (size_t)shape[i];
    assert_true(s->n_items < MAX_ITEMS && s->n_bytes + n <= MAX_BYTES);
    unsigned char *bytes = s->bytes + s->n_bytes;
    s->n_bytes += (n + 7) / 8 * 8;
    snprintf(s->names[s->n_items], sizeof s->names[0], "%s", name);
    *item = (oct_safetensors_item){
        .name = s->names[s->n_items], .dtype = dtype, .n_dims = n_dims, .data = bytes};
    memcpy(item->shape, shape, (size_t)n_dims * sizeof *shape);
    s->n_items++;
    return bytes;
}

static oct_safetensors_item *find_item(scene *s, const char *name) {
    for (int64_t i = 0; i < s->n_items; i++)
        if (strcmp(s->items[i].name, name) == 0)
            return &s->items[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

#define QWEN3                                                                                      \
    "\"model_type\": \"qwen3\", \"hidden_size\": 72, \"intermediate_size\": 100, "                 \
    "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "           \
    "\"head_dim\": 20, \"vocab_size\": 50"

static void write_config(const scene *s, const char *text) {
    char path[128];
    snprintf(path, sizeof path, "%s/config.json", s->folder);
    assert_int_equal(oct_file_write(path, text, strlen(text), NULL), OCT_OK);
}

/* The model that config.json says, without values yet. */
static void create_model(scene *s) {
    oct_model_args args;
    oct_error err = {0};
    if (oct_setup_model_args_from_hf(s->folder, &args, &err) ||
        oct_model_create(&args, OCT_PARAMS_ALLOCATED, &s->model, &err))
        fail_msg("%s", err.message);
}

/* Where a weight's scales are, and of which kind. */
typedef struct dialect {
    const char *quantization, *suffix;
    int64_t rows, cols;
    oct_dtype dtype;
} dialect;

static bool is_converted(const oct_param *p) {
    return p->n_dims == 2 && strncmp(p->name, "layers.", 7) == 0;
}

/* Every parameter as a tensor; with a dialect, those of layers in 8 bits with scales. */
static void add_tensors(scene *s, const dialect *d) {
    int64_t n;
    oct_param *const *params = oct_model_params(s->model, &n);
    const oct_model_args *args = oct_model_get_args(s->model);
    for (int64_t i = 0; i < n; i++) {
        char name[OCT_HF_MODULE_NAME_SIZE], scale[OCT_HF_MODULE_NAME_SIZE + 16];
        const oct_param *p = params[i];
        assert_true(oct_hf_name(args->family, p->name, name));
        bool codes = d && is_converted(p);
        unsigned char *bytes = add(s, name, codes ? OCT_E4M3 : OCT_F32, p->n_dims, p->shape);
        for (int64_t k = 0; k < oct_param_elements(p); k++) {
            if (codes) /* all codes but the two NaN */
                bytes[k] = (unsigned char)(oct_rng_below(3, (uint64_t)i, (uint64_t)k, 127) +
                                           128 * oct_rng_below(4, (uint64_t)i, (uint64_t)k, 2));
            else
                ((float *)(void *)bytes)[k] = 0.25f * (float)((k + i) % 7) - 0.5f;
        }
        if (!codes)
            continue;
        const int64_t shape[2] = {(p->shape[0] + d->rows - 1) / d->rows,
                                  (p->shape[1] + d->cols - 1) / d->cols};
        snprintf(scale, sizeof scale, "%s%s", name, d->suffix);
        bytes = add(s, scale, d->dtype, 2, shape);
        for (int64_t k = 0; k < shape[0] * shape[1]; k++) {
            if (d->dtype == OCT_F32)
                ((float *)(void *)bytes)[k] = 0.001f * (float)(k + 1);
            else
                bytes[k] = (unsigned char)(120 + k % 11);
        }
    }
}

static oct_status read_model(scene *s, oct_hf_weights weights, oct_error *err) {
    oct_error write_error = {0};
    if (oct_hf_model_write(s->folder, s->items, s->n_items, 0, &write_error))
        fail_msg("%s", write_error.message);
    return oct_setup_parameters_from_hf(s->folder, weights, s->model, err);
}

static void expect_refused(scene *s, oct_hf_weights weights, const char *part) {
    oct_error err = {0};
    assert_int_equal(read_model(s, weights, &err), OCT_INVALID);
    if (!strstr(err.message, part))
        fail_msg("expected \"%s\" in \"%s\"", part, err.message);
}

/* E4M3 by its definition (OCP OFP8): bias 7, 3 bits of mantissa, no infinities. */
static double e4m3(unsigned char code) {
    int exponent = code >> 3 & 15, mantissa = code & 7;
    double magnitude = exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
    return code >> 7 ? -magnitude : magnitude;
}

static const dialect dialects[] = {
    {"{\"quant_method\": \"fp8\", \"fmt\": \"e4m3\", \"weight_block_size\": [16, 48]}",
     "_scale_inv", 16, 48, OCT_F32},
    {"{\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128], \"scale_fmt\": \"ue8m0\"}",
     "_scale_inv", 128, 128, OCT_E8M0},
    {"{\"quant_method\": \"compressed-tensors\", \"format\": \"mxfp8-quantized\"}", "_scale", 1, 32,
     OCT_U8},
    {"{\"quant_method\": \"modelopt\", \"quant_algo\": \"MXFP8\"}", "_scale", 1, 32, OCT_U8},
    {"{\"quant_method\": \"mxfp8\", \"weight_block_size\": [1, 32], \"scale_fmt\": \"ue8m0\"}",
     "_scale_inv", 1, 32, OCT_E8M0},
};
enum { N_DIALECTS = OCT_COUNT(dialects) };

static void use_dialect(scene *s, const dialect *d) {
    char text[1024];
    snprintf(text, sizeof text, "{" QWEN3 ", \"quantization_config\": %s}", d->quantization);
    write_config(s, text);
    s->n_items = 0;
    s->n_bytes = 0;
    oct_model_destroy(s->model);
    create_model(s);
    add_tensors(s, d);
}

/* No side is a multiple of a block's: 40, 20, 72 and 100 rows and columns. */
static void given_weights_in_8_bits_of_every_dialect_they_are_codes_times_scales(void **state) {
    scene *s = *state;
    for (int k = 0; k < N_DIALECTS; k++) {
        const dialect *d = &dialects[k];
        oct_error err = {0};
        int64_t n;
        use_dialect(s, d);
        if (read_model(s, OCT_HF_ANY_WEIGHTS, &err))
            fail_msg("%s: %s", d->quantization, err.message);
        oct_param *const *params = oct_model_params(s->model, &n);
        for (int64_t i = 0; i < n; i++) {
            char name[OCT_HF_MODULE_NAME_SIZE], scale[OCT_HF_MODULE_NAME_SIZE + 16];
            const oct_param *p = params[i];
            if (!is_converted(p))
                continue;
            assert_true(oct_hf_name(OCT_MODEL_QWEN3, p->name, name));
            snprintf(scale, sizeof scale, "%s%s", name, d->suffix);
            const unsigned char *codes = find_item(s, name)->data;
            const oct_safetensors_item *scales = find_item(s, scale);
            for (int64_t r = 0; r < p->shape[0]; r++)
                for (int64_t c = 0; c < p->shape[1]; c++) {
                    int64_t at = r / d->rows * scales->shape[1] + c / d->cols;
                    double factor = d->dtype == OCT_F32
                                        ? (double)((const float *)scales->data)[at]
                                        : ldexp(1, ((const unsigned char *)scales->data)[at] - 127);
                    float expected = (float)(e4m3(codes[r * p->shape[1] + c]) * factor);
                    assert_true(p->value[r * p->shape[1] + c] == expected);
                }
        }
    }
}

static void given_8_bit_weights_a_job_says_beforehand_whether_it_takes_them(void **state) {
    scene *s = *state;
    oct_error err = {0};
    use_dialect(s, &dialects[0]);
    expect_refused(s, OCT_HF_HIGH_WEIGHTS, "checkpoint.initial_load_in_hf_quantized = true");
    assert_int_equal(read_model(s, OCT_HF_QUANTIZED_WEIGHTS, &err), OCT_OK);
    s->n_items = 0;
    write_config(s, "{" QWEN3 "}");
    add_tensors(s, NULL);
    expect_refused(s, OCT_HF_QUANTIZED_WEIGHTS, "expected weights in 8 bits");
    assert_int_equal(read_model(s, OCT_HF_HIGH_WEIGHTS, &err), OCT_OK);
    char text[1024]; /* said, but not so */
    snprintf(text, sizeof text, "{" QWEN3 ", \"quantization_config\": %s}",
             dialects[2].quantization);
    write_config(s, text);
    expect_refused(s, OCT_HF_ANY_WEIGHTS, "quantization_config: expected weights in F8_E4M3; none");
}

#define Q_PROJ "model.layers.0.self_attn.q_proj.weight"

static void given_scales_that_do_not_fit_their_codes_each_is_named(void **state) {
    scene *s = *state;
    for (int k = 0; k < N_DIALECTS; k++) {
        const dialect *d = &dialects[k];
        char name[128], expected[256];
        snprintf(name, sizeof name, Q_PROJ "%s", d->suffix);
        use_dialect(s, d);
        /* of another number of blocks */
        find_item(s, name)->shape[0] += 1;
        find_item(s, name)->data = s->bytes;
        snprintf(expected, sizeof expected, "of another shape: %s: expected (", name);
        expect_refused(s, OCT_HF_ANY_WEIGHTS, expected);
        /* of another type */
        use_dialect(s, d);
        find_item(s, name)->dtype = OCT_I32;
        find_item(s, name)->data = s->bytes;
        snprintf(expected, sizeof expected, "of another type: %s: expected ", name);
        expect_refused(s, OCT_HF_ANY_WEIGHTS, expected);
        /* missing, and there without codes */
        use_dialect(s, d);
        *find_item(s, name) = s->items[--s->n_items];
        snprintf(expected, sizeof expected, "missing: %s (", name);
        expect_refused(s, OCT_HF_ANY_WEIGHTS, expected);
        use_dialect(s, d);
        oct_safetensors_item *weight = find_item(s, Q_PROJ);
        weight->dtype = OCT_F32;
        weight->data = s->bytes;
        snprintf(expected, sizeof expected, "surplus: %s (", name);
        expect_refused(s, OCT_HF_ANY_WEIGHTS, expected);
    }
    /* Codes where no scale can be, or nobody says how. */
    use_dialect(s, &dialects[0]);
    find_item(s, "model.norm.weight")->dtype = OCT_E4M3;
    expect_refused(s, OCT_HF_ANY_WEIGHTS,
                   "model.norm.weight: expected F32, BF16 or F16, got F8_E4M3");
    use_dialect(s, &dialects[0]);
    write_config(s, "{" QWEN3 "}");
    expect_refused(s, OCT_HF_ANY_WEIGHTS, "as config.json has no quantization_config, got F8_E4M3");
}

static void given_tensors_that_do_not_fit_all_are_listed_with_their_shapes(void **state) {
    scene *s = *state;
    const int64_t one = 1, nine[8] = {1, 2, 1, 1, 1, 1, 1, 1};
    write_config(s, "{" QWEN3 "}");
    create_model(s);
    add_tensors(s, NULL);
    find_item(s, "model.norm.weight")->shape[0] = 71;
    find_item(s, Q_PROJ)->name = "model.layers.0.self_attn.q_proj.weigth";
    find_item(s, "lm_head.weight")->dtype = OCT_I32;
    add(s, "totally.unknown", OCT_F32, 8, nine);
    add(s, "model.layers.1.mlp.up_proj.weight", OCT_F32, 1, &one);
    add(s, "model.layers.0.self_attn.q_proj.bias", OCT_F32, 1, &one);
    const char *const parts[] = {
        "missing: " Q_PROJ " (40, 72); surplus: ",
        "model.layers.0.self_attn.q_proj.weigth (40, 72)",
        "totally.unknown (1, 2, 1, 1, 1, 1, 1, 1)",
        "model.layers.1.mlp.up_proj.weight (1)",
        "model.layers.0.self_attn.q_proj.bias (1)",
        "of another shape: model.norm.weight: expected (72), got (71)",
        "of another type: lm_head.weight: expected F32, BF16 or F16, got I32"};
    for (size_t i = 0; i < OCT_COUNT(parts); i++)
        expect_refused(s, OCT_HF_ANY_WEIGHTS, parts[i]);
}

static void given_many_that_do_not_fit_the_rest_is_counted(void **state) {
    scene *s = *state;
    const int64_t one = 1;
    write_config(s, "{" QWEN3 "}");
    create_model(s);
    add_tensors(s, NULL);
    int64_t fitting = s->n_items;
    while (s->n_items < MAX_ITEMS) {
        char name[64];
        snprintf(name, sizeof name, "some.module.with.a.long.name.x%d", (int)s->n_items);
        add(s, name, OCT_F32, 1, &one);
    }
    oct_error err = {0};
    assert_int_equal(read_model(s, OCT_HF_ANY_WEIGHTS, &err), OCT_INVALID);
    int64_t shown = 0, left = 0;
    for (const char *at = err.message; (at = strstr(at, "some.module")); at++)
        shown++;
    const char *more = strstr(err.message, " more");
    assert_non_null(more);
    while (more[-1] >= '0' && more[-1] <= '9')
        more--;
    left = strtoll(more, NULL, 10);
    assert_true(shown >= 5);
    assert_int_equal(shown + left, MAX_ITEMS - fitting);
}

/* All layers and experts, in one line. */
static void given_tensors_that_differ_in_numbers_alone_they_are_one_entry(void **state) {
    scene *s = *state;
    const int64_t shape[2] = {3, 4};
    write_config(s, "{" QWEN3 "}");
    create_model(s);
    add_tensors(s, NULL);
    for (int i = 0; i < 12; i++) {
        char name[64];
        snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.up.weight", 20 + i / 3, i % 3);
        add(s, name, OCT_F32, 2, shape);
        snprintf(name, sizeof name, "blocks.%d.scale", 3 * i);
        add(s, name, OCT_F32, 1, shape);
    }
    oct_error err = {0};
    assert_int_equal(read_model(s, OCT_HF_ANY_WEIGHTS, &err), OCT_INVALID);
    assert_non_null(strstr(err.message,
                           "surplus: model.layers.{20-23}.mlp.experts.{0-2}.up.weight (3, 4)"
                           ", blocks.{0-33}.scale [12 of them] (3)"));
}

static void given_leftovers_that_change_nothing_they_are_taken(void **state) {
    scene *s = *state;
    const int64_t four = 4, table[2] = {50, 72};
    oct_error err = {0};
    write_config(s, "{" QWEN3 ", \"tie_word_embeddings\": true}");
    create_model(s);
    add_tensors(s, NULL);
    add(s, "model.layers.0.self_attn.rotary_emb.inv_freq", OCT_F32, 1, &four);
    float *copy = (float *)(void *)add(s, "lm_head.weight", OCT_F32, 2, table);
    memcpy(copy, find_item(s, "model.embed_tokens.weight")->data, 50 * 72 * sizeof *copy);
    if (read_model(s, OCT_HF_ANY_WEIGHTS, &err))
        fail_msg("%s", err.message);
    copy[7] += 1; /* another head than the table, which would be lost */
    expect_refused(s, OCT_HF_ANY_WEIGHTS, "surplus: lm_head.weight (50, 72)");
}

#define DEEPSEEK                                                                                   \
    "\"model_type\": \"deepseek_v3\", \"hidden_size\": 32, \"intermediate_size\": 48, "            \
    "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"vocab_size\": 50, "                   \
    "\"kv_lora_rank\": 8, \"q_lora_rank\": null, \"qk_nope_head_dim\": 6, "                        \
    "\"qk_rope_head_dim\": 4, \"v_head_dim\": 6, \"n_routed_experts\": 4, "                        \
    "\"num_experts_per_tok\": 1, \"n_group\": 1, \"topk_group\": 1, \"n_shared_experts\": 0, "     \
    "\"moe_intermediate_size\": 8, \"first_k_dense_replace\": 0, \"num_nextn_predict_layers\": 1"

/* The parameters of experts, a tensor each, and the router's bias. */
static float *add_experts(scene *s) {
    const int64_t four = 4;
    int64_t n;
    oct_param *const *params = oct_model_params(s->model, &n);
    for (int64_t i = 0; i < n; i++) {
        char name[OCT_HF_MODULE_NAME_SIZE];
        const oct_param *p = params[i];
        for (int64_t e = 0; p->n_dims == 3 && e < 4; e++) {
            assert_true(oct_hf_expert_name(OCT_MODEL_DEEPSEEK_V3, p->name, e, name));
            add(s, name, OCT_F32, 2, p->shape + 1);
        }
        if (p->n_dims == 3)
            continue;
        assert_true(oct_hf_name(OCT_MODEL_DEEPSEEK_V3, p->name, name));
        add(s, name, OCT_F32, p->n_dims, p->shape);
    }
    return (float *)(void *)add(s, "model.layers.0.mlp.gate.e_score_correction_bias", OCT_F32, 1,
                                &four);
}

static void given_a_stored_router_bias_it_chooses_and_stays_with_a_coefficient_of_0(void **state) {
    scene *s = *state;
    const int64_t one = 1;
    oct_error err = {0};
    int32_t tokens[6] = {1, 2, 3, 4, 5, 6};
    write_config(s, "{" DEEPSEEK "}");
    create_model(s);
    float *bias = add_experts(s);
    bias[2] = 2;                                               /* above every score */
    add(s, "model.layers.1.eh_proj.weight", OCT_F32, 1, &one); /* predicts a further token */
    if (read_model(s, OCT_HF_ANY_WEIGHTS, &err))
        fail_msg("%s", err.message);
    oct_moe *moe = oct_model_moe(s->model, 0);
    assert_true(moe->config.load_balance_coeff == 0);
    oct_weights *weights = NULL;
    oct_step *step = NULL;
    double loss;
    int64_t n_valid;
    assert_int_equal(oct_weights_create(&weights), OCT_OK);
    assert_int_equal(oct_step_create(weights, OCT_F32, &step), OCT_OK);
    assert_int_equal(oct_model_enable_training(s->model), OCT_OK);
    assert_int_equal(oct_model_train(s->model, step, 1, 6, tokens, tokens, 1.0f, &loss, &n_valid),
                     OCT_OK);
    for (int e = 0; e < 4; e++)
        assert_int_equal(moe->tokens_per_expert[e], e == 2 ? 6 : 0);
    oct_model_update_routing(s->model);
    for (int e = 0; e < 4; e++)
        assert_true(moe->expert_bias[e] == (e == 2 ? 2.0f : 0.0f));
    oct_step_destroy(step);
    oct_weights_destroy(weights);
    /* Without it the choice is another one: it is missing. */
    s->n_items -= 2;
    expect_refused(s, OCT_HF_ANY_WEIGHTS,
                   "missing: model.layers.0.mlp.gate.e_score_correction_bias (4)");
}

/* A window, layers without positions, biases, and a rotation that follows the length: token by
 * token through the cache the last logits are those of the whole sequence. */
static void given_a_cache_windows_and_bare_layers_are_those_of_the_whole_sequence(void **state) {
    scene *s = *state;
    enum { S = 21, V = 50 };
    static const char *const configs[] = {
        "{\"model_type\": \"smollm3\", \"hidden_size\": 32, \"intermediate_size\": 48, "
        "\"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
        "\"vocab_size\": 50, \"no_rope_layers\": [1, 0, 1], \"use_sliding_window\": true, "
        "\"sliding_window\": 4, \"attention_bias\": true, \"mlp_bias\": true}",
        "{\"model_type\": \"mistral\", \"hidden_size\": 32, \"intermediate_size\": 48, "
        "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
        "\"vocab_size\": 50, \"sliding_window\": 3}"};
    for (size_t k = 0; k < OCT_COUNT(configs); k++) {
        int32_t tokens[S];
        static float whole[S * V], last[V];
        oct_tensor out = oct_tensor_2d(OCT_F32, S, V, whole);
        oct_weights *weights = NULL;
        oct_step *step = NULL;
        oct_kv_cache *cache = NULL;
        oct_model_destroy(s->model);
        write_config(s, configs[k]);
        create_model(s);
        oct_model_init(s->model, 3);
        for (int i = 0; i < S; i++)
            tokens[i] = (int32_t)oct_rng_below(5, k, (uint64_t)i, V);
        assert_int_equal(oct_weights_create(&weights), OCT_OK);
        assert_int_equal(oct_step_create(weights, OCT_F32, &step), OCT_OK);
        assert_int_equal(oct_model_forward(s->model, step, 1, S, tokens, OCT_SAVE_NOTHING, &out),
                         OCT_OK);
        assert_int_equal(oct_model_create_cache(s->model, OCT_F32, 1, S, &cache), OCT_OK);
        for (int done = 0, n = 6; done < S; done += n, n = 1)
            assert_int_equal(oct_model_generate(s->model, step, cache, n, tokens + done, last),
                             OCT_OK);
        for (int v = 0; v < V; v++)
            assert_true(fabsf(last[v] - whole[(S - 1) * V + v]) <= 1e-5f);
        oct_kv_cache_destroy(cache);
        oct_step_destroy(step);
        oct_weights_destroy(weights);
    }
}

#define SCENE(name) cmocka_unit_test_setup_teardown(name, open_scene, close_scene)

int main(void) {
    const struct CMUnitTest tests[] = {
        SCENE(given_weights_in_8_bits_of_every_dialect_they_are_codes_times_scales),
        SCENE(given_8_bit_weights_a_job_says_beforehand_whether_it_takes_them),
        SCENE(given_scales_that_do_not_fit_their_codes_each_is_named),
        SCENE(given_tensors_that_do_not_fit_all_are_listed_with_their_shapes),
        SCENE(given_many_that_do_not_fit_the_rest_is_counted),
        SCENE(given_tensors_that_differ_in_numbers_alone_they_are_one_entry),
        SCENE(given_leftovers_that_change_nothing_they_are_taken),
        SCENE(given_a_stored_router_bias_it_chooses_and_stays_with_a_coefficient_of_0),
        SCENE(given_a_cache_windows_and_bare_layers_are_those_of_the_whole_sequence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
