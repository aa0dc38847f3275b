/* Options that can't act: see options.h. */
#include "config/options.h"

#include <stdio.h>
#include <string.h>

#include "config/refusals.h"
#include "quant/recipe.h"
#include "quant/rules.h"

enum { MAX_KEY = 128 };

/* One table of a recipe, and what quantizes by it. */
typedef struct recipe_table {
    const char *section, *converter, *plan_converter;
    const oct_job_mx *mx;
} recipe_table;

static bool has_item(const oct_job_list *list, const char *name) {
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->items[i], name) == 0)
            return true;
    return false;
}

static bool is_active(const oct_job *job, const recipe_table *t) {
    if (job->form == OCT_JOB_TITAN)
        return has_item(&job->model.converters, t->converter);
    return job->quantization_plan.recipe_name &&
           has_item(&job->quantization_plan.quant_converters, t->plan_converter);
}

/* The options of a table without its converter. (A YAML job's are mindspeed.c's to check.) */
static oct_status check_inactive(oct_loader *l, const recipe_table *t) {
    oct_status status = OCT_OK;
    char what[MAX_KEY], expected[MAX_KEY];
    snprintf(what, sizeof what, "nothing here is quantized by %s", t->converter);
    snprintf(expected, sizeof expected, "%s in model.converters beside it", t->converter);
    for (size_t i = 0; i < oct_schema_titan.n && !status; i++) {
        const oct_key *key = &oct_schema_titan.keys[i];
        const oct_setting *setting = &l->state->titan[i];
        if (!oct_setting_is_asked_for(setting) || key->kind != OCT_KEY_USED ||
            strncmp(key->name, t->section, strlen(t->section)) != 0)
            continue;
        status = oct_loader_fail(l, setting->place, key->name, what, expected, setting->value);
        status = oct_loader_refuse(l, status, OCT_REFUSED_BY_PLACE);
    }
    return status;
}

/* The key of the table where the command line asks for it; else NULL. */
static const oct_setting *typed_value(oct_loader *l, const recipe_table *t, const char *name,
                                      char key[MAX_KEY]) {
    oct_setting *setting = NULL;
    snprintf(key, MAX_KEY, "%s%s", t->section, name);
    if (!oct_loader_find(l, key, strlen(key), &setting) || !oct_setting_is_asked_for(setting))
        return NULL;
    return setting;
}

/* An option that can't act is refused. In a file, whose recipe an option may have replaced, it is
 * left out, which the log tells (oct_job_log_notes). */
static oct_status refuse_or_note(oct_loader *l, const recipe_table *t, const char *name,
                                 const char *lacks, const char *expected) {
    char key[MAX_KEY], what[MAX_KEY + 64];
    oct_setting *setting = NULL;
    snprintf(key, sizeof key, "%s%s", t->section, name);
    if (!oct_loader_find(l, key, strlen(key), &setting) || !setting->value ||
        setting->value->kind == OCT_VALUE_NULL)
        return OCT_OK;
    snprintf(what, sizeof what, "the recipe %.63s %s", t->mx->recipe_name, lacks);
    if (strcmp(setting->place, OCT_COMMAND_LINE) != 0) {
        oct_strbuf_printf(&l->state->unused, "%s: %s: not used, since %s\n", setting->place, key,
                          what);
        return l->state->unused.failed ? oct_fail_memory(l->builder.err) : OCT_OK;
    }
    oct_status status = oct_loader_fail(l, setting->place, key, what, expected, setting->value);
    return oct_loader_refuse(l, status, OCT_REFUSED_BY_PLACE);
}

/* Rules that have one way of grouping rows, and it isn't an expert's own, go that way unasked.
 * (Those that know no other than an expert's own are refused when the plan is made.) */
static oct_status check_groups(oct_loader *l, const recipe_table *t) {
    char key[MAX_KEY], what[MAX_KEY];
    const oct_rules *rules = oct_job_rules(l->job);
    const oct_setting *setting = typed_value(l, t, "groups", key);
    bool same =
        rules->groups == rules->upstream_groups && rules->upstream_groups != OCT_GROUPS_TRUE;
    if (!setting || !same || t->mx->groups != OCT_JOB_GROUPS_UPSTREAM)
        return OCT_OK;
    snprintf(what, sizeof what, "the rules %s group rows so without it", rules->name);
    oct_status status =
        oct_loader_fail(l, setting->place, key, what, "none, or true to differ", setting->value);
    return oct_loader_refuse(l, status, OCT_REFUSED_BY_PLACE);
}

/* How weights are gathered in 8 bits matters only where they are. */
static oct_status check_gather(oct_loader *l, const recipe_table *t) {
    char key[MAX_KEY], expected[MAX_KEY + 64];
    const oct_setting *setting = typed_value(l, t, "fsdp_low_precision_all_gather_mode", key);
    const bool is_plans = setting && setting->name && t->converter; /* which is judged by itself */
    if (!setting || is_plans || t->mx->enable_fsdp_low_precision_all_gather)
        return OCT_OK;
    snprintf(expected, sizeof expected, "--%senable_fsdp_low_precision_all_gather beside it",
             t->section);
    oct_status status =
        oct_loader_fail(l, setting->place, setting->name ? setting->name : key,
                        "weights aren't gathered in 8 bits", expected, setting->value);
    return oct_loader_refuse(l, status, OCT_REFUSED_BY_PLACE);
}

/* The same of a plan, which speaks of both tables. */
static oct_status check_plans_gather(oct_loader *l) {
    const recipe_table plan = {"training.quantization_plan.", NULL, NULL,
                               l->job->quantize.linear.mx.enable_fsdp_low_precision_all_gather
                                   ? &l->job->quantize.linear.mx
                                   : &l->job->quantize.grouped_mm.mx};
    return l->job->form == OCT_JOB_MINDSPEED && l->job->quantization_plan.recipe_name &&
                   l->reading == OCT_JOB_READ_STRICT
               ? check_gather(l, &plan)
               : OCT_OK;
}

/* Whether linears with a recipe of their own have one that uses an option. */
static bool has_override(const recipe_table *t, bool (*uses)(const oct_recipe *recipe)) {
    const oct_job_overrides *overrides = &t->mx->override;
    for (size_t i = 0; i < overrides->n; i++) {
        oct_recipe recipe;
        const oct_job_override *o = &overrides->items[i];
        if (!o->in_high_precision && !oct_recipe_parse(o->recipe_name, &recipe, NULL) &&
            uses(&recipe))
            return true;
    }
    return false;
}

static bool is_mx(const oct_recipe *recipe) {
    return recipe->granularity == OCT_MX;
}

static bool is_delayed(const oct_recipe *recipe) {
    return recipe->strategy == OCT_DELAYED;
}

static oct_status check_active(oct_loader *l, const recipe_table *t, const oct_recipe *recipe) {
    oct_status status = check_gather(l, t);
    if (!status && !is_mx(recipe) && !has_override(t, is_mx))
        status = refuse_or_note(l, t, "scale_mode", "has no block scales",
                                "none, or an MX recipe such as mxfp8");
    if (!status && !is_delayed(recipe) && !has_override(t, is_delayed))
        status = refuse_or_note(l, t, "amax_history_len", "keeps no amax of earlier steps",
                                "a delayed recipe such as delayed_per_tensor_HiF8_HiF8_HiF8");
    if (status || t->mx == &l->job->quantize.linear.mx)
        return status;
    if (recipe->granularity != OCT_PER_TENSOR)
        return refuse_or_note(l, t, "groups", "has no scales of whole tensors",
                              "none, or a per-tensor recipe such as hif8");
    return check_groups(l, t);
}

/* mxfp8_cublas says floor, whoever reads the job; a scale_mode beside it must say the same. */
static oct_status check_named_rule(oct_loader *l, const recipe_table *t, const oct_recipe *recipe) {
    char key[MAX_KEY], name[MAX_KEY];
    const int mode = t->mx->scale_mode;
    if (!recipe->names_scale_mode || mode == OCT_JOB_UNSAID || mode == (int)recipe->scale_mode)
        return OCT_OK;
    snprintf(key, sizeof key, "%sscale_mode", t->section);
    snprintf(name, sizeof name, "%srecipe_name", t->section);
    oct_status status = oct_fail(
        l->builder.err, OCT_INVALID,
        "%s: the recipe's name says another rule; expected \"%s\" or none; got \"%s\" "
        "beside %s = \"%.63s\"",
        oct_job_at(l->job, key), oct_scale_mode_name(recipe->scale_mode),
        oct_scale_mode_name((oct_scale_mode)mode), oct_job_at(l->job, name), t->mx->recipe_name);
    return oct_loader_refuse(l, status, OCT_REFUSED_BY_PLACE);
}

static oct_status check_table(oct_loader *l, const recipe_table *t) {
    oct_recipe recipe;
    bool strict = l->reading == OCT_JOB_READ_STRICT;
    if (!is_active(l->job, t))
        return strict && l->job->form == OCT_JOB_TITAN ? check_inactive(l, t) : OCT_OK;
    if (oct_recipe_parse(t->mx->recipe_name, &recipe, NULL) != OCT_OK) /* which is told already */
        return OCT_OK;
    oct_status status = l->reading == OCT_JOB_READ_SAVED ? OCT_OK : check_named_rule(l, t, &recipe);
    return status || !strict ? status : check_active(l, t, &recipe);
}

oct_status oct_loader_check_options(oct_loader *l) {
    const recipe_table tables[] = {{"quantize.linear.mx.", "quantize.linear.mx",
                                    "quantize.linear.mx", &l->job->quantize.linear.mx},
                                   {"quantize.grouped_mm.mx.", "quantize.grouped_mm.mx",
                                    "quantize.moe.mx", &l->job->quantize.grouped_mm.mx}};
    oct_status status = check_table(l, &tables[0]);
    if (!status)
        status = check_table(l, &tables[1]);
    return status ? status : check_plans_gather(l);
}
