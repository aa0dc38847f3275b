/* A plan's rules for people and as JSON: see plan.h. */
#include <stdio.h>
#include <string.h>

#include "convert/plan.h"
#include "quant/rules.h"

static const char *const role_names[OCT_N_ROLES] = {"input", "weight", "gradient"};
static const char *const kinds[] = {"linears", "experts"};

/* The recipe of the converted linears or experts; NULL: none is. */
static const oct_recipe *recipe_of(const oct_plan *plan, bool experts) {
    for (int64_t i = 0; i < plan->n_rows; i++)
        if (plan->rows[i].recipe && plan->rows[i].is_experts == experts)
            return plan->rows[i].recipe;
    return NULL;
}

static const char *format_name(oct_dtype format) {
    return format == OCT_E4M3 ? "E4M3" : format == OCT_E5M2 ? "E5M2" : "HiF8";
}

static const char *groups_text(const oct_recipe *recipe, bool experts, oct_role role) {
    if (recipe->granularity == OCT_PER_CHANNEL)
        return "a channel";
    if (!experts)
        return "a tensor";
    if (role == OCT_ROLE_WEIGHT)
        return "an expert's weight";
    return recipe->groups == OCT_GROUPS_ONE     ? "for all experts' rows"
           : recipe->groups == OCT_GROUPS_EQUAL ? "for each of experts/EP equal parts of the rows"
                                                : "an expert's rows";
}

static void put_scale(const oct_recipe *recipe, bool experts, oct_role role, char *text,
                      size_t size) {
    const char *mode = oct_scale_mode_name(recipe->scale_mode);
    if (recipe->granularity != OCT_MX)
        snprintf(text, size, "%samax / %g, one %s",
                 recipe->strategy == OCT_DELAYED ? "delayed " : "", recipe->target[role],
                 groups_text(recipe, experts, role));
    else if (role == OCT_ROLE_WEIGHT || recipe->wgrad_scale_mode == recipe->scale_mode)
        snprintf(text, size, "%s", mode);
    else
        snprintf(text, size, "%s, in wgrad %s", mode,
                 oct_scale_mode_name(recipe->wgrad_scale_mode));
}

static const char *source_text(const oct_plan *plan, const oct_recipe *recipe, oct_role role) {
    if (role != OCT_ROLE_WEIGHT)
        return plan->activation == OCT_BF16 ? "bf16" : "fp32";
    return recipe->weight_source == OCT_BF16 ? "the weight rounded to bf16" : "the fp32 master";
}

static const char *gradient_text(const oct_plan *plan) {
    return oct_rules_gradient(plan->rules, plan->activation) == OCT_BF16
               ? "rounded to bf16 once a micro-batch, then summed in fp32"
               : "summed in fp32";
}

static void put_source(oct_strbuf *text, const char *what, const char *source) {
    if (source)
        oct_strbuf_printf(text, "  %s: %s\n", what, source);
}

void oct_plan_render_rules(const oct_plan *plan, oct_strbuf *text) {
    const oct_rules *rules = plan->rules;
    oct_strbuf_printf(text, "\nrules: %s; weights' gradients are %s\n", rules->name,
                      gradient_text(plan));
    for (int experts = 0; experts < 2; experts++) {
        const oct_recipe *recipe = recipe_of(plan, experts);
        for (int role = 0; role < OCT_N_ROLES && recipe; role++) {
            char scale[96];
            put_scale(recipe, experts, (oct_role)role, scale, sizeof scale);
            oct_strbuf_printf(text, "  %s  %-8s  %s  from %s  scale: %s\n", kinds[experts],
                              role_names[role], format_name(recipe->format[role]),
                              source_text(plan, recipe, (oct_role)role), scale);
        }
    }
    put_source(text, "scales", rules->scale_source);
    put_source(text, "HiF8 targets", rules->target_source);
    put_source(text, "weights", rules->weight_source);
    put_source(text, "groups", rules->groups_source);
    put_source(text, "gradients", rules->gradient_source);
}

static void put_role_json(const oct_plan *plan, const oct_recipe *recipe, bool experts,
                          oct_role role, oct_strbuf *text) {
    oct_strbuf_printf(text,
                      "{\"modules\": \"%s\", \"role\": \"%s\", \"format\": \"%s\", \"from\": "
                      "\"%s\", ",
                      kinds[experts], role_names[role], format_name(recipe->format[role]),
                      source_text(plan, recipe, role));
    if (recipe->granularity == OCT_MX)
        oct_strbuf_printf(text, "\"scale_mode\": \"%s\", \"wgrad_scale_mode\": \"%s\"}",
                          oct_scale_mode_name(recipe->scale_mode),
                          oct_scale_mode_name(oct_recipe_scale_mode(recipe, role, 0)));
    else
        oct_strbuf_printf(text, "\"target\": %g, \"scales\": \"one %s\"}", recipe->target[role],
                          groups_text(recipe, experts, role));
}

void oct_plan_render_rules_json(const oct_plan *plan, oct_strbuf *text) {
    const char *comma = "";
    oct_strbuf_printf(text,
                      ",\n  \"rules\": \"%s\",\n  \"weight_gradients\": \"%s\",\n  \"roles\": [",
                      plan->rules->name, gradient_text(plan));
    for (int experts = 0; experts < 2; experts++) {
        const oct_recipe *recipe = recipe_of(plan, experts);
        for (int role = 0; role < OCT_N_ROLES && recipe; role++) {
            oct_strbuf_printf(text, "%s\n    ", comma);
            put_role_json(plan, recipe, experts, (oct_role)role, text);
            comma = ",";
        }
    }
    oct_strbuf_puts(text, "]");
}
