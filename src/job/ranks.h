/* The processes of a run, and what they decide together.
 *
 * World rank r belongs to group r / shards, in which the model is sharded, and keeps shard
 * r % shards; the ranks with the same shard, one a group, hold the same numbers (hybrid sharding).
 * With expert parallelism each group consists of teams of neighbours that share the experts.
 * Every rank reads data of its own. One process is a world of one, without shards. */
#ifndef OCT_JOB_RANKS_H
#define OCT_JOB_RANKS_H

#include "config/job.h"
#include "data/dataset.h"
#include "fsdp/fsdp.h"
#include "job/conversion.h"

typedef struct oct_ranks {
    oct_comm *world;      /* the caller's, or `own` */
    oct_comm *own;        /* a world of one */
    oct_fsdp_comms comms; /* owned; all NULL in a world of one */
    oct_fsdp *fsdp;       /* NULL: the model is whole */
    int rank, n_ranks;
} oct_ranks;

/* Whether the model's experts can be shared as the job says. */
oct_status oct_ranks_check_experts(const oct_job *job, const oct_model_args *args, oct_error *err);
/* Micro-batches that each of n_ranks takes a step. OCT_INVALID: the global batch doesn't divide, or
 * isn't what the accumulation steps make. */
oct_status oct_ranks_micro_batches(const oct_job *job, int n_ranks, int64_t *n, oct_error *err);
/* One line where the framework would train otherwise on as many processes. For the rank that logs.
 */
void oct_ranks_log_framework(const oct_job *job, int n_ranks);
/* All that can't be with as many processes, told together: dimensions of the model, degrees,
 * batches and how weights are gathered. OCT_INVALID says the first, oct_job_more_refusals the
 * others. */
oct_status oct_ranks_check_fit(const oct_job *job, int n_ranks, oct_error *err);

/* Bytes that a step on n_ranks processes moves, all ranks together: what metrics.jsonl will say.
 * Not collective. The model needs no memory; recompute and frozen parameters are set already. */
typedef struct oct_wire {
    int n_ranks, expert_degree;
    int64_t n_passes;                                 /* micro-batches of a rank in a step */
    int64_t gather_8bit, gather_high, reduce_scatter; /* a step */
    int64_t all_to_all; /* a step, if all experts get as many tokens: the only one that depends on
                           data */
    double converted_ratio; /* converted modules' weights: gathered bytes over those of bf16; NaN:
                               nothing is gathered */
    double whole_ratio;     /* the same of all weights */
    bool turned;            /* recompute turned on-demand into all */
} oct_wire;
oct_status oct_ranks_plan_wire(const oct_job *job, oct_model *model, const oct_plan *plan,
                               int n_ranks, oct_wire *wire, oct_error *err);

/* "KEY = VALUE" a line, for all keys of the job that have an effect, words aside: what decides the
 * run besides the contents of files. */
void oct_ranks_put_job(const oct_job *job, oct_strbuf *text);
/* The same of the data sets' contents; each may be NULL. */
void oct_ranks_put_data(const oct_dataset *train, const oct_dataset *validation, oct_strbuf *text);

/* Collective. Compares what each rank was told with what the first was: all keys of the ranks' jobs
 * that have an effect, words aside. Ranks with different jobs would wait for each other for ever,
 * or train a mixture; so nothing comes before this. */
oct_status oct_ranks_check_job(oct_comm *world, const oct_job *job, oct_error *err);

/* The same of what the ranks read: the model's arguments, which may be a config.json's, and the
 * data, which may be a copy on each host. `validation` may be NULL. */
oct_status oct_ranks_check_inputs(oct_comm *world, const oct_job *job, const oct_model *model,
                                  const oct_dataset *train, const oct_dataset *validation,
                                  oct_error *err);

/* Collective. `world` NULL: one process. OCT_INVALID: the ranks' jobs differ. */
oct_status oct_ranks_open(oct_comm *world, const oct_job *job, oct_ranks *ranks, oct_error *err);
void oct_ranks_close(oct_ranks *ranks);

/* Collective: the model of shapes gets this rank's shards and, for `step`, gathers. Nothing in a
 * world of one. */
oct_status oct_ranks_shard(oct_ranks *ranks, const oct_job *job, oct_model *model,
                           const oct_plan *plan, oct_step *step, oct_error *err);

/* Collective: the worst status of all ranks, see oct_comm_agree. */
static inline oct_status oct_ranks_agree(const oct_ranks *ranks, oct_status status,
                                         oct_error *err) {
    return oct_comm_agree(ranks->world, status, err);
}
/* Collective: sums over all ranks, in place. */
oct_status oct_ranks_sum(const oct_ranks *ranks, double *values, int64_t n, oct_error *err);
/* Collective: sums a number that the ranks of a group hold parts of. */
oct_status oct_ranks_sum_shards(const oct_ranks *ranks, double *value, oct_error *err);
/* Collective: the tokens that each expert got in this step, over all ranks. */
oct_status oct_ranks_sum_routing(const oct_ranks *ranks, oct_model *model, oct_error *err);
/* Collective: the amaxes that modules with a delayed recipe saw in this step, over all ranks. */
oct_status oct_ranks_reduce_amaxes(const oct_ranks *ranks, const oct_plan *plan, oct_error *err);

#endif
