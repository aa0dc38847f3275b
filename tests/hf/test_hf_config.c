/* config.json: nothing in it is ignored, and families, spellings and dialects mean what
 * transformers takes them for. Fields, bounds and hostile bytes are in test_hf.c. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/count.h"
#include "hf_support.h"

static void expect_refused(const char *text, const char *message) {
    oct_hf_config c;
    oct_error err = {0};
    oct_status status = oct_hf_config_parse(text, strlen(text), "d/config.json", &c, &err);
    if (status != OCT_INVALID || !strstr(err.message, message))
        fail_msg("%s: expected \"%s\"; got \"%s\"", text, message, err.message);
    assert_one_line(err.message);
    assert_contains(err.message, "d/config.json: ");
}

/* Each family refuses what it doesn't use, all of it at once, and says what may have been meant. */
static void given_keys_that_nobody_uses_they_are_refused_by_name(void **state) {
    (void)state;
    static const char *const families[] = {"llama",   "mistral",   "qwen2",      "qwen3",
                                           "smollm3", "qwen3_moe", "deepseek_v3"};
    static const char *const cases[][2] = {
        {"\"never_seen\": null", "model doesn't use: never_seen"},
        {"\"never_seen\": 1, \"nor_this\": {}", "never_seen, nor_this"},
        {"\"rms_norm_epz\": 0.1", "rms_norm_epz (nearest: rms_norm_eps)"},
        {"\"attention_dropout\": 0.1", "attention_dropout (not supported with 0.1)"},
        {"\"moe_layer_freq\": 2", "moe_layer_freq (not supported with 2)"},
        {"\"output_router_logits\": true", "output_router_logits (not supported with true)"},
        {"\"topk_method\": \"greedy\"", "topk_method (not supported with 'greedy')"},
        {"\"partial_rotary_factor\": 0.5", "partial_rotary_factor: not supported; expected 1"},
        {"\"hidden_act\": \"gelu\"", "hidden_act: not supported; expected silu or swish; got gelu"},
        {"\"rope_parameters\": {\"rope_type\": \"default\", \"factor\": 2}",
         "rope_parameters: unknown keys: factor"},
        {"\"rope_parameters\": {\"full_attention\": {}}", "unknown keys: full_attention"},
        {"\"layer_types\": [\"full_attention\"]", "layer_types: expected a list of 2 types"},
        {"\"quantization_config\": {\"quant_method\": \"gptq\"}", "quant_method: not supported"},
        {"\"architectures\": [\"XForSequenceClassification\"]", "expected one ...ForCausalLM"},
    };
    for (size_t f = 0; f < OCT_COUNT(families); f++)
        for (size_t i = 0; i < OCT_COUNT(cases); i++) {
            char text[1024];
            snprintf(text, sizeof text,
                     "{\"model_type\": \"%s\", \"num_key_value_heads\": 4, " SIZES ", %s}",
                     families[f], cases[i][0]);
            expect_refused(text, cases[i][1]);
        }
    /* A key of another family is as unknown as any. */
    expect_refused("{" BASE ", \"num_experts\": 4}", "a llama model doesn't use: num_experts");
    expect_refused("{" BASE ", \"kv_lora_rank\": 4}", "a llama model doesn't use: kv_lora_rank");
    expect_refused("{" MOE ", \"mlp_bias\": true}", "mlp_bias (not supported with true)");
}

static void given_another_model_type_it_is_refused_before_all_else(void **state) {
    (void)state;
    expect_refused("{\"model_type\": \"gpt2\", \"n_embd\": 768, \"n_layer\": 12}",
                   "model_type: gpt2 isn't supported; expected llama, mistral, qwen2, qwen3, "
                   "smollm3, qwen3_moe or deepseek_v3");
}

/* What files of published models and of both versions of transformers have beside dimensions. */
static void given_keys_that_change_nothing_they_are_taken(void **state) {
    (void)state;
    oct_hf_config c = config_of(
        "{" BASE ", \"hidden_act\": \"swish\", \"attention_dropout\": 0.0, \"use_cache\": true,"
        "\"pad_token_id\": null, \"pretraining_tp\": 1, \"transformers_version\": \"5.24.0\","
        "\"_name_or_path\": \"x\", \"is_llama_config\": true, \"rope_interleaved\": false,"
        "\"torch_dtype\": \"bfloat16\", \"eos_token_id\": [], \"sliding_window\": null,"
        "\"unsloth_fixed\": true, \"auto_map\": {\"AutoConfig\": \"c.C\"}}");
    assert_int_equal(c.n_eos_token_ids, 0);
    c = config_of(
        "{" LATENT ", \"qk_head_dim\": 192, \"head_dim\": 64, \"ep_size\": 1,"
        "\"moe_layer_freq\": 1, \"topk_method\": \"noaux_tc\", \"aux_loss_alpha\": 0.001,"
        "\"seq_aux\": true, \"num_nextn_predict_layers\": 1, \"output_router_logits\": false,"
        "\"num_key_value_heads\": 4}");
    assert_int_equal(c.num_nextn_predict_layers, 1);
}

#define FOUR                                                                                       \
    "\"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 4,"                    \
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"vocab_size\": 100"
#define SLIDING "\"sliding_attention\""
#define FULL "\"full_attention\""

static void given_windows_each_family_says_which_layers_have_one(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t window;
        uint64_t windowed; /* bit i: layer i */
    } cases[] = {
        {"\"model_type\": \"mistral\"", 4096, 15},
        {"\"model_type\": \"mistral\", \"sliding_window\": 8", 8, 15},
        {"\"model_type\": \"mistral\", \"sliding_window\": null", 0, 0},
        {"\"model_type\": \"qwen3\", \"sliding_window\": 8", 0, 0},
        {"\"model_type\": \"qwen3\", \"use_sliding_window\": true, \"sliding_window\": 8", 8, 0},
        {"\"model_type\": \"qwen3\", \"use_sliding_window\": true, \"sliding_window\": 8,"
         "\"max_window_layers\": 1",
         8, 14},
        {"\"model_type\": \"qwen2\", \"use_sliding_window\": true, \"sliding_window\": 8,"
         "\"max_window_layers\": 4, \"layer_types\": [" SLIDING "," FULL "," SLIDING "," FULL "]",
         8, 5},
        {"\"model_type\": \"qwen3_moe\", \"use_sliding_window\": true, \"sliding_window\": 8", 8,
         15},
        {"\"model_type\": \"qwen3_moe\", \"max_window_layers\": 2", 0, 0},
        {"\"model_type\": \"smollm3\", \"use_sliding_window\": true, \"sliding_window\": 8", 8, 8},
        {"\"model_type\": \"smollm3\", \"use_sliding_window\": true, \"sliding_window\": 8,"
         "\"no_rope_layers\": [0, 1, 1, 0]",
         8, 9},
        {"\"model_type\": \"llama\", \"layer_types\": [" FULL "," FULL "," FULL "," FULL "]", 0, 0},
    };
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        char text[1024];
        snprintf(text, sizeof text, "{%s, " FOUR "}", cases[i].text);
        oct_hf_config c = config_of(text);
        assert_int_equal(c.sliding_window, cases[i].window);
        assert_int_equal(c.windowed.bits[0], cases[i].windowed);
    }
    static const char *const wrong[][2] = {
        {"\"model_type\": \"qwen3\", \"layer_types\": [" SLIDING "," FULL "," FULL "," FULL "]",
         "layer_types: sliding_attention without a window"},
        {"\"model_type\": \"mistral\", \"layer_types\": [" SLIDING "," FULL "," FULL "," FULL "]",
         "layer_types: a mistral model doesn't follow it"},
        {"\"model_type\": \"qwen3\", \"layer_types\": [\"chunked_attention\"," FULL "," FULL
         "," FULL "]",
         "layer_types[0]: expected full_attention or sliding_attention; got chunked_attention"},
        {"\"model_type\": \"qwen3_moe\", \"use_sliding_window\": true, \"max_window_layers\": 2",
         "max_window_layers"},
        {"\"model_type\": \"llama\", \"sliding_window\": 8",
         "sliding_window (not supported with 8)"},
        {"\"model_type\": \"smollm3\", \"no_rope_layers\": [0, 1]",
         "no_rope_layers: expected a list"},
        {"\"model_type\": \"smollm3\", \"no_rope_layers\": [0, 1, 2, 1]", "no_rope_layers[2]"},
        {"\"model_type\": \"mistral\", \"sliding_window\": 0", "sliding_window: expected 1 to"},
    };
    for (size_t i = 0; i < OCT_COUNT(wrong); i++) {
        char text[1024];
        snprintf(text, sizeof text, "{%s, " FOUR "}", wrong[i][0]);
        expect_refused(text, wrong[i][1]);
    }
}

/* transformers' rule for cosines and sines: m(mscale) / m(mscale_all_dim), or m(1) where one of
 * both is missing; m(s) = 0.1 s ln(40) + 1. */
static void given_yarn_its_factor_follows_from_what_is_said(void **state) {
    (void)state;
    const double m1 = 0.1 * log(40) + 1, m07 = 0.1 * 0.707 * log(40) + 1;
    static const char *const said[] = {"",
                                       ", \"mscale\": 1.0",
                                       ", \"mscale_all_dim\": 0.707",
                                       ", \"mscale\": 1.0, \"mscale_all_dim\": 1.0",
                                       ", \"mscale\": 1.0, \"mscale_all_dim\": 0.707",
                                       ", \"mscale\": 1.0, \"attention_factor\": 0.5"};
    const double expected[] = {m1, m1, m1, 1, m1 / m07, 0.5};
    for (size_t i = 0; i < OCT_COUNT(said); i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "{" LATENT ", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": 40,"
                 "\"original_max_position_embeddings\": 4096%s}}",
                 said[i]);
        oct_hf_config c = config_of(text);
        assert_true(fabs(oct_hf_config_rope_factor(&c) - expected[i]) < 1e-12);
    }
}

static void given_either_spelling_rotary_positions_are_the_same(void **state) {
    (void)state;
    oct_hf_config c = config_of("{" BASE ", \"rope_parameters\": {\"rope_theta\": 5e5}}");
    assert_true(c.rope_theta == 5e5 && c.rope_type == OCT_HF_ROPE_DEFAULT);
    c = config_of("{" BASE ", \"rope_parameters\": {}}");
    assert_true(c.rope_theta == 1e4 && c.rope_type == OCT_HF_ROPE_DEFAULT);
    c = config_of("{" BASE ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 1.0}}");
    assert_true(c.rope_factor == 1 && c.rope_type == OCT_HF_ROPE_LINEAR);
    /* Without the original length it is max_position_embeddings. */
    c = config_of("{" BASE
                  ", \"max_position_embeddings\": 512, \"rope_parameters\": {\"rope_type\":"
                  "\"llama3\", \"factor\": 8, \"low_freq_factor\": 1, \"high_freq_factor\": 4}}");
    assert_int_equal(c.rope_original_max_position_embeddings, 512);
    /* A class's own defaults, which transformers 4 leaves out of the file. */
    c = config_of("{\"model_type\": \"smollm3\", " SIZES "}");
    assert_true(c.rope_theta == 2e6 && c.tie_word_embeddings && c.num_key_value_heads == 4);
    expect_refused("{" BASE ", \"rope_theta\": 1e4, \"rope_parameters\": {\"rope_theta\": 5e5}}",
                   "rope_theta: expected the 10000 beside it; got 500000");
    expect_refused("{" BASE ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2},"
                   "\"rope_parameters\": {\"type\": \"linear\", \"factor\": 4}}",
                   "rope_parameters: expected what rope_scaling says");
}

static void given_a_quantization_its_dialect_is_known_or_refused(void **state) {
    (void)state;
    oct_hf_config c = config_of(
        "{" BASE ", \"quantization_config\": {\"activation_scheme\": \"dynamic\", \"fmt\":"
        "\"e4m3\", \"quant_method\": \"fp8\", \"weight_block_size\": [128, 128]}}");
    assert_int_equal(c.quantization, OCT_HF_FP8_BLOCKS);
    assert_int_equal(c.block_rows, 128);
    c = config_of("{" BASE ", \"quantization_config\": {\"quant_method\": \"compressed-tensors\","
                  "\"format\": \"mxfp8-quantized\", \"ignore\": [\"lm_head\"], \"config_groups\":"
                  "{\"group_0\": {\"weights\": {\"num_bits\": 8, \"type\": \"float\", \"strategy\":"
                  "\"group\", \"group_size\": 32}}}, \"kv_cache_scheme\": null}}");
    assert_int_equal(c.quantization, OCT_HF_COMPRESSED_TENSORS);
    assert_int_equal(c.block_cols, 32);
    c = config_of("{" BASE ", \"quantization_config\": {\"quant_method\": \"modelopt\","
                  "\"quant_algo\": \"MXFP8\", \"ignore\": []}}");
    assert_int_equal(c.quantization, OCT_HF_MODELOPT);
    c = config_of("{" BASE ", \"quantization_config\": {\"quant_method\": \"mxfp8\", \"fmt\":"
                  "\"e4m3\", \"weight_block_size\": [1, 32], \"scale_fmt\": \"ue8m0\","
                  "\"activation_scheme\": \"dynamic\", \"ignored_layers\": [\"lm_head\"]}}");
    assert_int_equal(c.quantization, OCT_HF_MXFP8);
    static const char *const wrong[][2] = {
        {"\"quant_method\": \"fp8\"", "weight_block_size: expected the rows and columns"},
        {"\"quant_method\": \"fp8\", \"weight_block_size\": [0, 128]", "expected 1 to"},
        {"\"quant_method\": \"fp8\", \"fmt\": \"e5m2\"", "fmt: not supported; expected e4m3"},
        {"\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128], \"what\": 1",
         "what: unknown key"},
        {"\"quant_method\": \"mxfp8\", \"weight_block_size\": [1, 16]", "expected [1, 32]"},
        {"\"quant_method\": \"modelopt\", \"quant_algo\": \"FP8\"", "expected MXFP8; got FP8"},
        {"\"quant_method\": \"modelopt\"", "quant_algo: expected MXFP8; it is missing"},
        {"\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\"",
         "format: not supported; expected mxfp8-quantized"},
        {"\"quant_method\": \"compressed-tensors\", \"format\": \"mxfp8-quantized\","
         "\"config_groups\": {\"group_0\": {\"weights\": {\"num_bits\": 4, \"type\": \"float\","
         "\"strategy\": \"group\", \"group_size\": 32}}}",
         "num_bits: not supported"},
        {"\"quant_method\": \"compressed-tensors\", \"format\": \"mxfp8-quantized\","
         "\"kv_cache_scheme\": {\"num_bits\": 8}",
         "kv_cache_scheme: unknown key, or not supported"},
    };
    for (size_t i = 0; i < OCT_COUNT(wrong); i++) {
        char text[1024];
        snprintf(text, sizeof text, "{" BASE ", \"quantization_config\": {%s}}", wrong[i][0]);
        expect_refused(text, wrong[i][1]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_keys_that_nobody_uses_they_are_refused_by_name),
        cmocka_unit_test(given_another_model_type_it_is_refused_before_all_else),
        cmocka_unit_test(given_keys_that_change_nothing_they_are_taken),
        cmocka_unit_test(given_windows_each_family_says_which_layers_have_one),
        cmocka_unit_test(given_yarn_its_factor_follows_from_what_is_said),
        cmocka_unit_test(given_either_spelling_rotary_positions_are_the_same),
        cmocka_unit_test(given_a_quantization_its_dialect_is_known_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
