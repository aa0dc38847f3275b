/* The keys of a tree: see tree_settings.h. */
#include "config/tree_settings.h"

#include <stdio.h>
#include <string.h>

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

oct_status oct_loader_check_is_job(oct_loader *l, const oct_value *root) {
    const oct_schema *schema = oct_loader_schema(l);
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
