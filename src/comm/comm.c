/* Collectives over one exchange of bytes, and the serial communicator: see comm.h. */
#include "comm/comm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "comm/launch.h"
#include "comm/transport.h"

static void serial_begin(oct_comm *comm, oct_comm_request *request) {
    (void)comm;
    request->done = 1;
}

static void serial_wait(oct_comm *comm, oct_comm_request *request) {
    (void)comm;
    (void)request;
}

static oct_status serial_split(oct_comm *comm, int color, oct_comm *out) {
    (void)comm;
    (void)color;
    out->size = 1;
    return OCT_OK;
}

static void serial_destroy(oct_comm *comm) {
    (void)comm;
}

static void serial_abort(oct_comm *comm, int exit_code) {
    (void)comm;
    _Exit(exit_code);
}

static const oct_transport serial = {serial_begin, serial_wait, serial_split, serial_destroy,
                                     serial_abort};

const char *oct_traffic_name(oct_traffic traffic) {
    static const char *const names[OCT_N_TRAFFIC] = {"gather_8bit", "gather_high", "reduce_scatter",
                                                     "all_to_all", "other"};
    return names[traffic];
}

oct_status oct_comm_create_serial(oct_comm **out) {
    oct_comm *comm = oct_calloc_array(1, sizeof *comm);
    if (!comm)
        return OCT_NO_MEMORY;
    comm->transport = &serial;
    comm->size = 1;
    comm->world = comm;
    *out = comm;
    return OCT_OK;
}

oct_status oct_comm_create_world(oct_comm **out, oct_error *err) {
    oct_status status = oct_comm_create_serial(out);
    if (status)
        return oct_fail_memory(err);
    if (oct_launch_is_mpi())
        status = oct_transport_mpi_world(*out, err);
    if (status) {
        oct_free(*out);
        *out = NULL;
        return status;
    }
    if ((*out)->size == 1)
        status = oct_launch_check_alone(oct_comm_library(), err);
    if (status) {
        oct_comm_destroy(*out);
        *out = NULL;
    }
    return status;
}

oct_status oct_comm_split(oct_comm *comm, int color, oct_comm **out) {
    oct_comm *part = oct_calloc_array(1, sizeof *part);
    if (!part)
        return OCT_NO_MEMORY;
    part->transport = comm->transport;
    part->world = comm->world;
    oct_status status = comm->transport->split(comm, color, part);
    if (status)
        oct_free(part);
    else
        *out = part;
    return status;
}

void oct_comm_destroy(oct_comm *comm) {
    if (!comm)
        return;
    comm->transport->destroy(comm);
    oct_free(comm);
}

void oct_comm_abort(oct_comm *comm, int exit_code) {
    comm->transport->abort(comm, exit_code);
}

int oct_comm_rank(const oct_comm *comm) {
    return comm->rank;
}

int oct_comm_size(const oct_comm *comm) {
    return comm->size;
}

int64_t oct_comm_bytes(const oct_comm *comm, oct_traffic traffic) {
    return comm->world->bytes[traffic];
}

double oct_comm_seconds(const oct_comm *comm, oct_traffic traffic) {
    return comm->world->seconds[traffic];
}

/* Memory for the arrays of a request: pointers and sizes for every rank. */
static oct_status prepare(oct_comm *comm, oct_comm_request *request) {
    size_t n = (size_t)comm->size;
    *request = (oct_comm_request){.comm = comm};
    request->storage = oct_calloc_array(4 * n, sizeof(void *));
    if (!request->storage)
        return OCT_NO_MEMORY;
    request->send = request->storage;
    request->receive = (void **)request->storage + n;
    request->n_send = (size_t *)request->storage + 2 * n;
    request->n_receive = (size_t *)request->storage + 3 * n;
    return OCT_OK;
}

static void start(oct_comm *comm, oct_traffic traffic, oct_comm_request *request) {
    request->traffic = traffic;
    for (int r = 0; r < comm->size; r++)
        if (r != comm->rank)
            comm->world->bytes[traffic] += (int64_t)request->n_receive[r];
    comm->transport->begin(comm, request);
}

static void add_parts(const oct_comm_request *request) {
    const oct_comm *comm = request->comm;
    const float *own = request->send[comm->rank];
    for (int64_t i = 0; i < request->n_sum; i++) {
        float sum = 0;
        for (int r = 0; r < comm->size; r++) {
            float part = r == comm->rank ? own[i] : request->parts[r * request->n_sum + i];
            sum = r == 0 ? part : sum + part;
        }
        request->sum[i] = sum;
    }
}

oct_status oct_comm_end(oct_comm_request *request) {
    if (!request->storage)
        return OCT_OK;
    request->comm->transport->wait(request->comm, request);
    bool good = request->done == 1;
    request->comm->world->seconds[request->traffic] += request->seconds;
    if (good && request->sum)
        add_parts(request);
    oct_free(request->parts);
    oct_free(request->storage);
    *request = (oct_comm_request){0};
    return good ? OCT_OK : OCT_FAILED;
}

oct_status oct_comm_all_gather_begin(oct_comm *comm, const void *send, void *receive,
                                     const size_t *n_bytes, const size_t *offsets,
                                     oct_traffic traffic, oct_comm_request *request) {
    oct_status status = prepare(comm, request);
    if (status)
        return status;
    for (int r = 0; r < comm->size; r++) {
        request->send[r] = send;
        request->n_send[r] = n_bytes[comm->rank];
        request->receive[r] = (char *)receive + offsets[r];
        request->n_receive[r] = n_bytes[r];
    }
    void *own = request->receive[comm->rank];
    if (own != send && n_bytes[comm->rank])
        memmove(own, send, n_bytes[comm->rank]);
    start(comm, traffic, request);
    return OCT_OK;
}

oct_status oct_comm_reduce_scatter_begin(oct_comm *comm, const float *send, float *receive,
                                         const int64_t *counts, const int64_t *offsets,
                                         oct_traffic traffic, oct_comm_request *request) {
    oct_status status = prepare(comm, request);
    if (status)
        return status;
    request->n_sum = counts[comm->rank];
    request->sum = receive;
    request->parts = oct_malloc_array((size_t)(request->n_sum * comm->size) + 1, sizeof(float));
    if (!request->parts) {
        oct_free(request->storage);
        *request = (oct_comm_request){0};
        return OCT_NO_MEMORY;
    }
    for (int r = 0; r < comm->size; r++) {
        request->send[r] = send + offsets[r];
        request->n_send[r] = (size_t)counts[r] * sizeof(float);
        request->receive[r] = request->parts + r * request->n_sum;
        request->n_receive[r] = (size_t)request->n_sum * sizeof(float);
    }
    start(comm, traffic, request);
    return OCT_OK;
}

oct_status oct_comm_all_to_all_begin(oct_comm *comm, const void *send, const size_t *n_send,
                                     const size_t *send_offsets, void *receive,
                                     const size_t *n_receive, const size_t *receive_offsets,
                                     oct_traffic traffic, oct_comm_request *request) {
    oct_status status = prepare(comm, request);
    if (status)
        return status;
    for (int r = 0; r < comm->size; r++) {
        request->send[r] = (const char *)send + send_offsets[r];
        request->n_send[r] = n_send[r];
        request->receive[r] = (char *)receive + receive_offsets[r];
        request->n_receive[r] = n_receive[r];
    }
    if (n_send[comm->rank])
        memmove(request->receive[comm->rank], request->send[comm->rank], n_send[comm->rank]);
    start(comm, traffic, request);
    return OCT_OK;
}

/* Every rank's n_bytes, in order of rank, in memory that the caller frees. */
static oct_status collect(oct_comm *comm, const void *bytes, size_t n_bytes, oct_traffic traffic,
                          void **out) {
    size_t n = (size_t)comm->size;
    char *all = oct_malloc_array(n, n_bytes ? n_bytes : 1);
    size_t *sizes = oct_malloc_array(2 * n, sizeof *sizes);
    oct_comm_request request = {0};
    oct_status status = all && sizes ? OCT_OK : OCT_NO_MEMORY;
    for (size_t r = 0; r < n && !status; r++) {
        sizes[r] = n_bytes;
        sizes[n + r] = r * n_bytes;
    }
    if (!status)
        status = oct_comm_all_gather_begin(comm, bytes, all, sizes, sizes + n, traffic, &request);
    if (!status)
        status = oct_comm_end(&request);
    oct_free(sizes);
    if (status)
        oct_free(all);
    else
        *out = all;
    return status;
}

/* values[i] of all ranks, in order of rank, made one. */
typedef void fold(void *values, const void *all, int64_t n, int n_ranks);

static oct_status fold_all(oct_comm *comm, void *values, int64_t n, size_t size,
                           oct_traffic traffic, fold *run) {
    void *all;
    oct_status status = collect(comm, values, (size_t)n * size, traffic, &all);
    if (status)
        return status;
    run(values, all, n, comm->size);
    oct_free(all);
    return OCT_OK;
}

static void sum_f64(void *values, const void *all, int64_t n, int n_ranks) {
    double *sum = values;
    const double *x = all;
    for (int64_t i = 0; i < n; i++) {
        sum[i] = x[i];
        for (int r = 1; r < n_ranks; r++)
            sum[i] += x[r * n + i];
    }
}

static void sum_f32(void *values, const void *all, int64_t n, int n_ranks) {
    float *sum = values;
    const float *x = all;
    for (int64_t i = 0; i < n; i++) {
        sum[i] = x[i];
        for (int r = 1; r < n_ranks; r++)
            sum[i] += x[r * n + i];
    }
}

static void max_f32(void *values, const void *all, int64_t n, int n_ranks) {
    float *largest = values;
    const float *x = all;
    for (int64_t i = 0; i < n; i++)
        for (int r = 0; r < n_ranks; r++)
            if (isnan(x[r * n + i]) || x[r * n + i] > largest[i])
                largest[i] = x[r * n + i];
}

oct_status oct_comm_sum_f64(oct_comm *comm, double *values, int64_t n) {
    return fold_all(comm, values, n, sizeof *values, OCT_TRAFFIC_OTHER, sum_f64);
}

oct_status oct_comm_sum_f32(oct_comm *comm, float *values, int64_t n, oct_traffic traffic) {
    return fold_all(comm, values, n, sizeof *values, traffic, sum_f32);
}

oct_status oct_comm_max_f32(oct_comm *comm, float *values, int64_t n) {
    return fold_all(comm, values, n, sizeof *values, OCT_TRAFFIC_OTHER, max_f32);
}

oct_status oct_comm_broadcast(oct_comm *comm, int root, void *bytes, size_t n_bytes) {
    oct_comm_request request;
    oct_status status = prepare(comm, &request);
    if (status)
        return status;
    for (int r = 0; r < comm->size; r++) {
        request.send[r] = bytes;
        request.n_send[r] = comm->rank == root && r != root ? n_bytes : 0;
        request.receive[r] = bytes;
        request.n_receive[r] = comm->rank != root && r == root ? n_bytes : 0;
    }
    start(comm, OCT_TRAFFIC_OTHER, &request);
    return oct_comm_end(&request);
}

oct_status oct_comm_barrier(oct_comm *comm) {
    double nothing = 0;
    return oct_comm_sum_f64(comm, &nothing, 1);
}

typedef struct verdict {
    int status;
    char message[OCT_ERROR_SIZE];
} verdict;

bool oct_comm_agreed_to_fail(const oct_comm *comm) {
    return comm->world->agreed_to_fail;
}

oct_status oct_comm_agree(oct_comm *comm, oct_status status, oct_error *err) {
    if (comm->size == 1)
        return status;
    int mine = (int)status, *all;
    if (collect(comm, &mine, sizeof mine, OCT_TRAFFIC_OTHER, (void **)&all))
        return status ? status : oct_fail(err, OCT_FAILED, "another rank is gone");
    int first = 0;
    while (first < comm->size && all[first] == OCT_OK)
        first++;
    oct_free(all);
    comm->world->agreed_to_fail = first < comm->size;
    if (first == comm->size)
        return OCT_OK;
    verdict v = {.status = (int)status};
    if (comm->rank == first && err)
        snprintf(v.message, sizeof v.message, "%s", err->message);
    oct_status broadcast = oct_comm_broadcast(comm, first, &v, sizeof v);
    if (status)
        return status;
    if (broadcast)
        return oct_fail(err, OCT_FAILED, "rank %d failed", first);
    return oct_fail(err, (oct_status)v.status, "rank %d: %.*s", first, OCT_ERROR_SIZE - 32,
                    v.message[0] ? v.message : "out of memory");
}
