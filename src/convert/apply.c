/* Carrying out a plan: swaps ops and says so in the words that users' check lists look for. See
 * plan.h. */
#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "convert/mx_experts.h"
#include "convert/mx_linear.h"
#include "convert/plan.h"
#include "nn/experts.h"
#include "nn/linear.h"
#include "quant/delayed.h"

static void log_linears(const oct_plan *plan) {
    const oct_recipe *recipe = NULL;
    int64_t n = 0;
    for (int64_t i = 0; i < plan->n_rows; i++) {
        if (plan->rows[i].is_experts || !plan->rows[i].recipe)
            continue;
        recipe = plan->rows[i].recipe;
        n++;
    }
    if (!n)
        return;
    oct_log_info("MX training active with recipe %s", recipe->name);
    oct_log_info("Swapped to MXLinear_NPU layers: %" PRId64, n);
}

static void log_experts(const oct_plan *plan) {
    const oct_recipe *recipe = NULL;
    int64_t n = 0, n_grouped = 0;
    for (int64_t i = 0; i < plan->n_rows; i++) {
        n_grouped += plan->rows[i].grouped;
        if (!plan->rows[i].is_experts || !plan->rows[i].recipe)
            continue;
        recipe = plan->rows[i].recipe;
        n++;
    }
    if (n_grouped)
        oct_log_info("Experts run as grouped products: %" PRId64 " modules", n_grouped);
    if (!n)
        return;
    oct_log_info("%s MoE training enabled", recipe->name);
    oct_log_info("[MXFP8/Hif8 GMM] Replaced %" PRId64 " NPU GMM methods/functions", n);
}

static oct_status convert_linear(oct_linear *linear, const oct_recipe *recipe) {
    if (recipe->strategy == OCT_DELAYED) {
        oct_status status =
            oct_delayed_create(OCT_N_ROLES, recipe->amax_history_len, &linear->delayed);
        if (status)
            return status;
    }
    linear->recipe = recipe;
    linear->base.ops = &oct_mx_linear_ops;
    return OCT_OK;
}

static oct_status convert_experts(oct_experts *experts, const oct_recipe *recipe) {
    if (recipe->strategy == OCT_DELAYED) {
        oct_status status = oct_delayed_create(OCT_N_EXPERT_WEIGHTS * OCT_N_ROLES,
                                               recipe->amax_history_len, &experts->delayed);
        if (status)
            return status;
    }
    experts->recipe = recipe;
    experts->products = &oct_mx_expert_products;
    return OCT_OK;
}

static oct_status convert_row(const oct_plan_row *row) {
    oct_linear *linear = oct_linear_from(row->module);
    oct_experts *experts = oct_experts_from(row->module);
    if (experts && row->grouped)
        experts->products = &oct_expert_grouped;
    if (linear && row->recipe)
        return convert_linear(linear, row->recipe);
    if (experts && row->recipe)
        return convert_experts(experts, row->recipe);
    return OCT_OK;
}

oct_status oct_plan_apply(const oct_plan *plan, oct_error *err) {
    for (int64_t i = 0; i < plan->n_warnings; i++)
        oct_log_warning("%s", plan->warnings[i]);
    for (int64_t i = 0; i < plan->n_rows; i++)
        if (convert_row(&plan->rows[i]))
            return oct_fail_memory(err);
    log_experts(plan);
    log_linears(plan);
    return OCT_OK;
}

static oct_delayed *delayed_of(const oct_plan_row *row) {
    const oct_linear *linear = oct_linear_from(row->module);
    const oct_experts *experts = oct_experts_from(row->module);
    return linear ? linear->delayed : experts ? experts->delayed : NULL;
}

void oct_plan_end_step(const oct_plan *plan) {
    for (int64_t i = 0; i < plan->n_rows; i++)
        if (delayed_of(&plan->rows[i]))
            oct_delayed_advance(delayed_of(&plan->rows[i]));
}

oct_tensor oct_plan_row_history(const oct_plan_row *row) {
    oct_delayed *delayed = delayed_of(row);
    return delayed ? oct_tensor_2d(OCT_F32, delayed->n_slots, delayed->length, delayed->history)
                   : (oct_tensor){0};
}

oct_tensor oct_plan_row_amaxes(const oct_plan_row *row) {
    oct_delayed *delayed = delayed_of(row);
    return delayed ? oct_tensor_1d(OCT_F32, delayed->n_slots, delayed->current) : (oct_tensor){0};
}
