/* The learning rate of each step: see schedule.h. */
#include "train/schedule.h"

#include <inttypes.h>
#include <math.h>

#include "base/checked.h"
#include "base/log.h"

oct_schedule oct_schedule_create(const oct_job *job) {
    int64_t total =
        job->lr_scheduler.total_steps > 0 ? job->lr_scheduler.total_steps : job->training.steps;
    int64_t warmup = job->lr_scheduler.warmup_steps;
    if (warmup > total) {
        oct_log_warning("lr_scheduler.warmup_steps = %" PRId64 " exceeds the %" PRId64
                        " steps in total; %" PRId64 " are taken",
                        warmup, total, total);
        warmup = total;
    }
    int64_t decay = total - warmup;
    if (job->lr_scheduler.decay_ratio >= 0)
        decay = (int64_t)nearbyint((double)total * job->lr_scheduler.decay_ratio);
    if (warmup + decay > total) {
        oct_log_warning("warm-up (%" PRId64 ") and decay (%" PRId64 ") exceed the %" PRId64
                        " steps in total; the decay takes %" PRId64,
                        warmup, decay, total, (total - warmup));
        decay = total - warmup;
    }
    return (oct_schedule){.warmup_steps = warmup,
                          .stable_steps = total + 1 - warmup - decay,
                          .decay_steps = decay,
                          .decay_type = job->lr_scheduler.decay_type,
                          .min_lr_factor = job->lr_scheduler.min_lr_factor};
}

static double decayed(oct_job_decay type, double progress) {
    switch (type) {
    case OCT_JOB_DECAY_LINEAR:
        return 1 - progress;
    case OCT_JOB_DECAY_SQRT:
        return 1 - sqrt(progress);
    case OCT_JOB_DECAY_COSINE:
        return 0.5 * (1 + cos(acos(-1.0) * progress));
    case OCT_JOB_DECAY_CONSTANT:
        break;
    }
    return 1;
}

double oct_schedule_factor(const oct_schedule *s, int64_t steps_done) {
    int64_t decay_start = s->warmup_steps + s->stable_steps;
    if (steps_done < s->warmup_steps)
        return (double)(steps_done + 1) / (double)s->warmup_steps;
    if (steps_done < decay_start || s->decay_steps == 0)
        return 1;
    /* Steps after the schedule's end keep its last rate. */
    int64_t done = oct_min_i64(steps_done + 1 - decay_start, s->decay_steps);
    double factor = decayed(s->decay_type, (double)done / (double)s->decay_steps);
    return s->min_lr_factor + (1 - s->min_lr_factor) * factor;
}
