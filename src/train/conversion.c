/* From a job's converters to a plan: see conversion.h. */
#include "train/conversion.h"

#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "model/hf_names.h"

#define LINEAR "quantize.linear.mx"
#define GROUPED "quantize.grouped_mm.mx"
#define PLAN "training.quantization_plan."

enum { MAX_SPECS = 64, MAX_RECIPES = 2 };

struct oct_conversion {
    oct_recipe recipes[MAX_RECIPES];  /* of linears, of experts */
    const char *gemm_at[MAX_RECIPES]; /* place and key of their gemm */
    oct_converter_spec specs[MAX_SPECS];
    int64_t n_specs;
    oct_plan *plan;
    bool log_modules; /* model.print_after_conversion */
};

static oct_status fail_at(const oct_job *job, const char *key, const oct_error *cause,
                          oct_error *err) {
    return oct_fail(err, cause->status, "%s: %s", oct_job_at(job, key), cause->message);
}

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

/* ---- torchtitan ---- */

static oct_status read_recipe(const oct_job *job, const oct_job_mx *mx, const char *key,
                              oct_recipe *recipe, oct_error *err) {
    oct_error cause = {0};
    if (oct_recipe_parse(mx->recipe_name, recipe, &cause) != OCT_OK ||
        oct_scale_mode_parse(mx->scale_mode, &recipe->scale_mode, &cause) != OCT_OK ||
        oct_gemm_mode_parse(mx->gemm, &recipe->gemm, &cause) != OCT_OK)
        return fail_at(job, key, &cause, err);
    recipe->amax_history_len = mx->amax_history_len;
    return OCT_OK;
}

static bool has_grouped_products(const oct_conversion *c) {
    for (int64_t i = 0; i < c->n_specs; i++)
        if (c->specs[i].kind == OCT_CONVERT_GROUPED_MM)
            return true;
    return false;
}

static oct_status add_titan(oct_conversion *c, const oct_job *job, const char *name,
                            oct_error *err) {
    oct_converter_spec spec = {.name = name, .where = oct_job_at(job, "model.converters")};
    oct_status status = OCT_OK;
    /* torchtitan's experts are grouped products to begin with, without a converter. */
    if (strcmp(name, GROUPED) == 0 && !has_grouped_products(c)) {
        spec.kind = OCT_CONVERT_GROUPED_MM;
        status = add_spec(c, job, &spec, err);
        if (status != OCT_OK)
            return status;
    }
    if (strcmp(name, "npu_gmm") == 0 || strcmp(name, "grouped_mm") == 0) {
        spec.kind = OCT_CONVERT_GROUPED_MM;
    } else if (strcmp(name, LINEAR) == 0) {
        spec.kind = OCT_CONVERT_LINEAR;
        spec.recipe = &c->recipes[0];
        spec.exclude = pattern_list(job, OCT_PATTERN_SUBSTRING,
                                    &job->quantize.linear.mx.filter_fqns, LINEAR ".filter_fqns");
        status =
            read_recipe(job, &job->quantize.linear.mx, LINEAR ".recipe_name", &c->recipes[0], err);
    } else if (strcmp(name, GROUPED) == 0) {
        spec.kind = OCT_CONVERT_EXPERTS;
        spec.recipe = &c->recipes[1];
        spec.include = pattern_list(job, OCT_PATTERN_SUBSTRING, &job->quantize.grouped_mm.mx.fqns,
                                    GROUPED ".fqns");
        status = read_recipe(job, &job->quantize.grouped_mm.mx, GROUPED ".recipe_name",
                             &c->recipes[1], err);
    } else {
        return OCT_OK; /* a fused kernel of another device: no effect here */
    }
    return status == OCT_OK ? add_spec(c, job, &spec, err) : status;
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
    if (status != OCT_OK || !experts)
        return status;
    /* Experts run as one grouped product first, and that is quantized. */
    spec.kind = OCT_CONVERT_EXPERTS;
    spec.recipe = &c->recipes[1];
    return add_spec(c, job, &spec, err);
}

static oct_status read_mindspeed(oct_conversion *c, const oct_job *job, oct_error *err) {
    oct_error cause = {0};
    const oct_job_list *list = &job->quantization_plan.quant_converters;
    oct_status status = OCT_OK;
    if (!job->quantization_plan.recipe_name)
        return OCT_OK;
    if (oct_recipe_parse(job->quantization_plan.recipe_name, &c->recipes[0], &cause) != OCT_OK)
        return fail_at(job, PLAN "recipe_name", &cause, err);
    c->recipes[1] = c->recipes[0];
    for (size_t i = 0; i < list->n && status == OCT_OK; i++)
        status = add_mindspeed(c, job, list->items[i], err);
    return status;
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
    c->gemm_at[0] = oct_job_at(job, LINEAR ".gemm");
    c->gemm_at[1] = oct_job_at(job, GROUPED ".gemm");
    c->log_modules = job->model.print_after_conversion;
    if (yaml)
        status = read_mindspeed(c, job, err);
    for (size_t i = 0; !yaml && i < job->model.converters.n && status == OCT_OK; i++)
        status = add_titan(c, job, job->model.converters.items[i], err);
    if (status == OCT_OK)
        status = oct_plan_create(oct_model_root(model), c->specs, c->n_specs, yaml,
                                 yaml ? oct_hf_namer_name : NULL, &namer, &c->plan, err);
    if (status == OCT_OK)
        *out = c;
    else
        oct_conversion_destroy(c);
    return status;
}

void oct_conversion_destroy(oct_conversion *c) {
    if (!c)
        return;
    oct_plan_destroy(c->plan);
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
        return oct_fail(
            err, OCT_INVALID,
            "%s: \"%s\" needs AVX512-VNNI; this CPU (%s) %s; expected \"auto\" or "
            "\"exact\"",
            c->gemm_at[recipe - c->recipes], oct_gemm_mode_name(recipe->gemm), oct_cpu_model_name(),
            oct_cpu_detect().avx512_vnni ? "has it, but OCTET_CPU caps the kernel set below it"
                                         : "lacks it");
    }
    return OCT_OK;
}

oct_status oct_conversion_apply(oct_conversion *c, oct_error *err) {
    oct_status status = oct_conversion_check(c, err);
    if (status == OCT_OK)
        status = oct_plan_apply(c->plan, err);
    if (status == OCT_OK && c->log_modules)
        log_modules(c->plan);
    return status;
}
