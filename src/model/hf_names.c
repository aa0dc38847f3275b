/* Hugging Face's names and weight layout: see hf_names.h.
 *
 * Both names are a prefix outside the layers, or "layers.N." and a suffix; families differ only in
 * which of the suffixes they have. */
#include "base/count.h"
#include "model/hf_names.h"

#include <inttypes.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* The families that have a name. */
enum {
    LLAMA3 = 1 << OCT_MODEL_LLAMA3,
    QWEN3 = 1 << OCT_MODEL_QWEN3,
    DEEPSEEK_V3 = 1 << OCT_MODEL_DEEPSEEK_V3,
    GROUPED_QUERIES = LLAMA3 | QWEN3,
    WITH_EXPERTS = QWEN3 | DEEPSEEK_V3,
    ALL = GROUPED_QUERIES | DEEPSEEK_V3
};

typedef struct name_pair {
    const char *name, *hf_name;
    int families;
} name_pair;

static const name_pair outer_names[] = {
    {"tok_embeddings", "model.embed_tokens", ALL},
    {"norm", "model.norm", ALL},
    {"output", "lm_head", ALL},
};

/* Where both "feed_forward" and "moe" are "mlp", the way back gives the first. */
static const name_pair layer_names[] = {
    {"attention_norm", "input_layernorm", ALL},
    {"attention", "self_attn", ALL},
    {"attention.wq", "self_attn.q_proj", ALL},
    {"attention.wk", "self_attn.k_proj", GROUPED_QUERIES},
    {"attention.wv", "self_attn.v_proj", GROUPED_QUERIES},
    {"attention.wo", "self_attn.o_proj", ALL},
    {"attention.q_norm", "self_attn.q_norm", QWEN3},
    {"attention.k_norm", "self_attn.k_norm", QWEN3},
    {"attention.wq_a", "self_attn.q_a_proj", DEEPSEEK_V3},
    {"attention.q_norm", "self_attn.q_a_layernorm", DEEPSEEK_V3},
    {"attention.wq_b", "self_attn.q_b_proj", DEEPSEEK_V3},
    {"attention.wkv_a", "self_attn.kv_a_proj_with_mqa", DEEPSEEK_V3},
    {"attention.kv_norm", "self_attn.kv_a_layernorm", DEEPSEEK_V3},
    {"attention.wkv_b", "self_attn.kv_b_proj", DEEPSEEK_V3},
    {"ffn_norm", "post_attention_layernorm", ALL},
    {"feed_forward", "mlp", ALL},
    {"feed_forward.w1", "mlp.gate_proj", ALL},
    {"feed_forward.w2", "mlp.down_proj", ALL},
    {"feed_forward.w3", "mlp.up_proj", ALL},
    {"moe", "mlp", WITH_EXPERTS},
    {"moe.experts", "mlp.experts", WITH_EXPERTS},
    {"moe.router.gate", "mlp.gate", WITH_EXPERTS},
    {"moe.expert_bias", "mlp.gate.e_score_correction_bias", DEEPSEEK_V3},
    {"moe.shared_experts", "mlp.shared_experts", DEEPSEEK_V3},
    {"moe.shared_experts.w1", "mlp.shared_experts.gate_proj", DEEPSEEK_V3},
    {"moe.shared_experts.w2", "mlp.shared_experts.down_proj", DEEPSEEK_V3},
    {"moe.shared_experts.w3", "mlp.shared_experts.up_proj", DEEPSEEK_V3},
};

/* An expert's matrix in one tensor of its own there, a slice of "moe.experts.wN" here. */
static const name_pair expert_names[] = {
    {"w1", "gate_proj", WITH_EXPERTS},
    {"w2", "down_proj", WITH_EXPERTS},
    {"w3", "up_proj", WITH_EXPERTS},
};

typedef enum side { OURS, THEIRS } side;

static const char *of(const name_pair *pair, side s) {
    return s == OURS ? pair->name : pair->hf_name;
}

/* "weight" and "bias" end a parameter's name; *n is what comes before them. */
static const char *parameter_suffix(const char *name, size_t *n) {
    static const char *const suffixes[] = {".weight", ".bias"};
    size_t length = strlen(name);
    for (size_t i = 0; i < OCT_COUNT(suffixes); i++) {
        size_t m = strlen(suffixes[i]);
        if (length > m && strcmp(name + length - m, suffixes[i]) == 0) {
            *n = length - m;
            return name + length - m;
        }
    }
    *n = length;
    return name + length;
}

static const name_pair *find(const name_pair *pairs, size_t n_pairs, oct_model_family family,
                             side s, const char *name, size_t n) {
    for (size_t i = 0; i < n_pairs; i++)
        if ((pairs[i].families & 1 << family) && strlen(of(&pairs[i], s)) == n &&
            strncmp(of(&pairs[i], s), name, n) == 0)
            return &pairs[i];
    return NULL;
}

/* The length of "layers.N" at the start of a name, 0 if it isn't there. */
static size_t layer_prefix(const char *name, const char *layers) {
    size_t n = strlen(layers), m = n;
    if (strncmp(name, layers, n) != 0)
        return 0;
    while (isdigit((unsigned char)name[m]))
        m++;
    return m > n && (name[m] == '.' || name[m] == '\0') ? m : 0;
}

static bool translate(oct_model_family family, side from, const char *name,
                      char out[OCT_HF_MODULE_NAME_SIZE]) {
    static const char *const layers[] = {"layers.", "model.layers."};
    side to = from == OURS ? THEIRS : OURS;
    size_t n;
    const char *suffix = parameter_suffix(name, &n);
    const name_pair *pair = find(outer_names, OCT_COUNT(outer_names), family, from, name, n);
    if (pair)
        return snprintf(out, OCT_HF_MODULE_NAME_SIZE, "%s%s", of(pair, to), suffix) <
               OCT_HF_MODULE_NAME_SIZE;
    size_t prefix = layer_prefix(name, layers[from]), skipped = strlen(layers[from]);
    if (!prefix)
        return false;
    int digits = (int)(prefix - skipped);
    if (name[prefix] == '\0')
        return snprintf(out, OCT_HF_MODULE_NAME_SIZE, "%s%.*s", layers[to], digits,
                        name + skipped) < OCT_HF_MODULE_NAME_SIZE;
    if (n <= prefix)
        return false;
    pair =
        find(layer_names, OCT_COUNT(layer_names), family, from, name + prefix + 1, n - prefix - 1);
    if (!pair)
        return false;
    return snprintf(out, OCT_HF_MODULE_NAME_SIZE, "%s%.*s.%s%s", layers[to], digits, name + skipped,
                    of(pair, to), suffix) < OCT_HF_MODULE_NAME_SIZE;
}

bool oct_hf_name(oct_model_family family, const char *name, char out[OCT_HF_MODULE_NAME_SIZE]) {
    if (strcmp(name, "layers") == 0) {
        snprintf(out, OCT_HF_MODULE_NAME_SIZE, "model.layers");
        return true;
    }
    return translate(family, OURS, name, out);
}

bool oct_name_from_hf(oct_model_family family, const char *hf_name,
                      char out[OCT_HF_MODULE_NAME_SIZE]) {
    if (strcmp(hf_name, "model.layers") == 0) {
        snprintf(out, OCT_HF_MODULE_NAME_SIZE, "layers");
        return true;
    }
    return translate(family, THEIRS, hf_name, out);
}

bool oct_hf_expert_name(oct_model_family family, const char *name, int64_t expert,
                        char out[OCT_HF_MODULE_NAME_SIZE]) {
    char module[OCT_HF_MODULE_NAME_SIZE];
    const char *dot = strrchr(name, '.'), *layers = "layers.";
    size_t prefix = layer_prefix(name, layers);
    if (!dot || !prefix || strncmp(name + prefix, ".moe.experts.", 13) != 0)
        return false;
    size_t n = (size_t)(dot - name);
    if (n >= sizeof module)
        return false;
    const name_pair *pair =
        find(expert_names, OCT_COUNT(expert_names), family, OURS, dot + 1, strlen(dot + 1));
    snprintf(module, sizeof module, "%.*s", (int)n, name);
    char theirs[OCT_HF_MODULE_NAME_SIZE];
    if (!pair || !oct_hf_name(family, module, theirs))
        return false;
    return snprintf(out, OCT_HF_MODULE_NAME_SIZE, "%.100s.%" PRId64 ".%s.weight", theirs, expert,
                    pair->hf_name) < OCT_HF_MODULE_NAME_SIZE;
}

const char *oct_hf_namer_name(void *context, const oct_module *m) {
    oct_hf_namer *namer = context;
    return oct_hf_name(namer->family, m->name, namer->name) ? namer->name : m->name;
}

int64_t oct_hf_permuted_heads(const oct_model_args *args, const char *name) {
    if (args->family != OCT_MODEL_LLAMA3)
        return 0;
    if (strstr(name, ".attention.wq."))
        return args->n_heads;
    return strstr(name, ".attention.wk.") ? args->n_kv_heads : 0;
}

/* Pair i of a head is rows 2i, 2i+1 here and rows i, i + head_dim/2 there. */
void oct_hf_permute_rows(oct_hf_direction direction, int64_t n_heads, int64_t head_dim,
                         size_t n_bytes_per_row, const void *src, void *dst) {
    for (int64_t h = 0; h < n_heads; h++) {
        for (int64_t i = 0; i < head_dim; i++) {
            int64_t ours = h * head_dim + i;
            int64_t theirs = h * head_dim + i / 2 + (i % 2) * (head_dim / 2);
            int64_t to = direction == OCT_TO_HF ? theirs : ours;
            int64_t from = direction == OCT_TO_HF ? ours : theirs;
            memcpy((char *)dst + (size_t)to * n_bytes_per_row,
                   (const char *)src + (size_t)from * n_bytes_per_row, n_bytes_per_row);
        }
    }
}
