/* Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
 * 1, 2, 3", SC'11). A number is a pure function of (seed, stream, counter), so any element can be
 * drawn by any thread in any order and a resumed run draws the same ones. `stream` names who draws
 * (a hash of a tensor's name, a step, ...); `counter` is the element. */
#ifndef OCT_BASE_RNG_H
#define OCT_BASE_RNG_H

#include <stdint.h>

typedef struct oct_rng_block {
    uint32_t word[4];
} oct_rng_block;

oct_rng_block oct_rng_draw(uint64_t seed, uint64_t stream, uint64_t counter);

/* Uniform in [0, 1), a multiple of 2^-24 (float) or 2^-53 (double). */
float oct_rng_uniform(uint64_t seed, uint64_t stream, uint64_t counter);
double oct_rng_uniform_f64(uint64_t seed, uint64_t stream, uint64_t counter);
/* Standard normal, by Box-Muller in double. */
float oct_rng_normal(uint64_t seed, uint64_t stream, uint64_t counter);
/* Uniform in 0 .. n-1 for n >= 1, unbiased to 2^-64 (multiply-shift of 64 bits). */
uint64_t oct_rng_below(uint64_t seed, uint64_t stream, uint64_t counter, uint64_t n);

/* A stream number from a name (FNV-1a, 64 bit). */
uint64_t oct_rng_stream(const char *name);

#endif
