/* How fast a run goes and how long it will take. */
#ifndef OCT_TRAIN_PACE_H
#define OCT_TRAIN_PACE_H

#include <stddef.h>
#include <stdint.h>

typedef struct oct_pace {
    double since;    /* the end of this start's first step, which also makes memory, on the clock */
    int64_t n_steps; /* done since then */
    double
        step_s; /* a step, with what belongs to it of logging, validation and saving; 0: unknown */
    double tokens_per_s; /* of the last step */
} oct_pace;

/* After each step and all that follows it. */
void oct_pace_step(oct_pace *pace, int64_t n_tokens, double duration_s);
/* "2 h 05 min", "12 min", "40 s": to plan by, so rounded. */
void oct_pace_duration(double seconds, char *text, size_t size);

#endif
