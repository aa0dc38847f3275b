/* What the keys of a MindSpeed MM job mean: see mindspeed.h. */
#include "config/mindspeed.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/count.h"
#include "base/fs.h"
#include "config/refusals.h"
#include "config/store.h"
#include "quant/recipe.h"

#define PLAN "training.quantization_plan."
#define LINEAR "quantize.linear.mx."
#define GROUPED "quantize.grouped_mm.mx."

enum { MAX_KEY = 128 };

static oct_setting *setting_of(const oct_loader *l, const char *name) {
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

/* A text that the row's check let pass; NULL when it isn't given. */
static const char *text_of(const oct_loader *l, const char *name) {
    const oct_value *v = value_of(l, name);
    return v && v->kind == OCT_VALUE_STRING && *v->string ? v->string : NULL;
}

/* ---- spellings ---- */

/* Takes what `also` was set to for `main`; OCT_INVALID when both are set in one place. */
static oct_status merge(oct_loader *l, const char *main, const char *also) {
    oct_setting *to = setting_of(l, main), *from = setting_of(l, also);
    if (!from->value)
        return OCT_OK;
    bool overridden = to->value && strcmp(to->place, OCT_COMMAND_LINE) == 0;
    bool overrides = strcmp(from->place, OCT_COMMAND_LINE) == 0;
    if (to->value && overridden == overrides) {
        const char *other = to->name ? to->name : main;
        oct_status status = oct_fail(l->builder.err, OCT_INVALID,
                                     "%s: %s%s: it is given as %s too; expected one of them",
                                     from->place, oct_loader_dashes(from->place), also, other);
        *from = (oct_setting){0};
        return status;
    }
    if (!overridden)
        *to = (oct_setting){from->value, from->place, also};
    *from = (oct_setting){0};
    return OCT_OK;
}

oct_status oct_loader_merge_spellings(oct_loader *l) {
    oct_status status = OCT_OK;
    for (size_t i = 0; i < oct_schema_mindspeed.n && !status; i++) {
        const oct_key *key = &oct_schema_mindspeed.keys[i];
        if (key->target && strcmp(key->target, key->name) != 0 &&
            oct_schema_find(&oct_schema_mindspeed, key->target, strlen(key->target)))
            status = oct_loader_refuse(l, merge(l, key->target, key->name), OCT_REFUSED_BY_PLACE);
    }
    return status;
}

/* ---- model, schedule, data ---- */

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
    for (size_t i = 0; i < OCT_COUNT(ids); i++)
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
    const char *format = text_of(l, "training.load_format");
    const oct_value *save = value_of(l, "training.save");
    if (save && save->kind == OCT_VALUE_STRING && *save->string) {
        job->job.dump_folder = save->string;
        job->checkpoint.enable = true;
    }
    if (!job->checkpoint.initial_load_path)
        return;
    job->checkpoint.initial_load_in_hf =
        format && strcmp(format, "auto") != 0
            ? strcmp(format, "hf") == 0
            : oct_path_is_hf_folder(job->checkpoint.initial_load_path);
    if (job->checkpoint.initial_load_in_hf)
        job->checkpoint.initial_load_model_only = true;
}

/* Validation in the numbers and on the data that the file names. */
static oct_status finish_validation(oct_loader *l) {
    static const char section[] = "data.val_dataset_param.";
    oct_job *job = l->job;
    int64_t interval = (int64_t)number_of(l, "training.val_interval", 0);
    bool own = false;
    for (size_t i = 0; i < oct_schema_mindspeed.n; i++)
        own |= l->state->mindspeed[i].value &&
               strncmp(oct_schema_mindspeed.keys[i].name, section, sizeof section - 1) == 0;
    job->validation.local_batch_size = (int64_t)number_of(l, "training.val_micro_batch_size",
                                                          (double)job->training.local_batch_size);
    job->validation.seq_len =
        (int64_t)number_of(l, "data.val_dataset_param.basic_parameters.cutoff_len",
                           own ? 1024 : (double)job->training.seq_len);
    if (!job->validation.dataset_path)
        job->validation.dataset_path =
            text_of(l, "data.dataset_param.basic_parameters.val_dataset");
    job->validation.enable = interval > 0;
    if (interval == 0)
        return OCT_OK;
    job->validation.freq = interval;
    if (job->validation.dataset_path)
        return OCT_OK;
    const oct_setting *setting = setting_of(l, "training.val_interval");
    return oct_loader_fail(l, setting->place, "training.val_interval",
                           "there is no data to validate on",
                           "data.val_dataset_param.basic_parameters.dataset, or 0", setting->value);
}

/* What can't be saved so. After the command line had its say whether anything is saved. */
static oct_status check_save(oct_loader *l, const char *name, const char *good, const char *what) {
    const oct_setting *setting = setting_of(l, name);
    const char *text = text_of(l, name);
    if (!text || !l->job->checkpoint.enable || l->job->checkpoint.load_only || strstr(good, text))
        return OCT_OK;
    return oct_loader_fail(l, setting->place, name, what, good, setting->value);
}

oct_status oct_loader_check_mindspeed(oct_loader *l) {
    oct_status status = oct_loader_refuse(l,
                                          check_save(l, "training.save_format", "auto or dcp",
                                                     "a run saves checkpoints of its own form"),
                                          OCT_REFUSED_BY_PLACE);
    if (status)
        return status;
    return oct_loader_refuse(
        l, check_save(l, "training.save_ckpt_dtype", "fp32", "a checkpoint holds the fp32 masters"),
        OCT_REFUSED_BY_PLACE);
}

/* FSDP2's MixedPrecisionPolicy: without a param_dtype nothing is cast, and the parameters are fp32
 * (mindspeed_mm/fsdp/params/parallel_args.py, distributed/fully_shard_parallel.py). */
static void finish_dtypes(oct_loader *l) {
    const char *param = text_of(l, "parallel.fsdp_plan.param_dtype");
    l->job->training.mixed_precision_param =
        param && strcmp(param, "bf16") == 0 ? OCT_JOB_BFLOAT16 : OCT_JOB_FLOAT32;
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

/* `recompute: true`, and `recompute_plan` as a list of patterns or a section that holds one. */
static oct_status finish_recompute_in(oct_loader *l, const char *flag_name, const char *plan_name) {
    char list_name[64];
    snprintf(list_name, sizeof list_name, "%s.apply_modules", plan_name);
    const oct_setting *flag = setting_of(l, flag_name), *plan = setting_of(l, plan_name);
    if (flag->value && flag->value->kind == OCT_VALUE_BOOL && flag->value->boolean)
        l->job->activation_checkpoint.mode = OCT_JOB_RECOMPUTE_FULL;
    if (!plan->value)
        plan = setting_of(l, list_name);
    const oct_value *modules = plan->value;
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

static oct_status check_plan_converter(oct_loader *l, const char *name) {
    if (strcmp(name, "quantize.linear.mx") == 0 || strcmp(name, "quantize.moe.mx") == 0)
        return OCT_OK;
    return oct_loader_refuse_item(
        l, oct_loader_fail_text(l, PLAN "quant_converters", "an unknown converter",
                                "quantize.linear.mx or quantize.moe.mx", name));
}

static oct_status check_plan(oct_loader *l) {
    static const char section[] = PLAN;
    const oct_setting *recipe = setting_of(l, PLAN "recipe_name");
    bool planned = false;
    for (size_t i = 0; i < oct_schema_mindspeed.n; i++)
        planned |= l->state->mindspeed[i].value &&
                   strncmp(oct_schema_mindspeed.keys[i].name, section, sizeof section - 1) == 0;
    if (recipe->value && recipe->value->kind == OCT_VALUE_STRING && !*recipe->value->string)
        return oct_loader_fail(l, recipe->place, PLAN "recipe_name", "the name is empty",
                               "a recipe such as mxfp8, or none", recipe->value);
    /* `--training...recipe_name=none` runs the plan's job without it. */
    bool declined = recipe->value && strcmp(recipe->place, OCT_COMMAND_LINE) == 0;
    if (planned && !declined && !l->job->quantization_plan.recipe_name)
        return oct_fail(l->builder.err, OCT_INVALID,
                        "%s: " PLAN "recipe_name: the key is missing; expected a recipe such as "
                        "mxfp8",
                        l->builder.path);
    if (!l->job->quantization_plan.recipe_name)
        return OCT_OK;
    if (l->job->quantization_plan.apply_modules.n == 0 &&
        oct_loader_refuse(l,
                          oct_loader_fail_text(l, PLAN "apply_modules", "the list is empty",
                                               "at least one pattern, such as model.layers.{*}",
                                               "[]"),
                          OCT_REFUSED_BY_PLACE))
        return OCT_NO_MEMORY;
    const oct_job_list *list = &l->job->quantization_plan.quant_converters;
    oct_status status = OCT_OK;
    for (size_t i = 0; i < list->n && !status; i++)
        status = check_plan_converter(l, list->items[i]);
    return status;
}

/* ---- the plan ---- */

/* MindSpeed LLM's defaults, for a plan in its words. */
static void finish_llm_plan(oct_loader *l) {
    static const char *const ignored[] = {"*lm_head", "*gate"};
    static const char *const converters[] = {"quantize.linear.mx"};
    const char *name = setting_of(l, PLAN "recipe_name")->name;
    if (!name || strcmp(name, "model.quant_recipe_name") != 0)
        return;
    if (!value_of(l, PLAN "ignored_modules"))
        l->job->quantization_plan.ignored_modules = (oct_job_list){ignored, 2};
    if (!value_of(l, PLAN "quant_converters"))
        l->job->quantization_plan.quant_converters = (oct_job_list){converters, 1};
}

static oct_status finish_quant_gmm(oct_loader *l) {
    static const char experts[] = "quantize.moe.mx";
    const oct_value *flag = value_of(l, PLAN "quant_gmm");
    oct_job_list *list = &l->job->quantization_plan.quant_converters;
    if (!flag || flag->kind != OCT_VALUE_BOOL || !flag->boolean)
        return OCT_OK;
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->items[i], experts) == 0)
            return OCT_OK;
    const char **items = oct_arena_alloc_array(l->builder.arena, list->n + 1, sizeof *items);
    if (!items)
        return oct_fail_memory(l->builder.err);
    for (size_t i = 0; i < list->n; i++)
        items[i] = list->items[i];
    items[list->n] = experts;
    *list = (oct_job_list){items, list->n + 1};
    return OCT_OK;
}

/* The recipe with the formats that `quant_format` names: an mxfp8 recipe takes any of E4M3 and
 * E5M2; another must have them already. */
static oct_status finish_format(oct_loader *l) {
    static const struct {
        const char *word, *roles; /* of inputs, weights and gradients */
        oct_dtype inputs, grads;
    } formats[] = {{"E4M3", "E4M3_E4M3_E4M3", OCT_E4M3, OCT_E4M3},
                   {"E5M2", "E5M2_E5M2_E5M2", OCT_E5M2, OCT_E5M2},
                   {"HYBRID", "E4M3_E4M3_E5M2", OCT_E4M3, OCT_E5M2},
                   {"HIF8", NULL, OCT_HIF8, OCT_HIF8}};
    enum { N_FORMATS = OCT_COUNT(formats), RECIPE_BYTES = 48 };
    const oct_setting *setting = setting_of(l, PLAN "quant_format");
    const char *word = text_of(l, PLAN "quant_format"), **name;
    const char *key = setting->name ? setting->name : PLAN "quant_format";
    name = &l->job->quantization_plan.recipe_name;
    oct_recipe recipe;
    int i = 0;
    if (!word)
        return OCT_OK;
    while (i < N_FORMATS && strcasecmp(word, formats[i].word) != 0)
        i++;
    if (i == N_FORMATS)
        return oct_loader_fail(l, setting->place, key, "the format is unknown",
                               "one of E4M3, E5M2, HYBRID, HIF8", setting->value);
    if (!*name || oct_recipe_parse(*name, &recipe, NULL) ||
        (recipe.format[OCT_ROLE_INPUT] == formats[i].inputs &&
         recipe.format[OCT_ROLE_GRAD] == formats[i].grads))
        return OCT_OK;
    if (recipe.granularity != OCT_MX)
        return oct_loader_fail(l, setting->place, key, "the recipe has other formats",
                               "no format beside such a recipe", setting->value);
    if (!formats[i].roles)
        return oct_loader_fail(l, setting->place, key,
                               "HiF8 is for one scale a tensor, and the recipe is for blocks",
                               "the recipe hif8 instead", setting->value);
    char *text = oct_arena_alloc(l->builder.arena, RECIPE_BYTES);
    if (!text)
        return oct_fail_memory(l->builder.err);
    snprintf(text, RECIPE_BYTES, "dynamic_mx-1-%d-32_%s", (int)recipe.weight_block_rows,
             formats[i].roles);
    *name = text;
    return OCT_OK;
}

static oct_status check_block_size(oct_loader *l) {
    const oct_setting *setting = setting_of(l, PLAN "block_size");
    if (number_of(l, PLAN "block_size", 32) == 32)
        return OCT_OK;
    return oct_loader_fail(l, setting->place, setting->name ? setting->name : PLAN "block_size",
                           "a block has 32 elements", "32", setting->value);
}

static oct_status finish_plan(oct_loader *l) {
    finish_llm_plan(l);
    return finish_quant_gmm(l);
}

static oct_status finish_optimizer(oct_loader *l) {
    enum { ADAMW_SWAP = 2 }; /* the row's third word */
    if ((unsigned)l->job->optimizer.name == ADAMW_SWAP)
        l->job->optimizer.name = OCT_JOB_ADAMW;
    return OCT_OK;
}

/* ---- the command line's keys of quantize.*.mx ---- */

static const oct_setting *titan_setting(const oct_loader *l, const char *name) {
    const oct_key *key = oct_schema_find(&oct_schema_titan, name, strlen(name));
    return &l->state->titan[key - oct_schema_titan.keys];
}

static bool is_in_plan(const oct_key *key) {
    return strncmp(key->name, PLAN, strlen(PLAN)) == 0;
}

/* Keys of the TOML form that a YAML job has under other names, in other words. */
static oct_status refuse_foreign_keys(oct_loader *l) {
    static const struct {
        const char *name, *what, *expected;
    } keys[] = {
        {"model.converters", "a YAML job names what it quantizes in its plan",
         "--" PLAN "quant_converters"},
        {LINEAR "filter_fqns", "a YAML job names modules by patterns of its own",
         "--" PLAN "ignored_modules"},
        {GROUPED "fqns", "a YAML job names modules by patterns of its own",
         "--" PLAN "apply_modules"},
    };
    oct_status status = OCT_OK;
    for (size_t i = 0; i < OCT_COUNT(keys) && !status; i++) {
        const oct_setting *setting = titan_setting(l, keys[i].name);
        if (setting->value)
            status =
                oct_loader_refuse(l,
                                  oct_loader_fail(l, setting->place, keys[i].name, keys[i].what,
                                                  keys[i].expected, setting->value),
                                  OCT_REFUSED_BY_PLACE);
    }
    return status;
}

/* The command line takes the keys of both forms. One thing under two names there has two values; in
 * a plan, which speaks of linears and experts at once, each may still have its own. */
static oct_status refuse_two_names(oct_loader *l) {
    oct_status status = OCT_OK;
    if (l->reading != OCT_JOB_READ_STRICT && l->reading != OCT_JOB_READ_ARMS)
        return OCT_OK;
    for (size_t i = 0; i < oct_schema_mindspeed.n && !status; i++) {
        const oct_key *key = &oct_schema_mindspeed.keys[i];
        const oct_setting *own = &l->state->mindspeed[i];
        if (!key->target || is_in_plan(key) || !own->value ||
            strcmp(own->place, OCT_COMMAND_LINE) != 0 ||
            !oct_schema_find(&oct_schema_titan, key->target, strlen(key->target)) ||
            !titan_setting(l, key->target)->value)
            continue;
        const char *name = own->name ? own->name : key->name;
        status = oct_fail(l->builder.err, OCT_INVALID,
                          "%s: --%s: it is given as --%s too; expected one of them", own->place,
                          name, key->target);
        status = oct_loader_refuse(l, status, OCT_REFUSED_BY_PLACE);
    }
    return status;
}

/* No file of this form could hold what the command line says in words of the other. */
static oct_status refuse_saved_config(oct_loader *l) {
    static const char key[] = "job.save_config_file";
    const oct_setting *setting = titan_setting(l, key);
    if (!setting->value || setting->value->kind == OCT_VALUE_NULL)
        return OCT_OK;
    return oct_loader_fail(l, setting->place, key,
                           "effective values of a YAML job have names of both forms, which no "
                           "file can hold",
                           "--job.print_config, or nothing: checkpoints hold the job and its "
                           "command line",
                           setting->value);
}

static bool converts(const oct_loader *l, const char *name) {
    const oct_job_list *list = &l->job->quantization_plan.quant_converters;
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->items[i], name) == 0)
            return true;
    return false;
}

/* The plan has one recipe and one way to gather; the command line may give linears and experts each
 * their own. Without a plan, or without the converter, such a key would do nothing. */
static oct_status check_quantize_keys(oct_loader *l, const char *section, const char *converter) {
    bool declined = value_of(l, PLAN "recipe_name") != NULL; /* none, to try the job without it */
    const char *what = declined ? PLAN "recipe_name is none" : "the job has no plan";
    oct_status status = OCT_OK;
    if (l->reading != OCT_JOB_READ_STRICT)
        return OCT_OK;
    for (size_t i = 0; i < oct_schema_titan.n && !status; i++) {
        const oct_key *key = &oct_schema_titan.keys[i];
        const oct_setting *setting = &l->state->titan[i];
        if (!setting->value || key->kind != OCT_KEY_USED ||
            strncmp(key->name, section, strlen(section)) != 0)
            continue;
        if (!l->job->quantization_plan.recipe_name)
            status = oct_loader_fail(l, setting->place, key->name, what,
                                     "a recipe in --" PLAN "recipe_name beside it", setting->value);
        else if (!converts(l, converter))
            status = oct_fail(l->builder.err, OCT_INVALID,
                              "%s: --%s: the plan doesn't have its converter; expected %s in " PLAN
                              "quant_converters",
                              setting->place, key->name, converter);
        status = oct_loader_refuse(l, status, OCT_REFUSED_BY_PLACE);
    }
    return status;
}

static void take_from_plan(oct_loader *l, oct_job_mx *mx) {
    if (l->job->quantization_plan.recipe_name)
        mx->recipe_name = l->job->quantization_plan.recipe_name;
    mx->enable_fsdp_low_precision_all_gather =
        l->job->quantization_plan.enable_fsdp_low_precision_all_gather;
    mx->fsdp_low_precision_all_gather_mode =
        l->job->quantization_plan.fsdp_low_precision_all_gather_mode;
}

/* What the command line says of a plan that it turns off itself would do nothing. (The file's plan
 * stays what it is: to try a job without it is what `none` is for.) */
static oct_status check_declined_plan(oct_loader *l) {
    const oct_setting *recipe = setting_of(l, PLAN "recipe_name");
    bool off = recipe->value && !l->job->quantization_plan.recipe_name;
    oct_status status = OCT_OK;
    for (size_t i = 0; i < oct_schema_mindspeed.n && off && !status; i++) {
        const oct_key *key = &oct_schema_mindspeed.keys[i];
        const oct_setting *setting = &l->state->mindspeed[i];
        if (l->reading != OCT_JOB_READ_STRICT || setting == recipe || !is_in_plan(key) ||
            !oct_setting_is_asked_for(setting))
            continue;
        status = oct_loader_fail(l, setting->place, setting->name ? setting->name : key->name,
                                 PLAN "recipe_name is none",
                                 "a recipe in place of none, or nothing", setting->value);
        status = oct_loader_refuse(l, status, OCT_REFUSED_BY_PLACE);
    }
    return status;
}

static oct_status check_linear_keys(oct_loader *l) {
    return check_quantize_keys(l, LINEAR, "quantize.linear.mx");
}

static oct_status check_expert_keys(oct_loader *l) {
    return check_quantize_keys(l, GROUPED, "quantize.moe.mx");
}

/* ---- chat data ---- */

/* The column of roles that the data set of the section names; NULL: none. */
static const char *chat_column(const oct_loader *l, const char *section, char name[MAX_KEY]) {
    static const char *const columns[] = {"messages", "prompt", "query", "response", "formatting"};
    for (size_t i = 0; i < OCT_COUNT(columns); i++) {
        snprintf(name, MAX_KEY, "%sattr.%s", section, columns[i]);
        const oct_value *value = value_of(l, name);
        if (value && value->kind != OCT_VALUE_NULL)
            return name;
    }
    return NULL;
}

/* What a chat's template and masks are decides which tokens count in the loss. */
static oct_status check_chat_of(oct_loader *l, const char *section) {
    char column[MAX_KEY], key[MAX_KEY];
    const char *chat = chat_column(l, section, column);
    oct_status status = OCT_OK;
    for (size_t i = 0; i < OCT_N_CHAT_KEYS && chat && !status; i++) {
        snprintf(key, sizeof key, "%sbasic_parameters.%s", section, oct_chat_keys[i]);
        const oct_setting *setting = setting_of(l, key);
        if (setting->value && setting->value->kind != OCT_VALUE_NULL)
            status = oct_fail(l->builder.err, OCT_INVALID,
                              "%s: %s%s: it decides the loss of chat data, which isn't supported; "
                              "expected plain text; got columns of roles: %s",
                              setting->place, oct_loader_dashes(setting->place), key, chat);
        status = oct_loader_refuse(l, status, OCT_REFUSED_BY_PLACE);
    }
    return status;
}

static oct_status check_chat(oct_loader *l) {
    oct_status status = OCT_OK;
    for (size_t i = 0; i < OCT_N_DATASETS && !status; i++)
        status = check_chat_of(l, oct_datasets[i]);
    return status;
}

oct_status oct_loader_finish_mindspeed(oct_loader *l) {
    static oct_status (*const parts[])(oct_loader *) = {
        check_lr_min,        finish_validation,   finish_shards,     finish_recompute,
        finish_optimizer,    finish_plan,         finish_format,     check_plan,
        check_block_size,    refuse_foreign_keys, refuse_two_names,  refuse_saved_config,
        check_declined_plan, check_linear_keys,   check_expert_keys, check_chat};
    oct_status status = oct_loader_refuse(l, finish_model(l), OCT_REFUSED_MODEL);
    finish_schedule(l);
    finish_batch(l);
    finish_dtypes(l);
    finish_checkpoint(l);
    for (size_t i = 0; i < OCT_COUNT(parts) && !status; i++)
        status = oct_loader_refuse(l, parts[i](l), OCT_REFUSED_BY_PLACE);
    take_from_plan(l, &l->job->quantize.linear.mx);
    take_from_plan(l, &l->job->quantize.grouped_mm.mx);
    return status;
}
