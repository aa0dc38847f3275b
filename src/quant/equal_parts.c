/* Rows in equal parts: see equal_parts.h. */
#include "quant/equal_parts.h"

#include <math.h>

#include "base/checked.h"
#include "base/thread.h"
#include "kernel/select.h"

/* Rows cut into parts of as many elements each, wherever that is in a row. */
typedef struct cut {
    const oct_quantize_kernels *kernels;
    oct_matrix_view x;
    oct_dtype format;
    float target, use; /* use < 0: each part's own amax */
    int64_t n, length; /* elements, and those of a part; the last may be short */
    uint8_t *codes;
    float *scales, *amaxes;
} cut;

static void cut_task(void *context, int64_t task, int thread) {
    const cut *c = context;
    (void)thread;
    int64_t first = oct_min_i64(task * c->length, c->n);
    int64_t n = oct_min_i64(c->length, c->n - first);
    const char *data = (const char *)c->x.data + (size_t)first * oct_dtype_bytes(c->x.dtype);
    const oct_matrix_view piece = {data, c->x.dtype, n > 0, n, n};
    c->amaxes[task] = c->kernels->amax(&piece);
    c->scales[task] =
        oct_scale_from_amax(c->use >= 0 && n > 0 ? c->use : c->amaxes[task], c->target);
    c->kernels->scaled(&piece, c->format, c->scales[task], c->codes + first, n);
}

oct_status oct_quantize_equal_parts(const oct_matrix_view *x, const int64_t *offsets,
                                    int64_t n_groups, const oct_recipe *recipe, oct_role role,
                                    oct_arena *const arenas[2], oct_amax *amax,
                                    oct_quantized *out) {
    int64_t n = x->rows * x->cols;
    cut c = {.kernels = oct_kernels_current()->quantize,
             .x = *x,
             .format = recipe->format[role],
             .target = recipe->target[role],
             .use = amax ? amax->use : -1.0f,
             .n = n,
             .length = oct_ceil_div(n, n_groups),
             .codes = oct_arena_alloc_array(arenas[0], (size_t)n, 1),
             .scales = oct_arena_alloc_array(arenas[0], (size_t)n_groups, sizeof(float))};
    oct_arena_mark mark = oct_arena_get_mark(arenas[1]);
    c.amaxes = oct_arena_alloc_array(arenas[1], (size_t)n_groups, sizeof(float));
    if (!c.codes || !c.scales || !c.amaxes)
        return OCT_NO_MEMORY;
    oct_parallel(n_groups, cut_task, &c);
    float largest = 0.0f;
    for (int64_t g = 0; g < n_groups; g++) {
        largest = fmaxf(largest, c.amaxes[g]);
        int64_t rows = offsets[g + 1] - offsets[g];
        oct_qmatrix q = oct_qmatrix_shape(recipe, role, rows, x->cols, 1);
        q.codes = c.codes + offsets[g] * x->cols;
        q.scales = &c.scales[g];
        out[g] = (oct_quantized){{q, q}};
    }
    if (amax)
        amax->seen = largest;
    oct_arena_release(arenas[1], mark);
    return OCT_OK;
}
