/* The MPI transport: one thread makes all MPI calls, one exchange after the other, in the order of
 * the begins.
 *
 * That needs no more than MPI_THREAD_FUNNELED from the library, makes progress while the caller
 * computes, and while it waits it sleeps instead of spinning, since ranks often share cores.
 * Messages are cut at CHUNK bytes, as MPI counts are ints. */
#include <mpi.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "comm/transport.h"

#define CHUNK ((size_t)1 << 30)
#define MIN_SLEEP_NS 2000
#define MAX_SLEEP_NS 100000

typedef enum order_kind {
    ORDER_EXCHANGE,
    ORDER_SPLIT,
    ORDER_FREE,
    ORDER_STOP,
    ORDER_ABORT
} order_kind;

/* What the MPI thread is asked to do. */
typedef struct order {
    order_kind kind;
    MPI_Comm *comm;
    int rank, size;
    oct_comm_request *request; /* exchange */
    int color;                 /* split */
    MPI_Comm *split;
    int *split_rank, *split_size;
    int exit_code;
    volatile int done; /* 1 done, -1 failed */
    struct order *next;
} order;

static struct {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t posted, finished;
    order *first, *last;
    int world_rank, world_size;
    int started; /* 1 running, -1 MPI refused */
} engine = {.mutex = PTHREAD_MUTEX_INITIALIZER,
            .posted = PTHREAD_COND_INITIALIZER,
            .finished = PTHREAD_COND_INITIALIZER};

static void post(order *o) {
    pthread_mutex_lock(&engine.mutex);
    o->next = NULL;
    if (engine.last)
        engine.last->next = o;
    else
        engine.first = o;
    engine.last = o;
    pthread_cond_signal(&engine.posted);
    pthread_mutex_unlock(&engine.mutex);
}

static void wait_for(volatile int *done) {
    pthread_mutex_lock(&engine.mutex);
    while (!*done)
        pthread_cond_wait(&engine.finished, &engine.mutex);
    pthread_mutex_unlock(&engine.mutex);
}

static void finish(volatile int *done, int value) {
    pthread_mutex_lock(&engine.mutex);
    *done = value;
    pthread_cond_broadcast(&engine.finished);
    pthread_mutex_unlock(&engine.mutex);
}

static size_t n_chunks(size_t n_bytes) {
    return (n_bytes + CHUNK - 1) / CHUNK;
}

static int chunk_bytes(size_t n_bytes, size_t chunk) {
    size_t left = n_bytes - chunk * CHUNK;
    return (int)(left < CHUNK ? left : CHUNK);
}

static int wait_all(MPI_Request *requests, int n) {
    long sleep_ns = MIN_SLEEP_NS;
    int all = 0;
    while (!all) {
        if (MPI_Testall(n, requests, &all, MPI_STATUSES_IGNORE) != MPI_SUCCESS)
            return -1;
        if (all)
            break;
        nanosleep(&(struct timespec){0, sleep_ns}, NULL);
        sleep_ns = sleep_ns < MAX_SLEEP_NS ? sleep_ns + sleep_ns / 2 : MAX_SLEEP_NS;
    }
    return 1;
}

static int exchange(const order *o) {
    const oct_comm_request *q = o->request;
    size_t n = 0;
    for (int r = 0; r < o->size; r++)
        n += r == o->rank ? 0 : n_chunks(q->n_send[r]) + n_chunks(q->n_receive[r]);
    MPI_Request *requests = oct_malloc_array(n + 1, sizeof *requests);
    if (!requests)
        return -1;
    int at = 0;
    for (int step = 1; step < o->size;
         step++) { /* staggered, so that no rank is everybody's first */
        int from = (o->rank + o->size - step) % o->size, to = (o->rank + step) % o->size;
        for (size_t c = 0; c < n_chunks(q->n_receive[from]); c++)
            MPI_Irecv((char *)q->receive[from] + c * CHUNK, chunk_bytes(q->n_receive[from], c),
                      MPI_BYTE, from, 0, *o->comm, &requests[at++]);
        for (size_t c = 0; c < n_chunks(q->n_send[to]); c++)
            MPI_Isend((const char *)q->send[to] + c * CHUNK, chunk_bytes(q->n_send[to], c),
                      MPI_BYTE, to, 0, *o->comm, &requests[at++]);
    }
    int result = wait_all(requests, at);
    oct_free(requests);
    return result;
}

static int obey(order *o) {
    switch (o->kind) {
    case ORDER_EXCHANGE:
        return exchange(o);
    case ORDER_SPLIT:
        if (MPI_Comm_split(*o->comm, o->color, o->rank, o->split) != MPI_SUCCESS)
            return -1;
        MPI_Comm_rank(*o->split, o->split_rank);
        MPI_Comm_size(*o->split, o->split_size);
        return 1;
    case ORDER_FREE:
        MPI_Comm_free(o->comm);
        return 1;
    case ORDER_ABORT:
        MPI_Abort(MPI_COMM_WORLD, o->exit_code);
        return 1;
    case ORDER_STOP:
        break;
    }
    return 1;
}

static void *run(void *unused) {
    int provided;
    (void)unused;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
        finish(&engine.started, -1);
        return NULL;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &engine.world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &engine.world_size);
    finish(&engine.started, 1);
    for (bool stop = false; !stop;) {
        pthread_mutex_lock(&engine.mutex);
        while (!engine.first)
            pthread_cond_wait(&engine.posted, &engine.mutex);
        order *o = engine.first;
        engine.first = o->next;
        if (!engine.first)
            engine.last = NULL;
        pthread_mutex_unlock(&engine.mutex);
        stop = o->kind == ORDER_STOP;
        double start = MPI_Wtime();
        int result = obey(o);
        oct_comm_request *request = o->request;
        if (request) /* read once it's done */
            request->seconds = MPI_Wtime() - start;
        finish(&o->done, result);
        if (request) { /* posted by begin: nobody else frees it */
            oct_free(o);
            finish(&request->done, result);
        }
    }
    MPI_Finalize();
    return NULL;
}

static void mpi_begin(oct_comm *comm, oct_comm_request *request) {
    order *o = comm->size > 1 ? oct_calloc_array(1, sizeof *o) : NULL;
    if (!o) {
        request->done = comm->size > 1 ? -1 : 1;
        return;
    }
    *o = (order){.kind = ORDER_EXCHANGE,
                 .comm = comm->state,
                 .rank = comm->rank,
                 .size = comm->size,
                 .request = request};
    post(o);
}

static void mpi_wait(oct_comm *comm, oct_comm_request *request) {
    (void)comm;
    wait_for(&request->done);
}

static void order_and_wait(order *o) {
    post(o);
    wait_for(&o->done);
}

static oct_status mpi_split(oct_comm *comm, int color, oct_comm *out) {
    MPI_Comm *split = oct_malloc(sizeof *split);
    if (!split)
        return OCT_NO_MEMORY;
    order o = {.kind = ORDER_SPLIT,
               .comm = comm->state,
               .rank = comm->rank,
               .color = color,
               .split = split,
               .split_rank = &out->rank,
               .split_size = &out->size};
    order_and_wait(&o);
    if (o.done != 1) {
        oct_free(split);
        return OCT_FAILED;
    }
    out->state = split;
    return OCT_OK;
}

static void mpi_destroy(oct_comm *comm) {
    order o = {.kind = comm->world == comm ? ORDER_STOP : ORDER_FREE, .comm = comm->state};
    order_and_wait(&o);
    if (comm->world == comm)
        pthread_join(engine.thread, NULL);
    oct_free(comm->state);
}

static void mpi_abort(oct_comm *comm, int exit_code) {
    order o = {.kind = ORDER_ABORT, .exit_code = exit_code};
    (void)comm;
    order_and_wait(&o);
    _Exit(exit_code);
}

static const oct_transport mpi = {mpi_begin, mpi_wait, mpi_split, mpi_destroy, mpi_abort};

oct_status oct_transport_mpi_world(oct_comm *comm, oct_error *err) {
    MPI_Comm *world = oct_malloc(sizeof *world);
    if (!world)
        return oct_fail_memory(err);
    *world = MPI_COMM_WORLD;
    if (pthread_create(&engine.thread, NULL, run, NULL) != 0) {
        oct_free(world);
        return oct_fail(err, OCT_FAILED, "MPI: its thread can't be started");
    }
    wait_for(&engine.started);
    if (engine.started != 1) {
        pthread_join(engine.thread, NULL);
        oct_free(world);
        return oct_fail(err, OCT_FAILED, "MPI: initialisation failed");
    }
    comm->transport = &mpi;
    comm->state = world;
    comm->rank = engine.world_rank;
    comm->size = engine.world_size;
    return OCT_OK;
}

const char *oct_comm_library(void) {
    static char name[MPI_MAX_LIBRARY_VERSION_STRING];
    int n;
    if (!name[0] && MPI_Get_library_version(name, &n) == MPI_SUCCESS)
        name[strcspn(name, ",\n")] = '\0';
    return name;
}
