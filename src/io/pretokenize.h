/* Text to words: validation of UTF-8, normalising, splitting by regular expressions.
 *
 * A byte that isn't part of valid UTF-8 is a word of its own and the text on either side of it is
 * split as if alone. Splits run one after the other, each on the pieces of the one before.
 *
 * Invariant: words come out in order and, but for normalising, the leading space and gaps that the
 * rule drops, their bytes are the text's. Words don't depend on how a text lies in memory: the
 * matcher says when it has seen the end of what is there, and then waits for more. Only a stretch
 * of OCT_STRETCH_BYTES in which the first split finds no end of a piece is cut. */
#ifndef OCT_IO_PRETOKENIZE_H
#define OCT_IO_PRETOKENIZE_H

#include <octet/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OCT_STRETCH_BYTES ((size_t)16 << 20)
#define OCT_MAX_SPLITS 8

extern const char *const oct_gpt2_pattern;
extern const char *const oct_llama3_pattern;

typedef enum oct_pattern_kind { OCT_PATTERN_REGEX, OCT_PATTERN_LITERAL } oct_pattern_kind;
typedef enum oct_gap_rule {
    OCT_GAPS_KEPT,   /* what lies between matches is a piece too */
    OCT_GAPS_DROPPED /* only matches are pieces */
} oct_gap_rule;

typedef struct oct_split {
    struct pcre2_real_code_8 *code;
    size_t lookbehind_bytes; /* what it may look at before the start of a match */
    oct_gap_rule gaps;
} oct_split;

typedef struct oct_pretokenizer {
    oct_split splits[OCT_MAX_SPLITS];
    int n_splits;
    bool nfc;           /* normalise to form C first */
    bool leading_space; /* put a space before a text that doesn't begin with one */
} oct_pretokenizer;

void oct_pretokenizer_free(oct_pretokenizer *pretokenizer);

/* `pattern` in Oniguruma's or Rust's dialect, as in tokenizer.json, as far as PCRE2 shares it;
 * `place` names it in errors (OCT_INVALID). */
oct_status oct_pretokenizer_add_split(oct_pretokenizer *pretokenizer, const char *pattern,
                                      size_t n_bytes, oct_pattern_kind kind, oct_gap_rule gaps,
                                      const char *place, oct_error *err);

/* Memory of one thread: zero-initialised, filled at need. */
typedef struct oct_pretokenizer_scratch {
    struct pcre2_real_match_data_8 *matches[OCT_MAX_SPLITS];
    struct pcre2_real_match_context_8 *context;
    struct pcre2_real_jit_stack_8 *stack;
    char *window;
    int32_t *code_points;
    size_t window_capacity, code_point_capacity;
} oct_pretokenizer_scratch;
void oct_pretokenizer_scratch_free(oct_pretokenizer_scratch *scratch);

typedef oct_status (*oct_word_sink)(void *user, const char *word, size_t n_bytes, oct_error *err);

/* Hands the words of `text` to `sink`. OCT_INVALID when a pattern needs more steps or stack than
 * allowed; else what the sink returns. */
oct_status oct_pretokenize(const oct_pretokenizer *pretokenizer, oct_pretokenizer_scratch *scratch,
                           const char *text, size_t n_bytes, oct_word_sink sink, void *user,
                           oct_error *err);

#endif
