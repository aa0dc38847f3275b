/* One element of a high-precision array: fp32, bf16 or fp16. */
#ifndef OCT_FORMAT_ELEMENT_H
#define OCT_FORMAT_ELEMENT_H

#include <octet/codec.h>
#include <stdbool.h>

#include "base/rng.h"
#include "format/f16.h"
#include "format/fp32.h"

static inline bool oct_is_element(oct_dtype dtype) {
    return dtype == OCT_F32 || dtype == OCT_BF16 || dtype == OCT_F16;
}

static inline float oct_element_load(const void *data, oct_dtype dtype, int64_t i) {
    if (dtype == OCT_F32)
        return ((const float *)data)[i];
    uint16_t bits = ((const uint16_t *)data)[i];
    return dtype == OCT_BF16 ? oct_bf16_decode(bits) : oct_f16_decode(bits);
}

static inline void oct_element_store(void *data, oct_dtype dtype, int64_t i, float x) {
    if (dtype == OCT_F32)
        ((float *)data)[i] = x;
    else
        ((uint16_t *)data)[i] = dtype == OCT_BF16 ? oct_bf16_encode(x) : oct_f16_encode(x);
}

/* The rounding of the element that draws by `counter`. */
static inline oct_rounder oct_rounder_of(oct_rounding rounding, uint64_t seed, uint64_t counter) {
    oct_rounder by = {rounding, 0};
    if (rounding == OCT_ROUND_STOCHASTIC) {
        oct_rng_block block = oct_rng_draw(seed, 0, counter);
        by.random = (uint64_t)block.word[1] << 32 | block.word[0];
    }
    return by;
}

#endif
