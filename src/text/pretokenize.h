/* Text to words: validation of UTF-8, normalising, splitting by regular expressions.
 *
 * A byte that isn't part of valid UTF-8 is a word of its own and the text on either side of it is
 * split as if alone. Stages run one after the other, each on the pieces of the one before.
 *
 * Invariant: words come out in order and, but for normalising, the leading space and gaps that the
 * rule drops, their bytes are the text's. Words don't depend on how a text lies in memory: where
 * the first stage's matcher can say that it has seen the end of what is there, it then waits for
 * more, and memory doesn't grow with the text; else the text is normalised as a whole. Only a
 * stretch of OCT_STRETCH_BYTES in which a first stage of the former kind finds no end of a piece is
 * cut. */
#ifndef OCT_TEXT_PRETOKENIZE_H
#define OCT_TEXT_PRETOKENIZE_H

#include <octet/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"
#include "text/regex.h"

#define OCT_STRETCH_BYTES ((size_t)16 << 20)
#define OCT_MAX_STAGES 16

extern const char *const oct_gpt2_pattern;
extern const char *const oct_llama3_pattern;

/* What becomes of the matches of a pattern and of what lies between them (the gaps). */
typedef enum oct_split_behavior {
    OCT_SPLIT_ISOLATED,             /* each is a piece */
    OCT_SPLIT_REMOVED,              /* the gaps are pieces, the matches are dropped */
    OCT_SPLIT_MERGED_WITH_PREVIOUS, /* a match belongs to the gap before it */
    OCT_SPLIT_MERGED_WITH_NEXT,     /* ... after it */
    OCT_SPLIT_CONTIGUOUS            /* matches in a row are one piece */
} oct_split_behavior;

/* A rule by which text is cut: a pattern, and whether matches and gaps change places. */
typedef struct oct_split {
    oct_split_behavior behavior;
    bool invert;
} oct_split;

/* A step of a pre-tokenizer. */
typedef enum oct_stage_kind {
    OCT_STAGE_SPLIT,
    OCT_STAGE_SPACE, /* a space is put before a piece that doesn't begin with one */
    OCT_STAGE_SPELL, /* later steps see a piece's bytes spelt as in a vocabulary (bpe.h) */
    OCT_STAGE_MARK   /* spaces become a mark, which may be put before a piece as well */
} oct_stage_kind;

/* Which pieces a mark is put before: where none stands yet. */
typedef enum oct_mark_before {
    OCT_MARK_BEFORE_ALL,
    OCT_MARK_BEFORE_FIRST, /* the piece that a whole text begins with */
    OCT_MARK_BEFORE_NONE
} oct_mark_before;

#define OCT_MARK_BYTES 5 /* a character of UTF-8 and its NUL */

typedef struct oct_pretokenizer_stage {
    oct_stage_kind kind;
    oct_regex *regex; /* of a split */
    oct_split split;
    char mark[OCT_MARK_BYTES]; /* of OCT_STAGE_MARK */
    oct_mark_before mark_before;
} oct_pretokenizer_stage;

typedef struct oct_pretokenizer {
    oct_pretokenizer_stage stages[OCT_MAX_STAGES];
    int n_stages;
    bool nfc; /* normalise to form C first */
} oct_pretokenizer;

void oct_pretokenizer_free(oct_pretokenizer *pretokenizer);

/* Adds a step that cuts at the matches of `pattern` (regex.h); `place` names it in errors
 * (OCT_INVALID). */
oct_status oct_pretokenizer_add_split(oct_pretokenizer *pretokenizer, const char *pattern,
                                      size_t n_bytes, oct_pattern_kind kind, oct_split split,
                                      const char *place, oct_error *err);
/* Adds a step of another kind; spelling is added at most once. */
oct_status oct_pretokenizer_add_step(oct_pretokenizer *pretokenizer, oct_stage_kind kind,
                                     const char *place, oct_error *err);
/* Adds OCT_STAGE_MARK, of one character. */
oct_status oct_pretokenizer_add_mark(oct_pretokenizer *pretokenizer, const char *mark,
                                     oct_mark_before before, const char *place, oct_error *err);

/* Memory of one thread: zero-initialised, filled at need. */
typedef struct oct_pretokenizer_scratch {
    oct_regex_scratch searches[OCT_MAX_STAGES];
    oct_strbuf changed[OCT_MAX_STAGES]; /* a piece as its stage makes it */
    oct_strbuf unspelt;                 /* a word's bytes again */
    char *window;
    int32_t *code_points;
    size_t window_capacity, code_point_capacity;
} oct_pretokenizer_scratch;
void oct_pretokenizer_scratch_free(oct_pretokenizer_scratch *scratch);

/* Appends the text as it is after normalising; bytes that aren't UTF-8 are left as they are. */
oct_status oct_pretokenizer_normalize(const oct_pretokenizer *pretokenizer,
                                      oct_pretokenizer_scratch *scratch, const char *text,
                                      size_t n_bytes, oct_strbuf *to);

typedef oct_status (*oct_word_sink)(void *user, const char *word, size_t n_bytes, oct_error *err);

/* Hands the words of `text`, with which a whole one may begin, to `sink`. OCT_INVALID when a
 * pattern needs more steps or stack than allowed; else what the sink returns. */
oct_status oct_pretokenize(const oct_pretokenizer *pretokenizer, oct_pretokenizer_scratch *scratch,
                           const char *text, size_t n_bytes, bool is_first, oct_word_sink sink,
                           void *user, oct_error *err);

#endif
