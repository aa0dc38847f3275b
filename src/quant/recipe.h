/* A recipe answers one question: for this role and contracted dimension, which format, granularity
 * and scale rule? Linears, experts and the sharded gather all ask it; none has formats of its own.
 */
#ifndef OCT_QUANT_RECIPE_H
#define OCT_QUANT_RECIPE_H

#include <octet/format.h>
#include <octet/status.h>
#include <stdbool.h>

#include "kernel/gemm.h"

typedef enum oct_role { OCT_ROLE_INPUT, OCT_ROLE_WEIGHT, OCT_ROLE_GRAD, OCT_N_ROLES } oct_role;

typedef enum oct_strategy {
    OCT_DYNAMIC, /* the scale comes from the tensor at hand */
    OCT_DELAYED  /* the scale comes from the largest amax of the last steps */
} oct_strategy;

typedef enum oct_granularity { OCT_MX, OCT_PER_TENSOR, OCT_PER_CHANNEL } oct_granularity;

/* How experts' rows share scales in per-tensor recipes. */
typedef enum oct_groups {
    OCT_GROUPS_TRUE, /* one scale for each expert's own rows */
    OCT_GROUPS_ONE,  /* one for the rows of all experts */
    OCT_GROUPS_EQUAL /* the rows are cut into as many equal parts as there are experts here, each
                        encoded by a scale of its own; expert e's are decoded by part e's. Right
                        only where all experts have as many rows: what torchtitan-npu does */
} oct_groups;

typedef struct oct_recipe {
    char name[64]; /* as the user wrote it, for the log */
    oct_strategy strategy;
    oct_granularity granularity;
    int64_t weight_block_rows; /* MX: 1 (1x32 blocks) or 32 (32x32 tiles, both orientations share
                                  codes) */
    oct_dtype format[OCT_N_ROLES]; /* E4M3, E5M2 or HIF8 */
    float target[OCT_N_ROLES];     /* per-tensor and per-channel: the value that amax maps to */
    /* MX, of the operands of forward and dgrad, and of those of wgrad. Its name may say it; else
     * rules (quant/rules.h) do, rceil until they are applied. */
    oct_scale_mode scale_mode, wgrad_scale_mode;
    bool names_scale_mode;
    bool names_targets;      /* the same of HiF8's targets; 15, 15, 224 until then */
    oct_dtype weight_source; /* OCT_BF16: the weight is rounded to it before amax and codes */
    oct_groups groups;
    oct_gemm_mode gemm;       /* auto by default */
    int64_t amax_history_len; /* delayed; 16 by default */
} oct_recipe;

/* Parses `<strategy>_<granularity>[-b0-b1-b2]_<inputs>_<weights>_<grads>` or a short name (mxfp8,
 * mxfp8-32x32, hif8, and those that also name a scale rule or targets), case-insensitive.
 * OCT_INVALID lists what is accepted. */
oct_status oct_recipe_parse(const char *name, oct_recipe *recipe, oct_error *err);

/* The same where n_also other names mean something to the caller: OCT_INVALID lists them first, and
 * the nearest may be one of them. At most 4. */
oct_status oct_recipe_parse_beside(const char *name, const char *const *also, size_t n_also,
                                   oct_recipe *recipe, oct_error *err);

/* floor, ceil, even, rceil; auto, exact, fast (or aligned, its former name). */
oct_status oct_scale_mode_parse(const char *name, oct_scale_mode *mode, oct_error *err);
oct_status oct_gemm_mode_parse(const char *name, oct_gemm_mode *mode, oct_error *err);
const char *oct_scale_mode_name(oct_scale_mode mode);
const char *oct_gemm_mode_name(oct_gemm_mode mode);

/* The rule by which MX scales of `role` are found for contraction over `dim`. */
static inline oct_scale_mode oct_recipe_scale_mode(const oct_recipe *recipe, oct_role role,
                                                   int dim) {
    bool wgrad = role != OCT_ROLE_WEIGHT && dim == 0;
    return wgrad ? recipe->wgrad_scale_mode : recipe->scale_mode;
}

#endif
