/* octet compare: the twin run. The same seed, data and initial weights, one run a recipe; a table
 * of what each recipe costs and an HTML report. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/claim.h"
#include "base/fs.h"
#include "base/log.h"
#include "cli.h"
#include "config/together.h"
#include "options.h"
#include "report/html.h"
#include "stop.h"
#include "terminal.h"
#include "job/conversion.h"
#include "job/ranks.h"
#include "job/setup.h"
#include "job/variant.h"
#include "twin.h"
#include "twin_folders.h"
#include "world.h"

enum {
    MAX_RECIPES = 32,
    N_OWN = 2,     /* overrides that compare adds */
    TAIL = 20,     /* steps that the final training loss is the mean of */
    N_COLUMNS = 7, /* of the table */
    CELL_SIZE = 64,
    SMOOTH = 20 /* steps that a point of a smoothed curve is the mean of */
};

typedef struct comparison {
    char *list; /* the recipes' text, cut into words */
    twin twins[MAX_RECIPES];
    char *folders[MAX_RECIPES]; /* <dump_folder>/compare/<recipe> */
    oct_run runs[MAX_RECIPES];
    int n;
    char *root, *cache; /* <dump_folder>/compare, <dump_folder>/cache */
    const oct_job *job; /* as the user gave it */
    oct_claim claim;    /* on the root, as long as this process lives */
    const char *report;
    char *default_report;
    char cells[MAX_RECIPES + 1][N_COLUMNS][CELL_SIZE];
} comparison;

static void release(comparison *c) {
    for (int i = 0; i < c->n; i++) {
        oct_free(c->folders[i]);
        oct_run_free(&c->runs[i]);
    }
    oct_claim_release(&c->claim);
    oct_free(c->list);
    oct_free(c->root);
    oct_free(c->cache);
    oct_free(c->default_report);
    oct_free(c);
}

/* ---- before the runs ---- */

static oct_status read_recipes(comparison *c, const char *text, oct_error *err) {
    c->list = oct_strdup(text);
    if (!c->list)
        return oct_fail_memory(err);
    char *rest = c->list;
    for (char *name; (name = strsep(&rest, ","));) {
        name += strspn(name, " ");
        for (size_t n = strlen(name); n > 0 && name[n - 1] == ' '; n--)
            name[n - 1] = '\0';
        for (int i = 0; i < c->n; i++)
            if (strcasecmp(c->twins[i].recipe, name) == 0)
                return oct_fail(err, OCT_INVALID, "--recipes: '%s' is there twice", name);
        if (c->n == MAX_RECIPES)
            return oct_fail(err, OCT_INVALID, "--recipes: expected at most %d", MAX_RECIPES);
        if (!*name)
            return oct_fail(err, OCT_INVALID,
                            "--recipes: expected names with commas between; got "
                            "'%s'",
                            text);
        c->twins[c->n++].recipe = name;
    }
    return OCT_OK;
}

/* What the recipe converts of the model, as training will; of shapes alone. */
static oct_status check_conversion(const oct_job *job, oct_error *err) {
    oct_model_args args;
    oct_model *model = NULL;
    oct_conversion *conversion = NULL;
    oct_status status = oct_ranks_check_fit(job, 1, err);
    if (status == OCT_OK)
        status = oct_setup_model_args(job, &args, err);
    if (status == OCT_OK)
        status = oct_model_create(&args, OCT_PARAMS_SHAPES_ONLY, &model, err);
    if (status == OCT_OK)
        status = oct_setup_frozen(job, model, err);
    if (status == OCT_OK)
        status = oct_conversion_create(job, model, &conversion, err);
    if (status == OCT_OK)
        status = oct_conversion_check(conversion, err);
    oct_model_destroy(model);
    oct_conversion_destroy(conversion);
    return status;
}

/* Every variant is read before the first one trains: a mistake shows at once. */
static oct_status check_variants(comparison *c, const cli_args *args, oct_error *err) {
    oct_status status = OCT_OK;
    for (int i = 0; i < c->n && status == OCT_OK; i++) {
        oct_job job;
        status = oct_variant_load(args->n_operands ? args->operands[0] : NULL, args->overrides,
                                  args->n_overrides, c->twins[i].recipe, &job, err);
        cli_add_errors(job.others);
        if (status == OCT_OK)
            status = check_conversion(&job, err);
        cli_add_errors(oct_job_more_refusals(&job));
        oct_job_free(&job);
    }
    return status;
}

/* The recipes are compared by their validation loss: compare turns validation on, but not over what
 * the command line says. */
static oct_status check_validation(const oct_job *job, oct_error *err) {
    const char *where = oct_job_where(job, "validation.enable");
    if (job->validation.enable)
        return OCT_OK;
    if (strcmp(where, "command line") == 0)
        return oct_fail(err, OCT_INVALID,
                        "%s: compare needs validation, as recipes are compared by their validation "
                        "loss; expected true, or nothing; got false",
                        oct_job_at(job, "validation.enable"));
    oct_log_info("validation.enable = true is compare's (%s: false): recipes are compared by their "
                 "validation loss",
                 where);
    return OCT_OK;
}

static oct_status name_folders(comparison *c, const oct_job *job, oct_error *err) {
    c->root = oct_path_join(job->job.dump_folder, "compare");
    c->cache = oct_path_join(job->job.dump_folder, "cache");
    if (!c->root || !c->cache)
        return oct_fail_memory(err);
    c->default_report = oct_path_join(c->root, "report.html");
    for (int i = 0; i < c->n; i++) {
        c->folders[i] = oct_path_join(c->root, c->twins[i].recipe);
        if (!c->folders[i])
            return oct_fail_memory(err);
    }
    if (!c->report)
        c->report = c->default_report;
    return c->report ? OCT_OK : oct_fail_memory(err);
}

/* Folders that can't be written to, or that another run writes to, show before the first run, not
 * at the second: all are claimed, and those of the runs given back for them to take. */
static oct_status claim_folders(comparison *c, const oct_job *job, oct_error *err) {
    oct_error cause = {0};
    oct_claim run;
    oct_status status = oct_claim_take(c->root, &c->claim, &cause);
    for (int i = 0; i < c->n && status == OCT_OK; i++) {
        status = oct_claim_take(c->folders[i], &run, &cause);
        if (status == OCT_OK)
            oct_claim_release(&run);
    }
    return status
               ? oct_fail(err, status, "%s: %s", oct_job_at(job, "job.dump_folder"), cause.message)
               : OCT_OK;
}

/* Where the report can't go shows before the runs, not after. */
static oct_status check_report(const comparison *c, oct_error *err) {
    oct_error cause = {0};
    oct_status status = OCT_OK;
    const char *slash = strrchr(c->report, '/');
    char *parent = oct_strdup(slash ? c->report : ".");
    if (!parent)
        return oct_fail_memory(err);
    if (slash)
        parent[slash == c->report ? 1 : slash - c->report] = '\0';
    if (status == OCT_OK && oct_path_is_folder(c->report))
        status = oct_fail(err, OCT_INVALID, "--report: expected a file; %s is a folder", c->report);
    if (status == OCT_OK && !oct_path_is_folder(parent))
        status =
            oct_fail(err, OCT_INVALID, "--report: %s: expected a folder to write %s in; %s", parent,
                     c->report, oct_path_exists(parent) ? "it's a file" : "it doesn't exist");
    if (status == OCT_OK && access(parent, W_OK | X_OK) != 0)
        status = oct_fail(err, OCT_FAILED, "--report: %s: can't be written to: %s", parent,
                          strerror(errno));
    if (status == OCT_OK && oct_path_check_target(c->report, &cause) != OCT_OK)
        status = oct_fail(err, OCT_INVALID, "--report: %s", cause.message);
    if (status == OCT_OK && strlen(slash ? slash + 1 : c->report) > NAME_MAX)
        status =
            oct_fail(err, OCT_INVALID, "--report: expected a name of at most %d bytes; got %zu",
                     NAME_MAX, strlen(slash ? slash + 1 : c->report));
    oct_free(parent);
    return status;
}

/* ---- the runs ---- */

/* The first run alone does it, for all, once it is sure to train: a job that is refused moves
 * nothing, and no recipe that a signal leaves untrained shows an older compare's model. */
static oct_status set_aside(void *user, oct_error *err) {
    const comparison *c = user;
    return twin_folders_set_aside(c->job, c->folders, c->n, 0, err);
}

static oct_status run_one(comparison *c, int i, const cli_args *args, oct_error *err) {
    oct_strbuf dump = {0};
    oct_status status = OCT_OK;
    char *metrics = oct_path_join(c->folders[i], "metrics.jsonl");
    const char **overrides = oct_malloc_array((size_t)args->n_overrides + N_OWN, sizeof *overrides);
    oct_strbuf_printf(&dump, "--job.dump_folder=%s", c->folders[i]);
    if (!metrics || !overrides || dump.failed) {
        status = oct_fail_memory(err);
        goto cleanup;
    }
    for (int k = 0; k < args->n_overrides; k++)
        overrides[k] = args->overrides[k];
    overrides[args->n_overrides] = dump.text;
    overrides[args->n_overrides + 1] = "--validation.enable=true";
    c->twins[i].config = args->n_operands ? args->operands[0] : NULL;
    c->twins[i].overrides = overrides;
    c->twins[i].n_overrides = args->n_overrides + N_OWN;
    c->twins[i].cache_folder = c->cache;
    c->twins[i].ready = i == 0 ? set_aside : NULL;
    c->twins[i].ready_user = c;
    twin_run(&c->twins[i]);
    if (c->twins[i].status == OCT_OK)
        status = oct_run_read(metrics, &c->runs[i], err);
cleanup:
    oct_free(metrics);
    oct_free(overrides);
    oct_strbuf_free(&dump);
    return status;
}

/* ---- the table ---- */

static void fill_row(comparison *c, int i) {
    char(*cell)[CELL_SIZE] = c->cells[i + 1];
    const twin *t = &c->twins[i], *first = &c->twins[0];
    const oct_run *run = &c->runs[i];
    snprintf(cell[0], CELL_SIZE, "%s", t->recipe);
    for (int k = 1; k < N_COLUMNS; k++)
        snprintf(cell[k], CELL_SIZE, "-");
    if (t->status != OCT_OK) {
        snprintf(cell[1], CELL_SIZE, "%s", t->stopped ? "stopped" : "failed");
        return;
    }
    snprintf(cell[1], CELL_SIZE, "%.4f", oct_series_tail_mean(&run->loss, TAIL));
    snprintf(cell[2], CELL_SIZE, "%.4f", t->validation_loss);
    if (first->status == OCT_OK) {
        double gap = t->validation_loss - first->validation_loss;
        snprintf(cell[3], CELL_SIZE, "%+.4f", gap);
        snprintf(cell[4], CELL_SIZE, "%+.2f%%", 100 * gap / first->validation_loss);
    }
    if (run->duration_s > 0)
        snprintf(cell[5], CELL_SIZE, "%.0f", run->n_tokens / run->duration_s);
    snprintf(cell[6], CELL_SIZE, "%.0f MiB", t->peak_bytes / (1024.0 * 1024.0));
}

static void fill_table(comparison *c) {
    static const char *const header[N_COLUMNS] = {"recipe",     "train loss", "validation loss",
                                                  "gap (nats)", "gap (%)",    "tokens/s",
                                                  "peak memory"};
    for (int k = 0; k < N_COLUMNS; k++)
        snprintf(c->cells[0][k], CELL_SIZE, "%s", header[k]);
    for (int i = 0; i < c->n; i++)
        fill_row(c, i);
}

static void print_table(const comparison *c) {
    size_t width[N_COLUMNS] = {0};
    for (int i = 0; i <= c->n; i++)
        for (int k = 0; k < N_COLUMNS; k++)
            if (strlen(c->cells[i][k]) > width[k])
                width[k] = strlen(c->cells[i][k]);
    for (int i = 0; i <= c->n; i++) {
        printf("%-*s", (int)width[0], c->cells[i][0]);
        for (int k = 1; k < N_COLUMNS; k++)
            printf("  %*s", (int)width[k], c->cells[i][k]);
        putchar('\n');
    }
}

static void describe(const comparison *c, char *text, size_t size) {
    for (int i = 0; i < c->n; i++) {
        const twin *t = &c->twins[i];
        if (t->status != OCT_OK)
            continue;
        snprintf(text, size,
                 "%lld steps; validation on %lld held-out tokens, whose unigram entropy is %.4f "
                 "nats; train loss is the mean of the last %d steps; gaps are to %s",
                 (long long)t->steps, (long long)t->validation_tokens, t->unigram_entropy, TAIL,
                 c->twins[0].recipe);
        return;
    }
    snprintf(text, size, "no run was completed");
}

/* ---- the report ---- */

typedef struct curves {
    const char *names[MAX_RECIPES];
    const oct_series *pointers[MAX_RECIPES];
    oct_series series[MAX_RECIPES];
    int64_t n;
} curves;

static void add_curve(curves *k, const char *name, oct_series series) {
    k->names[k->n] = name;
    k->series[k->n] = series;
    k->pointers[k->n] = &k->series[k->n];
    k->n++;
}

static void put_chart(oct_strbuf *b, curves *k, const char *title, const char *y_label) {
    oct_html_line_chart(b, &(oct_html_chart){.title = title,
                                             .x_label = "step",
                                             .y_label = y_label,
                                             .names = k->names,
                                             .series = k->pointers,
                                             .n_series = k->n});
    for (int64_t i = 0; i < k->n; i++)
        oct_series_free(&k->series[i]);
    *k = (curves){0};
}

static void put_charts(const comparison *c, oct_strbuf *b) {
    curves k = {0};
    oct_series series, smooth;
    for (int i = 0; i < c->n; i++)
        if (oct_series_smooth(&c->runs[i].loss, SMOOTH, &series) == OCT_OK)
            add_curve(&k, c->twins[i].recipe, series);
    put_chart(b, &k, "Training loss (mean of 20 steps)", "nats a token");
    for (int i = 0; i < c->n; i++) { /* the first, a line at zero, keeps each recipe its colour */
        if (oct_series_difference(&c->runs[i].loss, &c->runs[0].loss, &series) != OCT_OK)
            continue;
        if (oct_series_smooth(&series, SMOOTH, &smooth) == OCT_OK)
            add_curve(&k, c->twins[i].recipe, smooth);
        oct_series_free(&series);
    }
    put_chart(b, &k, "Gap of the training loss to the first recipe (mean of 20 steps)", "nats");
    for (int i = 0; i < c->n; i++)
        if (oct_series_smooth(&c->runs[i].validation_loss, 1, &series) == OCT_OK)
            add_curve(&k, c->twins[i].recipe, series);
    put_chart(b, &k, "Validation loss", "nats a token");
}

static oct_status write_report(const comparison *c, const char *note, oct_error *err) {
    const char *cells[(MAX_RECIPES + 1) * N_COLUMNS];
    oct_strbuf b = {0};
    for (int i = 0; i <= c->n; i++)
        for (int k = 0; k < N_COLUMNS; k++)
            cells[i * N_COLUMNS + k] = c->cells[i][k];
    oct_html_begin(&b, "octet compare");
    oct_html_paragraph(&b, note);
    oct_html_table(&b, cells, c->n + 1, N_COLUMNS);
    put_charts(c, &b);
    oct_html_end(&b);
    oct_status status =
        b.failed ? oct_fail_memory(err) : oct_file_write(c->report, b.text, b.length, err);
    oct_strbuf_free(&b);
    return status;
}

/* ---- the command ---- */

/* The table and the report. */
static oct_status show(comparison *c, oct_error *err) {
    char note[512];
    fill_table(c);
    describe(c, note, sizeof note);
    print_table(c);
    printf("%s\n", note);
    oct_status status = write_report(c, note, err);
    if (status == OCT_OK)
        printf("report: %s\n", c->report);
    return status;
}

/* The recipes that were trained whole are shown; `n_begun` were begun before the signal came. */
static oct_status conclude_early(comparison *c, int n_begun, oct_error *err) {
    int n_whole = 0, signal = cli_stop_asked(NULL);
    for (int i = 0; i < c->n; i++) {
        if (i < n_begun && c->twins[i].status == OCT_OK)
            n_whole++;
        else
            c->twins[i].stopped = c->twins[i].stopped || i >= n_begun;
        if (i >= n_begun)
            c->twins[i].status = OCT_FAILED;
    }
    oct_status status = n_whole > 0 ? show(c, err) : OCT_OK;
    oct_log_warning("stopped by %s: %d of %d recipes were trained to the end; the same command "
                    "begins all of them anew",
                    cli_stop_name(signal), n_whole, c->n);
    cli_stop_conclude(signal, false);
    return status;
}

static oct_status conclude(comparison *c, oct_error *err) {
    oct_error report_err = {0};
    oct_status written = show(c, &report_err), status = OCT_OK;
    for (int i = 0; i < c->n && status == OCT_OK; i++)
        if (c->twins[i].status != OCT_OK)
            status = oct_fail(err, c->twins[i].status, "%s: %s", c->twins[i].recipe,
                              c->twins[i].err.message);
    if (status == OCT_OK && written != OCT_OK)
        status = oct_fail(err, written, "%s", report_err.message);
    return status;
}

static oct_status compare(const cli_args *args, const char *recipes, const char *report,
                          oct_error *err) {
    oct_job job = {0};
    comparison *c = oct_calloc_array(1, sizeof *c);
    if (!c)
        return oct_fail_memory(err);
    c->report = report;
    c->job = &job;
    oct_status status = read_recipes(c, recipes, err);
    if (status == OCT_OK)
        status = check_variants(c, args, err);
    if (status == OCT_OK)
        status = oct_job_load_as(OCT_JOB_READ_ARM, args->n_operands ? args->operands[0] : NULL,
                                 args->overrides, args->n_overrides, &job, err);
    if (status == OCT_OK)
        status = name_folders(c, &job, err);
    if (status == OCT_OK)
        status = twin_folders_check(&job, c->folders, c->n, err);
    if (status == OCT_OK)
        status = claim_folders(c, &job, err);
    if (status == OCT_OK)
        status = check_report(c, err);
    if (status == OCT_OK)
        status = check_validation(&job, err);
    if (status == OCT_OK)
        oct_job_log_notes(&job);
    int n_begun = 0;
    cli_stop_at_a_step();
    for (int i = 0; i < c->n && status == OCT_OK && !cli_stop_asked(NULL); i++) {
        n_begun++;
        oct_log_info("Training with recipe %s (%d of %d)", c->twins[i].recipe, i + 1, c->n);
        status = run_one(c, i, args, err);
        /* What is wrong with the input is wrong for every recipe. */
        if (status == OCT_OK && c->twins[i].status == OCT_INVALID)
            status = oct_fail(err, OCT_INVALID, "%s", c->twins[i].err.message);
    }
    bool stopped = cli_stop_asked(NULL) && (n_begun < c->n || c->twins[c->n - 1].stopped);
    if (status == OCT_OK)
        status = stopped ? conclude_early(c, n_begun, err) : conclude(c, err);
    oct_job_free(&job);
    release(c);
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
