/* Regular expressions of tokenizer.json files, which mean what they mean to the reference library:
 * Oniguruma's syntax, \p{...} and its like in the Unicode version of unicode.h. Two engines: where
 * a pattern provably means the same to PCRE2 it runs there, compiled to machine code and on texts
 * that come in parts; all others run in Oniguruma.
 *
 * A compiled expression doesn't change: several threads may use it, each with a scratch of its own.
 */
#ifndef OCT_TEXT_REGEX_H
#define OCT_TEXT_REGEX_H

#include <octet/status.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct oct_regex oct_regex;

typedef enum oct_pattern_kind { OCT_PATTERN_REGEX, OCT_PATTERN_LITERAL } oct_pattern_kind;

/* `place` names the pattern in errors: OCT_INVALID when it can't be compiled, or names a property
 * that isn't known here. */
oct_status oct_regex_compile(const char *pattern, size_t n_bytes, oct_pattern_kind kind,
                             const char *place, oct_regex **regex, oct_error *err);
void oct_regex_free(oct_regex *regex); /* NULL is fine */

/* Whether it takes texts that go on beyond what is in memory; then how many bytes before the start
 * of a match it may look at. */
bool oct_regex_streams(const oct_regex *regex);
size_t oct_regex_lookbehind_bytes(const oct_regex *regex);

/* Memory of one thread: zero-initialised, filled at need. */
typedef struct oct_regex_scratch {
    struct pcre2_real_match_data_8 *match;
    struct pcre2_real_match_context_8 *context;
    struct pcre2_real_jit_stack_8 *stack;
    struct re_registers *region;
} oct_regex_scratch;
void oct_regex_scratch_free(oct_regex_scratch *scratch);

/* Whether the end of what is in memory is the end of the text. */
typedef enum oct_text_end { OCT_TEXT_ENDS, OCT_TEXT_GOES_ON } oct_text_end;

typedef enum oct_regex_result {
    OCT_REGEX_FOUND,
    OCT_REGEX_NOT_FOUND, /* no match from there on */
    OCT_REGEX_MORE       /* that depends on how the text goes on */
} oct_regex_result;

typedef struct oct_regex_match {
    size_t start, end; /* of the text; an empty match is one between two characters */
} oct_regex_match;

/* The first match at or after `from` in the n_bytes of valid UTF-8 at `text`; what lies before
 * `from` may be looked back at. OCT_INVALID when it takes more steps or stack than allowed. */
oct_status oct_regex_search(const oct_regex *regex, oct_regex_scratch *scratch, const char *text,
                            size_t n_bytes, size_t from, oct_text_end ends,
                            oct_regex_result *result, oct_regex_match *match, oct_error *err);

#endif
