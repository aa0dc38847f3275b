/* What is wrong with a job that was loaded, told together: what shows when its keys are held
 * against each other, a model, a number of processes or a checkpoint. */
#ifndef OCT_CONFIG_TOGETHER_H
#define OCT_CONFIG_TOGETHER_H

#include "config/job.h"

/* The first failure is the error of the whole; the others are the job's (oct_job_more_refusals). */
typedef struct oct_together {
    const oct_job *job;
    oct_error first;
} oct_together;

/* Takes a failure, unless one of the same key at the same place is there, and clears *cause.
 * Returns OCT_OK for OCT_INVALID, so that the next check goes on, and any other status as it came,
 * with *cause as it is. */
oct_status oct_together_add(oct_together *t, oct_status status, oct_error *cause);
/* Whether something was taken. */
static inline bool oct_together_failed(const oct_together *t) {
    return t->first.status != OCT_OK;
}
/* OCT_OK where nothing was taken, else the first failure in *err. */
oct_status oct_together_conclude(const oct_together *t, oct_error *err);

/* The others of this job, a line each; "": none. The text belongs to the job. */
const char *oct_job_more_refusals(const oct_job *job);

#endif
