/* What is UTF-8 and what isn't: see utf8.h. */
#include "base/utf8.h"

#include <stdint.h>
#include <string.h>

size_t oct_utf8_length(const char *text, size_t n_bytes) {
    const uint8_t *b = (const uint8_t *)text;
    if (n_bytes == 0)
        return 0;
    if (b[0] < 0x80)
        return 1;
    size_t length = b[0] < 0xC2 ? 0 : b[0] < 0xE0 ? 2 : b[0] < 0xF0 ? 3 : b[0] < 0xF5 ? 4 : 0;
    if (length == 0 || length > n_bytes)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((b[i] & 0xC0) != 0x80)
            return 0;
    /* Not: overlong forms, surrogates, above U+10FFFF. */
    if ((b[0] == 0xE0 && b[1] < 0xA0) || (b[0] == 0xED && b[1] > 0x9F) ||
        (b[0] == 0xF0 && b[1] < 0x90) || (b[0] == 0xF4 && b[1] > 0x8F))
        return 0;
    return length;
}

bool oct_utf8_is_valid(const char *text) {
    for (size_t left = strlen(text), n; left > 0; text += n, left -= n) {
        n = oct_utf8_length(text, left);
        if (n == 0)
            return false;
    }
    return true;
}
