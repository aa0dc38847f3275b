/* Signals that ask a run to end: SIGINT (Ctrl-C), SIGTERM, and SIGUSR1, which schedulers send
 * before a job's time is over.
 *
 * The first one lets the step come to its end, so that it can be saved; before training has begun,
 * and for each one after that, the process ends at once. Two within half a second are one: a
 * terminal, timeout(1) and mpirun each may send the same signal to a process twice. They work in
 * process 1 of a container too, where the system ignores those without a handler. A signal that was
 * ignored when the program started (nohup, a shell's background) stays so. */
#ifndef OCT_CLI_STOP_H
#define OCT_CLI_STOP_H

#include <stdbool.h>
#include <sys/types.h>

/* From here on the signals end the process at once. */
void cli_stop_install(void);
/* From here on the first one is answered by cli_stop_asked alone. */
void cli_stop_at_a_step(void);
/* No word on standard error: another process says it. */
void cli_stop_quietly(void);

/* The signal that came, 0: none. An oct_stop_query. */
int cli_stop_asked(void *user);
const char *cli_stop_name(int signal); /* "SIGTERM" */

/* Forks; the signals that this process gets are handed on to the child until cli_stop_disown. The
 * child begins as a process that got none. */
pid_t cli_stop_fork(void);
void cli_stop_disown(void);

/* Says what main shall end with: `signal`, as if it had ended the process, which a shell shows as
 * 128 + its number. As one of several processes with that number as status, as a launcher
 * expects. */
void cli_stop_conclude(int signal, bool is_one_of_several);
/* Ends the process so, if there was a conclusion. */
void cli_stop_exit(void);

#endif
