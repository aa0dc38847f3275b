/* torch.distributed.checkpoint's folder: see dcp.h. */
#include "export/dcp.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/crc32.h"
#include "base/fs.h"
#include "export/pickle.h"
#include "export/values.h"
#include "export/zip.h"
#include "file/file_sink.h"

#define METADATA "torch.distributed.checkpoint.metadata"
#define FILE_SYSTEM "torch.distributed.checkpoint.filesystem"
#define DEFAULT_FILE_BYTES ((size_t)5 << 30)
#define MAX_CHUNK_BYTES ((size_t)1 << 30) /* an archive's places have 32 bits */

typedef struct dcp_tensor {
    char name[96];
    const float *values;
    oct_dtype dtype;
    int n_dims;
    int64_t shape[3];
} dcp_tensor;

/* Rows first .. first+n-1 of a tensor, and where their archive is. */
typedef struct dcp_chunk {
    size_t tensor;
    int64_t first, n;
    int file;
    size_t offset, n_bytes;
} dcp_chunk;

typedef struct dcp {
    const oct_export *e;
    const char *folder;
    dcp_tensor *tensors;
    size_t n_tensors, tensor_capacity;
    dcp_chunk *chunks;
    size_t n_chunks, chunk_capacity;
    oct_file_sink *sink; /* the file that is being written; NULL: none */
    int file;            /* its number */
    size_t in_file;      /* bytes that it has */
} dcp;

/* ---- what there is ---- */

static oct_status add(dcp *d, const char *name, const float *values, oct_dtype dtype, int n_dims,
                      const int64_t *shape, oct_error *err) {
    dcp_tensor *grown =
        oct_grow_array(d->tensors, d->n_tensors, &d->tensor_capacity, sizeof *grown);
    if (!grown)
        return oct_fail_memory(err);
    d->tensors = grown;
    dcp_tensor *t = &grown[d->n_tensors++];
    *t = (dcp_tensor){.values = values, .dtype = dtype, .n_dims = n_dims};
    snprintf(t->name, sizeof t->name, "%s", name);
    memcpy(t->shape, shape, (size_t)n_dims * sizeof *shape);
    return OCT_OK;
}

static oct_status list_tensors(dcp *d, oct_error *err) {
    int64_t n;
    const oct_model_args *args = oct_model_get_args(d->e->model);
    oct_param *const *params = oct_model_params(d->e->model, &n);
    oct_status status = OCT_OK;
    for (int64_t i = 0; i < n && !status; i++) {
        const oct_param *p = params[i];
        bool tied = args->enable_weight_tying && strcmp(p->name, "tok_embeddings.weight") == 0;
        status = add(d, p->name, p->value, d->e->dtype, p->n_dims, p->shape, err);
        if (!status && tied)
            status = add(d, "output.weight", p->value, d->e->dtype, p->n_dims, p->shape, err);
    }
    for (int64_t i = 0; i < args->n_layers && !status; i++) {
        const oct_moe *moe = oct_model_moe(d->e->model, i);
        char name[OCT_MOE_BIAS_NAME_SIZE];
        if (!moe)
            continue;
        oct_moe_bias_name(moe, name);
        status = add(d, name, moe->expert_bias, OCT_F32, 1, &args->num_experts, err);
    }
    return status;
}

/* ---- one chunk ---- */

static int64_t row_elements(const dcp_tensor *t) {
    int64_t n = 1;
    for (int i = 1; i < t->n_dims; i++)
        n *= t->shape[i];
    return n;
}

static const char *torch_name(oct_dtype dtype) {
    return dtype == OCT_BF16 ? "bfloat16" : dtype == OCT_F16 ? "float16" : "float32";
}

static const char *storage_name(oct_dtype dtype) {
    return dtype == OCT_BF16  ? "BFloat16Storage"
           : dtype == OCT_F16 ? "HalfStorage"
                              : "FloatStorage";
}

static void chunk_shape(const dcp_tensor *t, const dcp_chunk *c, int64_t shape[3]) {
    memcpy(shape, t->shape, sizeof t->shape);
    shape[0] = c->n;
}

/* torch._utils._rebuild_tensor_v2(storage, 0, size, stride, False, OrderedDict()) */
static void put_tensor_pickle(const dcp_tensor *t, const dcp_chunk *c, oct_strbuf *to) {
    int64_t shape[3], strides[3] = {1, 1, 1};
    chunk_shape(t, c, shape);
    for (int i = t->n_dims - 2; i >= 0; i--)
        strides[i] = strides[i + 1] * shape[i + 1];
    oct_pickle_begin(to);
    oct_pickle_put_global(to, "torch._utils", "_rebuild_tensor_v2");
    oct_strbuf_puts(to, OCT_PICKLE_MARK OCT_PICKLE_MARK);
    oct_pickle_put_text(to, "storage");
    oct_pickle_put_global(to, "torch", storage_name(t->dtype));
    oct_pickle_put_text(to, "0");
    oct_pickle_put_text(to, "cpu");
    oct_pickle_put_int(to, c->n * row_elements(t));
    oct_strbuf_puts(to, OCT_PICKLE_TUPLE OCT_PICKLE_PERSISTENT);
    oct_pickle_put_int(to, 0);
    oct_pickle_put_sizes(to, shape, t->n_dims);
    oct_pickle_put_sizes(to, strides, t->n_dims);
    oct_strbuf_puts(to, OCT_PICKLE_FALSE);
    oct_pickle_put_global(to, "collections", "OrderedDict");
    oct_strbuf_puts(to, OCT_PICKLE_EMPTY_TUPLE OCT_PICKLE_REDUCE OCT_PICKLE_TUPLE OCT_PICKLE_REDUCE
                            OCT_PICKLE_STOP);
}

/* The archive of a chunk: what stands before its bytes and after them, and they. */
typedef struct packed {
    oct_zip zip;
    void *bytes;
    size_t n;
} packed;

static void free_packed(packed *p) {
    oct_strbuf_free(&p->zip.head);
    oct_strbuf_free(&p->zip.tail);
    oct_free(p->bytes);
}

static oct_status pack(const dcp *d, const dcp_chunk *c, packed *p, oct_error *err) {
    const dcp_tensor *t = &d->tensors[c->tensor];
    int64_t row = row_elements(t), n = c->n * row;
    oct_strbuf pickle = {0};
    *p = (packed){.n = (size_t)n * oct_safetensors_dtype_bytes(t->dtype)};
    p->bytes = oct_malloc(p->n);
    if (!p->bytes)
        return oct_fail_memory(err);
    if (d->e->stop && d->e->stop(d->e->stop_user))
        return oct_fail(err, OCT_FAILED, "the export was stopped");
    oct_status status =
        oct_export_put_values(t->name, t->values + c->first * row, n, t->dtype, p->bytes, err);
    if (status)
        return status;
    put_tensor_pickle(t, c, &pickle);
    oct_zip_put(&p->zip, "archive/data.pkl", pickle.text, pickle.length);
    oct_zip_put(&p->zip, "archive/byteorder", "little", 6);
    oct_zip_put(&p->zip, "archive/version", "3\n", 2);
    oct_zip_put_data(&p->zip, "archive/data/0", oct_crc32(p->bytes, p->n), p->n);
    oct_zip_end(&p->zip, p->n);
    bool failed = pickle.failed || p->zip.head.failed || p->zip.tail.failed;
    oct_strbuf_free(&pickle);
    return failed ? oct_fail_memory(err) : OCT_OK;
}

/* ---- files ---- */

static char *file_path(const dcp *d, int file) {
    char name[32];
    snprintf(name, sizeof name, "__0_%d.distcp", file);
    return oct_path_join(d->folder, name);
}

static oct_status end_file(dcp *d, oct_error *err) {
    oct_status status = d->sink ? oct_file_sink_commit(d->sink, NULL, err) : OCT_OK;
    oct_file_sink_close(d->sink);
    d->sink = NULL;
    d->file++;
    d->in_file = 0;
    return status;
}

static oct_status begin_file(dcp *d, oct_error *err) {
    char *path = file_path(d, d->file);
    oct_status status = path ? oct_file_sink_open(path, &d->sink, err) : oct_fail_memory(err);
    oct_free(path);
    return status;
}

static oct_status write_chunk(dcp *d, dcp_chunk *c, size_t most, oct_error *err) {
    packed p;
    oct_status status = pack(d, c, &p, err);
    size_t n = p.zip.head.length + p.n + p.zip.tail.length;
    if (!status && d->sink && d->in_file + n > most)
        status = end_file(d, err);
    if (!status && !d->sink)
        status = begin_file(d, err);
    c->file = d->file;
    c->offset = d->in_file;
    c->n_bytes = n;
    if (!status)
        status = oct_file_sink_write(d->sink, p.zip.head.text, p.zip.head.length, err);
    if (!status)
        status = oct_file_sink_write(d->sink, p.bytes, p.n, err);
    if (!status)
        status = oct_file_sink_write(d->sink, p.zip.tail.text, p.zip.tail.length, err);
    d->in_file += n;
    free_packed(&p);
    return status;
}

static oct_status append_chunk(dcp *d, const dcp_chunk *c, oct_error *err) {
    dcp_chunk *grown = oct_grow_array(d->chunks, d->n_chunks, &d->chunk_capacity, sizeof *grown);
    if (!grown)
        return oct_fail_memory(err);
    d->chunks = grown;
    d->chunks[d->n_chunks++] = *c;
    return OCT_OK;
}

static oct_status write_tensors(dcp *d, oct_error *err) {
    size_t most = d->e->max_shard_bytes ? d->e->max_shard_bytes : DEFAULT_FILE_BYTES;
    size_t chunk = most < MAX_CHUNK_BYTES ? most : MAX_CHUNK_BYTES;
    oct_status status = OCT_OK;
    for (size_t i = 0; i < d->n_tensors && !status; i++) {
        const dcp_tensor *t = &d->tensors[i];
        size_t row_bytes = (size_t)row_elements(t) * oct_safetensors_dtype_bytes(t->dtype);
        int64_t rows = oct_max_i64(1, (int64_t)(chunk / row_bytes));
        for (int64_t first = 0; first < t->shape[0] && !status; first += rows) {
            dcp_chunk c = {.tensor = i, .first = first};
            c.n = oct_min_i64(rows, t->shape[0] - first);
            status = write_chunk(d, &c, most, err);
            if (!status)
                status = append_chunk(d, &c, err);
        }
    }
    return status ? status : end_file(d, err);
}

/* ---- .metadata ---- */

/* An object of the class made without a call; a state follows. */
static void put_object(oct_strbuf *to, const char *module, const char *name) {
    oct_pickle_put_global(to, module, name);
    oct_strbuf_puts(to, OCT_PICKLE_EMPTY_TUPLE OCT_PICKLE_NEW);
}

static void begin_state(oct_strbuf *to) {
    oct_strbuf_puts(to, OCT_PICKLE_EMPTY_DICT OCT_PICKLE_MARK);
}

static void end_state(oct_strbuf *to) {
    oct_strbuf_puts(to, OCT_PICKLE_SET_ITEMS OCT_PICKLE_BUILD);
}

static void put_call(oct_strbuf *to, const char *module, const char *name) {
    oct_pickle_put_global(to, module, name);
}

static void put_torch_size(oct_strbuf *to, const int64_t *sizes, int n) {
    put_call(to, "torch", "Size");
    oct_pickle_put_sizes(to, sizes, n);
    oct_strbuf_puts(to, OCT_PICKLE_TUPLE1 OCT_PICKLE_REDUCE);
}

static void chunk_offsets(const dcp_chunk *c, int64_t offsets[3]) {
    offsets[0] = c->first;
    offsets[1] = offsets[2] = 0;
}

/* (dtype, layout, requires_grad, memory format, pin_memory), which older and newer torch read. */
static void put_properties(oct_strbuf *to, oct_dtype dtype) {
    put_object(to, METADATA, "TensorProperties");
    oct_strbuf_puts(to, OCT_PICKLE_MARK);
    oct_pickle_put_global(to, "torch", torch_name(dtype));
    put_call(to, "torch.serialization", "_get_layout");
    oct_pickle_put_text(to, "torch.strided");
    oct_strbuf_puts(to, OCT_PICKLE_TUPLE1 OCT_PICKLE_REDUCE OCT_PICKLE_FALSE);
    put_call(to, METADATA, "_MEM_FORMAT_ENCODING");
    oct_pickle_put_int(to, 0); /* contiguous */
    oct_strbuf_puts(
        to, OCT_PICKLE_TUPLE1 OCT_PICKLE_REDUCE OCT_PICKLE_FALSE OCT_PICKLE_TUPLE OCT_PICKLE_BUILD);
}

static void put_tensor(const dcp *d, size_t index, oct_strbuf *to) {
    const dcp_tensor *t = &d->tensors[index];
    oct_pickle_put_text(to, t->name);
    put_object(to, METADATA, "TensorStorageMetadata");
    begin_state(to);
    oct_pickle_put_text(to, "properties");
    put_properties(to, t->dtype);
    oct_pickle_put_text(to, "size");
    put_torch_size(to, t->shape, t->n_dims);
    oct_pickle_put_text(to, "chunks");
    oct_strbuf_puts(to, OCT_PICKLE_EMPTY_LIST OCT_PICKLE_MARK);
    for (size_t i = 0; i < d->n_chunks; i++) {
        const dcp_chunk *c = &d->chunks[i];
        int64_t offsets[3], shape[3];
        if (c->tensor != index)
            continue;
        chunk_offsets(c, offsets);
        chunk_shape(t, c, shape);
        put_object(to, METADATA, "ChunkStorageMetadata");
        begin_state(to);
        oct_pickle_put_text(to, "offsets");
        put_torch_size(to, offsets, t->n_dims);
        oct_pickle_put_text(to, "sizes");
        put_torch_size(to, shape, t->n_dims);
        end_state(to);
    }
    oct_strbuf_puts(to, OCT_PICKLE_APPENDS);
    end_state(to);
}

static void put_place(const dcp *d, const dcp_chunk *c, int64_t index, oct_strbuf *to) {
    const dcp_tensor *t = &d->tensors[c->tensor];
    char file[32];
    int64_t offsets[3];
    chunk_offsets(c, offsets);
    snprintf(file, sizeof file, "__0_%d.distcp", c->file);
    put_object(to, METADATA, "MetadataIndex");
    begin_state(to);
    oct_pickle_put_text(to, "fqn");
    oct_pickle_put_text(to, t->name);
    oct_pickle_put_text(to, "offset");
    put_torch_size(to, offsets, t->n_dims);
    oct_pickle_put_text(to, "index");
    oct_pickle_put_int(to, index);
    end_state(to);
    put_object(to, FILE_SYSTEM, "_StorageInfo");
    begin_state(to);
    oct_pickle_put_text(to, "relative_path");
    oct_pickle_put_text(to, file);
    oct_pickle_put_text(to, "offset");
    oct_pickle_put_int(to, (int64_t)c->offset);
    oct_pickle_put_text(to, "length");
    oct_pickle_put_int(to, (int64_t)c->n_bytes);
    end_state(to);
}

static void put_metadata(const dcp *d, oct_strbuf *to) {
    int64_t index = 0;
    oct_pickle_begin(to);
    put_object(to, METADATA, "Metadata");
    begin_state(to);
    oct_pickle_put_text(to, "state_dict_metadata");
    begin_state(to);
    for (size_t i = 0; i < d->n_tensors; i++)
        put_tensor(d, i, to);
    oct_strbuf_puts(to, OCT_PICKLE_SET_ITEMS);
    oct_pickle_put_text(to, "planner_data"); /* the path of each name in the state dict */
    begin_state(to);
    for (size_t i = 0; i < d->n_tensors; i++) {
        oct_pickle_put_text(to, d->tensors[i].name);
        oct_pickle_put_text(to, d->tensors[i].name);
        oct_strbuf_puts(to, OCT_PICKLE_TUPLE1);
    }
    oct_strbuf_puts(to, OCT_PICKLE_SET_ITEMS);
    oct_pickle_put_text(to, "storage_data");
    begin_state(to);
    for (size_t i = 0; i < d->n_chunks; i++) {
        index = i > 0 && d->chunks[i].tensor == d->chunks[i - 1].tensor ? index + 1 : 0;
        put_place(d, &d->chunks[i], index, to);
    }
    oct_strbuf_puts(to, OCT_PICKLE_SET_ITEMS);
    oct_pickle_put_text(to, "storage_meta");
    oct_strbuf_puts(to, OCT_PICKLE_NONE);
    end_state(to);
    oct_strbuf_puts(to, OCT_PICKLE_STOP);
}

static oct_status write_metadata(const dcp *d, oct_error *err) {
    oct_strbuf text = {0};
    char *path = oct_path_join(d->folder, ".metadata");
    put_metadata(d, &text);
    oct_status status = text.failed || !path
                            ? oct_fail_memory(err)
                            : oct_file_sink_put(path, text.text, text.length, NULL, err);
    oct_strbuf_free(&text);
    oct_free(path);
    return status;
}

/* ---- reading back ---- */

static oct_status read_exactly(int fd, const char *path, size_t at, void *to, size_t n,
                               oct_error *err) {
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(fd, (char *)to + done, n - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return oct_fail(err, OCT_FAILED, "%s: can't be read back: %s", path,
                            got < 0 ? strerror(errno) : "it is shorter than was written");
        done += (size_t)got;
    }
    return OCT_OK;
}

static oct_status compare_chunk(const dcp *d, const dcp_chunk *c, int fd, const char *path,
                                oct_error *err) {
    packed p;
    oct_status status = pack(d, c, &p, err);
    char *there = status ? NULL : oct_malloc(c->n_bytes);
    if (!status && !there)
        status = oct_fail_memory(err);
    if (!status)
        status = read_exactly(fd, path, c->offset, there, c->n_bytes, err);
    size_t head = p.zip.head.length;
    if (!status &&
        (memcmp(there, p.zip.head.text, head) != 0 || memcmp(there + head, p.bytes, p.n) != 0 ||
         memcmp(there + head + p.n, p.zip.tail.text, p.zip.tail.length) != 0))
        status = oct_fail(err, OCT_FAILED, "%s: %s is read back with other bytes than were written",
                          path, d->tensors[c->tensor].name);
    oct_free(there);
    free_packed(&p);
    return status;
}

static oct_status read_back(const dcp *d, oct_error *err) {
    oct_status status = OCT_OK;
    for (size_t i = 0; i < d->n_chunks && !status; i++) {
        char *path = file_path(d, d->chunks[i].file);
        int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        if (!path)
            status = oct_fail_memory(err);
        else if (fd < 0)
            status = oct_fail(err, OCT_FAILED, "%s: can't be read back: %s", path, strerror(errno));
        else
            status = compare_chunk(d, &d->chunks[i], fd, path, err);
        if (fd >= 0)
            close(fd);
        oct_free(path);
    }
    return status;
}

oct_status oct_dcp_write(const oct_export *e, const char *folder, oct_export_summary *summary,
                         oct_error *err) {
    dcp d = {.e = e, .folder = folder};
    oct_status status = list_tensors(&d, err);
    if (!status)
        status = write_tensors(&d, err);
    if (!status)
        status = write_metadata(&d, err);
    if (!status)
        status = read_back(&d, err);
    *summary = (oct_export_summary){.n_tensors = (int64_t)d.n_tensors};
    for (size_t i = 0; i < d.n_tensors; i++)
        summary->n_bytes += (size_t)(d.tensors[i].shape[0] * row_elements(&d.tensors[i])) *
                            oct_safetensors_dtype_bytes(d.tensors[i].dtype);
    oct_file_sink_close(d.sink);
    oct_free(d.tensors);
    oct_free(d.chunks);
    return status;
}
