/* A folder of torch.distributed.checkpoint: see dcp.h. */
#include "tensors/dcp.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/checked.h"
#include "base/fs.h"
#include "file/json.h"
#include "tensors/torch_archive.h"
#include "tensors/unpickle.h"

#define CLASS "torch.distributed.checkpoint.metadata."
#define PLACE "torch.distributed.checkpoint.filesystem._StorageInfo"
#define MAX_METADATA_BYTES ((size_t)256 << 20)
enum { MAX_CHUNKS = 4096 }; /* of a tensor */

typedef struct span {
    int64_t first[OCT_DCP_MAX_DIMS], size[OCT_DCP_MAX_DIMS];
} span;

typedef struct chunk {
    span at;
    const char *file;
    int64_t offset, n_bytes; /* of its archive */
} chunk;

typedef struct stored {
    oct_dcp_tensor tensor; /* first, so that a pointer to it is one to this */
    chunk *chunks;
    size_t n_chunks;
} stored;

/* An entry of storage_data. */
typedef struct place {
    const char *name;
    int64_t first[OCT_DCP_MAX_DIMS];
    int n_dims;
    const char *file;
    int64_t offset, n_bytes;
} place;

struct oct_dcp {
    char *folder;
    oct_arena *arena; /* of the nodes, whose texts are used, and of all below */
    stored *tensors;
    size_t n_tensors;
};

typedef struct reader {
    oct_dcp *dcp;
    char *path; /* of .metadata */
    place *places;
    size_t n_places;
    oct_error *err;
} reader;

static oct_status fail(const reader *r, const char *name, const char *what) {
    return oct_fail(r->err, OCT_INVALID, "%s: %s: %s", r->path, oct_show(name).text, what);
}

static oct_status fail_form(const reader *r, const char *what) {
    return oct_fail(r->err, OCT_INVALID, "%s: not the metadata of a checkpoint: %s", r->path, what);
}

/* ---- nodes ---- */

/* torch.Size((2, 3)); -1: it isn't one. Sizes are 0 or more. */
static int read_sizes(const oct_pickle *node, int64_t sizes[OCT_DCP_MAX_DIMS]) {
    const oct_pickle *object = oct_pickle_object(node, "torch.Size");
    const oct_pickle *tuple =
        object && object->n == 1 ? oct_pickle_of(object->items[0], OCT_PICKLE_IS_TUPLE) : NULL;
    if (!tuple || tuple->n > OCT_DCP_MAX_DIMS)
        return -1;
    for (size_t i = 0; i < tuple->n; i++) {
        const oct_pickle *size = oct_pickle_of(tuple->items[i], OCT_PICKLE_IS_INT);
        if (!size || size->number < 0)
            return -1;
        sizes[i] = size->number;
    }
    return (int)tuple->n;
}

static bool read_int(const oct_pickle *node, int64_t *value) {
    const oct_pickle *number = oct_pickle_of(node, OCT_PICKLE_IS_INT);
    *value = number ? number->number : -1;
    return *value >= 0;
}

static oct_dtype dtype_of(const oct_pickle *properties) {
    const oct_pickle *object = oct_pickle_object(properties, CLASS "TensorProperties");
    const oct_pickle *state = object ? oct_pickle_of(object->state, OCT_PICKLE_IS_TUPLE) : NULL;
    const oct_pickle *dtype =
        state && state->n > 0 ? oct_pickle_of(state->items[0], OCT_PICKLE_IS_GLOBAL) : NULL;
    const char *name = dtype ? dtype->text : "";
    return strcmp(name, "torch.float32") == 0    ? OCT_F32
           : strcmp(name, "torch.bfloat16") == 0 ? OCT_BF16
           : strcmp(name, "torch.float16") == 0  ? OCT_F16
                                                 : OCT_N_DTYPES;
}

/* ---- storage_data ---- */

static int by_name(const void *a, const void *b) {
    return strcmp(((const place *)a)->name, ((const place *)b)->name);
}

static oct_status read_place(const reader *r, const oct_pickle *key, const oct_pickle *value,
                             place *p) {
    const oct_pickle *index = oct_pickle_object(key, CLASS "MetadataIndex");
    const oct_pickle *info = oct_pickle_object(value, PLACE);
    const oct_pickle *transforms = oct_pickle_member(info, "transform_descriptors");
    p->name = oct_pickle_text(oct_pickle_member(index, "fqn"));
    p->file = oct_pickle_text(oct_pickle_member(info, "relative_path"));
    if (!p->name || !p->file)
        return fail_form(r, "an entry of storage_data names no tensor or file");
    if (!oct_is_plain_file_name(p->file))
        return fail(r, p->name, "its file's name leads out of the folder");
    if (transforms && transforms->kind != OCT_PICKLE_IS_NONE)
        return fail(r, p->name, "its bytes are transformed (compressed), which octet doesn't read");
    if (!read_int(oct_pickle_member(info, "offset"), &p->offset) ||
        !read_int(oct_pickle_member(info, "length"), &p->n_bytes))
        return fail(r, p->name, "its place in the file isn't one");
    /* What isn't a tensor has none. */
    p->n_dims = read_sizes(oct_pickle_member(index, "offset"), p->first);
    return OCT_OK;
}

static oct_status read_places(reader *r, const oct_pickle *root) {
    const oct_pickle *all =
        oct_pickle_of(oct_pickle_member(root, "storage_data"), OCT_PICKLE_IS_DICT);
    oct_status status = OCT_OK;
    if (!all)
        return fail_form(r, "it has no storage_data");
    r->n_places = all->n / 2;
    r->places = oct_arena_alloc_array(r->dcp->arena, r->n_places + 1, sizeof *r->places);
    if (!r->places)
        return oct_fail_memory(r->err);
    for (size_t i = 0; i < r->n_places && !status; i++)
        status = read_place(r, all->items[2 * i], all->items[2 * i + 1], &r->places[i]);
    if (!status && r->n_places)
        qsort(r->places, r->n_places, sizeof *r->places, by_name);
    return status;
}

/* The first place of a tensor; n_places: none. */
static size_t first_place(const reader *r, const char *name) {
    size_t low = 0, high = r->n_places;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(r->places[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static const place *find_place(const reader *r, const stored *t, const int64_t *first) {
    const char *name = t->tensor.name;
    for (size_t i = first_place(r, name); i < r->n_places && !strcmp(r->places[i].name, name); i++)
        if (r->places[i].n_dims == t->tensor.n_dims &&
            memcmp(r->places[i].first, first, (size_t)t->tensor.n_dims * sizeof *first) == 0)
            return &r->places[i];
    return NULL;
}

/* ---- state_dict_metadata ---- */

static bool overlap(const span *a, const span *b, int n_dims) {
    for (int d = 0; d < n_dims; d++)
        if (a->first[d] + a->size[d] <= b->first[d] || b->first[d] + b->size[d] <= a->first[d])
            return false;
    return true;
}

/* Elements; -1: too many. */
static int64_t count(const int64_t *sizes, int n_dims) {
    int64_t n = 1;
    for (int d = 0; d < n_dims; d++)
        if (!oct_mul_i64(n, sizes[d], &n) || n > (int64_t)1 << 48)
            return -1;
    return n;
}

/* Chunks without elements stand for nothing. */
static oct_status check_cover(const reader *r, const stored *t) {
    int n_dims = t->tensor.n_dims;
    int64_t sum = 0;
    for (size_t i = 0; i < t->n_chunks; i++) {
        const span *a = &t->chunks[i].at;
        int64_t n = count(a->size, n_dims);
        sum += n;
        for (size_t k = 0; k < i && n > 0; k++)
            if (count(t->chunks[k].at.size, n_dims) > 0 && overlap(a, &t->chunks[k].at, n_dims))
                return fail(r, t->tensor.name, "two of its chunks overlap");
    }
    return sum == count(t->tensor.shape, n_dims)
               ? OCT_OK
               : fail(r, t->tensor.name, "its chunks leave a gap");
}

static oct_status read_chunk(const reader *r, const oct_pickle *node, const stored *t, chunk *c) {
    const oct_pickle *object = oct_pickle_object(node, CLASS "ChunkStorageMetadata");
    int n_dims = t->tensor.n_dims;
    *c = (chunk){0};
    if (read_sizes(oct_pickle_member(object, "offsets"), c->at.first) != n_dims ||
        read_sizes(oct_pickle_member(object, "sizes"), c->at.size) != n_dims)
        return fail(r, t->tensor.name, "a chunk has other dimensions");
    for (int d = 0; d < n_dims; d++)
        if (c->at.first[d] > t->tensor.shape[d] ||
            c->at.size[d] > t->tensor.shape[d] - c->at.first[d])
            return fail(r, t->tensor.name, "a chunk lies outside of it");
    const place *p = find_place(r, t, c->at.first);
    if (!p)
        return fail(r, t->tensor.name, "storage_data says of a chunk not where it is");
    c->file = p->file;
    c->offset = p->offset;
    c->n_bytes = p->n_bytes;
    return OCT_OK;
}

static oct_status read_tensor(const reader *r, const char *name, const oct_pickle *node,
                              stored *t) {
    const oct_pickle *chunks = oct_pickle_of(oct_pickle_member(node, "chunks"), OCT_PICKLE_IS_LIST);
    oct_status status = OCT_OK;
    *t = (stored){
        .tensor = {.name = name, .dtype = dtype_of(oct_pickle_member(node, "properties"))}};
    t->tensor.n_dims = read_sizes(oct_pickle_member(node, "size"), t->tensor.shape);
    if (t->tensor.n_dims < 0 || count(t->tensor.shape, t->tensor.n_dims) < 0)
        return fail(r, name, "its size isn't one of up to 8 dimensions");
    if (!chunks || chunks->n > MAX_CHUNKS)
        return fail(r, name, "expected a list of up to 4096 chunks");
    t->n_chunks = chunks->n;
    t->chunks = oct_arena_alloc_array(r->dcp->arena, chunks->n + 1, sizeof *t->chunks);
    if (!t->chunks)
        return oct_fail_memory(r->err);
    for (size_t i = 0; i < t->n_chunks && !status; i++)
        status = read_chunk(r, chunks->items[i], t, &t->chunks[i]);
    return status ? status : check_cover(r, t);
}

static int by_tensor_name(const void *a, const void *b) {
    return strcmp(((const stored *)a)->tensor.name, ((const stored *)b)->tensor.name);
}

static oct_status check_names(const reader *r) {
    const oct_dcp *dcp = r->dcp;
    for (size_t i = 1; i < dcp->n_tensors; i++)
        if (strcmp(dcp->tensors[i].tensor.name, dcp->tensors[i - 1].tensor.name) == 0)
            return fail(r, dcp->tensors[i].tensor.name, "it is there twice");
    return OCT_OK;
}

static oct_status read_tensors(reader *r, const oct_pickle *root) {
    const oct_pickle *all =
        oct_pickle_of(oct_pickle_member(root, "state_dict_metadata"), OCT_PICKLE_IS_DICT);
    oct_dcp *dcp = r->dcp;
    oct_status status = OCT_OK;
    if (!all)
        return fail_form(r, "it has no state_dict_metadata");
    dcp->tensors = oct_arena_alloc_array(dcp->arena, all->n / 2 + 1, sizeof *dcp->tensors);
    if (!dcp->tensors)
        return oct_fail_memory(r->err);
    for (size_t i = 0; i + 1 < all->n && !status; i += 2) {
        const char *name = oct_pickle_text(all->items[i]);
        const oct_pickle *node = all->items[i + 1];
        if (!name || !*name)
            return fail_form(r, "a tensor has no name");
        if (oct_pickle_object(node, CLASS "TensorStorageMetadata"))
            status = read_tensor(r, name, node, &dcp->tensors[dcp->n_tensors++]);
        else if (!oct_pickle_object(node, CLASS "BytesStorageMetadata"))
            status = fail(r, name, "it is neither a tensor nor bytes");
    }
    if (!status && dcp->n_tensors)
        qsort(dcp->tensors, dcp->n_tensors, sizeof *dcp->tensors, by_tensor_name);
    return status ? status : check_names(r);
}

static oct_status read_metadata(reader *r) {
    char *bytes = NULL;
    size_t n = 0;
    const oct_pickle *root = NULL;
    oct_status status = oct_file_read(r->path, MAX_METADATA_BYTES, &bytes, &n, r->err);
    if (!status)
        status = oct_unpickle(bytes, n, r->path, r->dcp->arena, &root, r->err);
    oct_free(bytes);
    if (!status && !oct_pickle_object(root, CLASS "Metadata"))
        status = fail_form(r, "it is another object");
    if (!status)
        status = read_places(r, root);
    return status ? status : read_tensors(r, root);
}

bool oct_is_dcp_folder(const char *path) {
    char *file = oct_path_is_folder(path) ? oct_path_join(path, ".metadata") : NULL;
    bool is = file && oct_path_exists(file) && !oct_path_is_folder(file);
    oct_free(file);
    return is;
}

oct_status oct_dcp_open(const char *folder, oct_dcp **out, oct_error *err) {
    oct_dcp *dcp = oct_calloc_array(1, sizeof *dcp);
    *out = NULL;
    if (!dcp)
        return oct_fail_memory(err);
    reader r = {.dcp = dcp, .path = oct_path_join(folder, ".metadata"), .err = err};
    dcp->folder = oct_strdup(folder);
    dcp->arena = oct_arena_create();
    oct_status status =
        dcp->folder && dcp->arena && r.path ? read_metadata(&r) : oct_fail_memory(err);
    oct_free(r.path);
    if (!status)
        *out = dcp;
    else
        oct_dcp_close(dcp);
    return status;
}

void oct_dcp_close(oct_dcp *dcp) {
    if (!dcp)
        return;
    oct_arena_destroy(dcp->arena);
    oct_free(dcp->folder);
    oct_free(dcp);
}

size_t oct_dcp_count(const oct_dcp *dcp) {
    return dcp->n_tensors;
}

const oct_dcp_tensor *oct_dcp_get(const oct_dcp *dcp, size_t index) {
    return &dcp->tensors[index].tensor;
}

const oct_dcp_tensor *oct_dcp_find(const oct_dcp *dcp, const char *name) {
    const stored key = {.tensor = {.name = name}};
    const stored *found =
        dcp->n_tensors ? bsearch(&key, dcp->tensors, dcp->n_tensors, sizeof key, by_tensor_name)
                       : NULL;
    return found ? &found->tensor : NULL;
}

/* ---- chunks ---- */

static oct_status read_span(const char *path, int64_t at, void *to, size_t n, oct_error *err) {
    struct stat st;
    oct_status status = OCT_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) != 0)
        status = oct_fail(err, oct_status_of_errno(errno), "%s: can't be read: %s", path,
                          strerror(errno));
    else if (!S_ISREG(st.st_mode) || st.st_size < at || (uint64_t)(st.st_size - at) < n)
        status = oct_fail(err, OCT_INVALID, "%s: it is shorter than .metadata says", path);
    for (size_t done = 0; done < n && !status;) {
        ssize_t got = pread(fd, (char *)to + done, n - done, (off_t)(at + (int64_t)done));
        if (got > 0)
            done += (size_t)got;
        else if (got == 0 || errno != EINTR)
            status = oct_fail(err, OCT_FAILED, "%s: can't be read: %s", path,
                              got ? strerror(errno) : "it became shorter");
    }
    if (fd >= 0)
        close(fd);
    return status;
}

/* A chunk's rows to where they belong; the last dimension is copied at once. */
static void scatter(const oct_dcp_tensor *t, const span *s, const void *from, size_t width,
                    void *to) {
    int last = t->n_dims - 1;
    int64_t at[OCT_DCP_MAX_DIMS] = {0}, n_runs = 1;
    size_t run = (last < 0 ? 1 : (size_t)s->size[last]) * width;
    for (int d = 0; d < last; d++)
        n_runs *= s->size[d];
    for (int64_t i = 0; i < n_runs; i++) {
        int64_t element = 0;
        for (int d = 0; d < t->n_dims; d++)
            element = element * t->shape[d] + s->first[d] + at[d];
        memcpy((char *)to + (size_t)element * width, (const char *)from + (size_t)i * run, run);
        for (int d = last - 1; d >= 0 && ++at[d] == s->size[d]; d--)
            at[d] = 0;
    }
}

static oct_status copy_chunk(const oct_dcp *dcp, const oct_dcp_tensor *t, const chunk *c, void *to,
                             oct_error *err) {
    char *path = oct_path_join(dcp->folder, c->file);
    size_t n = (size_t)c->n_bytes;
    const void *data = NULL;
    struct stat st;
    oct_status status = path ? OCT_OK : oct_fail_memory(err);
    /* Before memory is asked for what a hostile length says. */
    if (!status && (stat(path, &st) != 0 || st.st_size < c->n_bytes))
        status =
            oct_fail(err, OCT_INVALID, "%s: it isn't there, or shorter than .metadata says", path);
    char *archive = status ? NULL : oct_malloc(n);
    if (!status && !archive)
        status = oct_fail_memory(err);
    if (!status)
        status = read_span(path, c->offset, archive, n, err);
    if (!status)
        status = oct_torch_archive_find(archive, n, t->name, t->dtype, c->at.size, t->n_dims, &data,
                                        err);
    if (!status)
        scatter(t, &c->at, data, t->dtype == OCT_F32 ? 4 : 2, to);
    oct_free(archive);
    oct_free(path);
    return status;
}

oct_status oct_dcp_read(const oct_dcp *dcp, const oct_dcp_tensor *tensor, void *to,
                        oct_error *err) {
    const stored *t = (const stored *)tensor;
    oct_status status = OCT_OK;
    if (tensor->dtype == OCT_N_DTYPES)
        return oct_fail(err, OCT_INVALID,
                        "%s: %s: expected float32, bfloat16 or float16; it has another dtype",
                        dcp->folder, oct_show(tensor->name).text);
    for (size_t i = 0; i < t->n_chunks && !status; i++)
        if (count(t->chunks[i].at.size, tensor->n_dims) > 0)
            status = copy_chunk(dcp, tensor, &t->chunks[i], to, err);
    return status;
}
