/* The loop over all steps: logs, validates, saves. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/fs.h"
#include "base/log.h"
#include "train/last_save.h"
#include "train/pace.h"
#include "train/trainer_state.h"

static bool validation_due(const oct_trainer *t, int64_t step) {
    if (!t->validation)
        return false;
    return step == 1 || step % t->job->validation.freq == 0 || step == t->job->training.steps;
}

static bool save_due(const oct_trainer *t, int64_t step) {
    const oct_job *job = t->job;
    if (!oct_job_saves(job))
        return false;
    return step % job->checkpoint.interval == 0 || step == job->training.steps ||
           (step == 1 && job->checkpoint.enable_first_step_checkpoint);
}

/* *validation is of 0 tokens where none was made. */
static oct_status validate_step(oct_trainer *t, int64_t step, oct_validation *validation,
                                oct_error *err) {
    *validation = (oct_validation){0};
    if (!validation_due(t, step))
        return OCT_OK;
    oct_status status = t->stop_reason ? OCT_OK : oct_trainer_validate(t, validation, err);
    if (!status && t->stop_reason && validation->n_tokens == 0)
        oct_log_info("The validation of step %" PRId64 " is left out", step);
    else if (!status && !isfinite(validation->loss))
        status = oct_trainer_fail_number(t, step, "the validation loss", validation->loss, err);
    return status;
}

/* Files and log lines are the first rank's. */
static oct_status finish_step(oct_trainer *t, oct_metrics *metrics, const oct_step_result *result,
                              oct_error *err) {
    oct_validation validation;
    oct_status status = validate_step(t, result->step, &validation, err);
    if (!status && t->ranks.rank == 0)
        status = oct_metrics_step(metrics, result, validation.n_tokens > 0 ? &validation : NULL,
                                  t->n_tokens_seen, err);
    status = oct_ranks_agree(&t->ranks, status, err);
    if (!status && save_due(t, result->step))
        status = oct_trainer_save(t, err);
    return status;
}

static oct_status write_config(const oct_job *job, oct_error *err) {
    oct_strbuf text = {0};
    oct_status status = OCT_OK;
    oct_job_render(job, &text);
    if (text.failed)
        status = oct_fail_memory(err);
    if (!status && job->job.print_config)
        oct_log_info("Running with configs:\n%s", text.text);
    if (!status && job->job.save_config_file) {
        char *path = oct_path_join(job->job.dump_folder, job->job.save_config_file);
        oct_error cause = {0};
        status = path ? oct_file_write(path, text.text, text.length, &cause) : OCT_NO_MEMORY;
        if (status)
            oct_fail(err, status, "%s: %s", oct_job_at(job, "job.save_config_file"),
                     path ? cause.message : "out of memory");
        oct_free(path);
    }
    oct_strbuf_free(&text);
    return status;
}

/* ---- what the user is told of the run as a whole ---- */

static int64_t tokens_of_step(const oct_trainer *t) {
    return t->n_micro * t->B * t->S * t->ranks.n_ranks;
}

static oct_status log_start(const oct_trainer *t, oct_error *err) {
    int64_t steps = t->job->training.steps, n_left = steps - t->steps_done, n_tokens;
    oct_strbuf b = {0};
    oct_log_info("Trainer is initialized with local batch size %" PRId64
                 ", global batch size %" PRId64 ", gradient accumulation steps %" PRId64
                 ", sequence length %" PRId64 ", total steps %" PRId64 " (warmup %" PRId64 ")",
                 t->B, t->B * t->n_micro * t->ranks.n_ranks, t->n_micro, t->S, steps,
                 t->schedule.warmup_steps);
    if (n_left <= 0) {
        oct_log_info("All %" PRId64 " steps are done already", steps);
        return OCT_OK;
    }
    oct_strbuf_printf(&b, "%" PRId64 " steps of ", n_left);
    oct_append_grouped(&b, tokens_of_step(t));
    oct_strbuf_puts(&b, " tokens");
    if (oct_mul_i64(n_left, tokens_of_step(t), &n_tokens)) {
        oct_strbuf_puts(&b, ": ");
        oct_append_grouped(&b, n_tokens);
        double passes = (double)n_tokens / (double)oct_dataset_n_tokens(t->train);
        oct_strbuf_printf(&b,
                          passes < 10 ? " tokens, %.2g times the training data"
                                      : " tokens, %.0f times the training data",
                          passes);
    }
    if (!b.failed)
        oct_log_info("Training starts at step %" PRId64 ": %s", t->steps_done + 1, b.text);
    oct_status status = b.failed ? oct_fail_memory(err) : OCT_OK;
    oct_strbuf_free(&b);
    return status;
}

/* Once, when a few steps have shown how long one takes. */
static void log_pace(const oct_pace *pace, int64_t n_left) {
    enum { FEW = 3, SURELY = 10 };
    static const double soon_s = 5;
    bool now = pace->n_steps == SURELY || (pace->n_steps >= FEW && pace->n_steps < SURELY &&
                                           (double)pace->n_steps * pace->step_s >= soon_s &&
                                           (double)(pace->n_steps - 1) * pace->step_s < soon_s);
    char text[32];
    if (!now || n_left <= 0)
        return;
    oct_pace_duration((double)n_left * pace->step_s, text, sizeof text);
    oct_log_info("About %s to go: %.3g s a step", text, pace->step_s);
}

/* "training: step 12/720  loss 5.1234  4912 tokens/s  3 min left" */
static void show_progress(const oct_trainer *t, const oct_step_result *result,
                          const oct_pace *pace) {
    int64_t steps = t->job->training.steps;
    char text[160], left[32];
    if (!t->options.progress)
        return;
    int used =
        snprintf(text, sizeof text, "training: step %" PRId64 "/%" PRId64, t->steps_done, steps);
    if (result)
        used += snprintf(text + used, sizeof text - (size_t)used, "  loss %.4f  %.0f tokens/s",
                         result->loss, pace->tokens_per_s);
    if (pace->step_s > 0) {
        oct_pace_duration((double)(steps - t->steps_done) * pace->step_s, left, sizeof left);
        snprintf(text + used, sizeof text - (size_t)used, "  %s left", left);
    }
    t->options.progress(t->options.progress_user, text, t->steps_done, steps);
}

/* ---- the loop ---- */

static oct_status run_step(oct_trainer *t, oct_metrics *metrics, oct_pace *pace, oct_error *err) {
    oct_step_result result = {0};
    bool stop;
    oct_status status = oct_trainer_step(t, &result, err);
    t->measured[0] = result.loss;
    t->measured[1] = result.grad_norm;
    t->measured[2] = result.lr;
    t->has_measured = !status;
    if (!status)
        status = oct_trainer_ask_to_stop(t, &stop, err);
    if (!status)
        status = finish_step(t, metrics, &result, err);
    if (status)
        return status;
    oct_pace_step(pace, result.n_tokens, result.duration_s);
    if (!t->stop_reason)
        log_pace(pace, t->job->training.steps - t->steps_done);
    show_progress(t, &result, pace);
    return OCT_OK;
}

/* What was trained since the last checkpoint isn't lost where the job saves. */
static oct_status run_steps(oct_trainer *t, oct_metrics *metrics, oct_error *err) {
    int64_t first = t->steps_done;
    oct_pace pace = {0};
    bool stop;
    oct_status status = oct_trainer_ask_to_stop(t, &stop, err);
    show_progress(t, NULL, &pace);
    while (!status && !t->stop_reason && t->steps_done < t->job->training.steps)
        status = run_step(t, metrics, &pace, err);
    if (!status && t->stop_reason && oct_job_saves(t->job) && t->steps_done > first &&
        t->last_saved != t->steps_done)
        status = oct_trainer_save(t, err);
    if (status || t->steps_done == first || t->last_saved != t->job->training.steps)
        return status;
    return oct_ranks_agree(&t->ranks, t->ranks.rank == 0 ? oct_trainer_export_last(t, err) : OCT_OK,
                           err);
}

/* Whether the folder's metrics.jsonl is of the run that the checkpoint is of: its line of the
 * checkpoint's step says what the checkpoint says. Two runs may take turns in one dump folder. */
static oct_status knows_metrics(const oct_trainer *t, bool *own, oct_error *err) {
    double values[OCT_N_MEASURED];
    char *path = oct_path_join(t->job->job.dump_folder, "metrics.jsonl");
    if (!path)
        return oct_fail_memory(err);
    *own = true;
    oct_status status = OCT_OK;
    if (t->has_measured)
        status = oct_metrics_file_find(path, t->steps_done, oct_measured_names, OCT_N_MEASURED,
                                       values, own, err);
    for (int i = 0; i < OCT_N_MEASURED && t->has_measured && *own; i++)
        *own = values[i] == t->measured[i];
    oct_free(path);
    return status;
}

/* A run that goes on from its own checkpoint appends; what it drops are steps that it takes again,
 * or that oct_trainer_leave_behind has copied. All others keep the lines of the run that was there
 * before, which may still be gone on with; a comparison replaces itself. With no step left to take
 * the file stays as it is. */
static oct_status open_metrics(const oct_trainer *t, oct_metrics *metrics, oct_error *err) {
    const oct_job *job = t->job;
    bool takes_over =
        t->options.start == OCT_START_FRESH || (t->resumed_own && !job->checkpoint.load_only);
    if (t->ranks.rank > 0 || t->steps_done >= job->training.steps)
        return OCT_OK;
    bool own = t->resumed_own;
    oct_status status = own ? knows_metrics(t, &own, err) : OCT_OK;
    if (status)
        return status;
    takes_over = takes_over && own == t->resumed_own;
    return oct_metrics_open(job, own ? t->steps_done : -1,
                            takes_over ? OCT_METRICS_DROP : OCT_METRICS_KEEP, t->options.colour,
                            oct_model_flops_per_token(t->parts.model, t->S), metrics, err);
}

oct_status oct_trainer_run(oct_trainer *t, oct_error *err) {
    const oct_job *job = t->job;
    oct_metrics metrics = {0};
    oct_status status = OCT_OK;
    if (t->ranks.rank == 0) /* before an older run's metrics go */
        status = write_config(job, err);
    if (!status)
        status = open_metrics(t, &metrics, err);
    if (!status)
        status = log_start(t, err);
    status = oct_ranks_agree(&t->ranks, status, err);
    if (!status)
        status = run_steps(t, &metrics, err);
    if (!status && !t->stop_reason)
        oct_log_info("Training completed");
    oct_metrics_close(&metrics);
    return status;
}
