/* A whole model and the same one in shards, side by side on every rank, and training of both. */
#ifndef OCT_TESTS_SHARDED_H
#define OCT_TESTS_SHARDED_H

#include "story.h"

#include <math.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "comm/comm.h"
#include "convert/plan.h"
#include "fsdp/fsdp.h"
#include "job/ranks.h"
#include "kernel/select.h"
#include "model/model.h"
#include "quant/rules.h"
#include "train/optimizer.h"

enum { SEED = 11, S = 8, N_SEQUENCES = 12 }; /* 12: any of 1 to 4 ranks takes as many */

/* Rows that are no multiples of 32, fewer blocks than ranks, heads that share keys; or weights of
 * 4096 x 1024; or of 96 and of 2 rows. */
typedef enum sizes { SIZES_SMALL, SIZES_WIDE, SIZES_FEW_ROWS } sizes;

typedef struct setup {
    sizes sizes;
    const char *recipe; /* NULL: high precision */
    oct_rule_set rules; /* 0: octet's */
    oct_fsdp_config config;
    oct_recompute recompute;
    int tied;
    int convert_head;
    int experts;       /* 5 of them a layer, of 40 hidden rows; 8 if ranks share them */
    int expert_degree; /* ranks that share the experts; 0: as 1 */
    int plain_linears; /* experts alone are converted */
} setup;

typedef struct replica {
    oct_model *model;
    oct_recipe recipe;
    oct_plan *plan;
    oct_weights *weights;
    oct_step *step;
    oct_optimizer *optimizer;
    oct_comm *comm; /* NULL: whole */
    oct_fsdp_comms comms;
    oct_fsdp *fsdp;
} replica;

oct_model_args sharded_args(const setup *s);
oct_plan *plan_model(oct_model *model, const setup *s, oct_recipe *recipe);

/* comm NULL: whole. */
void replica_open(replica *r, const setup *s, oct_comm *comm);
void replica_close(replica *r);

/* ---- all ranks ---- */

extern oct_comm *world;

/* Around the tests of a program that mpirun starts. */
int open_world(void **state);
int close_world(void **state);

/* Bytes that all ranks received of one kind. */
int64_t total_bytes(oct_traffic traffic);

/* ---- training ---- */

void fill_tokens(int32_t *tokens, int32_t *targets);

/* One optimizer step over this rank's sequences, one a micro-batch; the mean loss over all. */
double train_step(replica *r, const int32_t *tokens, const int32_t *targets);

/* The loss at the last step; *first: at the first. */
double train(const setup *s, oct_comm *comm, int n_steps, double *first);
void check_training(const setup *s, int n_steps);

#endif
