/* What torch.save writes of one tensor: see torch_archive.h. Source of the zip format: APPNOTE.TXT
 * 6.3.10, of PKWARE. */
#include "tensors/torch_archive.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/crc32.h"
#include "tensors/unpickle.h"

enum { END_BYTES = 22, DIRECTORY_BYTES = 46, LOCAL_BYTES = 30, MAX_COMMENT = 65535 };
#define MAX_PICKLE_BYTES ((size_t)1 << 20)

typedef struct archive {
    const unsigned char *bytes;
    size_t n;
    const char *name;
} archive;

typedef struct entry {
    const unsigned char *bytes;
    size_t n;
    uint32_t crc;
} entry;

static uint32_t number(const unsigned char *at, int n_bytes) {
    uint32_t value = 0;
    for (int i = 0; i < n_bytes; i++)
        value |= (uint32_t)at[i] << 8 * i;
    return value;
}

static oct_status fail(const archive *a, const char *what, oct_error *err) {
    return oct_fail(err, OCT_INVALID, "%s: not an archive of one tensor: %s", a->name, what);
}

/* The record at the end of an archive; NULL: there is none. */
static const unsigned char *find_end(const archive *a) {
    if (a->n < END_BYTES)
        return NULL;
    size_t first = a->n > END_BYTES + MAX_COMMENT ? a->n - END_BYTES - MAX_COMMENT : 0;
    for (size_t at = a->n - END_BYTES + 1; at-- > first;)
        if (memcmp(a->bytes + at, "PK\x05\x06", 4) == 0)
            return a->bytes + at;
    return NULL;
}

/* The data of the entry that the directory's record speaks of. */
static bool open_entry(const archive *a, const unsigned char *record, entry *found) {
    uint32_t place = number(record + 42, 4), method = number(record + 10, 2);
    *found = (entry){.n = number(record + 24, 4), .crc = number(record + 16, 4)};
    if (found->n == UINT32_MAX) /* one of zip64, of 4 GiB or more */
        return false;
    if (method != 0 || number(record + 20, 4) != found->n || place > a->n ||
        a->n - place < LOCAL_BYTES || memcmp(a->bytes + place, "PK\x03\x04", 4) != 0)
        return false;
    size_t begin = (size_t)place + LOCAL_BYTES + number(a->bytes + place + 26, 2) +
                   number(a->bytes + place + 28, 2);
    if (begin > a->n || a->n - begin < found->n)
        return false;
    found->bytes = a->bytes + begin;
    return true;
}

/* The entry whose name ends with `ending` behind the archive's own folder. */
static oct_status find_entry(const archive *a, const char *ending, entry *found, oct_error *err) {
    const unsigned char *end = find_end(a);
    size_t at = end ? number(end + 16, 4) : 0, n_end = strlen(ending);
    int n_found = 0;
    if (!end)
        return fail(a, "it has no directory", err);
    for (uint32_t i = 0, n = number(end + 10, 2); i < n; i++) {
        if (at > a->n || a->n - at < DIRECTORY_BYTES || memcmp(a->bytes + at, "PK\x01\x02", 4) != 0)
            return fail(a, "its directory is cut short", err);
        const unsigned char *record = a->bytes + at;
        size_t n_name = number(record + 28, 2);
        size_t n_record =
            DIRECTORY_BYTES + n_name + number(record + 30, 2) + number(record + 32, 2);
        if (a->n - at < n_record)
            return fail(a, "its directory is cut short", err);
        const unsigned char *slash = memchr(record + DIRECTORY_BYTES, '/', n_name);
        size_t n_rest = slash ? n_name - (size_t)(slash + 1 - (record + DIRECTORY_BYTES)) : 0;
        if (slash && n_rest == n_end && memcmp(slash + 1, ending, n_end) == 0) {
            n_found++;
            if (!open_entry(a, record, found))
                return fail(a, "an entry isn't stored, lies outside, or has 4 GiB and more", err);
        }
        at += n_record;
    }
    if (n_found != 1)
        return fail(a, "expected one data.pkl and the storage that it names", err);
    if (oct_crc32(found->bytes, found->n) != found->crc)
        return fail(a, "an entry's checksum is wrong", err);
    return OCT_OK;
}

/* ---- the pickle ---- */

static const char *storage_of(oct_dtype dtype) {
    return dtype == OCT_BF16  ? "torch.BFloat16Storage"
           : dtype == OCT_F16 ? "torch.HalfStorage"
                              : "torch.FloatStorage";
}

static bool is_sizes(const oct_pickle *node, const int64_t *sizes, int n) {
    if (!oct_pickle_of(node, OCT_PICKLE_IS_TUPLE) || node->n != (size_t)n)
        return false;
    for (int i = 0; i < n; i++)
        if (node->items[i]->kind != OCT_PICKLE_IS_INT || node->items[i]->number != sizes[i])
            return false;
    return true;
}

/* A dimension of one element may have any stride. */
static bool is_contiguous(const oct_pickle *node, const int64_t *shape, int n) {
    int64_t stride = 1;
    if (!oct_pickle_of(node, OCT_PICKLE_IS_TUPLE) || node->n != (size_t)n)
        return false;
    for (int i = n - 1; i >= 0; stride *= shape[i--])
        if (node->items[i]->kind != OCT_PICKLE_IS_INT ||
            (shape[i] != 1 && node->items[i]->number != stride))
            return false;
    return true;
}

/* _rebuild_tensor_v2(('storage', type, key, place, elements), offset, sizes, strides, ...) */
static const char *key_of(const oct_pickle *root, oct_dtype dtype, const int64_t *shape, int n_dims,
                          int64_t n_elements) {
    const oct_pickle *t = oct_pickle_object(root, "torch._utils._rebuild_tensor_v2");
    if (!t || t->n < 4)
        return NULL;
    const oct_pickle *storage = oct_pickle_of(t->items[0], OCT_PICKLE_IS_OUTSIDE);
    if (!storage || storage->n != 5 || !oct_pickle_text(storage->items[0]) ||
        strcmp(storage->items[0]->text, "storage") != 0)
        return NULL;
    const oct_pickle *type = oct_pickle_of(storage->items[1], OCT_PICKLE_IS_GLOBAL);
    const oct_pickle *elements = oct_pickle_of(storage->items[4], OCT_PICKLE_IS_INT);
    const oct_pickle *offset = oct_pickle_of(t->items[1], OCT_PICKLE_IS_INT);
    if (!type || strcmp(type->text, storage_of(dtype)) != 0 || !elements ||
        elements->number != n_elements || !offset || offset->number != 0 ||
        !is_sizes(t->items[2], shape, n_dims) || !is_contiguous(t->items[3], shape, n_dims))
        return NULL;
    return oct_pickle_text(storage->items[2]);
}

static oct_status read_pickle(const archive *a, const entry *pickle, oct_dtype dtype,
                              const int64_t *shape, int n_dims, int64_t n, char ending[64],
                              oct_error *err) {
    const oct_pickle *root;
    oct_arena *arena = oct_arena_create_exact();
    if (!arena)
        return oct_fail_memory(err);
    oct_status status = oct_unpickle(pickle->bytes, pickle->n, a->name, arena, &root, err);
    const char *key = status ? NULL : key_of(root, dtype, shape, n_dims, n);
    if (!status && (!key || snprintf(ending, 64, "data/%s", key) >= 64))
        status = fail(a, "its tensor has another dtype, size or layout than .metadata says", err);
    oct_arena_destroy(arena);
    return status;
}

oct_status oct_torch_archive_find(const void *bytes, size_t n_bytes, const char *name,
                                  oct_dtype dtype, const int64_t *shape, int n_dims,
                                  const void **data, oct_error *err) {
    const archive a = {bytes, n_bytes, name};
    entry pickle, storage;
    char ending[64] = "";
    int64_t n = 1;
    for (int i = 0; i < n_dims; i++)
        n *= shape[i];
    oct_status status = find_entry(&a, "data.pkl", &pickle, err);
    if (!status && pickle.n > MAX_PICKLE_BYTES)
        status = fail(&a, "its data.pkl is too long", err);
    if (!status)
        status = read_pickle(&a, &pickle, dtype, shape, n_dims, n, ending, err);
    if (!status)
        status = find_entry(&a, ending, &storage, err);
    if (!status && storage.n != (size_t)n * (dtype == OCT_F32 ? 4 : 2))
        status = fail(&a, "its storage has another length", err);
    if (!status)
        *data = storage.bytes;
    return status;
}
