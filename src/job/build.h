/* The model that a job describes: one way for training, planning, evaluating and comparing. */
#ifndef OCT_JOB_BUILD_H
#define OCT_JOB_BUILD_H

#include "config/job.h"
#include "job/conversion.h"
#include "model/model.h"
#include "nn/step.h"

/* A model and what runs it. Zero-initialise; free with oct_job_parts_free whatever the status. */
typedef struct oct_job_parts {
    oct_model *model;
    oct_conversion *conversion; /* what becomes 8-bit; destroyed after the model */
    oct_weights *weights;       /* NULL until oct_job_equip */
    oct_step *step;             /* the same */
} oct_job_parts;

/* The model of these resolved arguments with the job's recomputation and frozen parameters, and the
 * plan of what becomes 8-bit; nothing is converted yet. A model of shapes alone will do for that.
 * Parameters are uninitialised. OCT_INVALID: the message names the key and its place. */
oct_status oct_job_build(const oct_job *job, const oct_model_args *args, oct_params_mode mode,
                         oct_job_parts *parts, oct_error *err);
/* Carries the plan out and makes what a step needs. OCT_INVALID: this CPU can't. */
oct_status oct_job_equip(const oct_job *job, oct_job_parts *parts, oct_error *err);
void oct_job_parts_free(oct_job_parts *parts);

#endif
