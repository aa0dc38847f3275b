/* A plan as a table for people and as JSON: see plan.h. */
#include "convert/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "quant/rules.h"

static void shape_text(const oct_plan_row *row, char *text, size_t size) {
    size_t n = 0;
    for (int i = 0; i < row->n_dims; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%" PRId64, i ? "x" : "", row->shape[i]);
}

static const char *type_name(const oct_plan_row *row) {
    if (row->is_experts)
        return row->recipe ? "MXGroupedExperts" : row->grouped ? "GroupedExperts" : "Experts";
    return row->recipe ? "MXLinear" : "Linear";
}

typedef struct totals {
    int64_t n_linears, n_linears_converted, n_experts, n_experts_converted;
    int64_t bytes_dense, bytes_planned;
} totals;

static totals sum(const oct_plan *plan) {
    totals t = {0};
    for (int64_t i = 0; i < plan->n_rows; i++) {
        const oct_plan_row *row = &plan->rows[i];
        *(row->is_experts ? &t.n_experts : &t.n_linears) += 1;
        *(row->is_experts ? &t.n_experts_converted : &t.n_linears_converted) += row->recipe != NULL;
        t.bytes_dense += row->bytes_dense;
        t.bytes_planned += row->recipe ? row->bytes_quantized : row->bytes_dense;
    }
    return t;
}

static void put_framework(const oct_plan *plan, int width, oct_strbuf *text) {
    bool any = plan->framework != NULL;
    for (int64_t i = 0; i < plan->n_rows; i++)
        any |= plan->rows[i].framework != NULL;
    if (any)
        oct_strbuf_printf(text, "\nwhat %s itself would do otherwise:\n", plan->rules->name);
    if (plan->framework)
        oct_strbuf_printf(text, "%s\n", plan->framework);
    for (int64_t i = 0; i < plan->n_rows; i++)
        if (plan->rows[i].framework)
            oct_strbuf_printf(text, "%-*s  %s\n", width, plan->rows[i].name,
                              plan->rows[i].framework);
}

void oct_plan_render(const oct_plan *plan, oct_strbuf *text) {
    int width = 8;
    for (int64_t i = 0; i < plan->n_rows; i++) {
        int n = (int)strlen(plan->rows[i].name);
        width = n > width ? n : width;
    }
    oct_strbuf_printf(text, "%-*s  %-12s  %-16s  %-16s  %s\n", width, "module", "shape", "type",
                      "recipe", "why");
    for (int64_t i = 0; i < plan->n_rows; i++) {
        const oct_plan_row *row = &plan->rows[i];
        char shape[80];
        shape_text(row, shape, sizeof shape);
        oct_strbuf_printf(text, "%-*s  %-12s  %-16s  %-16s  %s\n", width, row->name, shape,
                          type_name(row), row->recipe ? row->recipe->name : "kept", row->reason);
    }
    totals t = sum(plan);
    oct_strbuf_printf(text, "\n%" PRId64 " of %" PRId64 " linears converted", t.n_linears_converted,
                      t.n_linears);
    if (t.n_experts)
        oct_strbuf_printf(text, ", %" PRId64 " of %" PRId64 " expert modules converted",
                          t.n_experts_converted, t.n_experts);
    oct_strbuf_printf(
        text,
        "\nweights of these modules: %.2f MiB in bf16, %.2f MiB as planned (codes and scales for "
        "forward and backward; the fp32 masters come on top)\n",
        (double)t.bytes_dense / 0x1p20, (double)t.bytes_planned / 0x1p20);
    if (plan->rules) {
        oct_plan_render_rules(plan, text);
        put_framework(plan, width, text);
    }
    for (int64_t i = 0; i < plan->n_warnings; i++)
        oct_strbuf_printf(text, "warning: %s\n", plan->warnings[i]);
}

static void json_string(oct_strbuf *text, const char *s) {
    oct_strbuf_puts(text, "\"");
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            oct_strbuf_printf(text, "\\%c", c);
        else if (c < 0x20)
            oct_strbuf_printf(text, "\\u%04x", c);
        else
            oct_strbuf_append(text, s, 1);
    }
    oct_strbuf_puts(text, "\"");
}

static void put_text_or_null(oct_strbuf *text, const char *s) {
    if (s)
        json_string(text, s);
    else
        oct_strbuf_puts(text, "null");
}

static void json_row(oct_strbuf *text, const oct_plan_row *row) {
    oct_strbuf_puts(text, "    {\"name\": ");
    json_string(text, row->name);
    oct_strbuf_puts(text, ", \"shape\": [");
    for (int i = 0; i < row->n_dims; i++)
        oct_strbuf_printf(text, "%s%" PRId64, i ? ", " : "", row->shape[i]);
    oct_strbuf_printf(text, "], \"type\": \"%s\", \"converted\": %s, \"recipe\": ", type_name(row),
                      row->recipe ? "true" : "false");
    put_text_or_null(text, row->recipe ? row->recipe->name : NULL);
    oct_strbuf_puts(text, ", \"why\": ");
    json_string(text, row->reason);
    oct_strbuf_puts(text, ", \"framework\": ");
    put_text_or_null(text, row->framework);
    oct_strbuf_printf(text, ", \"bytes_bf16\": %" PRId64 ", \"bytes_quantized\": %" PRId64 "}",
                      row->bytes_dense, row->bytes_quantized);
}

void oct_plan_render_json(const oct_plan *plan, const char *more, oct_strbuf *text) {
    totals t = sum(plan);
    oct_strbuf_puts(text, "{\n  \"modules\": [\n");
    for (int64_t i = 0; i < plan->n_rows; i++) {
        json_row(text, &plan->rows[i]);
        oct_strbuf_puts(text, i + 1 < plan->n_rows ? ",\n" : "\n");
    }
    oct_strbuf_puts(text, "  ],\n  \"warnings\": [");
    for (int64_t i = 0; i < plan->n_warnings; i++) {
        oct_strbuf_puts(text, i ? ", " : "");
        json_string(text, plan->warnings[i]);
    }
    oct_strbuf_puts(text, "],\n  \"framework\": ");
    put_text_or_null(text, plan->framework);
    if (plan->rules)
        oct_plan_render_rules_json(plan, text);
    oct_strbuf_printf(text,
                      ",\n  \"linears\": %" PRId64 ",\n  \"linears_converted\": %" PRId64
                      ",\n  \"experts\": %" PRId64 ",\n  \"experts_converted\": %" PRId64
                      ",\n  \"bytes_bf16\": %" PRId64 ",\n  \"bytes_planned\": %" PRId64 "%s\n}\n",
                      t.n_linears, t.n_linears_converted, t.n_experts, t.n_experts_converted,
                      t.bytes_dense, t.bytes_planned, more ? more : "");
}
