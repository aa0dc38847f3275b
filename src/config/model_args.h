/* The dimensions that a job's [model.args] gives. */
#ifndef OCT_CONFIG_MODEL_ARGS_H
#define OCT_CONFIG_MODEL_ARGS_H

#include "config/job.h"
#include "model/args.h"

/* Sets what `item`, an entry of job->model.args, says. OCT_INVALID with place and key for an
 * unknown name, a wrong type or a value that can't be. */
oct_status oct_job_set_model_arg(const oct_job *job, const oct_value *item, oct_model_args *args,
                                 oct_error *err);

#endif
