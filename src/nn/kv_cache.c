/* Keys and values of the tokens so far: see attention.h. */
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "nn/attention.h"
#include "nn/step.h"

static oct_status allocate(oct_kv_cache *cache, size_t key_bytes, size_t value_bytes) {
    cache->keys = oct_calloc_array((size_t)cache->n_layers, sizeof *cache->keys);
    cache->values = oct_calloc_array((size_t)cache->n_layers, sizeof *cache->values);
    cache->documents = oct_calloc_array((size_t)cache->B, sizeof *cache->documents);
    if (!cache->keys || !cache->values || !cache->documents)
        return OCT_NO_MEMORY;
    for (int64_t i = 0; i < cache->n_layers; i++) {
        cache->keys[i] = oct_malloc(key_bytes);
        cache->values[i] = oct_malloc(value_bytes);
        if (!cache->keys[i] || !cache->values[i])
            return OCT_NO_MEMORY;
    }
    return OCT_OK;
}

static bool matrix_bytes(int64_t B, int64_t max_len, int64_t width, oct_dtype dtype,
                         size_t *n_bytes) {
    return oct_mul_size((size_t)B, (size_t)max_len, n_bytes) &&
           oct_mul_size(*n_bytes, (size_t)width * oct_dtype_bytes(dtype), n_bytes);
}

oct_status oct_kv_cache_create(int64_t n_layers, int64_t B, int64_t max_len, int64_t key_width,
                               int64_t value_width, oct_dtype dtype, oct_kv_cache **out) {
    size_t key_bytes, value_bytes;
    if (!matrix_bytes(B, max_len, key_width, dtype, &key_bytes) ||
        !matrix_bytes(B, max_len, value_width, dtype, &value_bytes))
        return OCT_NO_MEMORY;
    oct_kv_cache *cache = oct_calloc_array(1, sizeof *cache);
    if (!cache)
        return OCT_NO_MEMORY;
    *cache = (oct_kv_cache){.n_layers = n_layers,
                            .B = B,
                            .max_len = max_len,
                            .key_width = key_width,
                            .value_width = value_width,
                            .dtype = dtype};
    oct_status status = allocate(cache, key_bytes, value_bytes);
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
    oct_free(cache->documents);
    oct_free(cache);
}

/* Appends the rows of x (B*S, width) at the step's position of every sequence. */
static void append_rows(const oct_step *step, const oct_tensor *x, void *matrix) {
    size_t row = (size_t)oct_tensor_cols(x) * oct_dtype_bytes(x->dtype);
    for (int64_t b = 0; b < step->B; b++)
        memcpy((char *)matrix + (size_t)(b * step->kv->max_len + step->position) * row,
               (const char *)x->data + (size_t)(b * step->S) * row, (size_t)step->S * row);
}

oct_status oct_kv_cache_attend(oct_step *step, int64_t layer, const oct_attention_shape *shape,
                               const oct_tensor *q, const oct_tensor *k, const oct_tensor *v,
                               oct_tensor *o) {
    oct_kv_cache *kv = step->kv;
    append_rows(step, k, kv->keys[layer]);
    append_rows(step, v, kv->values[layer]);
    oct_attention_shape all = *shape;
    all.past = step->position;
    all.kv_stride = kv->max_len;
    oct_tensor all_k =
        oct_tensor_2d(kv->dtype, kv->B * kv->max_len, kv->key_width, kv->keys[layer]);
    oct_tensor all_v =
        oct_tensor_2d(kv->dtype, kv->B * kv->max_len, kv->value_width, kv->values[layer]);
    return oct_attention_forward(&all, q, &all_k, &all_v, o, NULL, step->scratch);
}
