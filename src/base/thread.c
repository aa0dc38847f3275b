/* Thread loops over a pool of workers: see thread.h.
 *
 * Not OpenMP, because libgomp's threads spin at every barrier: where other work or other ranks
 * share the cores, two threads then train about three times slower than one (255 to 341 against 750
 * to 830 tokens/s, measured at a load of 9 on two cores; 750 to 830 with this pool). Here a waiting
 * thread spins for a moment and then sleeps.
 *
 * Invariant: a loop starts only after every worker has left the one before, so `pool`'s fields are
 * stable while any worker reads them. The pool belongs to one loop at a time; a loop that finds it
 * taken runs serially, which gives the same bits. */
#include "base/thread.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/call.h"
#include "base/cgroup.h"

#define MAX_THREADS 1024
#define SPINS                                                                                      \
    2000 /* of a pause each: some tens of microseconds, longer than a step's serial gaps */

static struct {
    pthread_mutex_t owner; /* held by the loop under way */
    pthread_mutex_t mutex; /* guards the conditions */
    pthread_cond_t work, idle;
    int n_workers;          /* started so far */
    int n_helping;          /* workers 1 .. n_helping take part in this loop */
    atomic_uint generation; /* grows with each loop */
    unsigned first_seen; /* the generation before the first loop of the workers started last: they
                            can't miss it, as that loop waits for them */
    atomic_int n_busy;   /* workers that have not left this loop */
    oct_task task;
    void *context;
    int64_t n_tasks;
    _Atomic int64_t next;
} pool = {.owner = PTHREAD_MUTEX_INITIALIZER,
          .mutex = PTHREAD_MUTEX_INITIALIZER,
          .work = PTHREAD_COND_INITIALIZER,
          .idle = PTHREAD_COND_INITIALIZER};

static atomic_int n_threads;     /* of the process; 0: not asked for yet */
static _Thread_local int n_call; /* of the public function that this thread is in; 0: in none */
static _Thread_local bool inside;

/* A number from 1 to MAX_THREADS with spaces around it, up to a comma or the end. *end: after it.
 */
static bool read_count(const char *text, int *n, const char **end) {
    char *after;
    text += strspn(text, " \t");
    if (*text < '0' || *text > '9') /* strtol would take a sign */
        return false;
    long value = strtol(text, &after, 10); /* one too long for it is LONG_MAX */
    after += strspn(after, " \t");
    *n = value >= 1 && value <= MAX_THREADS ? (int)value : 0;
    *end = after;
    return *n > 0 && (*after == '\0' || *after == ',');
}

/* OMP_NUM_THREADS is the variable that users of such programs know, so it's read as OpenMP reads
 * it: a count, or a list of counts of which the first is for the outermost loops, and there are no
 * others here. Unset or empty: *n is 0. */
static oct_status read_wanted(int *n, oct_error *err) {
    const char *wanted = getenv("OMP_NUM_THREADS"), *rest = wanted;
    *n = 0;
    if (!wanted || !*wanted)
        return OCT_OK;
    for (int count, i = 0;; i++, rest++) {
        if (!read_count(rest, &count, &rest))
            return oct_fail(err, OCT_INVALID,
                            "OMP_NUM_THREADS: expected a number of threads from 1 to %d; got "
                            "\"%.40s\"",
                            MAX_THREADS, wanted);
        if (i == 0)
            *n = count;
        if (!*rest)
            return OCT_OK;
    }
}

/* More threads than a quota has CPUs are stopped together for a part of each period, and the one
 * that computes the last task with them. A part of a CPU counts as one: it would lie idle else. */
int oct_threads_for(int n_cpus, double quota) {
    int n = n_cpus;
    if (quota > 0 && quota < n)
        n = (int)ceil(quota);
    return n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : n;
}

int oct_threads_cpus(void) {
    cpu_set_t cpus;
    return sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
}

static int default_threads(void) {
    int n;
    if (read_wanted(&n, NULL) == OCT_OK && n > 0) /* what is wrong oct_threads_init says */
        return n;
    return oct_threads_for(oct_threads_cpus(), oct_cgroup_cpus(""));
}

oct_status oct_threads_init(oct_error *err) {
    int n;
    return read_wanted(&n, err);
}

static int at_most(int n) {
    return n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : n;
}

int oct_threads(void) {
    if (n_call > 0)
        return n_call;
    int n = atomic_load(&n_threads), unset = 0;
    if (n > 0)
        return n;
    n = default_threads();
    /* What another thread has set meanwhile stays. */
    return atomic_compare_exchange_strong(&n_threads, &unset, n) ? n : unset;
}

void oct_threads_set(int n) {
    atomic_store(&n_threads, at_most(n));
}

oct_call oct_call_begin(int threads) {
    oct_call call = {.mode = oct_float_mode_begin(), .threads_before = n_call};
    n_call = threads > 0 ? at_most(threads) : oct_threads();
    return call;
}

void oct_call_end(const oct_call *call) {
    n_call = call->threads_before;
    oct_float_mode_end(&call->mode);
}

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

static void run_tasks(int thread) {
    inside = true;
    for (;;) {
        int64_t i = atomic_fetch_add_explicit(&pool.next, 1, memory_order_relaxed);
        if (i >= pool.n_tasks)
            break;
        pool.task(pool.context, i, thread);
    }
    inside = false;
}

static unsigned wait_for_work(unsigned seen) {
    for (int i = 0; i < SPINS && atomic_load(&pool.generation) == seen; i++)
        relax();
    if (atomic_load(&pool.generation) == seen) {
        pthread_mutex_lock(&pool.mutex);
        while (atomic_load(&pool.generation) == seen)
            pthread_cond_wait(&pool.work, &pool.mutex);
        pthread_mutex_unlock(&pool.mutex);
    }
    return atomic_load(&pool.generation);
}

static void *worker(void *argument) {
    int thread = (int)(intptr_t)argument;
    oct_float_mode_begin(); /* a thread begins in the mode of the one that made it */
    unsigned seen = pool.first_seen;
    for (;;) {
        seen = wait_for_work(seen);
        if (thread <= pool.n_helping)
            run_tasks(thread);
        if (atomic_fetch_sub(&pool.n_busy, 1) == 1) {
            pthread_mutex_lock(&pool.mutex);
            pthread_cond_signal(&pool.idle);
            pthread_mutex_unlock(&pool.mutex);
        }
    }
    return NULL;
}

static void wait_for_workers(void) {
    for (int i = 0; i < SPINS && atomic_load(&pool.n_busy); i++)
        relax();
    if (!atomic_load(&pool.n_busy))
        return;
    pthread_mutex_lock(&pool.mutex);
    while (atomic_load(&pool.n_busy))
        pthread_cond_wait(&pool.idle, &pool.mutex);
    pthread_mutex_unlock(&pool.mutex);
}

/* A forked child has no workers: it starts its own. */
static void forget_workers(void) {
    pthread_mutex_init(&pool.owner, NULL);
    pthread_mutex_init(&pool.mutex, NULL);
    pthread_cond_init(&pool.work, NULL);
    pthread_cond_init(&pool.idle, NULL);
    pool.n_workers = 0;
    atomic_store(&pool.generation, 0);
    atomic_store(&pool.n_busy, 0);
}

/* Starts workers up to n; those that the system refuses are done without. */
static void start_workers(int n) {
    static bool fork_handled;
    if (!fork_handled)
        fork_handled = pthread_atfork(NULL, NULL, forget_workers) == 0;
    pool.first_seen = atomic_load(&pool.generation);
    while (pool.n_workers < n) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, worker, (void *)(intptr_t)(pool.n_workers + 1)) != 0)
            break;
        pthread_detach(thread);
        pool.n_workers++;
    }
}

static void run_serially(int64_t n_tasks, oct_task task, void *context) {
    for (int64_t i = 0; i < n_tasks; i++)
        task(context, i, 0);
}

void oct_parallel(int64_t n_tasks, oct_task task, void *context) {
    int n = oct_threads();
    if (n == 1 || n_tasks <= 1 || inside || pthread_mutex_trylock(&pool.owner) != 0) {
        run_serially(n_tasks, task, context);
        return;
    }
    if (pool.n_workers < n - 1)
        start_workers(n - 1);
    pool.task = task;
    pool.context = context;
    pool.n_tasks = n_tasks;
    pool.n_helping = n - 1;
    atomic_store(&pool.next, 0);
    atomic_store(&pool.n_busy, pool.n_workers);
    pthread_mutex_lock(&pool.mutex);
    atomic_fetch_add(&pool.generation, 1);
    pthread_cond_broadcast(&pool.work);
    pthread_mutex_unlock(&pool.mutex);
    run_tasks(0);
    wait_for_workers();
    pthread_mutex_unlock(&pool.owner);
}
