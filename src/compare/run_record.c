/* run.json of a comparison's runs: see run_record.h. */
#include "compare/run_record.h"

#include <dirent.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "file/json.h"
#include "job/model_record.h"
#include "job/ranks.h"
#include "job/setup.h"

#define MAX_RECORD_BYTES ((size_t)1 << 20)

/* ---- inputs ---- */

typedef struct files {
    int64_t n, n_bytes, newest_s;
} files;

static void count_file(const char *path, files *all) {
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return;
    all->n++;
    all->n_bytes += st.st_size;
    all->newest_s = st.st_mtime > all->newest_s ? (int64_t)st.st_mtime : all->newest_s;
}

/* Weights are too large to be read for this alone. */
static void put_files(const char *path, oct_strbuf *to) {
    files all = {0};
    count_file(path, &all);
    DIR *folder = opendir(path);
    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        char *file = oct_path_join(path, entry->d_name);
        if (file)
            count_file(file, &all);
        to->failed |= !file;
        oct_free(file);
    }
    if (folder)
        closedir(folder);
    oct_strbuf_printf(to,
                      "%" PRId64 " files of %" PRId64 " bytes, the newest of second %" PRId64 "\n",
                      all.n, all.n_bytes, all.newest_s);
}

static oct_status put_datasets(const oct_job *job, const oct_model_args *args,
                               const char *cache_folder, oct_strbuf *text, oct_error *err) {
    oct_tokenizer *tokenizer = NULL;
    oct_dataset *train = NULL, *validation = NULL;
    oct_status status = oct_setup_tokenizer(job, args->vocab_size, &tokenizer, err);
    const oct_setup_data setup = {
        .tokenizer = tokenizer, .vocab_size = args->vocab_size, .cache_folder = cache_folder};
    if (!status)
        status = oct_setup_datasets(job, &setup, &train, &validation, err);
    if (!status)
        oct_ranks_put_data(train, validation, text);
    oct_dataset_close(train);
    oct_dataset_close(validation);
    oct_tokenizer_free(tokenizer);
    return status;
}

oct_status oct_run_record_files(const oct_job *job, const char *cache_folder, oct_strbuf *text,
                                oct_error *err) {
    oct_model_args args;
    oct_status status = oct_setup_model_args(job, &args, err);
    if (status)
        return status;
    if (job->checkpoint.initial_load_path) {
        oct_strbuf_puts(text, "checkpoint.initial_load_path = ");
        put_files(job->checkpoint.initial_load_path, text);
    }
    return put_datasets(job, &args, cache_folder, text, err);
}

oct_status oct_run_record_inputs(const oct_job *job, const char *read_files, bool other_order,
                                 oct_strbuf *text, oct_error *err) {
    oct_model_args args;
    oct_status status = oct_setup_model_args(job, &args, err);
    if (status)
        return status;
    oct_ranks_put_job(job, text);
    oct_model_record_lines(&args, text);
    if (other_order)
        oct_strbuf_puts(text, "sums = in another order\n");
    oct_strbuf_puts(text, read_files);
    return text->failed ? oct_fail_memory(err) : OCT_OK;
}

/* ---- the file ---- */

static oct_status read_result(const json_t *result, const char *path, oct_run_record *record,
                              oct_error *err) {
    static const char *const names[] = {"validation_loss", "unigram_entropy", "peak_bytes",
                                        "validation_tokens", "steps"};
    double values[5];
    for (int i = 0; i < 5; i++) {
        const json_t *value = json_object_get(result, names[i]);
        if (!json_is_number(value))
            return oct_fail(err, OCT_INVALID, "%s: result.%s: expected a number; got %s", path,
                            names[i], oct_json_kind(value));
        values[i] = json_number_value(value);
    }
    record->result = (oct_run_result){.validation_loss = values[0],
                                      .unigram_entropy = values[1],
                                      .peak_bytes = values[2],
                                      .validation_tokens = (int64_t)values[3],
                                      .steps = (int64_t)values[4]};
    record->done = true;
    return OCT_OK;
}

static oct_status read_record(const char *path, const char *inputs, const char *machine,
                              oct_run_record *record, oct_error *err) {
    char *text = NULL;
    size_t n = 0;
    json_t *root = NULL;
    oct_status status = oct_file_read(path, MAX_RECORD_BYTES, &text, &n, err);
    if (!status)
        status = oct_json_parse(text, n, path, &root, err);
    oct_free(text);
    if (status)
        return status;
    const char *was = json_string_value(json_object_get(root, "inputs"));
    const char *where = json_string_value(json_object_get(root, "machine"));
    const json_t *result = json_object_get(root, "result");
    if (!was || !where)
        status = oct_fail(err, OCT_INVALID,
                          "%s: expected a record of octet compare, with inputs and machine; move "
                          "it away to begin anew",
                          path);
    record->begun = !status && strcmp(was, inputs) == 0;
    record->elsewhere = record->begun && strcmp(where, machine) != 0;
    if (record->begun && result)
        status = read_result(result, path, record, err);
    json_decref(root);
    return status;
}

oct_status oct_run_record_read(const char *folder, const char *inputs, const char *machine,
                               oct_run_record *record, oct_error *err) {
    char *path = oct_path_join(folder, "run.json");
    *record = (oct_run_record){0};
    if (!path)
        return oct_fail_memory(err);
    oct_status status =
        oct_path_exists(path) ? read_record(path, inputs, machine, record, err) : OCT_OK;
    oct_free(path);
    return status;
}

static void put_real(oct_strbuf *b, const char *name, double value) {
    oct_strbuf_printf(b, ",\n  \"%s\": ", name);
    oct_json_put_real(b, value);
}

oct_status oct_run_record_write(const char *folder, const char *inputs, const char *machine,
                                const oct_run_result *result, oct_error *err) {
    oct_strbuf b = {0};
    char *path = oct_path_join(folder, "run.json");
    oct_strbuf_puts(&b, "{\n \"inputs\": ");
    oct_json_put_string(&b, inputs);
    oct_strbuf_puts(&b, ",\n \"machine\": ");
    oct_json_put_string(&b, machine);
    if (result) {
        oct_strbuf_printf(&b, ",\n \"result\": {\n  \"steps\": %" PRId64 ",\n", result->steps);
        oct_strbuf_printf(&b, "  \"validation_tokens\": %" PRId64, result->validation_tokens);
        put_real(&b, "validation_loss", result->validation_loss);
        put_real(&b, "unigram_entropy", result->unigram_entropy);
        put_real(&b, "peak_bytes", result->peak_bytes);
        oct_strbuf_puts(&b, "\n }");
    }
    oct_strbuf_puts(&b, "\n}\n");
    oct_status status =
        !path || b.failed ? oct_fail_memory(err) : oct_file_write(path, b.text, b.length, err);
    oct_free(path);
    oct_strbuf_free(&b);
    return status;
}
