/* Tensors over several files: see shard_files.h. */
#include "tensors/shard_files.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/fs.h"
#include "file/json.h"

static int compare_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A name in two shards passes each shard's own check. */
static oct_status check_names(const oct_safetensors_item *items, int64_t n_items, oct_error *err) {
    oct_status status = OCT_OK;
    const char **names = oct_malloc_array((size_t)n_items, sizeof *names);
    if (!names)
        return oct_fail_memory(err);
    for (int64_t i = 0; i < n_items; i++)
        names[i] = items[i].name;
    qsort(names, (size_t)n_items, sizeof *names, compare_name);
    for (int64_t i = 1; i < n_items && !status; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            status = oct_fail(err, OCT_INVALID, "tensor '%s': expected one of that name; got two",
                              oct_show(names[i]).text);
    oct_free(names);
    return status;
}

oct_status oct_shards_plan(const oct_safetensors_item *items, int64_t n_items, size_t max_bytes,
                           oct_shards *shards, oct_error *err) {
    size_t in_shard = 0, n_bytes, limit = max_bytes ? max_bytes : OCT_SHARD_DEFAULT_BYTES;
    oct_status status;
    shards->n_shards = 0;
    shards->total_bytes = 0;
    shards->shard_of = oct_malloc_array((size_t)n_items, sizeof *shards->shard_of);
    if (!shards->shard_of)
        return oct_fail_memory(err);
    for (int64_t i = 0; i < n_items; i++) {
        status = oct_safetensors_item_bytes(&items[i], &n_bytes, err);
        if (status)
            return status;
        if (i == 0 || in_shard > limit || n_bytes > limit - in_shard) {
            shards->n_shards++;
            in_shard = 0;
        }
        in_shard += n_bytes;
        shards->shard_of[i] = shards->n_shards - 1;
        if (!oct_add_size(shards->total_bytes, n_bytes, &shards->total_bytes))
            return oct_fail(err, OCT_INVALID, "expected fewer than 2^64 bytes of tensors");
    }
    status = check_names(items, n_items, err);
    if (status)
        return status;
    if (shards->n_shards > OCT_SHARD_MAX)
        return oct_fail(err, OCT_INVALID,
                        "%s: expected at most %d files; got %" PRId64 ": raise the shard size",
                        shards->prefix, OCT_SHARD_MAX, shards->n_shards);
    shards->receipts = oct_calloc_array((size_t)shards->n_shards, sizeof *shards->receipts);
    return shards->receipts ? OCT_OK : oct_fail_memory(err);
}

void oct_shards_free(oct_shards *shards) {
    oct_free(shards->shard_of);
    oct_free(shards->receipts);
    shards->shard_of = NULL;
    shards->receipts = NULL;
}

void oct_shards_name(const oct_shards *shards, int64_t shard, char name[OCT_SHARD_NAME_SIZE]) {
    if (shards->n_shards == 1 && shards->single_name)
        snprintf(name, OCT_SHARD_NAME_SIZE, "%s", shards->single_name);
    else
        snprintf(name, OCT_SHARD_NAME_SIZE, "%s-%05" PRId64 "-of-%05" PRId64 ".safetensors",
                 shards->prefix, shard + 1, shards->n_shards);
}

/* Writes items first .. last-1 into one file. */
static oct_status write_one(const oct_shards *shards, const char *folder, int64_t shard,
                            const oct_safetensors_item *items, int64_t first, int64_t last,
                            oct_error *err) {
    char name[OCT_SHARD_NAME_SIZE];
    oct_safetensors_writer *writer = NULL;
    oct_shards_name(shards, shard, name);
    char *path = oct_path_join(folder, name);
    if (!path)
        return oct_fail_memory(err);
    oct_status status = oct_safetensors_writer_create(path, &writer, err);
    if (!status)
        status = oct_safetensors_writer_set_metadata(writer, "format", "pt", err);
    for (int64_t i = first; i < last && !status; i++)
        status = oct_safetensors_writer_add(writer, &items[i], err);
    if (!status)
        status = oct_safetensors_writer_commit(writer, &shards->receipts[shard], err);
    oct_safetensors_writer_destroy(writer);
    oct_free(path);
    return status;
}

void oct_shards_remove(const oct_shards *shards, const char *folder, int64_t n) {
    char name[OCT_SHARD_NAME_SIZE], path[4096];
    for (int64_t shard = 0; shard < n; shard++) {
        oct_shards_name(shards, shard, name);
        int length = snprintf(path, sizeof path, "%s/%s", folder, name);
        if (length > 0 && length < (int)sizeof path)
            unlink(path);
    }
}

oct_status oct_shards_write(oct_shards *shards, const char *folder,
                            const oct_safetensors_item *items, int64_t n_items, oct_error *err) {
    int64_t first = 0, last;
    for (int64_t shard = 0; shard < shards->n_shards; shard++, first = last) {
        for (last = first; last < n_items && shards->shard_of[last] == shard; last++) {
        }
        oct_status status = write_one(shards, folder, shard, items, first, last, err);
        if (status) {
            oct_shards_remove(shards, folder, shard);
            return status;
        }
    }
    return OCT_OK;
}
