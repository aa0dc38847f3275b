/* Loading checkpoints: see checkpoint.h. */
#include "checkpoint/checkpoint.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/nearest.h"
#include "checkpoint/format.h"
#include "checkpoint/step_folder.h"
#include "file/json.h"

#define MAX_MANIFEST_BYTES ((size_t)256 << 20)
#define MAX_TEXT_BYTES ((size_t)256 << 20)

const char *const oct_checkpoint_group_name[OCT_CHECKPOINT_N_GROUPS] = {"model", "optimizer"};

typedef struct shard {
    const char *name; /* in the manifest */
    oct_safetensors *file;
} shard;

typedef struct piece {
    const oct_safetensors_tensor *tensor;
    int64_t row, n_rows;
} piece;

typedef struct record {
    oct_checkpoint_tensor tensor;
    size_t row_bytes; /* of dimension 0; of the whole when there is none */
    piece *pieces;    /* by row, without gap */
    size_t n_pieces;
} record;

struct oct_checkpoint {
    char *path, *manifest_path;
    json_t *manifest; /* names point into it */
    int64_t step;
    char *state, *config;
    const char *kernel_set, *gemm, *config_name;
    shard *shards;
    size_t n_shards;
    record *records[OCT_CHECKPOINT_N_GROUPS]; /* by name */
    size_t n_records[OCT_CHECKPOINT_N_GROUPS];
};

bool oct_is_shard_name(const char *name) {
    const char *suffix = ".safetensors";
    size_t n = strlen(name), m = strlen(suffix);
    return n >= m && strcmp(name + n - m, suffix) == 0;
}

/* ---- the manifest's own fields ---- */

static oct_status want_string(const oct_checkpoint *c, const char *key, const char **value,
                              oct_error *err) {
    const json_t *found = json_object_get(c->manifest, key);
    *value = json_string_value(found);
    return *value ? OCT_OK
                  : oct_fail(err, OCT_INVALID, "%s: %s: expected a string; got %s",
                             c->manifest_path, key, oct_json_kind(found));
}

static oct_status want_object(const oct_checkpoint *c, json_t *in, const char *key, json_t **value,
                              oct_error *err) {
    *value = json_object_get(in, key);
    return json_is_object(*value) ? OCT_OK
                                  : oct_fail(err, OCT_INVALID, "%s: %s: expected an object; got %s",
                                             c->manifest_path, key, oct_json_kind(*value));
}

static oct_status read_head(oct_checkpoint *c, oct_error *err) {
    const char *format;
    oct_status status = want_string(c, "format", &format, err);
    if (!status && strcmp(format, OCT_CHECKPOINT_FORMAT) != 0)
        status = oct_fail(err, OCT_INVALID, "%s: format: expected '%s'; got '%s'", c->manifest_path,
                          OCT_CHECKPOINT_FORMAT, oct_show(format).text);
    const json_t *version = json_object_get(c->manifest, "version");
    if (!status &&
        (!json_is_integer(version) || json_integer_value(version) != OCT_CHECKPOINT_VERSION))
        status =
            oct_fail(err, OCT_INVALID, "%s: version: expected %d; got %" PRId64, c->manifest_path,
                     OCT_CHECKPOINT_VERSION, (int64_t)json_integer_value(version));
    const json_t *step = json_object_get(c->manifest, "step");
    if (!status && (!json_is_integer(step) || json_integer_value(step) < 0))
        status = oct_fail(err, OCT_INVALID, "%s: step: expected an integer >= 0; got %s",
                          c->manifest_path, oct_json_kind(step));
    c->step = json_integer_value(step);
    if (!status)
        status = want_string(c, "kernel_set", &c->kernel_set, err);
    if (!status)
        status = want_string(c, "gemm", &c->gemm, err);
    if (!status && json_object_get(c->manifest, "config"))
        status = want_string(c, "config", &c->config_name, err);
    return status;
}

/* ---- files ---- */

/* Whether a file may be another than the one that the manifest, which is written last, tells of:
 * whatever is done to a file sets the time of its last change, which no program can set back. */
static bool may_have_changed(const oct_checkpoint *c, const char *path) {
    struct stat file, manifest;
    if (stat(path, &file) != 0 || stat(c->manifest_path, &manifest) != 0)
        return true;
    const struct timespec a = file.st_ctim, b = manifest.st_ctim;
    return a.tv_sec > b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec >= b.tv_nsec);
}

static oct_status check_file(const oct_checkpoint *c, const char *path, const json_t *entry,
                             oct_checksums mode, oct_error *err) {
    oct_mapping mapping;
    const json_t *bytes = json_object_get(entry, "bytes");
    const char *xxh3 = json_string_value(json_object_get(entry, "xxh3"));
    if (!json_is_integer(bytes) || json_integer_value(bytes) < 0 || !xxh3 || strlen(xxh3) != 16 ||
        strspn(xxh3, "0123456789abcdef") != 16)
        return oct_fail(err, OCT_INVALID,
                        "%s: its entry in the manifest: expected bytes >= 0 and 16 hexadecimal "
                        "digits of xxh3",
                        path);
    oct_status status = oct_file_map(path, &mapping, err);
    if (status)
        return status;
    uint64_t expected = strtoull(xxh3, NULL, 16), got = expected;
    if ((uint64_t)json_integer_value(bytes) != mapping.n_bytes)
        status = oct_fail(err, OCT_INVALID, "%s: expected %" PRId64 " bytes; got %zu", path,
                          (int64_t)json_integer_value(bytes), mapping.n_bytes);
    else if (mode == OCT_CHECKSUMS_OF_ALL || may_have_changed(c, path))
        got = XXH3_64bits(mapping.data ? mapping.data : "", mapping.n_bytes);
    if (!status && got != expected)
        status =
            oct_fail(err, OCT_INVALID, "%s: checksum: expected %016" PRIx64 "; got %016" PRIx64,
                     path, expected, got);
    oct_file_unmap(&mapping);
    return status;
}

static oct_status open_files(oct_checkpoint *c, json_t *files, oct_checksums mode, oct_error *err) {
    const char *name;
    json_t *entry;
    oct_status status = OCT_OK;
    c->shards = oct_calloc_array(json_object_size(files), sizeof *c->shards);
    if (!c->shards)
        return oct_fail_memory(err);
    json_object_foreach(files, name, entry) {
        if (!oct_is_plain_file_name(name))
            return oct_fail(err, OCT_INVALID, "%s: files: expected a plain file name; got '%s'",
                            c->manifest_path, oct_show(name).text);
        char *path = oct_path_join(c->path, name);
        if (!path)
            return oct_fail_memory(err);
        status = check_file(c, path, entry, mode, err);
        if (!status && oct_is_shard_name(name)) {
            shard *s = &c->shards[c->n_shards];
            s->name = name;
            status = oct_safetensors_open(path, &s->file, err);
            c->n_shards += !status;
        }
        oct_free(path);
        if (status)
            return status;
    }
    return OCT_OK;
}

static oct_status read_text(const oct_checkpoint *c, json_t *files, const char *name, char **text,
                            oct_error *err) {
    if (!json_object_get(files, name))
        return oct_fail(err, OCT_INVALID, "%s: files: expected '%s' among them", c->manifest_path,
                        oct_show(name).text);
    char *path = oct_path_join(c->path, name);
    if (!path)
        return oct_fail_memory(err);
    oct_status status = oct_file_read(path, MAX_TEXT_BYTES, text, NULL, err);
    oct_free(path);
    return status;
}

/* ---- tensors ---- */

static oct_safetensors *find_shard(const oct_checkpoint *c, const char *name) {
    for (size_t i = 0; i < c->n_shards; i++)
        if (strcmp(c->shards[i].name, name) == 0)
            return c->shards[i].file;
    return NULL;
}

static oct_status read_shape(const oct_checkpoint *c, const json_t *entry, record *r,
                             oct_error *err) {
    oct_checkpoint_tensor *tensor = &r->tensor;
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    const json_t *shape = json_object_get(entry, "shape");
    tensor->dtype = dtype ? oct_safetensors_dtype(dtype) : OCT_N_DTYPES;
    if (tensor->dtype == OCT_N_DTYPES || !json_is_array(shape) ||
        json_array_size(shape) > OCT_SAFETENSORS_MAX_DIMS)
        return oct_fail(err, OCT_INVALID,
                        "%s: tensor '%s': expected a known dtype and a shape of at most %d "
                        "dimensions",
                        c->manifest_path, oct_show(tensor->name).text, OCT_SAFETENSORS_MAX_DIMS);
    tensor->n_dims = (int)json_array_size(shape);
    for (int d = 0; d < tensor->n_dims; d++) {
        const json_t *size = json_array_get(shape, (size_t)d);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return oct_fail(err, OCT_INVALID,
                            "%s: tensor '%s': shape[%d]: expected an integer >= 0; got %s",
                            c->manifest_path, oct_show(tensor->name).text, d, oct_json_kind(size));
        tensor->shape[d] = json_integer_value(size);
    }
    return OCT_OK;
}

static bool piece_fits(const oct_checkpoint_tensor *whole, const oct_safetensors_tensor *part,
                       int64_t n_rows) {
    if (part->dtype != whole->dtype || part->n_dims != whole->n_dims)
        return false;
    if (whole->n_dims == 0)
        return n_rows == 1;
    if (part->shape[0] != n_rows)
        return false;
    for (int d = 1; d < whole->n_dims; d++)
        if (part->shape[d] != whole->shape[d])
            return false;
    return true;
}

static oct_status read_piece(const oct_checkpoint *c, const json_t *entry, int64_t next_row,
                             const oct_checkpoint_tensor *whole, piece *p, oct_error *err) {
    const char *name = json_string_value(json_object_get(entry, "file"));
    const json_t *row = json_object_get(entry, "row"), *rows = json_object_get(entry, "rows");
    if (!name || !json_is_integer(row) || !json_is_integer(rows) || json_integer_value(rows) < 0)
        return oct_fail(err, OCT_INVALID,
                        "%s: tensor '%s': a piece: expected file, row and rows >= 0",
                        c->manifest_path, oct_show(whole->name).text);
    const oct_safetensors *file = find_shard(c, name);
    *p = (piece){file ? oct_safetensors_find(file, whole->name) : NULL, json_integer_value(row),
                 json_integer_value(rows)};
    if (p->row != next_row)
        return oct_fail(err, OCT_INVALID,
                        "%s: tensor '%s': a piece: expected to begin at row %" PRId64
                        "; got %" PRId64,
                        c->manifest_path, oct_show(whole->name).text, next_row, p->row);
    if (!p->tensor)
        return oct_fail(err, OCT_INVALID, "%s: tensor '%s': expected in '%s'; it isn't there",
                        c->manifest_path, oct_show(whole->name).text, oct_show(name).text);
    if (!piece_fits(whole, p->tensor, p->n_rows))
        return oct_fail(err, OCT_INVALID,
                        "%s: tensor '%s': dtype and shape in '%s' differ from the manifest's",
                        c->manifest_path, oct_show(whole->name).text, oct_show(name).text);
    return OCT_OK;
}

static oct_status read_record(const oct_checkpoint *c, const char *name, const json_t *entry,
                              record *r, oct_error *err) {
    r->tensor.name = name;
    oct_status status = read_shape(c, entry, r, err);
    if (status)
        return status;
    const json_t *pieces = json_object_get(entry, "pieces");
    size_t n = json_array_size(pieces);
    int64_t rows = r->tensor.n_dims ? r->tensor.shape[0] : 1, next_row = 0;
    r->pieces = oct_calloc_array(n, sizeof *r->pieces);
    if (!r->pieces)
        return oct_fail_memory(err);
    for (; r->n_pieces < n && !status; r->n_pieces++) {
        piece *p = &r->pieces[r->n_pieces];
        status = read_piece(c, json_array_get(pieces, r->n_pieces), next_row, &r->tensor, p, err);
        if (!status && p->n_rows > rows - next_row)
            status = oct_fail(err, OCT_INVALID,
                              "%s: tensor '%s': a piece: expected at most %" PRId64
                              " rows from row %" PRId64 "; got %" PRId64,
                              c->manifest_path, oct_show(name).text, rows - next_row, next_row,
                              p->n_rows);
        if (status || !p->n_rows)
            continue;
        next_row += p->n_rows;
        r->row_bytes = p->tensor->n_bytes / (size_t)p->n_rows;
    }
    if (!status && (next_row != rows || n == 0))
        status =
            oct_fail(err, OCT_INVALID,
                     "%s: tensor '%s': expected pieces of %" PRId64 " rows in all; got %" PRId64,
                     c->manifest_path, oct_show(name).text, rows, next_row);
    return status;
}

static int compare_record(const void *a, const void *b) {
    return strcmp(((const record *)a)->tensor.name, ((const record *)b)->tensor.name);
}

static oct_status read_group(oct_checkpoint *c, int group, json_t *tensors, oct_error *err) {
    json_t *entries, *entry;
    const char *name;
    oct_status status = want_object(c, tensors, oct_checkpoint_group_name[group], &entries, err);
    if (status)
        return status;
    record *records = oct_calloc_array(json_object_size(entries), sizeof *records);
    if (!records)
        return oct_fail_memory(err);
    c->records[group] = records;
    json_object_foreach(entries, name, entry) {
        status = read_record(c, name, entry, &records[c->n_records[group]++], err);
        if (status)
            return status;
    }
    qsort(records, c->n_records[group], sizeof *records, compare_record);
    return OCT_OK;
}

/* ---- opening ---- */

static oct_status read_manifest(oct_checkpoint *c, oct_error *err) {
    char *text = NULL;
    size_t n_bytes;
    if (!oct_path_exists(c->path))
        return oct_fail(err, OCT_INVALID, "%s: no such folder", c->path);
    if (!oct_path_exists(c->manifest_path))
        return oct_fail(err, OCT_INVALID,
                        "%s: not a checkpoint: it has no " OCT_CHECKPOINT_MANIFEST, c->path);
    oct_status status = oct_file_read(c->manifest_path, MAX_MANIFEST_BYTES, &text, &n_bytes, err);
    if (!status)
        status = oct_json_parse(text, n_bytes, c->manifest_path, &c->manifest, err);
    oct_free(text);
    return status;
}

static oct_status read_all(oct_checkpoint *c, oct_checksums mode, oct_error *err) {
    json_t *files = NULL, *tensors = NULL;
    oct_status status = read_manifest(c, err);
    if (!status)
        status = read_head(c, err);
    if (!status)
        status = want_object(c, c->manifest, "files", &files, err);
    if (!status)
        status = open_files(c, files, mode, err);
    if (!status)
        status = read_text(c, files, OCT_CHECKPOINT_STATE, &c->state, err);
    if (!status && c->config_name)
        status = read_text(c, files, c->config_name, &c->config, err);
    if (!status)
        status = want_object(c, c->manifest, "tensors", &tensors, err);
    for (int g = 0; g < OCT_CHECKPOINT_N_GROUPS && !status; g++)
        status = read_group(c, g, tensors, err);
    return status;
}

static oct_status open_folder(const char *path, oct_checksums mode, oct_checkpoint **checkpoint,
                              oct_error *err) {
    oct_checkpoint *c = oct_calloc_array(1, sizeof *c);
    if (!c)
        return oct_fail_memory(err);
    c->path = oct_strdup(path);
    c->manifest_path = oct_path_join(path, OCT_CHECKPOINT_MANIFEST);
    oct_status status = c->path && c->manifest_path ? read_all(c, mode, err) : oct_fail_memory(err);
    if (status)
        oct_checkpoint_close(c);
    else
        *checkpoint = c;
    return status;
}

oct_status oct_checkpoint_open(const char *step_folder, oct_checkpoint **checkpoint,
                               oct_error *err) {
    return open_folder(step_folder, OCT_CHECKSUMS_OF_ALL, checkpoint, err);
}

oct_status oct_checkpoint_open_step(const char *folder, int64_t step, oct_checksums mode,
                                    oct_checkpoint **checkpoint, oct_error *err) {
    oct_checkpoint *c = NULL;
    char *path = oct_step_folder_path(folder, step, NULL);
    if (!path)
        return oct_fail_memory(err);
    oct_status status = open_folder(path, mode, &c, err);
    if (!status && c->step != step)
        status = oct_fail(err, OCT_INVALID, "%s: step: expected %" PRId64 "; got %" PRId64,
                          c->manifest_path, step, c->step);
    if (status)
        oct_checkpoint_close(c);
    else
        *checkpoint = c;
    oct_free(path);
    return status;
}

oct_checkpoint_worth oct_checkpoint_judge(const char *folder, int64_t step) {
    oct_checkpoint *c = NULL;
    if (oct_checkpoint_open_step(folder, step, OCT_CHECKSUMS_OF_CHANGED, &c, NULL) != OCT_OK)
        return OCT_CHECKPOINT_UNUSABLE;
    bool whole = c->n_records[OCT_CHECKPOINT_OPTIMIZER] > 0;
    oct_checkpoint_close(c);
    return whole ? OCT_CHECKPOINT_WHOLE : OCT_CHECKPOINT_WITHOUT_STATE;
}

void oct_checkpoint_close(oct_checkpoint *c) {
    if (!c)
        return;
    for (int g = 0; g < OCT_CHECKPOINT_N_GROUPS; g++) {
        for (size_t i = 0; i < c->n_records[g]; i++)
            oct_free(c->records[g][i].pieces);
        oct_free(c->records[g]);
    }
    for (size_t i = 0; i < c->n_shards; i++)
        oct_safetensors_close(c->shards[i].file);
    oct_free(c->shards);
    json_decref(c->manifest);
    oct_free(c->state);
    oct_free(c->config);
    oct_free(c->manifest_path);
    oct_free(c->path);
    oct_free(c);
}

/* ---- what it holds ---- */

int64_t oct_checkpoint_step(const oct_checkpoint *c) {
    return c->step;
}
const char *oct_checkpoint_path(const oct_checkpoint *c) {
    return c->path;
}
const char *oct_checkpoint_state(const oct_checkpoint *c) {
    return c->state;
}
const char *oct_checkpoint_config(const oct_checkpoint *c) {
    return c->config;
}
const char *oct_checkpoint_config_name(const oct_checkpoint *c) {
    return c->config_name;
}
const char *oct_checkpoint_kernel_set(const oct_checkpoint *c) {
    return c->kernel_set;
}
const char *oct_checkpoint_gemm(const oct_checkpoint *c) {
    return c->gemm;
}
bool oct_checkpoint_has_file(const oct_checkpoint *c, const char *name) {
    return json_object_get(json_object_get(c->manifest, "files"), name) != NULL;
}

int64_t oct_checkpoint_count(const oct_checkpoint *c, oct_checkpoint_group group) {
    return (int64_t)c->n_records[group];
}
const oct_checkpoint_tensor *oct_checkpoint_get(const oct_checkpoint *c, oct_checkpoint_group group,
                                                int64_t index) {
    return &c->records[group][index].tensor;
}

static const record *find_record(const oct_checkpoint *c, oct_checkpoint_group group,
                                 const char *name) {
    const record key = {.tensor = {.name = name}};
    return bsearch(&key, c->records[group], c->n_records[group], sizeof key, compare_record);
}

const oct_checkpoint_tensor *
oct_checkpoint_tensor_find(const oct_checkpoint *c, oct_checkpoint_group group, const char *name) {
    const record *r = find_record(c, group, name);
    return r ? &r->tensor : NULL;
}

static oct_status want_record(const oct_checkpoint *c, oct_checkpoint_group group, const char *name,
                              const record **found, oct_error *err) {
    *found = find_record(c, group, name);
    if (*found)
        return OCT_OK;
    const char *nearest = NULL;
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < c->n_records[group]; i++) {
        const char *other = c->records[group][i].tensor.name;
        const char *near = oct_nearest_name(name, &other, 1);
        size_t distance = near ? oct_edit_distance(name, near) : SIZE_MAX;
        if (distance < best) {
            best = distance;
            nearest = near;
        }
    }
    return oct_fail(err, OCT_INVALID, "%s: %s: expected a tensor '%s'; there is none%s%s", c->path,
                    oct_checkpoint_group_name[group], oct_show(name).text,
                    nearest ? "; the nearest is " : "", nearest ? oct_show(nearest).text : "");
}

static void copy_rows(const record *r, int64_t row, int64_t n_rows, char *to) {
    for (size_t i = 0; i < r->n_pieces && n_rows > 0; i++) {
        const piece *p = &r->pieces[i];
        if (row >= p->row + p->n_rows)
            continue;
        int64_t skip = row - p->row, n = p->n_rows - skip < n_rows ? p->n_rows - skip : n_rows;
        size_t n_bytes = (size_t)n * r->row_bytes;
        if (n_bytes)
            memcpy(to, (const char *)p->tensor->data + (size_t)skip * r->row_bytes, n_bytes);
        to += n_bytes;
        row += n;
        n_rows -= n;
    }
}

oct_status oct_checkpoint_copy_rows(const oct_checkpoint *c, oct_checkpoint_group group,
                                    const char *name, int64_t row, int64_t n_rows, void *to,
                                    oct_error *err) {
    const record *r;
    oct_status status = want_record(c, group, name, &r, err);
    if (status)
        return status;
    int64_t rows = r->tensor.n_dims ? r->tensor.shape[0] : 0;
    if (row < 0 || n_rows < 0 || row > rows || n_rows > rows - row)
        return oct_fail(err, OCT_INVALID,
                        "%s: tensor '%s': expected rows within its %" PRId64 "; got %" PRId64
                        " from %" PRId64,
                        c->path, oct_show(name).text, rows, n_rows, row);
    copy_rows(r, row, n_rows, to);
    return OCT_OK;
}

oct_status oct_checkpoint_copy(const oct_checkpoint *c, oct_checkpoint_group group,
                               const char *name, const oct_tensor *to, oct_error *err) {
    const record *r;
    oct_status status = want_record(c, group, name, &r, err);
    if (status)
        return status;
    const oct_checkpoint_tensor *from = &r->tensor;
    oct_strbuf got = {0}, expected = {0};
    if (from->dtype == to->dtype && from->n_dims == to->n_dims &&
        memcmp(from->shape, to->shape, (size_t)to->n_dims * sizeof *to->shape) == 0) {
        copy_rows(r, 0, from->n_dims ? from->shape[0] : 1, to->data);
        return OCT_OK;
    }
    for (int d = 0; d < from->n_dims; d++)
        oct_strbuf_printf(&got, "%s%" PRId64, d ? ", " : "", from->shape[d]);
    for (int d = 0; d < to->n_dims; d++)
        oct_strbuf_printf(&expected, "%s%" PRId64, d ? ", " : "", to->shape[d]);
    const char *dtype = oct_safetensors_dtype_name(to->dtype);
    status =
        oct_fail(err, OCT_INVALID, "%s: tensor '%s': expected %s (%s); got %s (%s)", c->path,
                 oct_show(name).text, dtype ? dtype : "HIF8", expected.text ? expected.text : "",
                 oct_safetensors_dtype_name(from->dtype), got.text ? got.text : "");
    oct_strbuf_free(&expected);
    oct_strbuf_free(&got);
    return status;
}
