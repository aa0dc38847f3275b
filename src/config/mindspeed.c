/* What the keys of a MindSpeed MM job mean: see mindspeed.h. */
#include "config/mindspeed.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "config/store.h"

#define PLAN "training.quantization_plan."

static const oct_setting *setting_of(const oct_loader *l, const char *name) {
    const oct_key *key = oct_schema_find(&oct_schema_mindspeed, name, strlen(name));
    return &l->state->mindspeed[key - oct_schema_mindspeed.keys];
}

static const oct_value *value_of(const oct_loader *l, const char *name) {
    return setting_of(l, name)->value;
}

/* A number that the row's check let pass, or `fallback` when it isn't given. */
static double number_of(const oct_loader *l, const char *name, double fallback) {
    const oct_value *v = value_of(l, name);
    if (!v || v->kind == OCT_VALUE_NULL)
        return fallback;
    return v->kind == OCT_VALUE_INT ? (double)v->integer : v->number;
}

/* Without a model_id or a flavor, name and dimensions are those of config.json. */
static oct_status finish_model(oct_loader *l) {
    static const struct {
        const char *id, *name;
    } ids[] = {{"qwen3", "qwen3"},   {"qwen3_moe", "qwen3"},         {"llama", "llama3"},
               {"llama3", "llama3"}, {"deepseek_v3", "deepseek_v3"}, {"deepseekv3", "deepseek_v3"}};
    const oct_setting *setting = setting_of(l, "model.model_id");
    l->job->model.flavor = "";
    l->job->model.name = "";
    if (!setting->value || setting->value->kind == OCT_VALUE_NULL)
        return OCT_OK;
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        if (strcmp(setting->value->string, ids[i].id) == 0) {
            l->job->model.name = ids[i].name;
            return OCT_OK;
        }
    return oct_loader_fail(l, setting->place, "model.model_id", "the model isn't supported",
                           "one of qwen3, qwen3_moe, llama, llama3, deepseek_v3", setting->value);
}

static void finish_schedule(oct_loader *l) {
    oct_job *job = l->job;
    job->lr_scheduler.warmup_steps =
        (int64_t)(number_of(l, "training.lr_warmup_ratio", 0) * (double)job->training.steps);
    double lr_min = number_of(l, "training.lr_min", 0);
    job->lr_scheduler.min_lr_factor = job->optimizer.lr > 0 ? lr_min / job->optimizer.lr : 0;
    double clip = number_of(l, "training.clip_grad", 1);
    job->training.max_norm = clip > 0 ? clip : INFINITY;
}

/* A global batch on the command line asks for as many micro-batches as it takes. */
static void finish_batch(oct_loader *l) {
    if (l->job->training.global_batch_size != -1 &&
        !value_of(l, "training.gradient_accumulation_steps"))
        l->job->training.gradient_accumulation_steps = 0;
}

static oct_status check_lr_min(oct_loader *l) {
    if (l->job->lr_scheduler.min_lr_factor <= 1)
        return OCT_OK;
    const oct_setting *setting = setting_of(l, "training.lr_min");
    return oct_loader_fail(l, setting->place, "training.lr_min", "it is above training.lr",
                           "at most training.lr", setting->value);
}

static void finish_checkpoint(oct_loader *l) {
    oct_job *job = l->job;
    const oct_value *save = value_of(l, "training.save");
    if (save && save->kind == OCT_VALUE_STRING && *save->string) {
        job->job.dump_folder = save->string;
        job->checkpoint.enable = true;
    }
    if (!job->checkpoint.initial_load_path)
        return;
    char *config = oct_path_join(job->checkpoint.initial_load_path, "config.json");
    if (config && oct_path_exists(config)) {
        job->checkpoint.initial_load_in_hf = true;
        job->checkpoint.initial_load_model_only = true;
    }
    oct_free(config);
}

static oct_status finish_shards(oct_loader *l) {
    const oct_setting *setting = setting_of(l, "parallel.fully_shard_parallel_size");
    const oct_value *v = setting->value;
    const oct_value *reshard = value_of(l, "parallel.fsdp_plan.reshard_after_forward");
    l->job->parallelism.fsdp_reshard_after_forward =
        reshard && !reshard->boolean ? OCT_JOB_RESHARD_NEVER : OCT_JOB_RESHARD_ALWAYS;
    l->job->parallelism.data_parallel_shard_degree = -1;
    if (!v || v->kind == OCT_VALUE_NULL ||
        (v->kind == OCT_VALUE_STRING && strcmp(v->string, "auto") == 0))
        return OCT_OK;
    if (v->kind != OCT_VALUE_INT || v->integer < 1 || v->integer > INT32_MAX)
        return oct_loader_fail(l, setting->place, "parallel.fully_shard_parallel_size",
                               "the value is impossible", "auto or an integer of at least 1", v);
    l->job->parallelism.data_parallel_shard_degree = v->integer;
    return OCT_OK;
}

/* `recompute: true`, and `recompute_plan` as a list of patterns or a table that holds one. */
static oct_status finish_recompute_in(oct_loader *l, const char *flag_name, const char *plan_name) {
    const oct_setting *flag = setting_of(l, flag_name), *plan = setting_of(l, plan_name);
    if (flag->value && flag->value->boolean)
        l->job->activation_checkpoint.mode = OCT_JOB_RECOMPUTE_FULL;
    const oct_value *modules = plan->value;
    if (modules && modules->kind == OCT_VALUE_TABLE)
        modules = oct_value_find(modules, "apply_modules");
    if (!modules || modules->kind == OCT_VALUE_NULL)
        return OCT_OK;
    const oct_key row = {.name = plan_name,
                         .type = OCT_KEY_LIST,
                         .fallback = "none",
                         .offset = offsetof(oct_job, activation_checkpoint.apply_modules)};
    return oct_loader_store(l, &row, modules, plan->place);
}

static oct_status finish_recompute(oct_loader *l) {
    l->job->activation_checkpoint.mode = OCT_JOB_RECOMPUTE_NONE;
    oct_status status = finish_recompute_in(l, "parallel.recompute", "parallel.recompute_plan");
    return status ? status
                  : finish_recompute_in(l, "features.recompute", "features.recompute_plan");
}

static oct_status check_plan(oct_loader *l) {
    static const char section[] = PLAN;
    const oct_setting *recipe = setting_of(l, PLAN "recipe_name");
    bool planned = false;
    for (size_t i = 0; i < oct_schema_mindspeed.n; i++)
        planned |= l->state->mindspeed[i].value &&
                   strncmp(oct_schema_mindspeed.keys[i].name, section, sizeof section - 1) == 0;
    /* `--training...recipe_name=none` runs the plan's job without it. */
    bool declined = recipe->value && strcmp(recipe->place, OCT_COMMAND_LINE) == 0;
    if (planned && !declined && !l->job->quantization_plan.recipe_name)
        return oct_fail(l->builder.err, OCT_INVALID,
                        "%s: " PLAN "recipe_name: the key is missing; expected a recipe such as "
                        "mxfp8",
                        l->builder.path);
    if (l->job->quantization_plan.recipe_name && l->job->quantization_plan.apply_modules.n == 0)
        return oct_loader_fail_text(l, PLAN "apply_modules", "the list is empty",
                                    "at least one pattern, such as model.layers.{*}", "[]");
    const oct_job_list *list = &l->job->quantization_plan.quant_converters;
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->items[i], "quantize.linear.mx") != 0 &&
            strcmp(list->items[i], "quantize.moe.mx") != 0)
            return oct_loader_fail_text(l, PLAN "quant_converters", "an unknown converter",
                                        "quantize.linear.mx or quantize.moe.mx", list->items[i]);
    return OCT_OK;
}

oct_status oct_loader_finish_mindspeed(oct_loader *l) {
    oct_status status = finish_model(l);
    if (!status) {
        finish_schedule(l);
        finish_batch(l);
        finish_checkpoint(l);
        status = check_lr_min(l);
    }
    if (!status)
        status = finish_shards(l);
    if (!status)
        status = finish_recompute(l);
    return status ? status : check_plan(l);
}
