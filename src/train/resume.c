/* Continuing a run from its checkpoint: see trainer_state.h. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "job/local_part.h"
#include "job/model_record.h"
#include "job/setup.h"
#include "job/variant.h"
#include "kernel/select.h"
#include "tensors/dcp.h"
#include "train/aside.h"
#include "train/trainer_state.h"

static oct_status fail_state(const oct_checkpoint *from, const char *what, oct_error *err) {
    return oct_fail(err, OCT_INVALID, "%s/state.json: %s", oct_checkpoint_path(from), what);
}

/* Counters that a step may be added to; no run comes near the bound. */
static bool is_counter(json_int_t n) {
    return n >= 0 && n <= INT64_MAX / 2;
}

static bool parse_seed(const char *text, uint64_t *seed) {
    char *end;
    errno = 0;
    *seed = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && errno == 0;
}

static void warn_of_other_data(const oct_trainer *t, const json_t *saved) {
    int64_t n = oct_dataset_n_tokens(t->train);
    if (json_is_integer(saved) && json_integer_value(saved) != n)
        oct_log_warning("resumed with other training data: it had %" JSON_INTEGER_FORMAT
                        " tokens, it has %" PRId64 " now",
                        json_integer_value(saved), n);
}

/* Older checkpoints have none. */
static void read_measured(oct_trainer *t, const json_t *measured) {
    t->has_measured = json_is_object(measured);
    for (int i = 0; i < OCT_N_MEASURED; i++) {
        const json_t *value = json_object_get(measured, oct_measured_names[i]);
        t->has_measured = t->has_measured && json_is_number(value);
        t->measured[i] = json_number_value(value);
    }
}

static oct_status read_state(oct_trainer *t, const oct_checkpoint *from, oct_error *err) {
    json_int_t steps_done, n_consumed, n_tokens_seen;
    int version, model_only;
    const char *seed;
    uint64_t saved_seed = 0;
    oct_status status = OCT_OK;
    json_t *state = json_loads(oct_checkpoint_state(from), 0, NULL);
    if (json_unpack(state, "{s:i, s:I, s:I, s:I, s:s, s:b}", "version", &version, "steps_done",
                    &steps_done, "n_consumed", &n_consumed, "n_tokens_seen", &n_tokens_seen, "seed",
                    &seed, "model_only", &model_only) != 0 ||
        version != OCT_STATE_VERSION || steps_done != oct_checkpoint_step(from) ||
        !is_counter(n_consumed) || !is_counter(n_tokens_seen) || !parse_seed(seed, &saved_seed))
        status = fail_state(from, "not the state of a training run of this version", err);
    if (!status && model_only && steps_done < t->job->training.steps)
        status = fail_state(from,
                            "the checkpoint holds the model only "
                            "(checkpoint.last_save_model_only = true), so training can't go on "
                            "from it; name an earlier one with checkpoint.load_step",
                            err);
    if (!status) {
        if (t->job->debug.seed >= 0 && saved_seed != t->seed)
            oct_log_warning("the checkpoint's seed %" PRIu64 " is kept; debug.seed = %" PRIu64
                            " has no effect on a resumed run",
                            saved_seed, t->seed);
        warn_of_other_data(t, json_object_get(state, "data_tokens"));
        t->seed = saved_seed;
        t->steps_done = steps_done;
        t->n_consumed = n_consumed;
        t->n_tokens_seen = n_tokens_seen;
        t->last_saved = steps_done;
        read_measured(t, json_object_get(state, "measured"));
    }
    json_decref(state);
    return status;
}

static oct_status read_optimizer(oct_trainer *t, const oct_checkpoint *from, oct_error *err) {
    oct_arena_mark mark = oct_arena_get_mark(t->scratch);
    oct_status status = OCT_OK;
    int64_t n;
    t->optimizer->n_steps = t->steps_done;
    if (oct_checkpoint_count(from, OCT_CHECKPOINT_OPTIMIZER) == 0)
        return OCT_OK; /* model only, and all steps are done */
    const oct_safetensors_item *items = oct_trainer_optimizer_items(t, t->scratch, &n);
    if (!items)
        status = oct_fail_memory(err);
    for (int64_t i = 0; i < n && !status; i++) {
        const oct_param *param =
            i < 2 * t->optimizer->n_params ? t->optimizer->params[i / 2] : NULL;
        float *held = (float *)items[i].data, *whole = param ? oct_local_buffer(param, held) : held;
        oct_tensor to = {.dtype = OCT_F32, .n_dims = items[i].n_dims, .data = whole};
        for (int d = 0; d < to.n_dims; d++)
            to.shape[d] = items[i].shape[d];
        status = whole
                     ? oct_checkpoint_copy(from, OCT_CHECKPOINT_OPTIMIZER, items[i].name, &to, err)
                     : oct_fail_memory(err);
        if (param && whole)
            oct_local_keep(param, held, whole);
    }
    oct_arena_release(t->scratch, mark);
    return status;
}

static void warn_of_other_kernels(const oct_trainer *t, const oct_checkpoint *from) {
    const char *set = oct_kernels_current()->name;
    const char *gemm = oct_trainer_gemm_name(t->job);
    oct_gemm_mode was;
    if (strcmp(set, oct_checkpoint_kernel_set(from)) != 0 ||
        oct_gemm_mode_parse(oct_checkpoint_gemm(from), &was, NULL) != OCT_OK ||
        strcmp(gemm, oct_gemm_mode_name(was)) != 0)
        oct_log_warning("the checkpoint was made with kernel set %s and gemm %s, this run has %s "
                        "and %s: bits may differ from a run that never stopped",
                        oct_checkpoint_kernel_set(from), oct_checkpoint_gemm(from), set, gemm);
}

/* ---- another job ---- */

/* Whether the checkpoint says by a hash what the run reads now; *same: it's the same. */
static bool knows_hash(const json_t *state, const char *name, bool there, uint64_t hash,
                       bool *same) {
    char text[32] = "";
    const json_t *saved = json_object_get(state, name);
    if (!saved)
        return false;
    if (there)
        snprintf(text, sizeof text, "%016" PRIx64, hash);
    *same = strcmp(json_is_string(saved) ? json_string_value(saved) : "", text) == 0;
    return true;
}

/* The same for the key that names a source. */
static bool knows_source(const oct_trainer *t, const json_t *state, const char *key, bool *same) {
    if (strcmp(key, "training.dataset_path") == 0)
        return knows_hash(state, "data_hash", true, oct_dataset_hash(t->train), same);
    if (strcmp(key, "validation.dataset_path") == 0)
        return knows_hash(state, "validation_hash", t->validation,
                          t->validation ? oct_dataset_hash(t->validation) : 0, same);
    return knows_hash(state, "tokenizer_hash", t->tokenizer,
                      t->tokenizer ? oct_tokenizer_hash(t->tokenizer) : 0, same);
}

/* A source whose name is the same may have other contents, and one of another name the same. */
static void warn_of_other_source(const oct_trainer *t, const json_t *state, const char *key,
                                 const char *was, const char *is) {
    bool same = false, known = knows_source(t, state, key, &same);
    bool renamed = strcmp(was, is) != 0;
    const char *name = oct_job_name(t->job, key);
    if (renamed && !(known && same))
        oct_log_warning("resumed with another %s: was %s, is %s", name, was, is);
    else if (!renamed && known && !same && strcmp(is, "none") != 0 && oct_job_is_set(t->job, key))
        oct_log_warning("resumed with other contents of %s, %s", name, is);
}

static void warn_of_other_value(const oct_trainer *t, const oct_job *before, const json_t *state,
                                const char *key, oct_job_effect effect) {
    oct_strbuf was = {0}, is = {0};
    oct_job_render_value(before, key, &was);
    oct_job_render_value(t->job, key, &is);
    if (was.failed || is.failed)
        ;
    else if (effect == OCT_EFFECT_SOURCE)
        warn_of_other_source(t, state, key, was.text, is.text);
    else if (strcmp(was.text, is.text) != 0)
        oct_log_warning("resumed with another %s: was %s, is %s", oct_job_name(t->job, key),
                        was.text, is.text);
    oct_strbuf_free(&was);
    oct_strbuf_free(&is);
}

/* Whether the experts' key holds what the linears' does: it isn't set, or a YAML plan set both. */
static bool follows_linears(const oct_job *job, const char *key, const char *linears) {
    return !oct_job_is_set(job, key) ||
           strcmp(oct_job_name(job, key), oct_job_name(job, linears)) == 0;
}

/* Whether the line of the linears' key has told it: a YAML plan has one key for both. */
static bool is_told(const oct_job *before, const oct_job *job, const char *key) {
    static const char experts[] = "quantize.grouped_mm.";
    char linears[128];
    if (job->form != OCT_JOB_MINDSPEED || strncmp(key, experts, sizeof experts - 1) != 0)
        return false;
    snprintf(linears, sizeof linears, "quantize.linear.%s", key + sizeof experts - 1);
    return follows_linears(before, key, linears) && follows_linears(job, key, linears);
}

static void warn_of_another_job(const oct_trainer *t, const oct_job *before, const json_t *state) {
    oct_job_effect effect;
    const char *key;
    for (size_t i = 0; (key = oct_job_key(t->job, i, &effect)); i++)
        if ((effect == OCT_EFFECT_SOURCE || effect == OCT_EFFECT_RESULT) &&
            !is_told(before, t->job, key))
            warn_of_other_value(t, before, state, key, effect);
}

/* Refuses another model, and tells of what else is other than it was. */
static oct_status compare_jobs(const oct_trainer *t, const oct_checkpoint *from, oct_error *err) {
    oct_job before;
    oct_model_args model;
    oct_error why = {0}; /* a job that isn't there, or that this version refuses */
    bool has_job = oct_variant_load_saved(from, NULL, &before, &why) == OCT_OK;
    json_t *state = json_loads(oct_checkpoint_state(from), 0, NULL);
    oct_status status = OCT_OK;
    if (oct_model_record_read(from, has_job ? &before : NULL, &model, &why) == OCT_OK)
        status = oct_model_record_check(t->job, oct_model_get_args(t->parts.model), &model,
                                        oct_checkpoint_path(from), OCT_RECORD_RESUME, err);
    else
        oct_log_warning("whether the model is the checkpoint's can't be told: %s", why.message);
    if (has_job && !status)
        warn_of_another_job(t, &before, state);
    else if (!status)
        oct_log_warning("whether the job is the checkpoint's can't be told: %s", why.message);
    json_decref(state);
    oct_job_free(&before);
    return status;
}

/* ---- where to go on ---- */

static bool is_model_only(const oct_checkpoint *from) {
    json_t *state = json_loads(oct_checkpoint_state(from), 0, NULL);
    bool is = json_is_true(json_object_get(state, "model_only"));
    json_decref(state);
    return is;
}

/* Weights alone, at the end of a shorter run, aren't gone on from: the newest whole one before is.
 */
static oct_status find_whole(const oct_trainer *t, const char *folder, oct_checkpoint **from,
                             oct_error *err) {
    int64_t newest = *from ? oct_checkpoint_step(*from) : -1;
    oct_status status = OCT_OK;
    while (!status && *from && is_model_only(*from) &&
           oct_checkpoint_step(*from) < t->job->training.steps) {
        int64_t step = oct_checkpoint_step(*from);
        oct_checkpoint_close(*from);
        *from = NULL;
        status = oct_checkpoint_find_before(folder, step, from, err);
    }
    if (status || newest < 0 || (*from && oct_checkpoint_step(*from) == newest))
        return status;
    if (!*from)
        return oct_fail(
            err, OCT_INVALID,
            "%s/step-%" PRId64 ": it holds the model only "
            "(checkpoint.last_save_model_only = true), so training can't go on from it, "
            "and there is no whole checkpoint before it",
            folder, newest);
    oct_log_warning("step-%" PRId64
                    " holds the model only (checkpoint.last_save_model_only = true); "
                    "going on from the newest whole checkpoint, step-%" PRId64,
                    newest, oct_checkpoint_step(*from));
    return OCT_OK;
}

/* The checkpoint of the run's own folder that the job asks for; NULL: there are none. */
static oct_status find_own(const oct_trainer *t, oct_checkpoint **from, oct_error *err) {
    int64_t step = t->job->checkpoint.load_step;
    oct_error cause = {0};
    char *folder = oct_trainer_checkpoint_folder(t);
    if (!folder)
        return oct_fail_memory(err);
    oct_status status = oct_checkpoint_find(folder, step, from, &cause);
    if (!status && step < 0)
        status = find_whole(t, folder, from, &cause);
    if (status == OCT_INVALID && step < 0) /* to save among them would hide what happened */
        oct_fail(err, status, "%s; to begin anew, delete %s or move it away", cause.message,
                 folder);
    else if (status && step < 0)
        oct_fail(err, status, "%s", cause.message);
    else if (status)
        oct_setup_fail_at(t->job, "checkpoint.load_step", &cause, err);
    oct_free(folder);
    return status;
}

oct_status oct_trainer_find_start(oct_trainer *t, oct_error *err) {
    const oct_job *job = t->job;
    oct_error cause = {0};
    if (t->options.start == OCT_START_FRESH)
        return OCT_OK;
    oct_status status = job->checkpoint.enable ? find_own(t, &t->start, err) : OCT_OK;
    t->resumed_own = !status && t->start;
    if (status || t->start || !job->checkpoint.initial_load_path ||
        job->checkpoint.initial_load_model_only || job->checkpoint.initial_load_in_hf)
        return status;
    if (oct_is_dcp_folder(job->checkpoint.initial_load_path))
        oct_fail(&cause, OCT_INVALID,
                 "of a folder of torch.distributed.checkpoint octet takes the weights alone; "
                 "expected checkpoint.initial_load_model_only = true");
    else
        oct_checkpoint_open(job->checkpoint.initial_load_path, &t->start, &cause);
    if (!t->start)
        return oct_setup_fail_at(job, "checkpoint.initial_load_path", &cause, err);
    return OCT_OK;
}

/* Tells of weights that were trained in another model. What is wrong with the checkpoint itself is
 * said where they are read. */
static oct_status compare_initial(const oct_trainer *t, oct_error *err) {
    const char *path = t->job->checkpoint.initial_load_path;
    oct_checkpoint *from = NULL;
    oct_job before;
    oct_model_args model;
    oct_status status = OCT_OK;
    if (!path || t->job->checkpoint.initial_load_in_hf ||
        oct_checkpoint_open(path, &from, NULL) != OCT_OK)
        return OCT_OK;
    bool has_job = oct_variant_load_saved(from, NULL, &before, NULL) == OCT_OK;
    if (oct_model_record_read(from, has_job ? &before : NULL, &model, NULL) == OCT_OK)
        status = oct_model_record_check(t->job, oct_model_get_args(t->parts.model), &model, path,
                                        OCT_RECORD_WEIGHTS, err);
    oct_job_free(&before);
    oct_checkpoint_close(from);
    return status;
}

oct_status oct_trainer_resume(oct_trainer *t, oct_error *err) {
    oct_checkpoint *from = t->start;
    if (!from)
        return compare_initial(t, err);
    oct_status status = compare_jobs(t, from, err);
    if (!status)
        status = read_state(t, from, err);
    if (!status)
        status = oct_setup_parameters_from_checkpoint(from, t->parts.model, err);
    if (!status)
        status = read_optimizer(t, from, err);
    if (!status) {
        warn_of_other_kernels(t, from);
        oct_log_info("Resumed from %s", oct_checkpoint_path(from));
    }
    oct_checkpoint_close(from);
    t->start = NULL;
    return status;
}

/* ---- what is left behind ---- */

oct_status oct_trainer_leave_behind(const oct_trainer *t, oct_error *err) {
    const oct_job *job = t->job;
    size_t n;
    char *aside = NULL;
    if (t->ranks.rank > 0 || !t->resumed_own || job->checkpoint.load_only ||
        t->steps_done >= job->training.steps)
        return OCT_OK;
    char *folder = oct_trainer_checkpoint_folder(t);
    oct_status status =
        folder ? oct_aside_move(job->job.dump_folder, folder, t->steps_done, &aside, &n, err)
               : oct_fail_memory(err);
    if (!status && aside)
        oct_log_warning("going back to step %" PRId64 ": %zu later checkpoint%s moved to %s",
                        t->steps_done, n, n == 1 ? " was" : "s were", aside);
    oct_free(aside);
    oct_free(folder);
    return status;
}
