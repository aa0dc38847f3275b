/* Status codes and error messages: see octet/status.h. */
#include <octet/status.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

/* Names in a message come from outside: a line break would make two messages of one, and an escape
 * sequence could drive the terminal. */
static void keep_one_line(char *text) {
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = '?';
}

/* A long name in a message must not push out what is said of it: the middle goes, and both ends
 * stay. */
static void shorten(char *message, const char *format, va_list args, size_t length) {
    static const char gap[] = " ... ";
    size_t half = (OCT_ERROR_SIZE - sizeof gap) / 2;
    char *whole = oct_malloc(length + 1);
    if (!whole) {
        memcpy(message + OCT_ERROR_SIZE - 4, "...", 4);
        return;
    }
    vsnprintf(whole, length + 1, format, args);
    memcpy(message + half, gap, sizeof gap - 1);
    memcpy(message + half + sizeof gap - 1, whole + length - half, half + 1);
    oct_free(whole);
}

oct_status oct_fail(oct_error *err, oct_status status, const char *format, ...) {
    if (!err || (err->status != OCT_OK && err->message[0]))
        return status;
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(err->message, sizeof err->message, format, args);
    if (length >= (int)sizeof err->message)
        shorten(err->message, format, again, (size_t)length);
    va_end(again);
    va_end(args);
    keep_one_line(err->message);
    err->status = status;
    return status;
}

oct_status oct_fail_memory(oct_error *err) {
    return oct_fail(err, OCT_NO_MEMORY, "out of memory");
}

int oct_status_exit_code(oct_status status) {
    if (!status)
        return 0;
    return status == OCT_INVALID ? 2 : 1;
}
