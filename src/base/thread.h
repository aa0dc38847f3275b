/* Thread loops. Work is cut into tasks whose shape never depends on the number of threads; a task
 * writes only its own outputs. So results are the same bits with any number of threads. */
#ifndef OCT_BASE_THREAD_H
#define OCT_BASE_THREAD_H

#include <octet/status.h>
#include <octet/threads.h>
#include <stdint.h>

/* Whether OMP_NUM_THREADS can be read; programs ask at their start. OCT_INVALID says what it has to
 * be; oct_threads() then is as if it weren't set. */
oct_status oct_threads_init(oct_error *err);
/* CPUs that this process may be scheduled on. */
int oct_threads_cpus(void);
/* How many threads are right for as many CPUs and a quota (see cgroup.h; 0: none), 1 to 1024. */
int oct_threads_for(int n_cpus, double quota);

/* `thread` is in 0 .. oct_threads()-1 and picks a slice of scratch memory, never a result. */
typedef void (*oct_task)(void *context, int64_t task, int thread);

/* Runs task 0 .. n_tasks-1, dynamically scheduled; returns when all are done. A call from inside a
 * task runs serially with thread 0: such inner calls must not use per-thread scratch of the outer
 * loop. */
void oct_parallel(int64_t n_tasks, oct_task task, void *context);

#endif
