/* How fast a run goes: see pace.h. */
#include "train/pace.h"

#include <math.h>
#include <stdio.h>

#include "train/clock.h"

void oct_pace_step(oct_pace *p, int64_t n_tokens, double duration_s) {
    double now = oct_clock_s();
    p->tokens_per_s = duration_s > 0 ? (double)n_tokens / duration_s : 0;
    if (p->since == 0) {
        p->since = now;
        return;
    }
    p->n_steps++;
    p->step_s = (now - p->since) / (double)p->n_steps;
}

void oct_pace_duration(double seconds, char *text, size_t size) {
    double minutes = seconds / 60, hours = minutes / 60;
    if (hours >= 48)
        snprintf(text, size, "%.0f days", hours / 24);
    else if (minutes >= 59.5)
        snprintf(text, size, "%.0f h %02.0f min", floor(round(minutes) / 60),
                 fmod(round(minutes), 60));
    else if (seconds >= 99.5)
        snprintf(text, size, "%.0f min", minutes);
    else
        snprintf(text, size, "%.0f s", seconds);
}
