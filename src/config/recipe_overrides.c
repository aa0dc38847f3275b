/* Recipes of some linears of their own: see recipe_overrides.h. */
#include "config/recipe_overrides.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/nearest.h"
#include "quant/recipe.h"

static const char *const high_precision[] = {"bf16"};

/* `got` NULL: it isn't there. */
static oct_status fail(oct_loader *l, const char *place, const oct_key *key, const char *name,
                       const char *what, const char *expected, const oct_value *got) {
    static const oct_value nothing = {.kind = OCT_VALUE_NULL};
    char path[128];
    snprintf(path, sizeof path, "%s%s%s", key->name, name ? "." : "", name ? name : "");
    return oct_loader_fail(l, place, path, what, expected, got ? got : &nothing);
}

static oct_status read_fqns(oct_loader *l, const oct_key *key, const char *place,
                            const oct_value *value, oct_job_list *fqns) {
    static const char expected[] = "parts of names, such as [\"layers.0.\"]";
    const bool is_list = value && value->kind == OCT_VALUE_LIST;
    if (!is_list || value->items.n == 0)
        return fail(l, place, key, "fqns", value ? "names no module" : "the key is missing",
                    expected, value);
    const char **items = oct_arena_alloc_array(l->builder.arena, value->items.n, sizeof *items);
    if (!items)
        return oct_fail_memory(l->builder.err);
    size_t n = 0;
    for (const oct_value *item = value->items.first; item; item = item->next) {
        if (item->kind != OCT_VALUE_STRING || !*item->string)
            return fail(l, place, key, "fqns", "an item names no module", expected, item);
        items[n++] = item->string;
    }
    *fqns = (oct_job_list){items, n};
    return OCT_OK;
}

static oct_status read_recipe(oct_loader *l, const oct_key *key, const char *place,
                              const oct_value *value, oct_job_override *override) {
    oct_recipe recipe;
    oct_error cause = {0};
    if (!value || value->kind != OCT_VALUE_STRING)
        return fail(l, place, key, "recipe_name", value ? "the wrong type" : "the key is missing",
                    "bf16, or a recipe", value);
    override->recipe_name = value->string;
    override->in_high_precision = strcasecmp(value->string, high_precision[0]) == 0;
    if (override->in_high_precision ||
        oct_recipe_parse_beside(value->string, high_precision, 1, &recipe, &cause) == OCT_OK)
        return OCT_OK;
    return oct_fail(l->builder.err, cause.status, "%s: %s%s.recipe_name: %s", place,
                    oct_loader_dashes(place), key->name, cause.message);
}

static oct_status read_override(oct_loader *l, const oct_key *key, const oct_value *table,
                                const char *place, oct_job_override *override) {
    static const char *const names[] = {"fqns", "recipe_name"};
    if (table->line && !(place = oct_loader_place(l, table->line)))
        return OCT_NO_MEMORY;
    if (table->kind != OCT_VALUE_TABLE)
        return fail(l, place, key, NULL, "an item is no table", "tables of fqns and recipe_name",
                    table);
    for (const oct_value *item = table->items.first; item; item = item->next) {
        const char *near = oct_nearest_name(item->key, names, 2);
        if (strcmp(item->key, names[0]) != 0 && strcmp(item->key, names[1]) != 0)
            return fail(l, place, key, item->key, "unknown key", near ? near : "fqns, recipe_name",
                        item);
    }
    oct_status status = read_fqns(l, key, place, oct_value_find(table, "fqns"), &override->fqns);
    if (!status)
        status = read_recipe(l, key, place, oct_value_find(table, "recipe_name"), override);
    return status;
}

oct_status oct_loader_store_overrides(oct_loader *l, const oct_key *key, const oct_value *value,
                                      const char *place, oct_job_overrides *overrides) {
    const size_t n = value->kind == OCT_VALUE_LIST ? value->items.n : 0;
    oct_job_override *items = oct_arena_alloc_array(l->builder.arena, n + 1, sizeof *items);
    if (!items)
        return oct_fail_memory(l->builder.err);
    const oct_value *item = n ? value->items.first : NULL;
    oct_status status = OCT_OK;
    for (size_t i = 0; item && !status; item = item->next, i++) {
        items[i] = (oct_job_override){0};
        status = read_override(l, key, item, place, &items[i]);
    }
    if (!status)
        *overrides = (oct_job_overrides){items, n, n ? value : NULL};
    return status;
}
