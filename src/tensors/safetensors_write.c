/* Writing safetensors files: see safetensors.h. Only the header is built in memory; the data goes
 * from the caller's memory or from a source straight to the file. */
#include "tensors/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/strbuf.h"
#include "base/utf8.h"
#include "file/file_sink.h"
#include "file/json.h"

#define MAX_HEADER_BYTES ((size_t)100000000)

typedef struct planned {
    oct_safetensors_item item;
    size_t width, n_bytes, order;
} planned;

struct oct_safetensors_writer {
    char *path;
    planned *planned;
    size_t count, capacity;
    char **metadata; /* key, value, key, value, ... */
    size_t n_strings;
};

struct oct_safetensors_stream {
    oct_file_sink *sink;
    const char *path, *name;
    size_t expected, got;
};

oct_safetensors_item oct_safetensors_item_of(const char *name, const oct_tensor *tensor) {
    oct_safetensors_item item = {
        .name = name, .dtype = tensor->dtype, .n_dims = tensor->n_dims, .data = tensor->data};
    for (int i = 0; i < tensor->n_dims; i++)
        item.shape[i] = tensor->shape[i];
    return item;
}

oct_status oct_safetensors_item_bytes(const oct_safetensors_item *item, size_t *n_bytes,
                                      oct_error *err) {
    const char *name = item->name ? item->name : "";
    if (!name[0] || strcmp(name, "__metadata__") == 0 || !oct_utf8_is_valid(name))
        return oct_fail(err, OCT_INVALID,
                        "tensor '%s': name: expected UTF-8, not empty, not __metadata__",
                        oct_show(name).text);
    if (!oct_safetensors_dtype_name(item->dtype))
        return oct_fail(err, OCT_INVALID,
                        "tensor '%s': dtype: expected one that safetensors knows; got number %d",
                        oct_show(name).text, (int)item->dtype);
    if (item->n_dims < 0 || item->n_dims > OCT_SAFETENSORS_MAX_DIMS)
        return oct_fail(err, OCT_INVALID, "tensor '%s': expected 0 to %d dimensions; got %d",
                        oct_show(name).text, OCT_SAFETENSORS_MAX_DIMS, item->n_dims);
    int64_t n = (int64_t)oct_safetensors_dtype_bytes(item->dtype);
    for (int i = 0; i < item->n_dims; i++)
        if (item->shape[i] < 0 || !oct_mul_i64(n, item->shape[i], &n))
            return oct_fail(err, OCT_INVALID,
                            "tensor '%s': shape[%d]: expected >= 0 and fewer than 2^63 bytes in "
                            "all; got %" PRId64,
                            oct_show(name).text, i, item->shape[i]);
    if (n && !item->data && !item->source)
        return oct_fail(err, OCT_INVALID, "tensor '%s': expected data or a source; got neither",
                        oct_show(name).text);
    *n_bytes = (size_t)n;
    return OCT_OK;
}

oct_status oct_safetensors_writer_create(const char *path, oct_safetensors_writer **writer,
                                         oct_error *err) {
    oct_safetensors_writer *w = oct_calloc_array(1, sizeof *w);
    if (!w || !(w->path = oct_strdup(path))) {
        oct_safetensors_writer_destroy(w);
        return oct_fail_memory(err);
    }
    *writer = w;
    return OCT_OK;
}

oct_status oct_safetensors_writer_set_metadata(oct_safetensors_writer *w, const char *key,
                                               const char *value, oct_error *err) {
    for (size_t i = 0; i < w->n_strings; i += 2)
        if (strcmp(w->metadata[i], key) == 0)
            return oct_fail(err, OCT_INVALID, "%s: metadata '%s': expected one value; got two",
                            w->path, oct_show(key).text);
    if (!oct_utf8_is_valid(key) || !oct_utf8_is_valid(value))
        return oct_fail(err, OCT_INVALID, "%s: metadata '%s': expected UTF-8", w->path,
                        oct_show(key).text);
    char **grown = oct_realloc_array(w->metadata, w->n_strings + 2, sizeof *grown);
    if (!grown)
        return oct_fail_memory(err);
    w->metadata = grown;
    char *key_copy = oct_strdup(key), *value_copy = oct_strdup(value);
    if (!key_copy || !value_copy) {
        oct_free(key_copy);
        oct_free(value_copy);
        return oct_fail_memory(err);
    }
    grown[w->n_strings++] = key_copy;
    grown[w->n_strings++] = value_copy;
    return OCT_OK;
}

oct_status oct_safetensors_writer_add(oct_safetensors_writer *w, const oct_safetensors_item *item,
                                      oct_error *err) {
    size_t n_bytes;
    oct_status status = oct_safetensors_item_bytes(item, &n_bytes, err);
    if (status)
        return status;
    planned *grown = oct_grow_array(w->planned, w->count, &w->capacity, sizeof *grown);
    if (!grown)
        return oct_fail_memory(err);
    w->planned = grown;
    w->planned[w->count] =
        (planned){*item, oct_safetensors_dtype_bytes(item->dtype), n_bytes, w->count};
    w->count++;
    return OCT_OK;
}

static int compare_name(const void *a, const void *b) {
    return strcmp(((const planned *)a)->item.name, ((const planned *)b)->item.name);
}

/* Widest first: then each tensor begins at a multiple of its element, as the data begins at one of
 * 8. */
static int compare_width(const void *a, const void *b) {
    const planned *x = a, *y = b;
    if (x->width != y->width)
        return x->width > y->width ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

static oct_status put_in_order(oct_safetensors_writer *w, oct_error *err) {
    if (w->count == 0)
        return OCT_OK;
    qsort(w->planned, w->count, sizeof *w->planned, compare_name);
    for (size_t i = 1; i < w->count; i++)
        if (compare_name(&w->planned[i - 1], &w->planned[i]) == 0)
            return oct_fail(err, OCT_INVALID, "%s: tensor '%s': expected one of that name; got two",
                            w->path, oct_show(w->planned[i].item.name).text);
    qsort(w->planned, w->count, sizeof *w->planned, compare_width);
    return OCT_OK;
}

static void put_tensor(oct_strbuf *to, const planned *p, size_t begin, size_t end) {
    oct_json_put_string(to, p->item.name);
    oct_strbuf_printf(to, ":{\"dtype\":\"%s\",\"shape\":[",
                      oct_safetensors_dtype_name(p->item.dtype));
    for (int i = 0; i < p->item.n_dims; i++)
        oct_strbuf_printf(to, "%s%" PRId64, i ? "," : "", p->item.shape[i]);
    oct_strbuf_printf(to, "],\"data_offsets\":[%zu,%zu]}", begin, end);
}

static oct_status build_header(const oct_safetensors_writer *w, oct_strbuf *to, oct_error *err) {
    size_t begin = 0, end = 0;
    oct_strbuf_puts(to, "{");
    if (w->n_strings) {
        oct_strbuf_puts(to, "\"__metadata__\":{");
        for (size_t i = 0; i < w->n_strings; i += 2) {
            oct_strbuf_puts(to, i ? "," : "");
            oct_json_put_string(to, w->metadata[i]);
            oct_strbuf_puts(to, ":");
            oct_json_put_string(to, w->metadata[i + 1]);
        }
        oct_strbuf_puts(to, w->count ? "}," : "}");
    }
    for (size_t i = 0; i < w->count; i++, begin = end) {
        if (!oct_add_size(begin, w->planned[i].n_bytes, &end) || end > INT64_MAX)
            return oct_fail(err, OCT_INVALID, "%s: expected fewer than 2^63 bytes of tensors",
                            w->path);
        oct_strbuf_puts(to, i ? "," : "");
        put_tensor(to, &w->planned[i], begin, end);
    }
    oct_strbuf_puts(to, "}");
    while (!to->failed && to->length % 8)
        oct_strbuf_puts(to, " ");
    if (to->failed)
        return oct_fail_memory(err);
    if (to->length > MAX_HEADER_BYTES)
        return oct_fail(err, OCT_INVALID, "%s: header: expected at most %zu bytes; got %zu",
                        w->path, MAX_HEADER_BYTES, to->length);
    return OCT_OK;
}

oct_status oct_safetensors_write_piece(oct_safetensors_stream *to, const void *bytes,
                                       size_t n_bytes, oct_error *err) {
    if (n_bytes > to->expected - to->got)
        return oct_fail(err, OCT_FAILED, "%s: tensor '%s': expected %zu bytes; got more", to->path,
                        oct_show(to->name).text, to->expected);
    to->got += n_bytes;
    return oct_file_sink_write(to->sink, bytes, n_bytes, err);
}

static oct_status write_tensor(const oct_safetensors_writer *w, const planned *p,
                               oct_file_sink *sink, oct_error *err) {
    if (p->n_bytes == 0 || p->item.data)
        return oct_file_sink_write(sink, p->item.data, p->n_bytes, err);
    oct_safetensors_stream stream = {sink, w->path, p->item.name, p->n_bytes, 0};
    oct_status status = p->item.source(p->item.context, &stream, err);
    if (!status && stream.got != stream.expected)
        status = oct_fail(err, OCT_FAILED, "%s: tensor '%s': expected %zu bytes; got %zu", w->path,
                          oct_show(p->item.name).text, stream.expected, stream.got);
    return status;
}

oct_status oct_safetensors_writer_commit(oct_safetensors_writer *w, oct_file_receipt *receipt,
                                         oct_error *err) {
    oct_strbuf header = {0};
    oct_file_sink *sink = NULL;
    uint8_t length[8];
    oct_status status = put_in_order(w, err);
    if (!status)
        status = build_header(w, &header, err);
    if (!status)
        status = oct_file_sink_open(w->path, &sink, err);
    if (status)
        goto cleanup;
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)((uint64_t)header.length >> 8 * i);
    status = oct_file_sink_write(sink, length, sizeof length, err);
    if (!status)
        status = oct_file_sink_write(sink, header.text, header.length, err);
    for (size_t i = 0; i < w->count && !status; i++)
        status = write_tensor(w, &w->planned[i], sink, err);
    if (!status)
        status = oct_file_sink_commit(sink, receipt, err);
cleanup:
    oct_file_sink_close(sink);
    oct_strbuf_free(&header);
    return status;
}

void oct_safetensors_writer_destroy(oct_safetensors_writer *w) {
    if (!w)
        return;
    for (size_t i = 0; i < w->n_strings; i++)
        oct_free(w->metadata[i]);
    oct_free(w->metadata);
    oct_free(w->planned);
    oct_free(w->path);
    oct_free(w);
}
