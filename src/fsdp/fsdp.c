/* The life of a step in shards: see fsdp.h. */
#include "fsdp/fsdp.h"

#include <string.h>

#include "base/alloc.h"
#include "fsdp/gather.h"
#include "fsdp/units.h"

struct oct_fsdp {
    oct_model *model;
    oct_units units;
    oct_fsdp_config config;
    oct_fsdp_comms comms; /* not owned */
    oct_token_exchange exchange;
    size_t *exchange_bytes; /* (4, ranks of a team): sizes and places, of what goes and comes */
    oct_buffers buffers;
    oct_arena *scratch;
    oct_unit *reducing;    /* whose gradients are under way; NULL: none */
    uint64_t amax_version; /* sum of the masters' versions that the amaxes belong to; 0: none */
    oct_unit_hooks hooks;
    oct_weight_source source;
    oct_weights *attached;
    oct_step *step;
};

/* ---- shards ---- */

oct_sharding oct_fsdp_sharding(const oct_fsdp_comms *comms) {
    return (oct_sharding){.n_ranks = oct_comm_size(comms->shard),
                          .expert_degree = comms->team ? oct_comm_size(comms->team) : 1};
}

oct_status oct_fsdp_split_experts(oct_fsdp_comms *comms, int expert_degree) {
    int rank = oct_comm_rank(comms->shard);
    oct_status status = oct_comm_split(comms->shard, rank / expert_degree, &comms->team);
    return status ? status : oct_comm_split(comms->shard, rank % expert_degree, &comms->experts);
}

oct_status oct_fsdp_shard(oct_model *model, const oct_sharding *sharding, int rank) {
    int64_t n;
    oct_param *const *params = oct_model_params(model, &n);
    for (int64_t i = 0; i < n; i++) {
        oct_param *param = params[i];
        oct_rows rows = oct_shard_rows(param, sharding, rank);
        int64_t K = oct_param_matrices(param).K;
        param->first = rows.first * K;
        param->n_held = rows.n * K;
        param->value = oct_calloc_array((size_t)param->n_held, sizeof *param->value);
        if (!param->value)
            return OCT_NO_MEMORY;
    }
    return OCT_OK;
}

/* Who gathers the unit together. */
static oct_comm *members(const oct_fsdp *f, const oct_unit *unit) {
    bool experts = unit >= f->units.units + f->units.n_units - f->units.n_expert_units;
    return experts ? f->comms.experts : f->comms.shard;
}

/* ---- tokens ---- */

static oct_status move_tokens(void *user, const void *send, const int64_t *n_send, void *receive,
                              const int64_t *n_receive, size_t item_bytes) {
    const oct_fsdp *f = user;
    int n = oct_comm_size(f->comms.team);
    size_t *to = f->exchange_bytes, *from = to + 2 * n, to_at = 0, from_at = 0;
    oct_comm_request request = {0};
    for (int r = 0; r < n; r++) {
        to[r] = (size_t)n_send[r] * item_bytes;
        to[n + r] = to_at;
        to_at += to[r];
        from[r] = (size_t)n_receive[r] * item_bytes;
        from[n + r] = from_at;
        from_at += from[r];
    }
    oct_status status = oct_comm_all_to_all_begin(f->comms.team, send, to, to + n, receive, from,
                                                  from + n, OCT_TRAFFIC_ALL_TO_ALL, &request);
    return status ? status : oct_comm_end(&request);
}

/* Each mixture of experts knows how many experts are here; `exchange` NULL: all. */
static void tell_experts(const oct_fsdp *f, const oct_token_exchange *exchange) {
    for (int64_t i = 0; i < oct_model_get_args(f->model)->n_layers; i++) {
        oct_moe *moe = oct_model_moe(f->model, i);
        if (!moe)
            continue;
        moe->exchange = exchange;
        moe->experts->n_experts = moe->config.rule.n_experts / (exchange ? exchange->n_ranks : 1);
    }
}

/* ---- gradients ---- */

static int64_t n_elements(const oct_slot *slot) {
    return slot->shape.E * slot->shape.N * slot->shape.K;
}

static bool trains(const oct_slot *slot) {
    return !slot->param->frozen;
}

/* Waits for the unit's sums, which lie at this shard's rows of the whole gradient, adds them to the
 * shard's gradient and gives the memory back. */
static oct_status finish_sums(oct_unit *unit) {
    oct_status status = OCT_OK;
    if (!unit->gradients)
        return OCT_OK;
    const float *at = (const float *)unit->gradients->data;
    for (int64_t s = 0; s < unit->n_slots; s++) {
        const oct_slot *slot = &unit->slots[s];
        oct_param *param = slot->param;
        if (!trains(slot))
            continue;
        oct_status ended = oct_comm_end(&unit->reductions[s]);
        status = status ? status : ended;
        const float *sums = at + (param->first - slot->first_row * slot->shape.K);
        for (int64_t i = 0; i < param->n_held && !status; i++)
            param->grad[i] += sums[i];
        at += n_elements(slot);
    }
    oct_buffers_give_back(unit->gradients);
    unit->gradients = NULL;
    return status;
}

static oct_status finish_reduction(oct_fsdp *f) {
    oct_status status = OCT_OK;
    for (oct_unit *unit = f->reducing; unit; unit = unit->experts) {
        oct_status ended = finish_sums(unit);
        status = status ? status : ended;
    }
    f->reducing = NULL;
    return status;
}

/* The shard's gradient waits in the slot while the module adds to the whole. */
static oct_status lend_gradients(oct_fsdp *f, oct_unit *unit) {
    size_t n = 0;
    if (unit->gradients)
        return OCT_OK; /* a tied unit, under its second number */
    for (int64_t s = 0; s < unit->n_slots; s++)
        n += trains(&unit->slots[s]) ? (size_t)n_elements(&unit->slots[s]) : 0;
    if (n == 0)
        return OCT_OK;
    unit->gradients = oct_buffers_take(&f->buffers, n * sizeof(float));
    if (!unit->gradients)
        return OCT_NO_MEMORY;
    float *at = (float *)unit->gradients->data;
    memset(at, 0, n * sizeof *at);
    for (int64_t s = 0; s < unit->n_slots; s++) {
        oct_slot *slot = &unit->slots[s];
        if (!trains(slot))
            continue;
        slot->shard_grad = slot->param->grad;
        slot->param->grad = at;
        at += n_elements(slot);
    }
    return OCT_OK;
}

static oct_status begin_sums(oct_unit *unit, oct_comm *comm) {
    int n_ranks = oct_comm_size(comm), rank = oct_comm_rank(comm);
    oct_status status = OCT_OK;
    if (!unit->gradients)
        return OCT_OK;
    int64_t *counts = oct_malloc_array(2 * (size_t)n_ranks, sizeof *counts);
    if (!counts)
        return OCT_NO_MEMORY;
    for (int64_t s = 0; s < unit->n_slots && !status; s++) {
        oct_slot *slot = &unit->slots[s];
        if (!trains(slot))
            continue;
        float *whole = slot->param->grad;
        slot->param->grad = slot->shard_grad;
        for (int r = 0; r < n_ranks; r++) {
            oct_rows rows = oct_slot_rows(slot, r);
            counts[r] = rows.n * slot->shape.K;
            counts[n_ranks + r] = rows.first * slot->shape.K;
        }
        status = oct_comm_reduce_scatter_begin(comm, whole, whole + counts[n_ranks + rank], counts,
                                               counts + n_ranks, OCT_TRAFFIC_REDUCE_SCATTER,
                                               &unit->reductions[s]);
    }
    oct_free(counts);
    return status;
}

static oct_status begin_reduction(oct_fsdp *f, oct_unit *unit) {
    oct_status status = finish_reduction(f);
    f->reducing = unit;
    for (; unit && !status; unit = unit->experts)
        status = begin_sums(unit, members(f, unit));
    return status;
}

/* ---- units come and go ---- */

static uint64_t version_of(const oct_units *units) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < units->n_slots; i++)
        sum += units->by_param[i]->param->version;
    return sum;
}

/* A pass begins: nothing of another one is used, and scales of new masters are found. */
static oct_status begin_pass(oct_fsdp *f) {
    for (int64_t i = 0; i < f->units.n_units; i++)
        oct_gather_release(&f->units.units[i]);
    uint64_t version = version_of(&f->units);
    if (version == f->amax_version)
        return OCT_OK;
    f->amax_version = version;
    int64_t n_experts = f->units.n_expert_units, n = f->units.n_units - n_experts;
    oct_status status = oct_gather_amaxes(f->units.units, n, f->comms.shard, f->scratch);
    if (status || n_experts == 0)
        return status;
    return oct_gather_amaxes(f->units.units + n, n_experts, f->comms.experts, f->scratch);
}

/* The unit and, where they are apart, its experts. */
static oct_status ensure(oct_fsdp *f, oct_unit *unit, oct_need need) {
    oct_status status = OCT_OK;
    for (; unit && !status; unit = unit->experts)
        status = oct_gather_ensure(unit, need, members(f, unit), &f->buffers);
    return status;
}

static oct_status begin_gather(oct_fsdp *f, oct_unit *unit, oct_need need) {
    oct_status status = OCT_OK;
    for (; unit && !status; unit = unit->experts)
        status = oct_gather_begin(unit, need, members(f, unit), &f->buffers);
    return status;
}

static oct_status lend(oct_fsdp *f, oct_unit *unit) {
    oct_status status = OCT_OK;
    for (; unit && !status; unit = unit->experts)
        status = lend_gradients(f, unit);
    return status;
}

/* What runs after unit `number`; false: nothing that reads weights. */
static bool next_unit(const oct_fsdp *f, const oct_step *step, int64_t *number, oct_phase *phase) {
    int64_t head = f->units.n_numbers - 1;
    if (*phase == OCT_PHASE_BACKWARD)
        return --*number > 0;
    if (*number < head) {
        ++*number;
        return true;
    }
    *number = head - 1;
    *phase = OCT_PHASE_BACKWARD;
    return step->save == OCT_SAVE_FOR_BACKWARD && *number > 0;
}

static oct_need need_of(const oct_fsdp *f, const oct_step *step, int64_t number, oct_phase phase) {
    return oct_unit_need(&f->units, number, phase, step->save, f->config.mode);
}

/* The gather of the next unit is under way before this one's is waited for, so that the wire isn't
 * idle while weights are put together, quantized and packed. */
static oct_status before(void *user, const oct_step *step, int64_t number, oct_phase phase) {
    oct_fsdp *f = user;
    oct_unit *unit = f->units.of_number[number];
    oct_need need = need_of(f, step, number, phase);
    int64_t next = number;
    oct_phase next_phase = phase;
    oct_status status = OCT_OK;
    if (number == 0 && phase == OCT_PHASE_FORWARD)
        status = begin_pass(f);
    if (!status)
        status = begin_gather(f, unit, need);
    if (!status && next_unit(f, step, &next, &next_phase))
        status = begin_gather(f, f->units.of_number[next], need_of(f, step, next, next_phase));
    if (!status)
        status = ensure(f, unit, need);
    if (!status && phase == OCT_PHASE_BACKWARD)
        status = lend(f, unit);
    return status;
}

static oct_status after(void *user, const oct_step *step, int64_t number, oct_phase phase) {
    oct_fsdp *f = user;
    oct_unit *unit = f->units.of_number[number];
    oct_status status = OCT_OK;
    bool frees = oct_unit_frees(&f->units, number, phase, step->save, f->config.reshard);
    for (oct_unit *u = unit; u && frees; u = u->experts)
        oct_gather_release(u);
    bool tied = unit == f->units.of_number[0];
    if (phase == OCT_PHASE_BACKWARD && (!tied || number == 0))
        status = begin_reduction(f, unit);
    if (!status && phase == OCT_PHASE_BACKWARD && number == 0)
        status = finish_reduction(f);
    return status;
}

/* ---- answering modules ---- */

static oct_status dense(void *user, const oct_param *param, oct_dtype dtype, oct_tensor *out) {
    oct_fsdp *f = user;
    const oct_slot *slot = oct_units_find(&f->units, param);
    return slot ? oct_gather_dense(slot, dtype, out) : OCT_INVALID;
}

static oct_status quantized(void *user, const oct_param *param, int64_t expert,
                            const oct_recipe *recipe, oct_along which, oct_amax *amax,
                            oct_quantized *out) {
    oct_fsdp *f = user;
    oct_slot *slot = oct_units_find(&f->units, param);
    return slot ? oct_gather_quantized(slot, expert, recipe, which, amax, out) : OCT_INVALID;
}

/* ---- public ---- */

oct_status oct_fsdp_create(oct_model *model, const oct_plan *plan, const oct_fsdp_config *config,
                           const oct_fsdp_comms *comms, oct_fsdp **out) {
    const oct_sharding sharding = oct_fsdp_sharding(comms);
    oct_fsdp *f = oct_calloc_array(1, sizeof *f);
    oct_status status = OCT_NO_MEMORY;
    if (!f)
        return status;
    f->model = model;
    f->config = *config;
    f->comms = *comms;
    f->exchange = (oct_token_exchange){f, sharding.expert_degree, move_tokens};
    f->exchange_bytes = oct_calloc_array(4 * (size_t)sharding.expert_degree, sizeof(size_t));
    f->hooks = (oct_unit_hooks){f, before, after};
    f->source = (oct_weight_source){f, dense, quantized};
    f->scratch = oct_arena_create();
    if (f->scratch && f->exchange_bytes)
        status = oct_units_create(model, plan, config, &sharding, oct_comm_rank(comms->shard),
                                  &f->units);
    if (status) {
        oct_fsdp_destroy(f);
        return status;
    }
    if (comms->team)
        tell_experts(f, &f->exchange);
    *out = f;
    return OCT_OK;
}

void oct_fsdp_destroy(oct_fsdp *f) {
    if (!f)
        return;
    if (f->step) {
        f->step->hooks = NULL;
        oct_weights_set_source(f->step->weights, NULL);
    }
    finish_reduction(f);
    for (int64_t i = 0; i < f->units.n_units; i++)
        oct_gather_release(&f->units.units[i]);
    tell_experts(f, NULL);
    oct_units_clear(&f->units);
    oct_free(f->exchange_bytes);
    oct_buffers_clear(&f->buffers);
    oct_arena_destroy(f->scratch);
    oct_free(f);
}

void oct_fsdp_attach(oct_fsdp *f, oct_step *step) {
    f->step = step;
    step->hooks = &f->hooks;
    oct_weights_set_source(step->weights, &f->source);
}

oct_status oct_fsdp_finish_gradients(oct_fsdp *f) {
    oct_status status = OCT_OK;
    if (!f->comms.replicate)
        return OCT_OK;
    for (int64_t u = 0; u < f->units.n_units; u++)
        for (int64_t s = 0; s < f->units.units[u].n_slots && !status; s++) {
            const oct_slot *slot = &f->units.units[u].slots[s];
            if (trains(slot) && slot->param->n_held)
                status = oct_comm_sum_f32(f->comms.replicate, slot->param->grad,
                                          slot->param->n_held, OCT_TRAFFIC_REDUCE_SCATTER);
        }
    return status;
}
