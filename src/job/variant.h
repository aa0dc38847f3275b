/* A job in another recipe: what `compare` trains and `--recipe` evaluates. */
#ifndef OCT_JOB_VARIANT_H
#define OCT_JOB_VARIANT_H

#include "base/strbuf.h"
#include "checkpoint/checkpoint.h"
#include "config/job.h"

/* Loads the job as oct_job_load does, then with all that `recipe` decides in its place:
 *   bf16  nothing in 8 bits, activations in bf16
 *   fp32  nothing in 8 bits, activations in fp32
 *   else  a recipe name for linears, and for experts where the job runs them as grouped products;
 *         activations in the job's dtype
 * NULL: the job as it is. A `path` of "" is torchtitan's defaults. OCT_INVALID: an unknown recipe,
 * or what oct_job_load refuses, which leaves job->others. */
oct_status oct_variant_load(const char *path, const char *const *overrides, int n_overrides,
                            const char *recipe, oct_job *job, oct_error *err);

/* bf16 or fp32. */
bool oct_variant_is_high_precision(const char *recipe);

/* The command line that a variant was loaded with: the given overrides, then the recipe's. */
enum { OCT_MAX_VARIANT_OWN = 4 };
typedef struct oct_variant_overrides {
    const char **all; /* the given texts are borrowed */
    int n, n_own;     /* the last n_own of n are the recipe's */
    oct_strbuf own[OCT_MAX_VARIANT_OWN];
} oct_variant_overrides;

/* The same, and what it took: oct_job_load with told->all gives this very job, so that whoever
 * keeps them beside the job file has kept the recipe. oct_variant_overrides_free, also on failure.
 */
oct_status oct_variant_load_told(const char *path, const char *const *overrides, int n_overrides,
                                 const char *recipe, oct_job *job, oct_variant_overrides *told,
                                 oct_error *err);
/* The same as oct_variant_load where every option must act: what may be meant for another recipe is
 * refused too. */
oct_status oct_variant_check(const char *path, const char *const *overrides, int n_overrides,
                             const char *recipe, oct_job *job, oct_error *err);
void oct_variant_overrides_free(oct_variant_overrides *told);

/* The same for the job, command line included, that a checkpoint was saved by. A `recipe` takes the
 * place of the one that compare trained it in; NULL: that one. OCT_INVALID also where the
 * checkpoint holds no job file. */
oct_status oct_variant_load_saved(const oct_checkpoint *from, const char *recipe, oct_job *job,
                                  oct_error *err);

#endif
