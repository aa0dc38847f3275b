/* From names to quantizers: see octet/preset.h. The rules are those of quant/rules.c. */
#include <octet/preset.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/describe.h"
#include "base/nearest.h"
#include "base/struct_size.h"
#include "format/fp8.h"
#include "quant/recipe.h"
#include "quant/rules.h"

const char *oct_rules_name(int i) {
    return i >= 0 && i < OCT_N_RULE_SETS ? oct_rules_of((oct_rule_set)i)->name : NULL;
}

/* With its version or without. */
static const oct_rules *find_rules(const char *name) {
    for (int i = 0; i < OCT_N_RULE_SETS; i++) {
        const oct_rules *rules = oct_rules_of((oct_rule_set)i);
        const size_t length = strcspn(rules->name, "@");
        if (strcmp(rules->name, name) == 0 ||
            (strncmp(rules->name, name, length) == 0 && name[length] == '\0'))
            return rules;
    }
    return NULL;
}

static oct_status refuse_rules(const char *name, oct_error *err) {
    char bare[OCT_N_RULE_SETS][32], list[256] = "";
    const char *names[OCT_N_RULE_SETS];
    size_t used = 0;
    for (int i = 0; i < OCT_N_RULE_SETS; i++) {
        const char *full = oct_rules_name(i);
        snprintf(bare[i], sizeof bare[i], "%.*s", (int)strcspn(full, "@"), full);
        names[i] = bare[i];
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", full);
    }
    const char *near = oct_nearest_name(name, names, OCT_N_RULE_SETS);
    return oct_fail(err, OCT_INVALID, "rules \"%.60s\" are unknown%s%s%s; expected %s", name,
                    near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "", list);
}

static oct_status refuse_block(const char *recipe, oct_error *err) {
    return oct_fail(err, OCT_INVALID,
                    "recipe \"%.100s\": expected :mx, :mx32x32 (or :mx-rceil, ...), :tensor, "
                    ":channel or :RxC (\"*\": "
                    "all of a dimension) after the format",
                    recipe);
}

/* A number of elements, or "*": all, which is 0. */
static bool read_extent(const char **text, int64_t *extent) {
    char *end;
    if (**text == '*') {
        *extent = 0;
        ++*text;
        return true;
    }
    if (**text < '1' || **text > '9')
        return false;
    *extent = strtol(*text, &end, 10);
    *text = end;
    return *extent <= 1 << 30;
}

static bool read_extents(const char *text, oct_quantizer *q) {
    return read_extent(&text, &q->block_rows) && *text++ == 'x' &&
           read_extent(&text, &q->block_cols) && *text == '\0';
}

/* "mx" or "mx32x32", and perhaps a scale mode after a hyphen, which *named says. */
static bool read_mx(const char *text, oct_quantizer *q, bool *named) {
    const size_t length = strcspn(text, "-");
    const bool tiles = length == 7 && strncmp(text, "mx32x32", 7) == 0;
    q->scale_dtype = OCT_E8M0;
    q->block_cols = OCT_MX_BLOCK;
    q->block_rows = tiles ? OCT_MX_BLOCK : 1;
    *named = text[length] == '-';
    return (tiles || length == 2) &&
           (!*named || oct_scale_mode_parse(text + length + 1, &q->scale_mode, NULL) == OCT_OK);
}

/* What follows the colon, for blocks along the rows. */
static bool read_block(const char *text, oct_quantizer *q, bool *names_mode) {
    q->scale_dtype = OCT_F32;
    if (strncmp(text, "mx", 2) == 0)
        return read_mx(text, q, names_mode);
    if (strcmp(text, "tensor") == 0)
        return read_extents("*x*", q);
    if (strcmp(text, "channel") == 0)
        return read_extents("1x*", q);
    return read_extents(text, q);
}

static bool read_format(const char *name, size_t length, oct_dtype *format) {
    static const oct_dtype formats[] = {OCT_E4M3, OCT_E5M2, OCT_HIF8};
    for (int i = 0; i < 3; i++) {
        const char *known = oct_dtype_name(formats[i]);
        if (strlen(known) == length && strncasecmp(name, known, length) == 0) {
            *format = formats[i];
            return true;
        }
    }
    return false;
}

typedef struct wanted {
    const oct_rules *rules;
    oct_module_use module;
    oct_role role;
    int axis;
} wanted;

static void turn(oct_quantizer *q, int axis) {
    const int64_t rows = q->block_rows;
    if (axis == 0) {
        q->block_rows = q->block_cols;
        q->block_cols = rows;
    }
}

static uint32_t quirks_of(const oct_rules *rules, const oct_quantizer *q) {
    if (q->scale_dtype == OCT_E8M0)
        return q->scale_mode == OCT_SCALE_RCEIL ? rules->rceil_quirks : rules->mx_quirks;
    const bool block = q->block_rows > 1 || q->block_cols > 1;
    return block ? rules->block_quirks : rules->scaled_quirks;
}

/* "e4m3:1x128": the format and block are said, the rest is the rules'. */
static oct_status by_block(const char *recipe, const wanted *w, oct_quantizer *q, oct_error *err) {
    const char *colon = strchr(recipe, ':');
    const oct_scale_rule *scale =
        w->module == OCT_FOR_EXPERTS ? &w->rules->experts : &w->rules->linears;
    if (!read_format(recipe, (size_t)(colon - recipe), &q->format))
        return oct_fail(err, OCT_INVALID, "recipe \"%.100s\": expected e4m3, e5m2 or hif8 first",
                        recipe);
    bool names_mode = false;
    if (!read_block(colon + 1, q, &names_mode))
        return refuse_block(recipe, err);
    if (q->format == OCT_HIF8 && q->scale_dtype == OCT_E8M0)
        return oct_fail(err, OCT_INVALID, "recipe \"%.100s\": mx is for e4m3 and e5m2", recipe);
    turn(q, w->axis);
    const bool wgrad = w->role != OCT_ROLE_WEIGHT && w->axis == 0;
    if (!names_mode)
        q->scale_mode = wgrad ? scale->wgrad_scale_mode : scale->scale_mode;
    q->target = q->format == OCT_HIF8 ? w->rules->hif8_target[w->role] : oct_fp8_largest(q->format);
    return OCT_OK;
}

static oct_status by_recipe(const char *name, const wanted *w, oct_quantizer *q, oct_error *err) {
    oct_recipe recipe;
    oct_status status = oct_recipe_parse(name, &recipe, err);
    if (status)
        return status;
    if (recipe.strategy == OCT_DELAYED)
        return oct_fail(err, OCT_INVALID,
                        "recipe \"%.100s\": a delayed scale is that of earlier steps, which one "
                        "quantizer doesn't know; expected a dynamic recipe",
                        name);
    oct_rules_apply(w->rules, w->module, OCT_BF16, &recipe);
    q->format = recipe.format[w->role];
    q->scale_dtype = recipe.granularity == OCT_MX ? OCT_E8M0 : OCT_F32;
    q->scale_mode = oct_recipe_scale_mode(&recipe, w->role, w->axis);
    q->target = recipe.target[w->role];
    if (recipe.granularity == OCT_MX) {
        q->block_rows = w->role == OCT_ROLE_WEIGHT ? recipe.weight_block_rows : 1;
        q->block_cols = OCT_MX_BLOCK;
    } else if (recipe.granularity == OCT_PER_CHANNEL) {
        q->block_rows = 1;
    }
    turn(q, w->axis);
    return OCT_OK;
}

oct_status oct_quantizer_preset(const char *recipe, const char *rules, oct_use use, int axis,
                                oct_quantizer *out, oct_error *err) {
    oct_quantizer q, zeros = {0};
    if (!recipe || !oct_read_struct(out, &q, sizeof q, sizeof q))
        return oct_fail(err, OCT_INVALID, "a recipe's name and a struct of its size are needed");
    const int role = (int)use & ~OCT_USE_OF_EXPERTS;
    if (role < 0 || role >= OCT_N_ROLES || (axis != 0 && axis != 1))
        return oct_fail(err, OCT_INVALID, "use %d, axis %d: expected one of oct_use, and 0 or 1",
                        (int)use, axis);
    const wanted w = {.rules = find_rules(rules ? rules : "octet"),
                      .module = (int)use & OCT_USE_OF_EXPERTS ? OCT_FOR_EXPERTS : OCT_FOR_LINEARS,
                      .role = (oct_role)role,
                      .axis = axis};
    if (!w.rules)
        return refuse_rules(rules, err);
    q = zeros;
    oct_status status =
        strchr(recipe, ':') ? by_block(recipe, &w, &q, err) : by_recipe(recipe, &w, &q, err);
    if (status)
        return status;
    if (q.format == OCT_HIF8 && !w.rules->knows_hif8)
        return oct_fail(err, OCT_INVALID, "recipe \"%.100s\": %s has no HiF8", recipe,
                        w.rules->name);
    q.quirks = quirks_of(w.rules, &q);
    q.source = w.role == OCT_ROLE_WEIGHT && w.rules->rounds_weights ? OCT_BF16 : OCT_F32;
    oct_write_struct(&q, sizeof q, out);
    return OCT_OK;
}
