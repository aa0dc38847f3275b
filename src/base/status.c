/* Status codes and error messages: see octet/status.h. */
#include <octet/status.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Names in a message come from outside: a line break would make two messages of one, and an escape
 * sequence could drive the terminal. */
static void keep_one_line(char *text) {
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = '?';
}

oct_status oct_fail(oct_error *err, oct_status status, const char *format, ...) {
    if (!err || (err->status != OCT_OK && err->message[0]))
        return status;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    if (length >= (int)sizeof err->message)
        memcpy(err->message + sizeof err->message - 4, "...", 4);
    keep_one_line(err->message);
    err->status = status;
    return status;
}

oct_status oct_fail_memory(oct_error *err) {
    return oct_fail(err, OCT_NO_MEMORY, "out of memory");
}

int oct_status_exit_code(oct_status status) {
    if (status == OCT_OK)
        return 0;
    return status == OCT_INVALID ? 2 : 1;
}
