/* The arms of a comparison: see arms.h. */
#include "compare/arms.h"

#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/strbuf.h"

static oct_status add(oct_arms *arms, const char *name, size_t length, oct_error *err) {
    oct_arm *arm = &arms->items[arms->n];
    if (arms->n == OCT_MAX_ARMS)
        return oct_fail(err, OCT_INVALID, "--recipes: expected at most %d", OCT_MAX_ARMS);
    *arm = (oct_arm){.name = oct_strndup(name, length)};
    if (!arm->name)
        return oct_fail_memory(err);
    arms->n++;
    size_t n = strcspn(arm->name, "@");
    arm->recipe = oct_strndup(arm->name, n);
    if (!arm->recipe)
        return oct_fail_memory(err);
    arm->rules = arm->name[n] ? arm->name + n + 1 : NULL;
    if (!*arm->recipe || (arm->rules && !*arm->rules))
        return oct_fail(err, OCT_INVALID,
                        "--recipes: expected RECIPE or RECIPE@RULES with commas between; got '%s'",
                        arm->name);
    for (int i = 0; i < arms->n - 1; i++)
        if (strcasecmp(arms->items[i].name, arm->name) == 0)
            return oct_fail(err, OCT_INVALID, "--recipes: '%s' is there twice", arm->name);
    return OCT_OK;
}

oct_status oct_arms_read(const char *text, oct_arms *arms, oct_error *err) {
    oct_status status = OCT_OK;
    *arms = (oct_arms){0};
    for (const char *word = text, *next; word && !status; word = next) {
        size_t n = strcspn(word, ",");
        next = word[n] ? word + n + 1 : NULL;
        while (n > 0 && *word == ' ') {
            word++;
            n--;
        }
        while (n > 0 && word[n - 1] == ' ')
            n--;
        status = add(arms, word, n, err);
    }
    return status;
}

oct_status oct_arms_add_other_order(oct_arms *arms, oct_error *err) {
    oct_strbuf name = {0};
    oct_strbuf_printf(&name, "%s-other-order", arms->items[0].name);
    oct_status status = name.failed ? oct_fail_memory(err) : add(arms, name.text, name.length, err);
    oct_strbuf_free(&name);
    if (status)
        return status;
    oct_arm made = arms->items[arms->n - 1];
    const oct_arm *first = &arms->items[0];
    oct_free(made.recipe);
    made.recipe = oct_strdup(first->recipe);
    made.rules = first->rules;
    made.other_order = true;
    memmove(&arms->items[2], &arms->items[1], (size_t)(arms->n - 2) * sizeof made);
    arms->items[1] = made;
    return made.recipe ? OCT_OK : oct_fail_memory(err);
}

void oct_arms_free(oct_arms *arms) {
    for (int i = 0; i < arms->n; i++) {
        oct_free(arms->items[i].name);
        oct_free(arms->items[i].recipe);
    }
    *arms = (oct_arms){0};
}
