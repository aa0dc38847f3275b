/* What a checkpoint carries beside its numbers: see portable.h. */
#include "train/portable.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "io/json.h"

#define TOKENIZER "tokenizer.json"
#define MAX_FILE_BYTES ((size_t)256 << 20)

/* ---- files ---- */

/* Takes over `bytes`. */
static void add(oct_portable *p, const char *name, const char *bytes, size_t n_bytes) {
    p->files[p->n++] = (oct_checkpoint_file){name, bytes, n_bytes};
}

static oct_status add_file(oct_portable *p, const char *path, const char *name, oct_error *err) {
    char *bytes = NULL;
    size_t n_bytes = 0;
    oct_status status = oct_file_read(path, MAX_FILE_BYTES, &bytes, &n_bytes, err);
    if (status == OCT_OK)
        add(p, name, bytes, n_bytes);
    return status;
}

/* The files beside tokenizer.json that say more of it, where they are. */
static oct_status add_beside(oct_portable *p, const char *folder, oct_error *err) {
    static const char *const names[] = {"tokenizer_config.json", "generation_config.json",
                                        "special_tokens_map.json", "added_tokens.json",
                                        "chat_template.jinja"};
    oct_status status = OCT_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names && !status; i++) {
        char *path = oct_path_join(folder, names[i]);
        if (!path)
            return oct_fail_memory(err);
        if (oct_path_exists(path) && !oct_path_is_folder(path))
            status = add_file(p, path, names[i], err);
        oct_free(path);
    }
    return status;
}

/* As oct_tokenizer_load takes the path: a file of another name has nothing beside it. */
static oct_status add_tokenizer(oct_portable *p, const char *path, oct_error *err) {
    bool is_folder = oct_path_is_folder(path);
    char *file = is_folder ? oct_path_join(path, TOKENIZER) : oct_strdup(path);
    char *folder = oct_strdup(path);
    oct_status status = file && folder ? OCT_OK : oct_fail_memory(err);
    if (!status)
        status = add_file(p, file, TOKENIZER, err);
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    bool has_others = !status && (is_folder || strcmp(name, TOKENIZER) == 0);
    if (has_others && !is_folder)
        snprintf(folder, strlen(path) + 1, "%.*s", (int)(name - path), path);
    if (has_others)
        status = add_beside(p, *folder ? folder : ".", err);
    oct_free(file);
    oct_free(folder);
    return status;
}

oct_status oct_portable_read(const char *tokenizer, const oct_model_args *args,
                             oct_portable *portable, oct_error *err) {
    oct_strbuf config = {0};
    oct_status status = tokenizer ? add_tokenizer(portable, tokenizer, err) : OCT_OK;
    if (status == OCT_OK && oct_portable_put_config(args, &config)) {
        if (config.failed)
            status = oct_fail_memory(err);
        else
            add(portable, "config.json", config.text, config.length);
    }
    if (status != OCT_OK)
        oct_strbuf_free(&config);
    return status;
}

void oct_portable_free(oct_portable *portable) {
    for (size_t i = 0; i < portable->n; i++)
        oct_free((char *)portable->files[i].bytes);
    *portable = (oct_portable){0};
}

const char *oct_portable_tokenizer(const oct_portable *portable) {
    for (size_t i = 0; i < portable->n; i++)
        if (strcmp(portable->files[i].name, TOKENIZER) == 0)
            return TOKENIZER;
    return NULL;
}

/* ---- config.json ---- */

typedef struct family_words {
    const char *type, *architecture;
} family_words;

/* Whether the arguments are those of a model that transformers knows under the family's name. */
static bool has_words(const oct_model_args *a, family_words *words) {
    bool moe = a->num_experts > 0, llama = a->family == OCT_MODEL_LLAMA3;
    bool scaled = a->rope_scaling == OCT_ROPE_LINEAR || a->rope_scaling == OCT_ROPE_DYNAMIC;
    bool biased = a->qkv_bias || a->wo_bias || a->mlp_bias;
    if (a->score_before_experts || a->rope_halves || a->yarn_untruncated || scaled ||
        !oct_layer_set_is_empty(&a->windowed) || !oct_layer_set_is_empty(&a->unrotated) ||
        !oct_layer_set_is_empty(&a->dense) || (biased && !(llama && a->qkv_bias == a->wo_bias)))
        return false;
    switch (a->family) {
    case OCT_MODEL_LLAMA3:
        *words = (family_words){"llama", "LlamaForCausalLM"};
        return !a->qk_norm && !moe;
    case OCT_MODEL_QWEN3:
        *words = moe ? (family_words){"qwen3_moe", "Qwen3MoeForCausalLM"}
                     : (family_words){"qwen3", "Qwen3ForCausalLM"};
        return a->qk_norm && (!moe || (a->n_dense_layers == 0 && a->num_shared_experts == 0 &&
                                       a->num_expert_groups == 0 && a->route_scale == 1 &&
                                       a->score_func == OCT_SCORE_SOFTMAX));
    case OCT_MODEL_DEEPSEEK_V3:
        *words = (family_words){"deepseek_v3", "DeepseekV3ForCausalLM"};
        return !a->qk_norm && moe && a->num_shared_experts > 0;
    }
    return false;
}

static void put_key(oct_strbuf *to, const char *key) {
    oct_strbuf_puts(to, ",\n  ");
    oct_json_put_string(to, key);
    oct_strbuf_puts(to, ": ");
}
static void put_int(oct_strbuf *to, const char *key, int64_t value) {
    put_key(to, key);
    oct_strbuf_printf(to, "%" PRId64, value);
}
static void put_real(oct_strbuf *to, const char *key, double value) {
    put_key(to, key);
    oct_json_put_real(to, value);
}
static void put_bool(oct_strbuf *to, const char *key, bool value) {
    put_key(to, key);
    oct_strbuf_puts(to, value ? "true" : "false");
}
static void put_word(oct_strbuf *to, const char *key, const char *value) {
    put_key(to, key);
    oct_json_put_string(to, value);
}

/* yarn only where it is in force: transformers applies what it reads at any length. */
static void put_rope(const oct_model_args *a, oct_strbuf *to) {
    bool llama3 = a->rope_scaling == OCT_ROPE_LLAMA3, yarn = oct_model_args_uses_yarn(a);
    put_real(to, "rope_theta", a->rope_theta);
    put_key(to, "rope_scaling");
    if (!llama3 && !yarn) {
        oct_strbuf_puts(to, "null");
        return;
    }
    oct_strbuf_printf(to, "{\"rope_type\": \"%s\"", llama3 ? "llama3" : "yarn");
    put_real(to, "factor", a->rope_scaling_factor);
    put_int(to, "original_max_position_embeddings", a->rope_original_max_position_embeddings);
    if (llama3) {
        put_real(to, "low_freq_factor", a->rope_low_freq_factor);
        put_real(to, "high_freq_factor", a->rope_high_freq_factor);
    } else {
        put_real(to, "beta_fast", a->beta_fast);
        put_real(to, "beta_slow", a->beta_slow);
        put_real(to, "mscale_all_dim", a->mscale);
        put_real(to, "attention_factor", a->rope_attention_factor ? a->rope_attention_factor : 1);
    }
    oct_strbuf_puts(to, "}");
}

static void put_latent(const oct_model_args *a, oct_strbuf *to) {
    put_key(to, "q_lora_rank");
    if (a->q_lora_rank)
        oct_strbuf_printf(to, "%" PRId64, a->q_lora_rank);
    else
        oct_strbuf_puts(to, "null");
    put_int(to, "kv_lora_rank", a->kv_lora_rank);
    put_int(to, "qk_nope_head_dim", a->qk_nope_head_dim);
    put_int(to, "qk_rope_head_dim", a->qk_rope_head_dim);
    put_int(to, "v_head_dim", a->v_head_dim);
    put_int(to, "n_routed_experts", a->num_experts);
    put_int(to, "n_shared_experts", a->num_shared_experts);
    put_int(to, "first_k_dense_replace", a->n_dense_layers);
    put_int(to, "n_group", a->num_expert_groups ? a->num_expert_groups : 1);
    put_int(to, "topk_group", a->num_expert_groups ? a->num_limited_groups : 1);
    put_real(to, "routed_scaling_factor", a->route_scale);
    put_word(to, "scoring_func", a->score_func == OCT_SCORE_SIGMOID ? "sigmoid" : "softmax");
}

bool oct_portable_put_config(const oct_model_args *a, oct_strbuf *to) {
    family_words words;
    bool latent = a->family == OCT_MODEL_DEEPSEEK_V3;
    if (!has_words(a, &words))
        return false;
    oct_strbuf_printf(to, "{\n  \"architectures\": [\"%s\"]", words.architecture);
    put_word(to, "model_type", words.type);
    put_int(to, "vocab_size", a->vocab_size);
    put_int(to, "hidden_size", a->dim);
    put_int(to, "intermediate_size", a->hidden_dim);
    put_int(to, "num_hidden_layers", a->n_layers);
    put_int(to, "num_attention_heads", a->n_heads);
    put_int(to, "num_key_value_heads", a->n_kv_heads);
    if (!latent)
        put_int(to, "head_dim", a->head_dim);
    put_word(to, "hidden_act", "silu");
    put_bool(to, "attention_bias", a->qkv_bias);
    if (a->family == OCT_MODEL_LLAMA3)
        put_bool(to, "mlp_bias", a->mlp_bias);
    put_real(to, "rms_norm_eps", a->norm_eps);
    put_int(to, "max_position_embeddings", a->max_seq_len);
    put_bool(to, "tie_word_embeddings", a->enable_weight_tying);
    put_word(to, "torch_dtype", "float32");
    put_rope(a, to);
    if (a->num_experts > 0) {
        if (!latent)
            put_int(to, "num_experts", a->num_experts);
        put_int(to, "num_experts_per_tok", a->top_k);
        put_int(to, "moe_intermediate_size", a->moe_inter_dim);
        put_bool(to, "norm_topk_prob", a->route_norm);
    }
    if (latent)
        put_latent(a, to);
    oct_strbuf_puts(to, "\n}\n");
    return true;
}
