/* Commands that have commands of their own: `octet tokenizer train`, `octet data pack`. */
#ifndef OCT_CLI_SUBCOMMAND_H
#define OCT_CLI_SUBCOMMAND_H

#include <octet/status.h>

typedef struct cli_subcommand {
    const char *name, *summary;
    oct_status (*run)(int argc, char **argv, oct_error *err);
} cli_subcommand;

/* Runs the one that argv[0] names with the rest of argv; `--help` lists them. OCT_INVALID: none or
 * an unknown one, with its nearest. */
oct_status cli_run_subcommand(const char *command, const cli_subcommand *subcommands, int n,
                              int argc, char **argv, oct_error *err);

#endif
