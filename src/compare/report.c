/* The page with the table and the curves: see compare.h. */
#include "base/fs.h"
#include "base/strbuf.h"
#include "compare/comparison.h"
#include "report/html.h"

enum { SMOOTH = 20 }; /* steps that a point of a smoothed curve is the mean of */

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

static void put_charts(const oct_comparison *c, oct_strbuf *b) {
    curves k = {0};
    oct_series series, smooth;
    for (int i = 0; i < c->n; i++)
        if (oct_series_smooth(&c->recorded[i].loss, SMOOTH, &series) == OCT_OK)
            add_curve(&k, c->runs[i].recipe, series);
    put_chart(b, &k, "Training loss (mean of 20 steps)", "nats a token");
    for (int i = 0; i < c->n; i++) { /* the first, a line at zero, keeps each recipe its colour */
        if (oct_series_difference(&c->recorded[i].loss, &c->recorded[0].loss, &series) != OCT_OK)
            continue;
        if (oct_series_smooth(&series, SMOOTH, &smooth) == OCT_OK)
            add_curve(&k, c->runs[i].recipe, smooth);
        oct_series_free(&series);
    }
    put_chart(b, &k, "Gap of the training loss to the first recipe (mean of 20 steps)", "nats");
    for (int i = 0; i < c->n; i++)
        if (oct_series_smooth(&c->recorded[i].validation_loss, 1, &series) == OCT_OK)
            add_curve(&k, c->runs[i].recipe, series);
    put_chart(b, &k, "Validation loss", "nats a token");
}

oct_status oct_comparison_write_report(const oct_comparison *c, oct_error *err) {
    char note[512];
    const char *cells[(MAX_RECIPES + 1) * N_COLUMNS];
    oct_strbuf b = {0};
    for (int i = 0; i <= c->n; i++)
        for (int k = 0; k < N_COLUMNS; k++)
            cells[i * N_COLUMNS + k] = c->cells[i][k];
    oct_comparison_describe(c, note, sizeof note);
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
