/* The loop over all steps: logs, validates, saves. */
#include <inttypes.h>
#include <math.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "train/state.h"

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

/* Files and log lines are the first rank's. */
static oct_status finish_step(oct_trainer *t, oct_metrics *metrics, const oct_step_result *result,
                              oct_error *err) {
    oct_validation validation;
    bool validated = validation_due(t, result->step);
    oct_status status = OCT_OK;
    if (validated)
        status = oct_trainer_validate(t, &validation, err);
    if (status == OCT_OK && validated && !isfinite(validation.loss))
        status =
            oct_trainer_fail_number(t, result->step, "the validation loss", validation.loss, err);
    if (status == OCT_OK && t->ranks.rank == 0)
        status = oct_metrics_step(metrics, result, validated ? &validation : NULL, t->n_tokens_seen,
                                  err);
    status = oct_ranks_agree(&t->ranks, status, err);
    if (status == OCT_OK && save_due(t, result->step))
        status = oct_trainer_save(t, err);
    return status;
}

static oct_status write_config(const oct_job *job, oct_error *err) {
    oct_strbuf text = {0};
    oct_status status = OCT_OK;
    oct_job_render(job, &text);
    if (text.failed)
        status = oct_fail_memory(err);
    if (status == OCT_OK && job->job.print_config)
        oct_log_info("Running with configs:\n%s", text.text);
    if (status == OCT_OK && job->job.save_config_file) {
        char *path = oct_path_join(job->job.dump_folder, job->job.save_config_file);
        oct_error cause = {0};
        status = path ? oct_file_write(path, text.text, text.length, &cause) : OCT_NO_MEMORY;
        if (status != OCT_OK)
            oct_fail(err, status, "%s: %s", oct_job_at(job, "job.save_config_file"),
                     path ? cause.message : "out of memory");
        oct_free(path);
    }
    oct_strbuf_free(&text);
    return status;
}

oct_status oct_trainer_run(oct_trainer *t, oct_error *err) {
    const oct_job *job = t->job;
    oct_metrics metrics = {0};
    oct_step_result result;
    int64_t steps = job->training.steps;
    double flops_per_token = oct_model_flops_per_token(t->model, t->S);
    oct_status status = OCT_OK;
    if (t->ranks.rank == 0) /* before an older run's metrics go */
        status = write_config(job, err);
    if (status == OCT_OK && t->ranks.rank == 0)
        status = oct_metrics_open(job, t->steps_done > 0 ? t->steps_done : -1, t->options.colour,
                                  flops_per_token, &metrics, err);
    status = oct_ranks_agree(&t->ranks, status, err);
    if (status == OCT_OK) {
        oct_log_info("Trainer is initialized with local batch size %" PRId64
                     ", global batch size %" PRId64 ", gradient accumulation steps %" PRId64
                     ", sequence length %" PRId64 ", total steps %" PRId64 " (warmup %" PRId64 ")",
                     t->B, t->B * t->n_micro * t->ranks.n_ranks, t->n_micro, t->S, steps,
                     t->schedule.warmup_steps);
        if (t->steps_done < steps)
            oct_log_info("Training starts at step %" PRId64, t->steps_done + 1);
        else
            oct_log_info("All %" PRId64 " steps are done already", steps);
    }
    while (status == OCT_OK && t->steps_done < steps) {
        status = oct_trainer_step(t, &result, err);
        if (status == OCT_OK)
            status = finish_step(t, &metrics, &result, err);
        if (status == OCT_OK && t->options.progress)
            t->options.progress(t->options.progress_user, "training", t->steps_done, steps);
    }
    if (status == OCT_OK)
        oct_log_info("Training completed");
    oct_metrics_close(&metrics);
    return status;
}
