/* A trained model opened for evaluation and generation: see inference.h. */
#include "infer/inference.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/fs.h"
#include "base/rng.h"
#include "base/strbuf.h"
#include "data/dataset.h"
#include "infer/strided.h"
#include "infer/validate.h"
#include "job/build.h"
#include "job/setup.h"

/* ---- opening ---- */

/* The amaxes that delayed recipes scale by, as the last step of the training left them: without
 * them the scales were others. Weights alone, or another recipe's, have none. */
static oct_status read_histories(const oct_inference *inference, const oct_checkpoint *from,
                                 oct_error *err) {
    const oct_plan *plan = oct_conversion_plan(inference->conversion);
    oct_status status = OCT_OK;
    for (int64_t i = 0; from && i < plan->n_rows && !status; i++) {
        oct_tensor history = oct_plan_row_history(&plan->rows[i]);
        oct_strbuf name = {0};
        if (!history.data)
            continue;
        oct_strbuf_printf(&name, "%s.amax_history", plan->rows[i].module->name);
        if (name.failed)
            status = oct_fail_memory(err);
        else if (oct_checkpoint_tensor_find(from, OCT_CHECKPOINT_OPTIMIZER, name.text))
            status = oct_checkpoint_copy(from, OCT_CHECKPOINT_OPTIMIZER, name.text, &history, err);
        oct_strbuf_free(&name);
    }
    return status;
}

static oct_status create_model(oct_inference *inference, const oct_model_source *from,
                               int64_t max_len, oct_error *err) {
    const oct_job *job = &from->job;
    oct_job_parts parts = {0}; /* owned by the inference, whatever the status */
    oct_model_args args = from->args;
    args.max_seq_len = oct_max_i64(args.max_seq_len, max_len);
    oct_status status = oct_model_args_resolve(&args, err);
    if (!status)
        status = oct_job_build(job, &args, OCT_PARAMS_ALLOCATED, &parts, err);
    if (!status)
        status = oct_model_source_read(from, parts.model, err);
    if (!status)
        status = oct_job_equip(job, &parts, err);
    inference->model = parts.model;
    inference->conversion = parts.conversion;
    inference->weights = parts.weights;
    inference->step = parts.step;
    return status ? status : read_histories(inference, from->checkpoint, err);
}

/* The checkpoint's own copy, which moves with it; older ones have an absolute path instead. */
static oct_status find_tokenizer(const oct_checkpoint *from, const json_t *state, char **path,
                                 oct_error *err) {
    const char *name = json_string_value(json_object_get(state, "tokenizer"));
    if (!name || (*name != '/' && !oct_checkpoint_has_file(from, name)))
        return OCT_OK;
    *path = oct_path_join(oct_checkpoint_path(from), name);
    return *path ? OCT_OK : oct_fail_memory(err);
}

static oct_status load_tokenizer(oct_inference *inference, const char *path, oct_error *err) {
    if (!path)
        return oct_fail(err, OCT_INVALID,
                        "the model was trained on packed tokens, without a "
                        "tokenizer; name it with --tokenizer");
    oct_status status = oct_tokenizer_load(path, &inference->tokenizer, err);
    int64_t vocab_size = oct_model_get_args(inference->model)->vocab_size;
    if (!status && oct_tokenizer_vocab_size(inference->tokenizer) > vocab_size)
        status = oct_fail(err, OCT_INVALID,
                          "%s: the tokenizer's ids reach %" PRId64
                          ", but the model's vocabulary has %" PRId64,
                          path, oct_tokenizer_vocab_size(inference->tokenizer) - 1, vocab_size);
    if (!status)
        status = oct_setup_documents(inference->tokenizer, inference->model, err);
    return status;
}

static oct_status open_tokenizer(oct_inference *inference, const json_t *state, const char *path,
                                 oct_error *err) {
    const oct_model_source *from = inference->source;
    char *own = NULL;
    oct_status status = OCT_OK;
    if (!path && !from->checkpoint)
        path = from->path;
    if (!path)
        status = find_tokenizer(from->checkpoint, state, &own, err);
    if (!status)
        status = load_tokenizer(inference, path ? path : own, err);
    oct_free(own);
    return status;
}

/* The tokens that a folder says a text ends with, beside the tokenizer's. */
static oct_status read_ends(oct_inference *inference, oct_error *err) {
    const oct_model_source *from = inference->source;
    if (from->checkpoint)
        return OCT_OK;
    return oct_hf_end_tokens(from->path, &from->hf, inference->ends, &inference->n_ends, err);
}

/* What a checkpoint tells of its training. */
static void read_state(oct_inference *inference, const json_t *state) {
    const json_t *data_tokens = json_object_get(state, "data_tokens");
    inference->n_trained = json_is_integer(data_tokens) ? json_integer_value(data_tokens) : -1;
    const char *hash = json_string_value(json_object_get(state, "data_hash"));
    snprintf(inference->data_hash, sizeof inference->data_hash, "%s", hash ? hash : "");
    inference->steps_done = oct_checkpoint_step(inference->source->checkpoint);
}

oct_status oct_inference_open(const char *path, const oct_inference_options *options,
                              oct_inference **out, oct_error *err) {
    json_t *state = NULL;
    oct_inference *inference = oct_calloc_array(1, sizeof *inference);
    const oct_model_use use = {.recipe = options->recipe};
    *out = NULL;
    if (!inference)
        return oct_fail_memory(err);
    oct_status status = oct_model_source_open(path, &use, &inference->source, err);
    const oct_model_source *from = inference->source;
    inference->n_trained = -1;
    if (!status && from->checkpoint) {
        state = json_loads(oct_checkpoint_state(from->checkpoint), 0, NULL);
        read_state(inference, state);
    }
    if (!status)
        status = read_ends(inference, err);
    if (!status)
        status = create_model(inference, from, options->max_len, err);
    if (!status)
        status = open_tokenizer(inference, state, options->tokenizer_path, err);
    json_decref(state);
    if (!status)
        *out = inference;
    else
        oct_inference_close(inference);
    return status;
}

void oct_inference_close(oct_inference *inference) {
    if (!inference)
        return;
    oct_step_destroy(inference->step);
    oct_weights_destroy(inference->weights);
    oct_model_destroy(inference->model);
    oct_conversion_destroy(inference->conversion);
    oct_tokenizer_free(inference->tokenizer);
    oct_model_source_close(inference->source);
    oct_free(inference);
}

oct_status oct_inference_encode(const oct_inference *inference, const char *prompt,
                                oct_token_list *ids, oct_error *err) {
    const oct_tokenizer *tokenizer = inference->tokenizer;
    const int32_t *before;
    size_t n_before = oct_tokenizer_ids_before(tokenizer, &before);
    int32_t first = n_before ? before[0] : oct_tokenizer_bos(tokenizer);
    if (first < 0 && !*prompt)
        first = oct_tokenizer_eos(tokenizer);
    if (first < 0 && !*prompt)
        return oct_fail(err, OCT_INVALID,
                        "the prompt is empty, and the tokenizer has no begin or "
                        "end token to start from");
    if (first >= 0 &&
        oct_token_list_append(ids, n_before ? before : &first, n_before ? n_before : 1))
        return oct_fail_memory(err);
    return oct_tokenizer_encode(tokenizer, prompt, strlen(prompt), OCT_ADDED_TOKENS_FOUND, ids,
                                err);
}

/* ---- evaluation ---- */

/* Whether these are the tokens that training had; of an older checkpoint only their number is
 * known. */
static bool is_text_of_training(const oct_inference *inference, const oct_dataset *dataset) {
    char hash[24];
    int64_t before = oct_dataset_n_total(dataset) - oct_dataset_n_tokens(dataset);
    snprintf(hash, sizeof hash, "%016" PRIx64, oct_dataset_hash(dataset));
    return before == inference->n_trained &&
           (!inference->data_hash[0] || strcmp(hash, inference->data_hash) == 0);
}

/* The validation data of the training. */
static oct_status open_held_out(const oct_inference *inference, const oct_setup_data *setup,
                                int64_t seq_len, const char **path, oct_dataset **dataset,
                                oct_error *err) {
    const oct_job *job = &inference->source->job;
    bool at_end = oct_setup_holds_out(job);
    const char *trained = job->training.dataset_path, *own = job->validation.dataset_path;
    *path = at_end ? trained : own;
    if (job->validation.enable && oct_setup_validates_on_seen(job))
        return oct_fail(err, OCT_INVALID,
                        "%s: its training saw all of %s, which validation.dataset_path names too; "
                        "name a TEXT to evaluate on",
                        inference->source->path, trained);
    if (!*path || oct_setup_validates_on_seen(job))
        return oct_fail(err, OCT_INVALID,
                        "%s: its training held no text out (validation.enable = false); name a "
                        "TEXT to evaluate on",
                        inference->source->path);
    oct_status status = oct_setup_validation(job, setup, seq_len, dataset, err);
    if (status || !at_end)
        return status;
    if (is_text_of_training(inference, *dataset))
        return OCT_OK;
    oct_dataset_close(*dataset);
    *dataset = NULL;
    return oct_fail(err, OCT_INVALID,
                    "%s: the text or the tokenizer has changed since the training, which may have "
                    "seen what is its end now; name a TEXT to evaluate on",
                    *path);
}

static int64_t choose_seq_len(const oct_inference *inference, const oct_inference_data *data) {
    if (data->seq_len > 0)
        return data->seq_len;
    return data->path ? inference->source->job.training.seq_len
                      : inference->source->job.validation.seq_len;
}

/* A scale of a whole tensor depends on what is in the batch: what training held out is read as
 * training's validation does. */
static int64_t choose_batch_size(const oct_inference *inference, const oct_inference_data *data) {
    enum { SEQUENCES = 8 };
    if (data->batch_size > 0)
        return data->batch_size;
    return data->path ? SEQUENCES : inference->source->job.validation.local_batch_size;
}

static oct_status evaluate_strided(oct_inference *inference, const oct_inference_data *data,
                                   oct_loss_sum *total, oct_error *err) {
    oct_dataset *dataset = NULL;
    const oct_dataset_options pairs = {.seq_len = 1, /* every token is some window's first */
                                       .vocab_size =
                                           oct_model_get_args(inference->model)->vocab_size,
                                       .part = OCT_DATASET_WHOLE,
                                       .progress = data->progress,
                                       .progress_user = data->progress_user};
    oct_status status = oct_dataset_open(data->path, inference->tokenizer, &pairs, &dataset, err);
    if (status)
        return status;
    int64_t n = oct_dataset_n_sequences(dataset);
    const oct_strided strided = {.model = inference->model,
                                 .step = inference->step,
                                 .pairs = dataset,
                                 .n = data->max_tokens > 0 ? oct_min_i64(n, data->max_tokens) : n,
                                 .window = data->window,
                                 .stride = data->stride,
                                 .batch_size = choose_batch_size(inference, data),
                                 .progress = data->progress,
                                 .progress_user = data->progress_user};
    status = oct_evaluate_strided(&strided, total, err);
    oct_dataset_close(dataset);
    return status;
}

oct_status oct_inference_evaluate(oct_inference *inference, const oct_inference_data *data,
                                  const char **path, oct_loss_sum *total, oct_error *err) {
    oct_dataset *dataset = NULL;
    int64_t seq_len = choose_seq_len(inference, data);
    const oct_setup_data setup = {.tokenizer = inference->tokenizer,
                                  .vocab_size = oct_model_get_args(inference->model)->vocab_size,
                                  .progress = data->progress,
                                  .progress_user = data->progress_user};
    const oct_dataset_options whole = {.seq_len = seq_len,
                                       .vocab_size = setup.vocab_size,
                                       .part = OCT_DATASET_WHOLE,
                                       .progress = data->progress,
                                       .progress_user = data->progress_user};
    *path = data->path;
    if (data->window > 0)
        return evaluate_strided(inference, data, total, err);
    if (data->max_tokens > 0 && data->max_tokens < seq_len)
        return oct_fail(err, OCT_INVALID,
                        "--limit: expected the %" PRId64
                        " tokens of a sequence (--seq-len) or more; got %" PRId64,
                        seq_len, data->max_tokens);
    oct_status status =
        data->path ? oct_dataset_open(data->path, inference->tokenizer, &whole, &dataset, err)
                   : open_held_out(inference, &setup, seq_len, path, &dataset, err);
    if (status)
        return status;
    int64_t n = oct_dataset_n_sequences(dataset);
    const oct_evaluation evaluation = {
        .model = inference->model,
        .step = inference->step,
        .dataset = dataset,
        .batch_size = choose_batch_size(inference, data),
        .n_sequences = data->max_tokens > 0 ? oct_min_i64(n, data->max_tokens / seq_len) : n,
        .progress = data->progress,
        .progress_user = data->progress_user};
    status = oct_evaluate(&evaluation, total, err);
    oct_dataset_close(dataset);
    return status;
}
