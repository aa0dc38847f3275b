/* Carrying out a plan: swaps ops and says so in the words that users' check lists look for. See
 * plan.h. */
#include <string.h>

#include "base/log.h"
#include "convert/mx_linear.h"
#include "convert/plan.h"
#include "nn/linear.h"
#include "quant/delayed.h"

static void log_linears(const oct_plan *plan) {
    const oct_recipe *recipe = NULL;
    long long n = 0;
    for (int64_t i = 0; i < plan->n_rows; i++) {
        if (plan->rows[i].is_experts || !plan->rows[i].recipe)
            continue;
        recipe = plan->rows[i].recipe;
        n++;
    }
    if (!n)
        return;
    oct_log_info("MX training active with recipe %s", recipe->name);
    oct_log_info("Swapped to MXLinear_NPU layers: %lld", n);
}

oct_status oct_plan_apply(const oct_plan *plan, oct_error *err) {
    for (int64_t i = 0; i < plan->n_rows; i++) {
        const oct_plan_row *row = &plan->rows[i];
        if (row->recipe && !oct_gemm_supports(row->recipe->gemm)) {
            oct_cpu_features cpu = oct_cpu_detect();
            return oct_fail(
                err, OCT_INVALID,
                "gemm = \"%s\" needs AVX512-VNNI; this CPU (%s) %s; use \"auto\" or \"exact\"",
                oct_gemm_mode_name(row->recipe->gemm), oct_cpu_model_name(),
                cpu.avx512_vnni ? "has it, but OCTET_CPU caps the kernel set below it"
                                : "lacks it");
        }
    }
    for (int64_t i = 0; i < plan->n_warnings; i++)
        oct_log_warning("%s", plan->warnings[i]);
    for (int64_t i = 0; i < plan->n_rows; i++) {
        const oct_plan_row *row = &plan->rows[i];
        oct_linear *linear = oct_linear_from(row->module);
        if (!linear || !row->recipe)
            continue;
        if (row->recipe->strategy == OCT_DELAYED &&
            oct_delayed_create(row->recipe->amax_history_len, &linear->delayed))
            return oct_fail_memory(err);
        linear->recipe = row->recipe;
        linear->base.ops = &oct_mx_linear_ops;
    }
    log_linears(plan);
    return OCT_OK;
}

static oct_delayed *delayed_of(const oct_plan_row *row) {
    const oct_linear *linear = oct_linear_from(row->module);
    return linear ? linear->delayed : NULL;
}

void oct_plan_end_step(const oct_plan *plan) {
    for (int64_t i = 0; i < plan->n_rows; i++)
        if (delayed_of(&plan->rows[i]))
            oct_delayed_advance(delayed_of(&plan->rows[i]));
}

oct_tensor oct_plan_row_history(const oct_plan_row *row) {
    oct_delayed *delayed = delayed_of(row);
    return delayed ? oct_tensor_2d(OCT_F32, OCT_N_ROLES, delayed->length, delayed->history)
                   : (oct_tensor){0};
}
