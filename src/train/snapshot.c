/* Checkpoints of a run: saving the trainer's state and continuing from it.
 *
 * state.json holds {"version": 1, "steps_done", "n_consumed", "n_tokens_seen", "seed": decimal
 * text, "model_only", "tokenizer": path or null, "data_tokens": of the training data, "overrides":
 * [the command line's], "rules": as quantize.rules names them}. Invariant:
 * what is read back is all that the next step depends on, so a resumed run computes the same bits.
 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "kernel/gemm.h"
#include "kernel/select.h"
#include "op/elementwise.h"
#include "train/collect.h"
#include "quant/rules.h"
#include "train/held.h"
#include "train/setup.h"
#include "train/state.h"
#include "train/variant.h"

enum { STATE_VERSION = 1 };

char *oct_trainer_checkpoint_folder(const oct_trainer *t) {
    return oct_path_join(t->job->job.dump_folder, t->job->checkpoint.folder);
}

static const char *gemm_name(const oct_job *job) {
    if (strcmp(job->quantize.linear.mx.gemm, "auto") != 0)
        return job->quantize.linear.mx.gemm;
    return oct_gemm_supports(OCT_GEMM_ALIGNED) ? "aligned" : "exact";
}

/* ---- saving ---- */

static bool is_model_only(const oct_trainer *t) {
    return t->job->checkpoint.last_save_model_only && t->steps_done >= t->job->training.steps;
}

/* The text of state.json (free with jansson's free), or NULL when memory is refused. */
static char *render_state(const oct_trainer *t) {
    char seed[32];
    char *tokenizer = NULL;
    const char *path =
        t->job->model.tokenizer_path ? t->job->model.tokenizer_path : t->job->model.hf_assets_path;
    if (t->tokenizer)
        tokenizer = realpath(path, NULL);
    snprintf(seed, sizeof seed, "%" PRIu64, t->seed);
    json_t *overrides = json_array();
    for (int i = 0; i < t->options.n_overrides; i++)
        json_array_append_new(overrides, json_string(t->options.overrides[i]));
    json_t *state = json_pack(
        "{s:i, s:I, s:I, s:I, s:s, s:b, s:s?, s:I, s:o, s:s}", "version", STATE_VERSION,
        "steps_done", (json_int_t)t->steps_done, "n_consumed", (json_int_t)t->n_consumed,
        "n_tokens_seen", (json_int_t)t->n_tokens_seen, "seed", seed, "model_only", is_model_only(t),
        "tokenizer", tokenizer, "data_tokens", (json_int_t)oct_dataset_n_tokens(t->train),
        "overrides", overrides, "rules", oct_job_rules(t->job)->name);
    char *text = state ? json_dumps(state, JSON_INDENT(1)) : NULL;
    json_decref(state);
    free(tokenizer);
    return text;
}

static oct_safetensors_item item_of(const oct_param *param, const char *name, float *data) {
    oct_tensor tensor = {.dtype = OCT_F32, .n_dims = param->n_dims, .data = data};
    for (int i = 0; i < param->n_dims; i++)
        tensor.shape[i] = param->shape[i];
    return oct_safetensors_item_of(name, &tensor);
}

static const char *state_name(oct_arena *arena, const char *of, const char *suffix) {
    size_t n = strlen(of) + strlen(suffix) + 1;
    char *name = oct_arena_alloc(arena, n);
    if (name)
        snprintf(name, n, "%s%s", of, suffix);
    return name;
}

/* What a step depends on beside the parameters: two moments a parameter that trains, and the amaxes
 * of modules with a delayed recipe. In `arena`; NULL when memory is refused. The items show the
 * live memory, so that loading may write to where saving reads. */
static oct_safetensors_item *optimizer_items(const oct_trainer *t, oct_arena *arena, int64_t *n) {
    const oct_optimizer *o = t->optimizer;
    const oct_plan *plan = oct_conversion_plan(t->conversion);
    size_t capacity = (size_t)(2 * o->n_params + plan->n_rows) + 1;
    oct_safetensors_item *items = oct_arena_alloc_array(arena, capacity, sizeof *items);
    *n = 0;
    for (int64_t i = 0; i < o->n_params && items; i++) {
        const char *m = state_name(arena, o->params[i]->name, ".exp_avg");
        const char *v = state_name(arena, o->params[i]->name, ".exp_avg_sq");
        if (!m || !v)
            return NULL;
        items[(*n)++] = item_of(o->params[i], m, o->m[i]);
        items[(*n)++] = item_of(o->params[i], v, o->v[i]);
    }
    for (int64_t i = 0; i < plan->n_rows && items; i++) {
        oct_tensor history = oct_plan_row_history(&plan->rows[i]);
        if (!history.data)
            continue;
        const char *name = state_name(arena, plan->rows[i].module->name, ".amax_history");
        if (!name)
            return NULL;
        items[(*n)++] = oct_safetensors_item_of(name, &history);
    }
    return items;
}

/* Rounds the item's data to bf16, in `arena`. */
static oct_status round_item(oct_safetensors_item *item, oct_arena *arena) {
    oct_tensor from = {.dtype = OCT_F32, .n_dims = item->n_dims, .data = (void *)item->data};
    for (int d = 0; d < item->n_dims; d++)
        from.shape[d] = item->shape[d];
    oct_tensor to = from;
    to.dtype = OCT_BF16;
    to.data = oct_arena_alloc(arena, oct_tensor_bytes(&to));
    if (!to.data)
        return OCT_NO_MEMORY;
    *item = oct_safetensors_item_of(item->name, &to);
    return oct_cast(&from, &to);
}

/* The routers' biases: buffers of the model, always fp32. False when memory is refused. */
static bool add_buffers(const oct_trainer *t, oct_arena *arena, oct_safetensors_item *items,
                        int64_t *n) {
    const oct_model_args *args = oct_model_get_args(t->model);
    for (int64_t i = 0; i < args->n_layers; i++) {
        const oct_moe *moe = oct_model_moe(t->model, i);
        if (!moe)
            continue;
        const oct_tensor bias = oct_tensor_1d(OCT_F32, args->num_experts, moe->expert_bias);
        const char *name = state_name(arena, moe->base.name, ".expert_bias");
        if (!name)
            return false;
        items[(*n)++] = oct_safetensors_item_of(name, &bias);
    }
    return true;
}

/* The parameters, for export in the dtype that the job says, and the buffers. */
static oct_safetensors_item *model_items(const oct_trainer *t, oct_arena *arena, int64_t *n) {
    oct_param *const *params = oct_model_params(t->model, n);
    size_t capacity = (size_t)*n + (size_t)oct_model_get_args(t->model)->n_layers;
    bool half = is_model_only(t) && t->job->checkpoint.export_dtype == OCT_JOB_BFLOAT16;
    oct_safetensors_item *items = oct_arena_alloc_array(arena, capacity, sizeof *items);
    for (int64_t i = 0; i < *n && items; i++) {
        items[i] = item_of(params[i], params[i]->name, params[i]->value);
        if (half && !t->ranks.fsdp && round_item(&items[i], arena) != OCT_OK)
            return NULL;
    }
    return items && add_buffers(t, arena, items, n) ? items : NULL;
}

/* The items of a checkpoint, model first; in sharded training those that lie in shards become such
 * that are collected. In t->scratch. */
typedef struct snapshot {
    oct_safetensors_item *items[OCT_CHECKPOINT_N_GROUPS];
    int64_t n[OCT_CHECKPOINT_N_GROUPS];
    oct_collected *collected;
    oct_collector collector;
} snapshot;

/* Parameters, then their state, in the order of the items. */
static int64_t list_collected(const oct_trainer *t, oct_collected *list) {
    const oct_optimizer *o = t->optimizer;
    int64_t n_params, n = 0;
    oct_param *const *params = oct_model_params(t->model, &n_params);
    bool half = is_model_only(t) && t->job->checkpoint.export_dtype == OCT_JOB_BFLOAT16;
    for (int64_t i = 0; i < n_params; i++)
        list[n++] = (oct_collected){params[i], params[i]->value, half ? OCT_BF16 : OCT_F32, NULL};
    for (int64_t i = 0; i < o->n_params && !is_model_only(t); i++) {
        list[n++] = (oct_collected){o->params[i], o->m[i], OCT_F32, NULL};
        list[n++] = (oct_collected){o->params[i], o->v[i], OCT_F32, NULL};
    }
    return n;
}

static oct_status collect_items(oct_trainer *t, snapshot *s) {
    size_t capacity = (size_t)(s->n[OCT_CHECKPOINT_MODEL] + 2 * t->optimizer->n_params);
    s->collected = oct_arena_alloc_array(t->scratch, capacity, sizeof *s->collected);
    if (!s->collected)
        return OCT_NO_MEMORY;
    int64_t n_params, n = list_collected(t, s->collected);
    oct_model_params(t->model, &n_params); /* buffers follow them: those are whole */
    for (int64_t i = 0; i < n; i++) {
        oct_safetensors_item *item = i < n_params
                                         ? &s->items[OCT_CHECKPOINT_MODEL][i]
                                         : &s->items[OCT_CHECKPOINT_OPTIMIZER][i - n_params];
        *item = oct_collector_item(&s->collected[i], item->name);
    }
    const oct_sharding sharding = oct_fsdp_sharding(&t->ranks.comms);
    return oct_collector_open(t->ranks.comms.shard, &sharding, s->collected, n, &s->collector);
}

static oct_status list_items(oct_trainer *t, snapshot *s) {
    s->items[OCT_CHECKPOINT_MODEL] = model_items(t, t->scratch, &s->n[OCT_CHECKPOINT_MODEL]);
    if (!s->items[OCT_CHECKPOINT_MODEL])
        return OCT_NO_MEMORY;
    if (!is_model_only(t)) {
        s->items[OCT_CHECKPOINT_OPTIMIZER] =
            optimizer_items(t, t->scratch, &s->n[OCT_CHECKPOINT_OPTIMIZER]);
        if (!s->items[OCT_CHECKPOINT_OPTIMIZER])
            return OCT_NO_MEMORY;
    }
    return t->ranks.fsdp ? collect_items(t, s) : OCT_OK;
}

static oct_status write_checkpoint(oct_trainer *t, const snapshot *s, const char *folder,
                                   const char *state, const char *config, oct_error *err) {
    bool yaml = t->job->form == OCT_JOB_MINDSPEED;
    oct_checkpoint_contents contents = {.step = t->steps_done,
                                        .state_json = state,
                                        .config_name =
                                            config ? (yaml ? "config.yaml" : "config.toml") : NULL,
                                        .config_text = config,
                                        .kernel_set = oct_kernels_name(oct_kernels_current()),
                                        .gemm = gemm_name(t->job)};
    for (int g = 0; g < OCT_CHECKPOINT_N_GROUPS; g++) {
        contents.tensors[g] = s->items[g];
        contents.n_tensors[g] = s->n[g];
    }
    return oct_checkpoint_save(folder, &contents, t->job->checkpoint.keep_latest_k, err);
}

/* The first rank's part. */
static oct_status save_files(oct_trainer *t, const snapshot *s, oct_error *err) {
    oct_status status = OCT_OK;
    char *folder = oct_trainer_checkpoint_folder(t);
    char *state = render_state(t);
    if (!folder || !state)
        status = oct_fail_memory(err);
    if (status == OCT_OK)
        status = write_checkpoint(t, s, folder, state, t->config_text, err);
    if (status == OCT_OK)
        oct_log_info("Saved checkpoint %s/step-%" PRId64, folder, t->steps_done);
    oct_free(folder);
    free(state);
    return status;
}

/* The ranks that share the first one's copy of the model save it together. A broken exchange ends
 * this rank's part early: then nothing can be agreed on any more. */
static oct_status save_together(oct_trainer *t, snapshot *s, bool *broken, oct_error *err) {
    oct_status status = OCT_OK;
    if (t->ranks.rank == 0)
        status = save_files(t, s, err);
    if (!t->ranks.fsdp || t->ranks.rank >= oct_comm_size(t->ranks.comms.shard))
        return status;
    oct_status shared = t->ranks.rank == 0 ? oct_collector_finish(&s->collector)
                                           : oct_collector_serve(&s->collector);
    oct_collector_close(&s->collector);
    *broken = shared != OCT_OK;
    return status || !shared ? status
                             : oct_fail(err, shared, "the exchange between processes broke");
}

oct_status oct_trainer_save(oct_trainer *t, oct_error *err) {
    snapshot s = {0};
    if (t->spoilt)
        return oct_trainer_fail_spoilt(err);
    oct_arena_mark mark = oct_arena_get_mark(t->scratch);
    oct_status status = list_items(t, &s) ? oct_fail_memory(err) : OCT_OK;
    status = oct_ranks_agree(&t->ranks, status, err);
    bool broken = false;
    if (status == OCT_OK) {
        status = save_together(t, &s, &broken, err);
        status = broken ? status : oct_ranks_agree(&t->ranks, status, err);
    }
    if (status == OCT_OK)
        t->last_saved = t->steps_done;
    oct_collector_close(&s.collector);
    oct_arena_release(t->scratch, mark);
    return status;
}

/* ---- resuming ---- */

static oct_status fail_state(const oct_checkpoint *from, const char *what, oct_error *err) {
    return oct_fail(err, OCT_INVALID, "%s/state.json: %s", oct_checkpoint_path(from), what);
}

/* Counters that a step may be added to; no run comes near the bound. */
static bool is_counter(json_int_t n) {
    return n >= 0 && n <= INT64_MAX / 2;
}

static bool parse_seed(const char *text, uint64_t *seed) {
    char *end;
    errno = 0;
    *seed = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && errno == 0;
}

static void warn_of_other_data(const oct_trainer *t, const json_t *saved) {
    int64_t n = oct_dataset_n_tokens(t->train);
    if (json_is_integer(saved) && json_integer_value(saved) != n)
        oct_log_warning("resumed with other training data: it had %" JSON_INTEGER_FORMAT
                        " tokens, it has %" PRId64 " now",
                        json_integer_value(saved), n);
}

static oct_status read_state(oct_trainer *t, const oct_checkpoint *from, oct_error *err) {
    json_int_t steps_done, n_consumed, n_tokens_seen;
    int version, model_only;
    const char *seed;
    uint64_t saved_seed = 0;
    oct_status status = OCT_OK;
    json_t *state = json_loads(oct_checkpoint_state(from), 0, NULL);
    if (json_unpack(state, "{s:i, s:I, s:I, s:I, s:s, s:b}", "version", &version, "steps_done",
                    &steps_done, "n_consumed", &n_consumed, "n_tokens_seen", &n_tokens_seen, "seed",
                    &seed, "model_only", &model_only) != 0 ||
        version != STATE_VERSION || steps_done != oct_checkpoint_step(from) ||
        !is_counter(n_consumed) || !is_counter(n_tokens_seen) || !parse_seed(seed, &saved_seed))
        status = fail_state(from, "not the state of a training run of this version", err);
    if (status == OCT_OK && model_only && steps_done < t->job->training.steps)
        status = fail_state(from,
                            "the checkpoint holds the model only "
                            "(checkpoint.last_save_model_only = true), so training can't go on "
                            "from it; name an earlier one with checkpoint.load_step",
                            err);
    if (status == OCT_OK) {
        if (t->job->debug.seed >= 0 && saved_seed != t->seed)
            oct_log_warning("the checkpoint's seed %" PRIu64 " is kept; debug.seed = %" PRIu64
                            " has no effect on a resumed run",
                            saved_seed, t->seed);
        warn_of_other_data(t, json_object_get(state, "data_tokens"));
        t->seed = saved_seed;
        t->steps_done = steps_done;
        t->n_consumed = n_consumed;
        t->n_tokens_seen = n_tokens_seen;
        t->last_saved = steps_done;
    }
    json_decref(state);
    return status;
}

static oct_status read_optimizer(oct_trainer *t, const oct_checkpoint *from, oct_error *err) {
    oct_arena_mark mark = oct_arena_get_mark(t->scratch);
    oct_status status = OCT_OK;
    int64_t n;
    t->optimizer->n_steps = t->steps_done;
    if (oct_checkpoint_count(from, OCT_CHECKPOINT_OPTIMIZER) == 0)
        return OCT_OK; /* model only, and all steps are done */
    const oct_safetensors_item *items = optimizer_items(t, t->scratch, &n);
    if (!items)
        status = oct_fail_memory(err);
    for (int64_t i = 0; i < n && status == OCT_OK; i++) {
        const oct_param *param =
            i < 2 * t->optimizer->n_params ? t->optimizer->params[i / 2] : NULL;
        float *held = (float *)items[i].data, *whole = param ? oct_held_whole(param, held) : held;
        oct_tensor to = {.dtype = OCT_F32, .n_dims = items[i].n_dims, .data = whole};
        for (int d = 0; d < to.n_dims; d++)
            to.shape[d] = items[i].shape[d];
        status = whole
                     ? oct_checkpoint_copy(from, OCT_CHECKPOINT_OPTIMIZER, items[i].name, &to, err)
                     : oct_fail_memory(err);
        if (param && whole)
            oct_held_keep(param, held, whole);
    }
    oct_arena_release(t->scratch, mark);
    return status;
}

static void warn_of_other_kernels(const oct_trainer *t, const oct_checkpoint *from) {
    const char *set = oct_kernels_name(oct_kernels_current());
    const char *gemm = gemm_name(t->job);
    if (strcmp(set, oct_checkpoint_kernel_set(from)) != 0 ||
        strcmp(gemm, oct_checkpoint_gemm(from)) != 0)
        oct_log_warning("the checkpoint was made with kernel set %s and gemm %s, this run has %s "
                        "and %s: bits may differ from a run that never stopped",
                        oct_checkpoint_kernel_set(from), oct_checkpoint_gemm(from), set, gemm);
}

/* What decides the numbers of the steps to come, beside what a checkpoint holds. Lengths of a run
 * and learning rates aren't here: those are changed on purpose. */
static const char *const deciding_keys[] = {
    "model.converters",
    "quantize.rules",
    "quantize.linear.mx.recipe_name",
    "quantize.linear.mx.filter_fqns",
    "quantize.linear.mx.scale_mode",
    "quantize.grouped_mm.mx.recipe_name",
    "quantize.grouped_mm.mx.fqns",
    "quantize.grouped_mm.mx.scale_mode",
    "training.quantization_plan.apply_modules",
    "training.quantization_plan.ignored_modules",
    "training.mixed_precision_param",
    "training.dataset_path",
    "training.seq_len",
    "training.local_batch_size",
    "training.global_batch_size",
    "model.tokenizer_path",
    "optimizer.name",
};

static void warn_of_other_value(const oct_job *before, const oct_job *now, const char *key) {
    oct_strbuf was = {0}, is = {0};
    oct_job_render_value(before, key, &was);
    oct_job_render_value(now, key, &is);
    if (!was.failed && !is.failed && strcmp(was.text, is.text) != 0)
        oct_log_warning("resumed with another %s: was %s, is %s", key, was.text, is.text);
    oct_strbuf_free(&was);
    oct_strbuf_free(&is);
}

static void warn_of_another_job(const oct_trainer *t, const oct_checkpoint *from) {
    oct_job before;
    oct_error ignored = {0}; /* a job that isn't there, or that this version refuses */
    if (oct_variant_load_saved(from, NULL, &before, &ignored) == OCT_OK)
        for (size_t i = 0; i < sizeof deciding_keys / sizeof deciding_keys[0]; i++)
            warn_of_other_value(&before, t->job, deciding_keys[i]);
    oct_job_free(&before);
}

/* The checkpoint of the run's own folder that the job asks for; NULL: there are none. */
static oct_status find_own(const oct_trainer *t, oct_checkpoint **from, oct_error *err) {
    int64_t step = t->job->checkpoint.load_step;
    oct_error cause = {0};
    char *folder = oct_trainer_checkpoint_folder(t);
    if (!folder)
        return oct_fail_memory(err);
    oct_status status = oct_checkpoint_find(folder, step, from, &cause);
    if (status == OCT_INVALID && step < 0) /* to save among them would hide what happened */
        oct_fail(err, status, "%s; to begin anew, delete %s or move it away", cause.message,
                 folder);
    else if (status)
        oct_fail(err, status, "%s", cause.message);
    oct_free(folder);
    return status;
}

/* The run's own checkpoint; without one, checkpoint.initial_load_path if the job takes all of it
 * and not the weights alone. NULL: neither. */
static oct_status find_start(const oct_trainer *t, oct_checkpoint **from, oct_error *err) {
    const oct_job *job = t->job;
    *from = NULL;
    oct_status status = job->checkpoint.enable ? find_own(t, from, err) : OCT_OK;
    if (status != OCT_OK || *from || !job->checkpoint.initial_load_path ||
        job->checkpoint.initial_load_model_only || job->checkpoint.initial_load_in_hf)
        return status;
    return oct_checkpoint_open(job->checkpoint.initial_load_path, from, err);
}

oct_status oct_trainer_resume(oct_trainer *t, oct_error *err) {
    oct_checkpoint *from = NULL;
    if (t->options.start == OCT_START_FRESH)
        return OCT_OK;
    oct_status status = find_start(t, &from, err);
    if (status != OCT_OK || !from)
        return status;
    status = read_state(t, from, err);
    if (status == OCT_OK)
        status = oct_setup_parameters_from_checkpoint(from, t->model, err);
    if (status == OCT_OK)
        status = read_optimizer(t, from, err);
    if (status == OCT_OK) {
        warn_of_other_kernels(t, from);
        warn_of_another_job(t, from);
        oct_log_info("Resumed from %s", oct_checkpoint_path(from));
    }
    oct_checkpoint_close(from);
    return status;
}
