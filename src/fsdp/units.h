/* The units of a model and what each gathers: decided once, from shapes and plan alone, so that
 * `octet plan` knows the bytes that a run will move.
 *
 * Units are numbered as nn/step.h says: the embedding, the layers, norm and head. Where the head is
 * tied to the embedding they are one unit under both numbers. With expert parallelism the experts
 * of a layer are a unit of their own that comes and goes with the layer's (`experts`): fewer ranks
 * gather it, those that share the same experts.
 *
 * The ranks that gather a unit together are its members, numbered as in their communicator.
 * Internal to src/fsdp. */
#ifndef OCT_FSDP_UNITS_H
#define OCT_FSDP_UNITS_H

#include "comm/comm.h"
#include "fsdp/buffers.h"
#include "fsdp/fsdp.h"
#include "fsdp/sharding.h"
#include "quant/qmatrix.h"

/* A parameter in its unit. */
typedef struct oct_slot {
    oct_param *param;
    oct_matrices
        shape;         /* of what is gathered: the parameter, or this rank's share of the experts */
    int64_t first_row; /* where that begins in the parameter */
    oct_sharding sharding;
    int place;                  /* of this rank in its team; 0 for what isn't of experts */
    oct_dtype dense;            /* of the whole weight, where it's gathered in high precision */
    const oct_recipe *recipe;   /* of its products; NULL: high precision */
    const oct_delayed *delayed; /* with a delayed recipe: the module's, and where in it */
    int64_t delayed_slot;
    bool low_precision; /* codes and scales are gathered; else the weight, to be quantized here */

    /* Low precision: the amaxes of the whole weight, (E) per tensor, (E,K) per channel, else NULL;
     * the copies of this shard's rows, (E). */
    float *amaxes;
    oct_quantized *local;
    oct_arena *local_copies[2];
    uint64_t local_version; /* that they were made from */
    oct_along local_held;

    /* While the unit is gathered: */
    void *values;         /* the whole weight in high precision; NULL: not gathered so */
    oct_quantized *whole; /* (E) */
    oct_arena *copies[2]; /* of `whole`, where it's quantized here */

    float *shard_grad; /* of the parameter, while `grad` is lent */
} oct_slot;

/* A gather under way: receive[0] of codes and scales, receive[1] of high precision. */
typedef struct oct_gather {
    bool active;
    oct_along which, held; /* brings which (0: no codes) to a unit that has held */
    bool dense;
    oct_buffer *receive[2];
    oct_comm_request requests[2];
} oct_gather;

#define OCT_MAX_ASSEMBLED 4

typedef struct oct_unit {
    struct oct_unit *experts; /* with expert parallelism: the layer's experts; else NULL */
    int n_members;
    oct_slot *slots;
    int64_t n_slots;
    oct_block *block; /* a layer's, for its recompute; else NULL */

    oct_along held; /* what is here of the low-precision slots */
    bool dense_held;
    oct_gather gather;
    oct_buffer *assembled[OCT_MAX_ASSEMBLED];
    int n_assembled;

    oct_buffer *gradients;        /* whole, fp32, slot after slot; NULL: none now */
    oct_comm_request *reductions; /* (n_slots) */
} oct_unit;

typedef struct oct_units {
    oct_unit *units;
    int64_t n_units, n_expert_units; /* experts come last */
    oct_unit **of_number;            /* (n_layers + 2) */
    int64_t n_numbers;
    oct_slot **by_param; /* all slots, by the parameter's address */
    int64_t n_slots;
} oct_units;

/* As `rank` of the sharding sees them. */
oct_status oct_units_create(oct_model *model, const oct_plan *plan, const oct_fsdp_config *config,
                            const oct_sharding *sharding, int rank, oct_units *units);
void oct_units_clear(oct_units *units);
oct_slot *oct_units_find(const oct_units *units, const oct_param *param); /* NULL: unknown */

/* What unit `number` needs in a phase. */
typedef struct oct_need {
    oct_along which;
    bool dense;
} oct_need;
oct_need oct_unit_need(const oct_units *units, int64_t number, oct_phase phase, oct_save save,
                       oct_gather_mode mode);
/* Whether its weights go after the phase. */
bool oct_unit_frees(const oct_units *units, int64_t number, oct_phase phase, oct_save save,
                    oct_reshard reshard);

/* Whether the scales of a copy travel: those that follow from reduced amaxes don't. */
bool oct_scales_travel(const oct_qmatrix *q);
/* The copies that bring `which` to a unit that has `held`: none, one or two dimensions, in dims. */
int oct_slot_copies(const oct_slot *slot, oct_along which, oct_along held, int dims[2]);
/* The rows of the slot, and of its matrix e, that a member holds; counted from the slot's first. */
oct_rows oct_slot_rows(const oct_slot *slot, int member);
oct_rows oct_slot_matrix_rows(const oct_slot *slot, int64_t e, int member);
/* Bytes of a member's segment of a unit's message. */
size_t oct_unit_code_bytes(const oct_unit *unit, oct_along which, oct_along held, int member);
size_t oct_unit_dense_bytes(const oct_unit *unit, int member);
/* The codes and scales of a slot in the segments of all members together, whatever their number. */
size_t oct_slot_all_code_bytes(const oct_slot *slot, oct_along which, oct_along held);

#endif
