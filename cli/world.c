/* Processes of one job: see world.h. */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "stop.h"
#include "terminal.h"

oct_status cli_world_open(oct_comm **world, oct_error *err) {
    oct_status status = oct_comm_create_world(world, err);
    if (!status && oct_comm_rank(*world) > 0) {
        oct_log_set_sink(NULL, NULL);
        cli_stop_quietly();
    }
    return status;
}

static const char *message_of(const oct_error *err) {
    return err->message[0] ? err->message : "out of memory";
}

static void say(const oct_error *err) {
    cli_progress_end();
    cli_print_error(err);
}

void cli_world_failed(oct_comm *world, oct_status status, const oct_error *err) {
    if (oct_comm_size(world) == 1 || oct_comm_agreed_to_fail(world))
        return;
    cli_progress_end();
    fprintf(stderr, "octet: rank %d: %s\n", oct_comm_rank(world), message_of(err));
    oct_comm_abort(world, oct_status_exit_code(status));
}

void cli_world_close(oct_comm *world, oct_status status, const oct_error *err) {
    bool alone = oct_comm_size(world) == 1, first = oct_comm_rank(world) == 0;
    if (!alone && status) {
        cli_stop_quietly(); /* a launcher ends the others when the first one goes */
        if (first)
            say(err);
        oct_comm_barrier(world); /* a launcher may end all at the first exit: not before the word */
    }
    oct_comm_destroy(world);
    if (!alone && status)
        exit(oct_status_exit_code(status));
}

oct_status cli_world_alone(const char *command, oct_error *err) {
    oct_comm *world = NULL;
    oct_status status = cli_world_open(&world, err);
    if (status)
        return status;
    if (oct_comm_size(world) > 1)
        status = oct_fail(err, OCT_INVALID,
                          "%s: runs in one process; expected no launcher; got %d processes",
                          command, oct_comm_size(world));
    cli_world_close(world, status, err);
    return status;
}
