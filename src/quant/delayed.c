/* Delayed scaling: see delayed.h. */
#include "quant/delayed.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"

oct_status oct_delayed_create(int64_t n_slots, int64_t length, oct_delayed **out) {
    oct_delayed *delayed = oct_calloc_array(1, sizeof *delayed);
    if (!delayed)
        return OCT_NO_MEMORY;
    delayed->n_slots = n_slots;
    delayed->length = length;
    delayed->history = oct_malloc_array((size_t)length * (size_t)n_slots, sizeof(float));
    delayed->current = oct_malloc_array((size_t)n_slots, sizeof(float));
    if (!delayed->history || !delayed->current) {
        oct_delayed_destroy(delayed);
        return OCT_NO_MEMORY;
    }
    for (int64_t i = 0; i < length * n_slots; i++)
        delayed->history[i] = -1.0f;
    for (int64_t i = 0; i < n_slots; i++)
        delayed->current[i] = -1.0f;
    *out = delayed;
    return OCT_OK;
}

void oct_delayed_destroy(oct_delayed *delayed) {
    if (!delayed)
        return;
    oct_free(delayed->history);
    oct_free(delayed->current);
    oct_free(delayed);
}

oct_amax oct_delayed_amax(const oct_delayed *delayed, int64_t slot) {
    oct_amax amax = {.use = -1.0f};
    for (int64_t i = 0; delayed && i < delayed->length; i++)
        amax.use = fmaxf(amax.use, delayed->history[slot * delayed->length + i]);
    return amax;
}

void oct_delayed_observe(oct_delayed *delayed, int64_t slot, oct_amax amax) {
    if (delayed && isfinite(amax.seen))
        delayed->current[slot] = fmaxf(delayed->current[slot], amax.seen);
}

void oct_delayed_advance(oct_delayed *delayed) {
    for (int64_t slot = 0; slot < delayed->n_slots; slot++) {
        if (delayed->current[slot] < 0)
            continue;
        float *history = delayed->history + slot * delayed->length;
        memmove(history + 1, history, (size_t)(delayed->length - 1) * sizeof *history);
        history[0] = delayed->current[slot];
        delayed->current[slot] = -1.0f;
    }
}
