/* The dimensions of models: values that users give, checked and resolved. See flavors.c for those
 * of known models. */
#include "model/args.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/count.h"
#include "base/nearest.h"

/* Bounds that keep every product of sizes of a model inside an int64. */
#define MAX_DIM (1 << 20)
#define MAX_WIDE (1 << 24) /* vocabulary, hidden size, all heads together */
#define MAX_HEADS (1 << 16)
#define MAX_LAYERS 10000
#define MAX_POSITIONS INT32_MAX

typedef struct field {
    const char *key;
    oct_arg_type type;
    size_t offset;
    double low, high; /* of numbers, both allowed */
} field;

#define ALIAS(key, name, type, low, high)                                                          \
    { key, type, offsetof(oct_model_args, name), low, high }
#define FIELD(name, type, low, high) ALIAS(#name, name, type, low, high)

static const field fields[] = {
    FIELD(vocab_size, OCT_ARG_INT, 2, MAX_WIDE),
    FIELD(dim, OCT_ARG_INT, 1, MAX_DIM),
    FIELD(n_layers, OCT_ARG_INT, 1, MAX_LAYERS),
    FIELD(n_heads, OCT_ARG_INT, 1, MAX_HEADS),
    FIELD(n_kv_heads, OCT_ARG_INT, 0, MAX_HEADS),
    FIELD(head_dim, OCT_ARG_INT, 0, MAX_HEADS),
    FIELD(hidden_dim, OCT_ARG_INT, 0, MAX_WIDE),
    FIELD(multiple_of, OCT_ARG_INT, 1, MAX_DIM),
    FIELD(ffn_dim_multiplier, OCT_ARG_DOUBLE, 0, 1024),
    FIELD(norm_eps, OCT_ARG_DOUBLE, 0, 1),
    FIELD(max_seq_len, OCT_ARG_INT, 1, MAX_POSITIONS),
    FIELD(attn_mask_type, OCT_ARG_TEXT, 0, 0),
    FIELD(qk_norm, OCT_ARG_BOOL, 0, 1),
    FIELD(enable_weight_tying, OCT_ARG_BOOL, 0, 1),
    FIELD(depth_init, OCT_ARG_BOOL, 0, 1),
    FIELD(rope_theta, OCT_ARG_DOUBLE, 1, 1e12),
    FIELD(rope_scaling, OCT_ARG_BOOL, 0, 1),
    FIELD(rope_scaling_factor, OCT_ARG_DOUBLE, 1, 1e6),
    FIELD(rope_low_freq_factor, OCT_ARG_DOUBLE, 1e-6, 1e6),
    FIELD(rope_high_freq_factor, OCT_ARG_DOUBLE, 1e-6, 1e6),
    FIELD(rope_original_max_position_embeddings, OCT_ARG_INT, 1, MAX_POSITIONS),
    FIELD(q_lora_rank, OCT_ARG_INT, 0, MAX_DIM),
    FIELD(kv_lora_rank, OCT_ARG_INT, 0, MAX_DIM),
    FIELD(qk_nope_head_dim, OCT_ARG_INT, 0, MAX_HEADS),
    FIELD(qk_rope_head_dim, OCT_ARG_INT, 0, MAX_HEADS),
    FIELD(v_head_dim, OCT_ARG_INT, 0, MAX_HEADS),
    FIELD(beta_fast, OCT_ARG_DOUBLE, 0, 1e6),
    FIELD(beta_slow, OCT_ARG_DOUBLE, 0, 1e6),
    FIELD(mscale, OCT_ARG_DOUBLE, 0, 1e3),
    FIELD(num_experts, OCT_ARG_INT, 0, OCT_MAX_EXPERTS),
    FIELD(top_k, OCT_ARG_INT, 0, OCT_MAX_EXPERTS),
    FIELD(num_shared_experts, OCT_ARG_INT, 0, OCT_MAX_EXPERTS),
    FIELD(moe_inter_dim, OCT_ARG_INT, 0, MAX_DIM),
    FIELD(n_dense_layers, OCT_ARG_INT, 0, MAX_LAYERS),
    FIELD(num_expert_groups, OCT_ARG_INT, 0, OCT_MAX_EXPERTS),
    FIELD(num_limited_groups, OCT_ARG_INT, 0, OCT_MAX_EXPERTS),
    FIELD(score_func, OCT_ARG_TEXT, 0, 0),
    FIELD(route_norm, OCT_ARG_BOOL, 0, 1),
    FIELD(score_before_experts, OCT_ARG_BOOL, 0, 1),
    FIELD(route_scale, OCT_ARG_DOUBLE, 0, 1e6),
    FIELD(load_balance_coeff, OCT_ARG_DOUBLE, 0, 1),
    FIELD(moe_force_load_balance, OCT_ARG_BOOL, 0, 1),
    FIELD(qkv_bias, OCT_ARG_BOOL, 0, 1),
    FIELD(wo_bias, OCT_ARG_BOOL, 0, 1),
    FIELD(mlp_bias, OCT_ARG_BOOL, 0, 1),
    FIELD(rope_halves, OCT_ARG_BOOL, 0, 1),
    FIELD(yarn_untruncated, OCT_ARG_BOOL, 0, 1),
    FIELD(rope_attention_factor, OCT_ARG_DOUBLE, 0, 1e6),
    FIELD(latent_norm_eps, OCT_ARG_DOUBLE, 0, 1),
    ALIAS("inter_dim", hidden_dim, OCT_ARG_INT, 0, MAX_WIDE),
    ALIAS("rope_factor", rope_scaling_factor, OCT_ARG_DOUBLE, 1, 1e6),
    ALIAS("original_seq_len", rope_original_max_position_embeddings, OCT_ARG_INT, 1, MAX_POSITIONS),
    ALIAS("n_expert_groups", num_expert_groups, OCT_ARG_INT, 0, OCT_MAX_EXPERTS),
    ALIAS("n_limited_groups", num_limited_groups, OCT_ARG_INT, 0, OCT_MAX_EXPERTS),
};

enum { N_ALIASES = 5, N_NAMES = OCT_COUNT(fields) - N_ALIASES }; /* which stand last */

/* The two words of a text, by their numbers. */
static const char *const score_func_names[] = {
    [OCT_SCORE_SOFTMAX] = "softmax", [OCT_SCORE_SIGMOID] = "sigmoid"};
static const char *const mask_names[] = {
    [OCT_ATTN_CAUSAL] = "causal", [OCT_ATTN_BLOCK_CAUSAL] = "block_causal"};

const char *oct_attn_mask_name(oct_attn_mask mask) {
    return mask_names[mask];
}

static const char *const *words_of(const field *f) {
    return f->offset == offsetof(oct_model_args, score_func) ? score_func_names : mask_names;
}

static bool same_key(const char *a, const char *b) {
    for (; *a && *b; a++, b++)
        if (*a != *b && !(*a == '-' && *b == '_'))
            return false;
    return *a == *b;
}

static const field *find_field(const char *key) {
    for (size_t i = 0; i < OCT_COUNT(fields); i++)
        if (same_key(key, fields[i].key))
            return &fields[i];
    return NULL;
}

bool oct_model_args_is(const char *key, const char *name) {
    const field *f = find_field(key), *named = find_field(name);
    return f && named && f->offset == named->offset;
}

static oct_status fail_value(oct_error *err, const field *f, oct_arg value) {
    static const char *const type_names[] = {"an integer", "a number", "true or false"};
    char expected[96], got[48];
    if (f->type == OCT_ARG_TEXT)
        snprintf(expected, sizeof expected, "\"%s\" or \"%s\"", words_of(f)[0], words_of(f)[1]);
    else if (f->type == OCT_ARG_BOOL)
        snprintf(expected, sizeof expected, "%s", type_names[f->type]);
    else
        snprintf(expected, sizeof expected, "%s from %.12g to %.12g", type_names[f->type], f->low,
                 f->high);
    if (value.type == OCT_ARG_INT)
        snprintf(got, sizeof got, "%" PRId64, value.i);
    else if (value.type == OCT_ARG_DOUBLE)
        snprintf(got, sizeof got, "%.12g", value.d);
    else if (value.type == OCT_ARG_TEXT)
        snprintf(got, sizeof got, "\"%.40s\"", value.text);
    else
        snprintf(got, sizeof got, "%s", value.b ? "true" : "false");
    return oct_fail(err, OCT_INVALID, "%s: impossible value; expected %s; got %s", f->key, expected,
                    got);
}

static oct_status set_word(oct_model_args *args, const field *f, oct_arg value, oct_error *err) {
    int i = strcmp(value.text, words_of(f)[1]) == 0;
    if (strcmp(value.text, words_of(f)[i]) != 0)
        return fail_value(err, f, value);
    if (f->offset == offsetof(oct_model_args, score_func))
        args->score_func = (oct_score_func)i;
    else
        args->attn_mask_type = (oct_attn_mask)i;
    return OCT_OK;
}

/* The one way of scaling positions that a family has. */
static oct_rope_scaling family_scaling(oct_model_family model_family) {
    return model_family == OCT_MODEL_DEEPSEEK_V3 ? OCT_ROPE_YARN : OCT_ROPE_LLAMA3;
}

oct_status oct_model_args_set(oct_model_args *args, const char *key, oct_arg value,
                              oct_error *err) {
    const field *f = find_field(key);
    if (!f) {
        const char *names[OCT_COUNT(fields)];
        for (size_t i = 0; i < OCT_COUNT(fields); i++)
            names[i] = fields[i].key;
        return oct_fail_unknown(err, key, key, names, OCT_COUNT(fields));
    }
    bool widens = f->type == OCT_ARG_DOUBLE && value.type == OCT_ARG_INT;
    if (value.type != f->type && !widens)
        return fail_value(err, f, value);
    if (f->type == OCT_ARG_TEXT)
        return set_word(args, f, value, err);
    double number = value.type == OCT_ARG_INT ? (double)value.i : value.d;
    if (f->type != OCT_ARG_BOOL && !(number >= f->low && number <= f->high))
        return fail_value(err, f, value);
    char *place = (char *)args + f->offset;
    if (f->offset == offsetof(oct_model_args, rope_scaling))
        args->rope_scaling = value.b ? family_scaling(args->family) : OCT_ROPE_UNSCALED;
    else if (f->type == OCT_ARG_INT)
        memcpy(place, &value.i, sizeof value.i);
    else if (f->type == OCT_ARG_DOUBLE)
        memcpy(place, &number, sizeof number);
    else
        memcpy(place, &value.b, sizeof value.b);
    return OCT_OK;
}

/* llama3's rule: two thirds of 4 dim, times the multiplier, rounded up to a multiple. */
static int64_t derived_hidden_dim(const oct_model_args *args) {
    int64_t hidden = 2 * (4 * args->dim) / 3, multiple = args->multiple_of;
    if (args->ffn_dim_multiplier > 0)
        hidden = (int64_t)(args->ffn_dim_multiplier * (double)hidden);
    return (hidden + multiple - 1) / multiple * multiple;
}

/* What is wrong with arguments: the first failure fills `err`, and all are told. */
typedef struct findings {
    oct_error *err;
    oct_args_tell tell; /* or NULL */
    void *user;
    int n;
} findings;

static void note(findings *f, const oct_error *wrong) {
    if (f->n++ == 0)
        oct_fail(f->err, wrong->status, "%s", wrong->message);
    if (f->tell)
        f->tell(f->user, wrong);
}

#define NOTE(f, ...)                                                                               \
    do {                                                                                           \
        oct_error wrong_ = {0};                                                                    \
        oct_fail(&wrong_, OCT_INVALID, __VA_ARGS__);                                               \
        note(f, &wrong_);                                                                          \
    } while (0)

static void check_bounds(const oct_model_args *args, findings *f) {
    for (size_t i = 0; i < N_NAMES; i++) {
        const field *row = &fields[i];
        oct_arg value = {.type = row->type};
        oct_error wrong = {0};
        const char *place = (const char *)args + row->offset;
        if (row->type == OCT_ARG_BOOL || row->type == OCT_ARG_TEXT)
            continue;
        if (row->type == OCT_ARG_INT)
            memcpy(&value.i, place, sizeof value.i);
        else
            memcpy(&value.d, place, sizeof value.d);
        double number = row->type == OCT_ARG_INT ? (double)value.i : value.d;
        if (!(number >= row->low && number <= row->high)) {
            fail_value(&wrong, row, value);
            note(f, &wrong);
        }
    }
}

/* Grouped-query attention: derives n_kv_heads and head_dim. */
static void resolve_heads(oct_model_args *args, findings *f) {
    bool divides = args->head_dim > 0 || args->dim % args->n_heads == 0;
    if (!divides)
        NOTE(f, "n_heads: doesn't divide dim; expected a divisor of %" PRId64 "; got %" PRId64,
             args->dim, args->n_heads);
    int64_t n_kv_heads = args->n_kv_heads ? args->n_kv_heads : args->n_heads;
    if (args->n_heads % n_kv_heads)
        NOTE(f,
             "n_kv_heads: doesn't divide n_heads; expected a divisor of %" PRId64 "; got %" PRId64,
             args->n_heads, n_kv_heads);
    int64_t head_dim = args->head_dim ? args->head_dim : args->dim / args->n_heads;
    if (divides && head_dim % 2)
        NOTE(f, "head_dim: rotary positions turn pairs; expected an even number; got %" PRId64,
             head_dim);
    args->n_kv_heads = n_kv_heads;
    args->head_dim = head_dim;
}

/* Latent attention: every head has a key and a value of its own. */
static void resolve_latent(oct_model_args *args, findings *f) {
    const struct {
        const char *key;
        int64_t value;
    } needed[] = {{"kv_lora_rank", args->kv_lora_rank},
                  {"qk_nope_head_dim", args->qk_nope_head_dim},
                  {"qk_rope_head_dim", args->qk_rope_head_dim},
                  {"v_head_dim", args->v_head_dim}};
    int64_t width = args->n_heads * (args->qk_nope_head_dim + args->v_head_dim);
    for (size_t i = 0; i < OCT_COUNT(needed); i++)
        if (needed[i].value < 1)
            NOTE(f, "%s: impossible value; expected at least 1; got %" PRId64, needed[i].key,
                 needed[i].value);
    if (args->qk_rope_head_dim % 2)
        NOTE(f,
             "qk_rope_head_dim: rotary positions turn pairs; expected an even number; got %" PRId64,
             args->qk_rope_head_dim);
    if (width > MAX_WIDE)
        NOTE(f,
             "v_head_dim: too wide; expected n_heads * (qk_nope_head_dim + v_head_dim) of at most "
             "%d; got %" PRId64,
             MAX_WIDE, width);
    args->n_kv_heads = args->n_heads;
    args->head_dim = args->qk_nope_head_dim + args->qk_rope_head_dim;
}

static void check_groups(const oct_model_args *args, findings *f) {
    int64_t E = args->num_experts, groups = args->num_expert_groups;
    int64_t limited = args->num_limited_groups;
    if (groups == 0)
        return;
    bool fits = E % groups == 0 && limited >= 1 && limited <= groups;
    if (E % groups)
        NOTE(f,
             "num_expert_groups: doesn't divide num_experts; expected a divisor of %" PRId64
             "; got %" PRId64,
             E, groups);
    if (limited < 1 || limited > groups)
        NOTE(f,
             "num_limited_groups: impossible value; expected 1 to num_expert_groups (%" PRId64
             "); got %" PRId64,
             groups, limited);
    if (fits && args->top_k <= E && args->top_k > E / groups * limited)
        NOTE(f,
             "top_k: more active experts than the groups of a token have; expected at most %" PRId64
             " (%" PRId64 " groups of %" PRId64 "); got %" PRId64,
             E / groups * limited, limited, E / groups, args->top_k);
}

static void check_experts(const oct_model_args *args, findings *f) {
    int64_t E = args->num_experts, top_k = args->top_k;
    if (E == 0 && (top_k > 0 || args->num_shared_experts > 0))
        NOTE(f,
             "num_experts: no experts to choose from, but top_k is %" PRId64
             " and num_shared_experts %" PRId64 "; expected at least %" PRId64
             ", or 0 for all three; got 0",
             top_k, args->num_shared_experts, top_k > 0 ? top_k : 1);
    if (E == 0)
        return;
    if (args->family == OCT_MODEL_LLAMA3) {
        NOTE(f,
             "num_experts: llama3 has no experts; expected 0, or model.name qwen3 or deepseek_v3; "
             "got %" PRId64,
             E);
        return;
    }
    if (top_k < 1 || top_k > E)
        NOTE(f,
             "top_k: impossible number of active experts; expected 1 to num_experts (%" PRId64
             "); got %" PRId64,
             E, top_k);
    if (args->moe_inter_dim < 1 || args->moe_inter_dim * args->num_shared_experts > MAX_WIDE)
        NOTE(f,
             "moe_inter_dim: impossible value; expected at least 1 and, times num_shared_experts, "
             "at most %d; got %" PRId64,
             MAX_WIDE, args->moe_inter_dim);
    if (args->route_scale <= 0)
        NOTE(f, "route_scale: impossible value; expected more than 0; got %g", args->route_scale);
    check_groups(args, f);
}

static void check_widths(const oct_model_args *args, findings *f) {
    if (args->n_heads * args->head_dim > MAX_WIDE)
        NOTE(f, "head_dim: too wide; expected n_heads * head_dim of at most %d; got %" PRId64,
             MAX_WIDE, (args->n_heads * args->head_dim));
    if (args->hidden_dim > MAX_WIDE)
        NOTE(f, "hidden_dim: too wide; expected at most %d; got %" PRId64, MAX_WIDE,
             args->hidden_dim);
    if (args->rope_scaling == OCT_ROPE_LLAMA3 &&
        !(args->rope_high_freq_factor > args->rope_low_freq_factor))
        NOTE(f,
             "rope_high_freq_factor: impossible value; expected more than rope_low_freq_factor "
             "(%g); got %g",
             args->rope_low_freq_factor, args->rope_high_freq_factor);
}

oct_status oct_model_args_resolve_all(oct_model_args *args, oct_args_tell tell, void *user,
                                      oct_error *err) {
    findings f = {err, tell, user, 0};
    oct_model_args resolved = *args;
    check_bounds(args, &f);
    if (f.n > 0) /* the relations divide by them */
        return OCT_INVALID;
    resolved.hidden_dim = args->hidden_dim ? args->hidden_dim : derived_hidden_dim(args);
    if (args->family == OCT_MODEL_DEEPSEEK_V3)
        resolve_latent(&resolved, &f);
    else
        resolve_heads(&resolved, &f);
    check_experts(&resolved, &f);
    check_widths(&resolved, &f);
    if (f.n > 0)
        return OCT_INVALID;
    *args = resolved;
    return OCT_OK;
}

oct_status oct_model_args_resolve(oct_model_args *args, oct_error *err) {
    return oct_model_args_resolve_all(args, NULL, NULL, err);
}

bool oct_model_args_has_experts(const oct_model_args *args, int64_t layer) {
    return args->num_experts > 0 && layer >= args->n_dense_layers &&
           !oct_layer_set_has(&args->dense, layer);
}

bool oct_model_args_uses_yarn(const oct_model_args *args) {
    return args->rope_scaling == OCT_ROPE_YARN &&
           (args->yarn_always || args->max_seq_len > args->rope_original_max_position_embeddings);
}

int64_t oct_model_args_window(const oct_model_args *args, int64_t layer) {
    return oct_layer_set_has(&args->windowed, layer) ? args->window : 0;
}
