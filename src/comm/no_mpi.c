/* A build without MPI: one process only. */
#include "comm/launch.h"
#include "comm/transport.h"

oct_status oct_transport_mpi_world(oct_comm *comm, oct_error *err) {
    (void)comm;
    if (oct_launch_size() == 1) /* mpirun -n 1: alone is what is wanted */
        return OCT_OK;
    return oct_fail(err, OCT_INVALID,
                    "started by an MPI launcher, but this build has no MPI; install libopenmpi-dev "
                    "or libmpich-dev and "
                    "build again");
}

const char *oct_comm_library(void) {
    return "none";
}
