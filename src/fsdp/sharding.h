/* Who holds which rows of a parameter.
 *
 * A parameter is E matrices (N,K): E experts, or one; a vector (D) is one matrix (D,1). Its rows,
 * one matrix after the other, are cut into blocks of 32 that never cross a matrix (a matrix's last
 * block may be short), so that no MX block or tile of any orientation lies in two shards. The
 * blocks go to the ranks in order, as evenly as they can, the first ranks one more; a rank may hold
 * nothing. So a shard is one run of rows, and experts go to ranks whole where their number allows.
 *
 * With expert parallelism `expert_degree` neighbouring ranks are a team: the first one's share of
 * the experts is the first E/degree, and so on. The ranks with the same place in all teams share
 * these experts, and cut them among themselves as above.
 *
 * All of this is a pure function of shape, rank and sharding: every rank knows every shard. */
#ifndef OCT_FSDP_SHARDING_H
#define OCT_FSDP_SHARDING_H

#include "nn/module.h"

#define OCT_SHARD_BLOCK_ROWS 32

typedef struct oct_sharding {
    int n_ranks;       /* that share one copy of the model */
    int expert_degree; /* divides n_ranks and the number of experts; 1: no expert parallelism */
} oct_sharding;

typedef struct oct_rows {
    int64_t first, n;
} oct_rows;

/* E, N and K of a parameter. */
typedef struct oct_matrices {
    int64_t E, N, K;
} oct_matrices;

oct_matrices oct_param_matrices(const oct_param *param);

/* How many ranks a team has for this parameter: 1 unless it's of experts. */
int oct_param_degree(const oct_param *param, const oct_sharding *sharding);

/* The rows of all matrices together (0 .. E N - 1) that `rank` holds. */
oct_rows oct_shard_rows(const oct_param *param, const oct_sharding *sharding, int rank);
/* Of these the rows of matrix e, counted in it; n = 0: none. */
oct_rows oct_shard_matrix_rows(const oct_param *param, const oct_sharding *sharding, int64_t e,
                               int rank);
/* The rank whose shard is the i-th in order of rows. */
int oct_shard_holder(const oct_param *param, const oct_sharding *sharding, int i);

#endif
