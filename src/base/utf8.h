/* What is UTF-8 and what isn't: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef OCT_BASE_UTF8_H
#define OCT_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* The length of the character at text[0], of which n_bytes are readable; 0 when it isn't one. */
size_t oct_utf8_length(const char *text, size_t n_bytes);
bool oct_utf8_is_valid(const char *text);

#endif
