/* Rules beyond a row's: see check.h. */
#include "config/check.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/count.h"
#include "base/nearest.h"
#include "config/fused.h"
#include "config/model_args.h"
#include "config/options.h"
#include "config/refusals.h"
#include "quant/recipe.h"

#define FLOAT8_RECIPE "dynamic_per_tensor_E4M3_E4M3_E4M3"

static oct_status check_converter(oct_loader *l, const char *name) {
    enum { N_KNOWN = 4 };
    const char *known[N_KNOWN + OCT_N_FUSED_KERNELS] = {
        "npu_gmm", "grouped_mm", "quantize.linear.mx", "quantize.grouped_mm.mx"};
    for (size_t i = 0; i < N_KNOWN; i++)
        if (strcmp(name, known[i]) == 0)
            return OCT_OK;
    if (oct_is_fused_kernel(name))
        return OCT_OK;
    memcpy(known + N_KNOWN, oct_fused_kernels, sizeof oct_fused_kernels);
    if (strcmp(name, "float8") == 0 || strcmp(name, "quantize.linear.float8") == 0 ||
        strcmp(name, "quantize.grouped_mm.float8") == 0)
        return oct_loader_fail_text(l, "model.converters", "float8 converters aren't supported",
                                    "quantize.linear.mx or quantize.grouped_mm.mx with "
                                    "recipe_name = \"" FLOAT8_RECIPE "\", the closest",
                                    name);
    if (strcmp(name, "npu_dsa") == 0)
        return oct_loader_fail_text(l, "model.converters", "sparse attention isn't supported",
                                    "none", name);
    const char *near = oct_nearest_name(name, known, N_KNOWN + OCT_N_FUSED_KERNELS);
    return oct_fail(l->builder.err, OCT_INVALID,
                    "%s: an unknown converter; expected npu_gmm, "
                    "quantize.linear.mx, quantize.grouped_mm.mx or one of torchtitan-npu's fused "
                    "kernels; got "
                    "%.100s%s%s",
                    oct_job_at(l->job, "model.converters"), name,
                    near ? "; the nearest known one is " : "", near ? near : "");
}

/* The place of a name, or the list's length. */
static size_t place_in(const oct_job_list *list, const char *name) {
    size_t i = 0;
    while (i < list->n && strcmp(list->items[i], name) != 0)
        i++;
    return i;
}

/* torchtitan quantizes experts as they are; torchtitan-npu's converter replaces npu_gmm's products
 * and finds none where that comes later or not at all. */
static oct_status check_order(oct_loader *l) {
    const oct_job_list *list = &l->job->model.converters;
    size_t gmm = place_in(list, "npu_gmm"), grouped = place_in(list, "grouped_mm");
    size_t experts = place_in(list, "quantize.grouped_mm.mx");
    size_t first = gmm < grouped ? gmm : grouped;
    if (experts == list->n || first < experts)
        return OCT_OK;
    if (first == list->n && !oct_job_is_npu(l->job))
        return OCT_OK;
    return oct_loader_fail_text(l, "model.converters",
                                "\"quantize.grouped_mm.mx\" needs \"npu_gmm\" before it",
                                "[\"npu_gmm\", ..., \"quantize.grouped_mm.mx\"]",
                                first == list->n ? "none" : "it after it");
}

static oct_status check_converters(oct_loader *l) {
    const oct_job_list *list = &l->job->model.converters;
    oct_status status = OCT_OK;
    for (size_t i = 0; i < list->n && !status; i++) {
        status = place_in(list, list->items[i]) == i
                     ? check_converter(l, list->items[i])
                     : oct_loader_fail_text(l, "model.converters", "a converter is there twice",
                                            "each once", list->items[i]);
        status = oct_loader_refuse_item(l, status);
    }
    return status ? status : oct_loader_refuse_item(l, check_order(l));
}

/* Only of a TOML job, or where the command line sets it: a YAML job takes config.json's. */
static oct_status check_flavor(oct_loader *l) {
    static const char key[] = "model.flavor: ";
    const oct_job *job = l->job;
    oct_model_args args;
    oct_error cause = {0};
    if (oct_loader_refused_model(l) || !*job->model.flavor || !oct_model_flavors(job->model.name) ||
        oct_model_args_flavor(job->model.name, job->model.flavor, &args, &cause) == OCT_OK)
        return OCT_OK;
    return oct_fail(l->builder.err, OCT_INVALID, "%s: %s", oct_job_at(job, "model.flavor"),
                    cause.message + sizeof key - 1);
}

static oct_status check_device(oct_loader *l) {
    const char *device = l->job->job.device;
    if (strcmp(device, "cpu") == 0)
        return OCT_OK;
    return oct_loader_fail_text(l, "job.device",
                                strcmp(device, "npu") == 0 ? "nothing here drives an Ascend NPU yet"
                                                           : "the device isn't supported",
                                "cpu", device);
}

static oct_status check_selective_option(oct_loader *l) {
    const char *option = l->job->activation_checkpoint.selective_ac_option;
    char *end;
    long every = strtol(option, &end, 10);
    if (strcmp(option, "op") == 0 || (*option >= '0' && *option <= '9' && !*end && every >= 1))
        return OCT_OK;
    return oct_loader_fail_text(l, "activation_checkpoint.selective_ac_option",
                                "the option is unknown", "\"op\" or a positive integer as a text",
                                option);
}

static oct_status check_keep(oct_loader *l) {
    if (l->job->checkpoint.keep_latest_k != 1)
        return OCT_OK;
    return oct_loader_fail_text(l, "checkpoint.keep_latest_k",
                                "the only checkpoint would be the one that is being written",
                                "0 (all) or at least 2", "1");
}

static oct_status check_not_empty(oct_loader *l, const char *key, const char *value) {
    return *value ? OCT_OK : oct_loader_fail_text(l, key, "the text is empty", "a name", "\"\"");
}

static oct_status check_names(oct_loader *l) {
    const oct_job *job = l->job;
    const struct {
        const char *key, *text;
    } names[] = {
        {"job.dump_folder", job->job.dump_folder},
        {"checkpoint.folder", job->checkpoint.folder},
        {"model.flavor", job->form == OCT_JOB_TITAN ? job->model.flavor : "of config.json"},
        {"quantize.linear.mx.recipe_name", job->quantize.linear.mx.recipe_name},
        {"quantize.grouped_mm.mx.recipe_name", job->quantize.grouped_mm.mx.recipe_name}};
    oct_status status = OCT_OK;
    for (size_t i = 0; i < OCT_COUNT(names) && !status; i++)
        status = oct_loader_refuse(l, check_not_empty(l, names[i].key, names[i].text),
                                   OCT_REFUSED_BY_PLACE);
    return status;
}

/* The item before `item` that is the same argument under another name, or NULL. */
static const oct_value *find_other_name(const oct_value *table, const oct_value *item) {
    for (const oct_value *other = table->items.first; other != item; other = other->next)
        if (oct_model_args_is(other->key, item->key))
            return other;
    return NULL;
}

/* An option that stands for the file's has taken its place already. */
static oct_status check_one_name(oct_loader *l, const oct_value *item) {
    const oct_value *other = find_other_name(l->job->model.args, item);
    char key[256], other_key[256];
    if (!other || l->reading == OCT_JOB_READ_SAVED)
        return OCT_OK;
    snprintf(key, sizeof key, "model.args.%s", item->key);
    snprintf(other_key, sizeof other_key, "model.args.%s", other->key);
    return oct_fail(l->builder.err, OCT_INVALID,
                    "%s: another name of an argument that is there; expected one of both; got it "
                    "beside %s",
                    oct_job_at(l->job, key), oct_job_at(l->job, other_key));
}

/* Entry by entry; how they go together shows when the model is made. */
static oct_status check_model_args(oct_loader *l) {
    const oct_value *item = l->job->model.args ? l->job->model.args->items.first : NULL;
    oct_model_args args;
    oct_status status = oct_model_args_flavor("llama3", "debugmodel", &args, l->builder.err);
    for (; item && !status; item = item->next) {
        status = oct_job_set_model_arg(l->job, item, &args, l->builder.err);
        if (!status)
            status = check_one_name(l, item);
        status = oct_loader_refuse(l, status, OCT_REFUSED_BY_PLACE);
    }
    return status;
}

static oct_status check_recipe(oct_loader *l, const char *key, const char *name) {
    oct_recipe recipe;
    oct_error cause = {0};
    if (!name || oct_recipe_parse(name, &recipe, &cause) == OCT_OK)
        return OCT_OK;
    oct_status status =
        oct_fail(l->builder.err, cause.status, "%s: %s", oct_job_at(l->job, key), cause.message);
    return oct_loader_refuse(l, status, OCT_REFUSED_BY_PLACE);
}

/* Also of those that convert nothing: a file may have the table without its converter. */
static oct_status check_recipes(oct_loader *l) {
    const oct_job *job = l->job;
    oct_status status = OCT_OK;
    if (job->form == OCT_JOB_TITAN)
        status =
            check_recipe(l, "quantize.linear.mx.recipe_name", job->quantize.linear.mx.recipe_name);
    if (!status && job->form == OCT_JOB_TITAN)
        status = check_recipe(l, "quantize.grouped_mm.mx.recipe_name",
                              job->quantize.grouped_mm.mx.recipe_name);
    return status ? status
                  : check_recipe(l, "training.quantization_plan.recipe_name",
                                 job->quantization_plan.recipe_name);
}

/* A run writes files of names below NAMES_BYTES in `folder`, which lies in the dump folder unless
 * it is absolute, and no call takes a longer path. */
static oct_status check_path(oct_loader *l, const char *key, const char *folder) {
    enum { NAMES_BYTES = 256, MAX_BYTES = PATH_MAX - NAMES_BYTES };
    static const char dump[] = "job.dump_folder";
    size_t n = strlen(folder) + (*folder == '/' ? 0 : strlen(l->job->job.dump_folder) + 1);
    if (n <= MAX_BYTES)
        return OCT_OK;
    return oct_fail(l->builder.err, OCT_INVALID,
                    "%s: the path of the run's files is too long; expected a folder of at most %d "
                    "bytes; got %zu",
                    oct_job_at(l->job, oct_job_is_set(l->job, key) ? key : dump), MAX_BYTES, n);
}

/* No file system here takes a longer name, and no call a longer path. */
static oct_status check_path_names(oct_loader *l, const char *key, const char *path) {
    size_t longest = 0;
    for (const char *name = path; name && *name; name += strspn(name, "/")) {
        size_t n = strcspn(name, "/");
        longest = n > longest ? n : longest;
        name += n;
    }
    if (longest > NAME_MAX)
        return oct_fail(l->builder.err, OCT_INVALID,
                        "%s: a name in the path is too long; expected at most %d bytes; got %zu",
                        oct_job_at(l->job, key), NAME_MAX, longest);
    if (path && strlen(path) >= PATH_MAX)
        return oct_fail(l->builder.err, OCT_INVALID,
                        "%s: the path is too long; expected at most %d bytes; got %zu",
                        oct_job_at(l->job, key), PATH_MAX - 1, strlen(path));
    return OCT_OK;
}

static oct_status check_all_path_names(oct_loader *l) {
    const oct_job *job = l->job;
    const struct {
        const char *key, *path;
    } paths[] = {{"job.dump_folder", job->job.dump_folder},
                 {"job.save_config_file", job->job.save_config_file},
                 {"metrics.save_tb_folder", job->metrics.save_tb_folder},
                 {"model.hf_assets_path", job->model.hf_assets_path},
                 {"model.tokenizer_path", job->model.tokenizer_path},
                 {"training.dataset_path", job->training.dataset_path},
                 {"validation.dataset_path", job->validation.dataset_path},
                 {"checkpoint.folder", job->checkpoint.folder},
                 {"checkpoint.initial_load_path", job->checkpoint.initial_load_path}};
    oct_status status = OCT_OK;
    for (size_t i = 0; i < OCT_COUNT(paths) && !status; i++)
        status = oct_loader_refuse(l, check_path_names(l, paths[i].key, paths[i].path),
                                   OCT_REFUSED_BY_PLACE);
    return status;
}

static oct_status check_paths(oct_loader *l) {
    const struct {
        const char *key, *folder;
    } folders[] = {{"job.dump_folder", "cache"},
                   {"checkpoint.folder", l->job->checkpoint.folder},
                   {"metrics.save_tb_folder", l->job->metrics.save_tb_folder}};
    oct_status status = OCT_OK;
    for (size_t i = 0; i < OCT_COUNT(folders) && !status; i++)
        status = oct_loader_refuse(l, check_path(l, folders[i].key, folders[i].folder),
                                   OCT_REFUSED_BY_PLACE);
    return status;
}

static oct_status check_export(oct_loader *l) {
    const oct_job *job = l->job;
    if (oct_job_saves(job) && job->checkpoint.last_save_model_only &&
        !job->checkpoint.last_save_in_hf && job->checkpoint.export_dtype == OCT_JOB_FLOAT16)
        return oct_loader_fail_text(l, "checkpoint.export_dtype",
                                    "a checkpoint isn't saved in float16",
                                    "float32 or bfloat16, or checkpoint.last_save_in_hf = true "
                                    "beside it",
                                    "\"float16\"");
    return OCT_OK;
}

static oct_status check_initial_load(oct_loader *l) {
    if (!l->job->checkpoint.initial_load_in_hf_quantized || l->job->checkpoint.initial_load_in_hf)
        return OCT_OK;
    return oct_loader_fail_text(l, "checkpoint.initial_load_in_hf_quantized",
                                "has an effect only with a Hugging Face folder",
                                "checkpoint.initial_load_in_hf = true beside it", "true");
}

/* All checks, so that all that is wrong is told at once. */
oct_status oct_loader_check(oct_loader *l) {
    static oct_status (*const checks[])(oct_loader *) = {check_device,
                                                         check_initial_load,
                                                         check_flavor,
                                                         check_names,
                                                         check_paths,
                                                         check_all_path_names,
                                                         check_converters,
                                                         check_model_args,
                                                         check_recipes,
                                                         check_selective_option,
                                                         check_keep,
                                                         check_export,
                                                         oct_loader_check_options};
    oct_status status = OCT_OK;
    for (size_t i = 0; i < OCT_COUNT(checks) && !status; i++)
        status = oct_loader_refuse(l, checks[i](l), OCT_REFUSED_BY_PLACE);
    return status;
}
