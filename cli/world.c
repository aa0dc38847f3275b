/* Processes of one job: see world.h. */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "terminal.h"

oct_status cli_world_open(oct_comm **world, oct_error *err) {
    oct_status status = oct_comm_create_world(world, err);
    if (status == OCT_OK && oct_comm_rank(*world) > 0)
        oct_log_set_sink(NULL, NULL);
    return status;
}

void cli_world_failed(oct_comm *world, oct_status status, const oct_error *err) {
    if (oct_comm_size(world) == 1 || oct_comm_agreed_to_fail(world))
        return;
    cli_progress_end();
    fprintf(stderr, "octet: rank %d: %s\n", oct_comm_rank(world),
            err->message[0] ? err->message : "out of memory");
    oct_comm_abort(world, oct_status_exit_code(status));
}

void cli_world_close(oct_comm *world, oct_status status) {
    bool silent = oct_comm_rank(world) > 0;
    oct_comm_destroy(world);
    if (silent && status != OCT_OK)
        exit(oct_status_exit_code(status));
}
