/* What a run says that ends at a number that isn't finite: see trainer_state.h. */
#include <inttypes.h>
#include <math.h>

#include "train/trainer_state.h"

oct_status oct_trainer_fail_number(const oct_trainer *t, int64_t step, const char *what,
                                   double value, oct_error *err) {
    value = isnan(value) ? fabs(value) : value; /* a NaN's sign says nothing */
    if (t->last_saved >= 0)
        return oct_fail(err, OCT_FAILED,
                        "step %" PRId64
                        ": %s is not finite (%f); the run stops and the checkpoint of step %" PRId64
                        " stays",
                        step, what, value, t->last_saved);
    return oct_fail(err, OCT_FAILED,
                    "step %" PRId64 ": %s is not finite (%f); the run stops and nothing was saved",
                    step, what, value);
}

oct_status oct_trainer_fail_spoilt(oct_error *err) {
    return oct_fail(err, OCT_FAILED, "an update went wrong: there is no step to go on from here");
}
