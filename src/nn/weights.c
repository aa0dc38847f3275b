/* The cache of what products see of a weight: see weights.h.
 *
 * An entry is one (parameter, slice, form); a form is BF16 or a recipe. Entries live as long as the
 * cache, so their buffers are used again version after version. */
#include "nn/weights.h"

#include <string.h>

#include "base/alloc.h"
#include "op/elementwise.h"

typedef struct entry {
    const oct_param *param;
    int64_t expert;
    const oct_recipe *recipe; /* NULL: the BF16 copy of the whole parameter */
    uint64_t version;         /* that the copies below were made from; 0: none yet */
    void *dense;
    oct_arena *copies[2]; /* of quantized.along[0] and [1] */
    oct_quantized quantized;
    oct_amax amax;
    size_t n_bytes;
} entry;

struct oct_weights {
    entry *entries;
    size_t n_entries, capacity;
    uint32_t *table; /* open addressing: entry index + 1, 0 is free; a power of two, half empty */
    size_t table_size;
    oct_caching caching;
    const oct_weight_source *source; /* NULL: masters are whole */
};

oct_status oct_weights_create(oct_weights **out) {
    oct_weights *weights = oct_calloc_array(1, sizeof *weights);
    if (!weights)
        return OCT_NO_MEMORY;
    *out = weights;
    return OCT_OK;
}

void oct_weights_destroy(oct_weights *weights) {
    if (!weights)
        return;
    for (size_t i = 0; i < weights->n_entries; i++) {
        oct_free(weights->entries[i].dense);
        oct_arena_destroy(weights->entries[i].copies[0]);
        oct_arena_destroy(weights->entries[i].copies[1]);
    }
    oct_free(weights->entries);
    oct_free(weights->table);
    oct_free(weights);
}

void oct_weights_set_caching(oct_weights *weights, oct_caching caching) {
    weights->caching = caching;
}

void oct_weights_set_source(oct_weights *weights, const oct_weight_source *source) {
    weights->source = source;
}

size_t oct_weights_bytes(const oct_weights *weights) {
    size_t n_bytes = 0;
    for (size_t i = 0; i < weights->n_entries; i++)
        n_bytes += weights->entries[i].n_bytes;
    return n_bytes;
}

static size_t hash_key(const oct_param *param, int64_t expert, const oct_recipe *recipe) {
    uint64_t h = (uint64_t)(uintptr_t)param / 64 + (uint64_t)(uintptr_t)recipe * 31 +
                 (uint64_t)expert * 0x9E3779B97F4A7C15u;
    h ^= h >> 29;
    h *= 0xBF58476D1CE4E5B9u;
    return (size_t)(h ^ h >> 32);
}

/* The table slot of the key: its entry's, or the free one where it belongs. */
static size_t find_slot(const oct_weights *weights, const oct_param *param, int64_t expert,
                        const oct_recipe *recipe) {
    size_t mask = weights->table_size - 1, slot = hash_key(param, expert, recipe) & mask;
    for (; weights->table[slot]; slot = (slot + 1) & mask) {
        const entry *e = &weights->entries[weights->table[slot] - 1];
        if (e->param == param && e->expert == expert && e->recipe == recipe)
            break;
    }
    return slot;
}

static oct_status grow_table(oct_weights *weights) {
    size_t capacity = weights->capacity ? 2 * weights->capacity : 64;
    entry *entries = oct_realloc_array(weights->entries, capacity, sizeof *entries);
    if (!entries)
        return OCT_NO_MEMORY;
    weights->entries = entries;
    uint32_t *table = oct_calloc_array(2 * capacity, sizeof *table);
    if (!table)
        return OCT_NO_MEMORY;
    oct_free(weights->table);
    weights->table = table;
    weights->table_size = 2 * capacity;
    weights->capacity = capacity;
    for (size_t i = 0; i < weights->n_entries; i++) {
        const entry *e = &entries[i];
        table[find_slot(weights, e->param, e->expert, e->recipe)] = (uint32_t)i + 1;
    }
    return OCT_OK;
}

static oct_status find_entry(oct_weights *weights, const oct_param *param, int64_t expert,
                             const oct_recipe *recipe, entry **out) {
    if (weights->n_entries == weights->capacity) {
        oct_status status = grow_table(weights);
        if (status)
            return status;
    }
    size_t slot = find_slot(weights, param, expert, recipe);
    if (!weights->table[slot]) {
        weights->entries[weights->n_entries] =
            (entry){.param = param, .expert = expert, .recipe = recipe};
        weights->table[slot] = (uint32_t)++weights->n_entries;
    }
    *out = &weights->entries[weights->table[slot] - 1];
    return OCT_OK;
}

static oct_tensor tensor_of(const oct_param *param, oct_dtype dtype, void *data) {
    oct_tensor t = {.dtype = dtype, .n_dims = param->n_dims, .data = data};
    memcpy(t.shape, param->shape, sizeof param->shape);
    return t;
}

oct_status oct_weights_dense(oct_weights *weights, const oct_param *param, oct_dtype dtype,
                             oct_tensor *out) {
    if (weights->source)
        return weights->source->dense(weights->source->user, param, dtype, out);
    oct_tensor master = tensor_of(param, OCT_F32, param->value);
    if (dtype == OCT_F32) {
        *out = master;
        return OCT_OK;
    }
    entry *e;
    oct_status status = find_entry(weights, param, 0, NULL, &e);
    if (status)
        return status;
    if (!e->dense) {
        e->n_bytes = (size_t)oct_param_elements(param) * oct_dtype_bytes(dtype);
        e->dense = oct_malloc(e->n_bytes);
        if (!e->dense)
            return OCT_NO_MEMORY;
    }
    *out = tensor_of(param, dtype, e->dense);
    if (e->version == param->version && weights->caching == OCT_CACHE_ON)
        return OCT_OK;
    status = oct_cast(&master, out);
    e->version = status ? 0 : param->version;
    return status;
}

/* Empties the buffers for a new version. */
static oct_status restart(entry *e) {
    for (int i = 0; i < 2; i++) {
        if (!e->copies[i])
            e->copies[i] = oct_arena_create_exact();
        if (!e->copies[i])
            return OCT_NO_MEMORY;
        oct_arena_release(e->copies[i], (oct_arena_mark){0, 0});
    }
    e->quantized = (oct_quantized){0};
    e->version = e->param->version;
    return OCT_OK;
}

static oct_along copies_held(const oct_quantized *q) {
    return (q->along[0].codes ? OCT_ALONG_0 : 0) | (q->along[1].codes ? OCT_ALONG_1 : 0);
}

oct_status oct_weights_quantized(oct_weights *weights, const oct_param *param, int64_t expert,
                                 const oct_recipe *recipe, oct_along which, oct_amax *amax,
                                 oct_quantized *out) {
    if (weights->source)
        return weights->source->quantized(weights->source->user, param, expert, recipe, which, amax,
                                          out);
    entry *e;
    oct_status status = find_entry(weights, param, expert, recipe, &e);
    if (status)
        return status;
    if ((e->version != param->version || weights->caching == OCT_CACHE_OFF))
        status = restart(e);
    if (status)
        return status;
    oct_along missing = which & ~(unsigned)copies_held(&e->quantized);
    if (missing) {
        int64_t rows = param->shape[param->n_dims - 2], cols = param->shape[param->n_dims - 1];
        oct_matrix_view x = {.data = param->value + expert * rows * cols,
                             .dtype = OCT_F32,
                             .rows = rows,
                             .cols = cols,
                             .ld = cols};
        oct_quantized made = {0};
        e->amax.use = amax ? amax->use : -1.0f;
        status = oct_quantize(&x, recipe, OCT_ROLE_WEIGHT, missing, e->copies, &e->amax, &made);
        if (status)
            return status;
        for (int i = 0; i < 2; i++)
            if (made.along[i].codes)
                e->quantized.along[i] = made.along[i];
        e->n_bytes = oct_arena_used_bytes(e->copies[0]) + oct_arena_used_bytes(e->copies[1]);
    }
    if (amax)
        amax->seen = e->amax.seen;
    *out = e->quantized;
    return OCT_OK;
}
