/* The tables of config.json's keys and of the families' defaults, and reading values by them: see
 * hf_fields.h. */
#include "base/count.h"
#include "hf/hf_fields.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

/* ---- families ---- */

/* What transformers' class has where config.json says nothing. */
static const struct {
    const char *name;
    oct_hf_config defaults;
} families[] = {
    [OCT_HF_LLAMA] = {"llama", {.max_position_embeddings = 2048, .rope_theta = 1e4}},
    [OCT_HF_MISTRAL] = {"mistral",
                        {.max_position_embeddings = 131072,
                         .num_key_value_heads = 8,
                         .use_sliding_window = true,
                         .sliding_window = 4096,
                         .rope_theta = 1e4}},
    [OCT_HF_QWEN2] = {"qwen2",
                      {.max_position_embeddings = 32768,
                       .num_key_value_heads = 32,
                       .sliding_window = 4096,
                       .max_window_layers = 28,
                       .rope_theta = 1e4}},
    [OCT_HF_QWEN3] = {"qwen3",
                      {.max_position_embeddings = 32768,
                       .num_key_value_heads = 32,
                       .head_dim = 128,
                       .sliding_window = 4096,
                       .max_window_layers = 28,
                       .rope_theta = 1e4}},
    [OCT_HF_SMOLLM3] = {"smollm3",
                        {.max_position_embeddings = 32768,
                         .num_key_value_heads = 4,
                         .tie_word_embeddings = true,
                         .no_rope_layer_interval = 4,
                         .rope_theta = 2e6}},
    [OCT_HF_QWEN3_MOE] = {"qwen3_moe",
                          {.max_position_embeddings = 32768,
                           .num_key_value_heads = 4,
                           .sliding_window = 4096,
                           .rope_theta = 1e4,
                           .n_experts = 128,
                           .num_experts_per_tok = 8,
                           .moe_intermediate_size = 768,
                           .decoder_sparse_step = 1}},
    [OCT_HF_DEEPSEEK_V3] = {"deepseek_v3",
                            {.max_position_embeddings = 4096,
                             .rope_theta = 1e4,
                             .rope_interleave = true,
                             .n_experts = 256,
                             .num_experts_per_tok = 8,
                             .moe_intermediate_size = 2048,
                             .norm_topk_prob = true,
                             .q_lora_rank = 1536,
                             .kv_lora_rank = 512,
                             .qk_nope_head_dim = 128,
                             .qk_rope_head_dim = 64,
                             .v_head_dim = 128,
                             .n_shared_experts = 1,
                             .n_group = 8,
                             .topk_group = 4,
                             .routed_scaling_factor = 2.5,
                             .first_k_dense_replace = 3,
                             .scoring_func = OCT_HF_SCORING_SIGMOID}},
};

const char *oct_hf_family_name(oct_hf_family family) {
    return families[family].name;
}

oct_hf_config oct_hf_defaults(oct_hf_family family) {
    oct_hf_config c = families[family].defaults;
    c.family = family;
    c.rms_norm_eps = 1e-6;
    c.initializer_range = 0.02;
    c.bos_token_id = -1;
    c.rope_beta_fast = 32;
    c.rope_beta_slow = 1;
    c.rope_truncate = true;
    return c;
}

/* ---- keys ---- */

enum {
    LLAMA = 1 << OCT_HF_LLAMA,
    MISTRAL = 1 << OCT_HF_MISTRAL,
    QWEN2 = 1 << OCT_HF_QWEN2,
    QWEN3 = 1 << OCT_HF_QWEN3,
    SMOLLM3 = 1 << OCT_HF_SMOLLM3,
    QWEN3_MOE = 1 << OCT_HF_QWEN3_MOE,
    DEEPSEEK = 1 << OCT_HF_DEEPSEEK_V3,
    ALL = (1 << OCT_N_HF_FAMILIES) - 1,
    MOE = QWEN3_MOE | DEEPSEEK,
    OPTIONAL_WINDOW = QWEN2 | QWEN3 | QWEN3_MOE | SMOLLM3,
};

#define AT(member) offsetof(oct_hf_config, member)
#define SIZE(member, families, absence, low, high)                                                 \
    { #member, OCT_HF_SIZE, AT(member), families, absence, low, high }
#define REAL(member, families, low, high)                                                          \
    { #member, OCT_HF_REAL, AT(member), families, OCT_HF_DEFAULT, low, high }
#define SWITCH(member, families)                                                                   \
    { #member, OCT_HF_SWITCH, AT(member), families, OCT_HF_DEFAULT, 0, 0 }

static const oct_hf_field root_fields[] = {
    {"dtype", OCT_HF_TEXT, AT(torch_dtype), ALL, OCT_HF_READ_ONLY, 0, 0}, /* transformers 5 */
    {"torch_dtype", OCT_HF_TEXT, AT(torch_dtype), ALL, OCT_HF_NULLABLE, 0, 0},
    SIZE(hidden_size, ALL, OCT_HF_REQUIRED, 1, OCT_HF_MAX_WIDTH),
    SIZE(intermediate_size, ALL, OCT_HF_REQUIRED, 1, OCT_HF_MAX_WIDTH),
    SIZE(num_hidden_layers, ALL, OCT_HF_REQUIRED, 1, OCT_HF_MAX_LAYERS),
    SIZE(num_attention_heads, ALL, OCT_HF_REQUIRED, 1, OCT_HF_MAX_WIDTH),
    SIZE(num_key_value_heads, ALL, OCT_HF_NULLABLE, 1, OCT_HF_MAX_WIDTH),
    SIZE(head_dim, ALL & ~DEEPSEEK, OCT_HF_NULLABLE, 1, OCT_HF_MAX_WIDTH),
    SIZE(vocab_size, ALL, OCT_HF_REQUIRED, 1, OCT_HF_MAX_VOCAB),
    SIZE(max_position_embeddings, ALL, OCT_HF_DEFAULT, 1, OCT_HF_MAX_POSITIONS),
    REAL(rms_norm_eps, ALL, 0, 1),
    SWITCH(tie_word_embeddings, ALL),
    SWITCH(attention_bias, LLAMA | QWEN3 | SMOLLM3 | MOE),
    SWITCH(mlp_bias, LLAMA | SMOLLM3),
    REAL(initializer_range, ALL, 0, 1e3),
    SIZE(bos_token_id, ALL, OCT_HF_NULLABLE, -1, OCT_HF_MAX_VOCAB),
    SWITCH(use_sliding_window, OPTIONAL_WINDOW),
    SIZE(sliding_window, MISTRAL | OPTIONAL_WINDOW, OCT_HF_NULLABLE, 1, OCT_HF_MAX_POSITIONS),
    SIZE(max_window_layers, QWEN2 | QWEN3, OCT_HF_DEFAULT, 0, OCT_HF_MAX_LAYERS),
    SIZE(no_rope_layer_interval, SMOLLM3, OCT_HF_DEFAULT, 1, OCT_HF_MAX_LAYERS),
    REAL(rope_theta, ALL, 1e-3, 1e30),
    SWITCH(rope_interleave, DEEPSEEK),
    {"num_experts", OCT_HF_SIZE, AT(n_experts), QWEN3_MOE, OCT_HF_DEFAULT, 1, OCT_HF_MAX_EXPERTS},
    {"num_local_experts", OCT_HF_SIZE, AT(n_experts), MOE, OCT_HF_READ_ONLY, 1, OCT_HF_MAX_EXPERTS},
    {"n_routed_experts", OCT_HF_SIZE, AT(n_experts), DEEPSEEK, OCT_HF_NULLABLE, 0,
     OCT_HF_MAX_EXPERTS},
    SIZE(num_experts_per_tok, MOE, OCT_HF_NULLABLE, 0, OCT_HF_MAX_EXPERTS),
    SIZE(moe_intermediate_size, MOE, OCT_HF_DEFAULT, 0, OCT_HF_MAX_WIDTH),
    SWITCH(norm_topk_prob, MOE),
    SIZE(decoder_sparse_step, QWEN3_MOE, OCT_HF_DEFAULT, 1, OCT_HF_MAX_LAYERS),
    SIZE(q_lora_rank, DEEPSEEK, OCT_HF_NULLABLE, 1, OCT_HF_MAX_WIDTH),
    SIZE(kv_lora_rank, DEEPSEEK, OCT_HF_DEFAULT, 1, OCT_HF_MAX_WIDTH),
    SIZE(qk_nope_head_dim, DEEPSEEK, OCT_HF_DEFAULT, 1, OCT_HF_MAX_WIDTH),
    SIZE(qk_rope_head_dim, DEEPSEEK, OCT_HF_DEFAULT, 1, OCT_HF_MAX_WIDTH),
    SIZE(v_head_dim, DEEPSEEK, OCT_HF_DEFAULT, 1, OCT_HF_MAX_WIDTH),
    SIZE(n_shared_experts, DEEPSEEK, OCT_HF_NULLABLE, 0, OCT_HF_MAX_EXPERTS),
    SIZE(n_group, DEEPSEEK, OCT_HF_DEFAULT, 1, OCT_HF_MAX_EXPERTS),
    SIZE(topk_group, DEEPSEEK, OCT_HF_DEFAULT, 1, OCT_HF_MAX_EXPERTS),
    REAL(routed_scaling_factor, DEEPSEEK, 0, 1e6),
    SIZE(first_k_dense_replace, DEEPSEEK, OCT_HF_DEFAULT, 0, OCT_HF_MAX_LAYERS),
    SIZE(num_nextn_predict_layers, DEEPSEEK, OCT_HF_NULLABLE, 0, OCT_HF_MAX_LAYERS),
    {"num_mtp_layers", OCT_HF_SIZE, AT(num_nextn_predict_layers), DEEPSEEK, OCT_HF_READ_ONLY, 0,
     OCT_HF_MAX_LAYERS},
};

oct_hf_fields oct_hf_root_fields(void) {
    return (oct_hf_fields){root_fields, OCT_COUNT(root_fields)};
}

/* ---- values ---- */

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
    memset(to, 0, OCT_HF_NAME_SIZE);
    memcpy(to, text, strlen(text));
    return OCT_OK;
}

/* Whole numbers that some writers give as 10.0 are refused: transformers' sizes are integers. */
static oct_status read_size(const char *file, const char *where, const oct_hf_field *f,
                            const json_t *value, int64_t *to, oct_error *err) {
    if (!json_is_integer(value))
        return oct_fail(err, OCT_INVALID, "%s: %s%s: expected an integer; got %s", file, where,
                        f->key, oct_json_kind(value));
    *to = json_integer_value(value);
    if (*to < (int64_t)f->low || *to > (int64_t)f->high)
        return oct_fail(err, OCT_INVALID, "%s: %s%s: expected %.0f to %.0f; got %" PRId64, file,
                        where, f->key, f->low, f->high, *to);
    return OCT_OK;
}

static oct_status read_real(const char *file, const char *where, const oct_hf_field *f,
                            const json_t *value, double *to, oct_error *err) {
    if (!json_is_number(value))
        return oct_fail(err, OCT_INVALID, "%s: %s%s: expected a number; got %s", file, where,
                        f->key, oct_json_kind(value));
    *to = json_number_value(value);
    if (!(*to >= f->low && *to <= f->high))
        return oct_fail(err, OCT_INVALID, "%s: %s%s: expected %g to %g; got %g", file, where,
                        f->key, f->low, f->high, *to);
    return OCT_OK;
}

/* Python takes a null for false. */
static oct_status read_switch(const char *file, const char *where, const oct_hf_field *f,
                              const json_t *value, bool *to, oct_error *err) {
    if (!json_is_boolean(value) && !json_is_null(value))
        return oct_fail(err, OCT_INVALID, "%s: %s%s: expected true or false; got %s", file, where,
                        f->key, oct_json_kind(value));
    *to = json_is_true(value);
    return OCT_OK;
}

static void set_none(const oct_hf_field *f, void *to) {
    if (f->kind == OCT_HF_REAL)
        *(double *)to = 0;
    else if (f->kind == OCT_HF_SIZE)
        *(int64_t *)to = f->low < 0 ? -1 : 0;
}

oct_status oct_hf_read_field(const char *file, const char *where, const json_t *value,
                             const oct_hf_field *f, void *to, oct_error *err) {
    bool nullable = f->absence == OCT_HF_NULLABLE || f->kind == OCT_HF_TEXT;
    if (json_is_null(value) && nullable) {
        set_none(f, to);
        return OCT_OK;
    }
    switch (f->kind) {
    case OCT_HF_TEXT:
        return read_text(file, f->key, value, to, err);
    case OCT_HF_SIZE:
        return read_size(file, where, f, value, to, err);
    case OCT_HF_REAL:
        return read_real(file, where, f, value, to, err);
    case OCT_HF_SWITCH:
        break;
    }
    return read_switch(file, where, f, value, to, err);
}

oct_status oct_hf_read_fields(const char *file, const char *where, const json_t *in,
                              oct_hf_fields fields, oct_hf_config *config, oct_error *err) {
    oct_status status = OCT_OK;
    for (size_t i = 0; i < fields.n && !status; i++) {
        const oct_hf_field *f = &fields.list[i];
        const json_t *value = json_object_get(in, f->key);
        if (!(f->families & 1 << config->family))
            continue;
        if (!value && f->absence == OCT_HF_REQUIRED)
            return oct_fail(err, OCT_INVALID, "%s: %s%s: expected; it is missing", file, where,
                            f->key);
        if (value)
            status = oct_hf_read_field(file, where, value, f, (char *)config + f->offset, err);
    }
    return status;
}
