/* The bytes that a pass will move, found by walking the units as a pass does: see fsdp.h. */
#include "fsdp/fsdp.h"
#include "fsdp/units.h"

typedef struct walk {
    oct_units units;
    const oct_fsdp_config *config;
    int n_shards;
    oct_fsdp_traffic *traffic;
} walk;

static int64_t sum_segments(const oct_unit *unit, oct_need need, const walk *w, bool codes) {
    size_t n = 0;
    for (int r = 0; r < w->n_shards; r++)
        n += codes ? oct_unit_code_bytes(unit, need.which, unit->held, r, w->n_shards)
                   : oct_unit_dense_bytes(unit, r, w->n_shards);
    return (int64_t)n;
}

/* What the slot costs in this gather, and what in bf16, where one gather brings it once. */
static void count_slots(const oct_unit *unit, oct_need need, bool dense, bool first,
                        const walk *w) {
    oct_fsdp_traffic *t = w->traffic;
    for (int64_t s = 0; s < unit->n_slots; s++) {
        const oct_slot *slot = &unit->slots[s];
        size_t n_bytes = 0;
        for (int r = 0; r < w->n_shards; r++) {
            if (slot->low_precision && need.which)
                n_bytes += oct_slot_code_bytes(slot, need.which, unit->held, r, w->n_shards);
            else if (!slot->low_precision && dense)
                n_bytes += oct_slot_dense_bytes(slot, r, w->n_shards);
        }
        int64_t in_bf16 = first ? 2 * slot->shape.E * slot->shape.N * slot->shape.K : 0;
        t->all_in_bf16 += in_bf16;
        if (!slot->recipe)
            continue;
        t->converted += (int64_t)n_bytes;
        t->converted_in_bf16 += in_bf16;
    }
}

static void run_unit(const walk *w, int64_t number, oct_phase phase) {
    oct_unit *unit = w->units.of_number[number];
    oct_need need = oct_unit_need(&w->units, number, phase, OCT_SAVE_FOR_BACKWARD, w->config->mode);
    bool nothing_held = !unit->held && !unit->dense_held, dense = need.dense && !unit->dense_held;
    need.which &= ~(unsigned)unit->held;
    if (need.which)
        w->traffic->gather_8bit += sum_segments(unit, need, w, true);
    if (dense)
        w->traffic->gather_high += sum_segments(unit, need, w, false);
    count_slots(unit, need, dense, nothing_held && (need.which || dense), w);
    unit->held |= need.which;
    unit->dense_held |= dense;
    if (oct_unit_frees(&w->units, number, phase, OCT_SAVE_FOR_BACKWARD, w->config->reshard)) {
        unit->held = 0;
        unit->dense_held = false;
    }
}

static int64_t gradient_bytes(const oct_units *units) {
    int64_t n = 0;
    for (int64_t i = 0; i < units->n_slots; i++) {
        const oct_slot *slot = units->by_param[i];
        if (!slot->param->frozen)
            n += 4 * slot->shape.E * slot->shape.N * slot->shape.K;
    }
    return n;
}

/* Each byte that a rank brings arrives at all others of its group. */
static void scale_to_ranks(oct_fsdp_traffic *t, int64_t n_shards, int64_t n_replicas) {
    int64_t *const counts[] = {&t->gather_8bit, &t->gather_high,       &t->reduce_scatter,
                               &t->converted,   &t->converted_in_bf16, &t->all_in_bf16};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        *counts[i] *= (n_shards - 1) * n_replicas;
}

oct_status oct_fsdp_plan_traffic(oct_model *model, const oct_plan *plan,
                                 const oct_fsdp_config *config, int n_shards, int n_replicas,
                                 oct_fsdp_traffic *traffic) {
    walk w = {.config = config, .n_shards = n_shards, .traffic = traffic};
    *traffic = (oct_fsdp_traffic){0};
    oct_status status = oct_units_create(model, plan, config, &w.units);
    if (status)
        return status;
    for (int64_t i = 0; i < w.units.n_numbers; i++)
        run_unit(&w, i, OCT_PHASE_FORWARD);
    for (int64_t i = w.units.n_numbers - 1; i >= 0; i--)
        run_unit(&w, i, OCT_PHASE_BACKWARD);
    traffic->reduce_scatter = gradient_bytes(&w.units);
    traffic->replicate = traffic->reduce_scatter * n_replicas * (n_replicas - 1);
    scale_to_ranks(traffic, n_shards, n_replicas);
    oct_units_clear(&w.units);
    return OCT_OK;
}
