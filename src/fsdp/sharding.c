/* Cutting parameters into shards: see sharding.h. */
#include "fsdp/sharding.h"

#include "base/checked.h"

oct_matrices oct_param_matrices(const oct_param *param) {
    int64_t E = param->n_dims == 3 ? param->shape[0] : 1;
    int64_t K = param->n_dims > 1 ? param->shape[param->n_dims - 1] : 1;
    int64_t N = param->n_dims > 1 ? param->shape[param->n_dims - 2] : param->shape[0];
    return (oct_matrices){E, N, K};
}

/* The row where block `block` of all blocks begins. */
static int64_t row_of_block(const oct_matrices *m, int64_t block) {
    int64_t per_matrix = oct_ceil_div(m->N, OCT_SHARD_BLOCK_ROWS);
    if (per_matrix == 0)
        return 0;
    int64_t row = block % per_matrix * OCT_SHARD_BLOCK_ROWS;
    return block / per_matrix * m->N + row;
}

int oct_param_degree(const oct_param *param, const oct_sharding *sharding) {
    return param->n_dims == 3 ? sharding->expert_degree : 1;
}

oct_rows oct_shard_rows(const oct_param *param, const oct_sharding *sharding, int rank) {
    oct_matrices m = oct_param_matrices(param);
    int degree = oct_param_degree(param, sharding);
    int64_t n_ranks = sharding->n_ranks / degree, at = rank / degree, place = rank % degree;
    int64_t n_blocks = m.E / degree * oct_ceil_div(m.N, OCT_SHARD_BLOCK_ROWS);
    int64_t each = n_blocks / n_ranks, more = n_blocks % n_ranks;
    int64_t first = place * n_blocks + at * each + oct_min_i64(at, more);
    int64_t row = row_of_block(&m, first);
    return (oct_rows){row, row_of_block(&m, first + each + (at < more)) - row};
}

int oct_shard_holder(const oct_param *param, const oct_sharding *sharding, int i) {
    int degree = oct_param_degree(param, sharding), n_ranks = sharding->n_ranks / degree;
    return i % n_ranks * degree + i / n_ranks;
}

oct_rows oct_shard_matrix_rows(const oct_param *param, const oct_sharding *sharding, int64_t e,
                               int rank) {
    oct_matrices m = oct_param_matrices(param);
    oct_rows shard = oct_shard_rows(param, sharding, rank);
    int64_t first = oct_max_i64(shard.first, e * m.N);
    int64_t end = oct_min_i64(shard.first + shard.n, (e + 1) * m.N);
    return end > first ? (oct_rows){first - e * m.N, end - first} : (oct_rows){0, 0};
}
