/* octet compare: the twin run, its table and where its report is. */
#include <stdio.h>
#include <octet/version.h>
#include <string.h>

#include "base/count.h"
#include "base/log.h"
#include "base/utf8.h"
#include "cli.h"
#include "compare/compare.h"
#include "kernel/cpu.h"
#include "options.h"
#include "stop.h"
#include "terminal.h"
#include "world.h"

/* Columns that a text takes: characters, not bytes. */
static int width_of(const char *text) {
    int n = 0;
    for (size_t at = 0; text[at]; n++) {
        size_t length = oct_utf8_length(text + at, strlen(text + at));
        at += length ? length : 1;
    }
    return n;
}

static void print_table(const oct_comparison *c) {
    int n_rows = oct_comparison_n_rows(c), n_columns = oct_comparison_n_columns(c);
    int width[OCT_COMPARISON_COLUMNS] = {0};
    for (int i = 0; i < n_rows; i++)
        for (int k = 0; k < n_columns; k++)
            if (width_of(oct_comparison_cell(c, i, k)) > width[k])
                width[k] = width_of(oct_comparison_cell(c, i, k));
    for (int i = 0; i < n_rows; i++) {
        const char *name = oct_comparison_cell(c, i, 0);
        printf("%s%*s", name, width[0] - width_of(name), "");
        for (int k = 1; k < n_columns; k++) {
            const char *text = oct_comparison_cell(c, i, k);
            printf("  %*s%s", width[k] - width_of(text), "", text);
        }
        putchar('\n');
    }
}

static void print_verdicts(const oct_comparison *c) {
    char text[512];
    for (int arm = 0; arm < oct_comparison_n_arms(c); arm++) {
        oct_comparison_verdict_text(c, arm, text, sizeof text);
        if (*text)
            printf("%s\n", text);
    }
}

/* The table and the report. */
static oct_status show(const oct_comparison *c, oct_error *err) {
    char note[512];
    oct_comparison_describe(c, note, sizeof note);
    print_table(c);
    printf("%s\n", note);
    print_verdicts(c);
    oct_status status = oct_comparison_write_report(c, err);
    if (!status)
        printf("report: %s\n", oct_comparison_report(c));
    return status;
}

/* The recipes that were trained whole are shown. */
static oct_status conclude_early(const oct_comparison *c, bool keeps, oct_error *err) {
    int n_whole = oct_comparison_n_whole(c), signal = cli_stop_asked(NULL);
    oct_status status = n_whole > 0 ? show(c, err) : OCT_OK;
    if (keeps)
        oct_log_warning("stopped by %s: %d of %d runs were trained to the end; the same command "
                        "goes on from there",
                        cli_stop_name(signal), n_whole, oct_comparison_n_runs(c));
    else
        oct_log_warning("stopped by %s: %d of %d recipes were trained to the end; the same command "
                        "begins all of them anew",
                        cli_stop_name(signal), n_whole, oct_comparison_n_runs(c));
    cli_stop_conclude(signal, false);
    return status;
}

static oct_status conclude(const oct_comparison *c, bool gated, oct_error *err) {
    oct_error report_err = {0};
    oct_status written = show(c, &report_err), status = oct_comparison_failure(c, err);
    if (!status && written != OCT_OK)
        status = oct_fail(err, written, "%s", report_err.message);
    if (!status && gated)
        cli_conclude_with(oct_comparison_verdict(c) == OCT_VERDICT_WORSE ? CLI_EXIT_WORSE
                          : oct_comparison_verdict(c) == OCT_VERDICT_UNRESOLVED
                              ? CLI_EXIT_UNRESOLVED
                              : 0);
    return status;
}

static oct_status compare(const oct_compare_options *options, oct_error *err) {
    const bool keeps = options->seeds > 0, gated = options->gate > 0;
    oct_comparison *c = NULL;
    oct_status status = oct_comparison_open(options, &c, err);
    if (!status)
        status = oct_comparison_run(c, err);
    if (!status)
        status =
            oct_comparison_was_stopped(c) ? conclude_early(c, keeps, err) : conclude(c, gated, err);
    oct_comparison_close(c);
    return status;
}

oct_status cli_compare(int argc, char **argv, oct_error *err) {
    static const oct_compare_host host = {.fork = cli_stop_fork,
                                          .disown = cli_stop_disown,
                                          .stop_at_a_step = cli_stop_at_a_step,
                                          .stop = cli_stop_asked,
                                          .stop_name = cli_stop_name,
                                          .progress = cli_progress,
                                          .progress_end = cli_progress_end,
                                          .add_errors = cli_add_errors};
    oct_compare_options asked = {.recipes = "bf16,mxfp8,hif8", .host = &host};
    char machine[256];
    const cli_option options[] = {
        {"recipes", CLI_NAME, &asked.recipes, "LIST",
         "bf16, fp32, mxfp8, hif8, hif8_15_224, ..., each as it is or with rules, mxfp8@octet; "
         "default: bf16,mxfp8,hif8",
         0, 0},
        {"seeds", CLI_INTEGER, &asked.seeds, "N",
         "trains each recipe with N seeds, and keeps the runs: the same command later trains what "
         "is missing",
         1, OCT_COMPARE_MAX_SEEDS},
        {"gate", CLI_REAL, &asked.gate, "NATS",
         "a gap as good as none; the exit status is 0 if all recipes are within it, 3 if one is "
         "worse, 4 if that is unresolved",
         1e-9, 1e9},
        {"no-noise", CLI_FLAG, &asked.no_noise, NULL,
         "with several seeds: without the first recipe once more in another order of sums", 0, 0},
        {"report", CLI_NAME, &asked.report, "FILE", "default: <dump_folder>/compare/report.html", 0,
         0}};
    const cli_spec spec = {
        .usage = "octet compare CONFIG [--recipes LIST] [--seeds N] [--gate NATS] "
                 "[--section.key=value ...]",
        .summary = "The twin run: trains the job once for each recipe from the same seed, data and "
                   "initial weights,\neach in a process of its own, then prints losses, gaps to "
                   "the first recipe, speed and peak\nmemory, and writes one HTML report.",
        .examples = "compare examples/demo.toml\n"
                    "compare examples/demo.toml --recipes bf16,mxfp8 --training.steps=100\n"
                    "compare examples/demo.toml --recipes bf16,mxfp8 --seeds 8 --gate 0.01\n",
        .options = options,
        .n_options = OCT_COUNT(options),
        .max_operands = 1,
        .overrides = CLI_JOB_OVERRIDES};
    cli_args args;
    oct_status status;
    bool runs = cli_begin(&spec, argc, argv, &args, &status, err);
    if (runs)
        status = cli_world_alone("octet compare", err);
    if (runs)
        cli_stop_install();
    if (runs && !status && asked.no_noise && asked.seeds < 2)
        status = oct_fail(err, OCT_INVALID,
                          "--no-noise: one seed has none to measure; expected "
                          "--seeds above 1 with it");
    snprintf(machine, sizeof machine, "octet %s, %s", oct_version(), oct_cpu_model_name());
    asked.machine = machine;
    asked.config = args.n_operands ? args.operands[0] : NULL;
    asked.overrides = args.overrides;
    asked.n_overrides = args.n_overrides;
    if (runs && !status)
        status = compare(&asked, err);
    cli_args_free(&args);
    return status;
}
