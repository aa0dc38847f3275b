/* Delayed scaling: see delayed.h. */
#include "quant/delayed.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"

oct_status oct_delayed_create(int64_t length, oct_delayed **out) {
    oct_delayed *delayed = oct_calloc_array(1, sizeof *delayed);
    float *history = oct_malloc_array((size_t)length * OCT_N_ROLES, sizeof *history);
    if (!delayed || !history) {
        oct_free(delayed);
        oct_free(history);
        return OCT_NO_MEMORY;
    }
    for (int64_t i = 0; i < length * OCT_N_ROLES; i++)
        history[i] = -1.0f;
    *delayed =
        (oct_delayed){.length = length, .history = history, .current = {-1.0f, -1.0f, -1.0f}};
    *out = delayed;
    return OCT_OK;
}

void oct_delayed_destroy(oct_delayed *delayed) {
    if (!delayed)
        return;
    oct_free(delayed->history);
    oct_free(delayed);
}

oct_amax oct_delayed_amax(const oct_delayed *delayed, oct_role role) {
    oct_amax amax = {.use = -1.0f};
    for (int64_t i = 0; delayed && i < delayed->length; i++)
        amax.use = fmaxf(amax.use, delayed->history[role * delayed->length + i]);
    return amax;
}

void oct_delayed_observe(oct_delayed *delayed, oct_role role, oct_amax amax) {
    if (delayed && isfinite(amax.seen))
        delayed->current[role] = fmaxf(delayed->current[role], amax.seen);
}

void oct_delayed_advance(oct_delayed *delayed) {
    for (int role = 0; role < OCT_N_ROLES; role++) {
        if (delayed->current[role] < 0)
            continue;
        float *history = delayed->history + role * delayed->length;
        memmove(history + 1, history, (size_t)(delayed->length - 1) * sizeof *history);
        history[0] = delayed->current[role];
        delayed->current[role] = -1.0f;
    }
}
