/* Quantizations that siblings share: see quant_cache.h. */
#include "quant/quant_cache.h"

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

struct oct_quant_cache {
    entry *entries;
    size_t n, capacity;
};

oct_status oct_quant_cache_create(oct_quant_cache **out) {
    *out = oct_calloc_array(1, sizeof(oct_quant_cache));
    return *out ? OCT_OK : OCT_NO_MEMORY;
}

void oct_quant_cache_destroy(oct_quant_cache *cache) {
    if (!cache)
        return;
    oct_free(cache->entries);
    oct_free(cache);
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

static oct_status append(oct_quant_cache *cache, entry e) {
    entry *grown = oct_grow_array(cache->entries, cache->n, &cache->capacity, sizeof *grown);
    if (!grown)
        return OCT_NO_MEMORY;
    cache->entries = grown;
    cache->entries[cache->n++] = e;
    return OCT_OK;
}

oct_status oct_quant_cache_quantize(oct_quant_cache *cache, const oct_tensor *x,
                                    const oct_recipe *recipe, oct_role role, oct_along which,
                                    oct_arena *const arenas[2], oct_amax *amax,
                                    oct_quantized *out) {
    oct_amax own = {.use = -1.0f};
    amax = amax ? amax : &own;
    for (size_t i = 0; i < cache->n && x->id; i++) {
        if (serves(&cache->entries[i], x, recipe, role, which, amax->use)) {
            amax->seen = cache->entries[i].amax.seen;
            *out = cache->entries[i].quantized;
            return OCT_OK;
        }
    }
    int64_t cols = oct_tensor_cols(x);
    oct_matrix_view view = {x->data, x->dtype, oct_tensor_rows(x), cols, cols};
    oct_status status = oct_quantize(&view, recipe, role, which, arenas, amax, out);
    if (status || !x->id)
        return status;
    return append(cache, (entry){x->id, role, recipe->format[role], recipe->granularity,
                                 recipe->target[role], recipe->scale_mode, recipe->wgrad_scale_mode,
                                 *amax, *out});
}

size_t oct_quant_cache_count(const oct_quant_cache *cache) {
    return cache->n;
}

void oct_quant_cache_truncate(oct_quant_cache *cache, size_t n) {
    if (n < cache->n)
        cache->n = n;
}
