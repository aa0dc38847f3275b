/* The plan: which linear and expert modules become 8-bit, and which pattern decided it.
 *
 * Planning only reads the module tree, so a model without parameter memory is enough. One function
 * decides and all else follows the plan: `octet plan` prints it, conversion applies it, the sharded
 * gather reads it. */
#ifndef OCT_CONVERT_PLAN_H
#define OCT_CONVERT_PLAN_H

#include <octet/status.h>
#include <octet/tensor.h>
#include <stdbool.h>

#include "base/strbuf.h"
#include "nn/module.h"
#include "quant/recipe.h"

/* What a converter does. Experts are run by grouped products first, then those are quantized. */
typedef enum oct_converter_kind {
    OCT_CONVERT_GROUPED_MM, /* npu_gmm, alias grouped_mm */
    OCT_CONVERT_LINEAR,     /* quantize.linear.mx */
    OCT_CONVERT_EXPERTS     /* quantize.grouped_mm.mx, quantize.moe.mx */
} oct_converter_kind;

typedef enum oct_pattern_kind {
    OCT_PATTERN_SUBSTRING, /* torchtitan: a case-sensitive substring of the name */
    OCT_PATTERN_GLOB /* MindSpeed MM: anchored, `*` `?` `{*}` `{a-b}`, and all below the module */
} oct_pattern_kind;

typedef struct oct_pattern_list {
    oct_pattern_kind kind;
    const char *const *patterns;
    int64_t n;
    bool written;      /* by the user: a default that matches nothing is silent */
    const char *key;   /* "quantize.linear.mx.filter_fqns", for reasons */
    const char *where; /* place and key: "job.toml:12: quantize...", for messages */
} oct_pattern_list;

typedef struct oct_converter_spec {
    oct_converter_kind kind;
    const char *name;         /* as the user wrote it, for messages */
    const char *where;        /* place and key, for messages */
    const oct_recipe *recipe; /* NULL for OCT_CONVERT_GROUPED_MM; must outlive the model */
    bool is_override;         /* of modules that `include` names alone, whatever was decided before;
                                 recipe NULL: they stay in high precision */
    oct_pattern_list include; /* n == 0 and not written: every module */
    oct_pattern_list exclude; /* wins over include */
} oct_converter_spec;

/* The name of a module as the job's user knows it (torchtitan's or Hugging Face's). NULL function:
 * module->name. */
typedef const char *(*oct_module_namer)(void *context, const oct_module *m);

typedef struct oct_plan_row {
    oct_module *module; /* a linear or the experts of one layer */
    const char *name;   /* as the namer gives it; owned by the plan */
    bool is_experts;
    int n_dims;
    int64_t shape[3];         /* (N,K), or of experts w1's (E,N,K) */
    const oct_recipe *recipe; /* NULL: kept in high precision */
    bool grouped;             /* experts: one grouped product */
    char reason[160];         /* "matches no pattern", "filter_fqns: \"output\"", ... */
    char *framework;          /* what the framework itself would do otherwise (convert/framework.h);
                                 NULL: nothing; owned by the plan */
    int64_t bytes_dense;      /* of the weight, or of all three of experts, in bf16 */
    int64_t bytes_quantized;  /* of codes and scales of the orientations that training keeps; 0 if
                                 kept */
} oct_plan_row;

typedef struct oct_plan {
    oct_plan_row *rows;
    int64_t n_rows;
    const struct oct_rules *rules; /* whoever made the recipes by them says so, to be printed; NULL
                                      until then */
    oct_dtype activation;
    char **warnings; /* for users: patterns that match nothing (with the closest names), patterns
                        that end in a number */
    int64_t n_warnings;
    char *framework; /* what the framework would do otherwise to the whole plan; NULL: nothing;
                        owned by the plan (convert/framework.h) */
    bool framework_takes_none; /* by that note it would convert no module of the plan */
    const char *all_missed;    /* the warning of a list that the user wrote, no pattern of which
                                  matched, for which `octet plan` exits 2; NULL: there is none */
} oct_plan;

/* Decides. Errors (OCT_INVALID): OCT_CONVERT_EXPERTS without OCT_CONVERT_GROUPED_MM before it
 * (`all_at_once` off); a converter that converts nothing, unless `all_at_once` (a YAML plan) and
 * another one converts something; a malformed pattern. */
oct_status oct_plan_create(oct_module *root, const oct_converter_spec *specs, int64_t n_specs,
                           bool all_at_once, oct_module_namer namer, void *namer_context,
                           oct_plan **plan, oct_error *err);
void oct_plan_destroy(oct_plan *plan);

/* Swaps the ops of what the plan converts and logs the lines that users' check lists look for:
 * "MX training active with recipe ...", "Swapped to MXLinear_NPU layers: N", "... MoE training
 * enabled", ... */
oct_status oct_plan_apply(const oct_plan *plan, oct_error *err);

/* The optimizer has changed the weights: delayed scales move on by one step. */
void oct_plan_end_step(const oct_plan *plan);
/* The amax history (slots, length) of a row with a delayed recipe (quant/delayed.h), for
 * checkpoints: data points at the live history, which may be overwritten by a saved one. data is
 * NULL for all other rows. */
oct_tensor oct_plan_row_history(const oct_plan_row *row);
/* The same for the amaxes of the step under way, which become the newest of the history: processes
 * that train together take their maxima first. */
oct_tensor oct_plan_row_amaxes(const oct_plan_row *row);

/* What holds for each role of each kind of module, by the plan's recipes and rules: lines for
 * people, and the members "rules" and "roles" of an object, each after a comma. */
void oct_plan_render_rules(const oct_plan *plan, oct_strbuf *text);
void oct_plan_render_rules_json(const oct_plan *plan, oct_strbuf *text);

/* The table for people, and the same as JSON; `more`: members to add, each after a comma, or NULL.
 */
void oct_plan_render(const oct_plan *plan, oct_strbuf *text);
void oct_plan_render_json(const oct_plan *plan, const char *more, oct_strbuf *text);

#endif
