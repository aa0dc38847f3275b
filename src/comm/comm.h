/* A communicator: the processes that train together. Serial is one of its two implementations, so
 * one process needs no MPI and the trainer has one code path.
 *
 * Every function that says "collective" must be called by all ranks of the communicator in the same
 * order, with matching sizes. Pairs of begin and end overlap with computing: a thread of this
 * room's own makes all MPI calls, in the order of the begins; memory given to a begin must stay as
 * it is until its end. All reductions are done in the order of the ranks, so results don't depend
 * on timing. Not thread-safe: one thread of a process calls this room. */
#ifndef OCT_COMM_COMM_H
#define OCT_COMM_COMM_H

#include <octet/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct oct_comm oct_comm;

/* What bytes are moved for; counted apart. */
typedef enum oct_traffic {
    OCT_TRAFFIC_GATHER_8BIT,    /* converted weights: codes and scales */
    OCT_TRAFFIC_GATHER_HIGH,    /* weights in bf16 or fp32 */
    OCT_TRAFFIC_REDUCE_SCATTER, /* gradients, fp32 */
    OCT_TRAFFIC_ALL_TO_ALL,     /* tokens of experts */
    OCT_TRAFFIC_OTHER,          /* norms, losses, amaxes, agreement, checkpoints */
    OCT_N_TRAFFIC
} oct_traffic;

const char *oct_traffic_name(oct_traffic traffic); /* "gather_8bit", ... */

/* One process. */
oct_status oct_comm_create_serial(oct_comm **out);
/* The world: MPI when a launcher (mpirun, srun) started this process, else serial. OCT_INVALID when
 * it was started as one of several, by mpirun, srun or torchrun, and finds none of the others: a
 * build without MPI, the mpirun of another library, srun without PMIx. */
oct_status oct_comm_create_world(oct_comm **out, oct_error *err);
/* Collective: the ranks with the same color, ordered by this communicator's ranks. Destroy it
 * before its parent. */
oct_status oct_comm_split(oct_comm *comm, int color, oct_comm **out);
/* Collective for the world: waits for all ranks. NULL is fine. */
void oct_comm_destroy(oct_comm *comm);
/* Ends the whole job at once, this process included: for failures that the others can't be told of.
 */
void oct_comm_abort(oct_comm *comm, int exit_code);

int oct_comm_rank(const oct_comm *comm);
int oct_comm_size(const oct_comm *comm);
const char *oct_comm_library(void); /* "Open MPI v4.1.4, ...", or "none" */

/* A collective under way. The caller owns the memory; zero it first, and end it once. */
typedef struct oct_comm_request {
    const void **send;
    void **receive;
    size_t *n_send, *n_receive;
    void *storage; /* of the arrays above */
    volatile int done;
    struct oct_comm_request *next;
    oct_comm *comm;
    oct_traffic traffic;
    double seconds; /* that it took, once it's done */
    /* reduce-scatter: sums of `n_sum` floats into `sum` at the end */
    float *sum;
    int64_t n_sum;
    float *parts;
} oct_comm_request;

/* Waits. OCT_FAILED if the exchange broke. */
oct_status oct_comm_end(oct_comm_request *request);

/* Collective. Rank r's n_bytes[r] bytes arrive at receive + offsets[r] on every rank, its own too
 * (send may be that place). */
oct_status oct_comm_all_gather_begin(oct_comm *comm, const void *send, void *receive,
                                     const size_t *n_bytes, const size_t *offsets,
                                     oct_traffic traffic, oct_comm_request *request);
/* Collective. send holds size() blocks, block r of counts[r] floats at offsets[r]; receive gets the
 * sum over ranks, in order of rank, of block rank(): counts[rank()] floats. receive may be that
 * block of send. */
oct_status oct_comm_reduce_scatter_begin(oct_comm *comm, const float *send, float *receive,
                                         const int64_t *counts, const int64_t *offsets,
                                         oct_traffic traffic, oct_comm_request *request);
/* Collective. n_send[r] bytes at send + send_offsets[r] go to rank r; n_receive[r] come from it. */
oct_status oct_comm_all_to_all_begin(oct_comm *comm, const void *send, const size_t *n_send,
                                     const size_t *send_offsets, void *receive,
                                     const size_t *n_receive, const size_t *receive_offsets,
                                     oct_traffic traffic, oct_comm_request *request);

/* Collective, in place, blocking. Sums are in order of rank. A NaN stays a NaN in either maximum.
 */
oct_status oct_comm_sum_f64(oct_comm *comm, double *values, int64_t n);
oct_status oct_comm_sum_f32(oct_comm *comm, float *values, int64_t n, oct_traffic traffic);
oct_status oct_comm_max_f32(oct_comm *comm, float *values, int64_t n);
oct_status oct_comm_broadcast(oct_comm *comm, int root, void *bytes, size_t n_bytes);
oct_status oct_comm_barrier(oct_comm *comm);

/* Collective: the worst status of all ranks. A rank that was fine gets the message of the first one
 * that wasn't, with "rank N: " before it. Call it before the next collective whenever one rank may
 * have failed. */
oct_status oct_comm_agree(oct_comm *comm, oct_status status, oct_error *err);
/* Whether the last agreement was on a failure: all ranks then know of it and end by themselves. A
 * failure that wasn't agreed on is for oct_comm_abort. */
bool oct_comm_agreed_to_fail(const oct_comm *comm);

/* Bytes that this process received from other ranks so far, over the world and all splits of it. */
int64_t oct_comm_bytes(const oct_comm *comm, oct_traffic traffic);
/* Seconds that exchanges of this kind took, from their turn on the wire to their end, waiting for
 * ranks that come late included; of those that were ended. They overlap with computing. */
double oct_comm_seconds(const oct_comm *comm, oct_traffic traffic);

#endif
