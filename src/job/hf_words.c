/* A model in Hugging Face's words: see hf_words.h. Which model type has words for a model is found
 * by trying: what it writes must say the same model when it's read. */
#include "job/hf_words.h"

#include <string.h>

#include "base/alloc.h"
#include "base/count.h"
#include "base/fs.h"
#include "file/json.h"
#include "job/hf_args.h"

#define MAX_CONFIG_BYTES ((size_t)16 << 20)
#define LATENT_EPS 1e-6 /* of transformers' norms of latents, whatever rms_norm_eps says */

/* ---- arguments to fields ---- */

static const struct {
    oct_hf_family family;
    oct_model_family model;
    const char *architecture;
} words[] = {
    {OCT_HF_LLAMA, OCT_MODEL_LLAMA3, "LlamaForCausalLM"},
    {OCT_HF_MISTRAL, OCT_MODEL_LLAMA3, "MistralForCausalLM"},
    {OCT_HF_QWEN2, OCT_MODEL_LLAMA3, "Qwen2ForCausalLM"},
    {OCT_HF_SMOLLM3, OCT_MODEL_LLAMA3, "SmolLM3ForCausalLM"},
    {OCT_HF_QWEN3, OCT_MODEL_QWEN3, "Qwen3ForCausalLM"},
    {OCT_HF_QWEN3_MOE, OCT_MODEL_QWEN3, "Qwen3MoeForCausalLM"},
    {OCT_HF_DEEPSEEK_V3, OCT_MODEL_DEEPSEEK_V3, "DeepseekV3ForCausalLM"},
};
enum { N_WORDS = OCT_COUNT(words) };

/* yarn only where it is in force: transformers applies what it reads at any length. */
static void set_rope(const oct_model_args *a, oct_hf_config *c) {
    static const oct_hf_rope_type types[] = {[OCT_ROPE_UNSCALED] = OCT_HF_ROPE_DEFAULT,
                                             [OCT_ROPE_LINEAR] = OCT_HF_ROPE_LINEAR,
                                             [OCT_ROPE_DYNAMIC] = OCT_HF_ROPE_DYNAMIC,
                                             [OCT_ROPE_LLAMA3] = OCT_HF_ROPE_LLAMA3,
                                             [OCT_ROPE_YARN] = OCT_HF_ROPE_YARN};
    bool idle = a->rope_scaling == OCT_ROPE_YARN && !oct_model_args_uses_yarn(a);
    c->rope_theta = a->rope_theta;
    c->rope_interleave = !a->rope_halves;
    c->rope_type = idle ? OCT_HF_ROPE_DEFAULT : types[a->rope_scaling];
    if (c->rope_type == OCT_HF_ROPE_DEFAULT)
        return;
    c->rope_factor = a->rope_scaling_factor;
    c->rope_original_max_position_embeddings = a->rope_original_max_position_embeddings;
    c->rope_low_freq_factor = a->rope_low_freq_factor;
    c->rope_high_freq_factor = a->rope_high_freq_factor;
    if (c->rope_type == OCT_HF_ROPE_DYNAMIC) /* it stretches past this */
        c->max_position_embeddings = a->rope_original_max_position_embeddings;
    if (c->rope_type != OCT_HF_ROPE_YARN)
        return;
    c->rope_beta_fast = a->beta_fast;
    c->rope_beta_slow = a->beta_slow;
    c->rope_mscale_all_dim = a->mscale;
    c->rope_attention_factor = a->rope_attention_factor > 0 ? a->rope_attention_factor : 1;
    c->rope_truncate = !a->yarn_untruncated;
}

static void set_layers(const oct_model_args *a, oct_hf_config *c) {
    bool any = a->window > 0 && !oct_layer_set_is_empty(&a->windowed);
    c->use_sliding_window = any;
    c->sliding_window = any ? a->window : 0;
    c->windowed = a->windowed;
    c->max_window_layers = any ? 0 : a->n_layers;
    while (any && c->max_window_layers < a->n_layers &&
           !oct_layer_set_has(&a->windowed, c->max_window_layers))
        c->max_window_layers++;
    c->no_rope = a->unrotated;
}

static void set_experts(const oct_model_args *a, oct_hf_config *c) {
    c->n_experts = a->num_experts;
    c->num_experts_per_tok = a->top_k;
    c->moe_intermediate_size = a->moe_inter_dim;
    c->norm_topk_prob = a->route_norm;
    c->mlp_only = a->dense;
    c->n_shared_experts = a->num_shared_experts;
    c->n_group = a->num_expert_groups ? a->num_expert_groups : 1;
    c->topk_group = a->num_expert_groups ? a->num_limited_groups : 1;
    c->routed_scaling_factor = a->route_scale;
    c->first_k_dense_replace = a->n_dense_layers;
    c->scoring_func =
        a->score_func == OCT_SCORE_SIGMOID ? OCT_HF_SCORING_SIGMOID : OCT_HF_SCORING_SOFTMAX;
}

static oct_hf_config config_of(const oct_model_args *a, size_t word) {
    oct_hf_config c = oct_hf_defaults(words[word].family);
    strcpy(c.architecture, words[word].architecture);
    c.hidden_size = a->dim;
    c.intermediate_size = a->hidden_dim;
    c.num_hidden_layers = a->n_layers;
    c.num_attention_heads = a->n_heads;
    c.num_key_value_heads = a->n_kv_heads;
    c.head_dim = a->head_dim;
    c.vocab_size = a->vocab_size;
    c.max_position_embeddings = a->max_seq_len;
    c.rms_norm_eps = a->norm_eps;
    c.tie_word_embeddings = a->enable_weight_tying;
    c.attention_bias = a->wo_bias;
    c.mlp_bias = a->mlp_bias;
    c.q_lora_rank = a->q_lora_rank;
    c.kv_lora_rank = a->kv_lora_rank;
    c.qk_nope_head_dim = a->qk_nope_head_dim;
    c.qk_rope_head_dim = a->qk_rope_head_dim;
    c.v_head_dim = a->v_head_dim;
    set_rope(a, &c);
    set_layers(a, &c);
    set_experts(a, &c);
    return c;
}

/* ---- held against the arguments ---- */

/* What a config.json can't say, as it is said then. */
static oct_model_args sayable(const oct_model_args *args) {
    oct_model_args a = *args;
    if (a.rope_scaling == OCT_ROPE_YARN && !oct_model_args_uses_yarn(&a))
        a.rope_scaling = OCT_ROPE_UNSCALED;
    a.latent_norm_eps = LATENT_EPS;
    return a;
}

/* `why` becomes these differences, if there is nothing in it yet, or more. */
static void keep_nearest(const oct_strbuf *differences, oct_strbuf *why) {
    if (!why || (why->length && why->length <= differences->length))
        return;
    oct_strbuf_free(why);
    oct_strbuf_append(why, differences->text, differences->length);
}

/* Whether a config.json of this text says these arguments' model; if not, `why` (NULL is fine) is
 * kept as above. */
static oct_status says(const char *text, size_t n_bytes, const char *name,
                       const oct_model_args *args, bool *same, oct_strbuf *why, oct_error *err) {
    oct_hf_config config;
    oct_model_args there, here = sayable(args);
    oct_strbuf differences = {0};
    *same = false;
    oct_status status = oct_hf_config_parse(text, n_bytes, name, &config, err);
    if (!status)
        status = oct_setup_model_args_of_config(&config, &there, err);
    if (!status)
        status = oct_model_args_resolve(&there, err);
    if (status)
        return status;
    oct_setup_compare_args(&there, &here, &differences);
    if (differences.failed)
        status = oct_fail_memory(err);
    *same = !differences.length;
    if (differences.length)
        keep_nearest(&differences, why);
    oct_strbuf_free(&differences);
    return status;
}

/* ---- another file's words ---- */

/* What is another's, or not so any more in weights that are written anew. */
static void adapt(json_t *root, const char *dtype) {
    static const char *const dropped[] = {"quantization_config", "_name_or_path", "name_or_path",
                                          "transformers_version"};
    static const char *const none[] = {"num_nextn_predict_layers", "num_mtp_layers"};
    bool newer = json_object_get(root, "dtype") != NULL;
    for (size_t i = 0; i < OCT_COUNT(dropped); i++)
        json_object_del(root, dropped[i]);
    for (size_t i = 0; i < OCT_COUNT(none); i++)
        if (json_object_get(root, none[i]))
            json_object_set_new(root, none[i], json_integer(0));
    if (newer)
        json_object_del(root, "torch_dtype");
    json_object_set_new(root, newer ? "dtype" : "torch_dtype", json_string(dtype));
}

static oct_status put_origin(const oct_model_args *args, const char *origin, const char *dtype,
                             oct_strbuf *to, oct_error *err) {
    char *text = NULL;
    size_t n_bytes = 0;
    bool same = false;
    json_t *root = NULL;
    oct_status status = oct_file_read(origin, MAX_CONFIG_BYTES, &text, &n_bytes, err);
    if (!status)
        status = says(text, n_bytes, origin, args, &same, NULL, err);
    if (!status && same)
        status = oct_json_parse(text, n_bytes, origin, &root, err);
    if (root) {
        adapt(root, dtype);
        oct_json_put(to, root, 2);
        oct_strbuf_puts(to, "\n");
    }
    json_decref(root);
    oct_free(text);
    return status;
}

/* ---- words of our own ---- */

/* Qwen3 has a class for each kind; DeepSeek's has experts of both kinds, or doesn't load. */
static bool can_be(const oct_model_args *a, size_t word) {
    bool experts = a->num_experts > 0;
    if (words[word].model != a->family)
        return false;
    if (a->family == OCT_MODEL_QWEN3)
        return experts == (words[word].family == OCT_HF_QWEN3_MOE);
    return words[word].family != OCT_HF_DEEPSEEK_V3 || (experts && a->num_shared_experts > 0);
}

static oct_status put_own(const oct_model_args *args, const char *dtype, oct_strbuf *to,
                          oct_strbuf *why, oct_error *err) {
    bool same = false;
    for (size_t i = 0; i < N_WORDS; i++) {
        oct_strbuf text = {0};
        oct_error cause = {0};
        if (!can_be(args, i))
            continue;
        oct_hf_config config = config_of(args, i);
        strcpy(config.torch_dtype, dtype);
        oct_hf_config_put(&text, &config);
        oct_status status =
            text.failed ? OCT_NO_MEMORY
                        : says(text.text, text.length, "config.json", args, &same, why, &cause);
        if (!status && same)
            oct_strbuf_append(to, text.text, text.length);
        oct_strbuf_free(&text);
        if (status == OCT_NO_MEMORY)
            return oct_fail_memory(err);
        if (!status && same)
            break;
    }
    return OCT_OK;
}

oct_status oct_hf_words_put(const oct_model_args *args, const char *origin, const char *dtype,
                            oct_strbuf *to, oct_strbuf *why, oct_error *err) {
    size_t before = to->length;
    oct_status status = origin ? put_origin(args, origin, dtype, to, err) : OCT_OK;
    if (!status && to->length == before)
        status = put_own(args, dtype, to, why, err);
    return status;
}

oct_status oct_fail_no_words(const oct_strbuf *why, oct_error *err) {
    return oct_fail(err, OCT_INVALID,
                    "transformers has no class for such a model; in the nearest %s",
                    why->length ? why->text : "experts are chosen otherwise");
}

void oct_hf_words_losses(const oct_model_args *a, const char *losses[OCT_HF_WORDS_MAX_LOSSES + 1]) {
    size_t n = 0;
    double eps = a->latent_norm_eps > 0 ? a->latent_norm_eps : a->norm_eps;
    if (a->family == OCT_MODEL_DEEPSEEK_V3 && eps != LATENT_EPS)
        losses[n++] = "transformers' norms of latents have an epsilon of 1e-6, whatever "
                      "rms_norm_eps is; this model's have its norm_eps: its logits there will "
                      "differ a little";
    if (a->family == OCT_MODEL_DEEPSEEK_V3 && a->score_func != OCT_SCORE_SIGMOID)
        losses[n++] = "transformers' DeepSeek-V3 chooses experts by a sigmoid, whatever "
                      "scoring_func is; this model does by a softmax: its logits there will be "
                      "others";
    losses[n] = NULL;
}
