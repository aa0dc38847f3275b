/* Units, their parameters and the sizes of their messages: see units.h. */
#include "fsdp/units.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "nn/experts.h"
#include "nn/linear.h"

/* ---- building ---- */

static const oct_plan_row *find_row(const oct_plan *plan, const oct_param *param) {
    for (int64_t i = 0; i < plan->n_rows; i++) {
        const oct_plan_row *row = &plan->rows[i];
        const oct_linear *linear = oct_linear_from(row->module);
        const oct_experts *experts = oct_experts_from(row->module);
        bool found = linear && linear->weight == param;
        for (int w = 0; experts && w < OCT_N_EXPERT_WEIGHTS; w++)
            found |= experts->w[w] == param;
        if (found && row->recipe)
            return row;
    }
    return NULL;
}

/* Where a delayed recipe keeps the weight's amaxes. */
static void find_delayed(oct_slot *slot, oct_module *m) {
    const oct_linear *linear = oct_linear_from(m);
    const oct_experts *experts = oct_experts_from(m);
    slot->delayed = linear ? linear->delayed : experts ? experts->delayed : NULL;
    slot->delayed_slot = OCT_ROLE_WEIGHT;
    for (int w = 0; experts && w < OCT_N_EXPERT_WEIGHTS; w++)
        if (experts->w[w] == slot->param)
            slot->delayed_slot = w * OCT_N_ROLES + OCT_ROLE_WEIGHT;
}

typedef struct building {
    oct_unit *unit;
    const oct_plan *plan;
    const oct_fsdp_config *config;
    const oct_sharding *sharding;
    int rank;
} building;

static void describe(oct_slot *slot, oct_module *owner, oct_param *param, const building *b) {
    const oct_fsdp_config *config = b->config;
    const oct_plan_row *row = find_row(b->plan, param);
    const oct_linear *linear = oct_linear_from(owner);
    int degree = oct_param_degree(param, b->sharding);
    bool bias = linear && linear->bias == param;
    *slot = (oct_slot){.param = param,
                       .shape = oct_param_matrices(param),
                       .sharding = *b->sharding,
                       .place = b->rank % degree,
                       .dense = bias ? OCT_F32 : config->activation};
    slot->shape.E /= degree;
    slot->first_row = slot->place * slot->shape.E * slot->shape.N;
    if (!row)
        return;
    slot->recipe = row->recipe;
    find_delayed(slot, row->module);
    /* A head tied to the embedding: the embedding reads the weight in high precision. */
    slot->low_precision = row->module == owner && (row->is_experts ? config->low_precision_experts
                                                                   : config->low_precision_linears);
}

static oct_status add_params(oct_module *m, void *context) {
    building *b = context;
    oct_unit *unit = oct_experts_from(m) && b->unit->experts ? b->unit->experts : b->unit;
    for (int64_t i = 0; i < m->n_params; i++) {
        oct_slot *slots =
            oct_realloc_array(unit->slots, (size_t)unit->n_slots + 1, sizeof *unit->slots);
        if (!slots)
            return OCT_NO_MEMORY;
        unit->slots = slots;
        describe(&slots[unit->n_slots++], m, m->params[i], b);
    }
    return OCT_OK;
}

static oct_status add_module(building *b, oct_unit *unit, oct_module *m) {
    b->unit = unit;
    return oct_module_visit(m, add_params, b);
}

static oct_status allocate_units(oct_units *units, const oct_model *model,
                                 const oct_sharding *sharding) {
    const oct_model_args *args = oct_model_get_args(model);
    bool tied = args->enable_weight_tying;
    units->n_numbers = args->n_layers + 2;
    for (int64_t i = 0; i < args->n_layers && sharding->expert_degree > 1; i++)
        units->n_expert_units += oct_model_moe(model, i) != NULL;
    units->n_units = units->n_numbers - tied + units->n_expert_units;
    units->units = oct_calloc_array((size_t)units->n_units, sizeof *units->units);
    units->of_number = oct_calloc_array((size_t)units->n_numbers, sizeof *units->of_number);
    if (!units->units || !units->of_number)
        return OCT_NO_MEMORY;
    oct_unit *experts = units->units + units->n_units - units->n_expert_units;
    for (int64_t i = 0; i < units->n_numbers; i++) {
        oct_unit *unit = &units->units[tied && i == args->n_layers + 1 ? 0 : i];
        bool layer = i >= 1 && i <= args->n_layers;
        units->of_number[i] = unit;
        unit->n_members = sharding->n_ranks;
        if (!layer || !units->n_expert_units || !oct_model_moe(model, i - 1))
            continue;
        experts->n_members = sharding->n_ranks / sharding->expert_degree;
        unit->experts = experts++;
    }
    return OCT_OK;
}

static int compare_slots(const void *a, const void *b) {
    uintptr_t x = (uintptr_t)(*(oct_slot *const *)a)->param;
    uintptr_t y = (uintptr_t)(*(oct_slot *const *)b)->param;
    return (x > y) - (x < y);
}

/* Arrays that a run needs beside each slot and unit. */
static oct_status allocate_slots(oct_units *units) {
    int64_t n = 0;
    for (int64_t u = 0; u < units->n_units; u++)
        units->n_slots += units->units[u].n_slots;
    units->by_param = oct_malloc_array((size_t)units->n_slots, sizeof *units->by_param);
    if (!units->by_param)
        return OCT_NO_MEMORY;
    for (int64_t u = 0; u < units->n_units; u++) {
        oct_unit *unit = &units->units[u];
        unit->reductions = oct_calloc_array((size_t)unit->n_slots, sizeof *unit->reductions);
        if (!unit->reductions)
            return OCT_NO_MEMORY;
        for (int64_t s = 0; s < unit->n_slots; s++) {
            oct_slot *slot = &unit->slots[s];
            size_t E = (size_t)slot->shape.E;
            units->by_param[n++] = slot;
            if (!slot->recipe)
                continue;
            slot->whole = oct_calloc_array(E, sizeof *slot->whole);
            slot->local = oct_calloc_array(E, sizeof *slot->local);
            if (!slot->whole || !slot->local)
                return OCT_NO_MEMORY;
            for (int i = 0; i < 2; i++) {
                slot->copies[i] = oct_arena_create_exact();
                slot->local_copies[i] = oct_arena_create_exact();
                if (!slot->copies[i] || !slot->local_copies[i])
                    return OCT_NO_MEMORY;
            }
        }
    }
    qsort(units->by_param, (size_t)n, sizeof *units->by_param, compare_slots);
    return OCT_OK;
}

oct_status oct_units_create(oct_model *model, const oct_plan *plan, const oct_fsdp_config *config,
                            const oct_sharding *sharding, int rank, oct_units *units) {
    building b = {.plan = plan, .config = config, .sharding = sharding, .rank = rank};
    *units = (oct_units){0};
    oct_status status = allocate_units(units, model, sharding);
    int64_t n_layers = units->n_numbers - 2;
    if (!status)
        status = add_module(&b, units->of_number[0],
                            oct_module_find(oct_model_root(model), "tok_embeddings"));
    for (int64_t i = 0; i < n_layers && !status; i++) {
        oct_unit *unit = units->of_number[1 + i];
        unit->block = oct_model_layer(model, i);
        status = add_module(&b, unit, &unit->block->base);
    }
    static const char *const last[] = {"norm", "output"};
    for (int i = 0; i < 2 && !status; i++)
        status = add_module(&b, units->of_number[n_layers + 1],
                            oct_module_find(oct_model_root(model), last[i]));
    if (!status)
        status = allocate_slots(units);
    if (status)
        oct_units_clear(units);
    return status;
}

static void clear_slot(oct_slot *slot) {
    oct_free(slot->amaxes);
    oct_free(slot->local);
    oct_free(slot->whole);
    for (int i = 0; i < 2; i++) {
        oct_arena_destroy(slot->copies[i]);
        oct_arena_destroy(slot->local_copies[i]);
    }
}

void oct_units_clear(oct_units *units) {
    for (int64_t u = 0; u < units->n_units && units->units; u++) {
        oct_unit *unit = &units->units[u];
        for (int64_t s = 0; s < unit->n_slots; s++)
            clear_slot(&unit->slots[s]);
        oct_free(unit->slots);
        oct_free(unit->reductions);
    }
    oct_free(units->units);
    oct_free(units->of_number);
    oct_free(units->by_param);
    *units = (oct_units){0};
}

oct_slot *oct_units_find(const oct_units *units, const oct_param *param) {
    oct_slot wanted = {.param = (oct_param *)param};
    oct_slot *key = &wanted;
    oct_slot **found = bsearch(&key, units->by_param, (size_t)units->n_slots,
                               sizeof *units->by_param, compare_slots);
    return found ? *found : NULL;
}

/* ---- what a phase needs ---- */

static bool is_tied(const oct_units *units) {
    return units->of_number[0] == units->of_number[units->n_numbers - 1];
}

oct_need oct_unit_need(const oct_units *units, int64_t number, oct_phase phase, oct_save save,
                       oct_gather_mode mode) {
    bool head = number == units->n_numbers - 1, saving = save == OCT_SAVE_FOR_BACKWARD;
    const oct_block *block = units->of_number[number]->block;
    oct_need need = {.which = phase == OCT_PHASE_FORWARD ? OCT_ALONG_1 : OCT_ALONG_0,
                     .dense = true};
    if (number == 0 && phase == OCT_PHASE_BACKWARD && !is_tied(units))
        return (oct_need){0}; /* rows are added to its gradient; no weight is read */
    if (head && saving)
        need.which = OCT_ALONG_BOTH;
    if (phase == OCT_PHASE_BACKWARD && block && block->recompute == OCT_RECOMPUTE_FULL)
        need.which = OCT_ALONG_BOTH;
    if (mode == OCT_GATHER_ALL)
        need.which = OCT_ALONG_BOTH;
    return need;
}

bool oct_unit_frees(const oct_units *units, int64_t number, oct_phase phase, oct_save save,
                    oct_reshard reshard) {
    bool saving = save == OCT_SAVE_FOR_BACKWARD;
    bool last_use = phase == OCT_PHASE_BACKWARD || !saving;
    if (is_tied(units) && units->of_number[number] == units->of_number[0])
        return saving ? number == 0 && phase == OCT_PHASE_BACKWARD : number > 0;
    if (number == units->n_numbers - 1)
        return last_use;
    if (number == 0)
        return phase == OCT_PHASE_FORWARD; /* backward doesn't read it */
    return last_use || reshard == OCT_RESHARD_AFTER_FORWARD;
}

/* ---- messages ---- */

bool oct_scales_travel(const oct_qmatrix *q) {
    return q->scaling == OCT_SCALING_MX || (q->scaling == OCT_SCALING_ROW && !q->transposed);
}

int oct_slot_copies(const oct_slot *slot, oct_along which, oct_along held, int dims[2]) {
    int n = 0;
    if (oct_recipe_shares_copies(slot->recipe, OCT_ROLE_WEIGHT)) {
        dims[0] = 1;
        return which && !held;
    }
    which &= ~(unsigned)held;
    if (which & OCT_ALONG_1)
        dims[n++] = 1;
    if (which & OCT_ALONG_0)
        dims[n++] = 0;
    return n;
}

static int rank_of(const oct_slot *slot, int member) {
    return member * oct_param_degree(slot->param, &slot->sharding) + slot->place;
}

oct_rows oct_slot_rows(const oct_slot *slot, int member) {
    oct_rows rows = oct_shard_rows(slot->param, &slot->sharding, rank_of(slot, member));
    rows.first -= slot->first_row;
    return rows;
}

oct_rows oct_slot_matrix_rows(const oct_slot *slot, int64_t e, int member) {
    int64_t matrix = slot->first_row / slot->shape.N + e;
    return oct_shard_matrix_rows(slot->param, &slot->sharding, matrix, rank_of(slot, member));
}

/* Codes of n rows of a matrix of the slot. */
static size_t code_bytes_of_rows(const oct_slot *slot, int64_t n, oct_along which, oct_along held) {
    int dims[2], n_dims = oct_slot_copies(slot, which, held, dims);
    size_t n_bytes = 0;
    for (int i = 0; n && i < n_dims; i++) {
        oct_qmatrix q = oct_qmatrix_shape(slot->recipe, OCT_ROLE_WEIGHT, n, slot->shape.K, dims[i]);
        n_bytes += (size_t)(q.rows * q.cols);
        n_bytes += oct_scales_travel(&q) ? oct_qmatrix_scale_bytes(&q) : 0;
    }
    return n_bytes;
}

static size_t slot_code_bytes(const oct_slot *slot, oct_along which, oct_along held, int member) {
    size_t n_bytes = 0;
    for (int64_t e = 0; e < slot->shape.E; e++)
        n_bytes += code_bytes_of_rows(slot, oct_slot_matrix_rows(slot, e, member).n, which, held);
    return n_bytes;
}

/* Shards begin at blocks of rows, so the parts of a matrix have as many scales as the whole. */
size_t oct_slot_all_code_bytes(const oct_slot *slot, oct_along which, oct_along held) {
    return (size_t)slot->shape.E * code_bytes_of_rows(slot, slot->shape.N, which, held);
}

static size_t slot_dense_bytes(const oct_slot *slot, int member) {
    return (size_t)(oct_slot_rows(slot, member).n * slot->shape.K) * oct_dtype_bytes(slot->dense);
}

size_t oct_unit_code_bytes(const oct_unit *unit, oct_along which, oct_along held, int member) {
    size_t n_bytes = 0;
    for (int64_t s = 0; s < unit->n_slots && which; s++)
        if (unit->slots[s].low_precision)
            n_bytes += slot_code_bytes(&unit->slots[s], which, held, member);
    return n_bytes;
}

size_t oct_unit_dense_bytes(const oct_unit *unit, int member) {
    size_t n_bytes = 0;
    for (int64_t s = 0; s < unit->n_slots; s++)
        if (!unit->slots[s].low_precision)
            n_bytes += slot_dense_bytes(&unit->slots[s], member);
    return n_bytes;
}
