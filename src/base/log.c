/* Log lines: see log.h. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

static oct_log_sink current_sink;
static void *current_user;

void oct_log_set_sink(oct_log_sink sink, void *user) {
    current_sink = sink;
    current_user = user;
}

static void emit(oct_log_level level, const char *format, va_list args) {
    char line[4096];
    if (!current_sink)
        return;
    vsnprintf(line, sizeof line, format, args);
    current_sink(current_user, level, line);
}

void oct_log_info(const char *format, ...) {
    va_list args;
    va_start(args, format);
    emit(OCT_LOG_INFO, format, args);
    va_end(args);
}

void oct_log_warning(const char *format, ...) {
    va_list args;
    va_start(args, format);
    emit(OCT_LOG_WARNING, format, args);
    va_end(args);
}
