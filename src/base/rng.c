/* Philox4x32-10: see rng.h. Constants from the paper, table 2. */
#include "base/rng.h"

#include <math.h>

oct_rng_block oct_rng_draw(uint64_t seed, uint64_t stream, uint64_t counter) {
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32);
    uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (oct_rng_block){{c0, c1, c2, c3}};
}

float oct_rng_uniform(uint64_t seed, uint64_t stream, uint64_t counter) {
    return (float)(oct_rng_draw(seed, stream, counter).word[0] >> 8) * 0x1p-24f;
}

static uint64_t draw_u64(uint64_t seed, uint64_t stream, uint64_t counter) {
    oct_rng_block b = oct_rng_draw(seed, stream, counter);
    return (uint64_t)b.word[1] << 32 | b.word[0];
}

double oct_rng_uniform_f64(uint64_t seed, uint64_t stream, uint64_t counter) {
    return (double)(draw_u64(seed, stream, counter) >> 11) * 0x1p-53;
}

float oct_rng_normal(uint64_t seed, uint64_t stream, uint64_t counter) {
    oct_rng_block b = oct_rng_draw(seed, stream, counter);
    double u = ((double)b.word[0] + 1.0) * 0x1p-32; /* in (0, 1], so the logarithm is finite */
    double angle = (double)b.word[1] * 0x1p-32 * 6.283185307179586;
    return (float)(sqrt(-2.0 * log(u)) * cos(angle));
}

uint64_t oct_rng_below(uint64_t seed, uint64_t stream, uint64_t counter, uint64_t n) {
    return (uint64_t)((unsigned __int128)draw_u64(seed, stream, counter) * n >> 64);
}

uint64_t oct_rng_stream(const char *name) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    return hash;
}
