/* What a config.json says of single layers: windows, positions, experts. See hf_fields.h. */
#include <inttypes.h>
#include <string.h>

#include "hf/hf_fields.h"

static oct_status check_count(const char *file, const char *key, const oct_hf_config *c,
                              oct_error *err) {
    if (c->num_hidden_layers <= OCT_LAYER_SET_MAX)
        return OCT_OK;
    return oct_fail(
        err, OCT_INVALID,
        "%s: %s: expected at most %d layers in a model whose layers differ; got %" PRId64, file,
        key, OCT_LAYER_SET_MAX, c->num_hidden_layers);
}

/* Where config.json has no layer_types: as the families' classes fill it in. */
static void derive_windows(oct_hf_config *c) {
    for (int64_t i = 0; c->sliding_window && i < c->num_hidden_layers; i++) {
        bool late = c->family == OCT_HF_QWEN2 || c->family == OCT_HF_QWEN3
                        ? i >= c->max_window_layers
                        : true;
        if (c->family == OCT_HF_SMOLLM3 ? oct_layer_set_has(&c->no_rope, i) : late)
            oct_layer_set_add(&c->windowed, i);
    }
}

/* Qwen2, Qwen3 and SmolLM3 go by the list. For other families transformers doesn't read it: there
 * it must say what is so. */
static oct_status read_types(const char *file, const json_t *list, oct_hf_config *c,
                             oct_error *err) {
    oct_layer_set windowed = {0};
    if (!json_is_array(list) || (int64_t)json_array_size(list) != c->num_hidden_layers)
        return oct_fail(
            err, OCT_INVALID, "%s: layer_types: expected a list of %" PRId64 " types; got %s", file,
            c->num_hidden_layers, json_is_array(list) ? "another number" : oct_json_kind(list));
    for (int64_t i = 0; i < c->num_hidden_layers; i++) {
        const json_t *item = json_array_get(list, (size_t)i);
        const char *type = json_string_value(item);
        if (type && strcmp(type, "sliding_attention") == 0)
            oct_layer_set_add(&windowed, i);
        else if (!type || strcmp(type, "full_attention") != 0)
            return oct_fail(err, OCT_INVALID,
                            "%s: layer_types[%" PRId64
                            "]: expected full_attention or sliding_attention; got %s",
                            file, i, type ? oct_show(type).text : oct_json_kind(item));
    }
    bool decides =
        c->family == OCT_HF_QWEN2 || c->family == OCT_HF_QWEN3 || c->family == OCT_HF_SMOLLM3;
    if (!decides && memcmp(&windowed, &c->windowed, sizeof windowed) != 0)
        return oct_fail(err, OCT_INVALID,
                        "%s: layer_types: a %s model doesn't follow it; expected the layers that "
                        "have a window",
                        file, oct_hf_family_name(c->family));
    if (decides && !c->sliding_window && !oct_layer_set_is_empty(&windowed))
        return oct_fail(err, OCT_INVALID,
                        "%s: layer_types: sliding_attention without a window; expected "
                        "use_sliding_window and sliding_window",
                        file);
    if (decides)
        c->windowed = windowed;
    return OCT_OK;
}

static oct_status read_windows(const char *file, const json_t *root, oct_hf_config *c,
                               oct_error *err) {
    const json_t *types = oct_hf_get(root, "layer_types");
    oct_status status = OCT_OK;
    if (!c->use_sliding_window)
        c->sliding_window = 0;
    if (c->sliding_window || types)
        status = check_count(file, types ? "layer_types" : "sliding_window", c, err);
    if (status)
        return status;
    derive_windows(c);
    return types ? read_types(file, types, c, err) : OCT_OK;
}

/* A list of ones, and zeros for layers without positions; or every n-th is without. */
static oct_status read_no_rope(const char *file, const json_t *root, oct_hf_config *c,
                               oct_error *err) {
    const json_t *list = oct_hf_get(root, "no_rope_layers");
    oct_status status = check_count(file, "no_rope_layers", c, err);
    if (status)
        return status;
    if (list && (!json_is_array(list) || (int64_t)json_array_size(list) < c->num_hidden_layers))
        return oct_fail(err, OCT_INVALID,
                        "%s: no_rope_layers: expected a list of %" PRId64 " zeros and ones; got %s",
                        file, c->num_hidden_layers,
                        json_is_array(list) ? "fewer" : oct_json_kind(list));
    for (int64_t i = 0; i < c->num_hidden_layers; i++) {
        const json_t *item = list ? json_array_get(list, (size_t)i) : NULL;
        json_int_t value = list ? json_integer_value(item) : (i + 1) % c->no_rope_layer_interval;
        if (list && (!json_is_integer(item) || value < 0 || value > 1))
            return oct_fail(err, OCT_INVALID, "%s: no_rope_layers[%" PRId64 "]: expected 0 or 1",
                            file, i);
        if (value == 0)
            oct_layer_set_add(&c->no_rope, i);
    }
    return OCT_OK;
}

static oct_status read_mlp_only(const char *file, const json_t *root, oct_hf_config *c,
                                oct_error *err) {
    const json_t *list = oct_hf_get(root, "mlp_only_layers");
    if (!list || (json_is_array(list) && json_array_size(list) == 0))
        return OCT_OK;
    if (!json_is_array(list))
        return oct_fail(err, OCT_INVALID, "%s: mlp_only_layers: expected a list of layers; got %s",
                        file, oct_json_kind(list));
    oct_status status = check_count(file, "mlp_only_layers", c, err);
    const oct_hf_field layer = {
        "mlp_only_layers", OCT_HF_SIZE, 0, 0, OCT_HF_DEFAULT, 0, (double)c->num_hidden_layers - 1};
    for (size_t i = 0; i < json_array_size(list) && !status; i++) {
        int64_t value = 0;
        status = oct_hf_read_field(file, "", json_array_get(list, i), &layer, &value, err);
        if (!status)
            oct_layer_set_add(&c->mlp_only, value);
    }
    return status;
}

oct_status oct_hf_read_layers(const char *file, const json_t *root, oct_hf_config *config,
                              oct_error *err) {
    oct_status status = OCT_OK;
    if (config->family == OCT_HF_SMOLLM3)
        status = read_no_rope(file, root, config, err);
    if (!status && config->family == OCT_HF_QWEN3_MOE)
        status = read_mlp_only(file, root, config, err);
    if (!status && config->family == OCT_HF_QWEN3_MOE && config->decoder_sparse_step > 1)
        status = check_count(file, "decoder_sparse_step", config, err);
    return status ? status : read_windows(file, root, config, err);
}
