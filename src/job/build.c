/* From a job to its model: see build.h. */
#include "job/build.h"

#include "job/setup.h"
#include "quant/rules.h"

oct_status oct_job_build(const oct_job *job, const oct_model_args *args, oct_params_mode mode,
                         oct_job_parts *parts, oct_error *err) {
    oct_status status = oct_model_create(args, mode, &parts->model, err);
    if (status)
        return status;
    oct_setup_recompute(job, parts->model);
    oct_setup_frozen(job, parts->model);
    return oct_conversion_create(job, parts->model, &parts->conversion, err);
}

oct_status oct_job_equip(const oct_job *job, oct_job_parts *parts, oct_error *err) {
    oct_dtype activation = oct_setup_activation(job);
    oct_status status = oct_conversion_apply(parts->conversion, err);
    if (status)
        return status;
    if (oct_weights_create(&parts->weights) != OCT_OK ||
        oct_step_create(parts->weights, activation, &parts->step) != OCT_OK)
        return oct_fail_memory(err);
    parts->step->gradient = oct_rules_gradient(oct_job_rules(job), activation);
    return OCT_OK;
}

void oct_job_parts_free(oct_job_parts *parts) {
    oct_step_destroy(parts->step);
    oct_weights_destroy(parts->weights);
    oct_model_destroy(parts->model);
    oct_conversion_destroy(parts->conversion);
    *parts = (oct_job_parts){0};
}
