/* A recipe answers one question: for this role and contracted dimension, which format, granularity
 * and scale rule? Linears, experts and the sharded gather all ask it; none has formats of its own.
 */
#ifndef OCT_QUANT_RECIPE_H
#define OCT_QUANT_RECIPE_H

#include <octet/format.h>
#include <octet/status.h>

#include "kernel/gemm.h"

typedef enum oct_role { OCT_ROLE_INPUT, OCT_ROLE_WEIGHT, OCT_ROLE_GRAD, OCT_N_ROLES } oct_role;

typedef enum oct_strategy {
    OCT_DYNAMIC, /* the scale comes from the tensor at hand */
    OCT_DELAYED  /* the scale comes from the largest amax of the last steps */
} oct_strategy;

typedef enum oct_granularity { OCT_MX, OCT_PER_TENSOR, OCT_PER_CHANNEL } oct_granularity;

typedef struct oct_recipe {
    char name[64]; /* as the user wrote it, for the log */
    oct_strategy strategy;
    oct_granularity granularity;
    int64_t weight_block_rows; /* MX: 1 (1x32 blocks) or 32 (32x32 tiles, both orientations share
                                  codes) */
    oct_dtype format[OCT_N_ROLES]; /* E4M3, E5M2 or HIF8 */
    float target[OCT_N_ROLES];     /* per-tensor and per-channel: the value that amax maps to */
    oct_scale_mode scale_mode;     /* MX; rceil by default */
    oct_gemm_mode gemm;            /* auto by default */
    int64_t amax_history_len;      /* delayed; 16 by default */
} oct_recipe;

/* Parses `<strategy>_<granularity>[-b0-b1-b2]_<inputs>_<weights>_<grads>` or a short name (mxfp8,
 * mxfp8-32x32, hif8, hif8_full_range), case-insensitive. OCT_INVALID lists what is accepted. */
oct_status oct_recipe_parse(const char *name, oct_recipe *recipe, oct_error *err);

/* The same where n_also other names mean something to the caller: OCT_INVALID lists them first, and
 * the nearest may be one of them. At most 4. */
oct_status oct_recipe_parse_beside(const char *name, const char *const *also, size_t n_also,
                                   oct_recipe *recipe, oct_error *err);

/* floor, ceil, even, rceil; auto, exact, aligned. */
oct_status oct_scale_mode_parse(const char *name, oct_scale_mode *mode, oct_error *err);
oct_status oct_gemm_mode_parse(const char *name, oct_gemm_mode *mode, oct_error *err);
const char *oct_scale_mode_name(oct_scale_mode mode);
const char *oct_gemm_mode_name(oct_gemm_mode mode);

/* One line for users: every accepted recipe. */
const char *oct_recipe_list(void);

#endif
