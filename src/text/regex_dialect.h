/* Patterns of tokenizer.json files in the words of the libraries that run them. */
#ifndef OCT_TEXT_REGEX_DIALECT_H
#define OCT_TEXT_REGEX_DIALECT_H

#include <octet/status.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/strbuf.h"

/* Writes the pattern for PCRE2 (UTF and UCP) if all of it is in a part of the syntax that means the
 * same there and in Oniguruma: characters, classes of characters, ranges, properties and white
 * space, groups, alternatives, greedy, lazy and possessive repeats, lookahead, and (?i:...) over
 * letters whose foldings agree. Else returns false, and what is in *to doesn't matter. */
bool oct_regex_for_pcre2(const char *pattern, size_t n_bytes, oct_strbuf *to);

/* Writes the pattern for Oniguruma with every name of a set of characters (\p{L}, \w, [:punct:],
 * \b,
 * ...) spelt out. OCT_INVALID, with `place` before it: a name that isn't known. Errors of syntax
 * are left for Oniguruma to find. */
oct_status oct_regex_for_oniguruma(const char *pattern, size_t n_bytes, const char *place,
                                   oct_strbuf *to, oct_error *err);

#endif
