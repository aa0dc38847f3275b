/* One run of `octet compare` in a process of its own, so that its peak memory is its own and a
 * crash leaves the other runs alone. Internal to the room. */
#ifndef OCT_COMPARE_RECIPE_RUN_H
#define OCT_COMPARE_RECIPE_RUN_H

#include <octet/status.h>
#include <stdbool.h>
#include <stdint.h>

#include "compare/arms.h"
#include "compare/compare.h"
#include "compare/run_record.h"
#include "train/trainer.h"

typedef struct oct_recipe_run {
    /* in */
    const oct_compare_host *host;
    const oct_arm *arm;
    const char *config; /* the job file; NULL: named by an override */
    const char *const *overrides;
    int n_overrides;
    oct_start start;
    const char *cache_folder; /* tokenized texts, shared by all runs */
    /* Called in the run's own process once nothing but training is left to do; NULL: not. */
    oct_status (*ready)(void *user, oct_error *err);
    void *ready_user;
    /* out */
    oct_status status;
    oct_error err; /* when status isn't OCT_OK */
    oct_run_result result;
    bool stopped; /* by a signal, before its end: status says it failed */
} oct_recipe_run;

/* Trains in a forked process and waits for it. Signals that ask this process to end are handed on.
 * Threads aren't inherited: the run starts a pool of its own (base/thread.h). */
void oct_recipe_run_train(oct_recipe_run *run);

#endif
