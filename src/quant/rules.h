/* What a framework does beside what a job says: one table. A job's recipe names formats and
 * granularity; by which rule a scale is found, what HiF8's amax maps to, what is quantized and how
 * gradients are added up is the framework's own affair, and differs. docs/numerics.md has the table
 * for people, with the source of each entry. */
#ifndef OCT_QUANT_RULES_H
#define OCT_QUANT_RULES_H

#include <octet/quirk.h>
#include <stdbool.h>

#include "quant/recipe.h"

typedef enum oct_rule_set {
    OCT_RULES_OCTET,
    OCT_RULES_TORCHTITAN_NPU, /* what "framework" means to a TOML job */
    OCT_RULES_MINDSPEED,      /* ... and to a YAML job */
    OCT_RULES_TORCHTITAN,
    OCT_RULES_TORCHAO, /* from here on for the library alone: jobs can't name them */
    OCT_RULES_TRANSFORMER_ENGINE,
    OCT_RULES_OCP,
    OCT_N_RULE_SETS
} oct_rule_set;

/* Of the operands of forward and dgrad, and of those of wgrad. */
typedef struct oct_scale_rule {
    oct_scale_mode scale_mode, wgrad_scale_mode;
} oct_scale_rule;

typedef struct oct_rules {
    oct_rule_set set;
    const char *name; /* "torchtitan-npu@0.2.2", as quantize.rules has it */
    oct_scale_rule linears, experts;
    float hif8_target[OCT_N_ROLES];
    bool knows_hif8;
    /* What is peculiar about special values and the ends of ranges (oct_quirk): of MX scales by
     * rceil and by the other modes, of one fp32 scale a tensor or channel, and a block. The
     * library's presets have them; a job's quantizers don't. */
    uint32_t rceil_quirks, mx_quirks, scaled_quirks, block_quirks;
    bool rounds_weights;   /* a weight is rounded to training.mixed_precision_param, then quantized;
                              else the fp32 master is */
    bool rounds_gradients; /* a weight's gradient is rounded to that once a micro-batch, then summed
                              in fp32 */
    oct_groups groups;     /* of experts' rows, in per-tensor recipes */
    oct_groups upstream_groups;     /* with quantize.grouped_mm.mx.groups = "upstream" */
    const char *const *filter_fqns; /* the default of quantize.linear.mx.filter_fqns */
    size_t n_filter_fqns;
    const char *linear_recipe; /* the default of quantize.linear.mx.recipe_name */
    /* Where each was read, for `octet plan`; NULL: octet's own choice. */
    const char *scale_source, *target_source, *weight_source, *groups_source, *gradient_source;
    const char *quirk_source;
} oct_rules;

const oct_rules *oct_rules_of(oct_rule_set set);
/* The set of that name; NULL: none. ("framework" is for the caller, who knows the job's form.) */
const oct_rules *oct_rules_find(const char *name);

/* Which kind of module a recipe is for. */
typedef enum oct_module_use { OCT_FOR_LINEARS, OCT_FOR_EXPERTS } oct_module_use;

/* Fills in what the recipe's own name leaves open. `activation` is training.mixed_precision_param:
 * OCT_F32 or OCT_BF16. Call it once, right after oct_recipe_parse. */
void oct_rules_apply(const oct_rules *rules, oct_module_use use, oct_dtype activation,
                     oct_recipe *recipe);

/* What weights' gradients are rounded to once a micro-batch before they are added in fp32; OCT_F32:
 * they aren't. */
oct_dtype oct_rules_gradient(const oct_rules *rules, oct_dtype activation);

#endif
