/* From a job's converters to a plan for a model: which module becomes 8-bit, in which recipe. */
#ifndef OCT_JOB_CONVERSION_H
#define OCT_JOB_CONVERSION_H

#include "config/job.h"
#include "convert/plan.h"
#include "model/model.h"

typedef struct oct_conversion oct_conversion;

/* Decides, as model.converters (TOML) or training.quantization_plan (YAML) say; a model of shapes
 * alone will do. OCT_INVALID: an unknown recipe, a converter without effect, ...; the message names
 * the key and its place. The recipes belong to the conversion, which must outlive the model. */
oct_status oct_conversion_create(const oct_job *job, oct_model *model, oct_conversion **conversion,
                                 oct_error *err);
void oct_conversion_destroy(oct_conversion *conversion); /* NULL is fine */

const oct_plan *oct_conversion_plan(const oct_conversion *conversion);

/* Whether this machine can carry the plan out; OCT_INVALID names the key that asks for what its CPU
 * hasn't. */
oct_status oct_conversion_check(const oct_conversion *conversion, oct_error *err);

/* Checks that too, then carries the plan out on the model that it was made for. */
oct_status oct_conversion_apply(oct_conversion *conversion, oct_error *err);
/* One warning, if the framework whose rules hold would itself treat modules otherwise. */
void oct_conversion_warn(const oct_conversion *conversion);

#endif
