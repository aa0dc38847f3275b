/* Adam and AdamW over a model's parameters: see optimizer.h. */
#include "train/optimizer.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"

static oct_status add_param(oct_optimizer *o, oct_param *param) {
    size_t n = (size_t)param->n_held;
    int64_t i = o->n_params;
    if (!param->grad)
        param->grad = oct_calloc_array(n, sizeof *param->grad);
    o->m[i] = oct_calloc_array(n, sizeof **o->m);
    o->v[i] = oct_calloc_array(n, sizeof **o->v);
    o->params[i] = param;
    o->n_params++;
    return param->grad && o->m[i] && o->v[i] ? OCT_OK : OCT_NO_MEMORY;
}

oct_status oct_optimizer_create(oct_param *const *params, int64_t n, const oct_adam *adam,
                                oct_optimizer **out) {
    oct_status status = OCT_NO_MEMORY;
    oct_optimizer *o = oct_calloc_array(1, sizeof *o);
    *out = NULL;
    if (!o)
        return status;
    *o = (oct_optimizer){.adam = *adam};
    o->params = oct_calloc_array((size_t)n, sizeof(oct_param *));
    o->m = oct_calloc_array((size_t)n, sizeof *o->m);
    o->v = oct_calloc_array((size_t)n, sizeof *o->v);
    if (o->params && o->m && o->v)
        status = OCT_OK;
    for (int64_t i = 0; i < n && !status; i++)
        if (!params[i]->frozen)
            status = add_param(o, params[i]);
    if (status)
        oct_optimizer_destroy(o);
    else
        *out = o;
    return status;
}

void oct_optimizer_destroy(oct_optimizer *o) {
    if (!o)
        return;
    for (int64_t i = 0; i < o->n_params; i++) {
        oct_free(o->m[i]);
        oct_free(o->v[i]);
    }
    oct_free(o->m);
    oct_free(o->v);
    oct_free(o->params);
    oct_free(o);
}

void oct_optimizer_clear_gradients(oct_optimizer *o) {
    for (int64_t i = 0; i < o->n_params; i++)
        memset(o->params[i]->grad, 0, (size_t)o->params[i]->n_held * sizeof *o->params[i]->grad);
}

oct_status oct_optimizer_gradient_norm(const oct_optimizer *o, double *norm, oct_arena *scratch) {
    double total = 0;
    for (int64_t i = 0; i < o->n_params; i++) {
        double sum = 0;
        oct_status status =
            oct_sum_of_squares(o->params[i]->grad, o->params[i]->n_held, &sum, scratch);
        if (status)
            return status;
        total += sum;
    }
    *norm = sqrt(total);
    return OCT_OK;
}

float oct_clip_factor(double norm, double max_norm) {
    double factor = max_norm / (norm + 1e-6);
    return factor < 1 ? (float)factor : 1;
}

/* Looks again at what the update found to be flawed: where is only asked once all is lost. */
static oct_flaw find_flaw(const oct_optimizer *o, int64_t i, unsigned flaws) {
    const oct_param *param = o->params[i];
    const float *numbers = flaws & OCT_ADAM_M   ? o->m[i]
                           : flaws & OCT_ADAM_V ? o->v[i]
                                                : param->value;
    const char *what = flaws & OCT_ADAM_M ? "exp_avg" : flaws & OCT_ADAM_V ? "exp_avg_sq" : "value";
    int64_t at = 0;
    while (at < param->n_held - 1 && isfinite(numbers[at]))
        at++;
    return (oct_flaw){param, what, param->first + at, numbers[at]};
}

oct_status oct_optimizer_step(oct_optimizer *o, float grad_scale, oct_flaw *flaw) {
    *flaw = (oct_flaw){0};
    o->n_steps++;
    for (int64_t i = 0; i < o->n_params; i++) {
        oct_param *param = o->params[i];
        unsigned flaws;
        oct_status status = oct_adam_step(&o->adam, o->n_steps, param->n_held, param->grad,
                                          grad_scale, param->value, o->m[i], o->v[i], &flaws);
        if (status)
            return status;
        param->version++;
        if (flaws) {
            *flaw = find_flaw(o, i, flaws);
            return OCT_OK;
        }
    }
    return OCT_OK;
}
