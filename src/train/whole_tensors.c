/* Writing what lies in shards: see tree_settings.h. */
#include "train/whole_tensors.h"

#include <string.h>

#include "base/alloc.h"
#include "op/elementwise.h"

#define FINISHED ((int64_t)-1)

oct_status oct_collector_open(oct_comm *comm, const oct_sharding *sharding, oct_collected *tensors,
                              int64_t n, oct_collector *c) {
    size_t n_ranks = (size_t)oct_comm_size(comm);
    *c = (oct_collector){.comm = comm, .sharding = *sharding, .tensors = tensors, .n = n};
    c->sizes = oct_calloc_array(4 * n_ranks, sizeof *c->sizes);
    for (int64_t i = 0; i < n; i++)
        tensors[i].collector = c;
    return c->sizes ? OCT_OK : OCT_NO_MEMORY;
}

void oct_collector_close(oct_collector *c) {
    oct_free(c->sizes);
    *c = (oct_collector){0};
}

static size_t shard_bytes(const oct_collected *tensor, int rank) {
    oct_rows rows = oct_shard_rows(tensor->param, &tensor->collector->sharding, rank);
    return (size_t)(rows.n * oct_param_matrices(tensor->param).K) * sizeof(float);
}

/* Collective: `rank`'s shard goes to rank 0, into `to` there. */
static oct_status move_shard(const oct_collected *tensor, int rank, void *to) {
    const oct_collector *c = tensor->collector;
    int n_ranks = oct_comm_size(c->comm), own = oct_comm_rank(c->comm);
    size_t *send = c->sizes, *receive = c->sizes + n_ranks, *zeros = c->sizes + 2 * n_ranks;
    oct_comm_request request = {0};
    memset(c->sizes, 0, 4 * (size_t)n_ranks * sizeof *c->sizes);
    send[0] = own == rank ? shard_bytes(tensor, rank) : 0;
    receive[rank] = own == 0 ? shard_bytes(tensor, rank) : 0;
    oct_status status = oct_comm_all_to_all_begin(c->comm, tensor->held, send, zeros, to, receive,
                                                  zeros, OCT_TRAFFIC_OTHER, &request);
    return status ? status : oct_comm_end(&request);
}

static oct_status write_shard(const oct_collected *tensor, float *values, size_t n_bytes,
                              oct_safetensors_stream *to, oct_error *err) {
    int64_t n = (int64_t)(n_bytes / sizeof *values);
    oct_tensor from = oct_tensor_1d(OCT_F32, n, values);
    if (tensor->dtype == OCT_F32)
        return oct_safetensors_write_piece(to, values, n_bytes, err);
    oct_tensor half = oct_tensor_1d(tensor->dtype, n, oct_malloc(n_bytes));
    if (!half.data)
        return oct_fail_memory(err);
    oct_status status = oct_cast(&from, &half);
    if (!status)
        status = oct_safetensors_write_piece(to, half.data, oct_tensor_bytes(&half), err);
    oct_free(half.data);
    return status;
}

/* All shards in order of rows. Whatever fails here, the others' part of the exchange is done to its
 * end. */
static oct_status send_whole(void *context, oct_safetensors_stream *to, oct_error *err) {
    const oct_collected *tensor = context;
    const oct_collector *c = tensor->collector;
    int64_t index = tensor - c->tensors;
    size_t most = 1;
    for (int r = 0; r < oct_comm_size(c->comm); r++)
        most = shard_bytes(tensor, r) > most ? shard_bytes(tensor, r) : most;
    float *values = oct_malloc(most);
    if (!values) /* before the others are asked */
        return oct_fail_memory(err);
    oct_status status = oct_comm_broadcast(c->comm, 0, &index, sizeof index);
    if (status)
        status = oct_fail(err, status, "the exchange between processes broke");
    for (int i = 0; i < oct_comm_size(c->comm); i++) {
        int r = oct_shard_holder(tensor->param, &c->sharding, i);
        size_t n_bytes = shard_bytes(tensor, r);
        oct_status moved = move_shard(tensor, r, values);
        if (!status && moved)
            status = oct_fail(err, moved, "the exchange between processes broke");
        if (!status && n_bytes)
            status = write_shard(tensor, values, n_bytes, to, err);
    }
    oct_free(values);
    return status;
}

oct_safetensors_item oct_collector_item(oct_collected *tensor, const char *name) {
    const oct_param *param = tensor->param;
    oct_safetensors_item item = {.name = name,
                                 .dtype = tensor->dtype,
                                 .n_dims = param->n_dims,
                                 .source = send_whole,
                                 .context = tensor};
    for (int d = 0; d < param->n_dims; d++)
        item.shape[d] = param->shape[d];
    return item;
}

oct_status oct_collector_finish(oct_collector *c) {
    int64_t finished = FINISHED;
    return oct_comm_broadcast(c->comm, 0, &finished, sizeof finished);
}

oct_status oct_collector_serve(oct_collector *c) {
    for (;;) {
        int64_t index = FINISHED;
        oct_status status = oct_comm_broadcast(c->comm, 0, &index, sizeof index);
        if (status || index < 0 || index >= c->n)
            return status;
        const oct_collected *tensor = &c->tensors[index];
        for (int i = 0; i < oct_comm_size(c->comm) && !status; i++)
            status = move_shard(tensor, oct_shard_holder(tensor->param, &c->sharding, i), NULL);
        if (status)
            return status;
    }
}
