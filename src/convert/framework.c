/* What frameworks skip and refuse: see framework.h. Each note ends with where it was read. */
#include "convert/framework.h"

#include <inttypes.h>
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/count.h"
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

static bool is_empty_there(const oct_pattern_list *list, const oct_framework_facts *facts) {
    return facts->lists_start_empty && !list->written;
}

/* Whether a pattern of ignored_modules finds the name by its matcher, anchored at both ends. */
static bool is_ignored_there(const oct_converter_spec *spec, const char *name,
                             const oct_framework_facts *facts) {
    if (is_empty_there(&spec->exclude, facts))
        return false;
    for (int64_t i = 0; i < spec->exclude.n; i++)
        if (oct_glob_matches(spec->exclude.patterns[i], name))
            return true;
    return false;
}

/* What its matcher raises at a pattern that octet reads: its braces hold * or one range. NULL:
 * none.
 */
static const char *brace_error(const char *pattern) {
    for (const char *at = strchr(pattern, '{'); at; at = strchr(at + 1, '{')) {
        size_t n = strcspn(at, "}"), n_dashes = 0, n_commas = 0;
        for (size_t i = 0; i < n; i++) {
            n_dashes += at[i] == '-';
            n_commas += at[i] == ',';
        }
        if (at[1] == '*' || (n_dashes == 1 && n_commas == 0))
            continue;
        return n_dashes == 0   ? "Unrecognized brace pattern"
               : n_dashes == 1 ? "Non-integer in range"
                               : "Invalid brace pattern";
    }
    return NULL;
}

/* The first of `n` patterns that it raises at. */
static oct_status note_brace(oct_plan *plan, const oct_pattern_list *list, int64_t n) {
    for (int64_t i = 0; i < n && i < list->n; i++) {
        const char *raised = brace_error(list->patterns[i]);
        if (!raised)
            continue;
        plan->framework_takes_none = true;
        return note_all(plan,
                        "refused: \"%s\" of %s raises ValueError \"%s\": a brace there holds * or "
                        "one range a-b (mindspeed/fsdp/utils/str_match.py)",
                        list->patterns[i], list->key, raised);
    }
    return OCT_OK;
}

static oct_status note_unwritten(oct_plan *plan, const oct_converter_spec *spec,
                                 const oct_framework_facts *facts) {
    bool no_converter = facts->lists_start_empty && facts->converters_are_default;
    bool no_module = is_empty_there(&spec->include, facts);
    bool none_ignored = is_empty_there(&spec->exclude, facts);
    plan->framework_takes_none = no_converter || no_module;
    if (!no_converter && !no_module && !none_ignored)
        return OCT_OK;
    const char *const names[] = {no_module ? "apply_modules" : NULL,
                                 none_ignored ? "ignored_modules" : NULL,
                                 no_converter ? "quant_converters" : NULL};
    char unwritten[64] = "";
    for (size_t i = 0, n = 0; i < OCT_COUNT(names); i++)
        if (names[i])
            n += (size_t)snprintf(unwritten + n, sizeof unwritten - n, "%s%s", n ? ", " : "",
                                  names[i]);
    return note_all(plan,
                    "not written in training.quantization_plan: %s; octet takes the guide's "
                    "defaults, the code of %s has [], so that it would %s "
                    "(mindspeed/fsdp/parallel_engine_config.py)",
                    unwritten, facts->rules->name,
                    plan->framework_takes_none ? "convert nothing" : "ignore nothing");
}

/* What concerns the whole of a YAML plan. */
static oct_status note_mindspeed_plan(oct_plan *plan, const oct_converter_spec *specs,
                                      int64_t n_specs, const oct_framework_facts *facts) {
    const oct_converter_spec *linear = spec_of(specs, n_specs, OCT_CONVERT_LINEAR);
    const oct_converter_spec *any = linear ? linear : spec_of(specs, n_specs, OCT_CONVERT_EXPERTS);
    if (!any || any->include.kind != OCT_PATTERN_GLOB)
        return OCT_OK;
    oct_status status = note_unwritten(plan, any, facts);
    if (!status && !plan->framework_takes_none && linear)
        status = note_brace(plan, &linear->exclude, linear->exclude.n);
    if (!status && !plan->framework_takes_none)
        status = note_brace(plan, &any->include, 1);
    return status;
}

/* What finds by its matcher the name that `pattern` finds here: a bare name is a segment of it, and
 * another pattern the start of it. */
static void anchor(const char *pattern, const char *name, char *text, size_t size) {
    size_t n = strlen(pattern);
    const char *at = name;
    if (strpbrk(pattern, ".*?{")) {
        snprintf(text, size, "%s.*", pattern);
        return;
    }
    while (at && !(strncmp(at, pattern, n) == 0 && (at[n] == '.' || !at[n]))) {
        at = strchr(at, '.');
        at = at ? at + 1 : NULL;
    }
    snprintf(text, size, "%s%s%s", at == name ? "" : "*.", pattern, at && at[n] ? ".*" : "");
}

static oct_status note_matcher(oct_plan_row *row, const oct_converter_spec *spec,
                               const oct_framework_facts *facts) {
    char layer[256], advice[600];
    if (!spec || spec->include.kind != OCT_PATTERN_GLOB || spec->include.n == 0)
        return OCT_OK;
    bool applied = layer_of(row->name, layer, sizeof layer) &&
                   oct_glob_matches(spec->include.patterns[0], layer);
    bool ignored = !row->is_experts && is_ignored_there(spec, row->name, facts);
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
    if (is_empty_there(&spec->exclude, facts))
        return note(row, "converted: there it is ignored by no default");
    anchor(spec->exclude.patterns[by], row->name, advice, sizeof advice);
    return note(
        row,
        "converted: its patterns are anchored at both ends, so that \"%s\" doesn't find it; "
        "write \"%s\" (mindspeed/fsdp/utils/str_match.py)",
        spec->exclude.patterns[by], advice);
}

static oct_status note_mindspeed(oct_plan_row *row, const oct_converter_spec *specs,
                                 int64_t n_specs, const oct_framework_facts *facts) {
    static const char *const names[] = {"mxfp8", "mxfp8-32x32"};
    bool gathers = row->is_experts ? facts->gathers_experts : facts->gathers_linears;
    int64_t N, K;
    oct_status status = note_matcher(
        row, spec_of(specs, n_specs, row->is_experts ? OCT_CONVERT_EXPERTS : OCT_CONVERT_LINEAR),
        facts);
    if (status || !row->recipe)
        return status;
    matrix_of(row, &N, &K);
    if (!is_one_of(row->recipe->name, names, 2))
        status = note(row, "refused: FSDP2 takes mxfp8 and mxfp8-32x32 alone "
                           "(mindspeed/fsdp/quantization/module/linear_mxfp8.py)");
    if (!status && gathers && (N % 64 != 0 || K % 64 != 0))
        status = note(row,
                      "refused: with the 8-bit gather both dimensions of a weight are divisible by "
                      "64; these are %" PRId64 " and %" PRId64
                      " (mindspeed/fsdp/quantization/core/pre_quant_weight.py)",
                      N, K);
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
                      "skipped: both dimensions must be divisible by 16; these are %" PRId64
                      " and %" PRId64 " (torchtitan/components/quantization/utils.py)",
                      N, K);
    return status;
}

oct_status oct_plan_note_framework(oct_plan *plan, const oct_converter_spec *specs, int64_t n_specs,
                                   const oct_framework_facts *facts) {
    oct_status status = OCT_OK;
    if (facts->rules->set == OCT_RULES_TORCHTITAN_NPU)
        status = note_npu_plan(plan, specs, n_specs, facts);
    if (facts->rules->set == OCT_RULES_MINDSPEED)
        status = note_mindspeed_plan(plan, specs, n_specs, facts);
    for (int64_t i = 0; i < plan->n_rows && !status; i++) {
        oct_plan_row *row = &plan->rows[i];
        if (facts->rules->set == OCT_RULES_TORCHTITAN_NPU)
            status = note_npu(row);
        else if (facts->rules->set == OCT_RULES_MINDSPEED && !plan->framework_takes_none)
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
