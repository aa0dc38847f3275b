/* Python's pickle: see pickle.h. */
#include "export/pickle.h"

#include <string.h>

static void put_little(oct_strbuf *to, uint64_t value, int n_bytes) {
    unsigned char bytes[8];
    for (int i = 0; i < n_bytes; i++)
        bytes[i] = (unsigned char)(value >> 8 * i);
    oct_strbuf_append(to, bytes, (size_t)n_bytes);
}

void oct_pickle_begin(oct_strbuf *to) {
    oct_strbuf_append(to, "\x80\x02", 2);
}

void oct_pickle_put_text(oct_strbuf *to, const char *text) {
    size_t n = strlen(text);
    oct_strbuf_puts(to, "X"); /* BINUNICODE */
    put_little(to, n, 4);
    oct_strbuf_append(to, text, n);
}

void oct_pickle_put_int(oct_strbuf *to, int64_t value) {
    if (value <= INT32_MAX) {
        oct_strbuf_puts(to, "J"); /* BININT */
        put_little(to, (uint64_t)value, 4);
        return;
    }
    oct_strbuf_append(to, "\x8a\x08", 2); /* LONG1 of 8 bytes */
    put_little(to, (uint64_t)value, 8);
}

void oct_pickle_put_global(oct_strbuf *to, const char *module, const char *name) {
    oct_strbuf_printf(to, "c%s\n%s\n", module, name);
}

void oct_pickle_put_sizes(oct_strbuf *to, const int64_t *sizes, int n) {
    oct_strbuf_puts(to, OCT_PICKLE_MARK);
    for (int i = 0; i < n; i++)
        oct_pickle_put_int(to, sizes[i]);
    oct_strbuf_puts(to, OCT_PICKLE_TUPLE);
}
