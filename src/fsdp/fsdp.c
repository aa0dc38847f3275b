/* The life of a step in shards: see fsdp.h. */
#include "fsdp/fsdp.h"

#include <string.h>

#include "base/alloc.h"
#include "fsdp/gather.h"
#include "fsdp/units.h"

struct oct_fsdp {
    oct_units units;
    oct_fsdp_config config;
    oct_comm *shard, *replicate; /* not owned */
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

oct_status oct_fsdp_shard(oct_model *model, int rank, int n_ranks) {
    int64_t n;
    oct_param *const *params = oct_model_params(model, &n);
    for (int64_t i = 0; i < n; i++) {
        oct_param *param = params[i];
        oct_rows rows = oct_shard_rows(param, rank, n_ranks);
        int64_t K = oct_param_matrices(param).K;
        param->first = rows.first * K;
        param->n_held = rows.n * K;
        param->value = oct_calloc_array((size_t)param->n_held, sizeof *param->value);
        if (!param->value)
            return OCT_NO_MEMORY;
    }
    return OCT_OK;
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
static oct_status finish_reduction(oct_fsdp *f) {
    oct_unit *unit = f->reducing;
    oct_status status = OCT_OK;
    if (!unit)
        return OCT_OK;
    f->reducing = NULL;
    const float *at = (const float *)unit->gradients->data;
    for (int64_t s = 0; s < unit->n_slots; s++) {
        oct_param *param = unit->slots[s].param;
        if (!trains(&unit->slots[s]))
            continue;
        oct_status ended = oct_comm_end(&unit->reductions[s]);
        status = status ? status : ended;
        for (int64_t i = 0; i < param->n_held && !status; i++)
            param->grad[i] += at[param->first + i];
        at += n_elements(&unit->slots[s]);
    }
    oct_buffers_give_back(unit->gradients);
    unit->gradients = NULL;
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

static oct_status begin_reduction(oct_fsdp *f, oct_unit *unit) {
    int n_ranks = oct_comm_size(f->shard), rank = oct_comm_rank(f->shard);
    oct_status status = finish_reduction(f);
    if (status || !unit->gradients)
        return status;
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
            oct_rows rows = oct_shard_rows(slot->param, r, n_ranks);
            counts[r] = rows.n * slot->shape.K;
            counts[n_ranks + r] = rows.first * slot->shape.K;
        }
        status = oct_comm_reduce_scatter_begin(f->shard, whole, whole + counts[n_ranks + rank],
                                               counts, counts + n_ranks, OCT_TRAFFIC_REDUCE_SCATTER,
                                               &unit->reductions[s]);
    }
    oct_free(counts);
    f->reducing = unit;
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
    return oct_gather_amaxes(&f->units, f->shard, f->scratch);
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

static oct_status before(void *user, const oct_step *step, int64_t number, oct_phase phase) {
    oct_fsdp *f = user;
    oct_unit *unit = f->units.of_number[number];
    oct_status status = OCT_OK;
    if (number == 0 && phase == OCT_PHASE_FORWARD)
        status = begin_pass(f);
    if (!status)
        status = oct_gather_ensure(unit, need_of(f, step, number, phase), f->shard, &f->buffers);
    if (!status && phase == OCT_PHASE_BACKWARD)
        status = lend_gradients(f, unit);
    if (status || !next_unit(f, step, &number, &phase))
        return status;
    return oct_gather_begin(f->units.of_number[number], need_of(f, step, number, phase), f->shard,
                            &f->buffers);
}

static oct_status after(void *user, const oct_step *step, int64_t number, oct_phase phase) {
    oct_fsdp *f = user;
    oct_unit *unit = f->units.of_number[number];
    oct_status status = OCT_OK;
    bool frees = oct_unit_frees(&f->units, number, phase, step->save, f->config.reshard);
    if (frees)
        oct_gather_release(unit);
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
                           oct_comm *shard, oct_comm *replicate, oct_fsdp **out) {
    oct_fsdp *f = oct_calloc_array(1, sizeof *f);
    oct_status status = OCT_NO_MEMORY;
    if (!f)
        return status;
    f->config = *config;
    f->shard = shard;
    f->replicate = replicate;
    f->hooks = (oct_unit_hooks){f, before, after};
    f->source = (oct_weight_source){f, dense, quantized};
    f->scratch = oct_arena_create();
    if (f->scratch)
        status = oct_units_create(model, plan, config, &f->units);
    if (status)
        oct_fsdp_destroy(f);
    else
        *out = f;
    return status;
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
    oct_units_clear(&f->units);
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
    if (!f->replicate)
        return OCT_OK;
    for (int64_t u = 0; u < f->units.n_units; u++)
        for (int64_t s = 0; s < f->units.units[u].n_slots && !status; s++) {
            const oct_slot *slot = &f->units.units[u].slots[s];
            if (trains(slot) && slot->param->n_held)
                status = oct_comm_sum_f32(f->replicate, slot->param->grad, slot->param->n_held,
                                          OCT_TRAFFIC_REDUCE_SCATTER);
        }
    return status;
}
