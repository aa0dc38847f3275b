/* A trained model as a folder that other programs load: see export_source.h. */
#include "export/export_source.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/count.h"
#include "base/fs.h"
#include "base/log.h"
#include "export/export_check.h"
#include "file/json.h"
#include "job/conversion.h"
#include "job/hf_words.h"
#include "job/portable.h"
#include "text/tokenizer.h"

/* What is written, as it comes together. */
typedef struct parts {
    const oct_model_source *from;
    const char *dtype; /* of config.json */
    oct_model *model;
    oct_conversion *conversion;
    oct_hf_model *like;
    oct_portable files;
    oct_tokenizer *tokenizer; /* NULL: none */
    oct_strbuf config, generation, tokenizer_config;
    oct_export e;
} parts;

static bool is_there(const char *folder, const char *name, char **path) {
    *path = oct_path_join(folder, name);
    return *path && oct_path_exists(*path);
}

/* ---- dtype ---- */

static const struct {
    const char *name;
    oct_dtype dtype;
} dtypes[] = {
    [OCT_JOB_FLOAT32] = {"float32", OCT_F32},
    [OCT_JOB_BFLOAT16] = {"bfloat16", OCT_BF16},
    [OCT_JOB_FLOAT16] = {"float16", OCT_F16},
};
enum { N_DTYPES = OCT_COUNT(dtypes) };

static oct_status find_dtype(const char *name, parts *p, oct_error *err) {
    for (int i = 0; i < N_DTYPES; i++)
        if (strcmp(dtypes[i].name, name) == 0) {
            p->dtype = dtypes[i].name;
            p->e.dtype = dtypes[i].dtype;
            return OCT_OK;
        }
    return oct_fail(err, OCT_INVALID, "dtype: expected float32, bfloat16 or float16; got '%.80s'",
                    name);
}

/* A folder in high precision keeps each tensor's own; its config.json says which is usual. */
static oct_status keep_dtypes(parts *p, oct_error *err) {
    const oct_hf_config *hf = &p->from->hf;
    oct_status status = OCT_OK;
    if (hf->quantization != OCT_HF_HIGH_PRECISION)
        return find_dtype("float32", p, err);
    status = oct_hf_model_open(p->from->path, &p->like, err);
    if (status)
        return status;
    const oct_safetensors_tensor *first = oct_hf_model_get(p->like, 0);
    p->e.like = p->like;
    if (hf->torch_dtype[0])
        return find_dtype(hf->torch_dtype, p, err);
    return find_dtype(first && first->dtype == OCT_BF16  ? "bfloat16"
                      : first && first->dtype == OCT_F16 ? "float16"
                                                         : "float32",
                      p, err);
}

static oct_status choose_dtype(parts *p, const oct_export_request *request, oct_error *err) {
    if (request->dtype)
        return find_dtype(request->dtype, p, err);
    if (!p->from->checkpoint && request->format != OCT_EXPORT_DCP)
        return keep_dtypes(p, err);
    const oct_job *job = &p->from->job;
    bool said = oct_job_is_set(job, "checkpoint.export_dtype");
    oct_job_dtype as_trained = job->training.mixed_precision_param;
    return find_dtype(
        dtypes[said || request->format == OCT_EXPORT_HF || request->format == OCT_EXPORT_DCP
                   ? job->checkpoint.export_dtype
                   : as_trained]
            .name,
        p, err);
}

/* ---- files ---- */

static void put_token(oct_strbuf *to, const char *key, const oct_tokenizer *tokenizer, int32_t id) {
    size_t n = 0;
    const char *bytes = id >= 0 ? oct_tokenizer_token(tokenizer, id, &n) : NULL;
    char *text = bytes ? oct_strndup(bytes, n) : NULL;
    oct_strbuf_printf(to, ",\n  \"%s\": ", key);
    if (text)
        oct_json_put_string(to, text);
    else
        oct_strbuf_puts(to, "null");
    oct_free(text);
}

static void put_id(oct_strbuf *to, const char *key, int32_t id) {
    oct_strbuf_printf(to, ",\n  \"%s\": ", key);
    if (id >= 0)
        oct_strbuf_printf(to, "%" PRId32, id);
    else
        oct_strbuf_puts(to, "null");
}

static bool has_file(const oct_portable *files, const char *name) {
    for (size_t i = 0; i < files->n; i++)
        if (strcmp(files->files[i].name, name) == 0)
            return true;
    return false;
}

/* Takes the text over. */
static oct_status add_text(oct_portable *files, const char *name, oct_strbuf *text,
                           oct_error *err) {
    if (text->failed)
        return oct_fail_memory(err);
    files->files[files->n++] = (oct_checkpoint_file){name, text->text, text->length};
    *text = (oct_strbuf){0};
    return OCT_OK;
}

/* transformers' class for a tokenizer.json that isn't a known model's. */
static oct_status add_tokenizer_config(parts *p, oct_error *err) {
    oct_strbuf *to = &p->tokenizer_config;
    oct_strbuf_puts(to, "{\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\"");
    put_token(to, "bos_token", p->tokenizer, oct_tokenizer_bos(p->tokenizer));
    put_token(to, "eos_token", p->tokenizer, oct_tokenizer_eos(p->tokenizer));
    oct_strbuf_printf(to,
                      ",\n  \"model_max_length\": %" PRId64
                      ",\n  \"clean_up_tokenization_spaces\": false\n}\n",
                      p->from->args.max_seq_len);
    return add_text(&p->files, "tokenizer_config.json", to, err);
}

static oct_status add_generation_config(parts *p, oct_error *err) {
    oct_strbuf *to = &p->generation;
    oct_strbuf_puts(to, "{\n  \"_from_model_config\": true");
    put_id(to, "bos_token_id", p->tokenizer ? oct_tokenizer_bos(p->tokenizer) : -1);
    put_id(to, "eos_token_id", p->tokenizer ? oct_tokenizer_eos(p->tokenizer) : -1);
    oct_strbuf_puts(to, "\n}\n");
    return add_text(&p->files, "generation_config.json", to, err);
}

/* A folder's own files are kept; what it hasn't got is made, for a checkpoint. */
static oct_status read_files(parts *p, oct_error *err) {
    char *path = NULL;
    const char *folder = p->from->path;
    bool has = is_there(folder, "tokenizer.json", &path);
    oct_status status = path ? OCT_OK : oct_fail_memory(err);
    if (!status && has)
        status = oct_portable_read_tokenizer(folder, &p->files, err);
    if (!status && has)
        status = oct_tokenizer_load(folder, &p->tokenizer, err);
    if (!status && !has)
        oct_log_warning("%s has no tokenizer.json: the exported folder has none either", folder);
    oct_free(path);
    if (!status && has && p->from->checkpoint && !has_file(&p->files, "tokenizer_config.json"))
        status = add_tokenizer_config(p, err);
    if (!status && p->from->checkpoint && !has_file(&p->files, "generation_config.json"))
        status = add_generation_config(p, err);
    return status;
}

/* ---- config.json ---- */

static oct_status put_words(parts *p, oct_error *err) {
    const char *losses[OCT_HF_WORDS_MAX_LOSSES + 1];
    oct_strbuf why = {0};
    char *origin = NULL;
    bool has = is_there(p->from->path, "config.json", &origin);
    oct_status status = origin ? OCT_OK : oct_fail_memory(err);
    if (!status)
        status =
            oct_hf_words_put(&p->from->args, has ? origin : NULL, p->dtype, &p->config, &why, err);
    oct_free(origin);
    if (!status && (p->config.failed || why.failed))
        status = oct_fail_memory(err);
    if (!status && !p->config.length)
        status = oct_fail_no_words(&why, err);
    oct_strbuf_free(&why);
    if (status)
        return status;
    oct_hf_words_losses(&p->from->args, losses);
    for (int i = 0; losses[i]; i++)
        oct_log_warning("%s: %s", p->from->path, losses[i]);
    return OCT_OK;
}

/* ---- all of it ---- */

static oct_status read_model(parts *p, oct_error *err) {
    oct_status status = oct_model_create(&p->from->args, OCT_PARAMS_ALLOCATED, &p->model, err);
    if (!status)
        status = oct_model_source_read(p->from, p->model, err);
    if (!status)
        status = oct_conversion_create(&p->from->job, p->model, &p->conversion, err);
    return status;
}

static oct_status check_folder(void *e, const char *folder, oct_error *err) {
    return oct_export_check_folder(e, folder, err);
}

static oct_status prepare(parts *p, const oct_export_request *request, oct_error *err) {
    p->e = (oct_export){.format = request->format,
                        .max_shard_bytes = request->max_shard_bytes,
                        .stop = request->stop,
                        .stop_user = request->stop_user};
    bool hf = request->format != OCT_EXPORT_DCP;
    oct_status status = choose_dtype(p, request, err);
    if (!status && hf)
        status = put_words(p, err);
    if (!status && hf)
        status = read_files(p, err);
    if (!status)
        status = read_model(p, err);
    if (status)
        return status;
    p->e.model = p->model;
    p->e.plan = oct_conversion_plan(p->conversion);
    p->e.config = p->config.text;
    p->e.files = p->files.files;
    p->e.n_files = p->files.n;
    p->e.check = hf ? check_folder : NULL;
    p->e.check_user = &p->e;
    return OCT_OK;
}

static void free_parts(parts *p) {
    oct_model_destroy(p->model);
    oct_conversion_destroy(p->conversion);
    oct_hf_model_close(p->like);
    oct_tokenizer_free(p->tokenizer);
    oct_portable_free(&p->files);
    oct_strbuf_free(&p->config);
    oct_strbuf_free(&p->generation);
    oct_strbuf_free(&p->tokenizer_config);
}

oct_status oct_export_source(const oct_model_source *source, const oct_export_request *request,
                             const char *target, oct_export_summary *summary, oct_error *err) {
    parts p = {.from = source};
    oct_status status = oct_export_check_target(target, err);
    if (!status)
        status = prepare(&p, request, err);
    if (!status)
        status = oct_export_write(&p.e, target, summary, err);
    free_parts(&p);
    return status;
}
