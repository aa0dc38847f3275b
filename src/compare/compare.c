/* One run a recipe and seed: see compare.h. */
#include "compare/compare.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "compare/comparison.h"
#include "compare/folders.h"

void oct_comparison_close(oct_comparison *c) {
    if (!c)
        return;
    for (int i = 0; c->runs && i < c->n_runs; i++) {
        oct_arm_run *r = &c->runs[i];
        oct_free(r->folder);
        oct_free(r->dump);
        oct_free(r->overrides);
        oct_strbuf_free(&r->inputs);
        oct_run_free(&r->recorded);
    }
    oct_free(c->runs);
    oct_job_free(&c->job);
    oct_claim_release(&c->claim);
    oct_arms_free(&c->arms);
    oct_free(c->root);
    oct_free(c->cache);
    oct_strbuf_free(&c->files);
    oct_free(c->default_report);
    oct_free(c);
}

oct_status oct_comparison_open(const oct_compare_options *options, oct_comparison **out,
                               oct_error *err) {
    oct_comparison *c = oct_calloc_array(1, sizeof *c);
    *out = NULL;
    if (!c)
        return oct_fail_memory(err);
    c->options = *options;
    c->report = options->report;
    oct_status status = oct_comparison_prepare(c, err);
    if (status) {
        oct_comparison_close(c);
        return status;
    }
    oct_job_log_notes(&c->job);
    *out = c;
    return OCT_OK;
}

/* ---- one run ---- */

/* What a run's own process does before its first step, once it is sure to train. */
typedef struct start {
    const oct_comparison *c;
    const oct_arm_run *run;
} start;

/* The first run alone does it, for all: a job that is refused moves nothing, and no recipe that a
 * signal leaves untrained shows an older compare's model. */
static oct_status set_all_aside(void *user, oct_error *err) {
    const start *s = user;
    oct_status status = OCT_OK;
    for (int i = 0; i < s->c->n_runs && !status; i++)
        status = oct_compare_folder_set_aside(&s->c->job, s->c->runs[i].folder,
                                              &s->c->runs[i] == s->run, err);
    return status;
}

static oct_status begin_record(void *user, oct_error *err) {
    const start *s = user;
    oct_status status = OCT_OK;
    if (s->run->run.start == OCT_START_FRESH)
        status = oct_compare_folder_set_aside(&s->c->job, s->run->folder, true, err);
    if (!status)
        status = oct_run_record_write(s->run->folder, s->run->inputs.text, s->c->options.machine,
                                      NULL, err);
    return status;
}

static oct_status read_metrics(oct_arm_run *r, oct_error *err) {
    char *metrics = oct_path_join(r->folder, "metrics.jsonl");
    if (!metrics)
        return oct_fail_memory(err);
    oct_status status = oct_run_read(metrics, &r->recorded, err);
    oct_free(metrics);
    return status;
}

static oct_status train(oct_comparison *c, oct_arm_run *r, oct_error *err) {
    start s = {c, r};
    bool keeps = oct_comparison_keeps_runs(c);
    r->run.host = c->options.host;
    r->run.cache_folder = c->cache;
    r->run.ready = keeps ? begin_record : r == c->runs ? set_all_aside : NULL;
    r->run.ready_user = &s;
    oct_recipe_run_train(&r->run);
    if (r->run.status != OCT_OK)
        return OCT_OK;
    oct_status status = read_metrics(r, err);
    if (!status && keeps)
        status = oct_run_record_write(r->folder, r->inputs.text, c->options.machine, &r->run.result,
                                      err);
    return status;
}

/* Passes over what is done, and says what becomes of what isn't. */
static oct_status look_at_record(const oct_comparison *c, oct_arm_run *r, oct_error *err) {
    oct_run_record record;
    oct_status status =
        oct_run_record_read(r->folder, r->inputs.text, c->options.machine, &record, err);
    if (status)
        return status;
    if (record.elsewhere)
        oct_log_warning("%s: was trained by another version of octet or on another CPU than this "
                        "one",
                        r->folder);
    if (record.begun)
        r->run.start = OCT_START_RESUME;
    r->kept = record.done;
    if (!record.done)
        return OCT_OK;
    r->run.result = record.result;
    return read_metrics(r, err);
}

static bool asked_to_stop(const oct_comparison *c) {
    return c->options.host->stop(NULL) != 0;
}

static oct_status run_one(oct_comparison *c, int i, oct_error *err) {
    oct_arm_run *r = &c->runs[i];
    char seed[48] = "";
    r->run.start = OCT_START_FRESH;
    oct_status status = oct_comparison_keeps_runs(c) ? look_at_record(c, r, err) : OCT_OK;
    if (status)
        return status;
    if (oct_comparison_keeps_runs(c))
        snprintf(seed, sizeof seed, ", seed %" PRIu64, c->first_seed + (uint64_t)(i / c->arms.n));
    oct_log_info("%s recipe %s%s (%d of %d)", r->kept ? "Kept:" : "Training with", r->run.arm->name,
                 seed, i + 1, c->n_runs);
    if (!r->kept)
        status = train(c, r, err);
    /* What is wrong with the input is wrong for every recipe. */
    if (!status && r->run.status == OCT_INVALID)
        status = oct_fail(err, OCT_INVALID, "%s", r->run.err.message);
    return status;
}

oct_status oct_comparison_run(oct_comparison *c, oct_error *err) {
    oct_status status = OCT_OK;
    c->options.host->stop_at_a_step();
    for (int i = 0; i < c->n_runs && !status && !asked_to_stop(c); i++) {
        c->n_begun++;
        status = run_one(c, i, err);
    }
    for (int i = c->n_begun; i < c->n_runs; i++) {
        c->runs[i].run.stopped = true;
        c->runs[i].run.status = OCT_FAILED;
    }
    oct_comparison_fill_table(c);
    return status;
}

/* ---- what came of it ---- */

bool oct_comparison_was_stopped(const oct_comparison *c) {
    return asked_to_stop(c) && (c->n_begun < c->n_runs || c->runs[c->n_runs - 1].run.stopped);
}

int oct_comparison_n_runs(const oct_comparison *c) {
    return c->n_runs;
}

int oct_comparison_n_arms(const oct_comparison *c) {
    return c->arms.n;
}

int oct_comparison_n_whole(const oct_comparison *c) {
    int n_whole = 0;
    for (int i = 0; i < c->n_begun; i++)
        n_whole += c->runs[i].run.status == OCT_OK;
    return n_whole;
}

oct_status oct_comparison_failure(const oct_comparison *c, oct_error *err) {
    for (int i = 0; i < c->n_runs; i++)
        if (c->runs[i].run.status != OCT_OK)
            return oct_fail(err, c->runs[i].run.status, "%s: %s", c->runs[i].run.arm->name,
                            c->runs[i].run.err.message);
    return OCT_OK;
}

const char *oct_comparison_report(const oct_comparison *c) {
    return c->report;
}
