/* What launchers tell a process of itself, by variables of its environment. Internal to the room.
 */
#ifndef OCT_COMM_LAUNCH_H
#define OCT_COMM_LAUNCH_H

#include <octet/status.h>
#include <stdbool.h>

/* Whether an MPI library may find other processes: mpirun, or srun with PMI or PMIx. */
bool oct_launch_is_mpi(void);

/* How many processes were started together with this one; 1 where that is said; 0: not said. */
int oct_launch_size(void);

/* For a process that found itself alone. OCT_INVALID when it was started as one of several: each
 * would do all of the work, and write over the others. `library` names the MPI library of this
 * build. */
oct_status oct_launch_check_alone(const char *library, oct_error *err);

#endif
