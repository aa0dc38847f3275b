/* Quantizations that siblings share: see shared.h. */
#include "quant/shared.h"

#include "base/alloc.h"

typedef struct entry {
    uint64_t id;
    oct_role role;
    oct_dtype format;
    oct_granularity granularity;
    float target;
    oct_scale_mode mode, wgrad_mode;
    oct_amax amax;
    oct_quantized quantized;
} entry;

struct oct_shared {
    entry *entries;
    size_t n, capacity;
};

oct_status oct_shared_create(oct_shared **out) {
    *out = oct_calloc_array(1, sizeof(oct_shared));
    return *out ? OCT_OK : OCT_NO_MEMORY;
}

void oct_shared_destroy(oct_shared *shared) {
    if (!shared)
        return;
    oct_free(shared->entries);
    oct_free(shared);
}

static bool serves(const entry *e, const oct_tensor *x, const oct_recipe *recipe, oct_role role,
                   oct_along which, float use) {
    if (e->id != x->id || e->role != role || e->granularity != recipe->granularity)
        return false;
    if (e->amax.use != use || e->format != recipe->format[role] ||
        e->target != recipe->target[role] || e->mode != recipe->scale_mode ||
        e->wgrad_mode != recipe->wgrad_scale_mode)
        return false;
    return (!(which & OCT_ALONG_0) || e->quantized.along[0].codes) &&
           (!(which & OCT_ALONG_1) || e->quantized.along[1].codes);
}

static oct_status append(oct_shared *shared, entry e) {
    entry *grown = oct_grow_array(shared->entries, shared->n, &shared->capacity, sizeof *grown);
    if (!grown)
        return OCT_NO_MEMORY;
    shared->entries = grown;
    shared->entries[shared->n++] = e;
    return OCT_OK;
}

oct_status oct_shared_quantize(oct_shared *shared, const oct_tensor *x, const oct_recipe *recipe,
                               oct_role role, oct_along which, oct_arena *const arenas[2],
                               oct_amax *amax, oct_quantized *out) {
    oct_amax own = {.use = -1.0f};
    amax = amax ? amax : &own;
    for (size_t i = 0; i < shared->n && x->id; i++) {
        if (serves(&shared->entries[i], x, recipe, role, which, amax->use)) {
            amax->seen = shared->entries[i].amax.seen;
            *out = shared->entries[i].quantized;
            return OCT_OK;
        }
    }
    int64_t cols = oct_tensor_cols(x);
    oct_matrix_view view = {x->data, x->dtype, oct_tensor_rows(x), cols, cols};
    oct_status status = oct_quantize(&view, recipe, role, which, arenas, amax, out);
    if (status || !x->id)
        return status;
    return append(shared, (entry){x->id, role, recipe->format[role], recipe->granularity,
                                  recipe->target[role], recipe->scale_mode,
                                  recipe->wgrad_scale_mode, *amax, *out});
}

size_t oct_shared_count(const oct_shared *shared) {
    return shared->n;
}

void oct_shared_truncate(oct_shared *shared, size_t n) {
    if (n < shared->n)
        shared->n = n;
}
