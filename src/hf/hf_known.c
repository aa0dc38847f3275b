/* Keys of config.json that have no value in oct_hf_config: those that can't change what octet
 * computes, in any value or in one alone, and all others, which are refused. See hf_fields.h. */
#include <inttypes.h>
#include <string.h>

#include "base/count.h"
#include "base/nearest.h"
#include "hf/hf_fields.h"

/* Which values of a key change nothing. */
typedef enum harmless {
    ANY,
    NONE, /* null, false, 0, 0.0, "" or an empty list or object */
    ONE,
    LATENT, /* of deepseek_v3 alone, where it was compared with what it follows from */
    NOAUX,  /* "noaux_tc": the choice of experts that is computed */
} harmless;

/* What these are about: files and loading; generation, of which octet takes the end tokens alone;
 * outputs, labels and losses that a caller would ask for; PreTrainedConfig's fields for other kinds
 * of models; parts that a value switches off. */
static const struct {
    const char *key;
    harmless when;
} known[] = {
    {"_name_or_path", ANY},
    {"name_or_path", ANY},
    {"transformers_version", ANY},
    {"auto_map", ANY},
    {"tokenizer_class", ANY},
    {"torchscript", ANY},
    {"use_bfloat16", ANY},
    {"_attn_implementation", ANY},
    {"attn_implementation", ANY},
    {"_attn_implementation_autoset", ANY},
    {"_experts_implementation", ANY},
    {"unsloth_fixed", ANY},
    {"unsloth_version", ANY},
    {"is_llama_config", ANY},
    {"transformers.js_config", ANY},
    {"ep_size", ANY},
    {"pretraining_tp", ANY}, /* the same products in slices */
    {"use_cache", ANY},
    {"pad_token_id", ANY},
    {"sep_token_id", ANY},
    {"decoder_start_token_id", ANY},
    {"max_length", ANY},
    {"min_length", ANY},
    {"do_sample", ANY},
    {"early_stopping", ANY},
    {"num_beams", ANY},
    {"num_beam_groups", ANY},
    {"diversity_penalty", ANY},
    {"temperature", ANY},
    {"top_k", ANY},
    {"top_p", ANY},
    {"typical_p", ANY},
    {"repetition_penalty", ANY},
    {"length_penalty", ANY},
    {"no_repeat_ngram_size", ANY},
    {"encoder_no_repeat_ngram_size", ANY},
    {"bad_words_ids", ANY},
    {"num_return_sequences", ANY},
    {"forced_bos_token_id", ANY},
    {"forced_eos_token_id", ANY},
    {"remove_invalid_values", ANY},
    {"exponential_decay_length_penalty", ANY},
    {"suppress_tokens", ANY},
    {"begin_suppress_tokens", ANY},
    {"return_dict", ANY},
    {"return_dict_in_generate", ANY},
    {"output_hidden_states", ANY},
    {"output_attentions", ANY},
    {"output_scores", ANY},
    {"id2label", ANY},
    {"label2id", ANY},
    {"num_labels", ANY},
    {"problem_type", ANY},
    {"finetuning_task", ANY},
    {"task_specific_params", ANY},
    {"prefix", ANY},
    {"is_decoder", ANY},
    {"tf_legacy_loss", ANY},
    {"tie_encoder_decoder", ANY},
    {"router_aux_loss_coef", ANY}, /* of a loss that output_router_logits would add */
    {"aux_loss_alpha", ANY},
    {"seq_aux", ANY},
    {"output_router_logits", NONE},
    {"attention_dropout", NONE},
    {"attention_bias", NONE},
    {"mlp_bias", NONE},
    {"use_sliding_window", NONE},
    {"sliding_window", NONE},
    {"use_mrope", NONE},
    {"rope_interleaved", NONE},
    {"pruned_heads", NONE},
    {"chunk_size_feed_forward", NONE},
    {"is_encoder_decoder", NONE},
    {"add_cross_attention", NONE},
    {"cross_attention_hidden_size", NONE},
    {"moe_layer_freq", ONE},
    {"head_dim", LATENT},
    {"qk_head_dim", LATENT},
    {"topk_method", NOAUX},
};

/* Keys that have a reader of their own. */
static const struct {
    const char *key;
    int families;
} special[] = {
    {"model_type", -1},
    {"architectures", -1},
    {"hidden_act", -1},
    {"eos_token_id", -1},
    {"rope_scaling", -1},
    {"rope_parameters", -1},
    {"partial_rotary_factor", -1},
    {"layer_types", -1},
    {"quantization_config", -1},
    {"mlp_only_layers", 1 << OCT_HF_QWEN3_MOE},
    {"no_rope_layers", 1 << OCT_HF_SMOLLM3},
    {"scoring_func", 1 << OCT_HF_DEEPSEEK_V3},
};

static bool is_none(const json_t *value) {
    return json_is_null(value) || json_is_false(value) ||
           (json_is_number(value) && json_number_value(value) == 0) ||
           (json_is_string(value) && !*json_string_value(value)) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static bool changes_nothing(harmless when, const json_t *value, const oct_hf_config *c) {
    switch (when) {
    case ANY:
        return true;
    case NONE:
        return is_none(value);
    case ONE:
        return json_is_null(value) || (json_is_number(value) && json_number_value(value) == 1);
    case LATENT:
        return c->family == OCT_HF_DEEPSEEK_V3;
    case NOAUX:
        return json_is_string(value) && strcmp(json_string_value(value), "noaux_tc") == 0;
    }
    return false;
}

/* Whether max_window_layers, which every family's files carry but two follow, has nothing to say:
 * there is no window. */
static bool is_idle_window(const char *key, const oct_hf_config *c) {
    return strcmp(key, "max_window_layers") == 0 && !c->sliding_window;
}

static bool is_used(const char *key, const oct_hf_config *c) {
    oct_hf_fields fields = oct_hf_root_fields();
    for (size_t i = 0; i < fields.n; i++)
        if ((fields.list[i].families & 1 << c->family) && strcmp(fields.list[i].key, key) == 0)
            return true;
    for (size_t i = 0; i < OCT_COUNT(special); i++)
        if ((special[i].families & 1 << c->family) && strcmp(special[i].key, key) == 0)
            return true;
    return false;
}

/* The nearest key that the family has. */
static const char *nearest(const char *key, const oct_hf_config *c) {
    const char *names[128];
    size_t n = 0;
    oct_hf_fields fields = oct_hf_root_fields();
    for (size_t i = 0; i < fields.n && n < OCT_COUNT(names); i++)
        if (fields.list[i].families & 1 << c->family)
            names[n++] = fields.list[i].key;
    for (size_t i = 0; i < OCT_COUNT(special) && n < OCT_COUNT(names); i++)
        if (special[i].families & 1 << c->family)
            names[n++] = special[i].key;
    return oct_nearest_name(key, names, n);
}

/* A value in few words. */
static void put_value(const json_t *value, oct_strbuf *to) {
    if (json_is_string(value))
        oct_strbuf_printf(to, "'%s'", oct_show(json_string_value(value)).text);
    else if (json_is_integer(value))
        oct_strbuf_printf(to, "%" PRId64, (int64_t)json_integer_value(value));
    else if (json_is_real(value))
        oct_json_put_real(to, json_real_value(value));
    else if (json_is_boolean(value))
        oct_strbuf_puts(to, json_is_true(value) ? "true" : "false");
    else
        oct_strbuf_puts(to, oct_json_kind(value));
}

static oct_status fail_list(const char *file, const char *where, const char *what, oct_strbuf *list,
                            oct_error *err) {
    oct_status status = OCT_OK;
    if (list->failed)
        status = oct_fail_memory(err);
    else if (list->length)
        status = oct_fail(err, OCT_INVALID, "%s: %s%s: %s", file, where, what, list->text);
    oct_strbuf_free(list);
    return status;
}

/* Either the key's known values, or what it may have meant. */
static void put_refused(const char *key, const json_t *value, const oct_hf_config *c,
                        oct_strbuf *list) {
    for (size_t i = 0; i < OCT_COUNT(known); i++) {
        if (strcmp(known[i].key, key) != 0)
            continue;
        if (changes_nothing(known[i].when, value, c) || is_idle_window(key, c))
            return;
        oct_strbuf_printf(list, "%s%s (not supported with ", list->length ? ", " : "", key);
        put_value(value, list);
        oct_strbuf_puts(list, ")");
        return;
    }
    if (is_idle_window(key, c))
        return;
    const char *near = nearest(key, c);
    oct_strbuf_printf(list, "%s%s", list->length ? ", " : "", oct_show(key).text);
    if (near)
        oct_strbuf_printf(list, " (nearest: %s)", near);
}

oct_status oct_hf_refuse_unknown(const char *file, const json_t *root, const oct_hf_config *c,
                                 oct_error *err) {
    const char *key;
    json_t *value;
    oct_strbuf list = {0};
    char what[80];
    snprintf(what, sizeof what, "keys that a %s model doesn't use", oct_hf_family_name(c->family));
    json_object_foreach((json_t *)(uintptr_t)root, key, value) {
        if (!is_used(key, c))
            put_refused(key, value, c, &list);
    }
    return fail_list(file, "", what, &list, err);
}

oct_status oct_hf_refuse_unknown_in(const char *file, const char *where, const json_t *object,
                                    const char *const *names, size_t n_names, oct_hf_fields fields,
                                    oct_error *err) {
    const char *key;
    json_t *value;
    oct_strbuf list = {0};
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        bool found = false;
        for (size_t i = 0; i < n_names; i++)
            found |= strcmp(names[i], key) == 0;
        for (size_t i = 0; i < fields.n; i++)
            found |= strcmp(fields.list[i].key, key) == 0;
        if (!found)
            oct_strbuf_printf(&list, "%s%s", list.length ? ", " : "", oct_show(key).text);
    }
    return fail_list(file, where, "unknown keys", &list, err);
}
