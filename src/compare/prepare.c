/* What can be wrong before the first run: see compare.h. */
#include "compare/comparison.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "compare/folders.h"
#include "config/together.h"
#include "job/build.h"
#include "job/ranks.h"
#include "job/setup.h"
#include "job/variant.h"

static oct_status read_recipes(oct_comparison *c, const char *text, oct_error *err) {
    c->list = oct_strdup(text);
    if (!c->list)
        return oct_fail_memory(err);
    char *rest = c->list;
    for (char *name; (name = strsep(&rest, ","));) {
        name += strspn(name, " ");
        for (size_t n = strlen(name); n > 0 && name[n - 1] == ' '; n--)
            name[n - 1] = '\0';
        for (int i = 0; i < c->n; i++)
            if (strcasecmp(c->runs[i].recipe, name) == 0)
                return oct_fail(err, OCT_INVALID, "--recipes: '%s' is there twice", name);
        if (c->n == MAX_RECIPES)
            return oct_fail(err, OCT_INVALID, "--recipes: expected at most %d", MAX_RECIPES);
        if (!*name)
            return oct_fail(err, OCT_INVALID,
                            "--recipes: expected names with commas between; got "
                            "'%s'",
                            text);
        c->runs[c->n++].recipe = name;
    }
    return OCT_OK;
}

/* What the recipe converts of the model, as training will; of shapes alone. */
static oct_status check_conversion(const oct_job *job, oct_error *err) {
    oct_model_args args;
    oct_job_parts parts = {0};
    oct_status status = oct_ranks_check_fit(job, 1, err);
    if (status == OCT_OK)
        status = oct_setup_model_args(job, &args, err);
    if (status == OCT_OK)
        status = oct_job_build(job, &args, OCT_PARAMS_SHAPES_ONLY, &parts, err);
    if (status == OCT_OK)
        status = oct_conversion_check(parts.conversion, err);
    oct_job_parts_free(&parts);
    return status;
}

/* Every variant is read before the first one trains: a mistake shows at once. */
static oct_status check_variants(oct_comparison *c, oct_error *err) {
    oct_status status = OCT_OK;
    for (int i = 0; i < c->n && status == OCT_OK; i++) {
        oct_job job;
        status = oct_variant_load(c->options.config, c->options.overrides, c->options.n_overrides,
                                  c->runs[i].recipe, &job, err);
        c->options.host->add_errors(job.others);
        if (status == OCT_OK)
            status = check_conversion(&job, err);
        c->options.host->add_errors(oct_job_more_refusals(&job));
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

static oct_status name_folders(oct_comparison *c, const oct_job *job, oct_error *err) {
    c->root = oct_path_join(job->job.dump_folder, "compare");
    c->cache = oct_path_join(job->job.dump_folder, "cache");
    if (!c->root || !c->cache)
        return oct_fail_memory(err);
    c->default_report = oct_path_join(c->root, "report.html");
    for (int i = 0; i < c->n; i++) {
        c->folders[i] = oct_path_join(c->root, c->runs[i].recipe);
        if (!c->folders[i])
            return oct_fail_memory(err);
    }
    if (!c->report)
        c->report = c->default_report;
    return c->report ? OCT_OK : oct_fail_memory(err);
}

/* Folders that can't be written to, or that another run writes to, show before the first run, not
 * at the second: all are claimed, and those of the runs given back for them to take. */
static oct_status claim_folders(oct_comparison *c, const oct_job *job, oct_error *err) {
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
static oct_status check_report(const oct_comparison *c, oct_error *err) {
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

oct_status oct_comparison_prepare(oct_comparison *c, oct_error *err) {
    oct_status status = read_recipes(c, c->options.recipes, err);
    if (status == OCT_OK)
        status = check_variants(c, err);
    if (status == OCT_OK)
        status = oct_job_load_as(OCT_JOB_READ_ARM, c->options.config, c->options.overrides,
                                 c->options.n_overrides, &c->job, err);
    if (status == OCT_OK)
        status = name_folders(c, &c->job, err);
    if (status == OCT_OK)
        status = oct_compare_folders_check(&c->job, c->folders, c->n, err);
    if (status == OCT_OK)
        status = claim_folders(c, &c->job, err);
    if (status == OCT_OK)
        status = check_report(c, err);
    if (status == OCT_OK)
        status = check_validation(&c->job, err);
    return status;
}
