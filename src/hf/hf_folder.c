/* Hugging Face model folders: see hf_folder.h. */
#include "hf/hf_folder.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/strbuf.h"
#include "file/file_sink.h"
#include "file/json.h"
#include "tensors/shard_files.h"

#define SINGLE_NAME "model.safetensors"
#define INDEX_NAME "model.safetensors.index.json"
#define MAX_INDEX_BYTES ((size_t)100 << 20)

typedef struct place {
    const oct_safetensors_tensor *tensor;
    const char *file;
} place;

struct oct_hf_model {
    oct_safetensors **shards; /* by path, so by name */
    size_t n_shards;
    place *places; /* by shard, then as in the file */
    const place **by_name;
    int64_t count;
};

static oct_status open_shard(oct_hf_model *m, const char *path, oct_error *err) {
    oct_status status = oct_safetensors_open(path, &m->shards[m->n_shards], err);
    m->n_shards += !status;
    return status;
}

static int compare_name(const void *a, const void *b) {
    const place *const *x = a, *const *y = b;
    return strcmp((*x)->tensor->name, (*y)->tensor->name);
}

static oct_status list_tensors(oct_hf_model *m, oct_error *err) {
    size_t n = 0;
    for (size_t s = 0; s < m->n_shards; s++)
        n += (size_t)oct_safetensors_count(m->shards[s]);
    m->places = oct_malloc_array(n, sizeof *m->places);
    m->by_name = oct_malloc_array(n, sizeof *m->by_name);
    if (!m->places || !m->by_name)
        return oct_fail_memory(err);
    for (size_t s = 0; s < m->n_shards; s++)
        for (int64_t i = 0; i < oct_safetensors_count(m->shards[s]); i++)
            m->places[m->count++] =
                (place){oct_safetensors_get(m->shards[s], i), oct_safetensors_path(m->shards[s])};
    for (size_t i = 0; i < n; i++)
        m->by_name[i] = &m->places[i];
    qsort(m->by_name, n, sizeof *m->by_name, compare_name);
    for (size_t i = 1; i < n; i++)
        if (compare_name(&m->by_name[i - 1], &m->by_name[i]) == 0)
            return oct_fail(err, OCT_INVALID,
                            "%s: tensor '%s': expected in one file; got it in %s "
                            "too",
                            m->by_name[i]->file, oct_show(m->by_name[i]->tensor->name).text,
                            m->by_name[i - 1]->file);
    return OCT_OK;
}

/* ---- the index ---- */

static int compare_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The different file names of weight_map, sorted; `names` has room for all its values. */
static oct_status list_files(const char *index, json_t *weight_map, const char **names, size_t *n,
                             oct_error *err) {
    const char *tensor;
    json_t *value;
    size_t n_all = 0;
    *n = 0;
    json_object_foreach(weight_map, tensor, value) {
        const char *name = json_string_value(value);
        if (!name || !oct_is_plain_file_name(name))
            return oct_fail(err, OCT_INVALID,
                            "%s: weight_map: '%s': expected the name of a file in the folder; got "
                            "'%s'",
                            index, oct_show(tensor).text,
                            name ? oct_show(name).text : oct_json_kind(value));
        names[n_all++] = name;
    }
    qsort(names, n_all, sizeof *names, compare_text);
    for (size_t i = 0; i < n_all; i++)
        if (*n == 0 || strcmp(names[*n - 1], names[i]) != 0)
            names[(*n)++] = names[i];
    return OCT_OK;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Each tensor of a file is in the map under that file, and each of the map is in a file. */
static oct_status check_map(const oct_hf_model *m, const char *index, json_t *weight_map,
                            oct_error *err) {
    const char *name;
    json_t *value;
    for (int64_t i = 0; i < m->count; i++) {
        const place *p = &m->places[i];
        const char *listed = json_string_value(json_object_get(weight_map, p->tensor->name));
        if (!listed || strcmp(listed, base_name(p->file)) != 0)
            return oct_fail(err, OCT_INVALID,
                            "%s: weight_map: '%s': expected '%s', where the tensor is; got '%s'",
                            index, oct_show(p->tensor->name).text,
                            oct_show(base_name(p->file)).text,
                            listed ? oct_show(listed).text : "nothing");
    }
    json_object_foreach(weight_map, name, value) {
        if (!oct_hf_model_find(m, name))
            return oct_fail(err, OCT_INVALID,
                            "%s: weight_map: '%s': expected in '%s'; it isn't "
                            "there",
                            index, oct_show(name).text, oct_show(json_string_value(value)).text);
    }
    return OCT_OK;
}

static oct_status open_listed(oct_hf_model *m, const char *folder, const char *index,
                              json_t *weight_map, oct_error *err) {
    size_t n;
    const char **names = oct_malloc_array(json_object_size(weight_map), sizeof *names);
    if (!names)
        return oct_fail_memory(err);
    oct_status status = list_files(index, weight_map, names, &n, err);
    if (!status && !(m->shards = oct_calloc_array(n, sizeof *m->shards)))
        status = oct_fail_memory(err);
    for (size_t i = 0; !status && i < n; i++) {
        char *path = oct_path_join(folder, names[i]);
        status = path ? open_shard(m, path, err) : oct_fail_memory(err);
        oct_free(path);
    }
    oct_free(names);
    if (!status)
        status = list_tensors(m, err);
    return status ? status : check_map(m, index, weight_map, err);
}

static oct_status open_index(oct_hf_model *m, const char *folder, const char *index,
                             oct_error *err) {
    char *text = NULL;
    size_t n_bytes;
    json_t *root = NULL;
    oct_status status = oct_file_read(index, MAX_INDEX_BYTES, &text, &n_bytes, err);
    if (!status)
        status = oct_json_parse(text, n_bytes, index, &root, err);
    oct_free(text);
    if (status)
        return status;
    json_t *weight_map = json_object_get(root, "weight_map");
    if (json_is_object(weight_map))
        status = open_listed(m, folder, index, weight_map, err);
    else
        status = oct_fail(err, OCT_INVALID, "%s: weight_map: expected an object; got %s", index,
                          oct_json_kind(weight_map));
    json_decref(root);
    return status;
}

/* ---- opening ---- */

static oct_status open_single(oct_hf_model *m, const char *path, oct_error *err) {
    m->shards = oct_calloc_array(1, sizeof *m->shards);
    if (!m->shards)
        return oct_fail_memory(err);
    oct_status status = open_shard(m, path, err);
    return status ? status : list_tensors(m, err);
}

static oct_status open_folder(oct_hf_model *m, const char *folder, oct_error *err) {
    oct_status status;
    char *single = oct_path_join(folder, SINGLE_NAME), *index = oct_path_join(folder, INDEX_NAME);
    if (!single || !index)
        status = oct_fail_memory(err);
    else if (oct_path_exists(single))
        status = open_single(m, single, err);
    else if (oct_path_exists(index))
        status = open_index(m, folder, index, err);
    else
        status = oct_fail(err, OCT_INVALID,
                          "%s: expected " SINGLE_NAME " or " INDEX_NAME "; it has neither", folder);
    oct_free(single);
    oct_free(index);
    return status;
}

bool oct_hf_folder_has_weights(const char *folder) {
    char *single = oct_path_join(folder, SINGLE_NAME), *index = oct_path_join(folder, INDEX_NAME);
    bool has = (single && oct_path_exists(single)) || (index && oct_path_exists(index));
    oct_free(single);
    oct_free(index);
    return has;
}

oct_status oct_hf_model_open(const char *path, oct_hf_model **model, oct_error *err) {
    oct_hf_model *m = oct_calloc_array(1, sizeof *m);
    if (!m)
        return oct_fail_memory(err);
    oct_status status =
        oct_path_is_folder(path) ? open_folder(m, path, err) : open_single(m, path, err);
    if (status)
        oct_hf_model_close(m);
    else
        *model = m;
    return status;
}

void oct_hf_model_close(oct_hf_model *m) {
    if (!m)
        return;
    for (size_t i = 0; i < m->n_shards; i++)
        oct_safetensors_close(m->shards[i]);
    oct_free(m->shards);
    oct_free(m->places);
    oct_free(m->by_name);
    oct_free(m);
}

int64_t oct_hf_model_count(const oct_hf_model *m) {
    return m->count;
}

const oct_safetensors_tensor *oct_hf_model_get(const oct_hf_model *m, int64_t index) {
    return m->places[index].tensor;
}

const char *oct_hf_model_file(const oct_hf_model *m, int64_t index) {
    return m->places[index].file;
}

int64_t oct_hf_model_index(const oct_hf_model *m, const char *name) {
    const oct_safetensors_tensor tensor = {.name = name};
    const place key = {&tensor, NULL}, *wanted = &key;
    const place **found =
        bsearch(&wanted, m->by_name, (size_t)m->count, sizeof *m->by_name, compare_name);
    return found ? *found - m->places : -1;
}

const oct_safetensors_tensor *oct_hf_model_find(const oct_hf_model *m, const char *name) {
    int64_t index = oct_hf_model_index(m, name);
    return index >= 0 ? m->places[index].tensor : NULL;
}

/* ---- writing ---- */

static oct_status write_index(const oct_shards *shards, const char *folder,
                              const oct_safetensors_item *items, int64_t n_items, oct_error *err) {
    oct_strbuf text = {0};
    char name[OCT_SHARD_NAME_SIZE];
    char *path = oct_path_join(folder, INDEX_NAME);
    oct_strbuf_printf(&text, "{\n  \"metadata\": {\"total_size\": %zu},\n  \"weight_map\": {",
                      shards->total_bytes);
    for (int64_t i = 0; i < n_items; i++) {
        oct_shards_name(shards, shards->shard_of[i], name);
        oct_strbuf_puts(&text, i ? ",\n    " : "\n    ");
        oct_json_put_string(&text, items[i].name);
        oct_strbuf_printf(&text, ": \"%s\"", name);
    }
    oct_strbuf_puts(&text, "\n  }\n}\n");
    oct_status status = path && !text.failed
                            ? oct_file_sink_put(path, text.text, text.length, NULL, err)
                            : oct_fail_memory(err);
    oct_free(path);
    oct_strbuf_free(&text);
    return status;
}

/* What an earlier model of another number of files left would win over, or contradict, the new. */
static oct_status remove_other(const char *folder, const char *name, oct_error *err) {
    char *path = oct_path_join(folder, name);
    if (!path)
        return oct_fail_memory(err);
    oct_status status = OCT_OK;
    if (unlink(path) != 0 && errno != ENOENT)
        status = oct_fail(err, OCT_FAILED, "%s: can't be removed: %s", path, strerror(errno));
    oct_free(path);
    return status;
}

oct_status oct_hf_model_write(const char *folder, const oct_safetensors_item *items,
                              int64_t n_items, size_t max_shard_bytes, oct_error *err) {
    oct_shards shards = {.prefix = "model", .single_name = SINGLE_NAME};
    oct_status status = oct_shards_plan(items, n_items, max_shard_bytes, &shards, err);
    if (!status && n_items == 0)
        status = oct_fail(err, OCT_INVALID, "%s: expected a model with tensors; got none", folder);
    if (!status)
        status = oct_make_folders(folder, err);
    if (!status)
        status = oct_shards_write(&shards, folder, items, n_items, err);
    if (status) {
        oct_shards_free(&shards);
        return status;
    }
    if (shards.n_shards > 1) {
        status = write_index(&shards, folder, items, n_items, err);
        if (!status)
            status = remove_other(folder, SINGLE_NAME, err);
    } else {
        status = remove_other(folder, INDEX_NAME, err);
    }
    if (status)
        oct_shards_remove(&shards, folder, shards.n_shards);
    oct_shards_free(&shards);
    return status;
}
