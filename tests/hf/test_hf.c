/* Hugging Face folders: config.json and the model's files, good ones and hostile ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/count.h"
#include "base/strbuf.h"
#include "hf/hf_folder.h"
#include "hf_support.h"

static void given_a_llama_config_every_field_is_read(void **state) {
    (void)state;
    oct_hf_config c = config_of(llama);
    assert_string_equal(c.architecture, "LlamaForCausalLM");
    assert_int_equal(c.family, OCT_HF_LLAMA);
    assert_string_equal(c.torch_dtype, "bfloat16");
    assert_int_equal(c.hidden_size, 2048);
    assert_int_equal(c.intermediate_size, 8192);
    assert_int_equal(c.num_hidden_layers, 16);
    assert_int_equal(c.num_attention_heads, 32);
    assert_int_equal(c.num_key_value_heads, 8);
    assert_int_equal(c.head_dim, 64);
    assert_int_equal(c.vocab_size, 128256);
    assert_int_equal(c.max_position_embeddings, 131072);
    assert_true(c.rms_norm_eps == 1e-5);
    assert_true(c.tie_word_embeddings);
    assert_int_equal(c.bos_token_id, 128000);
    assert_int_equal(c.n_eos_token_ids, 2);
    assert_int_equal(c.eos_token_ids[1], 128008);
    assert_true(c.rope_theta == 500000);
    assert_int_equal(c.rope_type, OCT_HF_ROPE_LLAMA3);
    assert_true(c.rope_factor == 32 && c.rope_low_freq_factor == 1 && c.rope_high_freq_factor == 4);
    assert_int_equal(c.rope_original_max_position_embeddings, 8192);
    assert_int_equal(c.n_experts, 0);
}

static void given_expert_configs_every_field_is_read(void **state) {
    (void)state;
    oct_hf_config q = config_of(qwen3_moe);
    assert_int_equal(q.n_experts, 128);
    assert_int_equal(q.num_experts_per_tok, 8);
    assert_int_equal(q.moe_intermediate_size, 768);
    assert_true(q.norm_topk_prob);
    assert_int_equal(q.decoder_sparse_step, 2);
    for (int i = 0; i < 6; i++) /* every second layer has them, but for 0 and 3 */
        assert_int_equal(oct_hf_config_has_experts(&q, i), i == 1 || i == 5);
    assert_int_equal(q.scoring_func, OCT_HF_SCORING_SOFTMAX);
    oct_hf_config d = config_of(deepseek);
    assert_int_equal(d.n_experts, 256);
    assert_int_equal(d.q_lora_rank, 1536);
    assert_int_equal(d.kv_lora_rank, 512);
    assert_int_equal(d.qk_nope_head_dim, 128);
    assert_int_equal(d.qk_rope_head_dim, 64);
    assert_int_equal(d.v_head_dim, 128);
    assert_int_equal(d.head_dim, 192);
    assert_int_equal(d.n_shared_experts, 1);
    assert_int_equal(d.n_group, 8);
    assert_int_equal(d.topk_group, 4);
    assert_true(d.routed_scaling_factor == 2.5);
    assert_int_equal(d.first_k_dense_replace, 3);
    assert_int_equal(d.scoring_func, OCT_HF_SCORING_SIGMOID);
    assert_int_equal(d.rope_type, OCT_HF_ROPE_YARN);
    assert_true(d.rope_factor == 40 && d.rope_mscale_all_dim == 1 && d.rope_beta_fast == 32);
    assert_true(d.rope_interleave);
}

static void given_the_least_config_the_rest_has_defaults(void **state) {
    (void)state;
    oct_hf_config c = config_of("{" BASE "}");
    assert_int_equal(c.num_key_value_heads, 4);
    assert_int_equal(c.head_dim, 16);
    assert_true(c.rope_theta == 10000);
    assert_true(c.rms_norm_eps == 1e-6);
    assert_int_equal(c.rope_type, OCT_HF_ROPE_DEFAULT);
    assert_int_equal(c.bos_token_id, -1);
    assert_false(c.tie_word_embeddings);
    assert_string_equal(c.architecture, "");
    c = config_of("{" BASE ", \"head_dim\": null, \"rope_scaling\": null, \"rope_parameters\":"
                  "{\"rope_type\": \"default\", \"rope_theta\": 5e5}, \"dtype\": \"float32\"}");
    assert_true(c.rope_theta == 5e5);
    assert_string_equal(c.torch_dtype, "float32");
}

static void given_a_config_written_it_reads_back_the_same(void **state) {
    (void)state;
    const char *const texts[] = {llama, qwen3_moe, deepseek, "{" BASE "}"};
    for (size_t i = 0; i < 4; i++) {
        oct_hf_config c = config_of(texts[i]), back;
        oct_strbuf text = {0};
        oct_hf_config_put(&text, &c);
        assert_false(text.failed);
        put_file("config.json", text.text, text.length);
        oct_strbuf_free(&text);
        assert_int_equal(oct_hf_config_read(".", &back, NULL), OCT_OK);
        assert_memory_equal(&back, &c, sizeof c);
        assert_int_equal(oct_hf_config_read("config.json", &back, NULL), OCT_OK);
    }
}

static void given_wrong_fields_one_line_names_each(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"{}", "model_type: expected; it is missing"},
        {"{\"model_type\": 3}", "model_type: expected a string; got an integer"},
        {"{\"model_type\": \"llama\"}", "hidden_size: expected; it is missing"},
        {"{" BASE ", \"hidden_size\": 3}", "duplicate"},
        {"{" BASE ", \"num_key_value_heads\": 3}", "a divisor of num_attention_heads 4; got 3"},
        {"{" BASE ", \"num_key_value_heads\": 0}", "num_key_value_heads: expected 1 to"},
        {"{" BASE ", \"head_dim\": \"16\"}", "head_dim: expected an integer; got a string"},
        {"{" BASE ", \"head_dim\": 16.5}", "head_dim: expected an integer; got a real"},
        {"{" BASE ", \"head_dim\": 15}", "head_dim: expected an even number; got 15"},
        {"{" BASE ", \"head_dim\": 4194304}", "for all heads together"},
        {"{" BASE ", \"rms_norm_eps\": -1}", "rms_norm_eps: expected 0 to 1; got -1"},
        {"{" BASE ", \"rms_norm_eps\": \"x\"}", "rms_norm_eps: expected a number; got a string"},
        {"{" BASE ", \"tie_word_embeddings\": 1}", "expected true or false; got an integer"},
        {"{" BASE ", \"rope_theta\": 0}", "rope_theta: expected"},
        {"{" BASE ", \"rope_scaling\": 4}", "rope_scaling: expected an object; got an integer"},
        {"{" BASE ", \"rope_scaling\": {\"type\": \"longrope\", \"factor\": 2}}",
         "rope_type: expected default, linear, dynamic, llama3 or yarn; got longrope"},
        {"{" BASE ", \"rope_scaling\": {\"type\": \"linear\"}}", "factor: expected; it is missing"},
        {"{" BASE ", \"rope_scaling\": {\"type\": \"llama3\"}}", "factor: expected; it is missing"},
        {"{" BASE ", \"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8,"
         "\"original_max_position_embeddings\": 8192, \"low_freq_factor\": 4,"
         "\"high_freq_factor\": 4}}",
         "low_freq_factor: expected less than"},
        {"{" BASE ", \"architectures\": []}", "architectures: expected a list of names"},
        {"{" BASE ", \"architectures\": [1]}", "architectures: expected a string"},
        {"{" BASE ", \"architectures\": \"x\"}", "architectures: expected a list"},
        {"{" BASE ", \"eos_token_id\": \"x\"}", "eos_token_id: expected an integer"},
        {"{" BASE ", \"max_position_embeddings\": 0}", "max_position_embeddings: expected 1 to"},
        {"{" MOE ", \"num_experts\": 4}", "num_experts_per_tok: expected 1 to 4"},
        {"{" MOE ", \"num_experts\": 4, \"num_experts_per_tok\": 5}", "expected 1 to 4"},
        {"{" MOE ", \"num_experts\": 4, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 0}",
         "moe_intermediate_size: expected >= 1"},
        {"{" MOE ", \"num_experts\": 4, \"num_local_experts\": 8}",
         "num_local_experts: expected the value of num_experts"},
        {"{" LATENT ", \"n_routed_experts\": 6, \"num_experts_per_tok\": 2, \"n_group\": 4}",
         "n_group: expected a divisor of the 6 experts; got 4"},
        {"{" LATENT ", \"n_routed_experts\": 8, \"num_experts_per_tok\": 2, \"n_group\": 4,"
         "\"topk_group\": 5}",
         "topk_group: expected 1 to n_group 4; got 5"},
        {"{" LATENT ", \"n_routed_experts\": 8, \"num_experts_per_tok\": 3, \"n_group\": 4,"
         "\"topk_group\": 1}",
         "at most the 2 experts of 1 groups; got 3"},
        {"{" MOE ", \"mlp_only_layers\": [2]}", "mlp_only_layers: expected 0 to 1; got 2"},
        {"{" MOE ", \"mlp_only_layers\": 2}", "mlp_only_layers: expected a list"},
        {"{" LATENT ", \"scoring_func\": \"tanh\"}",
         "scoring_func: expected 'softmax' or 'sigmoid'"},
        {"{" LATENT ", \"head_dim\": 128}", "head_dim: expected 64"},
        {"{" LATENT ", \"num_key_value_heads\": 2}", "latent attention has a key for every head"},
        {"{" BASE ", \"torch_dtype\": \"0123456789012345678901234567890123456789012345678901234567"
         "890123456789\"}",
         "torch_dtype: expected at most 63 bytes; got 70"},
        {"[1]", "expected a JSON object"},
        {"", "not JSON"},
    };
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        oct_hf_config c;
        oct_error err = {0};
        assert_int_equal(
            oct_hf_config_parse(cases[i][0], strlen(cases[i][0]), "d/config.json", &c, &err),
            OCT_INVALID);
        assert_one_line(err.message);
        assert_contains(err.message, "d/config.json:");
        assert_contains(err.message, cases[i][1]);
    }
    const char odd[] = "{\"model_type\": \"llama\", \"hidden_size\": 66, \"intermediate_size\": 96,"
                       "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"vocab_size\": 9}";
    oct_hf_config c;
    oct_error err = {0};
    assert_int_equal(oct_hf_config_parse(odd, strlen(odd), "c", &c, &err), OCT_INVALID);
    assert_contains(err.message, "a divisor of hidden_size 66; got 4");
}

static void given_a_config_cut_or_changed_anywhere_nothing_breaks(void **state) {
    (void)state;
    const char *const texts[] = {llama, qwen3_moe, deepseek};
    size_t live = oct_alloc_live_bytes();
    for (size_t t = 0; t < 3; t++)
        for (size_t at = 0; at < strlen(texts[t]); at++)
            for (int k = 0; k < 4; k++) {
                oct_hf_config c;
                size_t n = k ? strlen(texts[t]) : at;
                char *copy = malloc(n + 1);
                assert_non_null(copy);
                memcpy(copy, texts[t], n);
                if (k)
                    copy[at] = "x-9"[k - 1];
                oct_error err = {0};
                oct_status status = oct_hf_config_parse(copy, n, "c", &c, &err);
                assert_true(status == OCT_INVALID || (k && !status));
                if (status)
                    assert_one_line(err.message);
                free(copy);
                assert_int_equal(oct_alloc_live_bytes(), live);
            }
}

/* ---- model folders ---- */

#define N_ITEMS 5
static float data[N_ITEMS][12];
static const char *const names[N_ITEMS] = {"model.embed_tokens.weight", "model.norm.weight",
                                           "lm_head.weight", "model.layers.0.a", "z"};

static void make_items(oct_safetensors_item items[N_ITEMS]) {
    for (int i = 0; i < N_ITEMS; i++) {
        for (int k = 0; k < 12; k++)
            data[i][k] = (float)(100 * i + k);
        items[i] = (oct_safetensors_item){
            .name = names[i], .dtype = OCT_F32, .n_dims = 2, .shape = {3, 4}, .data = data[i]};
    }
}

static void write_model(const char *folder, size_t max_shard_bytes) {
    oct_safetensors_item items[N_ITEMS];
    oct_error err = {0};
    make_items(items);
    if (oct_hf_model_write(folder, items, N_ITEMS, max_shard_bytes, &err))
        fail_msg("%s", err.message);
}

static void assert_model(const char *path, int64_t n_files) {
    oct_hf_model *m = NULL;
    oct_error err = {0};
    if (oct_hf_model_open(path, &m, &err))
        fail_msg("%s", err.message);
    assert_int_equal(oct_hf_model_count(m), N_ITEMS);
    int64_t n_changes = 1;
    for (int i = 0; i < N_ITEMS; i++) {
        const oct_safetensors_tensor *t = oct_hf_model_find(m, names[i]);
        assert_non_null(t);
        assert_int_equal(t->n_bytes, sizeof data[i]);
        assert_memory_equal(t->data, data[i], sizeof data[i]);
        n_changes += i && strcmp(oct_hf_model_file(m, i), oct_hf_model_file(m, i - 1)) != 0;
        assert_ptr_equal(oct_hf_model_find(m, oct_hf_model_get(m, i)->name),
                         oct_hf_model_get(m, i));
    }
    assert_int_equal(n_changes, n_files);
    assert_null(oct_hf_model_find(m, "missing"));
    oct_hf_model_close(m);
}

static void given_a_model_in_one_file_or_many_the_tensors_are_found(void **state) {
    (void)state;
    write_model("one/deep", 0);
    assert_model("one/deep", 1);
    assert_model("one/deep/model.safetensors", 1);
    write_model("many", 100);
    assert_int_equal(system("test $(ls many | wc -l) = 4"), 0);
    assert_model("many", 3);
    write_model("each", 1);
    assert_model("each", 5);
    write_model("each", 0); /* the index of the five must not stay */
    assert_model("each", 1);
    write_model("each", 100);
    assert_model("each", 3);
}

static void given_a_folder_without_a_model_the_error_says_what_is_looked_for(void **state) {
    (void)state;
    oct_hf_model *m = NULL;
    oct_error err = {0};
    assert_int_equal(oct_hf_model_open(".", &m, &err), OCT_INVALID);
    assert_contains(err.message, "expected model.safetensors or model.safetensors.index.json");
    err = (oct_error){0};
    assert_int_equal(oct_hf_model_open("nowhere", &m, &err), OCT_INVALID);
    assert_contains(err.message, "nowhere");
    assert_null(m);
}

static void given_a_wrong_index_one_line_says_what(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"rm m/model-00002-of-00003.safetensors",
         "model-00002-of-00003.safetensors: can't be read"},
        {"sed -i 's/\"lm_head.weight\": \"model-00002/\"lm_head.weight\": \"model-00001/' m/*.json",
         "'lm_head.weight': expected 'model-00002-of-00003.safetensors', where the tensor is; got "
         "'model-00001-of-00003.safetensors'"},
        {"sed -i 's/\"z\": /\"zz\": /' m/*.json", "'z': expected"},
        {"sed -i 's/\"z\": /\"y\": \"model-00003-of-00003.safetensors\", \"z\": /' m/*.json",
         "'y': expected in 'model-00003-of-00003.safetensors'; it isn't there"},
        {"sed -i 's/\"z\": \"/\"z\": \"..\\/m\\//' m/*.json",
         "'z': expected the name of a file in the folder; got '../m/model-00003"},
        {"sed -i 's/\"z\": \"/\"z\": \"\\//' m/*.json", "expected the name of a file"},
        {"sed -i 's/\"z\": \".*\"/\"z\": \"..\"/' m/*.json", "expected the name of a file"},
        {"sed -i 's/\"z\": \".*\"/\"z\": \"\"/' m/*.json", "expected the name of a file"},
        {"sed -i 's/\"z\": \".*\"/\"z\": 3/' m/*.json", "got 'an integer'"},
        {"sed -i 's/weight_map/map/' m/*.json", "weight_map: expected an object; got nothing"},
        {"sed -i 's/\"z\"/\"lm_head.weight\"/' m/*.json", "duplicate"},
        {": > m/model.safetensors.index.json", "not JSON"},
        {"cp m/model-00001-of-00003.safetensors m/model-00003-of-00003.safetensors",
         "expected in one file; got it in m/model-0000"},
        {"truncate -s -1 m/model-00001-of-00003.safetensors", "begin <= end <= 95; got [48, 96]"},
        {"rm m/model-00001* && mkdir m/model-00001-of-00003.safetensors", "a folder"},
    };
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        oct_hf_model *m = NULL;
        oct_error err = {0};
        size_t live = oct_alloc_live_bytes();
        assert_int_equal(system("rm -rf m"), 0);
        write_model("m", 100);
        assert_int_equal(system(cases[i][0]), 0);
        assert_int_equal(oct_hf_model_open("m", &m, &err), OCT_INVALID);
        assert_null(m);
        assert_one_line(err.message);
        assert_contains(err.message, cases[i][1]);
        assert_int_equal(oct_alloc_live_bytes(), live);
    }
}

static oct_status refuse(void *context, oct_safetensors_stream *to, oct_error *err) {
    (void)context;
    (void)to;
    return oct_fail(err, OCT_FAILED, "the source is gone");
}

static void given_a_failure_in_the_last_shard_no_shard_stays(void **state) {
    (void)state;
    oct_safetensors_item items[N_ITEMS];
    oct_error err = {0};
    make_items(items);
    items[4].data = NULL;
    items[4].source = refuse;
    assert_int_equal(oct_hf_model_write("f", items, N_ITEMS, 100, &err), OCT_FAILED);
    assert_string_equal(err.message, "the source is gone");
    assert_int_equal(system("test -z \"$(ls f)\""), 0);
    make_items(items);
    items[4].name = items[0].name; /* in another shard */
    err = (oct_error){0};
    assert_int_equal(oct_hf_model_write("f", items, N_ITEMS, 100, &err), OCT_INVALID);
    assert_contains(err.message, "got two");
    assert_int_equal(oct_hf_model_write("f", items, 0, 100, NULL), OCT_INVALID);
    assert_int_equal(system("test -z \"$(ls f)\""), 0);
}

/* ---- memory ---- */

static oct_status write_swept(oct_error *err) {
    oct_safetensors_item items[N_ITEMS];
    make_items(items);
    return oct_hf_model_write("swept", items, N_ITEMS, 100, err);
}

static oct_status open_swept(oct_error *err) {
    oct_hf_model *m = NULL;
    oct_status status = oct_hf_model_open("swept", &m, err);
    oct_hf_model_close(m);
    return status;
}

static oct_status read_swept(oct_error *err) {
    oct_hf_config c;
    return oct_hf_config_read("swept", &c, err);
}

static void given_any_allocation_refused_nothing_leaks(void **state) {
    (void)state;
    sweep_allocations(write_swept);
    sweep_allocations(open_swept);
    assert_model("swept", 3);
    put_text("swept/config.json", "{" BASE ", \"task_specific_params\": {\"a\": [1, 2.5]}}");
    sweep_allocations(read_swept);
    assert_int_equal(system("test -z \"$(ls swept | grep tmp)\""), 0);
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, enter_folder, leave_folder)

int main(void) {
    const struct CMUnitTest tests[] = {
        STORY(given_a_llama_config_every_field_is_read),
        STORY(given_expert_configs_every_field_is_read),
        STORY(given_the_least_config_the_rest_has_defaults),
        STORY(given_a_config_written_it_reads_back_the_same),
        STORY(given_wrong_fields_one_line_names_each),
        STORY(given_a_config_cut_or_changed_anywhere_nothing_breaks),
        STORY(given_a_model_in_one_file_or_many_the_tensors_are_found),
        STORY(given_a_folder_without_a_model_the_error_says_what_is_looked_for),
        STORY(given_a_wrong_index_one_line_says_what),
        STORY(given_a_failure_in_the_last_shard_no_shard_stays),
        STORY(given_any_allocation_refused_nothing_leaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
