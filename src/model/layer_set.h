/* A set of a model's layers, as a plain value. */
#ifndef OCT_MODEL_LAYER_SET_H
#define OCT_MODEL_LAYER_SET_H

#include <stdbool.h>
#include <stdint.h>

#define OCT_LAYER_SET_MAX 1024 /* layers 0 .. 1023; none above is in a set */

typedef struct oct_layer_set {
    uint64_t bits[OCT_LAYER_SET_MAX / 64];
} oct_layer_set;

static inline bool oct_layer_set_has(const oct_layer_set *set, int64_t layer) {
    return layer < OCT_LAYER_SET_MAX && (set->bits[layer / 64] >> (layer % 64) & 1);
}

/* `layer` is below OCT_LAYER_SET_MAX. */
static inline void oct_layer_set_add(oct_layer_set *set, int64_t layer) {
    set->bits[layer / 64] |= (uint64_t)1 << (layer % 64);
}

static inline bool oct_layer_set_is_empty(const oct_layer_set *set) {
    uint64_t any = 0;
    for (int i = 0; i < OCT_LAYER_SET_MAX / 64; i++)
        any |= set->bits[i];
    return any == 0;
}

#endif
