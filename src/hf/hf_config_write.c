/* Writing a config.json: see hf_config.h. The tables that read it drive this too. */
#include <inttypes.h>
#include <string.h>

#include "hf/hf_fields.h"

static void put_key(oct_strbuf *to, const char *key) {
    oct_strbuf_puts(to, to->length > 1 && to->text[to->length - 1] != '{' ? ",\n  " : "\n  ");
    oct_json_put_string(to, key);
    oct_strbuf_puts(to, ": ");
}

/* Values that a null stands for: 0, or -1 for an id. */
static bool is_none(const oct_hf_field *f, const void *from) {
    if (f->absence != OCT_HF_NULLABLE)
        return false;
    if (f->kind == OCT_HF_REAL)
        return *(const double *)from < f->low || *(const double *)from == 0;
    return f->kind == OCT_HF_SIZE && *(const int64_t *)from < (int64_t)(f->low < 0 ? 0 : f->low);
}

static void put_field(oct_strbuf *to, const oct_hf_field *f, const oct_hf_config *c) {
    const void *from = (const char *)c + f->offset;
    if (f->absence == OCT_HF_READ_ONLY || (f->kind == OCT_HF_TEXT && !*(const char *)from))
        return;
    put_key(to, f->key);
    if (is_none(f, from))
        oct_strbuf_puts(to, "null");
    else if (f->kind == OCT_HF_TEXT)
        oct_json_put_string(to, from);
    else if (f->kind == OCT_HF_REAL)
        oct_json_put_real(to, *(const double *)from);
    else if (f->kind == OCT_HF_SWITCH)
        oct_strbuf_puts(to, *(const bool *)from ? "true" : "false");
    else
        oct_strbuf_printf(to, "%" PRId64, *(const int64_t *)from);
}

static void put_rope(oct_strbuf *to, const oct_hf_config *c) {
    oct_hf_fields fields = oct_hf_rope_fields(c->rope_type);
    put_key(to, "rope_scaling");
    if (c->rope_type == OCT_HF_ROPE_DEFAULT) {
        oct_strbuf_puts(to, "null");
        return;
    }
    oct_strbuf_puts(to, "{");
    put_key(to, "rope_type");
    oct_json_put_string(to, oct_hf_rope_name(c->rope_type));
    for (size_t i = 0; i < fields.n; i++)
        put_field(to, &fields.list[i], c);
    oct_strbuf_puts(to, "}");
}

/* One item a layer: `in` where it's in the set, else `out`. */
static void put_layers(oct_strbuf *to, const char *key, const oct_hf_config *c,
                       const oct_layer_set *set, const char *in, const char *out) {
    put_key(to, key);
    for (int64_t i = 0; i < c->num_hidden_layers; i++)
        oct_strbuf_printf(to, "%s%s", i ? ", " : "[", oct_layer_set_has(set, i) ? in : out);
    oct_strbuf_puts(to, "]");
}

static void put_numbers(oct_strbuf *to, const char *key, const oct_layer_set *set, int64_t n) {
    const char *comma = "";
    put_key(to, key);
    oct_strbuf_puts(to, "[");
    for (int64_t i = 0; i < n; i++) {
        if (!oct_layer_set_has(set, i))
            continue;
        oct_strbuf_printf(to, "%s%" PRId64, comma, i);
        comma = ", ";
    }
    oct_strbuf_puts(to, "]");
}

static void put_ends(oct_strbuf *to, const oct_hf_config *c) {
    put_key(to, "eos_token_id");
    if (c->n_eos_token_ids == 0)
        oct_strbuf_puts(to, "null");
    else if (c->n_eos_token_ids == 1)
        oct_strbuf_printf(to, "%" PRId64, c->eos_token_ids[0]);
    for (int64_t i = 0; c->n_eos_token_ids > 1 && i < c->n_eos_token_ids; i++)
        oct_strbuf_printf(to, "%s%" PRId64, i ? ", " : "[", c->eos_token_ids[i]);
    if (c->n_eos_token_ids > 1)
        oct_strbuf_puts(to, "]");
}

void oct_hf_config_put(oct_strbuf *to, const oct_hf_config *c) {
    oct_hf_fields fields = oct_hf_root_fields();
    oct_strbuf_puts(to, "{");
    put_key(to, "model_type");
    oct_json_put_string(to, oct_hf_family_name(c->family));
    if (c->architecture[0]) {
        put_key(to, "architectures");
        oct_strbuf_puts(to, "[");
        oct_json_put_string(to, c->architecture);
        oct_strbuf_puts(to, "]");
    }
    put_key(to, "hidden_act");
    oct_json_put_string(to, "silu");
    for (size_t i = 0; i < fields.n; i++)
        if (fields.list[i].families & 1 << c->family)
            put_field(to, &fields.list[i], c);
    put_ends(to, c);
    bool listed =
        c->family == OCT_HF_QWEN2 || c->family == OCT_HF_QWEN3 || c->family == OCT_HF_SMOLLM3;
    if (listed && c->num_hidden_layers <= OCT_LAYER_SET_MAX)
        put_layers(to, "layer_types", c, &c->windowed, "\"sliding_attention\"",
                   "\"full_attention\"");
    if (c->family == OCT_HF_SMOLLM3)
        put_layers(to, "no_rope_layers", c, &c->no_rope, "0", "1");
    if (c->family == OCT_HF_QWEN3_MOE)
        put_numbers(to, "mlp_only_layers", &c->mlp_only, c->num_hidden_layers);
    if (c->family == OCT_HF_DEEPSEEK_V3) {
        put_key(to, "scoring_func");
        oct_json_put_string(to, c->scoring_func == OCT_HF_SCORING_SIGMOID ? "sigmoid" : "softmax");
    }
    put_rope(to, c);
    oct_strbuf_puts(to, "\n}\n");
}
