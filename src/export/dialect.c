/* The words of the three MXFP8 dialects: see dialect.h. Sources: compressed-tensors' preset MXFP8
 * and its mxfp8-quantized compressor; modelopt's hf_quant_config.json; the quantization_config that
 * transformers reads by quant_method mxfp8. */
#include "export/dialect.h"

#include <string.h>

#include "base/nearest.h"
#include "file/json.h"

static const char *const names[] = {[OCT_EXPORT_HF] = "hf",
                                    [OCT_EXPORT_COMPRESSED_TENSORS] = "compressed-tensors",
                                    [OCT_EXPORT_MODELOPT] = "modelopt",
                                    [OCT_EXPORT_MXFP8] = "mxfp8",
                                    [OCT_EXPORT_DCP] = "dcp"};

const char *oct_export_format_name(oct_export_format format) {
    return names[format];
}

oct_status oct_export_format_parse(const char *name, oct_export_format *format, oct_error *err) {
    for (int i = 0; i < OCT_N_EXPORT_FORMATS; i++) {
        *format = (oct_export_format)i;
        if (strcmp(names[i], name) == 0)
            return OCT_OK;
    }
    if (strncasecmp(name, "hif8", 4) == 0)
        return oct_fail(err, OCT_INVALID,
                        "no other program reads weights in HiF8, so that there is no format to "
                        "write; expected hf, which has them in high precision");
    const char *nearest = oct_nearest_name(name, names, OCT_N_EXPORT_FORMATS);
    return oct_fail(err, OCT_INVALID,
                    "unknown format; expected hf, compressed-tensors, modelopt, mxfp8 or dcp; got "
                    "'%.80s'%s%s%s",
                    name, nearest ? " (nearest: " : "", nearest ? nearest : "", nearest ? ")" : "");
}

const char *oct_dialect_scale_suffix(oct_export_format format) {
    return format == OCT_EXPORT_MXFP8 ? "_scale_inv" : "_scale";
}

static void put_list(oct_strbuf *to, const char *const *list, size_t n) {
    oct_strbuf_puts(to, "[");
    for (size_t i = 0; i < n; i++) {
        oct_strbuf_puts(to, i ? ", " : "");
        oct_json_put_string(to, list[i]);
    }
    oct_strbuf_puts(to, "]");
}

static void put_scheme(oct_strbuf *to, const char *role, const char *dynamic) {
    oct_strbuf_printf(to,
                      "\"%s\": {\"num_bits\": 8, \"type\": \"float\", \"strategy\": \"group\", "
                      "\"group_size\": 32, \"symmetric\": true, \"dynamic\": %s, "
                      "\"scale_dtype\": \"torch.uint8\"}",
                      role, dynamic);
}

void oct_dialect_put_config(oct_export_format format, const char *const *ignored, size_t n_ignored,
                            oct_strbuf *to) {
    const char *list = format == OCT_EXPORT_MXFP8 ? "ignored_layers" : "ignore";
    oct_strbuf_printf(to, "{\"quant_method\": \"%s\", ", names[format]);
    if (format == OCT_EXPORT_COMPRESSED_TENSORS) {
        oct_strbuf_puts(to, "\"format\": \"mxfp8-quantized\", \"quantization_status\": "
                            "\"compressed\", \"config_groups\": {\"group_0\": {\"targets\": "
                            "[\"Linear\"], ");
        put_scheme(to, "weights", "false");
        oct_strbuf_puts(to, ", ");
        put_scheme(to, "input_activations", "true");
        oct_strbuf_puts(to, "}}, ");
    } else if (format == OCT_EXPORT_MODELOPT) {
        oct_strbuf_puts(to, "\"quant_algo\": \"MXFP8\", ");
    } else {
        oct_strbuf_puts(to, "\"weight_block_size\": [1, 32], \"scale_fmt\": \"ue8m0\", "
                            "\"activation_scheme\": \"dynamic\", \"fmt\": \"e4m3\", ");
    }
    oct_strbuf_printf(to, "\"%s\": ", list);
    put_list(to, ignored, n_ignored);
    oct_strbuf_puts(to, "}");
}

const char *oct_dialect_file(oct_export_format format) {
    return format == OCT_EXPORT_MODELOPT ? "hf_quant_config.json" : NULL;
}

void oct_dialect_put_file(const char *const *ignored, size_t n_ignored, oct_strbuf *to) {
    oct_strbuf_puts(to, "{\n  \"producer\": {\"name\": \"octet\"},\n  \"quantization\": {"
                        "\"quant_algo\": \"MXFP8\", \"kv_cache_quant_algo\": null, "
                        "\"group_size\": 32, \"exclude_modules\": ");
    put_list(to, ignored, n_ignored);
    oct_strbuf_puts(to, "}\n}\n");
}
