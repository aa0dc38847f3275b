/* The page with the table and the curves: see compare.h. */
#include <math.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/strbuf.h"
#include "compare/comparison.h"
#include "report/html.h"

enum { SMOOTH = 20 }; /* steps that a point of a smoothed curve is the mean of */

/* Of each arm a curve, the mean over its seeds, and with two seeds or more the band of its 95 %
 * confidence interval. */
typedef struct curves {
    const char *names[OCT_MAX_ARMS];
    const oct_series *lines[OCT_MAX_ARMS], *bands[2 * OCT_MAX_ARMS];
    oct_series mean[OCT_MAX_ARMS], edges[2 * OCT_MAX_ARMS];
    int64_t n;
} curves;

typedef oct_status (*take_series)(const oct_comparison *c, int arm, int64_t seed, oct_series *out);

/* The seeds' values at one step, which all of them have. */
static oct_status add_point(curves *k, double step, const double *values, int64_t n_seeds) {
    const oct_gap gap = oct_gap_of(values, n_seeds);
    oct_status status = oct_series_append(&k->mean[k->n], step, gap.mean);
    if (!status)
        status = oct_series_append(&k->edges[2 * k->n], step, gap.low);
    if (!status)
        status = oct_series_append(&k->edges[2 * k->n + 1], step, gap.high);
    return status;
}

static oct_status add_points(curves *k, const oct_series *of_seeds, int64_t n_seeds) {
    double values[OCT_COMPARE_MAX_SEEDS];
    oct_status status = OCT_OK;
    for (int64_t i = 0; n_seeds > 0 && i < of_seeds[0].n && !status; i++) {
        bool whole = true;
        for (int64_t s = 0; s < n_seeds; s++) {
            whole = whole && i < of_seeds[s].n && of_seeds[s].x[i] == of_seeds[0].x[i];
            values[s] = whole ? of_seeds[s].y[i] : NAN;
        }
        if (whole)
            status = add_point(k, of_seeds[0].x[i], values, n_seeds);
    }
    return status;
}

static void add_arm(const oct_comparison *c, int arm, take_series take, curves *k) {
    oct_series of_seeds[OCT_COMPARE_MAX_SEEDS];
    int64_t n = 0;
    for (int64_t seed = 0; seed < c->n_seeds; seed++)
        if (oct_comparison_run_of(c, arm, seed)->run.status == OCT_OK &&
            take(c, arm, seed, &of_seeds[n]) == OCT_OK)
            n++;
    if (n > 0 && add_points(k, of_seeds, n) == OCT_OK) {
        k->names[k->n] = c->arms.items[arm].name;
        k->lines[k->n] = &k->mean[k->n];
        k->bands[2 * k->n] = &k->edges[2 * k->n];
        k->bands[2 * k->n + 1] = &k->edges[2 * k->n + 1];
        k->n++;
    }
    for (int64_t s = 0; s < n; s++)
        oct_series_free(&of_seeds[s]);
}

static void put_chart(const oct_comparison *c, oct_strbuf *b, take_series take, bool banded,
                      const char *title, const char *y_label) {
    curves *k = oct_calloc_array(1, sizeof *k);
    if (!k) {
        b->failed = true;
        return;
    }
    for (int arm = 0; arm < c->arms.n; arm++)
        add_arm(c, arm, take, k);
    oct_html_line_chart(b, &(oct_html_chart){.title = title,
                                             .x_label = "step",
                                             .y_label = y_label,
                                             .names = k->names,
                                             .series = k->lines,
                                             .n_series = k->n,
                                             .bands = banded && c->n_seeds > 1 ? k->bands : NULL});
    for (int i = 0; i < OCT_MAX_ARMS; i++) {
        oct_series_free(&k->mean[i]);
        oct_series_free(&k->edges[2 * i]);
        oct_series_free(&k->edges[2 * i + 1]);
    }
    oct_free(k);
}

static oct_status take_loss(const oct_comparison *c, int arm, int64_t seed, oct_series *out) {
    return oct_series_smooth(&oct_comparison_run_of(c, arm, seed)->recorded.loss, SMOOTH, out);
}

/* The first arm's is a line at zero, which keeps each arm its colour. */
static oct_status take_gap(const oct_comparison *c, int arm, int64_t seed, oct_series *out) {
    const oct_arm_run *first = oct_comparison_run_of(c, 0, seed);
    oct_series gap;
    if (first->run.status != OCT_OK)
        return OCT_FAILED;
    oct_status status = oct_series_difference(&oct_comparison_run_of(c, arm, seed)->recorded.loss,
                                              &first->recorded.loss, &gap);
    if (status)
        return status;
    status = oct_series_smooth(&gap, SMOOTH, out);
    oct_series_free(&gap);
    return status;
}

static oct_status take_validation(const oct_comparison *c, int arm, int64_t seed, oct_series *out) {
    return oct_series_smooth(&oct_comparison_run_of(c, arm, seed)->recorded.validation_loss, 1,
                             out);
}

static void put_verdicts(const oct_comparison *c, oct_strbuf *b) {
    char text[512];
    for (int arm = 0; arm < c->arms.n; arm++) {
        oct_comparison_verdict_text(c, arm, text, sizeof text);
        if (*text)
            oct_html_paragraph(b, text);
    }
}

oct_status oct_comparison_write_report(const oct_comparison *c, oct_error *err) {
    char note[512];
    const char *cells[(OCT_MAX_ARMS + 1) * OCT_COMPARISON_COLUMNS];
    oct_strbuf b = {0};
    for (int i = 0; i <= c->arms.n; i++)
        for (int k = 0; k < c->n_columns; k++)
            cells[i * c->n_columns + k] = c->cells[i][k];
    oct_comparison_describe(c, note, sizeof note);
    oct_html_begin(&b, "octet compare");
    put_verdicts(c, &b);
    oct_html_paragraph(&b, note);
    oct_html_table(&b, cells, c->arms.n + 1, c->n_columns);
    put_chart(c, &b, take_loss, false, "Training loss (mean of 20 steps)", "nats a token");
    put_chart(c, &b, take_gap, true,
              "Gap of the training loss to the first recipe (mean of 20 steps)", "nats");
    put_chart(c, &b, take_validation, false, "Validation loss", "nats a token");
    oct_html_end(&b);
    oct_status status =
        b.failed ? oct_fail_memory(err) : oct_file_write(c->report, b.text, b.length, err);
    oct_strbuf_free(&b);
    return status;
}
