/* The MPI transport: one thread makes all MPI calls, one exchange after the other, in the order of
 * the begins.
 *
 * That needs no more than MPI_THREAD_FUNNELED from the library, makes progress while the caller
 * computes, and while it waits it sleeps instead of spinning, since ranks often share cores.
 *
 * Messages go in pieces that MPI sends at once, without asking the receiver first (64 KiB with its
 * header over Open MPI's TCP). Whole ones would be announced, and the answer would queue behind the
 * data that goes the other way at the same time: on a slow link the two directions then take
 * turns. */
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "comm/transport.h"

#define PIECE ((size_t)60 << 10)
#define MAX_WINDOW 64   /* pieces under way to one rank: links of up to 3.8 MB bandwidth x delay */
#define MIN_WINDOW 4    /* .. with many ranks, */
#define MAX_PIECES 1024 /* whose pieces together are these */
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
    int started;          /* 1 running, -1 MPI refused */
    atomic_bool aborting; /* no exchange is waited for any more */
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

/* What one rank sends to or receives from one other in an exchange. */
typedef struct lane {
    char *at; /* that follow what was posted */
    size_t n_left;
    int peer;
    bool sends;
} lane;

/* Posts the lane's next piece; nothing is left: the request stays null. A synchronous send is done
 * when the other side has matched it, so no more than a window of pieces waits in buffers there. */
static int post_piece(lane *l, MPI_Comm comm, MPI_Request *request) {
    int n = (int)(l->n_left < PIECE ? l->n_left : PIECE);
    if (n == 0)
        return MPI_SUCCESS;
    char *at = l->at;
    l->at += n;
    l->n_left -= (size_t)n;
    return l->sends ? MPI_Issend(at, n, MPI_BYTE, l->peer, 0, comm, request)
                    : MPI_Irecv(at, n, MPI_BYTE, l->peer, 0, comm, request);
}

/* Staggered, so that no rank is everybody's first. */
static void fill_lanes(const order *o, lane *lanes) {
    const oct_comm_request *q = o->request;
    for (int step = 1; step < o->size; step++) {
        int from = (o->rank + o->size - step) % o->size, to = (o->rank + step) % o->size;
        *lanes++ = (lane){q->receive[from], q->n_receive[from], from, false};
        *lanes++ = (lane){(char *)q->send[to], q->n_send[to], to, true};
    }
}

/* The pieces under way: requests of lane i are those from i * window on. */
typedef struct pieces {
    int n, window;
    MPI_Request *requests; /* (n) */
    int *finished;         /* (n) */
    MPI_Status *statuses;  /* (n); MPI_STATUSES_IGNORE is an address that gcc warns of in MPICH */
} pieces;

static int move(lane *lanes, int n_lanes, MPI_Comm comm, const pieces *p) {
    int n_finished = 0, result = MPI_SUCCESS;
    long sleep_ns = MIN_SLEEP_NS;
    for (int w = 0; w < p->window; w++)
        for (int i = 0; i < n_lanes && result == MPI_SUCCESS; i++)
            result = post_piece(&lanes[i], comm, &p->requests[i * p->window + w]);
    while (result == MPI_SUCCESS && !atomic_load(&engine.aborting)) {
        result = MPI_Testsome(p->n, p->requests, &n_finished, p->finished, p->statuses);
        if (result == MPI_SUCCESS && n_finished == MPI_UNDEFINED)
            return 1;
        for (int i = 0; i < n_finished && result == MPI_SUCCESS; i++) {
            int at = p->finished[i];
            result = post_piece(&lanes[at / p->window], comm, &p->requests[at]);
        }
        if (n_finished > 0) {
            sleep_ns = MIN_SLEEP_NS;
            continue;
        }
        nanosleep(&(struct timespec){0, sleep_ns}, NULL);
        sleep_ns = sleep_ns < MAX_SLEEP_NS ? sleep_ns + sleep_ns / 2 : MAX_SLEEP_NS;
    }
    return -1;
}

static int exchange(const order *o) {
    int n_lanes = 2 * (o->size - 1), window = MAX_PIECES / n_lanes, result = -1;
    window = window < MIN_WINDOW ? MIN_WINDOW : window > MAX_WINDOW ? MAX_WINDOW : window;
    size_t n = (size_t)n_lanes * (size_t)window;
    lane *lanes = oct_malloc_array((size_t)n_lanes, sizeof *lanes);
    pieces p = {.n = (int)n,
                .window = window,
                .requests = oct_malloc_array(n, sizeof *p.requests),
                .finished = oct_malloc_array(n, sizeof *p.finished),
                .statuses = oct_malloc_array(n, sizeof *p.statuses)};
    if (lanes && p.requests && p.finished && p.statuses) {
        for (size_t i = 0; i < n; i++)
            p.requests[i] = MPI_REQUEST_NULL;
        fill_lanes(o, lanes);
        result = move(lanes, n_lanes, *o->comm, &p);
    }
    oct_free(p.statuses);
    oct_free(p.finished);
    oct_free(p.requests);
    oct_free(lanes);
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
    atomic_store(&engine.aborting, true);
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
    char *mark = strstr(name, " Version:"); /* of MPICH: "MPICH Version:\t4.0.2" */
    if (mark) {
        char *version = mark + strlen(" Version:");
        version += strspn(version, " \t");
        memmove(mark + 1, version, strlen(version) + 1);
    }
    return name;
}
