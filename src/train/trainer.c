/* One training step, and what it needs: see trainer.h. */
#include "train/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/claim.h"
#include "base/fs.h"
#include "base/log.h"
#include "train/clock.h"
#include "quant/rules.h"
#include "train/last_save.h"
#include "job/rules_record.h"
#include "job/setup.h"
#include "train/trainer_state.h"
#include "infer/validate.h"

#define MAX_CONFIG_BYTES ((size_t)16 << 20)

/* ---- start ---- */

static oct_status plan_batches(oct_trainer *t, oct_error *err) {
    const oct_job *job = t->job;
    t->B = job->training.local_batch_size;
    t->S = job->training.seq_len;
    oct_status status = oct_ranks_micro_batches(job, t->ranks.n_ranks, &t->n_micro, err);
    if (status != OCT_OK)
        return status;
    static const char *const keys[] = {"training.seq_len", "training.local_batch_size",
                                       "training.global_batch_size"};
    int64_t n = 0;
    if (!oct_mul_i64(t->n_micro, t->B, &n) || !oct_mul_i64(n, t->S, &n) || n > INT32_MAX)
        return oct_fail(err, OCT_INVALID,
                        "%s: a step of %lld x %lld sequences of %lld tokens is too large",
                        oct_job_at(job, oct_job_blame(job, keys, sizeof keys / sizeof *keys)),
                        (long long)t->n_micro, (long long)t->B, (long long)t->S);
    return OCT_OK;
}

static oct_status create_batches(oct_trainer *t, oct_error *err) {
    size_t n = (size_t)(t->n_micro * t->B * t->S);
    t->window = oct_malloc_array((size_t)t->S + 1, sizeof *t->window);
    t->tokens = oct_malloc_array(n, sizeof *t->tokens);
    t->targets = oct_malloc_array(n, sizeof *t->targets);
    return t->window && t->tokens && t->targets ? OCT_OK : oct_fail_memory(err);
}

static void log_size(const oct_trainer *t) {
    oct_strbuf n = {0};
    oct_append_grouped(&n, oct_model_n_parameters(t->model));
    if (!n.failed)
        oct_log_info("Model %s %s size: %s total parameters", t->job->model.name,
                     t->job->model.flavor, n.text);
    oct_strbuf_free(&n);
}

/* What one step needs at least beside the parameters, in bytes: its tokens and targets, the stream
 * before each layer, and logits of a slice of rows with their gradient. */
static double activation_bytes(const oct_trainer *t, const oct_model_args *args) {
    double T = (double)t->B * (double)t->S;
    double logit_rows = T < 64 ? T : 64;
    double stream = oct_setup_activation(t->job) == OCT_F32 ? 4 : 2;
    return 8 * T * (double)t->n_micro + T * (double)args->dim * (double)args->n_layers * stream +
           logit_rows * (double)args->vocab_size * 4;
}

/* A model that the machine can't hold is refused before its memory is asked for: the kernel would
 * grant it and end the process later. */
static oct_status check_memory(const oct_trainer *t, const oct_model_args *args, oct_error *err) {
    static const char *const batch[] = {"training.local_batch_size", "training.seq_len"};
    static const char *const size[] = {"model.flavor", "model.args"};
    const oct_job *job = t->job;
    oct_model *shapes = NULL;
    oct_status status = oct_model_create(args, OCT_PARAMS_SHAPES_ONLY, &shapes, err);
    if (status != OCT_OK)
        return status;
    /* fp32 master, gradient and two moments; a frozen parameter has the first alone */
    double bytes_per_parameter = job->model.freeze.n > 0 ? 4 : 16;
    double needed = bytes_per_parameter * (double)oct_model_n_parameters(shapes);
    oct_model_destroy(shapes);
    if (t->ranks.comms.shard)
        needed /= oct_comm_size(t->ranks.comms.shard);
    double activations = activation_bytes(t, args);
    if (needed + activations <= oct_machine_memory_bytes())
        return OCT_OK;
    if (activations > needed)
        return oct_fail(err, OCT_INVALID,
                        "%s: too large to train here: the activations "
                        "of a step need at least %.1f GiB; this machine has %.1f GiB",
                        oct_job_at(job, oct_job_blame(job, batch, sizeof batch / sizeof *batch)),
                        activations / 0x1p30, oct_machine_memory_bytes() / 0x1p30);
    return oct_fail(err, OCT_INVALID,
                    "%s: too large to train here: parameters, gradients and "
                    "optimizer need %.1f GiB, a step %.1f GiB or more; this machine has %.1f GiB",
                    oct_job_at(job, oct_job_blame(job, size, sizeof size / sizeof *size)),
                    needed / 0x1p30, activations / 0x1p30, oct_machine_memory_bytes() / 0x1p30);
}

static oct_status create_model(oct_trainer *t, oct_error *err) {
    const oct_job *job = t->job;
    oct_model_args args;
    oct_status status = oct_setup_model_args(job, &args, err);
    if (status == OCT_OK)
        status = oct_ranks_check_experts(job, &args, err);
    if (status == OCT_OK)
        status = check_memory(t, &args, err);
    if (status == OCT_OK)
        status = oct_model_create(
            &args, t->ranks.n_ranks > 1 ? OCT_PARAMS_SHAPES_ONLY : OCT_PARAMS_ALLOCATED, &t->model,
            err);
    if (status != OCT_OK)
        return status;
    log_size(t);
    status = oct_setup_recompute(job, t->model, err);
    if (status == OCT_OK)
        status = oct_setup_frozen(job, t->model, err);
    if (status == OCT_OK)
        status = oct_conversion_create(job, t->model, &t->conversion, err);
    if (status == OCT_OK)
        status = oct_conversion_apply(t->conversion, err);
    if (status != OCT_OK)
        return status;
    oct_conversion_warn(t->conversion);
    if (oct_weights_create(&t->weights) != OCT_OK ||
        oct_step_create(t->weights, oct_setup_activation(job), &t->step) != OCT_OK)
        return oct_fail_memory(err);
    t->step->gradient = oct_rules_gradient(oct_job_rules(job), oct_setup_activation(job));
    return oct_ranks_shard(&t->ranks, job, t->model, oct_conversion_plan(t->conversion), t->step,
                           err);
}

static oct_status claim(const oct_job *job, const char *key, const char *folder, oct_claim *claimed,
                        oct_error *err) {
    oct_error cause = {0};
    oct_status status = oct_claim_take(folder, claimed, &cause);
    return status ? oct_fail(err, status, "%s: %s", oct_job_at(job, key), cause.message) : OCT_OK;
}

/* By `..`, a link or an absolute path, two runs with a dump folder each can save to one folder; so
 * it has a lock of its own, unless it is the dump folder by another name. */
static oct_status claim_checkpoints(oct_trainer *t, oct_error *err) {
    const oct_job *job = t->job;
    oct_status status = OCT_OK;
    if (!oct_job_saves(job))
        return OCT_OK;
    char *folder = oct_trainer_checkpoint_folder(t);
    if (!folder)
        return oct_fail_memory(err);
    if (!oct_claim_covers(&t->folder, folder))
        status = claim(job, "checkpoint.folder", folder, &t->checkpoint_folder, err);
    oct_free(folder);
    return status;
}

/* The folders of everything that the run writes, and a copy of the job file: what can't be written
 * or read shows before the text is tokenized, and a later edit of the file changes no checkpoint.
 */
static oct_status open_folder(oct_trainer *t, oct_error *err) {
    const oct_job *job = t->job;
    if (t->ranks.rank > 0)
        return OCT_OK;
    oct_status status = claim(job, "job.dump_folder", job->job.dump_folder, &t->folder, err);
    if (status == OCT_OK)
        status = claim_checkpoints(t, err);
    if (status != OCT_OK)
        return status;
    size_t n_bytes;
    return job->path && *job->path
               ? oct_file_read(job->path, MAX_CONFIG_BYTES, &t->config_text, &n_bytes, err)
               : OCT_OK;
}

/* Whether documents that share a window see each other. */
static oct_status setup_documents(const oct_trainer *t, oct_error *err) {
    static const char *const keys[] = {"model.args.attn_mask_type", "model.flavor"};
    bool block = oct_model_get_args(t->model)->attn_mask_type == OCT_ATTN_BLOCK_CAUSAL;
    oct_error cause = {0};
    if (oct_setup_documents(t->tokenizer, t->model, &cause) != OCT_OK)
        return oct_setup_fail_at(t->job, oct_job_blame(t->job, keys, sizeof keys / sizeof *keys),
                                 &cause, err);
    if (t->ranks.rank > 0)
        return OCT_OK;
    if (block)
        oct_log_info("Attention stays inside its document: attn_mask_type block_causal; token "
                     "%d ends a document",
                     (int)oct_model_document_end(t->model));
    else
        oct_log_info("Attention sees all of its window before it, other documents too: "
                     "attn_mask_type causal");
    return OCT_OK;
}

/* What checkpoints carry; a model that began as a Hugging Face folder's keeps its words. */
static oct_status read_files(oct_trainer *t, oct_error *err) {
    char *origin = oct_setup_hf_config_path(t->job);
    oct_status status =
        t->tokenizer ? oct_portable_read_tokenizer(oct_setup_tokenizer_path(t->job), &t->files, err)
                     : OCT_OK;
    if (status == OCT_OK)
        status =
            oct_portable_put_words(oct_model_get_args(t->model), origin, "float32", &t->files, err);
    oct_free(origin);
    return status;
}

static oct_status open_data(oct_trainer *t, oct_error *err) {
    int64_t vocab_size = oct_model_get_args(t->model)->vocab_size;
    char *cache = NULL;
    oct_status status = oct_setup_tokenizer(t->job, vocab_size, &t->tokenizer, err);
    if (status == OCT_OK && t->ranks.rank == 0)
        status = read_files(t, err);
    if (status != OCT_OK)
        return status;
    if (!t->options.cache_folder) {
        cache = oct_path_join(t->job->job.dump_folder, "cache");
        if (!cache)
            return oct_fail_memory(err);
    }
    const oct_setup_data setup = {.tokenizer = t->tokenizer,
                                  .vocab_size = vocab_size,
                                  .cache_folder = cache ? cache : t->options.cache_folder,
                                  .progress = t->options.progress,
                                  .progress_user = t->options.progress_user};
    status = oct_setup_datasets(t->job, &setup, &t->train, &t->validation, err);
    oct_free(cache);
    return status ? status : setup_documents(t, err);
}

/* The first rank tokenizes; the others then find the result in the cache. */
static oct_status create_data(oct_trainer *t, oct_error *err) {
    oct_status status = t->ranks.rank == 0 ? open_data(t, err) : OCT_OK;
    status = oct_ranks_agree(&t->ranks, status, err);
    return status || t->ranks.rank == 0 ? status : open_data(t, err);
}

static oct_status create_optimizer(oct_trainer *t, oct_error *err) {
    const oct_job *job = t->job;
    const oct_adam adam = {.lr = job->optimizer.lr,
                           .beta1 = job->optimizer.beta1,
                           .beta2 = job->optimizer.beta2,
                           .eps = job->optimizer.eps,
                           .weight_decay = job->optimizer.weight_decay,
                           .decay = job->optimizer.name == OCT_JOB_ADAMW ? OCT_DECAY_DECOUPLED
                                                                         : OCT_DECAY_L2};
    int64_t n;
    oct_param *const *params = oct_model_params(t->model, &n);
    t->schedule = oct_schedule_create(job);
    t->scratch = oct_arena_create();
    if (!t->scratch || oct_model_enable_training(t->model) != OCT_OK ||
        oct_optimizer_create(params, n, &adam, &t->optimizer) != OCT_OK)
        return oct_fail_memory(err);
    return OCT_OK;
}

/* What a run keeps from step to step: the first process's share, which is the largest. */
static void log_memory(const oct_trainer *t) {
    int64_t n, parameters = 0, gradients = 0;
    oct_param *const *params = oct_model_params(t->model, &n);
    for (int64_t i = 0; i < n; i++)
        parameters += params[i]->n_held * (int64_t)sizeof *params[i]->value;
    for (int64_t i = 0; i < t->optimizer->n_params; i++)
        gradients += t->optimizer->params[i]->n_held * (int64_t)sizeof(float);
    oct_log_info("Memory of a process in bytes: parameters %" PRId64 ", gradients %" PRId64
                 ", optimizer state %" PRId64 "; all of the heap %zu",
                 parameters, gradients, 2 * gradients, oct_alloc_live_bytes());
}

/* What `octet plan` foretells of this run's gathers; their bytes are in each step's metrics. */
static oct_status log_gathers(const oct_trainer *t, oct_error *err) {
    oct_wire wire;
    if (!t->ranks.fsdp)
        return OCT_OK;
    oct_status status = oct_ranks_plan_wire(t->job, t->model, oct_conversion_plan(t->conversion),
                                            t->ranks.n_ranks, &wire, err);
    if (status == OCT_OK && !isnan(wire.converted_ratio))
        oct_log_info("Gathers of converted weights are %.4f of bf16's bytes, those of all weights "
                     "%.4f",
                     wire.converted_ratio, wire.whole_ratio);
    return status;
}

static oct_status prepare(oct_trainer *t, oct_error *err) {
    oct_status status = oct_trainer_find_start(t, err);
    if (status == OCT_OK && t->start)
        status = oct_rules_adopt(&t->own, t->start, err);
    if (status == OCT_OK)
        status = plan_batches(t, err);
    if (status == OCT_OK)
        status = create_model(t, err);
    return status == OCT_OK ? create_batches(t, err) : status;
}

static oct_status fill(oct_trainer *t, oct_error *err) {
    oct_status status = create_optimizer(t, err);
    if (status == OCT_OK)
        status = oct_trainer_resume(t, err);
    if (status == OCT_OK && t->steps_done == 0)
        status = oct_setup_parameters(t->job, t->seed, t->model, err);
    if (status == OCT_OK)
        log_memory(t);
    return status == OCT_OK ? log_gathers(t, err) : status;
}

/* The first rank's part: what may refuse comes before what moves. */
static oct_status leave_behind(oct_trainer *t, oct_error *err) {
    oct_status status = t->ranks.rank == 0 ? oct_trainer_check_last_model(t, err) : OCT_OK;
    if (status == OCT_OK)
        status = oct_trainer_leave_behind(t, err);
    return status == OCT_OK && t->ranks.rank == 0 ? oct_trainer_check_last_name(t, err) : status;
}

oct_status oct_trainer_create(const oct_job *job, const oct_trainer_options *options,
                              oct_trainer **out, oct_error *err) {
    oct_trainer *t = oct_calloc_array(1, sizeof *t);
    oct_status status;
    *out = NULL;
    if (!t)
        return oct_fail_memory(err);
    t->own = *job;
    t->job = &t->own;
    t->options = *options;
    t->last_saved = -1;
    t->seed = job->debug.seed >= 0 ? (uint64_t)job->debug.seed : 0;
    status = oct_ranks_open(options->world, job, &t->ranks, err);
    if (status == OCT_OK) /* before any rank looks for a checkpoint that another run may remove */
        status = oct_ranks_agree(&t->ranks, open_folder(t, err), err);
    if (status == OCT_OK)
        status = oct_ranks_agree(&t->ranks, prepare(t, err), err);
    if (status == OCT_OK) /* before memory is filled: data is where most mistakes are */
        status = oct_ranks_agree(&t->ranks, create_data(t, err), err);
    if (status == OCT_OK)
        status =
            oct_ranks_check_inputs(t->ranks.world, job, t->model, t->train, t->validation, err);
    if (status == OCT_OK)
        status = oct_ranks_agree(&t->ranks, fill(t, err), err);
    if (status == OCT_OK)
        status = oct_ranks_agree(&t->ranks, leave_behind(t, err), err);
    if (status == OCT_OK)
        *out = t;
    else
        oct_trainer_destroy(t);
    return status;
}

void oct_trainer_destroy(oct_trainer *t) {
    if (!t)
        return;
    oct_checkpoint_close(t->start);
    oct_claim_release(&t->checkpoint_folder);
    oct_claim_release(&t->folder);
    oct_optimizer_destroy(t->optimizer);
    oct_ranks_close(&t->ranks);
    oct_step_destroy(t->step);
    oct_weights_destroy(t->weights);
    oct_model_destroy(t->model);
    oct_conversion_destroy(t->conversion);
    oct_arena_destroy(t->scratch);
    oct_dataset_close(t->train);
    oct_dataset_close(t->validation);
    oct_tokenizer_free(t->tokenizer);
    oct_portable_free(&t->files);
    oct_free(t->config_text);
    oct_free(t->window);
    oct_free(t->tokens);
    oct_free(t->targets);
    oct_free(t);
}

oct_model *oct_trainer_model(oct_trainer *t) {
    return t->model;
}

int64_t oct_trainer_steps_done(const oct_trainer *t) {
    return t->steps_done;
}

int oct_trainer_stop_reason(const oct_trainer *t) {
    return t->stop_reason;
}

int64_t oct_trainer_last_saved(const oct_trainer *t) {
    return t->last_saved;
}

oct_status oct_trainer_ask_to_stop(void *trainer, bool *stop, oct_error *err) {
    oct_trainer *t = trainer;
    float reason = t->options.stop ? (float)t->options.stop(t->options.stop_user) : 0;
    oct_status status = OCT_OK;
    if (t->options.stop && t->ranks.n_ranks > 1)
        status = oct_comm_max_f32(t->ranks.world, &reason, 1);
    t->stop_reason = (int)reason;
    *stop = t->stop_reason != 0;
    return status ? oct_fail(err, status, "the exchange between processes broke") : OCT_OK;
}

/* ---- a step ---- */

/* This rank's sequences of the step to come. *n_valid: labels that count, of this rank. */
static oct_status read_step(oct_trainer *t, int64_t *n_valid, oct_error *err) {
    *n_valid = 0;
    for (int64_t i = 0; i < t->n_micro * t->B; i++) {
        int64_t position =
            oct_dataset_rank_position(t->n_consumed, i, t->B, t->ranks.rank, t->ranks.n_ranks);
        int64_t index = oct_dataset_shuffled_index(t->train, t->seed, position);
        oct_status status = oct_dataset_sequence(t->train, index, t->window, err);
        if (status != OCT_OK)
            return status;
        memcpy(t->tokens + i * t->S, t->window, (size_t)t->S * sizeof *t->tokens);
        memcpy(t->targets + i * t->S, t->window + 1, (size_t)t->S * sizeof *t->targets);
        for (int64_t s = 1; s <= t->S; s++)
            *n_valid += t->window[s] >= 0;
    }
    return OCT_OK;
}

/* Gradients of all micro-batches of the mean loss over n_valid tokens (of all ranks). */
static oct_status accumulate(oct_trainer *t, int64_t n_valid, oct_loss_sum *total, oct_error *err) {
    float grad_scale = (float)(1.0 / (double)n_valid);
    *total = (oct_loss_sum){0};
    oct_optimizer_clear_gradients(t->optimizer);
    for (int64_t i = 0; i < t->n_micro; i++) {
        int64_t at = i * t->B * t->S;
        double loss = 0;
        int64_t count = 0;
        oct_status status = oct_model_train(t->model, t->step, t->B, t->S, t->tokens + at,
                                            t->targets + at, grad_scale, &loss, &count);
        if (status == OCT_NO_MEMORY)
            return oct_fail_memory(err);
        if (status != OCT_OK)
            return oct_fail(err, status, "step %lld: the model refused the batch",
                            (long long)t->steps_done + 1);
        oct_loss_sum_add(total, loss, count);
    }
    return OCT_OK;
}

static oct_status check_finite(const oct_trainer *t, double loss, double grad_norm,
                               oct_error *err) {
    if (!isfinite(loss))
        return oct_trainer_fail_number(t, t->steps_done + 1, "the loss", loss, err);
    if (!isfinite(grad_norm))
        return oct_trainer_fail_number(t, t->steps_done + 1, "the norm of the gradients", grad_norm,
                                       err);
    return OCT_OK;
}

/* "layers.0.attention.wq.weight[3, 17]" */
static void name_element(const oct_param *param, int64_t element, char *text, size_t size) {
    int64_t at[3], rest = element;
    for (int d = param->n_dims - 1; d >= 0; d--) {
        at[d] = rest % param->shape[d];
        rest /= param->shape[d];
    }
    int used = snprintf(text, size, "%s[", param->name);
    for (int d = 0; d < param->n_dims && used > 0 && (size_t)used < size; d++)
        used += snprintf(text + used, size - (size_t)used, "%s%lld%s", d ? ", " : "",
                         (long long)at[d], d == param->n_dims - 1 ? "]" : "");
}

/* An update that leaves a number of no use ends the run before anything is saved. */
static oct_status update(oct_trainer *t, float grad_scale, oct_error *err) {
    char what[512], element[256];
    const oct_adam *adam = &t->optimizer->adam;
    oct_flaw flaw;
    if (oct_optimizer_step(t->optimizer, grad_scale, &flaw) != OCT_OK)
        return oct_fail_memory(err);
    if (!flaw.param)
        return OCT_OK;
    name_element(flaw.param, flaw.element, element, sizeof element);
    snprintf(what, sizeof what, "after the update (learning rate %g, eps %g) the %s of %s",
             adam->lr, adam->eps, flaw.what, element);
    return oct_trainer_fail_number(t, t->steps_done + 1, what, (double)flaw.got, err);
}

/* Bytes that all ranks received since `before`, by kind. */
static oct_status sum_traffic(const oct_trainer *t, const int64_t *before, int64_t *traffic,
                              oct_error *err) {
    double sums[OCT_N_TRAFFIC];
    for (int i = 0; i < OCT_N_TRAFFIC; i++)
        sums[i] = (double)(oct_comm_bytes(t->ranks.world, (oct_traffic)i) - before[i]);
    oct_status status = oct_ranks_sum(&t->ranks, sums, OCT_N_TRAFFIC, err);
    for (int i = 0; i < OCT_N_TRAFFIC; i++)
        traffic[i] = (int64_t)sums[i];
    return status;
}

/* Gradients of the whole step over all ranks, their norm, and the mean loss. */
static oct_status reduce_step(oct_trainer *t, const oct_loss_sum *own, oct_step_result *result,
                              oct_error *err) {
    double sums[2] = {own->loss, (double)own->count}, norm = 0;
    oct_status status = OCT_OK;
    if (t->ranks.fsdp)
        status = oct_fsdp_finish_gradients(t->ranks.fsdp);
    if (status != OCT_OK)
        return oct_fail(err, status, "the gradients can't be summed over processes");
    if (oct_optimizer_gradient_norm(t->optimizer, &norm, t->scratch) != OCT_OK)
        return oct_fail_memory(err);
    double squares = norm * norm;
    status = oct_ranks_sum_shards(&t->ranks, &squares, err);
    if (status == OCT_OK)
        status = oct_ranks_sum(&t->ranks, sums, 2, err);
    result->grad_norm = t->ranks.n_ranks > 1 ? sqrt(squares) : norm;
    const oct_loss_sum total = {.loss = sums[0], .count = (int64_t)sums[1]};
    result->loss = oct_loss_sum_mean(&total);
    return status;
}

/* The optimizer moves, and the run's state with it. */
static oct_status finish_update(oct_trainer *t, oct_step_result *result, oct_error *err) {
    const oct_plan *plan = oct_conversion_plan(t->conversion);
    result->lr = t->job->optimizer.lr * oct_schedule_factor(&t->schedule, t->steps_done);
    t->optimizer->adam.lr = result->lr;
    float grad_scale = oct_clip_factor(result->grad_norm, t->job->training.max_norm);
    oct_status status = oct_ranks_agree(&t->ranks, update(t, grad_scale, err), err);
    t->spoilt = status != OCT_OK;
    if (status == OCT_OK)
        status = oct_ranks_reduce_amaxes(&t->ranks, plan, err);
    if (status != OCT_OK)
        return status;
    status = oct_ranks_sum_routing(&t->ranks, t->model, err);
    if (status != OCT_OK)
        return status;
    result->expert_load = oct_model_expert_load(t->model);
    oct_model_update_routing(t->model);
    oct_plan_end_step(plan);
    t->steps_done++;
    t->last_validation = (oct_validation){0};
    t->n_consumed += t->n_micro * t->B * t->ranks.n_ranks;
    t->n_tokens_seen += result->n_tokens;
    return OCT_OK;
}

oct_status oct_trainer_step(oct_trainer *t, oct_step_result *result, oct_error *err) {
    double start = oct_clock_s();
    oct_loss_sum own;
    int64_t n_valid, before[OCT_N_TRAFFIC];
    double before_s[OCT_N_TRAFFIC];
    *result = (oct_step_result){.step = t->steps_done + 1, .n_ranks = t->ranks.n_ranks};
    if (t->spoilt)
        return oct_trainer_fail_spoilt(err);
    for (int i = 0; i < OCT_N_TRAFFIC; i++) {
        before[i] = oct_comm_bytes(t->ranks.world, (oct_traffic)i);
        before_s[i] = oct_comm_seconds(t->ranks.world, (oct_traffic)i);
    }
    oct_status status = oct_ranks_agree(&t->ranks, read_step(t, &n_valid, err), err);
    result->data_s = oct_clock_s() - start;
    double all_valid = (double)n_valid;
    if (status == OCT_OK)
        status = oct_ranks_sum(&t->ranks, &all_valid, 1, err);
    result->n_tokens = (int64_t)all_valid;
    if (status == OCT_OK)
        status = accumulate(t, result->n_tokens, &own, err);
    if (status == OCT_OK)
        status = reduce_step(t, &own, result, err);
    if (status != OCT_OK)
        return status;
    /* The same numbers on all ranks, so the same verdict. */
    status = oct_ranks_agree(&t->ranks, check_finite(t, result->loss, result->grad_norm, err), err);
    if (status == OCT_OK)
        status = finish_update(t, result, err);
    if (status == OCT_OK)
        status = sum_traffic(t, before, result->traffic, err);
    for (int i = 0; i < OCT_N_TRAFFIC; i++)
        result->wire_s[i] = oct_comm_seconds(t->ranks.world, (oct_traffic)i) - before_s[i];
    result->duration_s = oct_clock_s() - start;
    return status;
}

/* ---- validation ---- */

oct_status oct_trainer_validate(oct_trainer *t, oct_validation *result, oct_error *err) {
    double start = oct_clock_s();
    oct_loss_sum total;
    if (!t->validation)
        return oct_fail(err, OCT_INVALID, "%s: expected true; got false",
                        oct_job_at(t->job, "validation.enable"));
    const oct_evaluation evaluation = {.model = t->model,
                                       .step = t->step,
                                       .dataset = t->validation,
                                       .batch_size = t->job->validation.local_batch_size,
                                       .n_sequences =
                                           oct_setup_validation_sequences(t->job, t->validation),
                                       .world = t->ranks.world,
                                       .progress = t->options.progress,
                                       .progress_user = t->options.progress_user,
                                       .ask_to_stop = oct_trainer_ask_to_stop,
                                       .ask_user = t};
    oct_status status = oct_evaluate(&evaluation, &total, err);
    if (status != OCT_OK)
        return status;
    double sums[2] = {total.loss, (double)total.count};
    status = oct_ranks_sum(&t->ranks, sums, 2, err);
    if (status != OCT_OK)
        return status;
    total = (oct_loss_sum){.loss = sums[0], .count = (int64_t)sums[1]};
    *result = (oct_validation){0};
    if (total.count == 0 && t->stop_reason)
        return OCT_OK;
    *result = (oct_validation){.loss = oct_loss_sum_mean(&total),
                               .n_tokens = total.count,
                               .duration_s = oct_clock_s() - start};
    t->last_validation = *result;
    return OCT_OK;
}

oct_status oct_trainer_last_validation(oct_trainer *t, oct_validation *result, oct_error *err) {
    if (t->last_validation.n_tokens == 0)
        return oct_trainer_validate(t, result, err);
    *result = t->last_validation;
    return OCT_OK;
}

oct_status oct_trainer_unigram_entropy(oct_trainer *t, double *nats, oct_error *err) {
    int64_t n = oct_setup_validation_sequences(t->job, t->validation) * t->job->validation.seq_len;
    return oct_dataset_unigram_entropy(t->validation, 1, n, nats, err);
}
