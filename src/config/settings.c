/* Finding what a user wrote, and telling where: see settings.h and job.h. */
#include "config/settings.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/count.h"
#include "base/log.h"
#include "config/fused.h"
#include "quant/rules.h"

/* ---- rows and their settings ---- */

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

const oct_schema *oct_loader_schema(const oct_loader *l) {
    return l->state->mindspeed ? &oct_schema_mindspeed : &oct_schema_titan;
}

const char *oct_loader_dashes(const char *place) {
    return strcmp(place, OCT_COMMAND_LINE) == 0 ? "--" : "";
}

const char *oct_loader_place(oct_loader *l, int line) {
    int length = snprintf(NULL, 0, "%s:%d", l->builder.path, line);
    char *place = oct_arena_alloc(l->builder.arena, (size_t)length + 1);
    if (!place) {
        oct_fail_memory(l->builder.err);
        return NULL;
    }
    snprintf(place, (size_t)length + 1, "%s:%d", l->builder.path, line);
    return place;
}

bool oct_setting_is_asked_for(const oct_setting *setting) {
    const oct_value *value = setting->value;
    return value && strcmp(setting->place, OCT_COMMAND_LINE) == 0 &&
           value->kind != OCT_VALUE_NULL && !(value->kind == OCT_VALUE_BOOL && !value->boolean);
}

/* ---- errors ---- */

static void describe(const oct_value *value, char *text, size_t size) {
    switch (value->kind) {
    case OCT_VALUE_BOOL:
        snprintf(text, size, "%s", value->boolean ? "true" : "false");
        break;
    case OCT_VALUE_INT:
        snprintf(text, size, "%" PRId64, value->integer);
        break;
    case OCT_VALUE_DOUBLE:
        oct_value_format_double(value->number, text, size);
        break;
    case OCT_VALUE_STRING:
        snprintf(text, size, "\"%.100s\"", value->string);
        break;
    default:
        snprintf(text, size, "%s", oct_value_kind_name(value->kind));
    }
}

oct_status oct_loader_fail(oct_loader *l, const char *place, const char *name, const char *what,
                           const char *expected, const oct_value *got) {
    char text[128];
    describe(got, text, sizeof text);
    return oct_fail(l->builder.err, OCT_INVALID, "%s: %s%s: %s; expected %s; got %s", place,
                    oct_loader_dashes(place), name, what, expected, text);
}

oct_status oct_loader_fail_text(oct_loader *l, const char *key, const char *what,
                                const char *expected, const char *got) {
    return oct_fail(l->builder.err, OCT_INVALID, "%s: %s; expected %s; got %.100s",
                    oct_job_at(l->job, key), what, expected, got);
}

/* ---- places, for everybody ---- */

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
    const char *place = oct_loader_place(&l, entry->line);
    return place ? place : job->path;
}

const char *oct_job_name(const oct_job *job, const char *key) {
    const oct_value *entry;
    const oct_setting *setting = find_setting(job, key, &entry);
    if (setting)
        return setting->name && !entry ? setting->name : key;
    if (oct_schema_find(&oct_schema_mindspeed, key, strlen(key))) /* others may spell it too */
        return key;
    for (size_t i = 0; i < oct_schema_mindspeed.n && job->form == OCT_JOB_MINDSPEED; i++) {
        const oct_key *row = &oct_schema_mindspeed.keys[i];
        if (row->target && strcmp(row->target, key) == 0)
            return row->name;
    }
    return key;
}

const char *oct_job_at(const oct_job *job, const char *key) {
    const char *place = oct_job_where(job, key), *dashes = oct_loader_dashes(place);
    const char *name = oct_job_name(job, key);
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

bool oct_job_asks_for(const oct_job *job, const char *key) {
    const oct_value *entry;
    const oct_setting *setting = find_setting(job, key, &entry);
    return setting && !setting->name && oct_setting_is_asked_for(setting);
}

bool oct_job_is_npu(const oct_job *job) {
    static const char *const keys[] = {"job.custom_config_module",
                                       "experimental.custom_args_module"};
    for (size_t i = 0; i < OCT_COUNT(keys); i++) {
        const oct_key *key = oct_schema_find(&oct_schema_titan, keys[i], strlen(keys[i]));
        const oct_value *value = job->state->titan[key - oct_schema_titan.keys].value;
        if (value && value->kind == OCT_VALUE_STRING && *value->string)
            return true;
    }
    return false;
}

const struct oct_rules *oct_job_rules(const oct_job *job) {
    const oct_rules *rules = oct_rules_find(job->quantize.rules);
    oct_rule_set own =
        job->form == OCT_JOB_MINDSPEED ? OCT_RULES_MINDSPEED : OCT_RULES_TORCHTITAN_NPU;
    return rules ? rules : oct_rules_of(own);
}

static bool is_on(const oct_job *job, const char *name) {
    const oct_key *key = oct_schema_find(&oct_schema_mindspeed, name, strlen(name));
    const oct_value *value = job->state->mindspeed[key - oct_schema_mindspeed.keys].value;
    return value && value->kind == OCT_VALUE_BOOL && value->boolean;
}

bool oct_job_framework_drops_masters(const oct_job *job, int n_shards) {
    return job->form == OCT_JOB_MINDSPEED && n_shards == 1 &&
           job->training.mixed_precision_param == OCT_JOB_BFLOAT16 &&
           !is_on(job, "training.init_model_with_meta_device");
}

const char *const oct_datasets[OCT_N_DATASETS] = {"data.dataset_param.", "data.val_dataset_param."};
const char *const oct_chat_keys[OCT_N_CHAT_KEYS] = {"template",      "train_on_prompt",
                                                    "mask_history",  "enable_thinking",
                                                    "chat_template", "tool_format"};

/* Why a key has no effect. */
typedef enum inert_kind { INERT_HERE, INERT_CHAT, INERT_COLUMN } inert_kind;

static inert_kind kind_of_inert(const char *name) {
    static const char basic[] = "basic_parameters.", columns[] = "attr.";
    const char *rest = NULL;
    for (size_t i = 0; i < OCT_N_DATASETS && !rest; i++)
        if (strncmp(name, oct_datasets[i], strlen(oct_datasets[i])) == 0)
            rest = name + strlen(oct_datasets[i]);
    if (!rest)
        return INERT_HERE;
    if (strncmp(rest, columns, strlen(columns)) == 0)
        return INERT_COLUMN;
    for (size_t i = 0; i < OCT_N_CHAT_KEYS && strncmp(rest, basic, strlen(basic)) == 0; i++)
        if (strcmp(rest + strlen(basic), oct_chat_keys[i]) == 0)
            return INERT_CHAT;
    return INERT_HERE;
}

/* The inert keys of a kind that are set to something, with commas between; no text: none. */
static oct_strbuf list_inert(const oct_schema *schema, const oct_setting *settings,
                             inert_kind kind) {
    oct_strbuf names = {0};
    for (size_t i = 0; i < schema->n; i++)
        if (schema->keys[i].kind == OCT_KEY_INERT && settings[i].value &&
            settings[i].value->kind != OCT_VALUE_NULL &&
            kind_of_inert(schema->keys[i].name) == kind)
            oct_strbuf_printf(&names, "%s%s", names.length ? ", " : "", schema->keys[i].name);
    return names;
}

/* Columns are a warning: which data it is isn't the machine's affair. */
static void log_inert(const oct_schema *schema, const oct_setting *settings) {
    static const char *const why[] = {"Accepted without effect here",
                                      "Not used, since plain text has no roles",
                                      "Documents are their \"text\" alone, whatever "
                                      "columns the job names"};
    for (int kind = INERT_HERE; kind <= INERT_COLUMN; kind++) {
        oct_strbuf names = list_inert(schema, settings, (inert_kind)kind);
        if (names.length && !names.failed && kind == INERT_COLUMN)
            oct_log_warning("%s: %s", why[kind], names.text);
        else if (names.length && !names.failed)
            oct_log_info("%s: %s", why[kind], names.text);
        oct_strbuf_free(&names);
    }
}

static void log_unused(const oct_strbuf *unused) {
    const char *line = unused->length ? unused->text : "";
    for (; *line; line += strcspn(line, "\n") + 1)
        oct_log_warning("%.*s", (int)strcspn(line, "\n"), line);
}

void oct_job_log_notes(const oct_job *job) {
    log_unused(&job->state->unused);
    log_inert(&oct_schema_titan, job->state->titan);
    if (job->state->mindspeed) {
        log_inert(&oct_schema_mindspeed, job->state->mindspeed);
        if (!oct_job_is_set(job, "parallel.fsdp_plan.param_dtype"))
            oct_log_warning("Activations are float32, as in MindSpeed MM without "
                            "parallel.fsdp_plan.param_dtype; its example jobs say bf16");
    }
    for (size_t i = 0; i < job->model.converters.n; i++) {
        const char *name = job->model.converters.items[i];
        if (oct_is_fused_kernel(name))
            oct_log_info("Converter %s (a fused NPU kernel) is accepted without effect here", name);
    }
}
