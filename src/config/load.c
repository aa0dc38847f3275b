/* Loading a job: see job.h. The order is: read the file into a tree, collect its keys, collect the
 * command line's, then fill the job from settings and defaults and check it. */
#include "config/job.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "config/check.h"
#include "config/mindspeed.h"
#include "config/overrides.h"
#include "config/refusals.h"
#include "config/store.h"
#include "config/text.h"
#include "config/tree_settings.h"
#include "quant/rules.h"

static oct_refusal_class class_of(const oct_key *key) {
    if (strcmp(key->name, "model.name") == 0)
        return OCT_REFUSED_MODEL;
    return strcmp(key->name, "gpt_args") == 0 ? OCT_REFUSED_FILE : OCT_REFUSED_BY_PLACE;
}

/* Fills one row's member: from its setting, else from its default. A setting that is refused is
 * forgotten. */
static oct_status fill_row(oct_loader *l, const oct_key *key, oct_setting *setting) {
    if (setting->value) {
        oct_key row = *key;
        row.name = setting->name ? setting->name : key->name;
        oct_status status = oct_loader_store(l, &row, setting->value, setting->place);
        if (status != OCT_INVALID)
            return status;
        setting->value = NULL;
        status = oct_loader_refuse(l, status, class_of(key));
        if (status)
            return status;
    }
    if (key->offset == OCT_NO_MEMBER)
        return OCT_OK;
    const oct_value *value = oct_loader_parse_text(l, key, key->fallback);
    return value ? oct_loader_store(l, key, value, "default") : l->builder.err->status;
}

static oct_status fill_all(oct_loader *l, const oct_schema *schema, oct_setting *settings) {
    oct_status status = OCT_OK;
    for (size_t i = 0; i < schema->n && !status; i++)
        status = fill_row(l, &schema->keys[i], &settings[i]);
    return status;
}

static void share_place(struct oct_job_state *state, size_t row, const char *target) {
    const oct_key *key = oct_schema_find(&oct_schema_titan, target, strlen(target));
    if (!key || !state->mindspeed[row].value) /* no key: another spelling */
        return;
    oct_setting *shared = &state->titan[key - oct_schema_titan.keys];
    if (shared->value)
        return;
    *shared = state->mindspeed[row];
    shared->name = oct_schema_mindspeed.keys[row].name;
}

/* A key of the YAML form also marks the TOML key that it stands for; those that stand for two, of
 * linears and of experts, have the linears' as their target. */
static void share_places(struct oct_job_state *state) {
    static const char linears[] = "quantize.linear.";
    for (size_t i = 0; i < oct_schema_mindspeed.n; i++) {
        const char *target = oct_schema_mindspeed.keys[i].target;
        char experts[128];
        if (!target)
            continue;
        share_place(state, i, target);
        if (strncmp(target, linears, sizeof linears - 1) != 0)
            continue;
        snprintf(experts, sizeof experts, "quantize.grouped_mm.%s", target + sizeof linears - 1);
        share_place(state, i, experts);
    }
}

/* In a YAML job TOML keys come from the command line only: they win over what the file means. */
static oct_status fill_titan_overrides(oct_loader *l) {
    oct_status status = OCT_OK;
    for (size_t i = 0; i < oct_schema_titan.n && !status; i++)
        if (l->state->titan[i].value)
            status = fill_row(l, &oct_schema_titan.keys[i], &l->state->titan[i]);
    return status;
}

static oct_status fill_mindspeed(oct_loader *l) {
    oct_status status = oct_loader_merge_spellings(l);
    if (!status)
        status = fill_all(l, &oct_schema_mindspeed, l->state->mindspeed);
    if (!status)
        status = fill_titan_overrides(l); /* training.steps, before its share is taken */
    if (!status)
        status = oct_loader_finish_mindspeed(l);
    if (!status)
        status = fill_titan_overrides(l);
    if (!status)
        status = oct_loader_check_mindspeed(l);
    if (!status)
        share_places(l->state);
    return status;
}

static oct_status fill_job(oct_loader *l, char **others) {
    oct_status status = fill_all(l, &oct_schema_titan, l->state->titan);
    if (!status && l->state->mindspeed)
        status = fill_mindspeed(l);
    if (!status)
        oct_job_set_rules(l->job, oct_job_rules(l->job));
    if (!status)
        status = oct_loader_check(l);
    return status ? status : oct_loader_conclude(l, others);
}

void oct_job_set_rules(oct_job *job, const struct oct_rules *rules) {
    if (rules != oct_job_rules(job))
        job->quantize.rules = rules->name;
    if (!oct_job_is_set(job, "quantize.linear.mx.filter_fqns"))
        job->quantize.linear.mx.filter_fqns =
            (oct_job_list){rules->filter_fqns, rules->n_filter_fqns};
    if (job->form == OCT_JOB_TITAN && !oct_job_is_set(job, "quantize.linear.mx.recipe_name"))
        job->quantize.linear.mx.recipe_name = rules->linear_recipe;
}

static bool is_yaml_path(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot && (strcasecmp(dot, ".yaml") == 0 || strcasecmp(dot, ".yml") == 0);
}

static oct_status create_state(oct_job *job, oct_error *err) {
    struct oct_job_state *state = oct_calloc_array(1, sizeof *state);
    if (!state)
        return oct_fail_memory(err);
    job->state = state;
    state->arena = oct_arena_create();
    state->titan = oct_calloc_array(oct_schema_titan.n, sizeof *state->titan);
    if (job->form == OCT_JOB_MINDSPEED)
        state->mindspeed = oct_calloc_array(oct_schema_mindspeed.n, sizeof *state->mindspeed);
    if (!state->arena || !state->titan || (job->form == OCT_JOB_MINDSPEED && !state->mindspeed))
        return oct_fail_memory(err);
    return OCT_OK;
}

static oct_status load_into(oct_loader *l, const char *path, const char *const *overrides, int n,
                            char **others) {
    oct_job *job = l->job;
    oct_status status = create_state(job, l->builder.err);
    if (status)
        return status;
    l->state = job->state;
    l->builder.arena = job->state->arena;
    const oct_value *name = oct_value_new_string(&l->builder, path, strlen(path), 0, 0);
    if (!name)
        return l->builder.err->status;
    job->path = l->builder.path = name->string;
    const oct_value *root = NULL;
    if (*path)
        status = job->form == OCT_JOB_MINDSPEED
                     ? oct_yaml_read(path, l->builder.arena, &root, l->builder.err)
                     : oct_toml_read(path, l->builder.arena, &root, l->builder.err);
    if (!status && root)
        status = oct_loader_check_is_job(l, root);
    if (!status && root)
        status = oct_loader_collect(l, root, "");
    if (!status)
        status = oct_loader_apply_overrides(l, overrides, n);
    return status ? status : fill_job(l, others);
}

static oct_status load(oct_job_reading reading, const char *path, const char *const *overrides,
                       int n, oct_job *job, oct_error *err) {
    oct_error local = {0};
    oct_loader l = {
        .job = job, .reading = reading, .builder = {.path = path, .err = err ? err : &local}};
    *job = (oct_job){.form = is_yaml_path(path) ? OCT_JOB_MINDSPEED : OCT_JOB_TITAN};
    char *others = NULL;
    oct_status status = load_into(&l, path, overrides, n, &others);
    if (status)
        oct_job_free(job);
    job->others = others;
    return status;
}

static oct_status load_file(oct_job_reading reading, const char *path, const char *const *overrides,
                            int n, oct_job *job, oct_error *err) {
    *job = (oct_job){0};
    const char *named;
    oct_status status = oct_override_config_file(overrides, n, &named, err);
    if (status)
        return status;
    if (path && named)
        return oct_override_two_files(path, named, err);
    if (!path)
        path = named;
    if (!path || !*path)
        return oct_fail(err, OCT_INVALID,
                        "command line: no job file; expected a .toml or .yaml file");
    return load(reading, path, overrides, n, job, err);
}

oct_status oct_job_load(const char *path, const char *const *overrides, int n, oct_job *job,
                        oct_error *err) {
    return load_file(OCT_JOB_READ_STRICT, path, overrides, n, job, err);
}

oct_status oct_job_default(oct_job *job, oct_error *err) {
    return load(OCT_JOB_READ_STRICT, "", NULL, 0, job, err);
}

static oct_status load_defaults(oct_job_reading reading, const char *const *overrides, int n,
                                oct_job *job, oct_error *err) {
    const char *named;
    oct_status status = oct_override_config_file(overrides, n, &named, err);
    if (!status && named)
        status = oct_fail(err, OCT_INVALID,
                          "command line: --job.config_file: the model is named already; expected "
                          "one of both; got %s",
                          named);
    return status ? status : load(reading, "", overrides, n, job, err);
}

oct_status oct_job_load_as(oct_job_reading reading, const char *path, const char *const *overrides,
                           int n, oct_job *job, oct_error *err) {
    if (path && !*path)
        return load_defaults(reading, overrides, n, job, err);
    return load_file(reading, path, overrides, n, job, err);
}

void oct_job_free(oct_job *job) {
    struct oct_job_state *state = job->state;
    oct_free(job->others);
    if (state) {
        if (state->arena)
            oct_arena_destroy(state->arena);
        oct_free(state->titan);
        oct_free(state->mindspeed);
        oct_strbuf_free(&state->more);
        oct_strbuf_free(&state->unused);
        oct_free(state);
    }
    *job = (oct_job){0};
}
