/* The command line of one command: see options.h. */
#include "options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/nearest.h"
#include "config/job.h"

#define MAX_OPTIONS 64

/* Compares the first n bytes of `a` with `name`; `-` and `_` are the same. */
static bool same_name(const char *a, size_t n, const char *name) {
    if (strlen(name) != n)
        return false;
    for (size_t i = 0; i < n; i++) {
        char x = a[i] == '_' ? '-' : a[i];
        char y = name[i] == '_' ? '-' : name[i];
        if (x != y)
            return false;
    }
    return true;
}

static const cli_option *find_option(const cli_spec *spec, const char *name, size_t n) {
    for (int i = 0; i < spec->n_options; i++)
        if (same_name(name, n, spec->options[i].name))
            return &spec->options[i];
    return NULL;
}

static oct_status fail_unknown(const cli_spec *spec, const char *argument, size_t n,
                               oct_error *err) {
    const char *names[MAX_OPTIONS + 1];
    size_t n_names = 0;
    char name[128];
    snprintf(name, sizeof name, "%.*s", (int)(n < 100 ? n : 100), argument);
    for (int i = 0; i < spec->n_options && i < MAX_OPTIONS; i++)
        names[n_names++] = spec->options[i].name;
    names[n_names++] = "help";
    const char *nearest = oct_nearest_name(name, names, n_names);
    if (nearest)
        return oct_fail(err, OCT_INVALID, "--%s: unknown option; did you mean --%s?", name,
                        nearest);
    if (spec->overrides == CLI_JOB_OVERRIDES && oct_job_key_like(name))
        return oct_fail(err, OCT_INVALID, "--%s: unknown option; did you mean --%s?", name,
                        oct_job_key_like(name));
    if (spec->n_options == 0 || spec->overrides == CLI_JOB_OVERRIDES)
        return oct_fail(err, OCT_INVALID,
                        "--%s: unknown option; expected one of those that --help lists", name);
    char list[512] = "";
    for (int i = 0; i < spec->n_options; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s--%s", i ? ", " : "", spec->options[i].name);
    }
    return oct_fail(err, OCT_INVALID, "--%s: unknown option; expected one of %s", name, list);
}

/* An argument too many. `training.steps=5` is an override that lacks its dashes. */
static oct_status fail_operand(const cli_spec *spec, const char *operand, oct_error *err) {
    char name[128];
    size_t n = strcspn(operand, "=");
    const char *key = NULL;
    snprintf(name, sizeof name, "%.*s", (int)(n < 100 ? n : 100), operand);
    if (spec->overrides == CLI_JOB_OVERRIDES && operand[n])
        key = oct_job_key_like(name);
    if (key)
        return oct_fail(err, OCT_INVALID, "unexpected argument '%.300s'; did you mean --%s%.300s?",
                        operand, key, operand + n);
    return oct_fail(err, OCT_INVALID, "unexpected argument '%s'; usage: %s", operand, spec->usage);
}

static bool in_range(const cli_option *option, double value) {
    return (option->low == 0 && option->high == 0) ||
           (value >= option->low && value <= option->high);
}

static oct_status fail_number(const cli_option *option, const char *text, oct_error *err) {
    const char *kind = option->kind == CLI_INTEGER ? "an integer" : "a number";
    if (option->low == 0 && option->high == 0)
        return oct_fail(err, OCT_INVALID, "--%s: expected %s; got '%s'", option->name, kind, text);
    return oct_fail(err, OCT_INVALID, "--%s: expected %s from %.15g to %.15g; got '%s'",
                    option->name, kind, option->low, option->high, text);
}

static oct_status fail_empty(const cli_option *option, oct_error *err) {
    return oct_fail(err, OCT_INVALID, "--%s: expected %s; got an empty text", option->name,
                    option->label);
}

static oct_status add_text(const cli_option *option, const char *text, oct_error *err) {
    cli_list *list = option->value;
    if (!*text)
        return fail_empty(option, err);
    if (list->n == CLI_MAX_LIST)
        return oct_fail(err, OCT_INVALID, "--%s: expected it at most %d times", option->name,
                        CLI_MAX_LIST);
    list->texts[list->n++] = text;
    return OCT_OK;
}

static oct_status set_value(const cli_option *option, const char *text, oct_error *err) {
    char *end = NULL;
    errno = 0;
    switch (option->kind) {
    case CLI_FLAG:
        return oct_fail(err, OCT_INVALID, "--%s: takes no value; got '%s'", option->name, text);
    case CLI_NAME:
        if (!*text)
            return fail_empty(option, err);
        *(const char **)option->value = text;
        return OCT_OK;
    case CLI_TEXT:
        *(const char **)option->value = text;
        return OCT_OK;
    case CLI_LIST:
        return add_text(option, text, err);
    case CLI_INTEGER: {
        long long value = strtoll(text, &end, 10);
        if (errno || end == text || *end || !in_range(option, (double)value))
            return fail_number(option, text, err);
        *(int64_t *)option->value = value;
        return OCT_OK;
    }
    case CLI_REAL: {
        double value = strtod(text, &end);
        bool decimal = end != text && !*end && !strpbrk(text, "xX");
        if (errno == ERANGE || !decimal || !isfinite(value) || !in_range(option, value))
            return fail_number(option, text, err);
        *(double *)option->value = value;
        return OCT_OK;
    }
    }
    return OCT_OK;
}

/* A value, not the next option: negative numbers start with a dash too. */
static bool looks_like_value(const char *text) {
    return text[0] != '-' || text[1] == '\0' || (text[1] >= '0' && text[1] <= '9') ||
           text[1] == '.';
}

static bool wants_help(int argc, char **argv) {
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

static oct_status check_operands(const cli_spec *spec, const cli_args *args, oct_error *err) {
    for (int i = 0; i < args->n_operands; i++)
        if (!*args->operands[i])
            return oct_fail(err, OCT_INVALID, "argument %d is empty; usage: %s", i + 1,
                            spec->usage);
    if (args->n_operands < spec->min_operands)
        return oct_fail(err, OCT_INVALID, "too few arguments; usage: %s", spec->usage);
    if (spec->max_operands >= 0 && args->n_operands > spec->max_operands)
        return fail_operand(spec, args->operands[spec->max_operands], err);
    return OCT_OK;
}

/* Reads the option at argv[*i] and moves *i to its last argument. */
static oct_status read_option(const cli_spec *spec, int argc, char **argv, int *i, cli_args *args,
                              oct_error *err) {
    const char *name = argv[*i] + 2;
    const char *equals = strchr(name, '=');
    size_t n = equals ? (size_t)(equals - name) : strlen(name);
    const cli_option *option = find_option(spec, name, n);
    if (!option && spec->overrides == CLI_JOB_OVERRIDES && memchr(name, '.', n)) {
        args->overrides[args->n_overrides++] = argv[*i];
        if (!equals && *i + 1 < argc && looks_like_value(argv[*i + 1]))
            args->overrides[args->n_overrides++] = argv[++*i];
        return OCT_OK;
    }
    if (!option && equals && same_name(name, n, "help"))
        return oct_fail(err, OCT_INVALID, "--help: takes no value; got '%.100s'", equals + 1);
    if (!option)
        return fail_unknown(spec, name, n, err);
    if (equals)
        return set_value(option, equals + 1, err);
    if (option->kind == CLI_FLAG) {
        *(bool *)option->value = true;
        return OCT_OK;
    }
    if (*i + 1 >= argc)
        return oct_fail(err, OCT_INVALID, "--%s: a value is missing; expected %s", option->name,
                        option->label);
    return set_value(option, argv[++*i], err);
}

oct_status cli_parse(const cli_spec *spec, int argc, char **argv, cli_args *args, oct_error *err) {
    oct_status status = OCT_OK;
    bool options_end = false;
    memset(args, 0, sizeof *args);
    args->operands = oct_malloc_array((size_t)argc + 1, sizeof *args->operands);
    args->overrides = oct_malloc_array((size_t)argc + 1, sizeof *args->overrides);
    if (!args->operands || !args->overrides)
        return oct_fail_memory(err);
    args->help = wants_help(argc, argv);
    if (args->help)
        return OCT_OK;
    for (int i = 0; i < argc && !status; i++) {
        if (options_end || looks_like_value(argv[i]))
            args->operands[args->n_operands++] = argv[i];
        else if (strcmp(argv[i], "--") == 0)
            options_end = true;
        else if (strncmp(argv[i], "--", 2) == 0)
            status = read_option(spec, argc, argv, &i, args, err);
        else
            status =
                oct_fail(err, OCT_INVALID, "%s: unknown option; options start with --", argv[i]);
    }
    return !status ? check_operands(spec, args, err) : status;
}

void cli_args_free(cli_args *args) {
    oct_free(args->operands);
    oct_free(args->overrides);
    memset(args, 0, sizeof *args);
}

static void print_examples(const char *examples) {
    if (examples)
        printf("\nexamples:\n");
    for (const char *line = examples; line && *line;) {
        int n = (int)strcspn(line, "\n");
        printf("  octet %.*s\n", n, line);
        line += n + (line[n] == '\n');
    }
}

void cli_print_help(const cli_spec *spec) {
    printf("usage: %s\n\n%s\n", spec->usage, spec->summary);
    print_examples(spec->examples);
    if (spec->n_options > 0)
        printf("\noptions:\n");
    for (int i = 0; i < spec->n_options; i++) {
        const cli_option *option = &spec->options[i];
        char left[96];
        snprintf(left, sizeof left, "--%s%s%s", option->name, option->label ? " " : "",
                 option->label ? option->label : "");
        printf("  %-28s %s\n", left, option->help);
    }
}

bool cli_begin(const cli_spec *spec, int argc, char **argv, cli_args *args, oct_status *status,
               oct_error *err) {
    *status = cli_parse(spec, argc, argv, args, err);
    if (*status == OCT_OK && args->help)
        cli_print_help(spec);
    return *status == OCT_OK && !args->help;
}
