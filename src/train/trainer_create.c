/* The start of a run, and its end: see trainer.h. */
#include "train/run_stats.h"
#include "train/trainer.h"

#include <inttypes.h>
#include <math.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/count.h"
#include "base/fs.h"
#include "base/log.h"
#include "job/rules_record.h"
#include "job/setup.h"
#include "quant/rules.h"
#include "train/last_save.h"
#include "train/trainer_state.h"

#define MAX_CONFIG_BYTES ((size_t)16 << 20)

static oct_status plan_batches(oct_trainer *t, oct_error *err) {
    const oct_job *job = t->job;
    t->B = job->training.local_batch_size;
    t->S = job->training.seq_len;
    oct_status status = oct_ranks_micro_batches(job, t->ranks.n_ranks, &t->n_micro, err);
    if (status)
        return status;
    static const char *const keys[] = {"training.seq_len", "training.local_batch_size",
                                       "training.global_batch_size"};
    int64_t n = 0;
    if (!oct_mul_i64(t->n_micro, t->B, &n) || !oct_mul_i64(n, t->S, &n) || n > INT32_MAX)
        return oct_fail(
            err, OCT_INVALID,
            "%s: a step of %" PRId64 " x %" PRId64 " sequences of %" PRId64 " tokens is too large",
            oct_job_at(job, oct_job_blame(job, keys, OCT_COUNT(keys))), t->n_micro, t->B, t->S);
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
    oct_append_grouped(&n, oct_model_n_parameters(t->parts.model));
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
    if (status)
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
                        oct_job_at(job, oct_job_blame(job, batch, OCT_COUNT(batch))),
                        activations / 0x1p30, oct_machine_memory_bytes() / 0x1p30);
    return oct_fail(err, OCT_INVALID,
                    "%s: too large to train here: parameters, gradients and "
                    "optimizer need %.1f GiB, a step %.1f GiB or more; this machine has %.1f GiB",
                    oct_job_at(job, oct_job_blame(job, size, OCT_COUNT(size))), needed / 0x1p30,
                    activations / 0x1p30, oct_machine_memory_bytes() / 0x1p30);
}

static oct_status create_model(oct_trainer *t, oct_error *err) {
    const oct_job *job = t->job;
    oct_model_args args;
    oct_status status = oct_setup_model_args(job, &args, err);
    if (!status)
        status = oct_ranks_check_experts(job, &args, err);
    if (!status)
        status = check_memory(t, &args, err);
    if (!status)
        status = oct_job_build(job, &args,
                               t->ranks.n_ranks > 1 ? OCT_PARAMS_SHAPES_ONLY : OCT_PARAMS_ALLOCATED,
                               &t->parts, err);
    if (status)
        return status;
    log_size(t);
    status = oct_job_equip(job, &t->parts, err);
    if (status)
        return status;
    oct_conversion_warn(t->parts.conversion);
    oct_ranks_log_framework(job, t->ranks.n_ranks);
    return oct_ranks_shard(&t->ranks, job, t->parts.model, oct_conversion_plan(t->parts.conversion),
                           t->parts.step, err);
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
    if (!status)
        status = claim_checkpoints(t, err);
    if (status)
        return status;
    size_t n_bytes;
    return job->path && *job->path
               ? oct_file_read(job->path, MAX_CONFIG_BYTES, &t->config_text, &n_bytes, err)
               : OCT_OK;
}

/* Whether documents that share a window see each other. */
static oct_status setup_documents(const oct_trainer *t, oct_error *err) {
    static const char *const keys[] = {"model.args.attn_mask_type", "model.flavor"};
    bool block = oct_model_get_args(t->parts.model)->attn_mask_type == OCT_ATTN_BLOCK_CAUSAL;
    oct_error cause = {0};
    if (oct_setup_documents(t->tokenizer, t->parts.model, &cause) != OCT_OK)
        return oct_setup_fail_at(t->job, oct_job_blame(t->job, keys, OCT_COUNT(keys)), &cause, err);
    if (t->ranks.rank > 0)
        return OCT_OK;
    if (block)
        oct_log_info("Attention stays inside its document: attn_mask_type block_causal; token "
                     "%d ends a document",
                     (int)oct_model_document_end(t->parts.model));
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
    if (!status)
        status = oct_portable_put_words(oct_model_get_args(t->parts.model), origin, "float32",
                                        &t->files, err);
    oct_free(origin);
    return status;
}

static oct_status open_data(oct_trainer *t, oct_error *err) {
    int64_t vocab_size = oct_model_get_args(t->parts.model)->vocab_size;
    char *cache = NULL;
    oct_status status = oct_setup_tokenizer(t->job, vocab_size, &t->tokenizer, err);
    if (!status && t->ranks.rank == 0)
        status = read_files(t, err);
    if (status)
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
    oct_param *const *params = oct_model_params(t->parts.model, &n);
    t->schedule = oct_schedule_create(job);
    t->scratch = oct_arena_create();
    if (!t->scratch || oct_model_enable_training(t->parts.model) != OCT_OK ||
        oct_optimizer_create(params, n, &adam, &t->optimizer) != OCT_OK)
        return oct_fail_memory(err);
    return OCT_OK;
}

/* What a run keeps from step to step: the first process's share, which is the largest. */
static void log_memory(const oct_trainer *t) {
    int64_t n, parameters = 0, gradients = 0;
    oct_param *const *params = oct_model_params(t->parts.model, &n);
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
    oct_status status =
        oct_ranks_plan_wire(t->job, t->parts.model, oct_conversion_plan(t->parts.conversion),
                            t->ranks.n_ranks, &wire, err);
    if (!status && !isnan(wire.converted_ratio))
        oct_log_info("Gathers of converted weights are %.4f of bf16's bytes, those of all weights "
                     "%.4f",
                     wire.converted_ratio, wire.whole_ratio);
    return status;
}

static oct_status prepare(oct_trainer *t, oct_error *err) {
    oct_status status = oct_trainer_find_start(t, err);
    if (!status && t->start)
        status = oct_rules_adopt(&t->own, t->start, err);
    if (!status)
        status = plan_batches(t, err);
    if (!status)
        status = create_model(t, err);
    return !status ? create_batches(t, err) : status;
}

static oct_status create_stats(oct_trainer *t, oct_error *err) {
    const oct_plan *plan = oct_conversion_plan(t->parts.conversion);
    if (t->job->quantize.stats_freq == 0)
        return OCT_OK;
    if (t->ranks.n_ranks > 1)
        return oct_fail(err, OCT_INVALID,
                        "%s: statistics are taken by one process alone; got %d processes",
                        oct_job_at(t->job, "quantize.stats_freq"), t->ranks.n_ranks);
    if (oct_run_stats_create(plan, t->parts.model, &t->stats))
        return oct_fail_memory(err);
    if (oct_run_stats_is_empty(t->stats))
        oct_log_warning(
            "%s: nothing is in 8 bits and there are no experts: no statistics are taken",
            oct_job_at(t->job, "quantize.stats_freq"));
    return OCT_OK;
}

static oct_status fill(oct_trainer *t, oct_error *err) {
    oct_status status = create_optimizer(t, err);
    if (!status)
        status = create_stats(t, err);
    if (!status)
        status = oct_trainer_resume(t, err);
    if (!status && t->steps_done == 0)
        status = oct_setup_parameters(t->job, t->seed, t->parts.model, err);
    if (!status)
        log_memory(t);
    return !status ? log_gathers(t, err) : status;
}

/* The first rank's part: what may refuse comes before what moves. */
static oct_status leave_behind(oct_trainer *t, oct_error *err) {
    oct_status status = t->ranks.rank == 0 ? oct_trainer_check_last_model(t, err) : OCT_OK;
    if (!status)
        status = oct_trainer_leave_behind(t, err);
    return !status && t->ranks.rank == 0 ? oct_trainer_check_last_name(t, err) : status;
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
    if (!status) /* before any rank looks for a checkpoint that another run may remove */
        status = oct_ranks_agree(&t->ranks, open_folder(t, err), err);
    if (!status)
        status = oct_ranks_agree(&t->ranks, prepare(t, err), err);
    if (!status) /* before memory is filled: data is where most mistakes are */
        status = oct_ranks_agree(&t->ranks, create_data(t, err), err);
    if (!status)
        status = oct_ranks_check_inputs(t->ranks.world, job, t->parts.model, t->train,
                                        t->validation, err);
    if (!status)
        status = oct_ranks_agree(&t->ranks, fill(t, err), err);
    if (!status)
        status = oct_ranks_agree(&t->ranks, leave_behind(t, err), err);
    if (!status)
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
    oct_run_stats_destroy(t->stats);
    oct_optimizer_destroy(t->optimizer);
    oct_ranks_close(&t->ranks);
    oct_job_parts_free(&t->parts);
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
