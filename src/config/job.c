/* Loading a job: see job.h. The order is: read the file into a tree, collect its keys, collect the
 * command line's, then fill the job from settings and defaults and check it. */
#include "config/job.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/log.h"
#include "config/loader.h"

#define MAX_NAME 512

const oct_key *oct_loader_find(oct_loader *l, const char *name, size_t length,
                               oct_setting **setting) {
    const oct_key *key = NULL;
    if (l->state->mindspeed && (key = oct_schema_find(&oct_schema_mindspeed, name, length)))
        *setting = &l->state->mindspeed[key - oct_schema_mindspeed.keys];
    else if ((key = oct_schema_find(&oct_schema_titan, name, length)))
        *setting = &l->state->titan[key - oct_schema_titan.keys];
    return key;
}

const oct_key *oct_loader_find_table(oct_loader *l, const char *name, oct_setting **setting,
                                     const char **rest) {
    for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.')) {
        const oct_key *key = oct_loader_find(l, name, (size_t)(dot - name), setting);
        if (key && key->type == OCT_KEY_TABLE) {
            *rest = dot + 1;
            return key;
        }
    }
    return NULL;
}

static const oct_schema *own_schema(const oct_loader *l) {
    return l->state->mindspeed ? &oct_schema_mindspeed : &oct_schema_titan;
}

/* "a." is an empty key in a; false: another name. */
static bool is_empty_key(oct_loader *l, const char *place, const char *name) {
    size_t n = strlen(name);
    if (n > 0 && name[n - 1] != '.')
        return false;
    if (n <= 1)
        oct_fail(&l->unknown, OCT_INVALID, "%s: a key is empty; expected a name", place);
    else
        oct_fail(&l->unknown, OCT_INVALID, "%s: %s%.*s: a key in it is empty; expected a name",
                 place, oct_loader_dashes(place), (int)n - 1, name);
    return true;
}

void oct_loader_unknown(oct_loader *l, const char *place, const char *name, const char *what) {
    char section[128];
    const char *near = NULL;
    if (is_empty_key(l, place, name))
        return;
    if (strcmp(what, "section") != 0)
        near = oct_schema_nearest(own_schema(l), name);
    else if (oct_schema_nearest_section(own_schema(l), name, section, sizeof section))
        near = section;
    const char *dashes = oct_loader_dashes(place);
    if (near)
        oct_fail(&l->unknown, OCT_INVALID, "%s: %s%s: unknown %s; the nearest known one is %s%s",
                 place, dashes, name, what, dashes, near);
    else
        oct_fail(&l->unknown, OCT_INVALID,
                 "%s: %s%s: unknown %s; `octet train --help` lists the known ones", place, dashes,
                 name, what);
}

const char *oct_loader_dashes(const char *place) {
    return strcmp(place, OCT_COMMAND_LINE) == 0 ? "--" : "";
}

static const char *format_place(oct_loader *l, int line) {
    int length = snprintf(NULL, 0, "%s:%d", l->builder.path, line);
    char *place = oct_arena_alloc(l->builder.arena, (size_t)length + 1);
    if (!place) {
        oct_fail_memory(l->builder.err);
        return NULL;
    }
    snprintf(place, (size_t)length + 1, "%s:%d", l->builder.path, line);
    return place;
}

static oct_status collect_table(oct_loader *l, const oct_value *table, const char *prefix);

static oct_status collect_item(oct_loader *l, const oct_value *item, const char *prefix) {
    char name[MAX_NAME];
    int length = snprintf(name, sizeof name, "%s%s%s", prefix, *prefix ? "." : "", item->key);
    const char *place = format_place(l, item->line);
    if (!place)
        return OCT_NO_MEMORY;
    if (length >= (int)sizeof name) {
        oct_loader_unknown(l, place, name, "key");
        return OCT_OK;
    }
    oct_setting *setting;
    const oct_schema *schema = own_schema(l);
    const oct_key *key = oct_schema_find(schema, name, (size_t)length);
    if (key) {
        oct_loader_find(l, name, (size_t)length, &setting);
        if (setting->value)
            return oct_fail(l->builder.err, OCT_INVALID, "%s: %s: a key is given twice", place,
                            name);
        *setting = (oct_setting){item, place};
        return OCT_OK;
    }
    if (!oct_schema_has_section(schema, name, (size_t)length)) {
        oct_loader_unknown(l, place, name, item->kind == OCT_VALUE_TABLE ? "section" : "key");
        return OCT_OK;
    }
    if (item->kind == OCT_VALUE_NULL) /* YAML: a section whose keys are all commented out */
        return OCT_OK;
    if (item->kind != OCT_VALUE_TABLE)
        return oct_loader_fail(l, place, name, "a section isn't a value", "a table of keys", item);
    return collect_table(l, item, name);
}

static oct_status collect_table(oct_loader *l, const oct_value *table, const char *prefix) {
    oct_status status = OCT_OK;
    for (const oct_value *item = table->items.first; item && !status; item = item->next)
        status = collect_item(l, item, prefix);
    return status;
}

/* Fills one row's member: from its setting, else from its default. */
static oct_status fill_row(oct_loader *l, const oct_key *key, const oct_setting *setting) {
    if (setting->value)
        return oct_loader_store(l, key, setting->value, setting->place);
    if (key->offset == OCT_NO_MEMBER)
        return OCT_OK;
    const oct_value *value = oct_loader_parse_text(l, key, key->fallback);
    return value ? oct_loader_store(l, key, value, "default") : l->builder.err->status;
}

static oct_status fill_all(oct_loader *l, const oct_schema *schema, const oct_setting *settings) {
    oct_status status = OCT_OK;
    for (size_t i = 0; i < schema->n && !status; i++)
        status = fill_row(l, &schema->keys[i], &settings[i]);
    return status;
}

/* Keys that say at once that the job is for something else; their errors explain the unknown keys
 * that such a job is full of. */
static oct_status fill_telling(oct_loader *l) {
    static const char *const names[] = {"model.name", "job.custom_config_module",
                                        "experimental.custom_import",
                                        "experimental.custom_args_module"};
    oct_status status = OCT_OK;
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !status; i++) {
        oct_setting *setting = NULL;
        const oct_key *key = oct_loader_find(l, names[i], strlen(names[i]), &setting);
        status = fill_row(l, key, setting);
    }
    return status;
}

/* A key of the YAML form also marks the TOML key that it stands for. */
static void share_places(struct oct_job_state *state) {
    for (size_t i = 0; i < oct_schema_mindspeed.n; i++) {
        const char *target = oct_schema_mindspeed.keys[i].target;
        if (!target || !state->mindspeed[i].value)
            continue;
        const oct_key *key = oct_schema_find(&oct_schema_titan, target, strlen(target));
        oct_setting *shared = &state->titan[key - oct_schema_titan.keys];
        if (!shared->value) {
            *shared = state->mindspeed[i];
            shared->name = oct_schema_mindspeed.keys[i].name;
        }
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
    oct_status status = fill_all(l, &oct_schema_mindspeed, l->state->mindspeed);
    if (!status)
        status = fill_titan_overrides(l); /* training.steps, before its share is taken */
    if (!status)
        status = oct_loader_finish_mindspeed(l);
    if (!status)
        status = fill_titan_overrides(l);
    if (!status)
        share_places(l->state);
    return status;
}

static oct_status fill_job(oct_loader *l) {
    oct_status status = fill_telling(l);
    if (!status && l->unknown.status)
        status = oct_fail(l->builder.err, OCT_INVALID, "%s", l->unknown.message);
    if (!status)
        status = fill_all(l, &oct_schema_titan, l->state->titan);
    if (!status && l->state->mindspeed)
        status = fill_mindspeed(l);
    return status ? status : oct_loader_check(l);
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

static oct_status load_into(oct_loader *l, const char *path, const char *const *overrides, int n) {
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
        status = collect_table(l, root, "");
    if (!status)
        status = oct_loader_apply_overrides(l, overrides, n);
    return status ? status : fill_job(l);
}

static oct_status load(const char *path, const char *const *overrides, int n, oct_job *job,
                       oct_error *err) {
    oct_error local = {0};
    oct_loader l = {.job = job, .builder = {.path = path, .err = err ? err : &local}};
    *job = (oct_job){.form = is_yaml_path(path) ? OCT_JOB_MINDSPEED : OCT_JOB_TITAN};
    oct_status status = load_into(&l, path, overrides, n);
    if (status)
        oct_job_free(job);
    return status;
}

oct_status oct_job_load(const char *path, const char *const *overrides, int n, oct_job *job,
                        oct_error *err) {
    *job = (oct_job){0};
    const char *named = oct_override_config_file(overrides, n);
    if (path && named)
        return oct_fail(err, OCT_INVALID,
                        "command line: job.config_file: two job files; expected one; got %s and %s",
                        path, named);
    if (!path)
        path = named;
    if (!path || !*path)
        return oct_fail(err, OCT_INVALID,
                        "command line: no job file; expected a .toml or .yaml file");
    return load(path, overrides, n, job, err);
}

oct_status oct_job_default(oct_job *job, oct_error *err) {
    return load("", NULL, 0, job, err);
}

void oct_job_free(oct_job *job) {
    struct oct_job_state *state = job->state;
    if (state) {
        if (state->arena)
            oct_arena_destroy(state->arena);
        oct_free(state->titan);
        oct_free(state->mindspeed);
        oct_free(state);
    }
    *job = (oct_job){0};
}

/* The setting of `key`, which may also name an entry of a free table; NULL when not set. */
static const oct_setting *find_setting(const oct_job *job, const char *key,
                                       const oct_value **entry) {
    oct_loader l = {.job = (oct_job *)job, .state = job->state};
    oct_setting *setting = NULL;
    const char *rest;
    *entry = NULL;
    if (!job->state)
        return NULL;
    if (oct_loader_find(&l, key, strlen(key), &setting))
        return setting->value ? setting : NULL;
    if (!oct_loader_find_table(&l, key, &setting, &rest) || !setting->value)
        return NULL;
    *entry = oct_value_find(setting->value, rest);
    return *entry ? setting : NULL;
}

const char *oct_job_where(const oct_job *job, const char *key) {
    const oct_value *entry;
    const oct_setting *setting = find_setting(job, key, &entry);
    if (!setting)
        return "default";
    if (!entry)
        return setting->place;
    if (!entry->line)
        return OCT_COMMAND_LINE;
    oct_error ignored = {0};
    oct_loader l = {.builder = {job->path, job->state->arena, &ignored}};
    const char *place = format_place(&l, entry->line);
    return place ? place : job->path;
}

/* What the user calls `key`: a YAML job has names of its own. */
static const char *name_for_user(const oct_job *job, const char *key) {
    const oct_value *entry;
    const oct_setting *setting = find_setting(job, key, &entry);
    if (setting)
        return setting->name && !entry ? setting->name : key;
    for (size_t i = 0; i < oct_schema_mindspeed.n && job->form == OCT_JOB_MINDSPEED; i++) {
        const oct_key *row = &oct_schema_mindspeed.keys[i];
        if (row->target && strcmp(row->target, key) == 0)
            return row->name;
    }
    return key;
}

const char *oct_job_at(const oct_job *job, const char *key) {
    const char *place = oct_job_where(job, key), *dashes = oct_loader_dashes(place);
    const char *name = name_for_user(job, key);
    int length = snprintf(NULL, 0, "%s: %s%s", place, dashes, name);
    char *text = job->state ? oct_arena_alloc(job->state->arena, (size_t)length + 1) : NULL;
    if (!text)
        return place;
    snprintf(text, (size_t)length + 1, "%s: %s%s", place, dashes, name);
    return text;
}

const char *oct_job_blame(const oct_job *job, const char *const *keys, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(oct_job_where(job, keys[i]), OCT_COMMAND_LINE) == 0)
            return keys[i];
    for (size_t i = 0; i < n; i++)
        if (oct_job_is_set(job, keys[i]))
            return keys[i];
    return keys[0];
}

bool oct_job_is_set(const oct_job *job, const char *key) {
    const oct_value *entry;
    return find_setting(job, key, &entry) != NULL;
}

static void log_inert(const oct_schema *schema, const oct_setting *settings) {
    oct_strbuf names = {0};
    for (size_t i = 0; i < schema->n; i++)
        if (schema->keys[i].kind == OCT_KEY_INERT && settings[i].value)
            oct_strbuf_printf(&names, "%s%s", names.length ? ", " : "", schema->keys[i].name);
    if (names.length && !names.failed)
        oct_log_info("Accepted without effect here: %s", names.text);
    oct_strbuf_free(&names);
}

void oct_job_log_notes(const oct_job *job) {
    log_inert(&oct_schema_titan, job->state->titan);
    if (job->state->mindspeed)
        log_inert(&oct_schema_mindspeed, job->state->mindspeed);
    for (size_t i = 0; i < job->model.converters.n; i++) {
        const char *name = job->model.converters.items[i];
        if (strncmp(name, "npu_", 4) == 0 && strcmp(name, "npu_gmm") != 0)
            oct_log_info("Converter %s (a fused NPU kernel) is accepted without effect here", name);
    }
}
