/* Log lines and the progress bar: see terminal.h. */
#include "terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/strbuf.h"

enum { BAR_WIDTH = 30 };

static FILE *log_stream;
static oct_strbuf more_errors;
static bool warnings_only;
static bool bar_shown;
static int64_t bar_drawn_at_ms = -1;

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void sink(void *user, oct_log_level level, const char *line) {
    (void)user;
    struct timespec now;
    struct tm local;
    char stamp[32];
    if (warnings_only && level == OCT_LOG_INFO)
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &local);
    strftime(stamp, sizeof stamp, "%Y-%m-%d %H:%M:%S", &local);
    cli_progress_end();
    fprintf(log_stream, "[titan] %s,%03d - root - %s - %s\n", stamp, (int)(now.tv_nsec / 1000000),
            level == OCT_LOG_WARNING ? "WARNING" : "INFO", line);
    fflush(log_stream);
}

void cli_terminal_init(void) {
    log_stream = stderr;
    oct_log_set_sink(sink, NULL);
}

void cli_log_to_stdout(void) {
    log_stream = stdout;
}

void cli_log_warnings_only(void) {
    warnings_only = true;
}

/* One that takes control sequences. Open MPI gives every rank a terminal of its own, whatever its
 * output goes to in the end. */
static bool is_terminal(int fd) {
    const char *kind = getenv("TERM");
    bool dumb = kind && strcmp(kind, "dumb") == 0;
    return isatty(fd) == 1 && !dumb && !getenv("OMPI_COMM_WORLD_SIZE");
}

bool cli_log_on_terminal(void) {
    return is_terminal(fileno(log_stream));
}

static int columns(void) {
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

static int clip(int x, int low, int high) {
    return x > high ? (high > low ? high : low) : x < low ? low : x;
}

void cli_progress(void *user, const char *what, int64_t done, int64_t total) {
    (void)user;
    char bar[BAR_WIDTH + 1];
    if (!is_terminal(STDERR_FILENO) || total < 1)
        return;
    int64_t now = now_ms();
    if (done < total && bar_drawn_at_ms >= 0 && now - bar_drawn_at_ms < 100)
        return;
    double share = (double)done / (double)total;
    int room = columns() - (int)strlen(" [] 100%") - 1; /* a line that wraps can't be wiped */
    int words = clip((int)strlen(what), 0, room), width = clip(room - words, 0, BAR_WIDTH);
    int filled = (int)(share * width);
    for (int i = 0; i < width; i++)
        bar[i] = i < filled ? '=' : ' ';
    bar[width] = '\0';
    fprintf(stderr, "\r\033[K%.*s [%s] %d%%", words, what, bar, (int)(100 * share));
    fflush(stderr);
    bar_shown = true;
    bar_drawn_at_ms = now;
}

void cli_progress_end(void) {
    if (!bar_shown)
        return;
    fprintf(stderr, "\r\033[K");
    fflush(stderr);
    bar_shown = false;
    bar_drawn_at_ms = -1;
}

void cli_add_errors(const char *lines) {
    for (; lines && *lines; lines += strspn(lines, "\n")) {
        size_t n = strcspn(lines, "\n");
        oct_strbuf_puts(&more_errors, "octet: ");
        oct_strbuf_append(&more_errors, lines, n);
        oct_strbuf_puts(&more_errors, "\n");
        lines += n;
    }
}

void cli_print_error(const oct_error *err) {
    fprintf(stderr, "octet: %s\n%s", err->message[0] ? err->message : "out of memory",
            more_errors.text ? more_errors.text : "");
    oct_strbuf_free(&more_errors);
}
