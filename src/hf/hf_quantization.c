/* quantization_config: DeepSeek-V3's blocks, and the three dialects of MXFP8 that octet writes too.
 * Weights are dequantized when they are read, so what is said of activations has no effect. See
 * hf_fields.h. */
#include <inttypes.h>
#include <string.h>

#include "base/count.h"
#include "hf/hf_fields.h"

/* A key and the text that it must have; NULL: any value, as the tensors say it themselves (which
 * modules were left alone), or it's about activations or the writer. */
typedef struct rule {
    const char *key, *text;
} rule;

typedef struct dialect {
    const char *method;
    oct_hf_quantization kind;
    rule rules[16];
} dialect;

static const dialect dialects[] = {
    {"fp8",
     OCT_HF_FP8_BLOCKS,
     {{"quant_method", "fp8"},
      {"fmt", "e4m3"},
      {"weight_block_size", NULL},
      {"activation_scheme", NULL},
      {"scale_fmt", NULL},
      {"modules_to_not_convert", NULL},
      {"dequantize", NULL}}},
    {"compressed-tensors",
     OCT_HF_COMPRESSED_TENSORS,
     {{"quant_method", "compressed-tensors"},
      {"format", "mxfp8-quantized"},
      {"config_groups", NULL},
      {"ignore", NULL},
      {"version", NULL},
      {"quantization_status", "compressed"},
      {"global_compression_ratio", NULL}}},
    {"modelopt",
     OCT_HF_MODELOPT,
     {{"quant_method", "modelopt"},
      {"quant_algo", "MXFP8"},
      {"ignore", NULL},
      {"exclude_modules", NULL},
      {"config_groups", NULL},
      {"producer", NULL}}},
    {"mxfp8",
     OCT_HF_MXFP8,
     {{"quant_method", "mxfp8"},
      {"fmt", "e4m3"},
      {"scale_fmt", "ue8m0"},
      {"weight_block_size", NULL},
      {"activation_scheme", NULL},
      {"ignored_layers", NULL},
      {"modules_to_not_convert", NULL}}},
};

#define WHERE "quantization_config: "

static const rule *find_rule(const dialect *d, const char *key) {
    for (size_t i = 0; i < OCT_COUNT(d->rules) && d->rules[i].key; i++)
        if (strcmp(d->rules[i].key, key) == 0)
            return &d->rules[i];
    return NULL;
}

/* Caches and activations in 8 bits, sparsity, rotations: empty or absent. */
static bool is_switched_off(const char *key, const json_t *value) {
    static const char *const parts[] = {"kv_cache_scheme", "kv_cache_quant_algo", "sparsity_config",
                                        "transform_config"};
    bool part = false;
    for (size_t i = 0; i < OCT_COUNT(parts); i++)
        part |= strcmp(parts[i], key) == 0;
    return part && (json_is_null(value) || (json_is_object(value) && !json_object_size(value)));
}

static oct_status check_rules(const char *file, const dialect *d, const json_t *in,
                              oct_error *err) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)in, key, value) {
        const rule *r = find_rule(d, key);
        const char *text = json_string_value(value);
        if (!r && is_switched_off(key, value))
            continue;
        if (!r)
            return oct_fail(err, OCT_INVALID, "%s: " WHERE "%s: unknown key, or not supported",
                            file, oct_show(key).text);
        if (r->text && (!text || strcmp(text, r->text) != 0))
            return oct_fail(err, OCT_INVALID, "%s: " WHERE "%s: not supported; expected %s; got %s",
                            file, key, r->text, text ? oct_show(text).text : oct_json_kind(value));
    }
    return OCT_OK;
}

static oct_status read_block(const char *file, const json_t *in, oct_hf_config *c, oct_error *err) {
    static const oct_hf_field side = {"weight_block_size", OCT_HF_SIZE, 0,      0,
                                      OCT_HF_DEFAULT,      1,           1 << 16};
    const json_t *block = oct_hf_get(in, side.key);
    if (!json_is_array(block) || json_array_size(block) != 2)
        return oct_fail(err, OCT_INVALID,
                        "%s: " WHERE "weight_block_size: expected the rows and columns of a "
                        "block; got %s",
                        file, json_is_array(block) ? "another list" : oct_json_kind(block));
    oct_status status =
        oct_hf_read_field(file, WHERE, json_array_get(block, 0), &side, &c->block_rows, err);
    return status ? status
                  : oct_hf_read_field(file, WHERE, json_array_get(block, 1), &side, &c->block_cols,
                                      err);
}

/* The weights' scheme of each group: 8-bit floats in groups of 32. */
static oct_status check_groups(const char *file, const json_t *in, oct_error *err) {
    static const struct {
        const char *key, *text;
        json_int_t number;
    } wanted[] = {{"type", "float", 0},
                  {"strategy", "group", 0},
                  {"num_bits", NULL, 8},
                  {"group_size", NULL, 32}};
    const char *name;
    json_t *groups = json_object_get(in, "config_groups"), *group;
    json_object_foreach(groups, name, group) {
        const json_t *weights = json_object_get(group, "weights");
        for (size_t i = 0; i < OCT_COUNT(wanted); i++) {
            const json_t *value = json_object_get(weights, wanted[i].key);
            bool right =
                wanted[i].text
                    ? json_is_string(value) && strcmp(json_string_value(value), wanted[i].text) == 0
                    : json_is_integer(value) && json_integer_value(value) == wanted[i].number;
            if (!right)
                return oct_fail(err, OCT_INVALID,
                                "%s: " WHERE "config_groups: %s: weights: %s: not supported; "
                                "expected 8-bit float weights in groups of 32",
                                file, oct_show(name).text, wanted[i].key);
        }
    }
    return OCT_OK;
}

oct_status oct_hf_read_quantization(const char *file, const json_t *root, oct_hf_config *c,
                                    oct_error *err) {
    const json_t *in = oct_hf_get(root, "quantization_config");
    const dialect *d = NULL;
    if (!in)
        return OCT_OK;
    const json_t *value = oct_hf_get(in, "quant_method");
    const char *method = json_string_value(value);
    for (size_t i = 0; method && i < OCT_COUNT(dialects); i++)
        if (strcmp(method, dialects[i].method) == 0)
            d = &dialects[i];
    if (!d)
        return oct_fail(err, OCT_INVALID,
                        "%s: " WHERE "quant_method: not supported; expected fp8, "
                        "compressed-tensors, modelopt or mxfp8; got %s",
                        file, method ? oct_show(method).text : oct_json_kind(value));
    c->quantization = d->kind;
    c->block_rows = 1;
    c->block_cols = 32;
    oct_status status = check_rules(file, d, in, err);
    if (!status && (d->kind == OCT_HF_FP8_BLOCKS || oct_hf_get(in, "weight_block_size")))
        status = read_block(file, in, c, err);
    if (!status && d->kind == OCT_HF_MXFP8 && (c->block_rows != 1 || c->block_cols != 32))
        status = oct_fail(err, OCT_INVALID,
                          "%s: " WHERE "weight_block_size: expected [1, 32]; got [%" PRId64
                          ", %" PRId64 "]",
                          file, c->block_rows, c->block_cols);
    if (!status && d->kind == OCT_HF_COMPRESSED_TENSORS)
        status = check_groups(file, in, err);
    if (!status && d->kind == OCT_HF_COMPRESSED_TENSORS && !oct_hf_get(in, "format"))
        status = oct_fail(err, OCT_INVALID,
                          "%s: " WHERE "format: expected mxfp8-quantized; it is "
                          "missing",
                          file);
    if (!status && d->kind == OCT_HF_MODELOPT && !oct_hf_get(in, "quant_algo"))
        status = oct_fail(err, OCT_INVALID,
                          "%s: " WHERE "quant_algo: expected MXFP8; it is missing", file);
    return status;
}
