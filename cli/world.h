/* The processes that a launcher started together: the first one speaks for all. */
#ifndef OCT_CLI_WORLD_H
#define OCT_CLI_WORLD_H

#include "comm/comm.h"

/* Joins the others; all but the first rank stop logging. */
oct_status cli_world_open(oct_comm **world, oct_error *err);
/* A failure that the others don't know of: says so and ends all of them. Returns otherwise. */
void cli_world_failed(oct_comm *world, oct_status status, const oct_error *err);
/* For a command of one process: refuses to be started as several. */
oct_status cli_world_alone(const char *command, oct_error *err);
/* Waits for the others. Of several processes that agreed on a failure the first says it, then all
 * end here with its exit status. */
void cli_world_close(oct_comm *world, oct_status status, const oct_error *err);

#endif
