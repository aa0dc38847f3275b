/* The learning rate of each step: linear warm-up, a stable phase, then a decay.
 *
 * Source of the formula: torchtitan v0.2.2, components/lr_scheduler.py. With N total steps, W
 * warm-up steps and D decay steps (decay_ratio * N rounded half to even, or all that follows the
 * warm-up), the stable phase has N + 1 - W - D steps: the virtual last one keeps the rate of the
 * last real step above the minimum. */
#ifndef OCT_TRAIN_SCHEDULE_H
#define OCT_TRAIN_SCHEDULE_H

#include "config/job.h"

typedef struct oct_schedule {
    int64_t warmup_steps, stable_steps, decay_steps;
    oct_job_decay decay_type;
    double min_lr_factor;
} oct_schedule;

/* From [lr_scheduler] and training.steps. A warm-up or a decay that is too long for the steps is
 * shortened, with a warning. */
oct_schedule oct_schedule_create(const oct_job *job);

/* What optimizer.lr is multiplied by in the step that follows `steps_done` >= 0 steps. */
double oct_schedule_factor(const oct_schedule *schedule, int64_t steps_done);

#endif
