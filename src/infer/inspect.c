/* What 8 bits do to stored weights: see inspect.h. */
#include "infer/inspect.h"

#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "nn/experts.h"
#include "nn/linear.h"

static double worse_of(const oct_quant_stats along[2]) {
    return fmax(oct_quant_stats_relative(&along[0]), oct_quant_stats_relative(&along[1]));
}

/* Sums of the trials over a module's matrices: too large for a stack. */
typedef struct work {
    const oct_recipe *recipe;
    oct_arena *arena;
    oct_quant_stats trials[2][OCT_N_QUANT_TRIALS];
} work;

static oct_status measure(work *w, const float *matrix, int64_t rows, int64_t cols,
                          oct_inspected *out) {
    const oct_matrix_view view = {matrix, OCT_F32, rows, cols, cols};
    oct_arena *const arenas[2] = {w->arena, w->arena};
    oct_arena_mark mark = oct_arena_get_mark(w->arena);
    oct_quantized q;
    oct_status status =
        oct_quantize(&view, w->recipe, OCT_ROLE_WEIGHT, OCT_ALONG_BOTH, arenas, NULL, &q);
    for (int dim = 0; dim < 2 && !status; dim++)
        status = oct_quant_stats_add(&view, &q.along[dim], &out->along[dim]);
    oct_arena_release(w->arena, mark);
    for (int dim = 0; dim < 2 && !status; dim++)
        status = oct_quant_stats_try(&view, OCT_ROLE_WEIGHT, dim, 0, w->arena, w->trials[dim]);
    return status;
}

static oct_status measure_param(work *w, const oct_param *param, oct_inspected *out) {
    const int64_t *shape = param->shape;
    const int64_t n = param->n_dims == 3 ? shape[0] : 1;
    const int64_t rows = shape[param->n_dims - 2], cols = shape[param->n_dims - 1];
    oct_status status = OCT_OK;
    for (int64_t e = 0; e < n && !status; e++)
        status = measure(w, param->value + e * rows * cols, rows, cols, out);
    return status;
}

static oct_status inspect_row(work *w, const oct_plan_row *row, oct_inspected *out) {
    const oct_linear *linear = oct_linear_from(row->module);
    const oct_experts *experts = oct_experts_from(row->module);
    oct_status status = OCT_OK;
    for (int dim = 0; dim < 2; dim++)
        for (int i = 0; i < OCT_N_QUANT_TRIALS; i++)
            w->trials[dim][i] = (oct_quant_stats){0};
    out->row = row;
    if (linear)
        status = measure_param(w, linear->weight, out);
    for (int i = 0; experts && i < OCT_N_EXPERT_WEIGHTS && !status; i++)
        status = measure_param(w, experts->w[i], out);
    out->error = worse_of(out->along);
    for (int i = 0; i < OCT_N_QUANT_TRIALS; i++) {
        const oct_quant_stats both[2] = {w->trials[0][i], w->trials[1][i]};
        out->trials[i] = worse_of(both);
    }
    return status;
}

/* Worst first; a poisoned weight before all; of equals the first in the model. */
static int compare(const void *a, const void *b) {
    const oct_inspected *x = a, *y = b;
    const int64_t special = y->along[1].n_special - x->along[1].n_special;
    if (special != 0)
        return special > 0 ? 1 : -1;
    if (x->error != y->error)
        return x->error < y->error ? 1 : -1;
    return (x->row > y->row) - (x->row < y->row);
}

static bool stands_out(const oct_inspected *r, double median) {
    const double chance = OCT_STANDS_OUT_CHANCE / sqrt((double)r->along[1].n);
    return r->along[1].n_special > 0 || r->error > (OCT_STANDS_OUT + chance) * median;
}

oct_status oct_inspect_weights(const oct_plan *plan, const oct_recipe *recipe, oct_inspected **out,
                               oct_error *err) {
    const size_t n = (size_t)plan->n_rows;
    oct_inspected *rows = oct_calloc_array(n + 1, sizeof *rows);
    work *w = oct_calloc_array(1, sizeof *w);
    oct_status status = rows && w ? OCT_OK : OCT_NO_MEMORY;
    if (!status) {
        w->recipe = recipe;
        w->arena = oct_arena_create();
        status = w->arena ? OCT_OK : OCT_NO_MEMORY;
    }
    for (size_t i = 0; i < n && !status; i++)
        status = inspect_row(w, &plan->rows[i], &rows[i]);
    if (w)
        oct_arena_destroy(w->arena);
    oct_free(w);
    if (status) {
        oct_free(rows);
        return oct_fail_memory(err);
    }
    qsort(rows, n, sizeof *rows, compare);
    for (size_t i = 0; i < n; i++)
        rows[i].stands_out = stands_out(&rows[i], rows[n / 2].error);
    *out = rows;
    return OCT_OK;
}
