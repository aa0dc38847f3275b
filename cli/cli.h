/* The commands of the program. Each gets what follows its name, prints its results on standard
 * output and returns its status with the message in *err; main prints that and sets the exit
 * status. Parsing and printing only: all else is the library. */
#ifndef OCT_CLI_CLI_H
#define OCT_CLI_CLI_H

#include <octet/status.h>

oct_status cli_bench(int argc, char **argv, oct_error *err);
oct_status cli_compare(int argc, char **argv, oct_error *err);
oct_status cli_data(int argc, char **argv, oct_error *err);
oct_status cli_eval(int argc, char **argv, oct_error *err);
oct_status cli_export(int argc, char **argv, oct_error *err);
oct_status cli_generate(int argc, char **argv, oct_error *err);
oct_status cli_info(int argc, char **argv, oct_error *err);
oct_status cli_inspect(int argc, char **argv, oct_error *err);
oct_status cli_plan(int argc, char **argv, oct_error *err);
oct_status cli_tokenizer(int argc, char **argv, oct_error *err);
oct_status cli_train(int argc, char **argv, oct_error *err);
oct_status cli_vectors(int argc, char **argv, oct_error *err);

/* Exit statuses of answers, beside those of oct_status_exit_code. */
enum { CLI_EXIT_WORSE = 3, CLI_EXIT_UNRESOLVED = 4 };
/* The exit status of a command that did what it should; 0 if it isn't called. */
void cli_conclude_with(int exit_status);

#endif
