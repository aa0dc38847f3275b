/* Delayed scaling: the scale of a tensor comes from the largest amax of the last steps, so that
 * quantizing needs no pass over the tensor first. Per-tensor recipes only; the first step is
 * dynamic. */
#ifndef OCT_QUANT_DELAYED_H
#define OCT_QUANT_DELAYED_H

#include <octet/status.h>
#include <stdint.h>

#include "quant/recipe.h"

/* The amax of one quantization: which to scale by, and which the tensor had. */
typedef struct oct_amax {
    float use;  /* >= 0: scale by this; negative: by the tensor's own */
    float seen; /* set by the quantizer in per-tensor recipes: the tensor's own, Inf if it holds a
                   NaN or an Inf */
    const float *columns; /* per-channel, contraction over dimension 0: each column's amax, as the
                             whole matrix has it; NULL: those of the matrix at hand */
} oct_amax;

/* The history of one module. A unit is a step: all its micro-batches count as one, the optimizer's
 * change ends it. A slot is one role of one product: a linear has its three roles, experts have
 * three for each of their weights. */
typedef struct oct_delayed {
    int64_t n_slots, length; /* length: steps remembered */
    float
        *history; /* (n_slots, length), newest first; -1: no such step yet. Saved in checkpoints */
    float *current; /* (n_slots): the largest of this step so far; -1: none */
} oct_delayed;

oct_status oct_delayed_create(int64_t n_slots, int64_t length, oct_delayed **out);
void oct_delayed_destroy(oct_delayed *delayed); /* NULL is fine */

/* What to scale by: the largest of the history, or the tensor's own if there is none (or no
 * `delayed`). */
oct_amax oct_delayed_amax(const oct_delayed *delayed, int64_t slot);
/* Notes what was seen. Values that aren't finite are left out: the run stops at those by itself.
 * NULL: nothing. */
void oct_delayed_observe(oct_delayed *delayed, int64_t slot, oct_amax amax);
/* Ends the step: the current amaxes become the newest of the history. A slot that saw nothing keeps
 * its history. */
void oct_delayed_advance(oct_delayed *delayed);

#endif
