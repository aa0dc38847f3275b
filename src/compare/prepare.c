/* What can be wrong before the first run: see compare.h. */
#include "compare/comparison.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/count.h"
#include "base/fs.h"
#include "base/log.h"
#include "compare/folders.h"
#include "config/together.h"
#include "job/build.h"
#include "job/ranks.h"
#include "job/setup.h"
#include "job/variant.h"

static oct_status check_gate(const oct_comparison *c, oct_error *err) {
    if (c->options.gate > 0 && c->arms.n < 2)
        return oct_fail(err, OCT_INVALID,
                        "--gate: it judges the gaps to the first recipe; expected another one in "
                        "--recipes; got \"%s\" alone",
                        c->arms.items[0].name);
    return OCT_OK;
}

/* One sequence a step has no other order. */
static oct_status add_noise(oct_comparison *c, oct_error *err) {
    if (c->options.seeds < 2 || c->options.no_noise)
        return OCT_OK;
    int64_t n_micro = 1;
    oct_status status = oct_ranks_micro_batches(&c->job, 1, &n_micro, err);
    if (status)
        return status;
    if (n_micro * c->job.training.local_batch_size < 2)
        return oct_fail(err, OCT_INVALID,
                        "--seeds: the noise of sums is measured by their order, and a step of one "
                        "sequence has no other; expected training.local_batch_size above 1, or "
                        "--no-noise");
    return oct_arms_add_other_order(&c->arms, err);
}

/* What the recipe converts of the model, as training will; of shapes alone. */
static oct_status check_conversion(const oct_job *job, oct_error *err) {
    oct_model_args args;
    oct_job_parts parts = {0};
    oct_status status = oct_ranks_check_fit(job, 1, err);
    if (!status)
        status = oct_setup_model_args(job, &args, err);
    if (!status)
        status = oct_job_build(job, &args, OCT_PARAMS_SHAPES_ONLY, &parts, err);
    if (!status)
        status = oct_conversion_check(parts.conversion, err);
    oct_job_parts_free(&parts);
    return status;
}

oct_status oct_comparison_list_overrides(oct_comparison *c, oct_arm_run *r, oct_error *err) {
    const int n = c->options.n_overrides;
    oct_strbuf dump = {0};
    int k = 0;
    oct_strbuf_printf(&dump, "--job.dump_folder=%s", r->folder);
    oct_free(r->overrides);
    oct_free(r->dump);
    r->dump = dump.text;
    r->overrides = oct_malloc_array((size_t)n + 1 + OCT_COUNT(r->own), sizeof *r->overrides);
    if (dump.failed || !r->overrides)
        return oct_fail_memory(err);
    for (; k < n; k++)
        r->overrides[k] = c->options.overrides[k];
    r->overrides[k++] = r->dump;
    snprintf(r->own[0], sizeof *r->own, "--validation.enable=true");
    r->n_own = 1;
    if (oct_comparison_keeps_runs(c)) {
        uint64_t seed = c->first_seed + (uint64_t)((r - c->runs) / c->arms.n);
        snprintf(r->own[r->n_own++], sizeof *r->own, "--debug.seed=%" PRIu64, seed);
    }
    if (r->run.arm->rules)
        snprintf(r->own[r->n_own++], sizeof *r->own, "--quantize.rules=%.64s", r->run.arm->rules);
    for (int i = 0; i < r->n_own; i++)
        r->overrides[k++] = r->own[i];
    r->run.config = c->options.config;
    r->run.overrides = r->overrides;
    r->run.n_overrides = k;
    return OCT_OK;
}

/* The job of one run, as it will train. */
static oct_status check_variant(oct_comparison *c, oct_arm_run *r, oct_error *err) {
    oct_job job;
    oct_status status = oct_comparison_list_overrides(c, r, err);
    if (status)
        return status;
    status = oct_variant_load(c->options.config, r->overrides, r->run.n_overrides,
                              r->run.arm->recipe, &job, err);
    c->options.host->add_errors(job.others);
    if (!status)
        status = check_conversion(&job, err);
    c->options.host->add_errors(oct_job_more_refusals(&job));
    if (!status && oct_comparison_keeps_runs(c) && r == c->runs)
        status = oct_run_record_files(&job, c->cache, &c->files, err);
    if (!status && c->files.failed)
        status = oct_fail_memory(err);
    if (!status && oct_comparison_keeps_runs(c))
        status =
            oct_run_record_inputs(&job, c->files.text, r->run.arm->other_order, &r->inputs, err);
    oct_job_free(&job);
    return status;
}

/* Every variant is read before the first one trains: a mistake shows at once. Seeds differ in
 * nothing that can be wrong, but in what is recorded. */
static oct_status check_variants(oct_comparison *c, oct_error *err) {
    oct_status status = OCT_OK;
    for (int i = 0; i < c->n_runs && !status; i++)
        status = check_variant(c, &c->runs[i], err);
    return status;
}

/* Whether the refusals of an arm, one a line, speak of the option. */
static bool is_refused(const char *refusals, const char *option) {
    for (const char *at = refusals; (at = strstr(at, "--")); at += 2) {
        const size_t n = strcspn(at + 2, ": \n");
        if (at[2 + n] == ':' && oct_job_option_sets(option, at + 2, n))
            return true;
    }
    return false;
}

/* Options in whose place each arm has its own. */
static bool is_recipe(const char *option) {
    static const char *const keys[] = {
        "quantize.linear.mx.recipe_name", "quantize.grouped_mm.mx.recipe_name",
        "training.quantization_plan.recipe_name", "training.quantization_plan.quant_recipe",
        "model.quant_recipe_name"};
    bool found = false;
    for (size_t i = 0; i < OCT_COUNT(keys) && !found; i++)
        found = oct_job_option_sets(option, keys[i], strlen(keys[i]));
    return found;
}

static bool is_activation(const char *option) {
    static const char key[] = "training.mixed_precision_param";
    return oct_job_option_sets(option, key, strlen(key));
}

/* Adds to each option's count whether the arm has no use for it. */
static oct_status add_unused(const oct_comparison *c, const char *recipe, int *n_unused,
                             oct_error *err) {
    oct_job job = {0};
    oct_error cause = {0};
    oct_strbuf refusals = {0};
    oct_variant_check(c->options.config, c->options.overrides, c->options.n_overrides, recipe, &job,
                      &cause);
    oct_strbuf_printf(&refusals, "%s\n%s", cause.message, job.others ? job.others : "");
    for (int k = 0; k < c->options.n_overrides && !refusals.failed; k++) {
        const char *option = c->options.overrides[k];
        n_unused[k] += is_refused(refusals.text, option) ||
                       (is_activation(option) && oct_variant_is_high_precision(recipe));
    }
    const oct_status status = refusals.failed ? oct_fail_memory(err) : OCT_OK;
    oct_strbuf_free(&refusals);
    oct_job_free(&job);
    return status;
}

static oct_status check_option(const oct_comparison *c, int k, int n_unused, oct_error *err) {
    const char *option = c->options.overrides[k];
    const int n = (int)strcspn(option, "=");
    if (is_recipe(option))
        return oct_fail(err, OCT_INVALID,
                        "command line: %.*s: each run's recipe is one of --recipes; expected "
                        "it there",
                        n, option);
    if (n_unused == c->arms.n)
        return oct_fail(err, OCT_INVALID,
                        "command line: %.*s: no recipe of --recipes uses it; expected one that "
                        "does, or nothing",
                        n, option);
    return OCT_OK;
}

/* An option may be for one arm alone; one that no arm uses is a mistake. All else that is wrong was
 * told before. */
static oct_status check_options(const oct_comparison *c, oct_error *err) {
    int *n_unused = oct_calloc_array((size_t)c->options.n_overrides + 1, sizeof *n_unused);
    oct_status status = n_unused ? OCT_OK : oct_fail_memory(err);
    for (int i = 0; i < c->arms.n && !status; i++)
        status = add_unused(c, c->arms.items[i].recipe, n_unused, err);
    for (int k = 0; k < c->options.n_overrides && !status; k++)
        status = check_option(c, k, n_unused[k], err);
    oct_free(n_unused);
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

static oct_status name_folder(const oct_comparison *c, const oct_arm *arm, uint64_t seed,
                              char **folder, oct_error *err) {
    oct_strbuf path = {0};
    oct_strbuf_printf(&path, "%s/%s", c->root, arm->name);
    if (oct_comparison_keeps_runs(c))
        oct_strbuf_printf(&path, "/seed-%" PRIu64, seed);
    *folder = path.text;
    return path.failed ? oct_fail_memory(err) : OCT_OK;
}

static oct_status list_runs(oct_comparison *c, oct_error *err) {
    c->root = oct_path_join(c->job.job.dump_folder, "compare");
    c->cache = oct_path_join(c->job.job.dump_folder, "cache");
    if (!c->root || !c->cache)
        return oct_fail_memory(err);
    c->default_report = oct_path_join(c->root, "report.html");
    if (!c->default_report)
        return oct_fail_memory(err);
    if (!c->report)
        c->report = c->default_report;
    c->n_seeds = oct_comparison_keeps_runs(c) ? c->options.seeds : 1;
    c->first_seed = c->job.debug.seed >= 0 ? (uint64_t)c->job.debug.seed : 0;
    const int n_runs = c->arms.n * (int)c->n_seeds;
    c->runs = oct_calloc_array((size_t)n_runs, sizeof *c->runs);
    if (!c->runs)
        return oct_fail_memory(err);
    c->n_runs = n_runs;
    oct_status status = OCT_OK;
    for (int i = 0; i < n_runs && !status; i++) {
        oct_arm_run *r = &c->runs[i];
        r->run.arm = &c->arms.items[i % c->arms.n];
        status =
            name_folder(c, r->run.arm, c->first_seed + (uint64_t)(i / c->arms.n), &r->folder, err);
    }
    return status;
}

static oct_status check_folders(const oct_comparison *c, oct_error *err) {
    oct_status status = OCT_OK;
    for (int i = 0; i < c->n_runs && !status; i++)
        status = oct_compare_folder_check(&c->job, c->runs[i].folder, err);
    return status;
}

/* Folders that can't be written to, or that another run writes to, show before the first run, not
 * at the second: all are claimed, and those of the runs given back for them to take. */
static oct_status claim_folders(oct_comparison *c, oct_error *err) {
    oct_error cause = {0};
    oct_claim run;
    oct_status status = oct_claim_take(c->root, &c->claim, &cause);
    for (int i = 0; i < c->n_runs && !status; i++) {
        status = oct_claim_take(c->runs[i].folder, &run, &cause);
        if (!status)
            oct_claim_release(&run);
    }
    return status ? oct_fail(err, status, "%s: %s", oct_job_at(&c->job, "job.dump_folder"),
                             cause.message)
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
    if (!status && oct_path_is_folder(c->report))
        status = oct_fail(err, OCT_INVALID, "--report: expected a file; %s is a folder", c->report);
    if (!status && !oct_path_is_folder(parent))
        status =
            oct_fail(err, OCT_INVALID, "--report: %s: expected a folder to write %s in; %s", parent,
                     c->report, oct_path_exists(parent) ? "it's a file" : "it doesn't exist");
    if (!status && access(parent, W_OK | X_OK) != 0)
        status = oct_fail(err, OCT_FAILED, "--report: %s: can't be written to: %s", parent,
                          strerror(errno));
    if (!status && oct_path_check_target(c->report, &cause) != OCT_OK)
        status = oct_fail(err, OCT_INVALID, "--report: %s", cause.message);
    if (!status && strlen(slash ? slash + 1 : c->report) > NAME_MAX)
        status =
            oct_fail(err, OCT_INVALID, "--report: expected a name of at most %d bytes; got %zu",
                     NAME_MAX, strlen(slash ? slash + 1 : c->report));
    oct_free(parent);
    return status;
}

oct_status oct_comparison_prepare(oct_comparison *c, oct_error *err) {
    oct_status status = oct_arms_read(c->options.recipes, &c->arms, err);
    if (!status)
        status = check_gate(c, err);
    if (!status)
        status = oct_job_load_as(OCT_JOB_READ_ARMS, c->options.config, c->options.overrides,
                                 c->options.n_overrides, &c->job, err);
    c->options.host->add_errors(c->job.others);
    if (!status)
        status = add_noise(c, err);
    if (!status)
        status = list_runs(c, err);
    if (!status)
        status = check_variants(c, err);
    if (!status)
        status = check_options(c, err);
    if (!status)
        status = check_folders(c, err);
    if (!status)
        status = claim_folders(c, err);
    if (!status)
        status = check_report(c, err);
    if (!status)
        status = check_validation(&c->job, err);
    return status;
}
