/* The dimensions of a Hugging Face folder's model, as arguments of octet's. */
#ifndef OCT_JOB_HF_ARGS_H
#define OCT_JOB_HF_ARGS_H

#include <octet/status.h>

#include "base/strbuf.h"
#include "config/job.h"
#include "hf/hf_config.h"
#include "model/args.h"

/* The dimensions that `folder`/config.json says; not resolved yet. yarn is in force whatever the
 * length, as in transformers; a router's bias stays what it is. OCT_INVALID: what
 * oct_hf_config_read refuses, or a model that octet can't build. */
oct_status oct_setup_model_args_from_hf(const char *folder, oct_model_args *args, oct_error *err);

/* The same of what was read already; OCT_NO_MEMORY and the like are all that fails. */
oct_status oct_setup_model_args_of_config(const oct_hf_config *config, oct_model_args *args,
                                          oct_error *err);

/* Appends what of two resolved models a config.json can say and isn't the same: "dim is 64 there
 * and 32 here, ..."; nothing: they compute the same. Check to->failed after. */
void oct_setup_compare_args(const oct_model_args *there, const oct_model_args *here,
                            oct_strbuf *to);

/* Holds `folder`/config.json against the resolved arguments of a job: all that the file says of the
 * model must be what they say. Not whether yarn is in force: a flavor keeps torchtitan's rule.
 * OCT_INVALID names every difference in one line; one that the job's [model.args] asks for is a
 * warning, and so is a folder without a config.json. */
oct_status oct_setup_check_hf(const char *folder, const oct_job *job, const oct_model_args *args,
                              oct_error *err);

#endif
