/* The command line of one command: a table of options, read into the caller's variables, and its
 * --help text.
 *
 * An option is `--name value` or `--name=value` (`-` and `_` are the same in names), a flag is
 * `--name`; `--` ends them. Commands that read a job file also take `--section.key=value`
 * overrides, told by the dot in their name, and hand them on to the job reader unread. */
#ifndef OCT_CLI_OPTIONS_H
#define OCT_CLI_OPTIONS_H

#include <octet/status.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum cli_option_kind {
    CLI_FLAG,    /* value: bool, set to true */
    CLI_TEXT,    /* value: const char *, points into argv */
    CLI_NAME,    /* the same, and not empty: a path, a name */
    CLI_INTEGER, /* value: int64_t in low .. high */
    CLI_REAL,    /* value: double in low .. high */
    CLI_LIST     /* value: cli_list; each time that it is there adds a text that isn't empty */
} cli_option_kind;

enum { CLI_MAX_LIST = 16 };
typedef struct cli_list {
    const char *texts[CLI_MAX_LIST]; /* point into argv */
    int n;
} cli_list;

typedef struct cli_option {
    const char *name; /* without the dashes: "vocab-size" */
    cli_option_kind kind;
    void *value;       /* holds the default before parsing */
    const char *label; /* what the value stands for in --help: "N"; NULL for a flag */
    const char *help;  /* one line; say the default */
    double low, high;  /* inclusive range of a number; both 0: any */
} cli_option;

typedef enum cli_overrides { CLI_NO_OVERRIDES, CLI_JOB_OVERRIDES } cli_overrides;

typedef struct cli_spec {
    const char *usage;    /* "octet tokenizer train TEXT... [options]" */
    const char *summary;  /* a sentence or two */
    const char *examples; /* lines of them, as one types them after `octet `; NULL: none */
    const cli_option *options;
    int n_options;
    int min_operands, max_operands; /* max -1: any number */
    cli_overrides overrides;
} cli_spec;

typedef struct cli_args {
    const char **operands; /* arguments that are no options; point into argv */
    int n_operands;
    const char **overrides; /* `--section.key=value` or `--section.key`, `value` */
    int n_overrides;
    bool help; /* --help or -h was there: print it and stop; nothing else was checked */
} cli_args;

/* Reads argv[0 .. argc-1], which is what follows the command's name. OCT_INVALID: an unknown option
 * (its nearest is named), a missing or impossible value, too few or too many operands; the message
 * names the argument. Free *args with cli_args_free whatever the status. */
oct_status cli_parse(const cli_spec *spec, int argc, char **argv, cli_args *args, oct_error *err);
/* The same, answering --help too; true: the command is to run. */
bool cli_begin(const cli_spec *spec, int argc, char **argv, cli_args *args, oct_status *status,
               oct_error *err);
void cli_args_free(cli_args *args);

/* The --help text on standard output. */
void cli_print_help(const cli_spec *spec);

#endif
