/* Fully sharded training: each process keeps a shard of every parameter, gradient and optimizer
 * state; whole weights exist for the unit that runs and the one that comes next.
 *
 * A unit is a layer, the embedding, or norm and head. Its weights are gathered while the unit
 * before computes, and freed after it; its gradients are whole while its backward runs, then
 * reduce-scattered in fp32 while the next unit computes. Weights of converted modules travel as
 * codes and scales: each rank quantizes its rows (shards end at multiples of 32 rows, so no block
 * is split), maxima of the whole are reduced first where scales depend on them. So the gathered
 * codes and scales are, bit for bit, those that one process makes from the whole weight. With low
 * precision off the weight travels in the activations' dtype and is quantized from that.
 *
 * Modules notice nothing: fsdp answers in the weight cache's place (nn/weights.h) and lends
 * oct_param.grad. All functions are collective unless they say otherwise; one thread drives it.
 *
 * With expert parallelism (fsdp/sharding.h says who has which experts) tokens travel within a team
 * (nn/token_exchange.h), and experts are gathered, and their gradients reduced, among the ranks
 * that have the same ones: all of the team's tokens are in each rank's gradient already. */
#ifndef OCT_FSDP_FSDP_H
#define OCT_FSDP_FSDP_H

#include "comm/comm.h"
#include "convert/plan.h"
#include "fsdp/sharding.h"
#include "model/model.h"

/* Which orientations of 8-bit weights a gather brings. */
typedef enum oct_gather_mode {
    OCT_GATHER_ON_DEMAND, /* forward contracts over K, backward over N */
    OCT_GATHER_ALL,       /* both, each time */
    OCT_GATHER_MINIMAL    /* as on demand, and both in the backward of a layer that runs again */
} oct_gather_mode;

/* Whether whole weights are freed between forward and backward. Norm and head always stay, as their
 * backward follows at once. */
typedef enum oct_reshard { OCT_RESHARD_AFTER_FORWARD, OCT_RESHARD_NEVER } oct_reshard;

typedef struct oct_fsdp_config {
    oct_dtype activation; /* of weights gathered in high precision */
    oct_gather_mode mode;
    oct_reshard reshard;
    bool low_precision_linears, low_precision_experts;
} oct_fsdp_config;

/* The ranks that a rank works with, all communicators in order of rank. */
typedef struct oct_fsdp_comms {
    oct_comm *shard;     /* that share one copy of the model */
    oct_comm *replicate; /* of other copies, that keep the same shard; NULL: one copy */
    oct_comm *team;      /* that share the experts; NULL: no expert parallelism */
    oct_comm *experts;   /* of `shard`, that have the same experts; NULL as team */
} oct_fsdp_comms;

/* How a model is cut over them. */
oct_sharding oct_fsdp_sharding(const oct_fsdp_comms *comms);

/* Collective: makes `team` and `experts` out of `shard`, for teams of expert_degree ranks. The
 * caller destroys them before `shard`. */
oct_status oct_fsdp_split_experts(oct_fsdp_comms *comms, int expert_degree);

typedef struct oct_fsdp oct_fsdp;

/* Not collective: decides which rows of each parameter this rank keeps, and gives a model of shapes
 * alone (OCT_PARAMS_SHAPES_ONLY) memory for these, zeroed. */
oct_status oct_fsdp_shard(oct_model *model, const oct_sharding *sharding, int rank);

/* For a model that oct_fsdp_shard has cut and a plan that has been applied. `comms` is copied; all
 * else must outlive the result. Experts are told how many of them are here, and their tokens'
 * way. */
oct_status oct_fsdp_create(oct_model *model, const oct_plan *plan, const oct_fsdp_config *config,
                           const oct_fsdp_comms *comms, oct_fsdp **out);
/* Not collective, but what is under way is waited for. NULL is fine. Before the model. */
void oct_fsdp_destroy(oct_fsdp *fsdp);

/* Makes a step's modules get their weights here. Not collective. */
void oct_fsdp_attach(oct_fsdp *fsdp, oct_step *step);

/* After the last micro-batch of a step: gradients of the shards are summed over `replicate`. */
oct_status oct_fsdp_finish_gradients(oct_fsdp *fsdp);

/* Bytes that all ranks together receive in one pass: forward and backward of a micro-batch. */
typedef struct oct_fsdp_traffic {
    int64_t gather_8bit, gather_high, reduce_scatter;
    int64_t replicate; /* once a step: sums of gradients over replicas, counted as reduce_scatter */
    int64_t converted; /* of the gathers above, those of converted modules' weights */
    int64_t converted_in_bf16; /* what these would be if gathered in bf16 */
    int64_t all_in_bf16;       /* what all gathers would be */
    int64_t all_to_all; /* of tokens, if all experts get as many; what a run moves depends on its
                           routing */
} oct_fsdp_traffic;

/* What training will move with n_tokens in a micro-batch; not collective. A model of shapes alone
 * is enough, and a plan that hasn't been applied. OCT_NO_MEMORY is the only failure. */
oct_status oct_fsdp_plan_traffic(oct_model *model, const oct_plan *plan,
                                 const oct_fsdp_config *config, const oct_sharding *sharding,
                                 int n_replicas, int64_t n_tokens, oct_fsdp_traffic *traffic);

#endif
