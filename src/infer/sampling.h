/* Drawing a token from logits, as transformers does with do_sample: repeated tokens are made less
 * likely, logits are divided by the temperature, then top_k, top_p and min_p each leave some. */
#ifndef OCT_INFER_SAMPLING_H
#define OCT_INFER_SAMPLING_H

#include <stddef.h>
#include <stdint.h>

typedef struct oct_sampling {
    double temperature; /* 0: the likeliest token; else logits are divided by it */
    int64_t top_k;      /* only the k likeliest tokens can be drawn; 0: all */
    double top_p;       /* of those the fewest whose probabilities reach this sum; 0: all */
    double min_p; /* of those the ones of at least this share of the likeliest's probability */
    double repeat_penalty; /* of each token that was there before: a logit above 0 is divided by it,
                              another multiplied; 0: none */
    uint64_t seed;
} oct_sampling;

/* The token drawn from logits (V) at `position`: a pure function of its arguments; of equal logits
 * the lower id comes first. The penalty is another function's. -1: memory was refused, a logit is
 * NaN or V is 0. */
int32_t oct_sample(const float *logits, int64_t V, const oct_sampling *sampling, int64_t position);

/* Changes the logits (V) of the n tokens `before`, each once however often it is there. `seen` (V)
 * is all 0 before and after. */
void oct_penalize_repeats(float *logits, const int32_t *before, size_t n, double penalty,
                          uint8_t *seen);

#endif
