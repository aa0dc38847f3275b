/* One training step, and validation: see trainer.h. trainer_create.c begins a run, loop.c runs it.
 */
#include "train/trainer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "infer/validate.h"
#include "job/setup.h"
#include "train/clock.h"
#include "train/run_stats.h"
#include "train/trainer_state.h"

oct_model *oct_trainer_model(oct_trainer *t) {
    return t->parts.model;
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

/* This rank's sequences of the step to come. *n_valid: labels that count, of this rank. */
static oct_status read_step(oct_trainer *t, int64_t *n_valid, oct_error *err) {
    *n_valid = 0;
    const int64_t n = t->n_micro * t->B;
    for (int64_t i = 0; i < n; i++) {
        const int64_t place = t->options.reverse_sequences ? n - 1 - i : i;
        int64_t position =
            oct_dataset_rank_position(t->n_consumed, i, t->B, t->ranks.rank, t->ranks.n_ranks);
        int64_t index = oct_dataset_shuffled_index(t->train, t->seed, position);
        oct_status status = oct_dataset_sequence(t->train, index, t->window, err);
        if (status)
            return status;
        memcpy(t->tokens + place * t->S, t->window, (size_t)t->S * sizeof *t->tokens);
        memcpy(t->targets + place * t->S, t->window + 1, (size_t)t->S * sizeof *t->targets);
        for (int64_t s = 1; s <= t->S; s++)
            *n_valid += t->window[s] >= 0;
    }
    return OCT_OK;
}

/* Whether the step to come takes statistics: of its first micro-batch. */
static bool stats_due(const oct_trainer *t) {
    const int64_t step = t->steps_done + 1;
    return t->stats && (step == 1 || step % t->job->quantize.stats_freq == 0);
}

/* Gradients of all micro-batches of the mean loss over n_valid tokens (of all ranks). */
static oct_status accumulate(oct_trainer *t, int64_t n_valid, oct_loss_sum *total, oct_error *err) {
    float grad_scale = (float)(1.0 / (double)n_valid);
    *total = (oct_loss_sum){0};
    oct_optimizer_clear_gradients(t->optimizer);
    if (stats_due(t))
        oct_run_stats_begin(t->stats);
    for (int64_t i = 0; i < t->n_micro; i++) {
        int64_t at = i * t->B * t->S;
        double loss = 0;
        int64_t count = 0;
        t->parts.step->observer = i == 0 && stats_due(t) ? oct_run_stats_observer(t->stats) : NULL;
        oct_status status =
            oct_model_train(t->parts.model, t->parts.step, t->B, t->S, t->tokens + at,
                            t->targets + at, grad_scale, &loss, &count);
        if (status == OCT_NO_MEMORY)
            return oct_fail_memory(err);
        if (status)
            return oct_fail(err, status, "step %" PRId64 ": the model refused the batch",
                            t->steps_done + 1);
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
        used += snprintf(text + used, size - (size_t)used, "%s%" PRId64 "%s", d ? ", " : "", at[d],
                         d == param->n_dims - 1 ? "]" : "");
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
    if (status)
        return oct_fail(err, status, "the gradients can't be summed over processes");
    if (oct_optimizer_gradient_norm(t->optimizer, &norm, t->scratch) != OCT_OK)
        return oct_fail_memory(err);
    double squares = norm * norm;
    status = oct_ranks_sum_shards(&t->ranks, &squares, err);
    if (!status)
        status = oct_ranks_sum(&t->ranks, sums, 2, err);
    result->grad_norm = t->ranks.n_ranks > 1 ? sqrt(squares) : norm;
    const oct_loss_sum total = {.loss = sums[0], .count = (int64_t)sums[1]};
    result->loss = oct_loss_sum_mean(&total);
    return status;
}

/* The optimizer moves, and the run's state with it. */
static oct_status finish_update(oct_trainer *t, oct_step_result *result, oct_error *err) {
    const oct_plan *plan = oct_conversion_plan(t->parts.conversion);
    result->lr = t->job->optimizer.lr * oct_schedule_factor(&t->schedule, t->steps_done);
    t->optimizer->adam.lr = result->lr;
    float grad_scale = oct_clip_factor(result->grad_norm, t->job->training.max_norm);
    oct_status status = oct_ranks_agree(&t->ranks, update(t, grad_scale, err), err);
    t->spoilt = status;
    if (!status)
        status = oct_ranks_reduce_amaxes(&t->ranks, plan, err);
    if (status)
        return status;
    status = oct_ranks_sum_routing(&t->ranks, t->parts.model, err);
    if (status)
        return status;
    if (stats_due(t)) {
        oct_run_stats_take_routing(t->stats);
        result->stats = t->stats;
    }
    result->expert_load = oct_model_expert_load(t->parts.model);
    oct_model_update_routing(t->parts.model);
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
    if (!status)
        status = oct_ranks_sum(&t->ranks, &all_valid, 1, err);
    result->n_tokens = (int64_t)all_valid;
    if (!status)
        status = accumulate(t, result->n_tokens, &own, err);
    if (!status)
        status = reduce_step(t, &own, result, err);
    if (status)
        return status;
    /* The same numbers on all ranks, so the same verdict. */
    status = oct_ranks_agree(&t->ranks, check_finite(t, result->loss, result->grad_norm, err), err);
    if (!status)
        status = finish_update(t, result, err);
    if (!status)
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
    const oct_evaluation evaluation = {.model = t->parts.model,
                                       .step = t->parts.step,
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
    if (status)
        return status;
    double sums[2] = {total.loss, (double)total.count};
    status = oct_ranks_sum(&t->ranks, sums, 2, err);
    if (status)
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
