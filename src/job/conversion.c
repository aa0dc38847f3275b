/* From a job's converters to a plan: see conversion.h. */
#include "job/conversion.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "convert/framework.h"
#include "job/setup.h"
#include "model/hf_names.h"
#include "quant/rules.h"

#define LINEAR "quantize.linear.mx"
#define GROUPED "quantize.grouped_mm.mx"
#define PLAN "training.quantization_plan."

enum { MAX_SPECS = 64, MAX_RECIPES = 2 /* by oct_module_use */ };

struct oct_conversion {
    oct_recipe recipes[MAX_RECIPES];  /* of linears, of experts */
    const char *gemm_at[MAX_RECIPES]; /* place and key of their gemm */
    oct_recipe *own_recipes;          /* of [[quantize.linear.mx.override]], one each */
    oct_arena *texts;                 /* of patterns and keys that are made here */
    oct_converter_spec specs[MAX_SPECS];
    int64_t n_specs;
    const oct_rules *rules;
    oct_dtype activation;
    oct_plan *plan;
    bool log_modules; /* model.print_after_conversion */
};

static oct_pattern_list pattern_list(const oct_job *job, oct_pattern_kind kind,
                                     const oct_job_list *list, const char *key) {
    return (oct_pattern_list){.kind = kind,
                              .patterns = list->items,
                              .n = (int64_t)list->n,
                              .written = oct_job_is_set(job, key),
                              .key = key,
                              .where = oct_job_at(job, key)};
}

static oct_status add_spec(oct_conversion *c, const oct_job *job, const oct_converter_spec *spec,
                           oct_error *err) {
    if (c->n_specs == MAX_SPECS)
        return oct_fail(err, OCT_INVALID, "%s: expected at most %d",
                        oct_job_at(job, "model.converters"), MAX_SPECS);
    c->specs[c->n_specs++] = *spec;
    return OCT_OK;
}

/* The recipe of linears or experts: what its name leaves open is the rules', and what the user
 * wrote beside it wins over both. */
static oct_status make_recipe(const oct_job *job, oct_module_use use, const char *key,
                              const char *name, oct_recipe *recipe, oct_error *err) {
    const oct_job_mx *mx =
        use == OCT_FOR_EXPERTS ? &job->quantize.grouped_mm.mx : &job->quantize.linear.mx;
    const oct_rules *rules = oct_job_rules(job);
    oct_error cause = {0};
    if (oct_recipe_parse(name, recipe, &cause) != OCT_OK)
        return oct_setup_fail_at(job, key, &cause, err);
    recipe->gemm = oct_setup_gemm(mx);
    oct_rules_apply(rules, use, oct_setup_activation(job), recipe);
    if (mx->scale_mode != OCT_JOB_UNSAID && !recipe->names_scale_mode)
        recipe->scale_mode = recipe->wgrad_scale_mode = (oct_scale_mode)mx->scale_mode;
    bool upstream = mx->groups == OCT_JOB_GROUPS_UPSTREAM;
    if (upstream && rules->upstream_groups == OCT_GROUPS_TRUE)
        return oct_fail(err, OCT_INVALID,
                        "%s: the rules %s know no other groups than an expert's own; expected "
                        "\"true\", or quantize.rules = \"torchtitan-npu@0.2.2\"",
                        oct_job_at(job, GROUPED ".groups"), rules->name);
    if (mx->groups != OCT_JOB_UNSAID)
        recipe->groups = upstream ? rules->upstream_groups : OCT_GROUPS_TRUE;
    recipe->amax_history_len = mx->amax_history_len;
    return OCT_OK;
}

static oct_status read_recipe(oct_conversion *c, const oct_job *job, oct_module_use use,
                              oct_error *err) {
    if (use == OCT_FOR_EXPERTS)
        return make_recipe(job, use, GROUPED ".recipe_name",
                           job->quantize.grouped_mm.mx.recipe_name, &c->recipes[use], err);
    return make_recipe(job, use, LINEAR ".recipe_name", job->quantize.linear.mx.recipe_name,
                       &c->recipes[use], err);
}

/* ---- linears with recipes of their own ---- */

static oct_status add_override(oct_conversion *c, const oct_job *job, const char *key,
                               const oct_pattern_list *include, const oct_recipe *recipe,
                               oct_error *err) {
    if (c->n_specs == MAX_SPECS)
        return oct_fail(err, OCT_INVALID, "%s: expected at most %d converters and overrides",
                        oct_job_at(job, key), MAX_SPECS);
    c->specs[c->n_specs++] = (oct_converter_spec){.kind = OCT_CONVERT_LINEAR,
                                                  .name = key,
                                                  .where = oct_job_at(job, key),
                                                  .recipe = recipe,
                                                  .is_override = true,
                                                  .include = *include};
    return OCT_OK;
}

/* A text that lives as long as the conversion; NULL: memory is refused. */
static char *keep_text(oct_conversion *c, const char *format, const char *text, int64_t n)
    __attribute__((format(printf, 2, 0)));
static char *keep_text(oct_conversion *c, const char *format, const char *text, int64_t n) {
    char line[128];
    snprintf(line, sizeof line, format, text, n);
    char *kept = oct_arena_alloc(c->texts, strlen(line) + 1);
    return kept ? strcpy(kept, line) : NULL;
}

static oct_pattern_kind pattern_kind(const oct_job *job) {
    return job->form == OCT_JOB_MINDSPEED ? OCT_PATTERN_GLOB : OCT_PATTERN_SUBSTRING;
}

/* Linears of the layers first .. first + n - 1 stay in high precision. */
static oct_status keep_layers(oct_conversion *c, const oct_job *job, const char *key, int64_t first,
                              int64_t n, oct_error *err) {
    const bool yaml = job->form == OCT_JOB_MINDSPEED;
    const char **patterns = oct_arena_alloc_array(c->texts, (size_t)n + 1, sizeof *patterns);
    if (!patterns)
        return oct_fail_memory(err);
    for (int64_t i = 0; i < n; i++)
        if (!(patterns[i] = keep_text(c, yaml ? "%slayers.%" PRId64 : "%slayers.%" PRId64 ".",
                                      yaml ? "model." : "", first + i)))
            return oct_fail_memory(err);
    const oct_pattern_list list = {.kind = pattern_kind(job),
                                   .patterns = patterns,
                                   .n = n,
                                   .written = true,
                                   .key = key,
                                   .where = oct_job_at(job, key)};
    return n ? add_override(c, job, key, &list, NULL, err) : OCT_OK;
}

static oct_status keep_ends(oct_conversion *c, const oct_job *job, int64_t n_layers,
                            oct_error *err) {
    static const char start[] = LINEAR ".num_layers_at_start_in_bf16",
                      end[] = LINEAR ".num_layers_at_end_in_bf16";
    const oct_job_mx *mx = &job->quantize.linear.mx;
    const int64_t n_start = mx->num_layers_at_start_in_bf16, n_end = mx->num_layers_at_end_in_bf16;
    if (n_start > n_layers || n_end > n_layers)
        return oct_fail(err, OCT_INVALID,
                        "%s: expected at most the model's %" PRId64 " layers; got %" PRId64,
                        oct_job_at(job, n_start > n_layers ? start : end), n_layers,
                        n_start > n_layers ? n_start : n_end);
    oct_status status = keep_layers(c, job, start, 0, n_start, err);
    return status ? status : keep_layers(c, job, end, n_layers - n_end, n_end, err);
}

/* After the linears' own spec, in the order that they were written: the last one wins. */
static oct_status add_overrides(oct_conversion *c, const oct_job *job, int64_t n_layers,
                                oct_error *err) {
    const oct_job_overrides *overrides = &job->quantize.linear.mx.override;
    c->own_recipes = oct_calloc_array(overrides->n + 1, sizeof *c->own_recipes);
    if (!c->own_recipes)
        return oct_fail_memory(err);
    oct_status status = keep_ends(c, job, n_layers, err);
    for (size_t i = 0; i < overrides->n && !status; i++) {
        const oct_job_override *o = &overrides->items[i];
        const char *key = keep_text(c, "%s[%" PRId64 "]", LINEAR ".override", (int64_t)i);
        oct_pattern_list list = pattern_list(job, pattern_kind(job), &o->fqns, LINEAR ".override");
        if (!key)
            return oct_fail_memory(err);
        list.key = key;
        if (!o->in_high_precision)
            status = make_recipe(job, OCT_FOR_LINEARS, LINEAR ".override", o->recipe_name,
                                 &c->own_recipes[i], err);
        if (!status)
            status = add_override(c, job, LINEAR ".override", &list,
                                  o->in_high_precision ? NULL : &c->own_recipes[i], err);
    }
    return status;
}

static bool converts_linears(const oct_conversion *c) {
    for (int64_t i = 0; i < c->n_specs; i++)
        if (c->specs[i].kind == OCT_CONVERT_LINEAR)
            return true;
    return false;
}

static bool has_grouped_products(const oct_conversion *c) {
    for (int64_t i = 0; i < c->n_specs; i++)
        if (c->specs[i].kind == OCT_CONVERT_GROUPED_MM)
            return true;
    return false;
}

/* ---- torchtitan ---- */

static oct_status add_titan(oct_conversion *c, const oct_job *job, const char *name,
                            oct_error *err) {
    oct_converter_spec spec = {.name = name, .where = oct_job_at(job, "model.converters")};
    oct_status status = OCT_OK;
    /* torchtitan's experts are grouped products to begin with, without a converter. */
    if (strcmp(name, GROUPED) == 0 && !has_grouped_products(c)) {
        spec.kind = OCT_CONVERT_GROUPED_MM;
        status = add_spec(c, job, &spec, err);
        if (status)
            return status;
    }
    if (strcmp(name, "npu_gmm") == 0 || strcmp(name, "grouped_mm") == 0) {
        spec.kind = OCT_CONVERT_GROUPED_MM;
    } else if (strcmp(name, LINEAR) == 0) {
        spec.kind = OCT_CONVERT_LINEAR;
        spec.recipe = &c->recipes[0];
        spec.exclude = pattern_list(job, OCT_PATTERN_SUBSTRING,
                                    &job->quantize.linear.mx.filter_fqns, LINEAR ".filter_fqns");
        status = read_recipe(c, job, OCT_FOR_LINEARS, err);
    } else if (strcmp(name, GROUPED) == 0) {
        spec.kind = OCT_CONVERT_EXPERTS;
        spec.recipe = &c->recipes[1];
        spec.include = pattern_list(job, OCT_PATTERN_SUBSTRING, &job->quantize.grouped_mm.mx.fqns,
                                    GROUPED ".fqns");
        status = read_recipe(c, job, OCT_FOR_EXPERTS, err);
    } else {
        return OCT_OK; /* a fused kernel of another device: no effect here */
    }
    return !status ? add_spec(c, job, &spec, err) : status;
}

/* ---- MindSpeed MM ---- */

static oct_status add_mindspeed(oct_conversion *c, const oct_job *job, const char *name,
                                oct_error *err) {
    bool experts = strcmp(name, "quantize.moe.mx") == 0;
    /* the list has a default; then the plan is where its recipe is */
    const char *key =
        oct_job_is_set(job, PLAN "quant_converters") ? PLAN "quant_converters" : PLAN "recipe_name";
    oct_converter_spec spec = {
        .kind = experts ? OCT_CONVERT_GROUPED_MM : OCT_CONVERT_LINEAR,
        .name = name,
        .where = oct_job_at(job, key),
        .recipe = experts ? NULL : &c->recipes[0],
        .include = pattern_list(job, OCT_PATTERN_GLOB, &job->quantization_plan.apply_modules,
                                PLAN "apply_modules"),
        .exclude = pattern_list(job, OCT_PATTERN_GLOB, &job->quantization_plan.ignored_modules,
                                PLAN "ignored_modules")};
    oct_status status = add_spec(c, job, &spec, err);
    if (status || !experts)
        return status;
    /* Experts run as one grouped product first, and that is quantized. */
    spec.kind = OCT_CONVERT_EXPERTS;
    spec.recipe = &c->recipes[1];
    return add_spec(c, job, &spec, err);
}

static oct_status read_mindspeed(oct_conversion *c, const oct_job *job, oct_error *err) {
    const oct_job_list *list = &job->quantization_plan.quant_converters;
    if (!job->quantization_plan.recipe_name)
        return OCT_OK;
    oct_status status = read_recipe(c, job, OCT_FOR_LINEARS, err);
    if (!status)
        status = read_recipe(c, job, OCT_FOR_EXPERTS, err);
    for (size_t i = 0; i < list->n && !status; i++)
        status = add_mindspeed(c, job, list->items[i], err);
    return status;
}

static oct_status note_rules(oct_conversion *c, const oct_job *job, oct_error *err) {
    const oct_job_mx *linear = &job->quantize.linear.mx, *experts = &job->quantize.grouped_mm.mx;
    /* MindSpeed LLM's own words have defaults of its own, which are those that octet takes. */
    bool llm = strcmp(oct_job_name(job, PLAN "recipe_name"), "model.quant_recipe_name") == 0;
    const oct_framework_facts facts = {
        .rules = c->rules,
        .gathers_linears = linear->enable_fsdp_low_precision_all_gather,
        .gathers_experts = experts->enable_fsdp_low_precision_all_gather,
        .recipe_is_default =
            job->form == OCT_JOB_TITAN && !oct_job_is_set(job, LINEAR ".recipe_name"),
        .lists_start_empty = !llm,
        .converters_are_default = !oct_job_is_set(job, PLAN "quant_converters")};
    c->plan->rules = c->rules;
    c->plan->activation = c->activation;
    return oct_plan_note_framework(c->plan, c->specs, c->n_specs, &facts) ? oct_fail_memory(err)
                                                                          : OCT_OK;
}

oct_status oct_conversion_create(const oct_job *job, oct_model *model, oct_conversion **out,
                                 oct_error *err) {
    bool yaml = job->form == OCT_JOB_MINDSPEED;
    oct_hf_namer namer = {.family = oct_model_get_args(model)->family};
    oct_status status = OCT_OK;
    oct_conversion *c = oct_calloc_array(1, sizeof *c);
    *out = NULL;
    if (!c)
        return oct_fail_memory(err);
    c->texts = oct_arena_create();
    if (!c->texts) {
        oct_conversion_destroy(c);
        return oct_fail_memory(err);
    }
    c->gemm_at[0] = oct_job_at(job, LINEAR ".gemm");
    c->gemm_at[1] = oct_job_at(job, GROUPED ".gemm");
    c->rules = oct_job_rules(job);
    c->activation = oct_setup_activation(job);
    c->log_modules = job->model.print_after_conversion;
    if (yaml)
        status = read_mindspeed(c, job, err);
    for (size_t i = 0; !yaml && i < job->model.converters.n && !status; i++)
        status = add_titan(c, job, job->model.converters.items[i], err);
    if (!status && converts_linears(c))
        status = add_overrides(c, job, oct_model_get_args(model)->n_layers, err);
    if (!status)
        status = oct_plan_create(oct_model_root(model), c->specs, c->n_specs, yaml,
                                 yaml ? oct_hf_namer_name : NULL, &namer, &c->plan, err);
    if (!status)
        status = note_rules(c, job, err);
    if (!status)
        *out = c;
    else
        oct_conversion_destroy(c);
    return status;
}

void oct_conversion_destroy(oct_conversion *c) {
    if (!c)
        return;
    oct_plan_destroy(c->plan);
    oct_free(c->own_recipes);
    if (c->texts)
        oct_arena_destroy(c->texts);
    oct_free(c);
}

const oct_plan *oct_conversion_plan(const oct_conversion *c) {
    return c->plan;
}

static void log_modules(const oct_plan *plan) {
    for (int64_t i = 0; i < plan->n_rows; i++) {
        const oct_plan_row *row = &plan->rows[i];
        oct_log_info("%s: %s", row->name, row->recipe ? row->recipe->name : row->reason);
    }
}

oct_status oct_conversion_check(const oct_conversion *c, oct_error *err) {
    for (int64_t i = 0; i < c->plan->n_rows; i++) {
        const oct_recipe *recipe = c->plan->rows[i].recipe;
        if (!recipe || oct_gemm_supports(recipe->gemm))
            continue;
        return oct_fail(err, OCT_INVALID,
                        "%s: \"%s\" needs AVX512-VNNI; this CPU (%s) %s; expected \"auto\" or "
                        "\"exact\"",
                        c->gemm_at[recipe == &c->recipes[OCT_FOR_EXPERTS]],
                        oct_gemm_mode_name(recipe->gemm), oct_cpu_model_name(),
                        oct_cpu_detect().avx512_vnni
                            ? "has it, but OCTET_CPU caps the kernel set below it"
                            : "lacks it");
    }
    return OCT_OK;
}

void oct_conversion_warn(const oct_conversion *c) {
    int64_t n = oct_plan_count_framework(c->plan);
    if (n > 0)
        oct_log_warning("%s itself would skip, refuse or convert otherwise %" PRId64
                        " of these %" PRId64
                        " modules; `octet plan` of this job tells which, and why",
                        c->rules->name, n, c->plan->n_rows);
}

/* One line that says which rules are in force, for jobs that quantize and those that don't. */
static void log_rules(const oct_conversion *c) {
    const oct_rules *r = c->rules;
    bool half = c->activation == OCT_BF16;
    oct_log_info("Rules in force: %s (quantize.rules): MX scales %s, of grouped products %s and in "
                 "their wgrad %s; HiF8 targets %g, %g, %g; weights are quantized from %s, their "
                 "gradients are %s",
                 r->name, oct_scale_mode_name(r->linears.scale_mode),
                 oct_scale_mode_name(r->experts.scale_mode),
                 oct_scale_mode_name(r->experts.wgrad_scale_mode), r->hif8_target[OCT_ROLE_INPUT],
                 r->hif8_target[OCT_ROLE_WEIGHT], r->hif8_target[OCT_ROLE_GRAD],
                 r->rounds_weights && half ? "bf16" : "fp32",
                 r->rounds_gradients && half ? "rounded to bf16 once a micro-batch"
                                             : "summed in fp32");
}

oct_status oct_conversion_apply(oct_conversion *c, oct_error *err) {
    oct_status status = oct_conversion_check(c, err);
    if (!status)
        log_rules(c);
    if (!status)
        status = oct_plan_apply(c->plan, err);
    if (!status && c->log_modules)
        log_modules(c->plan);
    return status;
}
