/* Threads of this process's loops. Results are the same bits for any number of them. */
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
