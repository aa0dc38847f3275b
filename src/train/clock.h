/* Seconds on a clock that never jumps, for durations. */
#ifndef OCT_TRAIN_CLOCK_H
#define OCT_TRAIN_CLOCK_H

#include <time.h>

static inline double oct_clock_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#endif
