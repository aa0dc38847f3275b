/* What an implementation of a communicator brings: one exchange of bytes between all ranks.
 * Internal to src/comm. */
#ifndef OCT_COMM_TRANSPORT_H
#define OCT_COMM_TRANSPORT_H

#include "comm/comm.h"

typedef struct oct_transport {
    /* Starts request->send/receive for all other ranks; `done` becomes 1 (or -1: broken) when all
     * has moved. */
    void (*begin)(oct_comm *comm, oct_comm_request *request);
    void (*wait)(oct_comm *comm, oct_comm_request *request);
    oct_status (*split)(oct_comm *comm, int color, oct_comm *out);
    void (*destroy)(oct_comm *comm);
    void (*abort)(oct_comm *comm, int exit_code);
} oct_transport;

struct oct_comm {
    const oct_transport *transport;
    int rank, size;
    void *state;     /* the transport's own */
    oct_comm *world; /* where bytes are counted; itself for the world */
    int64_t bytes[OCT_N_TRAFFIC];
    double seconds[OCT_N_TRAFFIC];
    bool agreed_to_fail; /* kept by the world */
};

/* Fills a zeroed communicator with the MPI world; OCT_INVALID when this build has no MPI. */
oct_status oct_transport_mpi_world(oct_comm *comm, oct_error *err);

#endif
