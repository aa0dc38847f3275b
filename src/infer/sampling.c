/* Drawing a token from logits: see sampling.h. Source: transformers, generation/logits_process.py.
 */
#include "infer/sampling.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/rng.h"

typedef struct candidate {
    float logit;
    int32_t id;
} candidate;

static int by_logit(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* As a share of the likeliest's. */
static double weight_of(const candidate *sorted, int64_t i, double temperature) {
    return exp(((double)sorted[i].logit - sorted[0].logit) / temperature);
}

/* How many of the n likeliest can be drawn. */
static int64_t count_left(const candidate *sorted, int64_t n, const oct_sampling *s) {
    double total = 0, sum = 0;
    int64_t left = 0;
    if (s->top_p > 0) {
        for (int64_t i = 0; i < n; i++)
            total += weight_of(sorted, i, s->temperature);
        while (left < n && sum < s->top_p * total)
            sum += weight_of(sorted, left++, s->temperature);
        n = oct_max_i64(left, 1);
    }
    while (n > 1 && weight_of(sorted, n - 1, s->temperature) < s->min_p)
        n--;
    return n;
}

static int32_t draw(const candidate *sorted, int64_t n, const oct_sampling *s, int64_t position) {
    double total = 0, sum = 0;
    for (int64_t i = 0; i < n; i++)
        total += weight_of(sorted, i, s->temperature);
    double target =
        total * oct_rng_uniform_f64(s->seed, oct_rng_stream("sample"), (uint64_t)position);
    for (int64_t i = 0; i < n; i++) {
        sum += weight_of(sorted, i, s->temperature);
        if (sum > target)
            return sorted[i].id;
    }
    return sorted[n - 1].id;
}

int32_t oct_sample(const float *logits, int64_t V, const oct_sampling *sampling, int64_t position) {
    int32_t id = -1;
    candidate *sorted = oct_malloc_array((size_t)V, sizeof *sorted);
    if (!sorted || V < 1)
        goto cleanup;
    for (int64_t i = 0; i < V; i++) {
        if (isnan(logits[i]))
            goto cleanup;
        sorted[i] = (candidate){logits[i], (int32_t)i};
    }
    qsort(sorted, (size_t)V, sizeof *sorted, by_logit);
    int64_t n = sampling->top_k > 0 ? oct_min_i64(sampling->top_k, V) : V;
    id = sorted[0].id;
    if (sampling->temperature > 0)
        id = draw(sorted, count_left(sorted, n, sampling), sampling, position);
cleanup:
    oct_free(sorted);
    return id;
}

void oct_penalize_repeats(float *logits, const int32_t *before, size_t n, double penalty,
                          uint8_t *seen) {
    for (size_t i = 0; i < n; i++) {
        float *logit = &logits[before[i]];
        if (seen[before[i]])
            continue;
        seen[before[i]] = 1;
        *logit = *logit < 0 ? *logit * (float)penalty : *logit / (float)penalty;
    }
    for (size_t i = 0; i < n; i++)
        seen[before[i]] = 0;
}
