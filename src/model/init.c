/* Initial values, drawn element by element from (seed, parameter name, element): any shard of any
 * parameter can be drawn alone, by any thread. */
#include "base/checked.h"
#include "base/rng.h"
#include "base/thread.h"
#include "model/model.h"

#define ELEMENTS_PER_TASK 16384
/* Redraws of a truncated normal use counters far above any element's. */
#define ATTEMPT_SHIFT 52
#define MAX_ATTEMPTS 1024

typedef struct drawing {
    const oct_init *init;
    uint64_t seed, stream;
    int64_t first, n;
    float *out;
} drawing;

/* Drawn again until inside [low, high]; clamped in the end, where the interval is far out. */
static float draw_truncated(const drawing *d, uint64_t element) {
    const oct_init *init = d->init;
    float x = 0;
    for (uint64_t attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
        x = init->std * oct_rng_normal(d->seed, d->stream, attempt << ATTEMPT_SHIFT | element);
        if (x >= init->low && x <= init->high)
            return x;
    }
    return x < init->low ? init->low : init->high;
}

static float draw_element(const drawing *d, uint64_t element) {
    switch (d->init->kind) {
    case OCT_INIT_ZEROS:
        return 0.0f;
    case OCT_INIT_ONES:
        return 1.0f;
    case OCT_INIT_NORMAL:
        return d->init->std * oct_rng_normal(d->seed, d->stream, element);
    case OCT_INIT_TRUNCATED_NORMAL:
        return draw_truncated(d, element);
    }
    return 0.0f;
}

static void draw_task(void *context, int64_t task, int thread) {
    (void)thread;
    const drawing *d = context;
    int64_t begin = task * ELEMENTS_PER_TASK, end = oct_min_i64(begin + ELEMENTS_PER_TASK, d->n);
    for (int64_t i = begin; i < end; i++)
        d->out[i] = draw_element(d, (uint64_t)(d->first + i));
}

void oct_param_draw(const oct_param *param, uint64_t seed, int64_t first, int64_t n, float *out) {
    drawing d = {&param->init, seed, oct_rng_stream(param->name), first, n, out};
    oct_parallel(oct_ceil_div(n, ELEMENTS_PER_TASK), draw_task, &d);
}

void oct_model_init(oct_model *model, uint64_t seed) {
    int64_t n_params;
    oct_param *const *params = oct_model_params(model, &n_params);
    for (int64_t i = 0; i < n_params; i++)
        if (params[i]->value)
            oct_param_draw(params[i], seed, params[i]->first, params[i]->n_held, params[i]->value);
    for (int64_t i = 0; i < oct_model_get_args(model)->n_layers; i++) {
        oct_moe *moe = oct_model_moe(model, i);
        for (int64_t e = 0; moe && e < moe->config.rule.n_experts; e++)
            moe->expert_bias[e] = 0.0f;
    }
    oct_model_changed(model);
}
