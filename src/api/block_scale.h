/* The scale of one block from its largest magnitude, quirks of frameworks included, and how its
 * elements are encoded under it. */
#ifndef OCT_API_BLOCK_SCALE_H
#define OCT_API_BLOCK_SCALE_H

#include <octet/matrix.h>
#include <stdbool.h>

/* What is known of the magnitudes of a block. */
typedef struct oct_magnitudes {
    float largest; /* of those that are finite */
    bool has_inf, has_nan;
} oct_magnitudes;

typedef struct oct_block_scale {
    uint8_t code;   /* E8M0 */
    float scale;    /* fp32 */
    double inverse; /* E8M0: elements are times this, exactly */
    float factor;   /* fp32: with OCT_QUIRK_MULTIPLIES elements are times this, else over scale */
    bool all_nan;   /* every code is NaN */
    bool zeros;     /* finite elements are zeros, others NaN */
} oct_block_scale;

static inline void oct_magnitudes_add(oct_magnitudes *m, float x) {
    const float magnitude = x < 0 ? -x : x;
    if (magnitude <= 0x1.fffffep127f)
        m->largest = magnitude > m->largest ? magnitude : m->largest;
    else if (magnitude == magnitude)
        m->has_inf = true;
    else
        m->has_nan = true;
}

static inline void oct_magnitudes_join(oct_magnitudes *m, const oct_magnitudes *other) {
    m->largest = other->largest > m->largest ? other->largest : m->largest;
    m->has_inf |= other->has_inf;
    m->has_nan |= other->has_nan;
}

oct_block_scale oct_block_scale_of(const oct_quantizer *q, oct_magnitudes m);
/* The code of x under the scale; `element` is its index for stochastic rounding. */
uint8_t oct_block_encode(const oct_quantizer *q, const oct_block_scale *scale, float x,
                         uint64_t element);

#endif
