/* A growing string. Zero-initialise it; the text is always NUL-terminated. After a refused
 * allocation `failed` is set and later appends do nothing, so that callers check once at the end.
 */
#ifndef OCT_BASE_STRBUF_H
#define OCT_BASE_STRBUF_H

#include <stdbool.h>
#include <stddef.h>

typedef struct oct_strbuf {
    char *text; /* NULL while empty */
    size_t length, capacity;
    bool failed;
} oct_strbuf;

void oct_strbuf_append(oct_strbuf *b, const void *bytes, size_t n);
void oct_strbuf_puts(oct_strbuf *b, const char *text);
void oct_strbuf_printf(oct_strbuf *b, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A word as a POSIX shell takes it: quoted where a character could mean something to it, and never
 * an option. */
void oct_strbuf_put_shell_word(oct_strbuf *b, const char *word);
void oct_strbuf_free(oct_strbuf *b);

#endif
