/* The bytes that a pass will move, found by walking the units as a pass does: see fsdp.h. */
#include "fsdp/fsdp.h"
#include "fsdp/units.h"

typedef struct walk {
    oct_units units;
    const oct_fsdp_config *config;
    int64_t n_ranks; /* of all replicas */
    oct_fsdp_traffic *traffic;
} walk;

/* Each byte that a member brings arrives at all others; as many groups as there are do so. */
static int64_t n_copies(const oct_unit *unit, const walk *w) {
    return (unit->n_members - 1) * (w->n_ranks / unit->n_members);
}

/* What all members bring of a slot in this gather. */
static int64_t slot_bytes(const oct_slot *slot, oct_need need, oct_along held, bool dense) {
    if (slot->low_precision)
        return need.which ? (int64_t)oct_slot_all_code_bytes(slot, need.which, held) : 0;
    int64_t n = slot->shape.E * slot->shape.N * slot->shape.K;
    return dense ? n * (int64_t)oct_dtype_bytes(slot->dense) : 0;
}

/* What each slot costs in this gather, and what in bf16, where one gather brings it once. */
static void count_slots(const oct_unit *unit, oct_need need, bool dense, bool first,
                        const walk *w) {
    oct_fsdp_traffic *t = w->traffic;
    for (int64_t s = 0; s < unit->n_slots; s++) {
        const oct_slot *slot = &unit->slots[s];
        int64_t n_bytes = slot_bytes(slot, need, unit->held, dense) * n_copies(unit, w);
        if (slot->low_precision)
            t->gather_8bit += n_bytes;
        else
            t->gather_high += n_bytes;
        int64_t n = slot->shape.E * slot->shape.N * slot->shape.K;
        int64_t in_bf16 = first ? 2 * n * n_copies(unit, w) : 0;
        t->all_in_bf16 += in_bf16;
        if (!slot->recipe)
            continue;
        t->converted += n_bytes;
        t->converted_in_bf16 += in_bf16;
    }
}

static void run_unit(const walk *w, oct_unit *unit, int64_t number, oct_phase phase) {
    oct_need need = oct_unit_need(&w->units, number, phase, OCT_SAVE_FOR_BACKWARD, w->config->mode);
    bool nothing_held = !unit->held && !unit->dense_held, dense = need.dense && !unit->dense_held;
    need.which &= ~(unsigned)unit->held;
    count_slots(unit, need, dense, nothing_held && (need.which || dense), w);
    unit->held |= need.which;
    unit->dense_held |= dense;
    if (oct_unit_frees(&w->units, number, phase, OCT_SAVE_FOR_BACKWARD, w->config->reshard)) {
        unit->held = 0;
        unit->dense_held = false;
    }
}

static void run_number(const walk *w, int64_t number, oct_phase phase) {
    for (oct_unit *unit = w->units.of_number[number]; unit; unit = unit->experts)
        run_unit(w, unit, number, phase);
}

static void count_gradients(const walk *w, int64_t n_replicas) {
    for (int64_t u = 0; u < w->units.n_units; u++) {
        const oct_unit *unit = &w->units.units[u];
        for (int64_t s = 0; s < unit->n_slots; s++) {
            const oct_slot *slot = &unit->slots[s];
            int64_t n_bytes = 4 * slot->shape.E * slot->shape.N * slot->shape.K;
            if (slot->param->frozen)
                continue;
            w->traffic->reduce_scatter += n_bytes * n_copies(unit, w);
            /* each copy's shards together are the whole, and each goes to the other copies */
            w->traffic->replicate += n_bytes * (w->n_ranks / unit->n_members) * (n_replicas - 1);
        }
    }
}

/* Of one layer: tokens go and come in forward and in backward, and in a recompute, whose results
 * are needed only where weights multiply them. */
static int64_t layer_token_bytes(const oct_model *model, int64_t layer, const walk *w,
                                 int64_t degree, int64_t n_tokens) {
    const oct_moe *moe = oct_model_moe(model, layer);
    bool again = oct_model_layer(model, layer)->recompute == OCT_RECOMPUTE_FULL;
    if (!moe)
        return 0;
    const oct_routing_rule *rule = &moe->config.rule;
    int64_t row = moe->config.dim * (int64_t)oct_dtype_bytes(w->config->activation);
    int64_t n_rows = n_tokens * rule->n_active / degree * (degree - 1);
    int64_t n_counts = rule->n_experts / degree * (degree - 1);
    int64_t n_moves = 4 + (again ? moe->config.score_before_experts ? 1 : 2 : 0);
    return w->n_ranks *
           (n_moves * n_rows * row + (again ? 2 : 1) * n_counts * (int64_t)sizeof(int64_t));
}

oct_status oct_fsdp_plan_traffic(oct_model *model, const oct_plan *plan,
                                 const oct_fsdp_config *config, const oct_sharding *sharding,
                                 int n_replicas, int64_t n_tokens, oct_fsdp_traffic *traffic) {
    int64_t n_ranks = (int64_t)sharding->n_ranks * n_replicas;
    walk w = {.config = config, .n_ranks = n_ranks, .traffic = traffic};
    *traffic = (oct_fsdp_traffic){0};
    oct_status status = oct_units_create(model, plan, config, sharding, 0, &w.units);
    if (status)
        return status;
    for (int64_t i = 0; i < w.units.n_numbers; i++)
        run_number(&w, i, OCT_PHASE_FORWARD);
    for (int64_t i = w.units.n_numbers - 1; i >= 0; i--)
        run_number(&w, i, OCT_PHASE_BACKWARD);
    count_gradients(&w, n_replicas);
    for (int64_t i = 0; i < w.units.n_numbers - 2 && sharding->expert_degree > 1; i++)
        traffic->all_to_all += layer_token_bytes(model, i, &w, sharding->expert_degree, n_tokens);
    oct_units_clear(&w.units);
    return OCT_OK;
}
