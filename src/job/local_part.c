/* Reading what is held here of a parameter: see local_part.h. */
#include "job/local_part.h"

#include <string.h>

#include "base/alloc.h"

float *oct_local_buffer(const oct_param *param, float *to) {
    int64_t n = oct_param_elements(param);
    return param->n_held == n ? to : oct_malloc_array((size_t)n, sizeof(float));
}

void oct_local_keep(const oct_param *param, float *to, float *whole) {
    if (param->n_held == oct_param_elements(param))
        return;
    memcpy(to, whole + param->first, (size_t)param->n_held * sizeof *to);
    oct_free(whole);
}

oct_status oct_local_read(oct_param *param, oct_local_reader read, const void *from,
                          oct_error *err) {
    float *held = param->value, *whole = oct_local_buffer(param, held);
    if (!whole)
        return oct_fail_memory(err);
    param->value = whole;
    oct_status status = read(from, param, err);
    param->value = held;
    oct_local_keep(param, held, whole);
    return status;
}

oct_status oct_local_read_biases(oct_model *model, oct_bias_reader read, const void *from,
                                 oct_error *err) {
    const oct_model_args *args = oct_model_get_args(model);
    oct_status status = OCT_OK;
    for (int64_t i = 0; i < args->n_layers && !status; i++) {
        oct_moe *moe = oct_model_moe(model, i);
        char name[OCT_MOE_BIAS_NAME_SIZE];
        if (!moe)
            continue;
        oct_moe_bias_name(moe, name);
        status = read(from, name, args->num_experts, moe->expert_bias, err);
    }
    return status;
}
