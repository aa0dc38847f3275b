/* One self-contained HTML page: see html.h. */
#include "base/count.h"
#include "report/html.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum {
    WIDTH = 860,
    HEIGHT = 380,
    LEFT = 70,
    RIGHT = 20,
    TOP = 16,
    BOTTOM = 52,
    MAX_POINTS = 800, /* of a line: more can't be seen */
    TICKS = 6,        /* about */
    MAX_TICKS = 2 * TICKS
};

static const char *const colours[] = {"#4269d0", "#e8590c", "#2b8a3e", "#9c36b5",
                                      "#c92a2a", "#0b7285", "#8a6d00", "#5f3dc4"};
enum { N_COLOURS = OCT_COUNT(colours) };

static void put_escaped(oct_strbuf *b, const char *text) {
    for (; *text; text++) {
        const char *entity = *text == '<'   ? "&lt;"
                             : *text == '>' ? "&gt;"
                             : *text == '&' ? "&amp;"
                             : *text == '"' ? "&quot;"
                                            : NULL;
        if (entity)
            oct_strbuf_puts(b, entity);
        else
            oct_strbuf_append(b, text, 1);
    }
}

void oct_html_begin(oct_strbuf *b, const char *title) {
    oct_strbuf_puts(b, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                       "<meta name=\"viewport\" content=\"width=device-width\">\n<title>");
    put_escaped(b, title);
    oct_strbuf_puts(
        b, "</title>\n<style>\n"
           ":root { color-scheme: light dark; --line: #8886; }\n"
           "body { font: 15px/1.5 system-ui, sans-serif; max-width: 900px; margin: 2em auto; "
           "padding: 0 1em; }\n"
           ".wide { overflow-x: auto; }\n"
           "table { border-collapse: collapse; margin: 1em 0; }\n"
           "th, td { padding: .3em .9em; border-bottom: 1px solid var(--line); text-align: right; "
           "font-variant-numeric: tabular-nums; }\n"
           "th:first-child, td:first-child { text-align: left; }\n"
           "svg { width: 100%; height: auto; }\n"
           "svg text { font-size: 12px; fill: currentColor; }\n"
           ".grid { stroke: var(--line); }\n"
           "</style>\n</head>\n<body>\n<h1>");
    put_escaped(b, title);
    oct_strbuf_puts(b, "</h1>\n");
}

void oct_html_end(oct_strbuf *b) {
    oct_strbuf_puts(b, "</body>\n</html>\n");
}

void oct_html_paragraph(oct_strbuf *b, const char *text) {
    oct_strbuf_puts(b, "<p>");
    put_escaped(b, text);
    oct_strbuf_puts(b, "</p>\n");
}

void oct_html_table(oct_strbuf *b, const char *const *cells, int64_t n_rows, int64_t n_cols) {
    oct_strbuf_puts(b, "<div class=\"wide\"><table>\n");
    for (int64_t row = 0; row < n_rows; row++) {
        const char *tag = row == 0 ? "th" : "td";
        oct_strbuf_puts(b, "<tr>");
        for (int64_t col = 0; col < n_cols; col++) {
            oct_strbuf_printf(b, "<%s>", tag);
            put_escaped(b, cells[row * n_cols + col]);
            oct_strbuf_printf(b, "</%s>", tag);
        }
        oct_strbuf_puts(b, "</tr>\n");
    }
    oct_strbuf_puts(b, "</table></div>\n");
}

/* ---- charts ---- */

typedef struct frame {
    double x_low, x_high, y_low, y_high;
} frame;

static double place_x(const frame *f, double x) {
    return LEFT + (x - f->x_low) / (f->x_high - f->x_low) * (WIDTH - LEFT - RIGHT);
}
static double place_y(const frame *f, double y) {
    return HEIGHT - BOTTOM - (y - f->y_low) / (f->y_high - f->y_low) * (HEIGHT - TOP - BOTTOM);
}

static void take_in(frame *f, const oct_series *series) {
    for (int64_t i = 0; i < series->n; i++) {
        double x = series->x[i], y = series->y[i];
        if (!isfinite(x) || !isfinite(y))
            continue;
        f->x_low = fmin(f->x_low, x);
        f->x_high = fmax(f->x_high, x);
        f->y_low = fmin(f->y_low, y);
        f->y_high = fmax(f->y_high, y);
    }
}

/* The box around all finite points; false when there is none. */
static bool find_frame(const oct_html_chart *chart, frame *f) {
    *f = (frame){INFINITY, -INFINITY, INFINITY, -INFINITY};
    for (int64_t s = 0; s < chart->n_series; s++)
        take_in(f, chart->series[s]);
    for (int64_t s = 0; chart->bands && s < 2 * chart->n_series; s++)
        take_in(f, chart->bands[s]);
    if (!(f->x_low <= f->x_high))
        return false;
    if (f->x_low == f->x_high)
        f->x_high += 1;
    if (f->y_low == f->y_high) {
        double room = fmax(fabs(f->y_low) * 0.1, 1e-6);
        f->y_low -= room;
        f->y_high += room;
    }
    return true;
}

/* A round distance between ticks: 1, 2 or 5 times a power of ten. */
static double tick_step(double low, double high) {
    double rough = (high - low) / TICKS;
    double power = pow(10, floor(log10(rough)));
    double part = rough / power;
    return power * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
}

static void put_grid(oct_strbuf *b, const frame *f) {
    double step = tick_step(f->y_low, f->y_high);
    for (int k = 0; k <= MAX_TICKS; k++) {
        double y = (ceil(f->y_low / step) + k) * step, at = place_y(f, y);
        if (!(y <= f->y_high))
            break;
        oct_strbuf_printf(b,
                          "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                          "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.5g</text>\n",
                          LEFT, WIDTH - RIGHT, at, at, LEFT - 8, at + 4,
                          fabs(y) < step * 1e-9 ? 0 : y);
    }
    step = tick_step(f->x_low, f->x_high);
    for (int k = 0; k <= MAX_TICKS; k++) {
        double x = (ceil(f->x_low / step) + k) * step;
        if (!(x <= f->x_high))
            break;
        oct_strbuf_printf(b, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.6g</text>\n",
                          place_x(f, x), HEIGHT - BOTTOM + 18, x);
    }
}

/* Every so many points of a series are drawn, and the last. */
static bool is_shown(const oct_series *series, int64_t i) {
    int64_t stride = series->n / MAX_POINTS + 1;
    return (i % stride == 0 || i == series->n - 1) && isfinite(series->x[i]) &&
           isfinite(series->y[i]);
}

/* From left to right along the lower edge, and back along the upper. */
static void put_band(oct_strbuf *b, const frame *f, const oct_series *low, const oct_series *high,
                     const char *colour) {
    oct_strbuf_printf(b, "<polygon fill=\"%s\" fill-opacity=\".15\" points=\"", colour);
    for (int64_t i = 0; i < low->n; i++)
        if (is_shown(low, i))
            oct_strbuf_printf(b, "%.1f,%.1f ", place_x(f, low->x[i]), place_y(f, low->y[i]));
    for (int64_t i = high->n - 1; i >= 0; i--)
        if (is_shown(high, i))
            oct_strbuf_printf(b, "%.1f,%.1f ", place_x(f, high->x[i]), place_y(f, high->y[i]));
    oct_strbuf_puts(b, "\"/>\n");
}

static void put_line(oct_strbuf *b, const frame *f, const oct_series *series, const char *name,
                     const char *colour) {
    oct_strbuf_printf(b, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.6\" points=\"",
                      colour);
    for (int64_t i = 0; i < series->n; i++)
        if (is_shown(series, i))
            oct_strbuf_printf(b, "%.1f,%.1f ", place_x(f, series->x[i]), place_y(f, series->y[i]));
    oct_strbuf_puts(b, "\"><title>");
    put_escaped(b, name);
    oct_strbuf_puts(b, "</title></polyline>\n");
}

static void put_legend(oct_strbuf *b, const oct_html_chart *chart) {
    oct_strbuf_puts(b, "<p>");
    for (int64_t s = 0; s < chart->n_series; s++) {
        oct_strbuf_printf(b, "<span style=\"color:%s\">&#9632;</span> ", colours[s % N_COLOURS]);
        put_escaped(b, chart->names[s]);
        oct_strbuf_puts(b, " &nbsp; ");
    }
    oct_strbuf_puts(b, "</p>\n");
}

void oct_html_line_chart(oct_strbuf *b, const oct_html_chart *chart) {
    frame f;
    oct_strbuf_puts(b, "<h2>");
    put_escaped(b, chart->title);
    oct_strbuf_puts(b, "</h2>\n");
    if (!find_frame(chart, &f)) {
        oct_html_paragraph(b, "Nothing to show yet.");
        return;
    }
    put_legend(b, chart);
    oct_strbuf_printf(b, "<svg viewBox=\"0 0 %d %d\" role=\"img\">\n", WIDTH, HEIGHT);
    put_grid(b, &f);
    for (int64_t s = 0; chart->bands && s < chart->n_series; s++)
        put_band(b, &f, chart->bands[2 * s], chart->bands[2 * s + 1], colours[s % N_COLOURS]);
    for (int64_t s = 0; s < chart->n_series; s++)
        put_line(b, &f, chart->series[s], chart->names[s], colours[s % N_COLOURS]);
    oct_strbuf_printf(b, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">", (WIDTH + LEFT) / 2,
                      HEIGHT - 10);
    put_escaped(b, chart->x_label);
    oct_strbuf_printf(b,
                      "</text>\n<text transform=\"translate(14 %d) rotate(-90)\" "
                      "text-anchor=\"middle\">",
                      HEIGHT / 2);
    put_escaped(b, chart->y_label);
    oct_strbuf_puts(b, "</text>\n</svg>\n");
}
