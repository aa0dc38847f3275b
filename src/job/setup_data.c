/* The data of a job, and what makes tokens of it: see setup.h. */
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "job/setup.h"
#include "text/documents.h"

/* Paths of a job are relative to where the program was started, as in torchtitan. Whether `path`
 * would be there in the job file's own folder, which goes to *folder (oct_free). */
static bool is_beside_job(const oct_job *job, const char *path, char **folder) {
    const char *slash = job->path ? strrchr(job->path, '/') : NULL;
    *folder = slash ? oct_strdup(job->path) : NULL;
    if (!*folder)
        return false;
    (*folder)[slash - job->path + (slash == job->path)] = '\0';
    char *beside = oct_path_join(*folder, path);
    bool is_there = beside && oct_path_exists(beside);
    oct_free(beside);
    return is_there;
}

static bool is_of_examples(const char *path) {
    return strncmp(path, "data/", 5) == 0 || strncmp(path, "./data/", 7) == 0;
}

/* What the key names isn't there; where it may be, and where it was looked for. */
static oct_status fail_missing(const oct_job *job, const char *key, const char *path,
                               const char *expected, oct_error *err) {
    char here[PATH_MAX];
    char *folder = NULL;
    oct_strbuf hint = {0};
    if (path[0] != '/' && is_beside_job(job, path, &folder))
        oct_strbuf_printf(&hint,
                          "; it's there in %s, the job's folder, but paths are relative to where "
                          "octet is started",
                          folder);
    else if (is_of_examples(path))
        oct_strbuf_puts(&hint, "; `make data` makes data/kjv.txt and data/tokenizer.json, which "
                               "the examples use");
    bool relative = path[0] != '/' && getcwd(here, sizeof here);
    oct_status status = oct_fail(err, OCT_INVALID, "%s: expected %s; '%s' doesn't exist%s%s%s",
                                 oct_job_at(job, key), expected, path, relative ? " in " : "",
                                 relative ? here : "", hint.text ? hint.text : "");
    oct_strbuf_free(&hint);
    oct_free(folder);
    return status;
}

const char *oct_setup_tokenizer_path(const oct_job *job) {
    return job->model.tokenizer_path ? job->model.tokenizer_path : job->model.hf_assets_path;
}

oct_status oct_setup_tokenizer(const oct_job *job, int64_t vocab_size, oct_tokenizer **tokenizer,
                               oct_error *err) {
    const char *key = job->model.tokenizer_path ? "model.tokenizer_path" : "model.hf_assets_path";
    const char *path = oct_setup_tokenizer_path(job);
    oct_error cause = {0};
    *tokenizer = NULL;
    if (!oct_path_exists(path)) {
        if (!oct_job_is_set(job, key))
            return OCT_OK;
        return fail_missing(job, key, path, "a tokenizer.json or its folder", err);
    }
    if (oct_tokenizer_load(path, tokenizer, &cause) != OCT_OK)
        return oct_setup_fail_at(job, key, &cause, err);
    if (oct_tokenizer_vocab_size(*tokenizer) <= vocab_size)
        return OCT_OK;
    oct_status status = oct_fail(
        err, OCT_INVALID,
        "%s: the tokenizer's ids reach %" PRId64 ", but the model's vocabulary has %" PRId64
        "; expected a flavor or model.args.vocab_size that holds them",
        oct_job_at(job, key), oct_tokenizer_vocab_size(*tokenizer) - 1, vocab_size);
    oct_tokenizer_free(*tokenizer);
    *tokenizer = NULL;
    return status;
}

oct_status oct_setup_documents(const oct_tokenizer *tokenizer, oct_model *model, oct_error *err) {
    if (oct_model_get_args(model)->attn_mask_type != OCT_ATTN_BLOCK_CAUSAL)
        return OCT_OK;
    int32_t end = tokenizer ? oct_tokenizer_eos(tokenizer) : -1;
    if (end < 0)
        return oct_fail(err, OCT_INVALID,
                        "attention stays inside documents (attn_mask_type block_causal), which end "
                        "with the tokenizer's end token; got %s; model.args.attn_mask_type = "
                        "\"causal\" does without",
                        tokenizer ? "a tokenizer without one" : "no tokenizer");
    oct_model_set_document_end(model, end);
    return OCT_OK;
}

static oct_status check_dataset(const oct_job *job, const char *key, const char *path,
                                oct_error *err) {
    if (oct_path_exists(path))
        return OCT_OK;
    return fail_missing(job, key, path, "a text, JSONL or packed file or a folder of them", err);
}

/* A text without a tokenizer: the key, and the command that makes one which the model can take. */
static oct_status fail_no_tokenizer(const oct_job *job, const char *path, int64_t vocab_size,
                                    oct_error *err) {
    enum { LEAST = 257, MOST = 1 << 20 }; /* what octet tokenizer train takes */
    oct_strbuf command = {0};
    oct_strbuf_puts(&command, "octet tokenizer train ");
    oct_strbuf_put_shell_word(&command, path);
    oct_strbuf_printf(&command, " --vocab-size %" PRId64 " --output tokenizer",
                      oct_min_i64(oct_max_i64(vocab_size, LEAST), MOST));
    oct_status status =
        command.failed
            ? oct_fail_memory(err)
            : oct_fail(err, OCT_INVALID,
                       "%s: model.tokenizer_path: missing; the text %s needs a tokenizer; `%s` "
                       "makes one for --model.tokenizer_path=tokenizer",
                       job->path && *job->path ? job->path : "default", path, command.text);
    oct_strbuf_free(&command);
    return status;
}

/* Whether what is at `path` is made of texts, which have to be tokenized. */
static bool holds_text(const char *path) {
    oct_file_list list = {0};
    bool holds = oct_file_list_add(&list, path, OCT_READ_BY_NAME, NULL) == OCT_OK &&
                 oct_file_list_first_text(&list);
    oct_file_list_free(&list);
    return holds;
}

static oct_status open_dataset(const oct_job *job, const char *key, const char *path,
                               const oct_setup_data *setup, oct_dataset_options *options,
                               oct_dataset **dataset, oct_error *err) {
    oct_error cause = {0};
    options->vocab_size = setup->vocab_size;
    options->verify = OCT_VERIFY_CHECKSUM;
    options->cache_folder = setup->cache_folder;
    options->progress = setup->progress;
    options->progress_user = setup->progress_user;
    if (!setup->tokenizer && holds_text(path))
        return fail_no_tokenizer(job, path, setup->vocab_size, err);
    if (oct_dataset_open(path, setup->tokenizer, options, dataset, &cause) != OCT_OK)
        return oct_setup_fail_at(job, key, &cause, err);
    return OCT_OK;
}

int64_t oct_setup_validation_sequences(const oct_job *job, const oct_dataset *validation) {
    int64_t n = oct_dataset_n_sequences(validation), wanted;
    if (job->validation.steps < 0 ||
        !oct_mul_i64(job->validation.steps, job->validation.local_batch_size, &wanted))
        return n;
    return oct_min_i64(n, wanted);
}

/* How much of the training text validation takes when it has no path of its own: a function of the
 * job alone, since training sees the rest. */
static void hold_out(const oct_job *job, oct_dataset_options *options) {
    int64_t per_step, tokens;
    options->held_out_fraction = 0.05;
    if (job->validation.steps > 0 &&
        oct_mul_i64(job->validation.local_batch_size, job->validation.seq_len, &per_step) &&
        oct_mul_i64(per_step, job->validation.steps, &tokens) && tokens < INT64_MAX)
        options->held_out_tokens = tokens + 1; /* n windows of S tokens have n * S + 1 */
}

bool oct_setup_holds_out(const oct_job *job) {
    return job->validation.enable && job->training.dataset_path && !job->validation.dataset_path;
}

bool oct_setup_validates_on_seen(const oct_job *job) {
    const char *path = job->training.dataset_path, *own = job->validation.dataset_path;
    struct stat trained, validated;
    if (!path || !own)
        return false;
    return strcmp(own, path) == 0 ||
           (stat(path, &trained) == 0 && stat(own, &validated) == 0 &&
            trained.st_dev == validated.st_dev && trained.st_ino == validated.st_ino);
}

oct_status oct_setup_validation(const oct_job *job, const oct_setup_data *setup, int64_t seq_len,
                                oct_dataset **validation, oct_error *err) {
    const char *own = job->validation.dataset_path;
    oct_dataset_options options = {.seq_len = seq_len, .part = OCT_DATASET_WHOLE};
    if (oct_setup_holds_out(job)) {
        options.part = OCT_DATASET_HELD_OUT;
        hold_out(job, &options);
    }
    const char *key = own ? "validation.dataset_path" : "training.dataset_path";
    const char *path = own ? own : job->training.dataset_path;
    oct_status status = check_dataset(job, key, path, err);
    return status ? status : open_dataset(job, key, path, setup, &options, validation, err);
}

oct_status oct_setup_datasets(const oct_job *job, const oct_setup_data *setup, oct_dataset **train,
                              oct_dataset **validation, oct_error *err) {
    const char *path = job->training.dataset_path;
    const char *own = job->validation.dataset_path;
    oct_dataset_options options = {.seq_len = job->training.seq_len, .part = OCT_DATASET_WHOLE};
    *train = *validation = NULL;
    if (!path)
        return oct_fail(err, OCT_INVALID,
                        "%s: training.dataset_path: missing; expected a text, JSONL or packed file "
                        "or a folder of them; dataset '%s' is not downloaded",
                        job->path ? job->path : "default", job->training.dataset);
    /* Both before either is tokenized. */
    oct_status status = check_dataset(job, "training.dataset_path", path, err);
    if (!status && job->validation.enable && own)
        status = check_dataset(job, "validation.dataset_path", own, err);
    if (status)
        return status;
    if (oct_setup_holds_out(job)) {
        options.part = OCT_DATASET_TRAIN;
        hold_out(job, &options);
    }
    if (job->validation.enable && oct_setup_validates_on_seen(job))
        oct_log_info("%s: validation is on text that training sees, %s",
                     oct_job_at(job, "validation.dataset_path"), own);
    status = open_dataset(job, "training.dataset_path", path, setup, &options, train, err);
    if (status || !job->validation.enable)
        return status;
    status = oct_setup_validation(job, setup, job->validation.seq_len, validation, err);
    if (status) {
        oct_dataset_close(*train);
        *train = NULL;
    }
    return status;
}
