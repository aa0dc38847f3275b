/* What frameworks skip and refuse: see framework.h. Each note ends with where it was read. */
#include "convert/framework.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "convert/pattern.h"

static oct_status append(char **notes, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));
static oct_status note(oct_plan_row *row, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static oct_status note_all(oct_plan *plan, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static oct_status append(char **notes, const char *format, va_list args) {
    char text[1024], all[2048];
    vsnprintf(text, sizeof text, format, args);
    snprintf(all, sizeof all, "%s%s%s", *notes ? *notes : "", *notes ? "; " : "", text);
    char *copy = oct_strdup(all);
    if (!copy)
        return OCT_NO_MEMORY;
    oct_free(*notes);
    *notes = copy;
    return OCT_OK;
}

/* Appends to the row's notes. */
static oct_status note(oct_plan_row *row, const char *format, ...) {
    va_list args;
    va_start(args, format);
    oct_status status = append(&row->framework, format, args);
    va_end(args);
    return status;
}

/* Appends to those of the whole plan. */
static oct_status note_all(oct_plan *plan, const char *format, ...) {
    va_list args;
    va_start(args, format);
    oct_status status = append(&plan->framework, format, args);
    va_end(args);
    return status;
}

static bool is_one_of(const char *name, const char *const *names, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static const oct_converter_spec *spec_of(const oct_converter_spec *specs, int64_t n_specs,
                                         oct_converter_kind kind) {
    for (int64_t i = 0; i < n_specs; i++)
        if (specs[i].kind == kind)
            return &specs[i];
    return NULL;
}

/* The two dimensions that a product sees. */
static void matrix_of(const oct_plan_row *row, int64_t *N, int64_t *K) {
    *N = row->shape[row->n_dims - 2];
    *K = row->shape[row->n_dims - 1];
}

/* ---- torchtitan-npu 0.2.2 ---- */

static oct_status note_npu(oct_plan_row *row) {
    static const char *const names[] = {"mxfp8", "hif8"};
    oct_status status = OCT_OK;
    if (!row->recipe)
        return OCT_OK;
    if (!is_one_of(row->recipe->name, names, 2))
        status = note(row, "refused: recipe_name is mxfp8 or hif8 there "
                           "(torchtitan_npu/patches/quantization/quant_config.py)");
    if (!status && row->is_experts)
        status = note(row, "skipped: 0.2.2 looks for the product in torchtitan_npu.converter, a "
                           "package that is called converters, so it replaces 0 functions; mended "
                           "after it (patches/quantization/quantize.py)");
    if (!status && row->is_experts && row->recipe->granularity == OCT_PER_TENSOR)
        status =
            note(row,
                 "%s (converters/kernels/quant_gmm.py); w1 and w3 are one weight there and share "
                 "scales (converters/kernels/gmm.py)",
                 row->recipe->groups == OCT_GROUPS_EQUAL
                     ? "its equal parts of rows are reproduced, but for the rows that it pads with"
                     : "scaled otherwise: rows are cut into experts/EP equal parts, whatever the "
                       "groups; groups = \"upstream\" reproduces it");
    return status;
}

/* It takes torchtitan's own table of defaults, and knows two names of its own. */
static oct_status note_npu_plan(oct_plan *plan, const oct_converter_spec *specs, int64_t n_specs,
                                const oct_framework_facts *facts) {
    if (!facts->recipe_is_default || !spec_of(specs, n_specs, OCT_CONVERT_LINEAR))
        return OCT_OK;
    plan->framework_takes_none = true;
    return note_all(plan,
                    "refused: quantize.linear.mx.recipe_name isn't written, and its default there "
                    "is that of torchtitan 0.2.2, %s, which torchtitan-npu 0.2.2 doesn't know; "
                    "write recipe_name = \"mxfp8\" "
                    "(torchtitan_npu/patches/quantization/quant_config.py)",
                    oct_rules_of(OCT_RULES_TORCHTITAN)->linear_recipe);
}

/* ---- MindSpeed, FSDP2 back end ---- */

/* "model.layers.3" of "model.layers.3.mlp": what its patterns are matched with; false: no layer. */
static bool layer_of(const char *name, char *layer, size_t size) {
    const char *at = strstr(name, "layers.");
    if (!at || !isdigit((unsigned char)at[7]))
        return false;
    size_t n = (size_t)(at - name) + 7 + strspn(at + 7, "0123456789");
    snprintf(layer, size, "%.*s", (int)n, name);
    return true;
}

/* The ignored pattern that its matcher, anchored at both ends, finds the name by. */
static bool is_ignored_there(const oct_converter_spec *spec, const char *name) {
    for (int64_t i = 0; i < spec->exclude.n; i++)
        if (oct_glob_matches(spec->exclude.patterns[i], name))
            return true;
    return false;
}

static oct_status note_matcher(oct_plan_row *row, const oct_converter_spec *spec) {
    char layer[256];
    if (!spec || spec->include.kind != OCT_PATTERN_GLOB || spec->include.n == 0)
        return OCT_OK;
    bool applied = layer_of(row->name, layer, sizeof layer) &&
                   oct_glob_matches(spec->include.patterns[0], layer);
    bool ignored = !row->is_experts && is_ignored_there(spec, row->name);
    if (row->recipe && !applied)
        return note(row, "skipped: the first of apply_modules alone is read, and matched with the "
                         "layer's name alone (mindspeed/fsdp/quantization/converter/utils.py)");
    if (row->recipe && ignored)
        return note(row, "skipped: a pattern of ignored_modules matches its whole name "
                         "(mindspeed/fsdp/utils/str_match.py)");
    int64_t by = oct_pattern_list_find(&spec->exclude, row->name);
    if (row->recipe || !applied || ignored || by < 0)
        return OCT_OK;
    if (row->is_experts)
        return note(row, "converted: experts don't ask ignored_modules "
                         "(mindspeed/fsdp/quantization/converter/utils.py)");
    return note(
        row,
        "converted: its patterns are anchored at both ends, so that \"%s\" doesn't find it; "
        "write \"*.%s\" (mindspeed/fsdp/utils/str_match.py)",
        spec->exclude.patterns[by], spec->exclude.patterns[by]);
}

static oct_status note_mindspeed(oct_plan_row *row, const oct_converter_spec *specs,
                                 int64_t n_specs, const oct_framework_facts *facts) {
    static const char *const names[] = {"mxfp8", "mxfp8-32x32"};
    bool gathers = row->is_experts ? facts->gathers_experts : facts->gathers_linears;
    int64_t N, K;
    oct_status status = note_matcher(
        row, spec_of(specs, n_specs, row->is_experts ? OCT_CONVERT_EXPERTS : OCT_CONVERT_LINEAR));
    if (status || !row->recipe)
        return status;
    matrix_of(row, &N, &K);
    if (!is_one_of(row->recipe->name, names, 2))
        status = note(row, "refused: FSDP2 takes mxfp8 and mxfp8-32x32 alone "
                           "(mindspeed/fsdp/quantization/module/linear_mxfp8.py)");
    if (!status && gathers && (N % 64 != 0 || K % 64 != 0))
        status = note(row,
                      "refused: with the 8-bit gather both dimensions of a weight are divisible by "
                      "64; these are %lld and %lld "
                      "(mindspeed/fsdp/quantization/core/pre_quant_weight.py)",
                      (long long)N, (long long)K);
    return status;
}

/* ---- torchtitan 0.2.2 ---- */

static oct_status note_titan_experts(oct_plan_row *row, const oct_converter_spec *spec) {
    oct_status status = OCT_OK;
    if (strcmp(row->recipe->name, "mxfp8") != 0)
        status = note(row, "refused: experts take mxfp8 alone (torchtitan/config/job_config.py)");
    if (!status && spec && spec->include.n == 0)
        status = note(row, "skipped: quantize.grouped_mm.mx.fqns names nothing, which means none "
                           "there (torchtitan/components/quantization/mx.py)");
    return status;
}

static oct_status note_titan(oct_plan_row *row, const oct_converter_spec *specs, int64_t n_specs) {
    static const char *const names[] = {"mxfp8_cublas", "mxfp8_cublas_rceil"};
    int64_t N, K;
    oct_status status = OCT_OK;
    if (!row->recipe)
        return OCT_OK;
    if (row->is_experts)
        return note_titan_experts(row, spec_of(specs, n_specs, OCT_CONVERT_EXPERTS));
    matrix_of(row, &N, &K);
    if (!is_one_of(row->recipe->name, names, 2))
        status = note(row, "refused: linears take mxfp8_cublas or mxfp8_cublas_rceil "
                           "(torchao/prototype/mx_formats/config.py)");
    if (!status && (N % 16 != 0 || K % 16 != 0))
        status = note(row,
                      "skipped: both dimensions must be divisible by 16; these are %lld and %lld "
                      "(torchtitan/components/quantization/utils.py)",
                      (long long)N, (long long)K);
    return status;
}

oct_status oct_plan_note_framework(oct_plan *plan, const oct_converter_spec *specs, int64_t n_specs,
                                   const oct_framework_facts *facts) {
    oct_status status = OCT_OK;
    if (facts->rules->set == OCT_RULES_TORCHTITAN_NPU)
        status = note_npu_plan(plan, specs, n_specs, facts);
    for (int64_t i = 0; i < plan->n_rows && !status; i++) {
        oct_plan_row *row = &plan->rows[i];
        if (facts->rules->set == OCT_RULES_TORCHTITAN_NPU)
            status = note_npu(row);
        else if (facts->rules->set == OCT_RULES_MINDSPEED)
            status = note_mindspeed(row, specs, n_specs, facts);
        else if (facts->rules->set == OCT_RULES_TORCHTITAN)
            status = note_titan(row, specs, n_specs);
    }
    return status;
}

int64_t oct_plan_count_framework(const oct_plan *plan) {
    int64_t n = 0;
    for (int64_t i = 0; i < plan->n_rows; i++)
        n += plan->rows[i].framework || (plan->framework_takes_none && plan->rows[i].recipe);
    return n;
}
