/* What the framework whose rules hold would itself make of each module of a plan, where that isn't
 * what octet does: it skips or refuses some, and finds others by patterns that octet reads as their
 * author meant them. For `octet plan`; nothing else asks. */
#ifndef OCT_CONVERT_FRAMEWORK_H
#define OCT_CONVERT_FRAMEWORK_H

#include "convert/plan.h"
#include "quant/rules.h"

typedef struct oct_framework_facts {
    const oct_rules *rules;
    bool gathers_linears, gathers_experts; /* in 8 bits */
    bool recipe_is_default;                /* nobody wrote the recipe of a TOML job's linears */
    bool lists_start_empty;      /* what a YAML plan doesn't write is an empty list there */
    bool converters_are_default; /* nobody wrote a YAML plan's quant_converters */
} oct_framework_facts;

/* Fills the plan's `framework` and each row's. `specs` are those that the plan was made of.
 * OCT_NO_MEMORY is the only failure. */
oct_status oct_plan_note_framework(oct_plan *plan, const oct_converter_spec *specs, int64_t n_specs,
                                   const oct_framework_facts *facts);
/* Modules that the framework would skip, refuse or convert otherwise. */
int64_t oct_plan_count_framework(const oct_plan *plan);

#endif
