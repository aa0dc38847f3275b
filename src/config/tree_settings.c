/* The keys of a tree: see tree_settings.h. */
#include "config/tree_settings.h"

#include <stdio.h>
#include <string.h>

#include "base/count.h"
#include "config/refusals.h"

#define MAX_NAME 512

/* A place for a value of the file; what an option holds has no line. */
static const char *place_of(oct_loader *l, const oct_value *item) {
    return item->line ? oct_loader_place(l, item->line) : OCT_COMMAND_LINE;
}

/* One key of a table; tables of a section are for the caller. */
static oct_status collect_key(oct_loader *l, const oct_value *item, const char *name,
                              const char *place) {
    const oct_schema *schema = oct_loader_schema(l);
    bool section = oct_schema_has_section(schema, name, strlen(name));
    oct_setting *setting;
    if (oct_schema_find(schema, name, strlen(name))) {
        oct_loader_find(l, name, strlen(name), &setting);
        if (setting->value)
            return oct_fail(l->builder.err, OCT_INVALID, "%s: %s: a key is given twice", place,
                            name);
        *setting = (oct_setting){item, place, NULL};
        return OCT_OK;
    }
    if (!section)
        return oct_loader_unknown(l, place, name,
                                  item->kind == OCT_VALUE_TABLE ? "section" : "key");
    if (item->kind == OCT_VALUE_NULL) /* YAML: a section whose keys are all commented out */
        return OCT_OK;
    return oct_loader_fail(l, place, name, "a section isn't a value", "a table of keys", item);
}

oct_status oct_loader_collect(oct_loader *l, const oct_value *table, const char *prefix) {
    oct_status status = OCT_OK;
    for (const oct_value *item = table->items.first; item && !status; item = item->next) {
        char name[MAX_NAME];
        int length = snprintf(name, sizeof name, "%s%s%s", prefix, *prefix ? "." : "", item->key);
        const char *place = place_of(l, item);
        if (!place)
            return OCT_NO_MEMORY;
        if (length >= (int)sizeof name)
            status = oct_loader_unknown(l, place, name, "key");
        else if (item->kind == OCT_VALUE_TABLE &&
                 oct_schema_has_section(oct_loader_schema(l), name, (size_t)length))
            status = oct_loader_collect(l, item, name);
        else
            status = oct_loader_refuse(l, collect_key(l, item, name, place), OCT_REFUSED_BY_PLACE);
    }
    return status;
}

/* Whether a name at the top of a file is there in a job, or is a slip of one that is. */
static bool belongs(const oct_schema *schema, const char *name) {
    char near[128];
    const char *key = oct_schema_nearest(schema, name);
    return !*name || oct_schema_find(schema, name, strlen(name)) ||
           oct_schema_has_section(schema, name, strlen(name)) || (key && !strchr(key, '.')) ||
           oct_schema_nearest_section(schema, name, near, sizeof near);
}

/* The value of "section.key", or NULL. */
static const oct_value *find_in_section(const oct_value *root, const char *name) {
    char section[64];
    const char *dot = strchr(name, '.');
    snprintf(section, sizeof section, "%.*s", (int)(dot - name), name);
    const oct_value *table = oct_value_find(root, section);
    return table && table->kind == OCT_VALUE_TABLE ? oct_value_find(table, dot + 1) : NULL;
}

/* MindSpeed LLM has jobs with the sections of MindSpeed MM's and other keys in them (its
 * examples/fsdp2): not one slip after another, but a form that isn't read. */
static oct_status check_is_not_llm(oct_loader *l, const oct_value *root) {
    static const char *const words[] = {
        "parallel.fsdp_modules",      "parallel.recompute_modules",
        "parallel.fsdp_size",         "parallel.ep_size",
        "parallel.cp_size",           "training.stage",
        "training.max_steps",         "training.save_steps",
        "training.logging_steps",     "training.max_grad_norm",
        "training.warmup_ratio",      "training.min_lr",
        "training.lr_scheduler_type", "training.per_device_train_batch_size",
        "training.output_dir",        "data.cutoff_len",
        "data.max_samples",           "data.data_manager_type",
        "model.train_from_scratch",   "model.tokenizer_name_or_path"};
    static const char *const own[] = {"parallel.fsdp_plan", "training.train_iters",
                                      "data.dataset_param", "training.micro_batch_size"};
    enum { FEWEST = 2, N_WORDS = OCT_COUNT(words) };
    const oct_value *first = NULL;
    const char *name = NULL;
    int n = 0;
    for (size_t i = 0; i < OCT_COUNT(own); i++)
        if (find_in_section(root, own[i]))
            return OCT_OK;
    for (size_t i = 0; i < N_WORDS; i++) {
        const oct_value *found = find_in_section(root, words[i]);
        n += found != NULL;
        if (found && (!first || found->line < first->line)) {
            first = found;
            name = words[i];
        }
    }
    if (n < FEWEST)
        return OCT_OK;
    const char *place = oct_loader_place(l, first->line);
    if (!place)
        return OCT_NO_MEMORY;
    return oct_fail(l->builder.err, OCT_INVALID,
                    "%s: %s: a job of MindSpeed LLM (%d of its words are here), which isn't read; "
                    "expected a MindSpeed MM job, with data.dataset_param, training.train_iters "
                    "and training.micro_batch_size, or a torchtitan job (.toml)",
                    place, name, n);
}

oct_status oct_loader_check_is_job(oct_loader *l, const oct_value *root) {
    const oct_schema *schema = oct_loader_schema(l);
    if (l->job->form == OCT_JOB_MINDSPEED) {
        oct_status status = check_is_not_llm(l, root);
        if (status)
            return status;
    }
    const oct_value *first = root->items.first;
    for (const oct_value *item = first; item; item = item->next)
        if (belongs(schema, item->key))
            return OCT_OK;
    const char *place = first ? oct_loader_place(l, first->line) : NULL;
    if (!first)
        return OCT_OK;
    if (!place)
        return OCT_NO_MEMORY;
    bool yaml = l->job->form == OCT_JOB_MINDSPEED;
    const char *near = oct_schema_nearest(schema, first->key);
    return oct_fail(
        l->builder.err, OCT_INVALID,
        "%s: %.100s: unknown %s, and no section of a %s is in the file; expected %s%s%s", place,
        first->key, first->kind == OCT_VALUE_TABLE ? "section" : "key",
        yaml ? "MindSpeed MM job" : "torchtitan job",
        yaml ? "model, data, parallel, training, features or tools"
             : "job, model, training, optimizer, ...",
        near ? "; the nearest known key is " : "", near ? near : "");
}
