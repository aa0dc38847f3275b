/* From a job to its parts: see setup.h. */
#include "job/setup.h"

#include <inttypes.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/count.h"
#include "base/fs.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "config/model_args.h"
#include "convert/pattern.h"
#include "job/dcp_model.h"
#include "job/hf_model.h"
#include "job/local_part.h"
#include "model/hf_names.h"
#include "op/elementwise.h"
#include "tensors/dcp.h"

oct_status oct_setup_fail_at(const oct_job *job, const char *key, const oct_error *cause,
                             oct_error *err) {
    const char *message = cause->message, *dot = strrchr(key, '.');
    const char *const names[] = {key, dot ? dot + 1 : key};
    for (size_t i = 0; i < 2; i++) {
        size_t n = strlen(names[i]);
        if (strncmp(message, names[i], n) == 0 && strncmp(message + n, ": ", 2) == 0)
            message += n + 2;
    }
    return oct_fail(err, cause->status, "%s: %s", oct_job_at(job, key), message);
}

/* ---- model ---- */

/* The same for an entry of model.args. */
static oct_status fail_arg(const oct_job *job, const char *name, const oct_error *cause,
                           oct_error *err) {
    char key[256];
    snprintf(key, sizeof key, "model.args.%s", name);
    return oct_setup_fail_at(job, key, cause, err);
}

/* Whether a message about dimensions speaks of `name`. */
static bool mentions(const char *message, const char *name) {
    size_t n = strlen(name);
    for (const char *hit = strstr(message, name); hit; hit = strstr(hit + 1, name)) {
        bool starts = hit == message || !(isalnum((unsigned char)hit[-1]) || hit[-1] == '_');
        if (starts && !isalnum((unsigned char)hit[n]) && hit[n] != '_')
            return true;
    }
    return false;
}

/* How likely the entry is to blame for a message about dimensions; 0: not spoken of. */
static int blame(const oct_value *item, const char *message) {
    size_t n = strlen(item->key);
    bool opens = strncmp(message, item->key, n) == 0 && message[n] == ':';
    return mentions(message, item->key) ? 1 + opens + 2 * (item->line == 0) : 0;
}

/* Dimensions that don't fit each other: an entry of [model.args] that the message speaks of is to
 * blame, one of the command line before one of the file, and then the one it begins with. */
static oct_status place_resolve(const oct_job *job, const oct_error *cause, oct_error *err) {
    const oct_value *item = job->model.args ? job->model.args->items.first : NULL, *blamed = NULL;
    int most = 0;
    for (; item; item = item->next) {
        int own = blame(item, cause->message);
        if (own > most)
            blamed = item;
        most = own > most ? own : most;
    }
    if (blamed)
        return fail_arg(job, blamed->key, cause, err);
    return oct_setup_fail_at(job, job->model.args ? "model.args" : "model.flavor", cause, err);
}

static void tell_resolve(void *user, const oct_error *cause) {
    oct_together *together = user;
    oct_error placed = {0};
    oct_status status = place_resolve(together->job, cause, &placed);
    oct_together_add(together, status, &placed);
}

/* All that doesn't fit, told together. */
static oct_status resolve(const oct_job *job, oct_model_args *args, oct_error *err) {
    oct_together together = {.job = job};
    oct_status status = oct_model_args_resolve_all(args, tell_resolve, &together, NULL);
    return status ? oct_together_conclude(&together, err) : OCT_OK;
}

/* The dimensions before [model.args]. */
static oct_status base_args(const oct_job *job, oct_model_args *args, oct_error *err) {
    oct_error cause = {0};
    if (!*job->model.flavor && job->form == OCT_JOB_MINDSPEED) {
        if (oct_setup_model_args_from_hf(job->model.hf_assets_path, args, &cause) != OCT_OK)
            return oct_setup_fail_at(job, "model.hf_assets_path", &cause, err);
        const char *family = oct_model_family_name(args->family);
        if (!*job->model.name || strcmp(job->model.name, family) == 0)
            return OCT_OK;
        return oct_fail(err, OCT_INVALID, "%s: expected %s, as config.json says; got %s",
                        oct_job_at(job, "model.name"), family, job->model.name);
    }
    if (oct_model_args_flavor(job->model.name, job->model.flavor, args, &cause) == OCT_OK)
        return OCT_OK;
    const char *key = oct_model_flavors(job->model.name) ? "model.flavor" : "model.name";
    return oct_setup_fail_at(job, key, &cause, err);
}

char *oct_setup_hf_config_path(const oct_job *job) {
    const char *folder = NULL;
    if (job->checkpoint.initial_load_in_hf)
        folder = job->checkpoint.initial_load_path;
    else if (!*job->model.flavor && job->form == OCT_JOB_MINDSPEED)
        folder = job->model.hf_assets_path;
    char *path = folder ? oct_path_join(folder, "config.json") : NULL;
    if (path && oct_path_is_folder(folder) && oct_path_exists(path))
        return path;
    oct_free(path);
    return NULL;
}

oct_status oct_setup_own_args(const oct_job *job, oct_model_args *args, oct_error *err) {
    oct_status status = OCT_OK;
    const oct_value *item = job->model.args ? job->model.args->items.first : NULL;
    for (; item && !status; item = item->next)
        status = oct_job_set_model_arg(job, item, args, err);
    if (status)
        return status;
    args->moe_force_load_balance |= job->debug.moe_force_load_balance;
    return resolve(job, args, err);
}

oct_status oct_setup_model_args(const oct_job *job, oct_model_args *args, oct_error *err) {
    oct_status status = base_args(job, args, err);
    if (status)
        return status;
    /* Qwen3-MoE's files store no router bias, so that one that training moved would be lost. */
    if (args->family == OCT_MODEL_QWEN3 && job->checkpoint.initial_load_in_hf &&
        job->checkpoint.initial_load_path)
        args->load_balance_coeff = 0;
    /* Positions for the longest sequence; the user's own max_seq_len wins. */
    args->max_seq_len = job->training.seq_len;
    if (job->validation.enable)
        args->max_seq_len = oct_max_i64(args->max_seq_len, job->validation.seq_len);
    return oct_setup_own_args(job, args, err);
}

oct_dtype oct_setup_activation(const oct_job *job) {
    return job->training.mixed_precision_param == OCT_JOB_FLOAT32 ? OCT_F32 : OCT_BF16;
}

oct_gemm_mode oct_setup_gemm(const oct_job_mx *mx) {
    static const oct_gemm_mode modes[] = {[OCT_JOB_GEMM_AUTO] = OCT_GEMM_AUTO,
                                          [OCT_JOB_GEMM_EXACT] = OCT_GEMM_EXACT,
                                          [OCT_JOB_GEMM_FAST] = OCT_GEMM_FAST,
                                          [OCT_JOB_GEMM_ALIGNED] = OCT_GEMM_FAST};
    return modes[mx->gemm];
}

/* Whether a glob selects the module `name`, by its Hugging Face name. */
static bool glob_selects(const char *glob, oct_model_family family, const char *name) {
    char hf[OCT_HF_MODULE_NAME_SIZE];
    if (!oct_hf_name(family, name, hf))
        snprintf(hf, sizeof hf, "%s", name);
    return oct_pattern_selects(OCT_PATTERN_GLOB, glob, hf);
}

/* Whether a glob of the list does. */
static bool selects(const oct_job_list *list, oct_model_family family, const char *name) {
    for (size_t i = 0; i < list->n; i++)
        if (glob_selects(list->items[i], family, name))
            return true;
    return false;
}

static oct_status check_globs(const oct_job *job, const char *key, const oct_job_list *list,
                              oct_together *together) {
    const oct_pattern_list globs = {.kind = OCT_PATTERN_GLOB,
                                    .patterns = list->items,
                                    .n = (int64_t)list->n,
                                    .where = oct_job_at(job, key)};
    oct_error cause = {0};
    return oct_together_add(together, oct_pattern_list_check(&globs, &cause), &cause);
}

static const char *recompute_key(const oct_job *job) {
    static const char *const keys[] = {
        "features.recompute_plan", "features.recompute_plan.apply_modules",
        "parallel.recompute_plan", "parallel.recompute_plan.apply_modules"};
    return oct_job_blame(job, keys, OCT_COUNT(keys));
}

oct_status oct_setup_check_patterns(const oct_job *job, oct_together *together) {
    static const oct_job_list none = {0};
    const bool planned = job->quantization_plan.recipe_name != NULL;
    const struct {
        const char *key;
        const oct_job_list *list;
    } lists[] = {{"model.freeze", &job->model.freeze},
                 {recompute_key(job), &job->activation_checkpoint.apply_modules},
                 {"training.quantization_plan.apply_modules",
                  planned ? &job->quantization_plan.apply_modules : &none},
                 {"training.quantization_plan.ignored_modules",
                  planned ? &job->quantization_plan.ignored_modules : &none}};
    oct_status status = OCT_OK;
    for (size_t i = 0; i < OCT_COUNT(lists) && !status; i++)
        status = check_globs(job, lists[i].key, lists[i].list, together);
    return status;
}

/* A misspelt pattern leaves out what the user named, and nothing else shows it. */
static void warn_of_no_match(const oct_job *job, const char *key, const char *glob,
                             const char *what) {
    oct_log_warning("%s: \"%s\" matches no %s", oct_job_at(job, key), glob, what);
}

static void module_of_param(const oct_param *param, char module[OCT_HF_MODULE_NAME_SIZE]) {
    const char *dot = strrchr(param->name, '.');
    int length = (int)(dot ? dot - param->name : 0);
    snprintf(module, OCT_HF_MODULE_NAME_SIZE, "%.*s", length, param->name);
}

void oct_setup_frozen(const oct_job *job, oct_model *model) {
    int64_t n;
    oct_param *const *params = oct_model_params(model, &n);
    oct_model_family family = oct_model_get_args(model)->family;
    const oct_job_list *list = &job->model.freeze;
    char module[OCT_HF_MODULE_NAME_SIZE];
    for (int64_t i = 0; i < n; i++) {
        module_of_param(params[i], module);
        params[i]->frozen = selects(list, family, module);
    }
    for (size_t k = 0; k < list->n; k++) {
        bool found = false;
        for (int64_t i = 0; i < n && !found; i++) {
            module_of_param(params[i], module);
            found = glob_selects(list->items[k], family, module);
        }
        if (!found)
            warn_of_no_match(job, "model.freeze", list->items[k], "module with parameters");
    }
}

/* YAML's recompute_plan: only the layers that a pattern selects. */
static void recompute_selected(const oct_job *job, oct_model *model, oct_recompute mode) {
    const char *key = recompute_key(job);
    const oct_model_args *args = oct_model_get_args(model);
    const oct_job_list *list = &job->activation_checkpoint.apply_modules;
    char name[64];
    for (int64_t layer = 0; layer < args->n_layers; layer++) {
        snprintf(name, sizeof name, "layers.%" PRId64, layer);
        oct_model_set_layer_recompute(
            model, layer, selects(list, args->family, name) ? mode : OCT_RECOMPUTE_NONE);
    }
    for (size_t k = 0; k < list->n; k++) {
        bool found = false;
        for (int64_t layer = 0; layer < args->n_layers && !found; layer++) {
            snprintf(name, sizeof name, "layers.%" PRId64, layer);
            found = glob_selects(list->items[k], args->family, name);
        }
        if (!found)
            warn_of_no_match(job, key, list->items[k], "layer");
    }
}

void oct_setup_recompute(const oct_job *job, oct_model *model) {
    const char *option = job->activation_checkpoint.selective_ac_option;
    oct_recompute mode = OCT_RECOMPUTE_NONE;
    if (job->activation_checkpoint.mode == OCT_JOB_RECOMPUTE_FULL)
        mode = OCT_RECOMPUTE_FULL;
    else if (job->activation_checkpoint.mode == OCT_JOB_RECOMPUTE_SELECTIVE)
        mode = OCT_RECOMPUTE_OP;
    if (job->activation_checkpoint.apply_modules.n > 0)
        recompute_selected(job, model, mode);
    else if (mode == OCT_RECOMPUTE_OP && strcmp(option, "op") != 0)
        oct_model_set_recompute_every(model, strtoll(option, NULL, 10));
    else
        oct_model_set_recompute(model, mode);
}

/* ---- parameters ---- */

static oct_tensor param_tensor(const oct_param *param) {
    oct_tensor tensor = {.dtype = OCT_F32, .n_dims = param->n_dims, .data = param->value};
    for (int i = 0; i < param->n_dims; i++)
        tensor.shape[i] = param->shape[i];
    return tensor;
}

/* A model that was saved for export may be in bf16. */
static oct_status read_param(const void *context, oct_param *param, oct_error *err) {
    const oct_checkpoint *from = context;
    oct_tensor to = param_tensor(param);
    const oct_checkpoint_tensor *saved =
        oct_checkpoint_tensor_find(from, OCT_CHECKPOINT_MODEL, param->name);
    if (!saved || saved->dtype != OCT_BF16)
        return oct_checkpoint_copy(from, OCT_CHECKPOINT_MODEL, param->name, &to, err);
    oct_tensor half = to;
    half.dtype = OCT_BF16;
    half.data = oct_malloc(oct_tensor_bytes(&half));
    if (!half.data)
        return oct_fail_memory(err);
    oct_status status = oct_checkpoint_copy(from, OCT_CHECKPOINT_MODEL, param->name, &half, err);
    if (!status)
        status = oct_cast(&half, &to);
    oct_free(half.data);
    return status;
}

static oct_status read_bias(const void *from, const char *name, int64_t n, float *values,
                            oct_error *err) {
    oct_tensor to = oct_tensor_1d(OCT_F32, n, values);
    return oct_checkpoint_copy(from, OCT_CHECKPOINT_MODEL, name, &to, err);
}

static int64_t count_biases(const oct_model *model) {
    const oct_model_args *args = oct_model_get_args(model);
    int64_t n = 0;
    for (int64_t i = 0; i < args->n_layers; i++)
        n += oct_model_moe(model, i) != NULL;
    return n;
}

oct_status oct_setup_parameters_from_checkpoint(const oct_checkpoint *from, oct_model *model,
                                                oct_error *err) {
    int64_t n;
    oct_param *const *params = oct_model_params(model, &n);
    int64_t n_saved = oct_checkpoint_count(from, OCT_CHECKPOINT_MODEL);
    oct_status status = OCT_OK;
    const int64_t n_known = n + count_biases(model);
    /* A model that is a part of the saved one would find all it looks for. */
    if (n_saved > n_known)
        return oct_fail(err, OCT_INVALID,
                        "%s: it holds another model; expected %" PRId64 " tensors; got %" PRId64,
                        oct_checkpoint_path(from), n_known, n_saved);
    for (int64_t i = 0; i < n && !status; i++)
        status = oct_local_read(params[i], read_param, from, err);
    if (!status)
        status = oct_local_read_biases(model, read_bias, from, err);
    if (!status)
        oct_model_changed(model);
    return status;
}

static oct_status read_checkpoint(const char *path, oct_model *model, oct_error *err) {
    oct_checkpoint *checkpoint = NULL;
    oct_status status = oct_checkpoint_open(path, &checkpoint, err);
    if (!status)
        status = oct_setup_parameters_from_checkpoint(checkpoint, model, err);
    oct_checkpoint_close(checkpoint);
    return status;
}

/* A flavor's job is another model than the folder's until config.json says the same. */
static oct_status read_hf(const oct_job *job, const char *path, oct_model *model, oct_error *err) {
    oct_hf_weights weights = OCT_HF_ANY_WEIGHTS;
    oct_status status = OCT_OK;
    if (job->form == OCT_JOB_TITAN) {
        weights = job->checkpoint.initial_load_in_hf_quantized ? OCT_HF_QUANTIZED_WEIGHTS
                                                               : OCT_HF_HIGH_WEIGHTS;
        status = oct_setup_check_hf(path, job, oct_model_get_args(model), err);
    }
    if (!status)
        status = oct_setup_parameters_from_hf(path, weights, model, err);
    const oct_model_args *args = oct_model_get_args(model);
    if (!status && args->num_experts > 0 && args->load_balance_coeff > 0)
        oct_log_info("Router biases move by load_balance_coeff = %g a step; 0 keeps those of the "
                     "weights",
                     args->load_balance_coeff);
    return status;
}

oct_status oct_setup_parameters(const oct_job *job, uint64_t seed, oct_model *model,
                                oct_error *err) {
    const char *path = job->checkpoint.initial_load_path;
    oct_error cause = {0};
    oct_status status;
    if (!path) {
        oct_model_init(model, seed);
        return OCT_OK;
    }
    if (job->checkpoint.initial_load_in_hf)
        status = read_hf(job, path, model, &cause);
    else if (oct_is_dcp_folder(path))
        status = oct_setup_parameters_from_dcp(path, model, &cause);
    else
        status = read_checkpoint(path, model, &cause);
    if (status)
        return oct_setup_fail_at(job, "checkpoint.initial_load_path", &cause, err);
    oct_log_info("Loaded initial weights from %s", path);
    return OCT_OK;
}
