/* A job in another recipe: see variant.h. The recipe is put in by overrides, so that the job is
 * read and checked in one way only. */
#include "job/variant.h"

#include <jansson.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/count.h"
#include "base/fs.h"
#include "job/rules_record.h"
#include "job/setup.h"
#include "quant/recipe.h"

static const char *const high_precision[] = {"bf16", "fp32"};
enum { N_HIGH_PRECISION = OCT_COUNT(high_precision) };

bool oct_variant_is_high_precision(const char *recipe) {
    for (int i = 0; i < N_HIGH_PRECISION; i++)
        if (strcasecmp(recipe, high_precision[i]) == 0)
            return true;
    return false;
}

static bool has_item(const oct_job_list *list, const char *name) {
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->items[i], name) == 0)
            return true;
    return false;
}

static bool is_quantizer(const char *converter) {
    return strncmp(converter, "quantize.", strlen("quantize.")) == 0;
}

static bool asks_for_grouped_products(const oct_job *job) {
    const oct_job_list *list = &job->model.converters;
    return has_item(list, "npu_gmm") || has_item(list, "grouped_mm") ||
           has_item(list, "quantize.grouped_mm.mx");
}

/* False only if the model is known, and dense: what is wrong with one is told where it is made. */
static bool may_have_experts(const oct_job *job) {
    oct_model_args args;
    oct_error ignored;
    return oct_setup_model_args(job, &args, &ignored) != OCT_OK || args.num_experts > 0;
}

/* `model.converters` with or without those that quantize. */
static void put_converters(const oct_job *job, bool quantize, oct_strbuf *b) {
    const oct_job_list *list = &job->model.converters;
    const char *comma = "";
    oct_strbuf_puts(b, "--model.converters=");
    for (size_t i = 0; i < list->n; i++) {
        if (is_quantizer(list->items[i]))
            continue;
        oct_strbuf_printf(b, "%s%s", comma, list->items[i]);
        comma = ",";
    }
    if (!quantize)
        return;
    oct_strbuf_printf(b, "%squantize.linear.mx", comma);
    if (asks_for_grouped_products(job))
        oct_strbuf_puts(b, ",quantize.grouped_mm.mx");
}

static void put_activation(const char *recipe, oct_variant_overrides *o) {
    oct_strbuf_printf(&o->own[o->n_own++], "--training.mixed_precision_param=%s",
                      strcasecmp(recipe, "fp32") == 0 ? "float32" : "bfloat16");
}

static void put_titan(const oct_job *job, const char *recipe, oct_variant_overrides *o) {
    bool quantize = !oct_variant_is_high_precision(recipe);
    put_converters(job, quantize, &o->own[o->n_own++]);
    if (quantize) {
        oct_strbuf_printf(&o->own[o->n_own++], "--quantize.linear.mx.recipe_name=%s", recipe);
        if (asks_for_grouped_products(job) && may_have_experts(job))
            oct_strbuf_printf(&o->own[o->n_own++], "--quantize.grouped_mm.mx.recipe_name=%s",
                              recipe);
        return;
    }
    put_activation(recipe, o);
}

/* Whether the overrides hold `--key` or `--key=...`. */
static bool overrides_set(const char *const *overrides, int n, const char *key) {
    size_t length = strlen(key);
    for (int i = 0; i < n; i++)
        if (strncmp(overrides[i], key, length) == 0 &&
            (overrides[i][length] == '=' || !overrides[i][length]))
            return true;
    return false;
}

/* A recipe that the command line gives linears or experts alone would win over the variant's. */
static void put_mindspeed(const char *const *overrides, int n, const char *recipe,
                          oct_variant_overrides *o) {
    static const char *const keys[] = {"--quantize.linear.mx.recipe_name",
                                       "--quantize.grouped_mm.mx.recipe_name"};
    for (size_t i = 0; i < 2 && !oct_variant_is_high_precision(recipe); i++)
        if (overrides_set(overrides, n, keys[i]))
            oct_strbuf_printf(&o->own[o->n_own++], "%s=%s", keys[i], recipe);
    oct_strbuf_printf(&o->own[o->n_own++], "--training.quantization_plan.recipe_name=%s",
                      oct_variant_is_high_precision(recipe) ? "none" : recipe);
    if (oct_variant_is_high_precision(recipe))
        put_activation(recipe, o);
}

/* The given overrides, and after them those that the recipe put in. */
static oct_status list_all(const char *const *overrides, int n, oct_variant_overrides *o,
                           oct_error *err) {
    o->all = oct_malloc_array((size_t)(n + o->n_own) + 1, sizeof *o->all);
    if (!o->all)
        return oct_fail_memory(err);
    for (int i = 0; i < n; i++)
        o->all[o->n++] = overrides[i];
    for (int i = 0; i < o->n_own; i++) {
        o->all[o->n++] = o->own[i].text;
        if (o->own[i].failed)
            return oct_fail_memory(err);
    }
    return OCT_OK;
}

static oct_status load_in_recipe(oct_job_reading reading, const char *path,
                                 const char *const *overrides, int n, const char *recipe,
                                 oct_job *job, oct_variant_overrides *o, oct_error *err) {
    if (job->form == OCT_JOB_MINDSPEED)
        put_mindspeed(overrides, n, recipe, o);
    else
        put_titan(job, recipe, o);
    oct_job_free(job);
    oct_status status = list_all(overrides, n, o, err);
    return status ? status : oct_job_load_as(reading, path, o->all, o->n, job, err);
}

static oct_status load_variant(oct_job_reading reading, const char *path,
                               const char *const *overrides, int n_overrides, const char *recipe,
                               oct_job *job, oct_variant_overrides *told, oct_error *err) {
    oct_recipe parsed;
    oct_status status = OCT_OK;
    *job = (oct_job){0};
    *told = (oct_variant_overrides){0};
    if (recipe && !oct_variant_is_high_precision(recipe))
        status = oct_recipe_parse_beside(recipe, high_precision, N_HIGH_PRECISION, &parsed, err);
    /* Without its recipe the job isn't yet what it is judged as. */
    oct_job_reading plain = recipe && reading == OCT_JOB_READ_STRICT ? OCT_JOB_READ_ARM : reading;
    if (!status)
        status = oct_job_load_as(plain, path, overrides, n_overrides, job, err);
    if (status)
        return status;
    return recipe ? load_in_recipe(reading, path, overrides, n_overrides, recipe, job, told, err)
                  : list_all(overrides, n_overrides, told, err);
}

oct_status oct_variant_load_told(const char *path, const char *const *overrides, int n_overrides,
                                 const char *recipe, oct_job *job, oct_variant_overrides *told,
                                 oct_error *err) {
    /* An option of the user's may be for another recipe than this one. */
    oct_job_reading reading = recipe ? OCT_JOB_READ_ARM : OCT_JOB_READ_STRICT;
    return load_variant(reading, path, overrides, n_overrides, recipe, job, told, err);
}

void oct_variant_overrides_free(oct_variant_overrides *told) {
    for (int i = 0; i < told->n_own; i++)
        oct_strbuf_free(&told->own[i]);
    oct_free(told->all);
    *told = (oct_variant_overrides){0};
}

oct_status oct_variant_check(const char *path, const char *const *overrides, int n_overrides,
                             const char *recipe, oct_job *job, oct_error *err) {
    oct_variant_overrides told;
    oct_status status =
        load_variant(OCT_JOB_READ_STRICT, path, overrides, n_overrides, recipe, job, &told, err);
    oct_variant_overrides_free(&told);
    return status;
}

oct_status oct_variant_load(const char *path, const char *const *overrides, int n_overrides,
                            const char *recipe, oct_job *job, oct_error *err) {
    oct_variant_overrides told;
    oct_status status =
        oct_variant_load_told(path, overrides, n_overrides, recipe, job, &told, err);
    oct_variant_overrides_free(&told);
    return status;
}

/* The command line that the run had, from state.json, but for the job file's name: the checkpoint
 * has the file. In another recipe what the run's own recipe put in, the last ones, is left out.
 * Borrowed from `state`. */
static oct_status read_overrides(const oct_checkpoint *from, const json_t *state, bool other_recipe,
                                 const char ***overrides, int *n, oct_error *err) {
    const json_t *list = json_object_get(state, "overrides");
    size_t size = json_array_size(list);
    *n = 0;
    *overrides = oct_malloc_array(size + 1, sizeof **overrides);
    if (!*overrides)
        return oct_fail_memory(err);
    for (size_t i = 0; i < size; i++) {
        const char *text = json_string_value(json_array_get(list, i));
        if (text)
            (*overrides)[(*n)++] = text;
    }
    if ((list && !json_is_array(list)) || (size_t)*n < size)
        return oct_fail(err, OCT_INVALID, "%s/state.json: overrides: expected a list of texts",
                        oct_checkpoint_path(from));
    const json_t *entry = json_object_get(state, "recipe_overrides"); /* older ones have none */
    json_int_t n_recipe = json_integer_value(entry);
    if ((entry && !json_is_integer(entry)) || n_recipe < 0 || n_recipe > *n)
        return oct_fail(err, OCT_INVALID,
                        "%s/state.json: recipe_overrides: expected how many of the overrides a "
                        "recipe put in",
                        oct_checkpoint_path(from));
    if (other_recipe)
        *n -= (int)n_recipe;
    *n = oct_job_without_config_file(*overrides, *n);
    return OCT_OK;
}

/* The rules that it was trained by, whatever the job's words mean to this version. */
static oct_status take_rules(const oct_checkpoint *from, oct_job *job, oct_error *err) {
    const oct_rules *rules;
    bool recorded;
    oct_status status = oct_rules_read(oct_checkpoint_state(from), oct_checkpoint_path(from),
                                       &rules, &recorded, err);
    if (!status)
        oct_job_set_rules(job, rules);
    return status;
}

oct_status oct_variant_load_saved(const oct_checkpoint *from, const char *recipe, oct_job *job,
                                  oct_error *err) {
    const char **overrides = NULL;
    int n = 0;
    *job = (oct_job){0};
    if (!oct_checkpoint_config(from))
        return oct_fail(err, OCT_INVALID, "%s: the checkpoint holds no job file",
                        oct_checkpoint_path(from));
    json_t *state = json_loads(oct_checkpoint_state(from), 0, NULL);
    char *path = oct_path_join(oct_checkpoint_path(from), oct_checkpoint_config_name(from));
    oct_status status = path ? read_overrides(from, state, recipe != NULL, &overrides, &n, err)
                             : oct_fail_memory(err);
    oct_variant_overrides told = {0};
    if (!status)
        status = load_variant(OCT_JOB_READ_SAVED, path, overrides, n, recipe, job, &told, err);
    oct_variant_overrides_free(&told);
    if (!status)
        status = take_rules(from, job, err);
    oct_free(path);
    oct_free(overrides);
    json_decref(state);
    return status;
}
