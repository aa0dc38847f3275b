/* octet: the program. Finds the command, runs it, turns its status into an exit status: 0 done, 1
 * the run failed, 2 the input is wrong. An error is one line on standard error; a job's mistakes
 * are one line each. */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <octet/version.h>
#include <unistd.h>

#include "base/count.h"
#include "base/float_mode.h"
#include "base/nearest.h"
#include "base/thread.h"
#include "cli.h"
#include "kernel/select.h"
#include "stop.h"
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
    {"inspect", "which weights of a model 8 bits hurt most", cli_inspect},
    {"export", "writes a model as a folder that other programs load", cli_export},
    {"tokenizer", "train a tokenizer; text to token ids and back", cli_tokenizer},
    {"data", "texts to packed token files", cli_data},
    {"bench", "this machine's kernels against fp32 libraries and memcpy", cli_bench},
    {"vectors", "writes the golden vectors of all formats", cli_vectors},
    {"info", "what this machine has and which kernels are used", cli_info},
};
enum { N_COMMANDS = OCT_COUNT(commands) };

static const char *const help_words[] = {"help", "--help", "-h", NULL};
static const char *const version_words[] = {"version", "--version", "-V", NULL};

static bool is_one_of(const char *word, const char *const *words) {
    for (; *words; words++)
        if (strcmp(word, *words) == 0)
            return true;
    return false;
}

static void print_help(void) {
    printf("usage: octet COMMAND ...\n\n"
           "Trains transformer language models in 8-bit floating point on CPUs.\n\ncommands:\n");
    for (int i = 0; i < N_COMMANDS; i++)
        printf("  %-12s %s\n", commands[i].name, commands[i].summary);
    printf("\n`octet help COMMAND` or `octet COMMAND --help` says more; `octet version` prints the "
           "version.\n");
}

static bool ends_with(const char *text, const char *ending) {
    size_t n = strlen(text), m = strlen(ending);
    return n > m && strcmp(text + n - m, ending) == 0;
}

static oct_status fail_unknown(const char *name, oct_error *err) {
    if (ends_with(name, ".toml") || ends_with(name, ".yaml") || ends_with(name, ".yml"))
        return oct_fail(err, OCT_INVALID,
                        "'%.300s': expected a command before the job file; did you mean octet "
                        "train %.300s?",
                        name, name);
    if (name[0] == '-')
        return oct_fail(err, OCT_INVALID,
                        "%.100s: expected a command before its options; octet --help lists the "
                        "commands",
                        name);
    const char *names[N_COMMANDS + 2] = {"help", "version"};
    for (int i = 0; i < N_COMMANDS; i++)
        names[i + 2] = commands[i].name;
    const char *nearest = oct_nearest_name(name, names, N_COMMANDS + 2);
    if (nearest)
        return oct_fail(err, OCT_INVALID, "%.100s: unknown command; did you mean '%s'?", name,
                        nearest);
    return oct_fail(err, OCT_INVALID,
                    "'%.100s': unknown command; expected one of those that octet --help "
                    "lists",
                    name);
}

static oct_status read_environment(oct_error *err) {
    oct_status status = oct_kernels_init(err);
    return !status ? oct_threads_init(err) : status;
}

static oct_status run_named(int argc, char **argv, oct_error *err) {
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(argv[0], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1, err);
    return fail_unknown(argv[0], err);
}

/* `help tokenizer train` is `tokenizer train --help`; `help` alone lists the commands. */
static oct_status run_help(int argc, char **argv, oct_error *err) {
    enum { MAX_WORDS = 2 };
    char *words[MAX_WORDS + 1];
    if (argc > MAX_WORDS)
        return oct_fail(err, OCT_INVALID,
                        "help: unexpected argument '%.100s'; usage: octet help [COMMAND]",
                        argv[MAX_WORDS]);
    if (argc == 0 || is_one_of(argv[0], help_words)) {
        print_help();
        return OCT_OK;
    }
    for (int i = 0; i < argc; i++)
        words[i] = argv[i];
    words[argc] = "--help";
    return run_named(argc + 1, words, err);
}

/* `tokenizer help train` and `train help` are meant so too, unless a file has that name. */
static bool asks_for_help(int argc, char **argv) {
    return argc > 2 && strcmp(argv[2], "help") == 0 && access(argv[2], F_OK) != 0;
}

static oct_status run(int argc, char **argv, oct_error *err) {
    if (argc < 2)
        return oct_fail(err, OCT_INVALID, "a command is missing; octet --help lists them");
    if (is_one_of(argv[1], help_words))
        return run_help(argc - 2, argv + 2, err);
    if (asks_for_help(argc, argv)) {
        argv[2] = argv[1]; /* in the place of the word: the command, and what follows it */
        return run_help(argc - 2, argv + 2, err);
    }
    if (!is_one_of(argv[1], version_words)) {
        oct_status status = read_environment(err);
        return !status ? run_named(argc - 1, argv + 1, err) : status;
    }
    if (argc > 2)
        return oct_fail(err, OCT_INVALID, "%s: unexpected argument '%.100s'; usage: octet version",
                        argv[1], argv[2]);
    printf("octet %s\n", oct_version());
    return OCT_OK;
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

static int answer;

void cli_conclude_with(int exit_status) {
    answer = exit_status;
}

int main(int argc, char **argv) {
    oct_error err = {0};
    oct_float_mode_begin(); /* a library that was loaded may have set another */
    hold_standard_streams();
    signal(SIGXFSZ, SIG_IGN); /* a file over the limit is a failed write, as a full disk is */
    cli_terminal_init();
    oct_status status = run(argc, argv, &err);
    cli_progress_end();
    bool written = fflush(stdout) == 0 && !ferror(stdout);
    if (!written && !status)
        status = oct_fail(&err, OCT_FAILED, "standard output: the write failed");
    if (status)
        cli_print_error(&err);
    else
        cli_stop_exit();
    return !status ? answer : oct_status_exit_code(status);
}
