/* Writing and reading back an export: see export.h. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "export/dcp.h"
#include "export/dialect.h"
#include "export/folder.h"
#include "export/tensors.h"
#include "file/json.h"

/* ---- files beside the tensors ---- */

static oct_status put_file(const char *folder, const char *name, const char *bytes, size_t n_bytes,
                           oct_error *err) {
    char *path = oct_path_join(folder, name);
    if (!path)
        return oct_fail_memory(err);
    oct_status status = oct_file_write(path, bytes, n_bytes, err);
    oct_free(path);
    return status;
}

static oct_status put_text(const char *folder, const char *name, const oct_strbuf *text,
                           oct_error *err) {
    if (text->failed)
        return oct_fail_memory(err);
    return put_file(folder, name, text->text, text->length, err);
}

/* The caller's text with the quantization added. */
static oct_status put_config(const oct_export *e, const oct_export_tensors *t, const char *folder,
                             oct_error *err) {
    oct_strbuf quantization = {0}, text = {0};
    json_t *root = NULL, *value = NULL;
    const char *const *ignored = (const char *const *)t->ignored;
    oct_status status = oct_json_parse(e->config, strlen(e->config), "config.json", &root, err);
    if (!status && e->format != OCT_EXPORT_HF) {
        oct_dialect_put_config(e->format, ignored, t->n_ignored, &quantization);
        status = quantization.failed ? oct_fail_memory(err)
                                     : oct_json_parse(quantization.text, quantization.length,
                                                      "quantization_config", &value, err);
        if (!status && json_object_set_new(root, "quantization_config", value) != 0)
            status = oct_fail_memory(err);
    }
    if (!status) {
        oct_json_put(&text, root, 2);
        oct_strbuf_puts(&text, "\n");
        status = put_text(folder, "config.json", &text, err);
    }
    json_decref(root);
    oct_strbuf_free(&quantization);
    oct_strbuf_free(&text);
    return status;
}

static oct_status put_files(const oct_export *e, const oct_export_tensors *t, const char *folder,
                            oct_error *err) {
    const char *beside = oct_dialect_file(e->format);
    oct_strbuf text = {0};
    oct_status status = put_config(e, t, folder, err);
    for (size_t i = 0; i < e->n_files && !status; i++)
        status = put_file(folder, e->files[i].name, e->files[i].bytes, e->files[i].n_bytes, err);
    if (!status && beside) {
        oct_dialect_put_file((const char *const *)t->ignored, t->n_ignored, &text);
        status = put_text(folder, beside, &text, err);
    }
    oct_strbuf_free(&text);
    return status;
}

/* ---- tensors ---- */

static oct_status send(void *context, oct_safetensors_stream *to, oct_error *err) {
    const oct_export_tensor *tensor = context;
    size_t n_bytes = oct_export_tensor_bytes(tensor);
    void *bytes = oct_malloc(n_bytes);
    if (!bytes)
        return oct_fail_memory(err);
    oct_status status = oct_export_tensor_make(tensor, bytes, err);
    if (!status)
        status = oct_safetensors_write_piece(to, bytes, n_bytes, err);
    oct_free(bytes);
    return status;
}

static oct_status put_tensors(const oct_export *e, oct_export_tensors *t, const char *folder,
                              oct_error *err) {
    oct_safetensors_item *items = oct_calloc_array(t->n + 1, sizeof *items);
    if (!items)
        return oct_fail_memory(err);
    for (size_t i = 0; i < t->n; i++) {
        oct_export_tensor *tensor = &t->list[i];
        items[i] = (oct_safetensors_item){.name = tensor->name,
                                          .dtype = tensor->dtype,
                                          .n_dims = tensor->n_dims,
                                          .source = send,
                                          .context = tensor};
        memcpy(items[i].shape, tensor->shape, sizeof tensor->shape);
    }
    oct_status status = oct_hf_model_write(folder, items, (int64_t)t->n, e->max_shard_bytes, err);
    oct_free(items);
    return status;
}

/* ---- reading back ---- */

static bool same_shape(const oct_export_tensor *a, const oct_safetensors_tensor *b) {
    bool same = a->dtype == b->dtype && a->n_dims == b->n_dims;
    for (int d = 0; same && d < a->n_dims; d++)
        same = a->shape[d] == b->shape[d];
    return same;
}

static oct_status compare(const oct_export_tensor *tensor, const oct_hf_model *files,
                          oct_error *err) {
    const oct_safetensors_tensor *there = oct_hf_model_find(files, tensor->name);
    size_t n_bytes = oct_export_tensor_bytes(tensor);
    if (!there || !same_shape(tensor, there) || there->n_bytes != n_bytes)
        return oct_fail(err, OCT_FAILED, "%s: read back as another tensor than was written",
                        tensor->name);
    void *bytes = oct_malloc(n_bytes);
    if (!bytes)
        return oct_fail_memory(err);
    oct_status status = oct_export_tensor_make(tensor, bytes, err);
    if (!status && memcmp(bytes, there->data, n_bytes) != 0)
        status = oct_fail(err, OCT_FAILED, "%s: read back with other bytes than were written",
                          tensor->name);
    oct_free(bytes);
    return status;
}

static oct_status read_back(const oct_export_tensors *t, const char *folder, oct_error *err) {
    oct_hf_model *files = NULL;
    oct_hf_config config;
    oct_status status = oct_hf_config_read(folder, &config, err);
    if (!status)
        status = oct_hf_model_open(folder, &files, err);
    if (!status && oct_hf_model_count(files) != (int64_t)t->n)
        status = oct_fail(err, OCT_FAILED, "%s: expected %zu tensors; read back %" PRId64, folder,
                          t->n, oct_hf_model_count(files));
    for (size_t i = 0; i < t->n && !status; i++)
        status = compare(&t->list[i], files, err);
    oct_hf_model_close(files);
    return status;
}

/* ---- all of it ---- */

oct_status oct_export_check_target(const char *target, oct_error *err) {
    return oct_new_folder_check(target, err);
}

static oct_status fill(const oct_export *e, oct_export_tensors *t, const char *folder,
                       oct_error *err) {
    oct_status status = put_files(e, t, folder, err);
    if (!status)
        status = put_tensors(e, t, folder, err);
    if (!status)
        status = read_back(t, folder, err);
    if (!status && e->check)
        status = e->check(e->check_user, folder, err);
    return status;
}

static oct_status write_hf(const oct_export *e, const char *folder, oct_export_summary *summary,
                           oct_error *err) {
    oct_export_tensors tensors;
    oct_status status = oct_export_tensors_list(e, &tensors, err);
    if (!status)
        status = fill(e, &tensors, folder, err);
    *summary = tensors.summary;
    oct_export_tensors_free(&tensors);
    return status;
}

oct_status oct_export_write(const oct_export *e, const char *target, oct_export_summary *summary,
                            oct_error *err) {
    oct_new_folder folder = {0};
    oct_status status = oct_new_folder_begin(target, &folder, err);
    if (!status)
        status = e->format == OCT_EXPORT_DCP ? oct_dcp_write(e, folder.temporary, summary, err)
                                             : write_hf(e, folder.temporary, summary, err);
    if (!status)
        status = oct_new_folder_publish(&folder, err);
    oct_new_folder_end(&folder);
    return status;
}
