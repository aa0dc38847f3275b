/* Tensors that lie in shards, written whole by the first rank: a checkpoint has the same bytes
 * whatever the number of processes, and any number of them reads it.
 *
 * The first rank pulls: where a file wants a tensor it asks the others for that one, shard after
 * shard, so no rank ever holds more than one shard of another. The others serve until they are told
 * that it's over, also where writing fails: nobody is left waiting. */
#ifndef OCT_TRAIN_WHOLE_TENSORS_H
#define OCT_TRAIN_WHOLE_TENSORS_H

#include "comm/comm.h"
#include "fsdp/sharding.h"
#include "nn/module.h"
#include "tensors/safetensors.h"

/* A tensor of a parameter's shape of which this rank holds a shard: its value, or state. */
typedef struct oct_collected {
    const oct_param *param;
    const float *held; /* param->n_held */
    oct_dtype dtype;   /* that it's written in: F32 or BF16 */
    struct oct_collector *collector;
} oct_collected;

typedef struct oct_collector {
    oct_comm *comm;
    oct_sharding sharding;
    oct_collected *tensors; /* the same list on all ranks */
    int64_t n;
    size_t *sizes; /* (4, size of comm) */
} oct_collector;

/* `comm` joins the ranks of the sharding; `tensors` is borrowed. */
oct_status oct_collector_open(oct_comm *comm, const oct_sharding *sharding, oct_collected *tensors,
                              int64_t n, oct_collector *collector);
void oct_collector_close(oct_collector *collector);

/* Rank 0: an item that asks the others when it's written. */
oct_safetensors_item oct_collector_item(oct_collected *tensor, const char *name);
/* Rank 0, at the end, whatever happened. */
oct_status oct_collector_finish(oct_collector *collector);
/* All other ranks: until rank 0 has finished. */
oct_status oct_collector_serve(oct_collector *collector);

#endif
