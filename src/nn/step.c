/* The memory of a step: see step.h. */
#include "nn/step.h"

#include "base/alloc.h"

oct_status oct_step_create(oct_weights *weights, oct_dtype activation, oct_step **out) {
    oct_step *step = oct_calloc_array(1, sizeof *step);
    if (!step)
        return OCT_NO_MEMORY;
    step->weights = weights;
    step->activation = activation;
    step->saved = oct_arena_create();
    step->scratch = oct_arena_create();
    if (!step->saved || !step->scratch || oct_quant_cache_create(&step->quant_cache)) {
        oct_step_destroy(step);
        return OCT_NO_MEMORY;
    }
    *out = step;
    return OCT_OK;
}

void oct_step_destroy(oct_step *step) {
    if (!step)
        return;
    if (step->quant_cache)
        oct_quant_cache_destroy(step->quant_cache);
    oct_arena_destroy(step->scratch);
    oct_arena_destroy(step->saved);
    oct_free(step);
}

oct_step_mark oct_step_enter(oct_step *step) {
    return (oct_step_mark){oct_arena_get_mark(step->scratch),
                           oct_quant_cache_count(step->quant_cache)};
}

void oct_step_leave(oct_step *step, oct_step_mark mark) {
    oct_quant_cache_truncate(step->quant_cache, mark.n_cached);
    oct_arena_release(step->scratch, mark.scratch);
}

static oct_tensor new_tensor(oct_step *step, oct_arena *arena, oct_dtype dtype, int64_t rows,
                             int64_t cols) {
    oct_tensor t = oct_tensor_2d(dtype, rows, cols, NULL);
    t.data = oct_arena_alloc_array(arena, (size_t)rows * (size_t)cols, oct_dtype_bytes(dtype));
    t.id = oct_step_new_id(step);
    return t;
}

oct_tensor oct_step_scratch(oct_step *step, oct_dtype dtype, int64_t rows, int64_t cols) {
    return new_tensor(step, step->scratch, dtype, rows, cols);
}

oct_tensor oct_step_saved(oct_step *step, oct_dtype dtype, int64_t rows, int64_t cols) {
    return new_tensor(step, step->saved, dtype, rows, cols);
}

oct_tensor oct_step_tensor(oct_step *step, oct_dtype dtype, int64_t rows, int64_t cols, bool keep) {
    bool saved = keep && step->save == OCT_SAVE_FOR_BACKWARD;
    return new_tensor(step, saved ? step->saved : step->scratch, dtype, rows, cols);
}

void *oct_step_keep(oct_step *step, size_t n_bytes) {
    return oct_arena_alloc(step->saved, n_bytes);
}
