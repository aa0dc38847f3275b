/* octet compare: the twin run, its table and where its report is. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli.h"
#include "compare/compare.h"
#include "options.h"
#include "stop.h"
#include "terminal.h"
#include "world.h"

static void print_table(const oct_comparison *c) {
    int n_rows = oct_comparison_n_recipes(c) + 1, width[OCT_COMPARISON_COLUMNS] = {0};
    for (int i = 0; i < n_rows; i++)
        for (int k = 0; k < OCT_COMPARISON_COLUMNS; k++)
            if ((int)strlen(oct_comparison_cell(c, i, k)) > width[k])
                width[k] = (int)strlen(oct_comparison_cell(c, i, k));
    for (int i = 0; i < n_rows; i++) {
        printf("%-*s", width[0], oct_comparison_cell(c, i, 0));
        for (int k = 1; k < OCT_COMPARISON_COLUMNS; k++)
            printf("  %*s", width[k], oct_comparison_cell(c, i, k));
        putchar('\n');
    }
}

/* The table and the report. */
static oct_status show(const oct_comparison *c, oct_error *err) {
    char note[512];
    oct_comparison_describe(c, note, sizeof note);
    print_table(c);
    printf("%s\n", note);
    oct_status status = oct_comparison_write_report(c, err);
    if (status == OCT_OK)
        printf("report: %s\n", oct_comparison_report(c));
    return status;
}

/* The recipes that were trained whole are shown. */
static oct_status conclude_early(const oct_comparison *c, oct_error *err) {
    int n_whole = oct_comparison_n_whole(c), signal = cli_stop_asked(NULL);
    oct_status status = n_whole > 0 ? show(c, err) : OCT_OK;
    oct_log_warning("stopped by %s: %d of %d recipes were trained to the end; the same command "
                    "begins all of them anew",
                    cli_stop_name(signal), n_whole, oct_comparison_n_recipes(c));
    cli_stop_conclude(signal, false);
    return status;
}

static oct_status conclude(const oct_comparison *c, oct_error *err) {
    oct_error report_err = {0};
    oct_status written = show(c, &report_err), status = oct_comparison_failure(c, err);
    if (status == OCT_OK && written != OCT_OK)
        status = oct_fail(err, written, "%s", report_err.message);
    return status;
}

static oct_status compare(const cli_args *args, const char *recipes, const char *report,
                          oct_error *err) {
    static const oct_compare_host host = {.fork = cli_stop_fork,
                                          .disown = cli_stop_disown,
                                          .stop_at_a_step = cli_stop_at_a_step,
                                          .stop = cli_stop_asked,
                                          .stop_name = cli_stop_name,
                                          .progress = cli_progress,
                                          .progress_end = cli_progress_end,
                                          .add_errors = cli_add_errors};
    const oct_compare_options options = {.config = args->n_operands ? args->operands[0] : NULL,
                                         .overrides = args->overrides,
                                         .n_overrides = args->n_overrides,
                                         .recipes = recipes,
                                         .report = report,
                                         .host = &host};
    oct_comparison *c = NULL;
    oct_status status = oct_comparison_open(&options, &c, err);
    if (status == OCT_OK)
        status = oct_comparison_run(c, err);
    if (status == OCT_OK)
        status = oct_comparison_was_stopped(c) ? conclude_early(c, err) : conclude(c, err);
    oct_comparison_close(c);
    return status;
}

oct_status cli_compare(int argc, char **argv, oct_error *err) {
    const char *recipes = "bf16,mxfp8,hif8", *report = NULL;
    const cli_option options[] = {
        {"recipes", CLI_NAME, &recipes, "LIST",
         "bf16, fp32, mxfp8, hif8, hif8_full_range, hif8_15_224, ...; default: bf16,mxfp8,hif8", 0,
         0},
        {"report", CLI_NAME, &report, "FILE", "default: <dump_folder>/compare/report.html", 0, 0}};
    const cli_spec spec = {
        .usage = "octet compare CONFIG [--recipes LIST] [--report FILE] [--section.key=value ...]",
        .summary = "The twin run: trains the job once for each recipe from the same seed, data and "
                   "initial weights,\neach in a process of its own, then prints losses, gaps to "
                   "the first recipe, speed and peak\nmemory, and writes one HTML report.",
        .examples = "compare examples/demo.toml\n"
                    "compare examples/demo.toml --recipes bf16,mxfp8 --training.steps=100\n",
        .options = options,
        .n_options = sizeof options / sizeof options[0],
        .max_operands = 1,
        .overrides = CLI_JOB_OVERRIDES};
    cli_args args;
    oct_status status;
    bool runs = cli_begin(&spec, argc, argv, &args, &status, err);
    if (runs)
        status = cli_world_alone("octet compare", err);
    if (runs)
        cli_stop_install();
    if (runs && status == OCT_OK)
        status = compare(&args, recipes, report, err);
    cli_args_free(&args);
    return status;
}
