/* One run a recipe: see compare.h. */
#include "compare/compare.h"

#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "compare/comparison.h"
#include "compare/folders.h"

enum { N_OWN = 2 }; /* overrides that compare adds */

void oct_comparison_close(oct_comparison *c) {
    if (!c)
        return;
    for (int i = 0; i < c->n; i++) {
        oct_free(c->folders[i]);
        oct_run_free(&c->recorded[i]);
    }
    oct_job_free(&c->job);
    oct_claim_release(&c->claim);
    oct_free(c->list);
    oct_free(c->root);
    oct_free(c->cache);
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

/* The first run alone does it, for all, once it is sure to train: a job that is refused moves
 * nothing, and no recipe that a signal leaves untrained shows an older compare's model. */
static oct_status set_aside(void *user, oct_error *err) {
    const oct_comparison *c = user;
    return oct_compare_folders_set_aside(&c->job, c->folders, c->n, 0, err);
}

static oct_status run_one(oct_comparison *c, int i, oct_error *err) {
    oct_strbuf dump = {0};
    oct_status status = OCT_OK;
    char *metrics = oct_path_join(c->folders[i], "metrics.jsonl");
    const char **overrides =
        oct_malloc_array((size_t)c->options.n_overrides + N_OWN, sizeof *overrides);
    oct_strbuf_printf(&dump, "--job.dump_folder=%s", c->folders[i]);
    if (!metrics || !overrides || dump.failed) {
        status = oct_fail_memory(err);
        goto cleanup;
    }
    for (int k = 0; k < c->options.n_overrides; k++)
        overrides[k] = c->options.overrides[k];
    overrides[c->options.n_overrides] = dump.text;
    overrides[c->options.n_overrides + 1] = "--validation.enable=true";
    c->runs[i].config = c->options.config;
    c->runs[i].overrides = overrides;
    c->runs[i].n_overrides = c->options.n_overrides + N_OWN;
    c->runs[i].cache_folder = c->cache;
    c->runs[i].host = c->options.host;
    c->runs[i].ready = i == 0 ? set_aside : NULL;
    c->runs[i].ready_user = c;
    oct_recipe_run_train(&c->runs[i]);
    if (c->runs[i].status == OCT_OK)
        status = oct_run_read(metrics, &c->recorded[i], err);
cleanup:
    oct_free(metrics);
    oct_free(overrides);
    oct_strbuf_free(&dump);
    return status;
}

static bool asked_to_stop(const oct_comparison *c) {
    return c->options.host->stop(NULL) != 0;
}

oct_status oct_comparison_run(oct_comparison *c, oct_error *err) {
    oct_status status = OCT_OK;
    c->options.host->stop_at_a_step();
    for (int i = 0; i < c->n && status == OCT_OK && !asked_to_stop(c); i++) {
        c->n_begun++;
        oct_log_info("Training with recipe %s (%d of %d)", c->runs[i].recipe, i + 1, c->n);
        status = run_one(c, i, err);
        /* What is wrong with the input is wrong for every recipe. */
        if (status == OCT_OK && c->runs[i].status == OCT_INVALID)
            status = oct_fail(err, OCT_INVALID, "%s", c->runs[i].err.message);
    }
    for (int i = c->n_begun; i < c->n; i++) {
        c->runs[i].stopped = true;
        c->runs[i].status = OCT_FAILED;
    }
    oct_comparison_fill_table(c);
    return status;
}

bool oct_comparison_was_stopped(const oct_comparison *c) {
    return asked_to_stop(c) && (c->n_begun < c->n || c->runs[c->n - 1].stopped);
}

int oct_comparison_n_recipes(const oct_comparison *c) {
    return c->n;
}

int oct_comparison_n_whole(const oct_comparison *c) {
    int n_whole = 0;
    for (int i = 0; i < c->n_begun; i++)
        n_whole += c->runs[i].status == OCT_OK;
    return n_whole;
}

oct_status oct_comparison_failure(const oct_comparison *c, oct_error *err) {
    for (int i = 0; i < c->n; i++)
        if (c->runs[i].status != OCT_OK)
            return oct_fail(err, c->runs[i].status, "%s: %s", c->runs[i].recipe,
                            c->runs[i].err.message);
    return OCT_OK;
}

const char *oct_comparison_report(const oct_comparison *c) {
    return c->report;
}
