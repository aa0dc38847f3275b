/* What a user sees while a command runs: log lines in torchtitan's form and a progress bar. Colour
 * and the bar only on a terminal. */
#ifndef OCT_CLI_TERMINAL_H
#define OCT_CLI_TERMINAL_H

#include <octet/status.h>
#include <stdbool.h>
#include <stdint.h>

/* Warnings and log lines go to standard error until a command says otherwise. */
void cli_terminal_init(void);
/* The log is this command's output: it goes to standard output. */
void cli_log_to_stdout(void);
/* Drops informative lines; warnings stay. */
void cli_log_warnings_only(void);
/* Whether log lines go to a terminal. */
bool cli_log_on_terminal(void);

/* An oct_progress: draws `what [====    ] done/total` on standard error if it's a terminal. */
void cli_progress(void *user, const char *what, int64_t done, int64_t total);
/* Wipes the bar. */
void cli_progress_end(void);

/* Error lines, on standard error: `octet: ` and the message. */
void cli_print_error(const oct_error *err);
/* Further lines that the next printed error is followed by, each opened in the same way. The text
 * is copied; NULL is none. */
void cli_add_errors(const char *lines);

#endif
