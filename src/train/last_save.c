/* The last checkpoint as a Hugging Face folder: see last_save.h. */
#include "train/last_save.h"

#include <inttypes.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "export/export_source.h"
#include "job/hf_words.h"
#include "job/setup.h"

/* A run that doesn't save exports nothing. */
static bool is_asked(const oct_trainer *t) {
    return oct_job_saves(t->job) && t->job->checkpoint.last_save_in_hf;
}

/* Of the last step (oct_free); NULL: memory is refused. */
static char *path_of(const oct_trainer *t, const char *ending) {
    char *folder = oct_trainer_checkpoint_folder(t);
    oct_strbuf path = {0};
    if (folder)
        oct_strbuf_printf(&path, "%s/step-%" PRId64 "%s", folder, t->job->training.steps, ending);
    oct_free(folder);
    if (!folder || path.failed)
        oct_strbuf_free(&path);
    return path.text;
}

static oct_status check_words(const oct_trainer *t, oct_error *err) {
    char *origin = oct_setup_hf_config_path(t->job);
    oct_strbuf config = {0}, why = {0};
    oct_status status =
        oct_hf_words_put(oct_model_get_args(t->parts.model), origin, "float32", &config, &why, err);
    if (!status && (config.failed || why.failed))
        status = oct_fail_memory(err);
    if (!status && !config.length)
        status = oct_fail_no_words(&why, err);
    oct_free(origin);
    oct_strbuf_free(&config);
    oct_strbuf_free(&why);
    return status;
}

/* A bias that training moves has no tensor in some models' files. */
static oct_status check_biases(const oct_trainer *t, oct_error *err) {
    const oct_model_args *args = oct_model_get_args(t->parts.model);
    if (args->family != OCT_MODEL_QWEN3 || args->num_experts == 0 || args->load_balance_coeff == 0)
        return OCT_OK;
    return oct_fail(err, OCT_INVALID,
                    "Qwen3-MoE's files have no routers' biases, which load_balance_coeff moves; "
                    "expected model.args.load_balance_coeff = 0");
}

static oct_status at_key(const oct_trainer *t, oct_status status, const oct_error *cause,
                         oct_error *err) {
    return status ? oct_setup_fail_at(t->job, "checkpoint.last_save_in_hf", cause, err) : OCT_OK;
}

oct_status oct_trainer_check_last_model(const oct_trainer *t, oct_error *err) {
    oct_error cause = {0};
    if (!is_asked(t) || t->steps_done >= t->job->training.steps)
        return OCT_OK;
    oct_status status = check_words(t, &cause);
    if (!status)
        status = check_biases(t, &cause);
    return at_key(t, status, &cause, err);
}

oct_status oct_trainer_check_last_name(const oct_trainer *t, oct_error *err) {
    oct_error cause = {0};
    bool moves = t->options.start == OCT_START_FRESH; /* a comparison, its earlier ones: later */
    if (!is_asked(t) || moves || t->steps_done >= t->job->training.steps)
        return OCT_OK;
    char *target = path_of(t, OCT_CHECKPOINT_EXPORT_ENDING);
    oct_status status = target ? oct_export_check_target(target, &cause) : oct_fail_memory(&cause);
    oct_free(target);
    return at_key(t, status, &cause, err);
}

oct_status oct_trainer_export_last(const oct_trainer *t, oct_error *err) {
    const oct_model_use as_trained = {0};
    const oct_export_request request = {.format = OCT_EXPORT_HF};
    oct_export_summary summary;
    oct_model_source *source = NULL;
    if (!is_asked(t) || t->steps_done < t->job->training.steps)
        return OCT_OK;
    char *from = path_of(t, ""), *target = path_of(t, OCT_CHECKPOINT_EXPORT_ENDING);
    oct_status status = from && target ? OCT_OK : oct_fail_memory(err);
    if (!status)
        status = oct_model_source_open(from, &as_trained, &source, err);
    if (!status)
        status = oct_export_source(source, &request, target, &summary, err);
    if (!status)
        oct_log_info("Exported %s: %" PRId64 " tensors, read back", target, summary.n_tensors);
    oct_model_source_close(source);
    oct_free(from);
    oct_free(target);
    return status;
}
