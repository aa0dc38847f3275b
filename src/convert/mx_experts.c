/* MX experts: see mx_experts.h. */
#include "convert/mx_experts.h"

#include <math.h>

#include "quant/delayed.h"

static int64_t slot_of(oct_expert_weight weight, oct_role role) {
    return (int64_t)weight * OCT_N_ROLES + role;
}

static oct_status put_operands(const oct_quantized *groups, int64_t n, int dim, oct_arena *arena,
                               oct_operand **out) {
    oct_operand *operands = oct_arena_alloc_array(arena, (size_t)n, sizeof *operands);
    if (!operands)
        return OCT_NO_MEMORY;
    for (int64_t e = 0; e < n; e++)
        operands[e] = oct_quantized_operand(&groups[e], dim);
    *out = operands;
    return OCT_OK;
}

static oct_status rows(oct_experts *experts, oct_step *step, oct_expert_weight weight,
                       oct_role role, oct_along which, const oct_tensor *x, const int64_t *offsets,
                       oct_arena *const arenas[2], oct_group_operands *out) {
    int64_t E = experts->n_experts, cols = oct_tensor_cols(x), slot = slot_of(weight, role);
    const oct_matrix_view view = {x->data, x->dtype, oct_tensor_rows(x), cols, cols};
    oct_amax amax = oct_delayed_amax(experts->delayed, slot);
    *out = (oct_group_operands){{NULL, NULL}};
    oct_quantized *groups = oct_arena_alloc_array(step->scratch, (size_t)E, sizeof *groups);
    if (!groups)
        return OCT_NO_MEMORY;
    oct_status status =
        oct_quantize_groups(&view, offsets, E, experts->recipe, role, which, arenas, &amax, groups);
    const oct_quant_sight sight = {.module = &experts->base,
                                   .weight = weight,
                                   .role = role,
                                   .x = &view,
                                   .offsets = offsets,
                                   .groups = groups,
                                   .n_groups = E};
    if (!status && (step->save == OCT_SAVE_FOR_BACKWARD || role == OCT_ROLE_GRAD))
        status = oct_step_show(step, &sight);
    for (int dim = 0; dim < 2 && !status; dim++)
        if (which & (dim == 0 ? OCT_ALONG_0 : OCT_ALONG_1))
            status = put_operands(groups, E, dim, arenas[dim], &out->along[dim]);
    if (!status && (step->save == OCT_SAVE_FOR_BACKWARD || role == OCT_ROLE_GRAD))
        oct_delayed_observe(experts->delayed, slot, amax);
    return status;
}

static oct_status show_weight(const oct_experts *experts, const oct_step *step,
                              oct_expert_weight weight, int64_t expert, const oct_quantized *q) {
    const oct_param *param = experts->w[weight];
    const int64_t N = param->shape[1], K = param->shape[2], offsets[2] = {0, N};
    if (param->n_held < param->shape[0] * N * K)
        return OCT_OK;
    const oct_matrix_view master = {param->value + expert * N * K, OCT_F32, N, K, K};
    const oct_quant_sight sight = {.module = &experts->base,
                                   .weight = weight,
                                   .role = OCT_ROLE_WEIGHT,
                                   .x = &master,
                                   .offsets = offsets,
                                   .groups = q,
                                   .n_groups = 1};
    return oct_step_show(step, &sight);
}

static oct_status weights(oct_experts *experts, oct_step *step, oct_expert_weight weight, int dim,
                          oct_operand *out) {
    int64_t slot = slot_of(weight, OCT_ROLE_WEIGHT);
    bool saving = step->save == OCT_SAVE_FOR_BACKWARD; /* both copies in one read */
    oct_along which = saving ? OCT_ALONG_BOTH : dim == 1 ? OCT_ALONG_1 : OCT_ALONG_0;
    oct_amax largest = {.use = -1.0f};
    for (int64_t e = 0; e < experts->n_experts; e++) {
        oct_quantized quantized;
        oct_amax amax = oct_delayed_amax(experts->delayed, slot);
        oct_status status = oct_weights_quantized(step->weights, experts->w[weight], e,
                                                  experts->recipe, which, &amax, &quantized);
        if (!status && saving && dim == 1 && step->observer) /* in forward */
            status = show_weight(experts, step, weight, e, &quantized);
        if (status)
            return status;
        largest.seen = fmaxf(largest.seen, amax.seen);
        out[e] = oct_quantized_operand(&quantized, dim);
    }
    if (saving)
        oct_delayed_observe(experts->delayed, slot, largest);
    return OCT_OK;
}

const oct_expert_products oct_mx_expert_products = {.type_name = "MXGroupedExperts",
                                                    .at_once = true,
                                                    .keeps_input = false,
                                                    .rows = rows,
                                                    .weights = weights};
