/* Thread loops over OpenMP: see thread.h. */
#include "base/thread.h"

#include <omp.h>

static int n_threads;

int oct_threads(void) {
    if (n_threads == 0)
        n_threads = omp_get_max_threads();
    return n_threads;
}

void oct_threads_set(int n) {
    n_threads = n < 1 ? 1 : n;
}

void oct_parallel(int64_t n_tasks, oct_task task, void *context) {
    int n = oct_threads();
    if (n == 1 || n_tasks <= 1 || omp_in_parallel()) {
        for (int64_t i = 0; i < n_tasks; i++)
            task(context, i, 0);
        return;
    }
#pragma omp parallel for schedule(dynamic, 1) num_threads(n)
    for (int64_t i = 0; i < n_tasks; i++)
        task(context, i, omp_get_thread_num());
}
