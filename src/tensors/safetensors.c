/* Reading safetensors files: see safetensors.h. */
#include "tensors/safetensors.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/count.h"
#include "base/fs.h"
#include "file/json.h"

#define MAX_HEADER_BYTES ((size_t)100000000)

typedef struct entry {
    oct_safetensors_tensor tensor;
    size_t begin; /* of its bytes, from the end of the header */
} entry;

struct oct_safetensors {
    oct_mapping mapping; /* empty when the bytes are the caller's */
    char *path;
    json_t *header; /* names, dtype names and metadata point into it */
    entry *entries; /* by begin */
    const oct_safetensors_tensor **by_name;
    int64_t *shapes; /* of all entries, one behind the other */
    size_t count;
};

static const struct {
    const char *name;
    oct_dtype dtype;
    size_t n_bytes;
} dtypes[] = {
    {"F64", OCT_F64, 8},      {"I64", OCT_I64, 8},      {"F32", OCT_F32, 4},
    {"I32", OCT_I32, 4},      {"F16", OCT_F16, 2},      {"BF16", OCT_BF16, 2},
    {"I16", OCT_I16, 2},      {"F8_E4M3", OCT_E4M3, 1}, {"F8_E5M2", OCT_E5M2, 1},
    {"F8_E8M0", OCT_E8M0, 1}, {"I8", OCT_I8, 1},        {"U8", OCT_U8, 1},
    {"BOOL", OCT_BOOL, 1},
};
#define N_DTYPES (OCT_COUNT(dtypes))

const char *oct_safetensors_dtype_name(oct_dtype dtype) {
    for (size_t i = 0; i < N_DTYPES; i++)
        if (dtypes[i].dtype == dtype)
            return dtypes[i].name;
    return NULL;
}

oct_dtype oct_safetensors_dtype(const char *dtype_name) {
    for (size_t i = 0; i < N_DTYPES; i++)
        if (strcmp(dtypes[i].name, dtype_name) == 0)
            return dtypes[i].dtype;
    return OCT_N_DTYPES;
}

size_t oct_safetensors_dtype_bytes(oct_dtype dtype) {
    for (size_t i = 0; i < N_DTYPES; i++)
        if (dtypes[i].dtype == dtype)
            return dtypes[i].n_bytes;
    return 0;
}

/* Checks the length that the file begins with. */
static oct_status find_header(const char *path, const uint8_t *bytes, size_t n_bytes,
                              size_t *header_bytes, oct_error *err) {
    uint64_t n = 0;
    *header_bytes = 0;
    if (n_bytes < 8)
        return oct_fail(err, OCT_INVALID,
                        "%s: header length: expected a file of at least 8 bytes; got %zu", path,
                        n_bytes);
    for (int i = 7; i >= 0; i--)
        n = n << 8 | bytes[i];
    if (n > MAX_HEADER_BYTES)
        return oct_fail(err, OCT_INVALID,
                        "%s: header length: expected at most %zu bytes; got %" PRIu64, path,
                        MAX_HEADER_BYTES, n);
    if (n > n_bytes - 8)
        return oct_fail(
            err, OCT_INVALID,
            "%s: header length: expected at most the %zu bytes that follow; got %" PRIu64, path,
            n_bytes - 8, n);
    if (n == 0 || bytes[8] != '{')
        return oct_fail(err, OCT_INVALID, "%s: header: expected a JSON object that starts with '{'",
                        path);
    *header_bytes = (size_t)n;
    return OCT_OK;
}

/* Where a message is about: a file and one of its tensors. */
typedef struct place {
    const char *path, *name;
} place;

/* `sizes` has room for the list. */
static oct_status read_shape(place at, const json_t *shape, int64_t *sizes, int64_t *n_elements,
                             oct_error *err) {
    *n_elements = 0;
    if (!json_is_array(shape))
        return oct_fail(err, OCT_INVALID, "%s: tensor '%s': shape: expected a list; got %s",
                        at.path, oct_show(at.name).text, oct_json_kind(shape));
    *n_elements = 1;
    for (size_t i = 0; i < json_array_size(shape); i++) {
        const json_t *size = json_array_get(shape, i);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return oct_fail(err, OCT_INVALID,
                            "%s: tensor '%s': shape[%zu]: expected an integer >= 0; got %s",
                            at.path, oct_show(at.name).text, i,
                            json_is_integer(size) ? "a negative one" : oct_json_kind(size));
        sizes[i] = json_integer_value(size);
        if (!oct_mul_i64(*n_elements, sizes[i], n_elements))
            return oct_fail(err, OCT_INVALID,
                            "%s: tensor '%s': shape: expected fewer than 2^63 elements", at.path,
                            oct_show(at.name).text);
    }
    return OCT_OK;
}

static oct_status read_offsets(place at, const json_t *offsets, size_t data_bytes, size_t *begin,
                               size_t *end, oct_error *err) {
    const json_t *a = json_array_get(offsets, 0), *b = json_array_get(offsets, 1);
    *begin = *end = 0;
    if (json_array_size(offsets) != 2 || !json_is_integer(a) || !json_is_integer(b))
        return oct_fail(err, OCT_INVALID,
                        "%s: tensor '%s': data_offsets: expected a list of 2 integers", at.path,
                        oct_show(at.name).text);
    json_int_t first = json_integer_value(a), last = json_integer_value(b);
    if (first < 0 || first > last || (uint64_t)last > data_bytes)
        return oct_fail(err, OCT_INVALID,
                        "%s: tensor '%s': data_offsets: expected 0 <= begin <= end <= %zu; got "
                        "[%" PRId64 ", %" PRId64 "]",
                        at.path, oct_show(at.name).text, data_bytes, (int64_t)first, (int64_t)last);
    *begin = (size_t)first;
    *end = (size_t)last;
    return OCT_OK;
}

static oct_status read_entry(place at, const json_t *value, const uint8_t *data, size_t data_bytes,
                             int64_t *sizes, entry *e, oct_error *err) {
    oct_safetensors_tensor *tensor = &e->tensor;
    const json_t *dtype = json_object_get(value, "dtype"), *shape = json_object_get(value, "shape");
    int64_t n_elements;
    size_t end, expected;
    if (!json_is_object(value) || !json_is_string(dtype))
        return oct_fail(err, OCT_INVALID,
                        "%s: tensor '%s': expected an object with a dtype string; got %s", at.path,
                        oct_show(at.name).text, oct_json_kind(value));
    tensor->name = at.name;
    tensor->dtype_name = json_string_value(dtype);
    tensor->dtype = oct_safetensors_dtype(tensor->dtype_name);
    tensor->n_dims = (int)json_array_size(shape);
    tensor->shape = sizes;
    oct_status status = read_shape(at, shape, sizes, &n_elements, err);
    if (!status)
        status = read_offsets(at, json_object_get(value, "data_offsets"), data_bytes, &e->begin,
                              &end, err);
    if (status)
        return status;
    tensor->n_bytes = end - e->begin;
    if (tensor->dtype == OCT_N_DTYPES)
        return OCT_OK; /* its size is its own affair */
    if (!oct_mul_size((size_t)n_elements, oct_safetensors_dtype_bytes(tensor->dtype), &expected))
        return oct_fail(err, OCT_INVALID, "%s: tensor '%s': shape: expected fewer than 2^64 bytes",
                        at.path, oct_show(at.name).text);
    if (expected != tensor->n_bytes)
        return oct_fail(err, OCT_INVALID,
                        "%s: tensor '%s': data_offsets: expected %zu bytes for its shape and %s; "
                        "got %zu",
                        at.path, oct_show(at.name).text, expected, tensor->dtype_name,
                        tensor->n_bytes);
    tensor->data = data + e->begin;
    return OCT_OK;
}

static oct_status check_metadata(const char *path, json_t *metadata, oct_error *err) {
    const char *key;
    json_t *value;
    if (!json_is_object(metadata))
        return oct_fail(err, OCT_INVALID, "%s: __metadata__: expected an object; got %s", path,
                        oct_json_kind(metadata));
    json_object_foreach(metadata, key, value) {
        if (!json_is_string(value))
            return oct_fail(err, OCT_INVALID, "%s: __metadata__: '%s': expected a string; got %s",
                            path, oct_show(key).text, oct_json_kind(value));
    }
    return OCT_OK;
}

static int compare_place(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->tensor.n_bytes > y->tensor.n_bytes) - (x->tensor.n_bytes < y->tensor.n_bytes);
}

static int compare_name(const void *a, const void *b) {
    const oct_safetensors_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* Sorted by place, each tensor must begin where the one before ended, and the last at the end. */
static oct_status check_cover(const oct_safetensors *file, size_t data_bytes, oct_error *err) {
    size_t end = 0;
    for (size_t i = 0; i < file->count; i++) {
        const entry *e = &file->entries[i];
        if (e->begin != end)
            return oct_fail(err, OCT_INVALID,
                            "%s: tensor '%s': data_offsets: expected to begin at %zu, where the "
                            "tensor before it ends; got %zu (%s)",
                            file->path, oct_show(e->tensor.name).text, end, e->begin,
                            e->begin < end ? "an overlap" : "a gap");
        end += e->tensor.n_bytes;
    }
    if (end != data_bytes)
        return oct_fail(err, OCT_INVALID,
                        "%s: expected %zu bytes of data, the sum of its tensors; got %zu",
                        file->path, end, data_bytes);
    return OCT_OK;
}

static oct_status read_entries(oct_safetensors *file, const uint8_t *data, size_t data_bytes,
                               oct_error *err) {
    const char *name;
    json_t *value;
    oct_status status;
    size_t n = json_object_size(file->header), n_sizes = 0, used = 0;
    json_object_foreach(file->header, name, value) {
        n_sizes += json_array_size(json_object_get(value, "shape"));
    }
    file->shapes = oct_malloc_array(n_sizes, sizeof *file->shapes);
    file->entries = oct_calloc_array(n, sizeof *file->entries);
    file->by_name = oct_malloc_array(n, sizeof *file->by_name);
    if (!file->shapes || !file->entries || !file->by_name)
        return oct_fail_memory(err);
    json_object_foreach(file->header, name, value) {
        if (strcmp(name, "__metadata__") == 0)
            status = check_metadata(file->path, value, err);
        else
            status = read_entry((place){file->path, name}, value, data, data_bytes,
                                file->shapes + used, &file->entries[file->count++], err);
        used += json_array_size(json_object_get(value, "shape"));
        if (status)
            return status;
    }
    qsort(file->entries, file->count, sizeof *file->entries, compare_place);
    for (size_t i = 0; i < file->count; i++)
        file->by_name[i] = &file->entries[i].tensor;
    qsort(file->by_name, file->count, sizeof *file->by_name, compare_name);
    return check_cover(file, data_bytes, err);
}

oct_status oct_safetensors_parse(const void *bytes, size_t n_bytes, const char *name,
                                 oct_safetensors **file, oct_error *err) {
    size_t header_bytes;
    oct_status status = find_header(name, bytes, n_bytes, &header_bytes, err);
    if (status)
        return status;
    oct_safetensors *f = oct_calloc_array(1, sizeof *f);
    if (!f || !(f->path = oct_strdup(name))) {
        oct_safetensors_close(f);
        return oct_fail_memory(err);
    }
    const uint8_t *header = (const uint8_t *)bytes + 8;
    status = oct_json_parse((const char *)header, header_bytes, name, &f->header, err);
    if (!status)
        status = read_entries(f, header + header_bytes, n_bytes - 8 - header_bytes, err);
    if (status) {
        oct_safetensors_close(f);
        return status;
    }
    *file = f;
    return OCT_OK;
}

oct_status oct_safetensors_open(const char *path, oct_safetensors **file, oct_error *err) {
    oct_mapping mapping;
    oct_status status = oct_file_map(path, &mapping, err);
    if (status)
        return status;
    status = oct_safetensors_parse(mapping.data, mapping.n_bytes, path, file, err);
    if (status)
        oct_file_unmap(&mapping);
    else
        (*file)->mapping = mapping;
    return status;
}

void oct_safetensors_close(oct_safetensors *file) {
    if (!file)
        return;
    oct_file_unmap(&file->mapping);
    json_decref(file->header);
    oct_free(file->shapes);
    oct_free(file->entries);
    oct_free(file->by_name);
    oct_free(file->path);
    oct_free(file);
}

int64_t oct_safetensors_count(const oct_safetensors *file) {
    return (int64_t)file->count;
}

const oct_safetensors_tensor *oct_safetensors_get(const oct_safetensors *file, int64_t index) {
    return &file->entries[index].tensor;
}

const oct_safetensors_tensor *oct_safetensors_find(const oct_safetensors *file, const char *name) {
    const oct_safetensors_tensor key = {.name = name}, *wanted = &key;
    const oct_safetensors_tensor **found =
        bsearch(&wanted, file->by_name, file->count, sizeof *file->by_name, compare_name);
    return found ? *found : NULL;
}

const char *oct_safetensors_metadata(const oct_safetensors *file, const char *key) {
    return json_string_value(json_object_get(json_object_get(file->header, "__metadata__"), key));
}

const char *oct_safetensors_path(const oct_safetensors *file) {
    return file->path;
}
