/* Saving a run: see trainer_state.h. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "job/model_record.h"
#include "kernel/gemm.h"
#include "kernel/select.h"
#include "op/elementwise.h"
#include "job/setup.h"
#include "quant/rules.h"
#include "train/trainer_state.h"
#include "train/whole_tensors.h"

char *oct_trainer_checkpoint_folder(const oct_trainer *t) {
    return oct_path_join(t->job->job.dump_folder, t->job->checkpoint.folder);
}

const char *oct_trainer_gemm_name(const oct_job *job) {
    oct_gemm_mode mode = oct_setup_gemm(&job->quantize.linear.mx);
    if (mode == OCT_GEMM_AUTO)
        mode = oct_gemm_supports(OCT_GEMM_FAST) ? OCT_GEMM_FAST : OCT_GEMM_EXACT;
    return oct_gemm_mode_name(mode);
}

static bool is_model_only(const oct_trainer *t) {
    return t->job->checkpoint.last_save_model_only && t->steps_done >= t->job->training.steps;
}

/* Puts `name`: a hash as a checkpoint has it, 16 digits; null where there is nothing. */
static int put_hash(json_t *state, const char *name, bool there, uint64_t hash) {
    char text[32];
    snprintf(text, sizeof text, "%016" PRIx64, hash);
    return json_object_set_new(state, name, there ? json_string(text) : json_null());
}

/* What the run reads, by contents: names may be others where it goes on. */
static int put_sources(const oct_trainer *t, json_t *state) {
    const oct_dataset *validation = t->validation;
    return json_object_set_new(state, "data_tokens",
                               json_integer((json_int_t)oct_dataset_n_tokens(t->train))) |
           put_hash(state, "data_hash", true, oct_dataset_hash(t->train)) |
           put_hash(state, "validation_hash", validation,
                    validation ? oct_dataset_hash(validation) : 0) |
           put_hash(state, "tokenizer_hash", t->tokenizer,
                    t->tokenizer ? oct_tokenizer_hash(t->tokenizer) : 0);
}

static int put_model(const oct_trainer *t, json_t *state) {
    oct_strbuf text = {0};
    oct_model_record_put(oct_model_get_args(t->parts.model), &text);
    json_t *record = text.failed ? NULL : json_loads(text.text, 0, NULL);
    oct_strbuf_free(&text);
    return json_object_set_new(state, "model", record);
}

const char *const oct_measured_names[OCT_N_MEASURED] = {"loss", "grad_norm", "lr"};

static int put_measured(const oct_trainer *t, json_t *state) {
    json_t *measured = json_object();
    int failed = 0;
    for (int i = 0; i < OCT_N_MEASURED; i++)
        failed |= json_object_set_new(measured, oct_measured_names[i], json_real(t->measured[i]));
    failed |= json_object_set(state, "measured", measured);
    json_decref(measured);
    return failed;
}

static json_t *list_overrides(const oct_trainer *t) {
    json_t *overrides = json_array();
    for (int i = 0; i < t->options.n_overrides; i++)
        json_array_append_new(overrides, json_string(t->options.overrides[i]));
    return overrides;
}

/* The text of state.json (free with jansson's free), or NULL when memory is refused. */
static char *render_state(const oct_trainer *t) {
    char seed[32];
    snprintf(seed, sizeof seed, "%" PRIu64, t->seed);
    json_t *state = json_pack(
        "{s:i, s:I, s:I, s:I, s:s, s:b, s:s?, s:o, s:i, s:s}", "version", OCT_STATE_VERSION,
        "steps_done", (json_int_t)t->steps_done, "n_consumed", (json_int_t)t->n_consumed,
        "n_tokens_seen", (json_int_t)t->n_tokens_seen, "seed", seed, "model_only", is_model_only(t),
        "tokenizer", oct_portable_tokenizer(&t->files), "overrides", list_overrides(t),
        "recipe_overrides", t->options.n_recipe_overrides, "rules", oct_job_rules(t->job)->name);
    bool whole = state && put_sources(t, state) == 0 && put_model(t, state) == 0 &&
                 (!t->has_measured || put_measured(t, state) == 0);
    char *text = whole ? json_dumps(state, JSON_INDENT(1)) : NULL;
    json_decref(state);
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

oct_safetensors_item *oct_trainer_optimizer_items(const oct_trainer *t, oct_arena *arena,
                                                  int64_t *n) {
    const oct_optimizer *o = t->optimizer;
    const oct_plan *plan = oct_conversion_plan(t->parts.conversion);
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
    const oct_model_args *args = oct_model_get_args(t->parts.model);
    for (int64_t i = 0; i < args->n_layers; i++) {
        const oct_moe *moe = oct_model_moe(t->parts.model, i);
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
    oct_param *const *params = oct_model_params(t->parts.model, n);
    size_t capacity = (size_t)*n + (size_t)oct_model_get_args(t->parts.model)->n_layers;
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
    oct_param *const *params = oct_model_params(t->parts.model, &n_params);
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
    oct_model_params(t->parts.model, &n_params); /* buffers follow them: those are whole */
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
            oct_trainer_optimizer_items(t, t->scratch, &s->n[OCT_CHECKPOINT_OPTIMIZER]);
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
                                        .kernel_set = oct_kernels_current()->name,
                                        .gemm = oct_trainer_gemm_name(t->job),
                                        .files = t->files.files,
                                        .n_files = t->files.n};
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
    if (!status)
        status = write_checkpoint(t, s, folder, state, t->config_text, err);
    if (!status)
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
    if (!status) {
        status = save_together(t, &s, &broken, err);
        status = broken ? status : oct_ranks_agree(&t->ranks, status, err);
    }
    if (!status)
        t->last_saved = t->steps_done;
    oct_collector_close(&s.collector);
    oct_arena_release(t->scratch, mark);
    return status;
}
