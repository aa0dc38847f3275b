/* Sets of characters by the names that patterns give them (`\p{L}`, `[[:alpha:]]`, `\w`), in the
 * Unicode version of the reference tokenizers library, whatever the version of the regular
 * expression library here. */
#ifndef OCT_TEXT_UNICODE_H
#define OCT_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"

/* A union of properties. Zero-initialised it's empty. */
typedef struct oct_char_set {
    uint32_t categories; /* bit i: general category i of the table */
    int script;          /* 1 + index, 0: none */
    uint32_t toggled;    /* bits of the properties that have tables of their own */
    const char *few;     /* more characters, as the inside of a class; NULL: none */
    bool complement;     /* all but these */
} oct_char_set;

/* \w outside a class has six characters more than inside: ² ³ ¹ ¼ ½ ¾. */
typedef enum oct_word_place { OCT_WORD_ALONE, OCT_WORD_IN_CLASS } oct_word_place;

/* A property's name as in \p{...} (`L`, `Letter`, `Greek`, `Grek`, `Alphabetic`, `Word`, ...);
 * case, spaces, `-` and `_` don't count, `^` before it takes the complement. False: not known here.
 */
bool oct_char_set_of_property(const char *name, size_t n_bytes, oct_word_place place,
                              oct_char_set *set);
/* A POSIX bracket's name, as in [[:punct:]]; `^` before it takes the complement. */
bool oct_char_set_of_bracket(const char *name, size_t n_bytes, oct_char_set *set);
oct_char_set oct_char_set_of_word(oct_word_place place);
oct_char_set oct_char_set_of_space(void);  /* \s: White_Space */
oct_char_set oct_char_set_of_number(void); /* \d: Nd */
/* What the pre-tokenizers Digits and Punctuation look for. */
oct_char_set oct_char_set_of_digits(void);
oct_char_set oct_char_set_of_punctuation(void);

/* Appends the set as the inside of a class, `\x{41}-\x{5a}...`, without regard to `complement`. */
void oct_char_set_put(const oct_char_set *set, oct_strbuf *to);

/* Of a set of general categories, the part that Unicode 14 hadn't yet, likewise. */
void oct_char_set_put_recent(const oct_char_set *set, oct_strbuf *to);
/* The name by which \p{...} of any regular expression library knows the set, where it is one
 * general category or major class to which later versions of Unicode only add; else NULL. */
const char *oct_char_set_stable_name(const oct_char_set *set);

/* \w and \s of the Rust library, which looks at the neighbours of added tokens. */
bool oct_char_is_word(uint32_t c);
bool oct_char_is_space(uint32_t c);
/* Whether the reference library's NFC, whose Unicode is older than its patterns', takes the
 * character for one that is neither reordered nor decomposed, which today's Unicode doesn't. */
bool oct_char_is_unnormalized(uint32_t c);

#endif
