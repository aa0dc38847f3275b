/* Keys and values of the tokens so far: see attention.h. */
#include "base/alloc.h"
#include "base/checked.h"
#include "nn/attention.h"

static oct_status allocate(oct_kv_cache *cache, size_t n_bytes) {
    cache->keys = oct_calloc_array((size_t)cache->n_layers, sizeof *cache->keys);
    cache->values = oct_calloc_array((size_t)cache->n_layers, sizeof *cache->values);
    if (!cache->keys || !cache->values)
        return OCT_NO_MEMORY;
    for (int64_t i = 0; i < cache->n_layers; i++) {
        cache->keys[i] = oct_malloc(n_bytes);
        cache->values[i] = oct_malloc(n_bytes);
        if (!cache->keys[i] || !cache->values[i])
            return OCT_NO_MEMORY;
    }
    return OCT_OK;
}

oct_status oct_kv_cache_create(int64_t n_layers, int64_t B, int64_t max_len, int64_t width,
                               oct_dtype dtype, oct_kv_cache **out) {
    size_t n_bytes;
    if (!oct_mul_size((size_t)B, (size_t)max_len, &n_bytes) ||
        !oct_mul_size(n_bytes, (size_t)width * oct_dtype_bytes(dtype), &n_bytes))
        return OCT_NO_MEMORY;
    oct_kv_cache *cache = oct_calloc_array(1, sizeof *cache);
    if (!cache)
        return OCT_NO_MEMORY;
    *cache = (oct_kv_cache){
        .n_layers = n_layers, .B = B, .max_len = max_len, .width = width, .dtype = dtype};
    oct_status status = allocate(cache, n_bytes);
    if (status) {
        oct_kv_cache_destroy(cache);
        return status;
    }
    *out = cache;
    return OCT_OK;
}

void oct_kv_cache_destroy(oct_kv_cache *cache) {
    if (!cache)
        return;
    for (int64_t i = 0; i < cache->n_layers; i++) {
        if (cache->keys)
            oct_free(cache->keys[i]);
        if (cache->values)
            oct_free(cache->values[i]);
    }
    oct_free(cache->keys);
    oct_free(cache->values);
    oct_free(cache);
}
