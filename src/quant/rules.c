/* The table of rules: see rules.h. Sources are read at the versions that the names give;
 * MindSpeed's is its master branch of July 2026 (commit 028de58). */
#include "quant/rules.h"

#include <string.h>

#define FLOOR                                                                                      \
    { OCT_SCALE_FLOOR, OCT_SCALE_FLOOR }
#define RCEIL                                                                                      \
    { OCT_SCALE_RCEIL, OCT_SCALE_RCEIL }

/* HiF8's largest values with three and with two mantissa bits, and its largest (docs/numerics.md).
 */
#define FINE_TARGETS                                                                               \
    { 15, 15, 224 }
#define FULL_TARGETS                                                                               \
    { 32768, 32768, 32768 }

static const char *const output_alone[] = {"output"};
static const char *const output_and_gate[] = {"output", "router.gate"};

#define NPU_LINEAR "torchtitan_npu/converters/kernels/quant_linear.py"
#define NPU_EXPERTS "torchtitan_npu/converters/kernels/quant_gmm.py"
#define FSDP2_LINEAR "mindspeed/fsdp/quantization/module/linear_mxfp8.py"
#define TITAN_FSDP "torchtitan/models/llama3/infra/parallelize.py"

/* to_mx and its eager rceil; hp_tensor_to_float8_dynamic. */
#define TORCHAO_RCEIL (OCT_QUIRK_LOG2_ROUNDED | OCT_QUIRK_LOWEST_BY_ONE | OCT_QUIRK_INF_IS_LARGE)
#define TORCHAO_MX (OCT_QUIRK_LOWEST_BY_2_126 | OCT_QUIRK_INF_IS_LARGE | OCT_QUIRK_NAN_LEAVES_ZEROS)
#define TORCHAO_SCALED (OCT_QUIRK_MULTIPLIES | OCT_QUIRK_AMAX_FLOOR)
#define TORCHAO                                                                                    \
    "torchao/prototype/mx_formats/mx_tensor.py: to_mx, _to_mx_rceil; "                             \
    "torchao/float8/float8_utils.py: amax_to_scale"

#define TE_SCALED (OCT_QUIRK_MULTIPLIES | OCT_QUIRK_IDLE_IS_ONE | OCT_QUIRK_NAN_IS_NOTHING)

static const oct_rules table[OCT_N_RULE_SETS] = {
    [OCT_RULES_OCTET] = {.set = OCT_RULES_OCTET,
                         .name = "octet",
                         .knows_hif8 = true,
                         .linears = RCEIL,
                         .experts = RCEIL,
                         .hif8_target = FINE_TARGETS,
                         .groups = OCT_GROUPS_TRUE,
                         .upstream_groups = OCT_GROUPS_TRUE,
                         .filter_fqns = output_and_gate,
                         .n_filter_fqns = 2,
                         .linear_recipe = "mxfp8"},
    [OCT_RULES_TORCHTITAN_NPU] =
        {.set = OCT_RULES_TORCHTITAN_NPU,
         .name = "torchtitan-npu@0.2.2",
         .knows_hif8 = true,
         .linears = RCEIL,
         .experts = {OCT_SCALE_RCEIL, OCT_SCALE_FLOOR},
         .hif8_target = FULL_TARGETS,
         .rounds_weights = true,
         .rounds_gradients = true,
         .groups = OCT_GROUPS_TRUE,
         .upstream_groups = OCT_GROUPS_EQUAL,
         .filter_fqns = output_alone,
         .n_filter_fqns = 1,
         .linear_recipe = "mxfp8",
         .scale_source =
             NPU_LINEAR ", " NPU_EXPERTS ": scale_alg=1; npu_grouped_dynamic_mx_quant without one",
         .target_source = NPU_LINEAR ", " NPU_EXPERTS ": npu_dynamic_quant without dst_type_max",
         .weight_source = TITAN_FSDP ": MixedPrecisionPolicy(param_dtype)",
         .groups_source = NPU_EXPERTS ": GMMFunctionHif8.quantize",
         .gradient_source = NPU_LINEAR ": output_dtype=x.dtype; " TITAN_FSDP ": reduce_dtype"},
    [OCT_RULES_MINDSPEED] =
        {.set = OCT_RULES_MINDSPEED,
         .name = "mindspeed@2026-07",
         .knows_hif8 = true,
         .linears = FLOOR,
         .experts = FLOOR,
         .hif8_target = FINE_TARGETS,
         .rounds_weights = true,
         .rounds_gradients = true,
         .groups = OCT_GROUPS_ONE,
         .upstream_groups = OCT_GROUPS_ONE,
         .filter_fqns = output_alone,
         .n_filter_fqns = 1,
         .linear_recipe = "mxfp8",
         .scale_source = FSDP2_LINEAR ", gmm_mxfp8.py: no scale_alg",
         .target_source = "mindspeed/te/pytorch/fp8/constants.py: HIF8_15, HIF8_224",
         .weight_source = "mindspeed/fsdp/quantization/core/pre_quant_weight.py: .to(bfloat16)",
         .groups_source = "mindspeed/core/transformer/moe/grouped_matmul_util.py: "
                          "TensorwiseGMMFunction",
         .gradient_source = FSDP2_LINEAR ": output_dtype=weight_dtype"},
    [OCT_RULES_TORCHTITAN] = {.set = OCT_RULES_TORCHTITAN,
                              .name = "torchtitan@0.2.2",
                              .rceil_quirks = TORCHAO_RCEIL,
                              .mx_quirks = TORCHAO_MX,
                              .scaled_quirks = TORCHAO_SCALED,
                              .block_quirks = TORCHAO_SCALED,
                              .quirk_source = TORCHAO,
                              .linears = FLOOR,
                              .experts = RCEIL,
                              .hif8_target = FINE_TARGETS, /* which it doesn't know */
                              .rounds_weights = true,
                              .rounds_gradients = true,
                              .groups = OCT_GROUPS_TRUE,
                              .upstream_groups = OCT_GROUPS_TRUE,
                              .filter_fqns = output_alone,
                              .n_filter_fqns = 1,
                              .linear_recipe = "mxfp8_cublas",
                              .scale_source =
                                  "torchao/prototype/mx_formats/config.py: mxfp8_cublas; "
                                  "torchao/prototype/moe_training/scaled_grouped_mm.py",
                              .weight_source = TITAN_FSDP ": MixedPrecisionPolicy(param_dtype)",
                              .gradient_source = TITAN_FSDP ": MixedPrecisionPolicy(reduce_dtype)"},
    [OCT_RULES_TORCHAO] = {.set = OCT_RULES_TORCHAO,
                           .name = "torchao@0.18.0",
                           .linears = FLOOR,
                           .experts = RCEIL,
                           .hif8_target = FINE_TARGETS,
                           .rceil_quirks = TORCHAO_RCEIL,
                           .mx_quirks = TORCHAO_MX,
                           .scaled_quirks = TORCHAO_SCALED,
                           .block_quirks = TORCHAO_SCALED,
                           .groups = OCT_GROUPS_TRUE,
                           .upstream_groups = OCT_GROUPS_TRUE,
                           .linear_recipe = "mxfp8_cublas",
                           .scale_source = "torchao/prototype/mx_formats/config.py: mxfp8_cublas; "
                                           "torchao/prototype/moe_training/scaled_grouped_mm.py",
                           .quirk_source = TORCHAO},
    [OCT_RULES_TRANSFORMER_ENGINE] =
        {.set = OCT_RULES_TRANSFORMER_ENGINE,
         .name = "transformer-engine@2",
         .linears = RCEIL,
         .experts = RCEIL,
         .hif8_target = FINE_TARGETS,
         .rceil_quirks =
             OCT_QUIRK_LOWEST_BY_ONE | OCT_QUIRK_INF_IS_LARGE | OCT_QUIRK_NAN_IS_NOTHING,
         .mx_quirks = OCT_QUIRK_LOWEST_BY_ONE | OCT_QUIRK_INF_IS_LARGE | OCT_QUIRK_NAN_IS_NOTHING,
         .scaled_quirks = TE_SCALED,
         .block_quirks = TE_SCALED | OCT_QUIRK_POWER_OF_TWO,
         .groups = OCT_GROUPS_TRUE,
         .upstream_groups = OCT_GROUPS_TRUE,
         .linear_recipe = "mxfp8",
         .scale_source = "transformer_engine/common/util/ptx.cuh: float_to_e8m0",
         .quirk_source =
             "transformer_engine/common/util/ptx.cuh: float_to_e8m0, exp2f_rcp; "
             "transformer_engine/common/recipe/recipe_common.cuh: compute_scale_from_amax"},
    [OCT_RULES_OCP] = {.set = OCT_RULES_OCP,
                       .name = "ocp@1.0",
                       .linears = FLOOR,
                       .experts = FLOOR,
                       .hif8_target = FINE_TARGETS,
                       .groups = OCT_GROUPS_TRUE,
                       .upstream_groups = OCT_GROUPS_TRUE,
                       .linear_recipe = "mxfp8",
                       .scale_source = "OCP Microscaling Formats (MX) v1.0, 6.3"},
};

const oct_rules *oct_rules_of(oct_rule_set set) {
    return &table[set];
}

const oct_rules *oct_rules_find(const char *name) {
    for (int i = 0; i < OCT_N_RULE_SETS; i++)
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}

void oct_rules_apply(const oct_rules *rules, oct_module_use use, oct_dtype activation,
                     oct_recipe *recipe) {
    const oct_scale_rule *scale = use == OCT_FOR_EXPERTS ? &rules->experts : &rules->linears;
    if (!recipe->names_scale_mode) {
        recipe->scale_mode = scale->scale_mode;
        recipe->wgrad_scale_mode = scale->wgrad_scale_mode;
    }
    for (int role = 0; role < OCT_N_ROLES && !recipe->names_targets; role++)
        if (recipe->format[role] == OCT_HIF8)
            recipe->target[role] = rules->hif8_target[role];
    recipe->weight_source = rules->rounds_weights ? activation : OCT_F32;
    recipe->groups = use == OCT_FOR_EXPERTS ? rules->groups : OCT_GROUPS_TRUE;
}

oct_dtype oct_rules_gradient(const oct_rules *rules, oct_dtype activation) {
    return rules->rounds_gradients ? activation : OCT_F32;
}
