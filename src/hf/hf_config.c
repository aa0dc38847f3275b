/* config.json of Hugging Face models: see hf_config.h. What tables of keys say is in
 * hf_fields.c, what they can't say here and in hf_rope.c, hf_layers.c and hf_quantization.c, what
 * has no effect in hf_known.c, writing in hf_config_write.c. */
#include "hf/hf_config.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "base/alloc.h"
#include "base/count.h"
#include "base/fs.h"
#include "hf/hf_fields.h"

#define MAX_CONFIG_BYTES ((size_t)16 << 20)

static oct_status read_family(const char *file, const json_t *root, oct_hf_family *family,
                              oct_error *err) {
    const json_t *value = json_object_get(root, "model_type");
    const char *name = json_string_value(value);
    oct_strbuf list = {0};
    if (!value)
        return oct_fail(err, OCT_INVALID, "%s: model_type: expected; it is missing", file);
    if (!name)
        return oct_fail(err, OCT_INVALID, "%s: model_type: expected a string; got %s", file,
                        oct_json_kind(value));
    for (int i = 0; i < OCT_N_HF_FAMILIES; i++) {
        *family = (oct_hf_family)i;
        if (strcmp(oct_hf_family_name((oct_hf_family)i), name) == 0)
            return OCT_OK;
    }
    for (int i = 0; i < OCT_N_HF_FAMILIES; i++)
        oct_strbuf_printf(&list, "%s%s",
                          i == 0                       ? ""
                          : i == OCT_N_HF_FAMILIES - 1 ? " or "
                                                       : ", ",
                          oct_hf_family_name((oct_hf_family)i));
    oct_fail(err, OCT_INVALID, "%s: model_type: %s isn't supported; expected %s", file,
             oct_show(name).text, list.failed ? "another" : list.text);
    oct_strbuf_free(&list);
    return OCT_INVALID;
}

/* A value under two names must be one. */
static oct_status check_spellings(const char *file, const json_t *root, oct_error *err) {
    static const char *const pairs[][2] = {{"dtype", "torch_dtype"},
                                           {"num_local_experts", "num_experts"},
                                           {"num_local_experts", "n_routed_experts"},
                                           {"num_mtp_layers", "num_nextn_predict_layers"}};
    for (size_t i = 0; i < OCT_COUNT(pairs); i++) {
        const json_t *a = oct_hf_get(root, pairs[i][0]), *b = oct_hf_get(root, pairs[i][1]);
        if (a && b && !json_equal(a, b))
            return oct_fail(err, OCT_INVALID, "%s: %s: expected the value of %s, its other name",
                            file, pairs[i][0], pairs[i][1]);
    }
    return OCT_OK;
}

/* Only language models: others have other heads. */
static oct_status read_architecture(const char *file, const json_t *root, oct_hf_config *config,
                                    oct_error *err) {
    static const char ending[] = "ForCausalLM";
    static const oct_hf_field name = {"architectures", OCT_HF_TEXT, 0, 0, OCT_HF_DEFAULT, 0, 0};
    const json_t *list = oct_hf_get(root, "architectures");
    if (!list)
        return OCT_OK;
    if (!json_is_array(list) || json_array_size(list) == 0)
        return oct_fail(err, OCT_INVALID, "%s: architectures: expected a list of names; got %s",
                        file, json_is_array(list) ? "an empty one" : oct_json_kind(list));
    oct_status status =
        oct_hf_read_field(file, "", json_array_get(list, 0), &name, config->architecture, err);
    if (status)
        return status;
    size_t n = strlen(config->architecture), m = sizeof ending - 1;
    if (json_array_size(list) > 1 || n < m || strcmp(config->architecture + n - m, ending) != 0)
        return oct_fail(err, OCT_INVALID, "%s: architectures: expected one ...%s; got %s%s", file,
                        ending, oct_show(config->architecture).text,
                        json_array_size(list) > 1 ? " and others" : "");
    return OCT_OK;
}

/* An id, or a list of them. */
static oct_status read_ends(const char *file, const json_t *root, int64_t ids[OCT_HF_MAX_ENDS],
                            int64_t *n_ids, oct_error *err) {
    static const oct_hf_field end = {"eos_token_id",  OCT_HF_SIZE, 0, 0, OCT_HF_NULLABLE, -1,
                                     OCT_HF_MAX_VOCAB};
    const json_t *value = oct_hf_get(root, end.key);
    size_t n = json_is_array(value) ? json_array_size(value) : 1;
    if (!value)
        return OCT_OK;
    if (n > OCT_HF_MAX_ENDS)
        return oct_fail(err, OCT_INVALID, "%s: %s: expected at most %d ids; got %zu", file, end.key,
                        OCT_HF_MAX_ENDS, n);
    *n_ids = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_is_array(value) ? json_array_get(value, i) : value;
        oct_status status = oct_hf_read_field(file, "", id, &end, &ids[*n_ids], err);
        if (status)
            return status;
        *n_ids += ids[*n_ids] >= 0;
    }
    return OCT_OK;
}

static oct_status read_activation(const char *file, const json_t *root, oct_error *err) {
    const json_t *value = json_object_get(root, "hidden_act");
    const char *name = json_string_value(value);
    if (!value || (name && (strcmp(name, "silu") == 0 || strcmp(name, "swish") == 0)))
        return OCT_OK;
    return oct_fail(err, OCT_INVALID,
                    "%s: hidden_act: not supported; expected silu or swish; got %s", file,
                    name ? oct_show(name).text : oct_json_kind(value));
}

static oct_status read_scoring(const char *file, const json_t *root, oct_hf_config *config,
                               oct_error *err) {
    const json_t *value = oct_hf_get(root, "scoring_func");
    const char *name = json_string_value(value);
    if (!value || config->family != OCT_HF_DEEPSEEK_V3)
        return OCT_OK;
    if (name && strcmp(name, "sigmoid") == 0)
        config->scoring_func = OCT_HF_SCORING_SIGMOID;
    else if (name && strcmp(name, "softmax") == 0)
        config->scoring_func = OCT_HF_SCORING_SOFTMAX;
    else
        return oct_fail(err, OCT_INVALID,
                        "%s: scoring_func: expected 'softmax' or 'sigmoid'; got %s", file,
                        name ? oct_show(name).text : oct_json_kind(value));
    return OCT_OK;
}

/* ---- what must fit together ---- */

/* transformers 4 and 5 write both of these; they follow from others. */
static oct_status check_latent_heads(const char *file, const json_t *root, const oct_hf_config *c,
                                     oct_error *err) {
    const struct {
        const char *key;
        int64_t value;
    } derived[] = {{"head_dim", c->qk_rope_head_dim},
                   {"qk_head_dim", c->qk_nope_head_dim + c->qk_rope_head_dim}};
    for (size_t i = 0; i < OCT_COUNT(derived); i++) {
        const json_t *value = oct_hf_get(root, derived[i].key);
        if (value && (!json_is_integer(value) || json_integer_value(value) != derived[i].value))
            return oct_fail(err, OCT_INVALID,
                            "%s: %s: expected %" PRId64 ", as qk_nope_head_dim and "
                            "qk_rope_head_dim say; got another",
                            file, derived[i].key, derived[i].value);
    }
    if (c->num_key_value_heads != c->num_attention_heads)
        return oct_fail(err, OCT_INVALID,
                        "%s: num_key_value_heads: latent attention has a key for every head; "
                        "expected %" PRId64 "; got %" PRId64,
                        file, c->num_attention_heads, c->num_key_value_heads);
    if (c->qk_rope_head_dim % 2)
        return oct_fail(err, OCT_INVALID,
                        "%s: qk_rope_head_dim: expected an even number; got "
                        "%" PRId64,
                        file, c->qk_rope_head_dim);
    return OCT_OK;
}

static oct_status check_heads(const char *file, const json_t *root, oct_hf_config *c,
                              oct_error *err) {
    bool latent = c->family == OCT_HF_DEEPSEEK_V3;
    oct_status status = OCT_OK;
    if (!c->num_key_value_heads)
        c->num_key_value_heads = c->num_attention_heads;
    if (latent)
        status = check_latent_heads(file, root, c, err);
    if (status)
        return status;
    if (c->num_attention_heads % c->num_key_value_heads)
        return oct_fail(err, OCT_INVALID,
                        "%s: num_key_value_heads: expected a divisor of num_attention_heads "
                        "%" PRId64 "; got %" PRId64,
                        file, c->num_attention_heads, c->num_key_value_heads);
    if (latent)
        c->head_dim = c->qk_nope_head_dim + c->qk_rope_head_dim;
    if (!c->head_dim && c->hidden_size % c->num_attention_heads)
        return oct_fail(err, OCT_INVALID,
                        "%s: num_attention_heads: expected a divisor of hidden_size %" PRId64
                        "; got %" PRId64,
                        file, c->hidden_size, c->num_attention_heads);
    if (!c->head_dim)
        c->head_dim = c->hidden_size / c->num_attention_heads;
    if (!latent && c->head_dim % 2)
        return oct_fail(err, OCT_INVALID, "%s: head_dim: expected an even number; got %" PRId64,
                        file, c->head_dim);
    if (c->head_dim > OCT_HF_MAX_WIDTH / c->num_attention_heads)
        return oct_fail(err, OCT_INVALID,
                        "%s: head_dim: expected at most %" PRId64 " for all heads together; got "
                        "%" PRId64 " x %" PRId64,
                        file, OCT_HF_MAX_WIDTH, c->num_attention_heads, c->head_dim);
    return OCT_OK;
}

static oct_status check_groups(const char *file, const oct_hf_config *c, oct_error *err) {
    if (c->n_experts % c->n_group)
        return oct_fail(err, OCT_INVALID,
                        "%s: n_group: expected a divisor of the %" PRId64 " experts; got %" PRId64,
                        file, c->n_experts, c->n_group);
    if (c->topk_group > c->n_group)
        return oct_fail(err, OCT_INVALID,
                        "%s: topk_group: expected 1 to n_group %" PRId64 "; got %" PRId64, file,
                        c->n_group, c->topk_group);
    if (c->num_experts_per_tok > c->n_experts / c->n_group * c->topk_group)
        return oct_fail(err, OCT_INVALID,
                        "%s: num_experts_per_tok: expected at most the %" PRId64 " experts of "
                        "%" PRId64 " groups; got %" PRId64,
                        file, c->n_experts / c->n_group * c->topk_group, c->topk_group,
                        c->num_experts_per_tok);
    return OCT_OK;
}

static oct_status check_experts(const char *file, const oct_hf_config *c, oct_error *err) {
    if (c->n_experts == 0)
        return OCT_OK;
    if (c->num_experts_per_tok < 1 || c->num_experts_per_tok > c->n_experts)
        return oct_fail(err, OCT_INVALID,
                        "%s: num_experts_per_tok: expected 1 to %" PRId64 ", the number of "
                        "experts; got %" PRId64,
                        file, c->n_experts, c->num_experts_per_tok);
    if (c->moe_intermediate_size < 1)
        return oct_fail(err, OCT_INVALID,
                        "%s: moe_intermediate_size: expected >= 1 for a model with experts; got "
                        "%" PRId64,
                        file, c->moe_intermediate_size);
    return c->family == OCT_HF_DEEPSEEK_V3 ? check_groups(file, c, err) : OCT_OK;
}

bool oct_hf_config_has_experts(const oct_hf_config *c, int64_t layer) {
    if (c->n_experts == 0)
        return false;
    if (c->family == OCT_HF_DEEPSEEK_V3)
        return layer >= c->first_k_dense_replace;
    return (layer + 1) % c->decoder_sparse_step == 0 && !oct_layer_set_has(&c->mlp_only, layer);
}

/* ---- all of it ---- */

static oct_status read_root(const char *file, const json_t *root, oct_hf_config *c,
                            oct_error *err) {
    oct_hf_family family = OCT_HF_LLAMA;
    oct_status status = read_family(file, root, &family, err);
    if (status)
        return status;
    *c = oct_hf_defaults(family);
    status = oct_hf_read_fields(file, "", root, oct_hf_root_fields(), c, err);
    if (!status)
        status = check_spellings(file, root, err);
    if (!status)
        status = read_architecture(file, root, c, err);
    if (!status)
        status = read_activation(file, root, err);
    if (!status)
        status = read_ends(file, root, c->eos_token_ids, &c->n_eos_token_ids, err);
    if (!status)
        status = read_scoring(file, root, c, err);
    if (!status)
        status = oct_hf_read_rope(file, root, c, err);
    if (!status)
        status = oct_hf_read_layers(file, root, c, err);
    if (!status)
        status = oct_hf_read_quantization(file, root, c, err);
    if (!status)
        status = check_heads(file, root, c, err);
    if (!status)
        status = check_experts(file, c, err);
    if (status)
        return status;
    return oct_hf_refuse_unknown(file, root, c, err);
}

oct_status oct_hf_config_parse(const char *text, size_t n_bytes, const char *name,
                               oct_hf_config *config, oct_error *err) {
    json_t *root = NULL;
    oct_hf_config c;
    oct_status status = oct_json_parse(text, n_bytes, name, &root, err);
    if (status)
        return status;
    status = read_root(name, root, &c, err);
    json_decref(root);
    if (!status)
        *config = c;
    return status;
}

oct_status oct_hf_config_read(const char *path, oct_hf_config *config, oct_error *err) {
    char *text = NULL;
    size_t n_bytes = 0;
    char *file = oct_path_is_folder(path) ? oct_path_join(path, "config.json") : oct_strdup(path);
    if (!file)
        return oct_fail_memory(err);
    oct_status status = oct_file_read(file, MAX_CONFIG_BYTES, &text, &n_bytes, err);
    if (!status)
        status = oct_hf_config_parse(text, n_bytes, file, config, err);
    oct_free(text);
    oct_free(file);
    return status;
}

oct_status oct_hf_end_tokens(const char *folder, const oct_hf_config *config,
                             int64_t ids[OCT_HF_MAX_ENDS], int64_t *n, oct_error *err) {
    char *text = NULL, *file = oct_path_join(folder, "generation_config.json");
    size_t n_bytes = 0;
    json_t *root = NULL;
    *n = config->n_eos_token_ids;
    memcpy(ids, config->eos_token_ids, sizeof config->eos_token_ids);
    if (!file)
        return oct_fail_memory(err);
    oct_status status = OCT_OK;
    bool is_there = oct_path_exists(file);
    if (is_there)
        status = oct_file_read(file, MAX_CONFIG_BYTES, &text, &n_bytes, err);
    if (is_there && !status)
        status = oct_json_parse(text, n_bytes, file, &root, err);
    if (is_there && !status)
        status = read_ends(file, root, ids, n, err);
    json_decref(root);
    oct_free(text);
    oct_free(file);
    return status;
}
