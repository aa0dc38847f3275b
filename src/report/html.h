/* One self-contained HTML page: headings, tables and line charts as inline SVG; no script, no
 * network. All texts are escaped here. Everything is appended to a string; check b->failed after.
 */
#ifndef OCT_REPORT_HTML_H
#define OCT_REPORT_HTML_H

#include "base/strbuf.h"
#include "report/recorded_run.h"

void oct_html_begin(oct_strbuf *b, const char *title);
void oct_html_end(oct_strbuf *b);
void oct_html_paragraph(oct_strbuf *b, const char *text);
/* n_rows x n_cols cells, row by row, the first row being the header. */
void oct_html_table(oct_strbuf *b, const char *const *cells, int64_t n_rows, int64_t n_cols);

typedef struct oct_html_chart {
    const char *title, *x_label, *y_label;
    const char *const *names;        /* (n_series) */
    const oct_series *const *series; /* (n_series), colours by position; x grows along a series */
    int64_t n_series;
    const oct_series *const *bands; /* (2 n_series): lower and upper edge of each; NULL: none */
} oct_html_chart;
/* Points that aren't finite are left out; a chart without any says that there is nothing yet. */
void oct_html_line_chart(oct_strbuf *b, const oct_html_chart *chart);

#endif
