/* octet: the program. Finds the command, runs it, turns its status into an exit status: 0 done, 1
 * the run failed, 2 the input is wrong. Errors are one line on standard error. */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/nearest.h"
#include "cli.h"
#include "kernel/select.h"
#include "terminal.h"

typedef struct cli_command {
    const char *name;
    const char *summary;
    oct_status (*run)(int argc, char **argv, oct_error *err);
} cli_command;

static const cli_command commands[] = {
    {"train", "trains a model as a job file says", cli_train},
    {"plan", "what a job would convert to 8 bits, and why", cli_plan},
    {"compare", "trains once a recipe and shows what each costs", cli_compare},
    {"eval", "loss and perplexity of a checkpoint on a text", cli_eval},
    {"generate", "continues a prompt", cli_generate},
    {"tokenizer", "train a tokenizer; text to token ids and back", cli_tokenizer},
    {"data", "texts to packed token files", cli_data},
    {"bench", "this machine's kernels against fp32 libraries and memcpy", cli_bench},
    {"info", "what this machine has and which kernels are used", cli_info},
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static void print_help(void) {
    printf("usage: octet COMMAND ...\n\n"
           "Trains transformer language models in 8-bit floating point on CPUs.\n\ncommands:\n");
    for (int i = 0; i < N_COMMANDS; i++)
        printf("  %-12s %s\n", commands[i].name, commands[i].summary);
    printf("\n`octet COMMAND --help` says more; `octet --version` prints the version.\n");
}

static oct_status fail_unknown(const char *name, oct_error *err) {
    const char *names[N_COMMANDS];
    for (int i = 0; i < N_COMMANDS; i++)
        names[i] = commands[i].name;
    const char *nearest = oct_nearest_name(name, names, N_COMMANDS);
    if (nearest)
        return oct_fail(err, OCT_INVALID, "%s: unknown command; did you mean '%s'?", name, nearest);
    return oct_fail(err, OCT_INVALID,
                    "'%.100s': unknown command; expected one of those that octet --help "
                    "lists",
                    name);
}

static oct_status run_command(const cli_command *command, int argc, char **argv, oct_error *err) {
    oct_status status = oct_kernels_init(err);
    return status == OCT_OK ? command->run(argc, argv, err) : status;
}

static oct_status run(int argc, char **argv, oct_error *err) {
    if (argc < 2)
        return oct_fail(err, OCT_INVALID, "a command is missing; octet --help lists them");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help();
        return OCT_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("octet %s\n", OCT_VERSION);
        return OCT_OK;
    }
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return run_command(&commands[i], argc - 2, argv + 2, err);
    return fail_unknown(argv[1], err);
}

/* A standard stream that the caller closed would give its number to the next file that is opened,
 * and log lines would go there. An end that can't be written takes the place of each. */
static void hold_standard_streams(void) {
    int fd;
    do
        fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

int main(int argc, char **argv) {
    oct_error err = {0};
    hold_standard_streams();
    signal(SIGXFSZ, SIG_IGN); /* a file over the limit is a failed write, as a full disk is */
    cli_terminal_init();
    oct_status status = run(argc, argv, &err);
    cli_progress_end();
    bool written = fflush(stdout) == 0 && !ferror(stdout);
    if (!written && status == OCT_OK)
        status = oct_fail(&err, OCT_FAILED, "standard output: the write failed");
    if (status != OCT_OK)
        fprintf(stderr, "octet: %s\n", err.message[0] ? err.message : "out of memory");
    return oct_status_exit_code(status);
}
