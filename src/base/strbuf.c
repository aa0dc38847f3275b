/* A growing string: see strbuf.h. */
#include "base/strbuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

static bool reserve(oct_strbuf *b, size_t extra) {
    if (b->failed)
        return false;
    size_t need = b->length + extra + 1;
    if (need <= b->capacity)
        return true;
    size_t capacity = b->capacity ? b->capacity : 128;
    while (capacity < need)
        capacity *= 2;
    char *grown = oct_realloc_array(b->text, capacity, 1);
    if (!grown) {
        b->failed = true;
        return false;
    }
    b->text = grown;
    b->capacity = capacity;
    return true;
}

void oct_strbuf_append(oct_strbuf *b, const void *bytes, size_t n) {
    if (!reserve(b, n))
        return;
    if (n)
        memcpy(b->text + b->length, bytes, n);
    b->length += n;
    b->text[b->length] = '\0';
}

void oct_strbuf_puts(oct_strbuf *b, const char *text) {
    oct_strbuf_append(b, text, strlen(text));
}

void oct_strbuf_printf(oct_strbuf *b, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n >= 0 && reserve(b, (size_t)n)) {
        vsnprintf(b->text + b->length, (size_t)n + 1, format, again);
        b->length += (size_t)n;
    }
    va_end(again);
}

void oct_strbuf_put_shell_word(oct_strbuf *b, const char *word) {
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+,:@%-";
    if (*word && *word != '-' && word[strspn(word, plain)] == '\0') {
        oct_strbuf_puts(b, word);
        return;
    }
    oct_strbuf_puts(b, *word == '-' ? "./'" : "'");
    for (; *word; word++)
        if (*word == '\'')
            oct_strbuf_puts(b, "'\\''");
        else
            oct_strbuf_append(b, word, 1);
    oct_strbuf_puts(b, "'");
}

void oct_strbuf_free(oct_strbuf *b) {
    oct_free(b->text);
    *b = (oct_strbuf){0};
}
