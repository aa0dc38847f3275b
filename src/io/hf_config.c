/* config.json of Hugging Face models: see hf_config.h. One table drives reading and writing; what a
 * table can't say (groups that divide, rope_scaling) follows it. */
#include "io/hf_config.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/strbuf.h"
#include "io/file_sink.h"
#include "io/json.h"

#define MAX_CONFIG_BYTES ((size_t)16 << 20)
/* Bounds that keep every product of sizes (experts x rows x columns x 8 bytes) inside 63 bits. */
#define MAX_WIDTH ((int64_t)1 << 22)
#define MAX_VOCAB ((int64_t)1 << 28)
#define MAX_LAYERS 100000
#define MAX_EXPERTS ((int64_t)1 << 14)
#define MAX_POSITIONS ((int64_t)1 << 40)

typedef enum field_kind { FIELD_TEXT, FIELD_SIZE, FIELD_REAL, FIELD_SWITCH } field_kind;

/* Which config.json files have the key; a reader takes it from any. */
typedef enum family {
    FAMILY_ANY = 7,
    FAMILY_DENSE = 1,
    FAMILY_QWEN3_MOE = 2,
    FAMILY_DEEPSEEK = 4,
} family;

typedef enum presence { OPTIONAL, REQUIRED } presence;

typedef struct field {
    const char *key;
    field_kind kind;
    size_t offset;
    family families;
    presence presence;
    double low, high; /* inclusive; for sizes and reals */
} field;

#define AT(member) offsetof(oct_hf_config, member)
#define SIZE(member, families, presence, low, high)                                                \
    { #member, FIELD_SIZE, AT(member), families, presence, low, high }
#define REAL(member, families, low, high)                                                          \
    { #member, FIELD_REAL, AT(member), families, OPTIONAL, low, high }

static const field fields[] = {
    {"model_type", FIELD_TEXT, AT(model_type), FAMILY_ANY, REQUIRED},
    {"dtype", FIELD_TEXT, AT(torch_dtype), 0, OPTIONAL}, /* transformers 5's name: read only */
    {"torch_dtype", FIELD_TEXT, AT(torch_dtype), FAMILY_ANY, OPTIONAL},
    {"hidden_act", FIELD_TEXT, AT(hidden_act), FAMILY_ANY, OPTIONAL},
    SIZE(hidden_size, FAMILY_ANY, REQUIRED, 1, MAX_WIDTH),
    SIZE(intermediate_size, FAMILY_ANY, REQUIRED, 1, MAX_WIDTH),
    SIZE(num_hidden_layers, FAMILY_ANY, REQUIRED, 1, MAX_LAYERS),
    SIZE(num_attention_heads, FAMILY_ANY, REQUIRED, 1, MAX_WIDTH),
    SIZE(num_key_value_heads, FAMILY_ANY, OPTIONAL, 1, MAX_WIDTH),
    SIZE(head_dim, FAMILY_DENSE | FAMILY_QWEN3_MOE, OPTIONAL, 1, MAX_WIDTH),
    SIZE(vocab_size, FAMILY_ANY, REQUIRED, 1, MAX_VOCAB),
    SIZE(max_position_embeddings, FAMILY_ANY, OPTIONAL, 1, MAX_POSITIONS),
    REAL(rms_norm_eps, FAMILY_ANY, 0, 1),
    {"tie_word_embeddings", FIELD_SWITCH, AT(tie_word_embeddings), FAMILY_ANY, OPTIONAL},
    {"attention_bias", FIELD_SWITCH, AT(attention_bias), FAMILY_ANY, OPTIONAL},
    REAL(initializer_range, FAMILY_ANY, 0, 1e3),
    SIZE(bos_token_id, FAMILY_ANY, OPTIONAL, -1, MAX_VOCAB),
    REAL(rope_theta, FAMILY_ANY, 1e-3, 1e30),
    {"num_experts", FIELD_SIZE, AT(n_experts), FAMILY_QWEN3_MOE, OPTIONAL, 0, MAX_EXPERTS},
    {"n_routed_experts", FIELD_SIZE, AT(n_experts), FAMILY_DEEPSEEK, OPTIONAL, 0, MAX_EXPERTS},
    SIZE(num_experts_per_tok, FAMILY_QWEN3_MOE | FAMILY_DEEPSEEK, OPTIONAL, 0, MAX_EXPERTS),
    SIZE(moe_intermediate_size, FAMILY_QWEN3_MOE | FAMILY_DEEPSEEK, OPTIONAL, 0, MAX_WIDTH),
    {"norm_topk_prob", FIELD_SWITCH, AT(norm_topk_prob), FAMILY_QWEN3_MOE | FAMILY_DEEPSEEK,
     OPTIONAL},
    SIZE(decoder_sparse_step, FAMILY_QWEN3_MOE, OPTIONAL, 1, MAX_LAYERS),
    SIZE(q_lora_rank, FAMILY_DEEPSEEK, OPTIONAL, 0, MAX_WIDTH),
    SIZE(kv_lora_rank, FAMILY_DEEPSEEK, OPTIONAL, 0, MAX_WIDTH),
    SIZE(qk_nope_head_dim, FAMILY_DEEPSEEK, OPTIONAL, 0, MAX_WIDTH),
    SIZE(qk_rope_head_dim, FAMILY_DEEPSEEK, OPTIONAL, 0, MAX_WIDTH),
    SIZE(v_head_dim, FAMILY_DEEPSEEK, OPTIONAL, 0, MAX_WIDTH),
    SIZE(n_shared_experts, FAMILY_DEEPSEEK, OPTIONAL, 0, MAX_EXPERTS),
    SIZE(n_group, FAMILY_DEEPSEEK, OPTIONAL, 1, MAX_EXPERTS),
    SIZE(topk_group, FAMILY_DEEPSEEK, OPTIONAL, 1, MAX_EXPERTS),
    REAL(routed_scaling_factor, FAMILY_DEEPSEEK, 0, 1e6),
    SIZE(first_k_dense_replace, FAMILY_DEEPSEEK, OPTIONAL, 0, MAX_LAYERS),
};
#define N_FIELDS (sizeof fields / sizeof fields[0])

static const field rope_fields[] = {
    {"factor", FIELD_REAL, AT(rope_factor), FAMILY_ANY, REQUIRED, 1, 1e6},
    {"original_max_position_embeddings", FIELD_SIZE, AT(rope_original_max_position_embeddings),
     FAMILY_ANY, REQUIRED, 1, MAX_POSITIONS},
};
static const field llama3_fields[] = {
    {"low_freq_factor", FIELD_REAL, AT(rope_low_freq_factor), FAMILY_ANY, REQUIRED, 1e-6, 1e6},
    {"high_freq_factor", FIELD_REAL, AT(rope_high_freq_factor), FAMILY_ANY, REQUIRED, 1e-6, 1e6},
};
static const field yarn_fields[] = {
    {"beta_fast", FIELD_REAL, AT(rope_beta_fast), FAMILY_ANY, OPTIONAL, 1e-6, 1e6},
    {"beta_slow", FIELD_REAL, AT(rope_beta_slow), FAMILY_ANY, OPTIONAL, 1e-6, 1e6},
    {"mscale", FIELD_REAL, AT(rope_mscale), FAMILY_ANY, OPTIONAL, 0, 1e6},
    {"mscale_all_dim", FIELD_REAL, AT(rope_mscale_all_dim), FAMILY_ANY, OPTIONAL, 0, 1e6},
};
#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* ---- reading ---- */

/* A text is a name: short, printable. */
static oct_status read_text(const char *file, const char *key, const json_t *value, char *to,
                            oct_error *err) {
    const char *text = json_string_value(value);
    if (!text)
        return oct_fail(err, OCT_INVALID, "%s: %s: expected a string; got %s", file, key,
                        oct_json_kind(value));
    if (strlen(text) >= OCT_HF_NAME_SIZE)
        return oct_fail(err, OCT_INVALID, "%s: %s: expected at most %d bytes; got %zu", file, key,
                        OCT_HF_NAME_SIZE - 1, strlen(text));
    strcpy(to, text);
    return OCT_OK;
}

static oct_status read_size(const char *file, const field *f, const json_t *value, int64_t *to,
                            oct_error *err) {
    if (!json_is_integer(value))
        return oct_fail(err, OCT_INVALID, "%s: %s: expected an integer; got %s", file, f->key,
                        oct_json_kind(value));
    *to = json_integer_value(value);
    if (*to < (int64_t)f->low || *to > (int64_t)f->high)
        return oct_fail(err, OCT_INVALID, "%s: %s: expected %.0f to %.0f; got %" PRId64, file,
                        f->key, f->low, f->high, *to);
    return OCT_OK;
}

static oct_status read_real(const char *file, const field *f, const json_t *value, double *to,
                            oct_error *err) {
    if (!json_is_number(value))
        return oct_fail(err, OCT_INVALID, "%s: %s: expected a number; got %s", file, f->key,
                        oct_json_kind(value));
    *to = json_number_value(value);
    if (!(*to >= f->low && *to <= f->high))
        return oct_fail(err, OCT_INVALID, "%s: %s: expected %g to %g; got %g", file, f->key, f->low,
                        f->high, *to);
    return OCT_OK;
}

static oct_status read_switch(const char *file, const char *key, const json_t *value, bool *to,
                              oct_error *err) {
    if (!json_is_boolean(value))
        return oct_fail(err, OCT_INVALID, "%s: %s: expected true or false; got %s", file, key,
                        oct_json_kind(value));
    *to = json_is_true(value);
    return OCT_OK;
}

/* null is as good as missing, which transformers writes for its defaults. */
static const json_t *get(const json_t *in, const char *key) {
    const json_t *value = json_object_get(in, key);
    return json_is_null(value) ? NULL : value;
}

static oct_status read_fields(const char *file, const json_t *in, const field *list, size_t n,
                              oct_hf_config *config, oct_error *err) {
    oct_status status = OCT_OK;
    for (size_t i = 0; i < n && !status; i++) {
        const field *f = &list[i];
        const json_t *value = get(in, f->key);
        void *to = (char *)config + f->offset;
        if (!value && f->presence == REQUIRED)
            return oct_fail(err, OCT_INVALID, "%s: %s: expected; it is missing", file, f->key);
        if (!value)
            continue;
        if (f->kind == FIELD_TEXT)
            status = read_text(file, f->key, value, to, err);
        else if (f->kind == FIELD_SIZE)
            status = read_size(file, f, value, to, err);
        else if (f->kind == FIELD_REAL)
            status = read_real(file, f, value, to, err);
        else
            status = read_switch(file, f->key, value, to, err);
    }
    return status;
}

static oct_status read_architecture(const char *file, const json_t *root, oct_hf_config *config,
                                    oct_error *err) {
    const json_t *list = get(root, "architectures");
    if (!list)
        return OCT_OK;
    if (!json_is_array(list) || json_array_size(list) == 0)
        return oct_fail(err, OCT_INVALID, "%s: architectures: expected a list of names; got %s",
                        file, json_is_array(list) ? "an empty one" : oct_json_kind(list));
    return read_text(file, "architectures", json_array_get(list, 0), config->architecture, err);
}

/* An id, or a list of them whose first counts. */
static oct_status read_end(const char *file, const json_t *root, oct_hf_config *config,
                           oct_error *err) {
    static const field end = {"eos_token_id", FIELD_SIZE, 0, FAMILY_ANY, OPTIONAL, -1, MAX_VOCAB};
    const json_t *value = get(root, end.key);
    if (!value)
        return OCT_OK;
    if (json_is_array(value))
        value = json_array_get(value, 0);
    return read_size(file, &end, value, &config->eos_token_id, err);
}

static oct_status read_mlp_only(const char *file, const json_t *root, oct_hf_config *config,
                                oct_error *err) {
    const json_t *list = get(root, "mlp_only_layers");
    if (!list)
        return OCT_OK;
    if (!json_is_array(list) || json_array_size(list) > OCT_HF_MAX_MLP_ONLY)
        return oct_fail(err, OCT_INVALID,
                        "%s: mlp_only_layers: expected a list of at most %d layers; got %s", file,
                        OCT_HF_MAX_MLP_ONLY, oct_json_kind(list));
    const field layer = {"mlp_only_layers",
                         FIELD_SIZE,
                         0,
                         FAMILY_ANY,
                         OPTIONAL,
                         0,
                         (double)config->num_hidden_layers - 1};
    oct_status status = OCT_OK;
    for (size_t i = 0; i < json_array_size(list) && !status; i++)
        status = read_size(file, &layer, json_array_get(list, i),
                           &config->mlp_only_layers[config->n_mlp_only_layers++], err);
    return status;
}

static oct_status read_scoring(const char *file, const json_t *root, oct_hf_config *config,
                               oct_error *err) {
    const json_t *value = get(root, "scoring_func");
    const char *name = json_string_value(value);
    bool deepseek_v3 = strcmp(config->model_type, "deepseek_v3") == 0;
    if (!value)
        config->scoring_func = deepseek_v3 ? OCT_HF_SCORING_SIGMOID : OCT_HF_SCORING_SOFTMAX;
    else if (name && strcmp(name, "sigmoid") == 0)
        config->scoring_func = OCT_HF_SCORING_SIGMOID;
    else if (name && strcmp(name, "softmax") == 0)
        config->scoring_func = OCT_HF_SCORING_SOFTMAX;
    else
        return oct_fail(err, OCT_INVALID,
                        "%s: scoring_func: expected 'softmax' or 'sigmoid'; got %s", file,
                        name ? oct_show(name).text : oct_json_kind(value));
    return OCT_OK;
}

/* `scaling` is rope_scaling, or rope_parameters, which holds rope_theta too. */
static oct_status read_rope(const char *file, const json_t *root, oct_hf_config *config,
                            oct_error *err) {
    static const field theta = {"rope_theta", FIELD_REAL, AT(rope_theta), FAMILY_ANY, OPTIONAL,
                                1e-3,         1e30};
    const char *key = get(root, "rope_parameters") ? "rope_parameters" : "rope_scaling";
    const json_t *scaling = get(root, key);
    if (!scaling)
        return OCT_OK;
    const json_t *type = get(scaling, "rope_type");
    if (!type)
        type = get(scaling, "type"); /* the older name */
    const char *name = json_string_value(type);
    if (!json_is_object(scaling) || !name)
        return oct_fail(err, OCT_INVALID, "%s: %s: expected an object with a rope_type; got %s",
                        file, key, oct_json_kind(scaling));
    oct_status status = read_fields(file, scaling, &theta, 1, config, err);
    if (status || strcmp(name, "default") == 0)
        return status;
    bool llama3 = strcmp(name, "llama3") == 0;
    if (!llama3 && strcmp(name, "yarn") != 0)
        return oct_fail(err, OCT_INVALID,
                        "%s: %s: rope_type: expected 'default', 'llama3' or 'yarn'; got '%s'", file,
                        key, oct_show(name).text);
    config->rope_type = llama3 ? OCT_HF_ROPE_LLAMA3 : OCT_HF_ROPE_YARN;
    status = read_fields(file, scaling, rope_fields, LENGTH(rope_fields), config, err);
    if (!status && llama3)
        status = read_fields(file, scaling, llama3_fields, LENGTH(llama3_fields), config, err);
    if (!status && !llama3)
        status = read_fields(file, scaling, yarn_fields, LENGTH(yarn_fields), config, err);
    if (!status && llama3 && config->rope_low_freq_factor >= config->rope_high_freq_factor)
        status = oct_fail(err, OCT_INVALID,
                          "%s: %s: low_freq_factor: expected less than high_freq_factor %g; got %g",
                          file, key, config->rope_high_freq_factor, config->rope_low_freq_factor);
    return status;
}

/* ---- what must fit together ---- */

static oct_status check_heads(const char *file, oct_hf_config *c, oct_error *err) {
    if (!c->num_key_value_heads)
        c->num_key_value_heads = c->num_attention_heads;
    if (c->num_attention_heads % c->num_key_value_heads)
        return oct_fail(err, OCT_INVALID,
                        "%s: num_key_value_heads: expected a divisor of num_attention_heads "
                        "%" PRId64 "; got %" PRId64,
                        file, c->num_attention_heads, c->num_key_value_heads);
    if (c->kv_lora_rank && (!c->qk_nope_head_dim || !c->qk_rope_head_dim || !c->v_head_dim))
        return oct_fail(err, OCT_INVALID,
                        "%s: kv_lora_rank: expected qk_nope_head_dim, qk_rope_head_dim and "
                        "v_head_dim > 0 beside it",
                        file);
    if (c->qk_rope_head_dim % 2)
        return oct_fail(err, OCT_INVALID,
                        "%s: qk_rope_head_dim: expected an even number; got "
                        "%" PRId64,
                        file, c->qk_rope_head_dim);
    if (c->kv_lora_rank && !c->head_dim)
        c->head_dim = c->qk_nope_head_dim + c->qk_rope_head_dim;
    if (!c->head_dim && c->hidden_size % c->num_attention_heads)
        return oct_fail(err, OCT_INVALID,
                        "%s: num_attention_heads: expected a divisor of hidden_size %" PRId64
                        "; got %" PRId64,
                        file, c->hidden_size, c->num_attention_heads);
    if (!c->head_dim)
        c->head_dim = c->hidden_size / c->num_attention_heads;
    if (c->head_dim % 2)
        return oct_fail(err, OCT_INVALID, "%s: head_dim: expected an even number; got %" PRId64,
                        file, c->head_dim);
    if (c->head_dim > MAX_WIDTH / c->num_attention_heads)
        return oct_fail(err, OCT_INVALID,
                        "%s: head_dim: expected at most %" PRId64 " for all heads together; got "
                        "%" PRId64 " x %" PRId64,
                        file, MAX_WIDTH, c->num_attention_heads, c->head_dim);
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
    if (c->first_k_dense_replace > c->num_hidden_layers)
        return oct_fail(err, OCT_INVALID,
                        "%s: first_k_dense_replace: expected at most the %" PRId64 " layers; got "
                        "%" PRId64,
                        file, c->num_hidden_layers, c->first_k_dense_replace);
    return OCT_OK;
}

static oct_hf_config defaults(void) {
    oct_hf_config config = {.hidden_act = "silu",
                            .max_position_embeddings = 2048,
                            .rms_norm_eps = 1e-6,
                            .initializer_range = 0.02,
                            .bos_token_id = -1,
                            .eos_token_id = -1,
                            .rope_theta = 10000,
                            .rope_beta_fast = 32,
                            .rope_beta_slow = 1,
                            .decoder_sparse_step = 1,
                            .n_group = 1,
                            .topk_group = 1,
                            .routed_scaling_factor = 1};
    return config;
}

oct_status oct_hf_config_parse(const char *text, size_t n_bytes, const char *name,
                               oct_hf_config *config, oct_error *err) {
    json_t *root = NULL;
    oct_hf_config c = defaults();
    oct_status status = oct_json_parse(text, n_bytes, name, &root, err);
    if (status)
        return status;
    const char *model_type = json_string_value(json_object_get(root, "model_type"));
    c.norm_topk_prob = model_type && strcmp(model_type, "deepseek_v3") == 0; /* its default */
    status = read_fields(name, root, fields, N_FIELDS, &c, err);
    if (!status)
        status = read_architecture(name, root, &c, err);
    if (!status)
        status = read_end(name, root, &c, err);
    if (!status)
        status = read_mlp_only(name, root, &c, err);
    if (!status)
        status = read_scoring(name, root, &c, err);
    if (!status)
        status = read_rope(name, root, &c, err);
    if (!status)
        status = check_heads(name, &c, err);
    if (!status)
        status = check_experts(name, &c, err);
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

/* ---- writing ---- */

static family family_of(const oct_hf_config *c) {
    if (c->kv_lora_rank)
        return FAMILY_DEEPSEEK;
    return c->n_experts ? FAMILY_QWEN3_MOE : FAMILY_DENSE;
}

static void put_key(oct_strbuf *to, const char *key) {
    oct_strbuf_puts(to, to->length > 1 && to->text[to->length - 1] != '{' ? ",\n  " : "\n  ");
    oct_json_put_string(to, key);
    oct_strbuf_puts(to, ": ");
}

static void put_field(oct_strbuf *to, const field *f, const oct_hf_config *c) {
    const void *from = (const char *)c + f->offset;
    if (f->kind == FIELD_TEXT && !*(const char *)from)
        return;
    put_key(to, f->key);
    if (f->kind == FIELD_TEXT)
        oct_json_put_string(to, from);
    else if (f->kind == FIELD_REAL)
        oct_json_put_real(to, *(const double *)from);
    else if (f->kind == FIELD_SWITCH)
        oct_strbuf_puts(to, *(const bool *)from ? "true" : "false");
    else if (*(const int64_t *)from < 0 ||
             (f->offset == AT(q_lora_rank) && *(const int64_t *)from == 0))
        oct_strbuf_puts(to, "null");
    else
        oct_strbuf_printf(to, "%" PRId64, *(const int64_t *)from);
}

static void put_rope(oct_strbuf *to, const oct_hf_config *c) {
    put_key(to, "rope_scaling");
    if (c->rope_type == OCT_HF_ROPE_DEFAULT) {
        oct_strbuf_puts(to, "null");
        return;
    }
    bool llama3 = c->rope_type == OCT_HF_ROPE_LLAMA3;
    oct_strbuf_puts(to, "{");
    put_key(to, "rope_type");
    oct_json_put_string(to, llama3 ? "llama3" : "yarn");
    for (size_t i = 0; i < LENGTH(rope_fields); i++)
        put_field(to, &rope_fields[i], c);
    for (size_t i = 0; llama3 && i < LENGTH(llama3_fields); i++)
        put_field(to, &llama3_fields[i], c);
    for (size_t i = 0; !llama3 && i < LENGTH(yarn_fields); i++)
        put_field(to, &yarn_fields[i], c);
    oct_strbuf_puts(to, "}");
}

static void put_config(oct_strbuf *to, const oct_hf_config *c) {
    family mine = family_of(c);
    if (c->architecture[0]) {
        put_key(to, "architectures");
        oct_strbuf_puts(to, "[");
        oct_json_put_string(to, c->architecture);
        oct_strbuf_puts(to, "]");
    }
    for (size_t i = 0; i < N_FIELDS; i++)
        if (fields[i].families & mine)
            put_field(to, &fields[i], c);
    put_key(to, "eos_token_id");
    if (c->eos_token_id < 0)
        oct_strbuf_puts(to, "null");
    else
        oct_strbuf_printf(to, "%" PRId64, c->eos_token_id);
    if (mine == FAMILY_QWEN3_MOE) {
        put_key(to, "mlp_only_layers");
        oct_strbuf_puts(to, "[");
        for (int64_t i = 0; i < c->n_mlp_only_layers; i++)
            oct_strbuf_printf(to, "%s%" PRId64, i ? ", " : "", c->mlp_only_layers[i]);
        oct_strbuf_puts(to, "]");
    }
    if (mine == FAMILY_DEEPSEEK) {
        put_key(to, "scoring_func");
        oct_json_put_string(to, c->scoring_func == OCT_HF_SCORING_SIGMOID ? "sigmoid" : "softmax");
    }
    put_rope(to, c);
}

/* The keys of the caller's object, as they are. */
static oct_status put_extra(oct_strbuf *to, const char *extra_json, oct_error *err) {
    json_t *extra = NULL, *value;
    const char *key;
    oct_status status =
        oct_json_parse(extra_json, strlen(extra_json), "config.json: extra keys", &extra, err);
    if (status)
        return status;
    json_object_foreach(extra, key, value) {
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
        put_key(to, key);
        if (text)
            oct_strbuf_puts(to, text);
        to->failed |= !text;
        json_free_t release;
        json_get_alloc_funcs(NULL, &release);
        release(text);
    }
    json_decref(extra);
    return OCT_OK;
}

oct_status oct_hf_config_write(const char *folder, const oct_hf_config *config,
                               const char *extra_json, oct_error *err) {
    oct_strbuf text = {0};
    oct_hf_config back;
    char *path = oct_path_join(folder, "config.json");
    oct_status status = path ? OCT_OK : oct_fail_memory(err);
    oct_strbuf_puts(&text, "{");
    put_config(&text, config);
    if (!status && extra_json)
        status = put_extra(&text, extra_json, err);
    oct_strbuf_puts(&text, "\n}\n");
    if (!status && text.failed)
        status = oct_fail_memory(err);
    if (!status) /* what can't be read back must not be written */
        status = oct_hf_config_parse(text.text, text.length, path, &back, err);
    if (!status)
        status = oct_file_sink_put(path, text.text, text.length, NULL, err);
    oct_strbuf_free(&text);
    oct_free(path);
    return status;
}
