/* Commands of commands: see subcommand.h. */
#include "subcommand.h"

#include <stdio.h>
#include <string.h>

#include "base/nearest.h"

#define MAX_SUBCOMMANDS 16

static oct_status fail_unknown(const char *command, const cli_subcommand *subcommands, int n,
                               const char *name, oct_error *err) {
    const char *names[MAX_SUBCOMMANDS] = {0};
    int n_names = n < MAX_SUBCOMMANDS ? n : MAX_SUBCOMMANDS;
    for (int i = 0; i < n_names; i++)
        names[i] = subcommands[i].name;
    const char *nearest = oct_nearest_name(name, names, (size_t)n_names);
    if (nearest)
        return oct_fail(err, OCT_INVALID, "%s %.100s: unknown command; did you mean '%s'?", command,
                        name, nearest);
    char list[256] = "";
    for (int i = 0; i < n_names; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s'%s'", i ? ", " : "", names[i]);
    }
    return oct_fail(err, OCT_INVALID, "%s %.100s: unknown command; expected %s (octet %s --help)",
                    command, name, list, command);
}

oct_status cli_run_subcommand(const char *command, const cli_subcommand *subcommands, int n,
                              int argc, char **argv, oct_error *err) {
    if (argc < 1)
        return oct_fail(err, OCT_INVALID, "%s: a command is missing; octet %s --help lists them",
                        command, command);
    if (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0) {
        printf("usage: octet %s COMMAND ...\n\ncommands:\n", command);
        for (int i = 0; i < n; i++)
            printf("  %-12s %s\n", subcommands[i].name, subcommands[i].summary);
        return OCT_OK;
    }
    for (int i = 0; i < n; i++)
        if (strcmp(argv[0], subcommands[i].name) == 0)
            return subcommands[i].run(argc - 1, argv + 1, err);
    return fail_unknown(command, subcommands, n, argv[0], err);
}
