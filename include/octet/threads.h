/* Threads of this process's loops. Results are the same bits for any number of them.
 *
 * A function with an argument `threads` uses as many, or with 0 oct_threads(). Every function reads
 * the number once, when it is called: setting another beside a running one changes nothing there.
 * Both functions may be called from any thread at any time. */
#ifndef OCTET_THREADS_H
#define OCTET_THREADS_H

#include <octet/api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* At least 1. The default is OMP_NUM_THREADS (of a list the first number) or, where that isn't set
 * or is no number from 1 to 1024, the CPUs that this process may use: no more than a container's
 * CPU quota, rounded up. */
OCT_API int oct_threads(void);
OCT_API void oct_threads_set(int n); /* n < 1 counts as 1 */

#ifdef __cplusplus
}
#endif
#endif
