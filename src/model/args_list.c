/* A model's arguments by name: see args_list.h. */
#include "base/count.h"
#include "model/args_list.h"

#include <inttypes.h>
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum kind { INT, REAL, BOOL, FAMILY, ROPE, SCORE, MASK, LAYERS } kind;

typedef struct member {
    const char *name;
    kind kind;
    size_t offset;
} member;

#define MEMBER(kind, name)                                                                         \
    { #name, kind, offsetof(oct_model_args, name) }

static const member members[] = {
    MEMBER(FAMILY, family),
    MEMBER(INT, vocab_size),
    MEMBER(INT, dim),
    MEMBER(INT, n_layers),
    MEMBER(INT, n_heads),
    MEMBER(INT, n_kv_heads),
    MEMBER(INT, head_dim),
    MEMBER(INT, hidden_dim),
    MEMBER(INT, multiple_of),
    MEMBER(REAL, ffn_dim_multiplier),
    MEMBER(REAL, norm_eps),
    MEMBER(INT, max_seq_len),
    MEMBER(MASK, attn_mask_type),
    MEMBER(BOOL, qk_norm),
    MEMBER(BOOL, enable_weight_tying),
    MEMBER(BOOL, depth_init),
    MEMBER(REAL, rope_theta),
    MEMBER(ROPE, rope_scaling),
    MEMBER(REAL, rope_scaling_factor),
    MEMBER(REAL, rope_low_freq_factor),
    MEMBER(REAL, rope_high_freq_factor),
    MEMBER(INT, rope_original_max_position_embeddings),
    MEMBER(INT, q_lora_rank),
    MEMBER(INT, kv_lora_rank),
    MEMBER(INT, qk_nope_head_dim),
    MEMBER(INT, qk_rope_head_dim),
    MEMBER(INT, v_head_dim),
    MEMBER(REAL, beta_fast),
    MEMBER(REAL, beta_slow),
    MEMBER(REAL, mscale),
    MEMBER(INT, num_experts),
    MEMBER(INT, top_k),
    MEMBER(INT, num_shared_experts),
    MEMBER(INT, moe_inter_dim),
    MEMBER(INT, n_dense_layers),
    MEMBER(INT, num_expert_groups),
    MEMBER(INT, num_limited_groups),
    MEMBER(SCORE, score_func),
    MEMBER(BOOL, route_norm),
    MEMBER(BOOL, score_before_experts),
    MEMBER(REAL, route_scale),
    MEMBER(REAL, load_balance_coeff),
    MEMBER(BOOL, moe_force_load_balance),
    MEMBER(BOOL, qkv_bias),
    MEMBER(BOOL, wo_bias),
    MEMBER(BOOL, mlp_bias),
    MEMBER(BOOL, rope_halves),
    MEMBER(BOOL, yarn_always),
    MEMBER(BOOL, yarn_untruncated),
    MEMBER(REAL, rope_attention_factor),
    MEMBER(REAL, latent_norm_eps),
    MEMBER(INT, window),
    MEMBER(LAYERS, windowed),
    MEMBER(LAYERS, unrotated),
    MEMBER(LAYERS, dense),
};

static const char *const scalings[] = {[OCT_ROPE_UNSCALED] = "none",
                                       [OCT_ROPE_LLAMA3] = "llama3",
                                       [OCT_ROPE_YARN] = "yarn",
                                       [OCT_ROPE_LINEAR] = "linear",
                                       [OCT_ROPE_DYNAMIC] = "dynamic"};
static const char *const score_funcs[] = {
    [OCT_SCORE_SOFTMAX] = "softmax", [OCT_SCORE_SIGMOID] = "sigmoid"};

static bool is_enum(kind k) {
    return k == FAMILY || k == ROPE || k == SCORE || k == MASK;
}

/* Word i of an enum; NULL past its last. */
static const char *word_of(kind k, unsigned i) {
    if (k == FAMILY)
        return i <= OCT_MODEL_DEEPSEEK_V3 ? oct_model_family_name((oct_model_family)i) : NULL;
    if (k == ROPE)
        return i < OCT_COUNT(scalings) ? scalings[i] : NULL;
    if (k == MASK)
        return i <= OCT_ATTN_BLOCK_CAUSAL ? oct_attn_mask_name((oct_attn_mask)i) : NULL;
    return i < OCT_COUNT(score_funcs) ? score_funcs[i] : NULL;
}

const char *oct_model_args_name(size_t i) {
    return i < OCT_COUNT(members) ? members[i].name : NULL;
}

/* The shortest digits that come back to the same double; without an exponent where it's short. */
static void put_real(double x, oct_strbuf *to) {
    char text[40];
    int digits = 0;
    do
        snprintf(text, sizeof text, "%.*e", digits, x);
    while (strtod(text, NULL) != x && digits++ < 16);
    int exponent = atoi(strchr(text, 'e') + 1);
    if (exponent >= -4 && exponent < 15)
        oct_strbuf_printf(to, "%.*f", digits > exponent ? digits - exponent : 1, x);
    else
        oct_strbuf_puts(to, text);
}

/* "1-3,7": runs of layers; "": none. */
static void put_layers(const oct_layer_set *set, oct_strbuf *to) {
    const char *comma = "";
    oct_strbuf_puts(to, "\"");
    for (int64_t first = 0, last; first < OCT_LAYER_SET_MAX; first = last + 1) {
        last = first;
        if (!oct_layer_set_has(set, first))
            continue;
        while (oct_layer_set_has(set, last + 1))
            last++;
        oct_strbuf_printf(to, "%s%" PRId64, comma, first);
        if (last > first)
            oct_strbuf_printf(to, "-%" PRId64, last);
        comma = ",";
    }
    oct_strbuf_puts(to, "\"");
}

/* A layer's number at *text, which moves behind it; -1: none. */
static int64_t take_number(const char **text) {
    char *end;
    if (!isdigit((unsigned char)**text))
        return -1;
    long long n = strtoll(*text, &end, 10);
    *text = end;
    return n < OCT_LAYER_SET_MAX ? n : -1;
}

static bool take_layers(const char *text, oct_layer_set *set) {
    *set = (oct_layer_set){0};
    while (*text) {
        int64_t first = take_number(&text), last = first;
        if (*text == '-') {
            text++;
            last = take_number(&text);
        }
        if (first < 0 || last < first || (*text && *text != ','))
            return false;
        for (int64_t i = first; i <= last; i++)
            oct_layer_set_add(set, i);
        text += *text == ',';
    }
    return true;
}

void oct_model_args_put(const oct_model_args *args, size_t i, oct_strbuf *to) {
    const member *m = &members[i];
    const void *place = (const char *)args + m->offset;
    if (is_enum(m->kind))
        oct_strbuf_printf(to, "\"%s\"", word_of(m->kind, *(const unsigned *)place));
    else if (m->kind == LAYERS)
        put_layers(place, to);
    else if (m->kind == INT)
        oct_strbuf_printf(to, "%" PRId64, *(const int64_t *)place);
    else if (m->kind == REAL)
        put_real(*(const double *)place, to);
    else
        oct_strbuf_puts(to, *(const bool *)place ? "true" : "false");
}

static oct_status take_word(const member *m, oct_arg value, void *place, oct_error *err) {
    const char *word;
    for (unsigned i = 0; value.type == OCT_ARG_TEXT && (word = word_of(m->kind, i)); i++)
        if (strcmp(word, value.text) == 0) {
            *(unsigned *)place = i;
            return OCT_OK;
        }
    return oct_fail(err, OCT_INVALID, "%s: unknown word; expected one such as \"%s\"", m->name,
                    word_of(m->kind, 0));
}

static oct_status take(const member *m, oct_arg value, void *place, oct_error *err) {
    if (m->kind == INT && value.type == OCT_ARG_INT && value.i >= 0)
        *(int64_t *)place = value.i;
    else if (m->kind == REAL && value.type == OCT_ARG_DOUBLE && isfinite(value.d))
        *(double *)place = value.d;
    else if (m->kind == BOOL && value.type == OCT_ARG_BOOL)
        *(bool *)place = value.b;
    else if (m->kind == LAYERS && value.type == OCT_ARG_TEXT && take_layers(value.text, place))
        return OCT_OK;
    else
        return oct_fail(err, OCT_INVALID, "%s: impossible value; expected %s", m->name,
                        m->kind == INT      ? "an integer of at least 0"
                        : m->kind == REAL   ? "a finite number"
                        : m->kind == LAYERS ? "layers such as \"1-3,7\""
                                            : "true or false");
    return OCT_OK;
}

oct_status oct_model_args_take(oct_model_args *args, const char *name, oct_arg value,
                               oct_error *err) {
    for (size_t i = 0; i < OCT_COUNT(members); i++) {
        const member *m = &members[i];
        void *place = (char *)args + m->offset;
        if (strcmp(m->name, name) == 0)
            return is_enum(m->kind) ? take_word(m, value, place, err) : take(m, value, place, err);
    }
    return oct_fail(err, OCT_INVALID, "%s: unknown argument of a model; a newer octet may know it",
                    name);
}
