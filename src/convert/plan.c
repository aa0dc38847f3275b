/* Deciding what becomes 8-bit: see plan.h. plan_render.c prints a plan, apply.c carries it out. */
#include "convert/plan.h"

#include <inttypes.h>
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/nearest.h"
#include "convert/pattern.h"
#include "nn/experts.h"
#include "nn/linear.h"
#include "quant/qmatrix.h"

#define N_CLOSEST 3

typedef struct builder {
    oct_plan *plan;
    size_t capacity;
    oct_module_namer namer;
    void *namer_context;
} builder;

static oct_status append_row(builder *b, oct_plan_row row) {
    oct_plan *plan = b->plan;
    oct_plan_row *grown =
        oct_grow_array(plan->rows, (size_t)plan->n_rows, &b->capacity, sizeof *grown);
    if (!grown)
        return OCT_NO_MEMORY;
    plan->rows = grown;
    plan->rows[plan->n_rows++] = row;
    return OCT_OK;
}

static oct_status list_module(oct_module *m, void *context) {
    builder *b = context;
    const oct_linear *linear = oct_linear_from(m);
    const oct_experts *experts = oct_experts_from(m);
    oct_plan_row row = {.module = m, .is_experts = experts != NULL};
    if (experts) {
        row.n_dims = 3;
        memcpy(row.shape, experts->w[OCT_EXPERT_W1]->shape, sizeof row.shape);
        for (int i = 0; i < OCT_N_EXPERT_WEIGHTS; i++)
            row.bytes_dense += 2 * oct_param_elements(experts->w[i]);
    } else if (linear) {
        row.n_dims = 2;
        row.shape[0] = linear->out_features;
        row.shape[1] = linear->in_features;
        row.bytes_dense = 2 * linear->out_features * linear->in_features;
    } else {
        return OCT_OK;
    }
    row.name = oct_strdup(b->namer ? b->namer(b->namer_context, m) : m->name);
    snprintf(row.reason, sizeof row.reason, "no converter");
    if (!row.name)
        return OCT_NO_MEMORY;
    oct_status status = append_row(b, row);
    if (status)
        oct_free((char *)row.name);
    return status;
}

static oct_status warn(oct_plan *plan, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static oct_status warn(oct_plan *plan, const char *format, ...) {
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    char **grown = oct_realloc_array(plan->warnings, (size_t)plan->n_warnings + 1, sizeof *grown);
    if (!grown)
        return OCT_NO_MEMORY;
    plan->warnings = grown;
    plan->warnings[plan->n_warnings] = oct_strdup(line);
    if (!plan->warnings[plan->n_warnings])
        return OCT_NO_MEMORY;
    plan->n_warnings++;
    return OCT_OK;
}

/* The distance of a pattern from a module: that from its whole name or from its last components. */
static size_t distance(const char *pattern, const char *name) {
    size_t best = oct_edit_distance(pattern, name);
    for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.')) {
        size_t d = oct_edit_distance(pattern, dot + 1);
        best = d < best ? d : best;
    }
    return best;
}

/* "layers.3.x" and "layers.4.x" are the same neighbour. */
static bool same_but_numbers(const char *a, const char *b) {
    while (*a && *b) {
        if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
            a += strspn(a, "0123456789");
            b += strspn(b, "0123456789");
        } else if (*a++ != *b++) {
            return false;
        }
    }
    return *a == *b;
}

/* torchtitan's substrings: "layers.1" also selects layers.10. */
static oct_status warn_of_cut_number(oct_plan *plan, const oct_pattern_list *list,
                                     const char *pattern) {
    size_t n = strlen(pattern);
    if (list->kind != OCT_PATTERN_SUBSTRING || !n || !isdigit((unsigned char)pattern[n - 1]))
        return OCT_OK;
    for (int64_t i = 0; i < plan->n_rows; i++) {
        const char *hit = strstr(plan->rows[i].name, pattern);
        if (hit && isdigit((unsigned char)hit[n]))
            return warn(plan,
                        "%s: \"%s\" ends inside a number: it also matches \"%s\"; write "
                        "\"%s.\" to mean one module",
                        list->where, pattern, plan->rows[i].name, pattern);
    }
    return OCT_OK;
}

/* Whether a pattern of a converter can mean this row at all. */
static bool concerns(const oct_converter_spec *spec, const oct_plan_row *row) {
    return row->is_experts == (spec->kind != OCT_CONVERT_LINEAR);
}

static bool same_list(const oct_pattern_list *a, const oct_pattern_list *b) {
    return a->key && b->key && strcmp(a->key, b->key) == 0;
}

/* Whether the list can mean this row at all: a YAML plan's lists serve all of its converters. A
 * filter for linears may name experts and the reverse: it still means something. */
static bool list_concerns(const oct_converter_spec *specs, int64_t n_specs,
                          const oct_pattern_list *list, const oct_plan_row *row) {
    for (int64_t i = 0; i < n_specs; i++)
        if (same_list(&specs[i].exclude, list) ||
            (same_list(&specs[i].include, list) && concerns(&specs[i], row)))
            return true;
    return false;
}

/* Writes the closest module names to `pattern`, best first (of equally close ones
 * the shortest: heads and the like), as `"a", "b"`. */
static void closest_names(const oct_plan *plan, const oct_converter_spec *specs, int64_t n_specs,
                          const oct_pattern_list *list, const char *pattern, char *text,
                          size_t size) {
    const char *best[N_CLOSEST] = {0};
    size_t best_distance[N_CLOSEST] = {0};
    for (int64_t i = 0; i < plan->n_rows; i++) {
        const char *name = plan->rows[i].name;
        size_t d = distance(pattern, name);
        int at = N_CLOSEST;
        if (!list_concerns(specs, n_specs, list, &plan->rows[i]))
            continue;
        for (int j = N_CLOSEST - 1; j >= 0; j--) {
            if (best[j] && same_but_numbers(best[j], name)) {
                at = N_CLOSEST;
                break;
            }
            bool shorter = best[j] && d == best_distance[j] && strlen(name) < strlen(best[j]);
            if (!best[j] || d < best_distance[j] || shorter)
                at = j;
        }
        if (at == N_CLOSEST)
            continue;
        for (int j = N_CLOSEST - 1; j > at; j--) {
            best[j] = best[j - 1];
            best_distance[j] = best_distance[j - 1];
        }
        best[at] = name;
        best_distance[at] = d;
    }
    size_t n = 0;
    text[0] = '\0';
    for (int j = 0; j < N_CLOSEST && best[j] && n < size; j++)
        n += (size_t)snprintf(text + n, size - n, "%s\"%s\"", j ? ", " : "", best[j]);
}

/* Counts hits of each pattern of a list and warns of those that miss; once for a list. */
static oct_status check_list(oct_plan *plan, const oct_converter_spec *specs, int64_t n_specs,
                             int64_t at, const oct_pattern_list *list) {
    int64_t n_hit = 0;
    for (int64_t i = 0; i < at; i++)
        if (same_list(&specs[i].include, list) || same_list(&specs[i].exclude, list))
            return OCT_OK;
    for (int64_t p = 0; p < list->n; p++) {
        bool hit = false;
        for (int64_t i = 0; i < plan->n_rows && !hit; i++) {
            hit = list_concerns(specs, n_specs, list, &plan->rows[i]) &&
                  oct_pattern_selects(list->kind, list->patterns[p], plan->rows[i].name);
        }
        n_hit += hit;
        oct_status status = OCT_OK;
        if (hit) {
            status = warn_of_cut_number(plan, list, list->patterns[p]);
        } else if (list->written) {
            char names[512];
            closest_names(plan, specs, n_specs, list, list->patterns[p], names, sizeof names);
            if (!names[0]) /* nothing here that the list could mean: its converter says so */
                return OCT_OK;
            status = warn(plan, "%s: \"%s\" matches no module; closest: %s", list->where,
                          list->patterns[p], names);
        }
        if (status)
            return status;
    }
    if (list->written && list->n && !n_hit)
        plan->all_missed = plan->warnings[plan->n_warnings - 1];
    return OCT_OK;
}

/* The last component of a key: "filter_fqns" of "quantize.linear.mx.filter_fqns". */
static const char *short_key(const oct_pattern_list *list) {
    const char *dot = list->key ? strrchr(list->key, '.') : NULL;
    return dot ? dot + 1 : list->key;
}

/* Whether the converter takes this row; says why either way. */
static bool decide(const oct_converter_spec *spec, oct_plan_row *row) {
    int64_t out = oct_pattern_list_find(&spec->exclude, row->name);
    if (out >= 0) {
        snprintf(row->reason, sizeof row->reason, "%s: \"%s\"", short_key(&spec->exclude),
                 spec->exclude.patterns[out]);
        return false;
    }
    if (!spec->include.n && spec->include.kind == OCT_PATTERN_SUBSTRING) {
        snprintf(row->reason, sizeof row->reason, "%s", spec->name);
        return true;
    }
    int64_t in = oct_pattern_list_find(&spec->include, row->name);
    snprintf(row->reason, sizeof row->reason, in >= 0 ? "%s: \"%s\"" : "no pattern of %s matches",
             short_key(&spec->include), in >= 0 ? spec->include.patterns[in] : "");
    return in >= 0;
}

static size_t matrix_bytes(const oct_recipe *recipe, int64_t rows, int64_t cols) {
    size_t n = oct_qmatrix_bytes(recipe, OCT_ROLE_WEIGHT, rows, cols, 1);
    if (!oct_recipe_shares_copies(recipe, OCT_ROLE_WEIGHT))
        n += oct_qmatrix_bytes(recipe, OCT_ROLE_WEIGHT, rows, cols, 0);
    return n;
}

static int64_t quantized_bytes(const oct_recipe *recipe, const oct_plan_row *row) {
    const oct_experts *experts = oct_experts_from(row->module);
    int64_t n = 0;
    if (!experts)
        return (int64_t)matrix_bytes(recipe, row->shape[0], row->shape[1]);
    for (int i = 0; i < OCT_N_EXPERT_WEIGHTS; i++) {
        const int64_t *shape = experts->w[i]->shape;
        n += shape[0] * (int64_t)matrix_bytes(recipe, shape[1], shape[2]);
    }
    return n;
}

static bool finds_any(const oct_plan *plan, const oct_converter_spec *spec) {
    for (int64_t i = 0; i < plan->n_rows; i++)
        if (concerns(spec, &plan->rows[i]))
            return true;
    return false;
}

/* What is named has been decided anew; all else stays as it was. */
static int64_t override_rows(oct_plan *plan, const oct_converter_spec *spec) {
    int64_t n = 0;
    for (int64_t i = 0; i < plan->n_rows; i++) {
        oct_plan_row *row = &plan->rows[i];
        int64_t at = concerns(spec, row) ? oct_pattern_list_find(&spec->include, row->name) : -1;
        if (at < 0)
            continue;
        n++;
        row->recipe = spec->recipe;
        row->bytes_quantized = spec->recipe ? quantized_bytes(spec->recipe, row) : 0;
        snprintf(row->reason, sizeof row->reason, "%s: \"%s\"", short_key(&spec->include),
                 spec->include.patterns[at]);
    }
    return n;
}

/* Applies one converter to the rows; returns how many it took. */
static int64_t convert_rows(oct_plan *plan, const oct_converter_spec *spec) {
    int64_t n = 0;
    for (int64_t i = 0; i < plan->n_rows; i++) {
        oct_plan_row *row = &plan->rows[i];
        if (!concerns(spec, row) || !decide(spec, row))
            continue;
        n++;
        if (spec->kind == OCT_CONVERT_GROUPED_MM) {
            row->grouped = true;
            continue;
        }
        row->recipe = spec->recipe;
        row->bytes_quantized = quantized_bytes(spec->recipe, row);
    }
    return n;
}

static oct_status check_order(const oct_converter_spec *specs, int64_t at, oct_error *err) {
    if (specs[at].kind != OCT_CONVERT_EXPERTS)
        return OCT_OK;
    for (int64_t i = 0; i < at; i++)
        if (specs[i].kind == OCT_CONVERT_GROUPED_MM)
            return OCT_OK;
    return oct_fail(err, OCT_INVALID,
                    "%s: \"%s\" needs \"npu_gmm\" before it; write converters = "
                    "[\"npu_gmm\", "
                    "..., \"%s\"]",
                    specs[at].where, specs[at].name, specs[at].name);
}

static oct_status run_converters(oct_plan *plan, const oct_converter_spec *specs, int64_t n_specs,
                                 bool all_at_once, oct_error *err) {
    int64_t n_total = 0;
    const oct_converter_spec *idle = NULL;
    for (int64_t i = 0; i < n_specs; i++) {
        oct_status status = all_at_once ? OCT_OK : check_order(specs, i, err);
        if (!status)
            status = oct_pattern_list_check(&specs[i].include, err);
        if (!status)
            status = oct_pattern_list_check(&specs[i].exclude, err);
        if (!status)
            status = check_list(plan, specs, n_specs, i, &specs[i].include);
        if (!status)
            status = check_list(plan, specs, n_specs, i, &specs[i].exclude);
        if (status)
            return status;
        int64_t n =
            specs[i].is_override ? override_rows(plan, &specs[i]) : convert_rows(plan, &specs[i]);
        n_total += n;
        if (!n && !specs[i].is_override) /* which was warned of, pattern by pattern */
            idle = &specs[i];
    }
    if (!idle)
        return OCT_OK;
    const char *what = idle->kind == OCT_CONVERT_LINEAR ? "linear" : "expert module";
    if (all_at_once && n_total)
        return warn(plan, "%s: \"%s\" converts nothing: the model has no %s that it may take",
                    idle->where, idle->name, what);
    if (all_at_once && plan->all_missed) /* which says more */
        return oct_fail(err, OCT_INVALID, "%s", plan->all_missed);
    if (!finds_any(plan, idle))
        return oct_fail(err, OCT_INVALID,
                        "%s: converter \"%s\" converts nothing: the model has no %s; take it out",
                        idle->where, idle->name, what);
    return oct_fail(
        err, OCT_INVALID,
        "%s: converter \"%s\" converts nothing: expected at least one %s that its patterns leave; "
        "got none; take it out or change the patterns",
        idle->where, idle->name, what);
}

static bool is_router_gate(const oct_plan_row *row) {
    static const char gate[] = "router.gate";
    size_t n = strlen(row->module->name);
    return n >= sizeof gate - 1 && strcmp(row->module->name + n - (sizeof gate - 1), gate) == 0;
}

/* Writes the list with `more` at its end, as the job's form has it. */
static void put_longer_list(const oct_pattern_list *list, const char *more, char *text,
                            size_t size) {
    bool yaml = list->kind == OCT_PATTERN_GLOB;
    const char *quote = yaml ? "'" : "\"";
    int n = snprintf(text, size, "%s%s[", short_key(list), yaml ? ": " : " = ");
    for (int64_t i = 0; i < list->n && (size_t)n < size; i++)
        n += snprintf(text + n, size - (size_t)n, "%s%s%s, ", quote, list->patterns[i], quote);
    if ((size_t)n < size)
        snprintf(text + n, size - (size_t)n, "%s%s%s]", quote, more, quote);
}

/* Routing in 8 bits sends tokens elsewhere: nobody should do that without knowing. */
static oct_status warn_of_gates(oct_plan *plan, const oct_converter_spec *specs, int64_t n_specs) {
    const char *first = NULL;
    int64_t n = 0;
    for (int64_t i = 0; i < plan->n_rows; i++) {
        if (!plan->rows[i].recipe || !is_router_gate(&plan->rows[i]))
            continue;
        first = first ? first : plan->rows[i].name;
        n++;
    }
    for (int64_t i = 0; i < n_specs && first; i++) {
        const oct_pattern_list *list = &specs[i].exclude;
        char line[512];
        if (specs[i].kind != OCT_CONVERT_LINEAR || !list->key)
            continue;
        put_longer_list(list, list->kind == OCT_PATTERN_GLOB ? "*.gate" : "router.gate", line,
                        sizeof line);
        return warn(plan,
                    "%s: %" PRId64
                    " router gate%s converted to 8 bits (\"%s\"%s); to keep %s in high "
                    "precision write %s",
                    list->where, n, n > 1 ? "s are" : " is", first, n > 1 ? ", ..." : "",
                    n > 1 ? "them" : "it", line);
    }
    return OCT_OK;
}

oct_status oct_plan_create(oct_module *root, const oct_converter_spec *specs, int64_t n_specs,
                           bool all_at_once, oct_module_namer namer, void *namer_context,
                           oct_plan **out, oct_error *err) {
    oct_plan *plan = oct_calloc_array(1, sizeof *plan);
    if (!plan)
        return oct_fail_memory(err);
    builder b = {.plan = plan, .namer = namer, .namer_context = namer_context};
    oct_status status = oct_module_visit(root, list_module, &b);
    if (!status)
        status = run_converters(plan, specs, n_specs, all_at_once, err);
    if (!status)
        status = warn_of_gates(plan, specs, n_specs);
    if (!status) {
        *out = plan;
        return OCT_OK;
    }
    oct_plan_destroy(plan);
    return status == OCT_NO_MEMORY ? oct_fail_memory(err) : status;
}

void oct_plan_destroy(oct_plan *plan) {
    if (!plan)
        return;
    for (int64_t i = 0; i < plan->n_rows; i++) {
        oct_free((char *)plan->rows[i].name);
        oct_free(plan->rows[i].framework);
    }
    for (int64_t i = 0; i < plan->n_warnings; i++)
        oct_free(plan->warnings[i]);
    oct_free(plan->rows);
    oct_free(plan->warnings);
    oct_free(plan->framework);
    oct_free(plan);
}
