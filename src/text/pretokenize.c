/* Text to words: see pretokenize.h. */
#include "text/pretokenize.h"

#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

#include "base/alloc.h"
#include "base/strbuf.h"
#include "base/utf8.h"
#include "text/bpe.h"
#include "text/unicode.h"

#define MAX_PATTERN_BYTES 65536
#define PIECE_BYTES ((size_t)1 << 20) /* normalised at a time */

/* What follows is data of the formats, as in the published tokenizers. */
const char *const oct_gpt2_pattern =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const char *const oct_llama3_pattern =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

/* ---- the object ---- */

static oct_status add_stage(oct_pretokenizer *p, oct_pretokenizer_stage stage, const char *place,
                            oct_error *err) {
    if (p->n_stages == OCT_MAX_STAGES)
        return oct_fail(err, OCT_INVALID, "%s: too many steps; expected at most %d", place,
                        OCT_MAX_STAGES);
    p->stages[p->n_stages++] = stage;
    return OCT_OK;
}

oct_status oct_pretokenizer_add_split(oct_pretokenizer *p, const char *pattern, size_t n_bytes,
                                      oct_pattern_kind kind, oct_split split, const char *place,
                                      oct_error *err) {
    oct_regex *regex = NULL;
    if (n_bytes == 0 || n_bytes > MAX_PATTERN_BYTES)
        return oct_fail(err, OCT_INVALID,
                        "%s: wrong length of a pattern; expected 1 to %d bytes; got %zu", place,
                        MAX_PATTERN_BYTES, n_bytes);
    oct_status status = oct_regex_compile(pattern, n_bytes, kind, place, &regex, err);
    if (!status)
        status = add_stage(p, (oct_pretokenizer_stage){OCT_STAGE_SPLIT, regex, split, .mark = ""},
                           place, err);
    if (status)
        oct_regex_free(regex);
    return status;
}

oct_status oct_pretokenizer_add_step(oct_pretokenizer *p, oct_stage_kind kind, const char *place,
                                     oct_error *err) {
    return add_stage(p, (oct_pretokenizer_stage){.kind = kind}, place, err);
}

oct_status oct_pretokenizer_add_mark(oct_pretokenizer *p, const char *mark, oct_mark_before before,
                                     const char *place, oct_error *err) {
    oct_pretokenizer_stage stage = {.kind = OCT_STAGE_MARK, .mark_before = before};
    snprintf(stage.mark, sizeof stage.mark, "%s", mark);
    return add_stage(p, stage, place, err);
}

void oct_pretokenizer_free(oct_pretokenizer *p) {
    for (int i = 0; i < p->n_stages; i++)
        oct_regex_free(p->stages[i].regex);
    *p = (oct_pretokenizer){0};
}

void oct_pretokenizer_scratch_free(oct_pretokenizer_scratch *s) {
    for (int i = 0; i < OCT_MAX_STAGES; i++) {
        oct_regex_scratch_free(&s->searches[i]);
        oct_strbuf_free(&s->changed[i]);
    }
    oct_strbuf_free(&s->unspelt);
    oct_free(s->window);
    oct_free(s->code_points);
    *s = (oct_pretokenizer_scratch){0};
}

/* ---- splitting ---- */

typedef struct splitter {
    const oct_pretokenizer *p;
    oct_pretokenizer_scratch *scratch;
    oct_word_sink sink;
    void *user;
    bool continued; /* bytes that aren't UTF-8 came before: no space belongs there */
    bool spelt;     /* pieces are spelt now */
    bool at_start;  /* the piece at hand begins a whole text */
    oct_error *err;
} splitter;

static oct_status split(splitter *r, int stage, const char *text, size_t start, size_t end,
                        oct_text_end ends, size_t *stop);

static oct_status pass_on(splitter *r, int stage, const char *piece, size_t n_bytes) {
    size_t stop;
    return n_bytes ? split(r, stage, piece, 0, n_bytes, OCT_TEXT_ENDS, &stop) : OCT_OK;
}

/* The same for text[from..to) of the piece at hand. */
static oct_status pass_on_part(splitter *r, int stage, const char *text, size_t from, size_t to) {
    bool at_start = r->at_start;
    r->at_start = at_start && from == 0;
    oct_status status = pass_on(r, stage, text + from, to - from);
    r->at_start = at_start;
    return status;
}

/* Joins matches and gaps, which come in order, to pieces. */
typedef struct joiner {
    splitter *r;
    int next_stage;
    oct_split rule;
    const char *text;
    bool waiting;      /* the piece from .. to may still grow */
    bool last_matched; /* what came last was a match */
    size_t from, to;
} joiner;

static oct_status pass_on_waiting(joiner *j) {
    bool waiting = j->waiting;
    j->waiting = false;
    return waiting ? pass_on_part(j->r, j->next_stage, j->text, j->from, j->to) : OCT_OK;
}

/* Whether the range joins the piece that waits. */
static bool joins(const joiner *j, bool match) {
    switch (j->rule.behavior) {
    case OCT_SPLIT_CONTIGUOUS:
        return j->waiting && match == j->last_matched;
    case OCT_SPLIT_MERGED_WITH_PREVIOUS:
        return j->waiting && match && !j->last_matched;
    case OCT_SPLIT_MERGED_WITH_NEXT:
        return j->waiting && !match && j->last_matched;
    default:
        return false;
    }
}

static oct_status join(joiner *j, size_t from, size_t to, bool found) {
    bool match = found != j->rule.invert;
    if (j->rule.behavior == OCT_SPLIT_ISOLATED)
        return pass_on_part(j->r, j->next_stage, j->text, from, to);
    if (j->rule.behavior == OCT_SPLIT_REMOVED)
        return match ? OCT_OK : pass_on_part(j->r, j->next_stage, j->text, from, to);
    oct_status status = OCT_OK;
    if (joins(j, match)) {
        j->to = to;
    } else {
        status = pass_on_waiting(j);
        j->waiting = true;
        j->from = from;
        j->to = to;
    }
    j->last_matched = match;
    return status;
}

static size_t char_length(const char *text, size_t at, size_t end) {
    size_t n = at < end ? oct_utf8_length(text + at, end - at) : 0;
    return n ? n : 1;
}

/* Cuts text[start..end) at the matches of a stage. */
static oct_status split_at_matches(splitter *r, int stage, const char *text, size_t start,
                                   size_t end, oct_text_end ends, size_t *stop) {
    const oct_regex *regex = r->p->stages[stage].regex;
    joiner j = {.r = r, .next_stage = stage + 1, .rule = r->p->stages[stage].split, .text = text};
    size_t from = start, done = start, last_end = SIZE_MAX;
    bool finds_empty = !oct_regex_streams(regex); /* at the very end too */
    oct_status status = OCT_OK;
    *stop = start;
    while ((from < end || (from == end && finds_empty)) && !status) {
        oct_regex_result result;
        oct_regex_match m;
        status = oct_regex_search(regex, &r->scratch->searches[stage], text, end, from, ends,
                                  &result, &m, r->err);
        if (status || result == OCT_REGEX_MORE)
            return status;
        if (result == OCT_REGEX_NOT_FOUND)
            break;
        if (m.start == m.end && m.end == last_end) { /* an empty match just behind another */
            from += char_length(text, from, end);
            continue;
        }
        if (m.start > done)
            status = join(&j, done, m.start, false);
        if (!status)
            status = join(&j, m.start, m.end, true);
        from = done = last_end = *stop = m.end;
    }
    if (!status && done < end)
        status = join(&j, done, end, false);
    if (!status)
        status = pass_on_waiting(&j);
    *stop = end;
    return status;
}

static oct_status put_space(splitter *r, int stage, const char *piece, size_t n_bytes) {
    oct_strbuf *spaced = &r->scratch->changed[stage];
    if (piece[0] == ' ' || (stage == 0 && r->continued))
        return pass_on(r, stage + 1, piece, n_bytes);
    spaced->length = 0;
    oct_strbuf_append(spaced, " ", 1);
    oct_strbuf_append(spaced, piece, n_bytes);
    return spaced->failed ? OCT_NO_MEMORY : pass_on(r, stage + 1, spaced->text, spaced->length);
}

static oct_status spell(splitter *r, int stage, const char *piece, size_t n_bytes) {
    oct_strbuf *spelt = &r->scratch->changed[stage];
    spelt->length = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        char c[4];
        utf8proc_ssize_t n = utf8proc_encode_char(
            (utf8proc_int32_t)oct_bpe_char_of_byte((uint8_t)piece[i]), (uint8_t *)c);
        oct_strbuf_append(spelt, c, (size_t)n);
    }
    if (spelt->failed)
        return OCT_NO_MEMORY;
    r->spelt = true;
    oct_status status = pass_on(r, stage + 1, spelt->text, spelt->length);
    r->spelt = false;
    return status;
}

static bool takes_mark(const splitter *r, int stage, const char *piece, size_t n_bytes) {
    const oct_pretokenizer_stage *rule = &r->p->stages[stage];
    size_t n_mark = strlen(rule->mark);
    if (piece[0] == ' ' || (n_bytes >= n_mark && memcmp(piece, rule->mark, n_mark) == 0))
        return false; /* there is one */
    return rule->mark_before == OCT_MARK_BEFORE_ALL
               ? !(stage == 0 && r->continued)
               : rule->mark_before == OCT_MARK_BEFORE_FIRST && r->at_start && !r->continued;
}

static oct_status put_marks(splitter *r, int stage, const char *piece, size_t n_bytes) {
    oct_strbuf *marked = &r->scratch->changed[stage];
    const char *mark = r->p->stages[stage].mark, *end = piece + n_bytes;
    marked->length = 0;
    if (takes_mark(r, stage, piece, n_bytes))
        oct_strbuf_puts(marked, mark);
    for (const char *space; (space = memchr(piece, ' ', (size_t)(end - piece)));
         piece = space + 1) {
        oct_strbuf_append(marked, piece, (size_t)(space - piece));
        oct_strbuf_puts(marked, mark);
    }
    oct_strbuf_append(marked, piece, (size_t)(end - piece));
    return marked->failed ? OCT_NO_MEMORY : pass_on(r, stage + 1, marked->text, marked->length);
}

static oct_status hand_over(splitter *r, const char *word, size_t n_bytes) {
    oct_strbuf *bytes = &r->scratch->unspelt;
    if (!r->spelt)
        return r->sink(r->user, word, n_bytes, r->err);
    bytes->length = 0;
    oct_strbuf_append(bytes, word, n_bytes); /* room: bytes are fewer than their spelling has */
    if (bytes->failed)
        return OCT_NO_MEMORY;
    int64_t n = oct_bpe_unspell(word, n_bytes, bytes->text);
    return r->sink(r->user, bytes->text, n > 0 ? (size_t)n : 0, r->err);
}

/* Splits text[start..end) from stage on; what lies before start may be looked back at. Where the
 * text goes on, which only a stage that streams is told, *stop tells how far pieces are certain;
 * else it's `end`. */
static oct_status split(splitter *r, int stage, const char *text, size_t start, size_t end,
                        oct_text_end ends, size_t *stop) {
    *stop = end;
    if (stage == r->p->n_stages)
        return hand_over(r, text + start, end - start);
    if (r->p->stages[stage].kind == OCT_STAGE_SPACE)
        return put_space(r, stage, text + start, end - start);
    if (r->p->stages[stage].kind == OCT_STAGE_SPELL)
        return spell(r, stage, text + start, end - start);
    if (r->p->stages[stage].kind == OCT_STAGE_MARK)
        return put_marks(r, stage, text + start, end - start);
    return split_at_matches(r, stage, text, start, end, ends, stop);
}

/* Whether pieces of the first stage are certain before the end of the text is seen. */
static bool streams(const oct_pretokenizer *p) {
    const oct_pretokenizer_stage *first = &p->stages[0];
    return p->n_stages && first->regex && oct_regex_streams(first->regex) &&
           (first->split.behavior == OCT_SPLIT_ISOLATED ||
            first->split.behavior == OCT_SPLIT_REMOVED);
}

/* ---- windows ---- */

static bool continues_character(char c) {
    return ((uint8_t)c & 0xC0) == 0x80;
}

/* The text is matched where it lies. */
static oct_status split_in_place(splitter *r, const char *text, size_t n_bytes) {
    for (size_t at = 0; at < n_bytes;) {
        size_t end = n_bytes;
        if (streams(r->p) && n_bytes - at > OCT_STRETCH_BYTES) {
            end = at + OCT_STRETCH_BYTES;
            while (continues_character(text[end]))
                end--;
        }
        size_t stop;
        oct_status status =
            split(r, 0, text, at, end, end == n_bytes ? OCT_TEXT_ENDS : OCT_TEXT_GOES_ON, &stop);
        if (!status && stop == at)
            status = split(r, 0, text, at, end, OCT_TEXT_ENDS, &stop);
        if (status)
            return status;
        at = stop;
    }
    return OCT_OK;
}

/* The end of the next piece to normalise: before an ASCII character, which never joins with what
 * precedes it. */
static size_t piece_end(const char *text, size_t at, size_t n_bytes) {
    if (n_bytes - at <= PIECE_BYTES)
        return n_bytes;
    size_t end = at + PIECE_BYTES;
    while (end > at && (text[end] & 0x80))
        end--;
    if (end > at)
        return end;
    end = at + PIECE_BYTES;
    while (end < n_bytes && end - at < OCT_STRETCH_BYTES && (text[end] & 0x80))
        end++;
    while (end < n_bytes && continues_character(text[end]))
        end--;
    return end;
}

static oct_status reserve_window(oct_pretokenizer_scratch *s, size_t n_bytes) {
    if (n_bytes <= s->window_capacity)
        return OCT_OK;
    size_t capacity = 2 * n_bytes;
    char *grown = oct_realloc_array(s->window, capacity, 1);
    if (!grown)
        return OCT_NO_MEMORY;
    s->window = grown;
    s->window_capacity = capacity;
    return OCT_OK;
}

/* Appends a piece's form C to the window. */
static oct_status append_composed(oct_pretokenizer_scratch *s, size_t *used, const char *piece,
                                  size_t n_bytes) {
    const utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    const uint8_t *bytes = (const uint8_t *)piece;
    utf8proc_ssize_t room = (utf8proc_ssize_t)s->code_point_capacity - 1;
    utf8proc_ssize_t n = utf8proc_decompose(bytes, (utf8proc_ssize_t)n_bytes, s->code_points,
                                            room > 0 ? room : 0, options);
    if (n < 0)
        return OCT_INVALID;
    if (n > room) { /* one more for the NUL that reencoding adds */
        int32_t *grown = oct_realloc_array(s->code_points, (size_t)n + 1, sizeof *grown);
        if (!grown)
            return OCT_NO_MEMORY;
        s->code_points = grown;
        s->code_point_capacity = (size_t)n + 1;
        n = utf8proc_decompose(bytes, (utf8proc_ssize_t)n_bytes, s->code_points, n, options);
    }
    n = utf8proc_reencode(s->code_points, n, options);
    if (n < 0)
        return OCT_INVALID;
    oct_status status = reserve_window(s, *used + (size_t)n);
    if (status)
        return status;
    memcpy(s->window + *used, s->code_points, (size_t)n);
    *used += (size_t)n;
    return OCT_OK;
}

/* The length of the valid UTF-8 before the first character that stays as it is; *n_after its own.
 */
static size_t length_to_compose(const char *text, size_t n_bytes, size_t *n_after) {
    *n_after = 0;
    for (size_t at = 0; at < n_bytes;) {
        utf8proc_int32_t c = 0;
        size_t length = char_length(text, at, n_bytes);
        if (length > 1)
            utf8proc_iterate((const uint8_t *)text + at, (utf8proc_ssize_t)length, &c);
        if (oct_char_is_unnormalized((uint32_t)c)) {
            *n_after = length;
            return at;
        }
        at += length;
    }
    return n_bytes;
}

/* Appends a piece as normalising makes it: a character that stays as it is joins with none, so what
 * lies on either side of it is composed apart. */
static oct_status append_normalised(oct_pretokenizer_scratch *s, size_t *used, const char *piece,
                                    size_t n_bytes) {
    oct_status status = OCT_OK;
    for (size_t at = 0; at < n_bytes && !status;) {
        size_t n_after, n = length_to_compose(piece + at, n_bytes - at, &n_after);
        if (n)
            status = append_composed(s, used, piece + at, n);
        at += n;
        if (status || !n_after)
            continue;
        status = reserve_window(s, *used + n_after);
        if (status)
            break;
        memcpy(s->window + *used, piece + at, n_after);
        *used += n_after;
        at += n_after;
    }
    return status;
}

/* Drops what is split already, but for what a pattern may look back at. */
static void slide_window(const splitter *r, size_t *at, size_t *used) {
    char *window = r->scratch->window;
    size_t keep = oct_regex_lookbehind_bytes(r->p->stages[0].regex);
    if (*at <= keep)
        return;
    size_t from = *at - keep;
    while (from < *at && continues_character(window[from]))
        from++;
    memmove(window, window + from, *used - from);
    *at -= from;
    *used -= from;
}

/* Normalised pieces are put into a window one after the other and matched there. */
static oct_status split_streamed(splitter *r, const char *text, size_t n_bytes) {
    oct_pretokenizer_scratch *s = r->scratch;
    size_t used = 0, at = 0;
    oct_status status = OCT_OK;
    for (size_t next = 0; next < n_bytes && !status;) {
        size_t end = piece_end(text, next, n_bytes);
        status = append_normalised(s, &used, text + next, end - next);
        next = end;
        if (status)
            break;
        oct_text_end ends = next == n_bytes ? OCT_TEXT_ENDS : OCT_TEXT_GOES_ON;
        size_t stop;
        status = split(r, 0, s->window, at, used, ends, &stop);
        if (!status && stop == at && used - at >= OCT_STRETCH_BYTES)
            status = split(r, 0, s->window, at, used, OCT_TEXT_ENDS, &stop);
        at = stop;
        r->at_start = r->at_start && at == 0;
        slide_window(r, &at, &used);
    }
    return status;
}

static oct_status normalise_whole(oct_pretokenizer_scratch *s, const char *text, size_t n_bytes,
                                  size_t *used) {
    oct_status status = OCT_OK;
    *used = 0;
    for (size_t next = 0; next < n_bytes && !status;) {
        size_t end = piece_end(text, next, n_bytes);
        status = append_normalised(s, used, text + next, end - next);
        next = end;
    }
    return status;
}

static oct_status split_whole(splitter *r, const char *text, size_t n_bytes) {
    size_t used, stop;
    oct_status status = normalise_whole(r->scratch, text, n_bytes, &used);
    return status ? status : split(r, 0, r->scratch->window, 0, used, OCT_TEXT_ENDS, &stop);
}

/* The length of the valid UTF-8 at the start of text, and whether it's all ASCII. */
static size_t valid_prefix(const char *text, size_t n_bytes, bool *ascii) {
    size_t at = 0;
    *ascii = true;
    while (at < n_bytes) {
        uint64_t eight;
        while (n_bytes - at >= 8) {
            memcpy(&eight, text + at, 8);
            if (eight & 0x8080808080808080u)
                break;
            at += 8;
        }
        size_t length = oct_utf8_length(text + at, n_bytes - at);
        if (length == 0)
            break;
        if (length > 1)
            *ascii = false;
        at += length;
    }
    return at;
}

oct_status oct_pretokenizer_normalize(const oct_pretokenizer *p, oct_pretokenizer_scratch *scratch,
                                      const char *text, size_t n_bytes, oct_strbuf *to) {
    oct_status status = OCT_OK;
    for (size_t at = 0; at < n_bytes && !status;) {
        bool ascii;
        size_t n = valid_prefix(text + at, n_bytes - at, &ascii), used;
        if (ascii || !p->nfc) {
            oct_strbuf_append(to, text + at, n);
        } else {
            status = normalise_whole(scratch, text + at, n, &used);
            oct_strbuf_append(to, scratch->window, status ? 0 : used);
        }
        at += n;
        if (at < n_bytes && oct_utf8_length(text + at, n_bytes - at) == 0)
            oct_strbuf_append(to, text + at++, 1);
    }
    return !status && to->failed ? OCT_NO_MEMORY : status;
}

oct_status oct_pretokenize(const oct_pretokenizer *p, oct_pretokenizer_scratch *scratch,
                           const char *text, size_t n_bytes, bool is_first, oct_word_sink sink,
                           void *user, oct_error *err) {
    splitter r = {
        .p = p, .scratch = scratch, .sink = sink, .user = user, .at_start = is_first, .err = err};
    oct_status status = OCT_OK;
    for (size_t at = 0; at < n_bytes && !status;) {
        bool ascii;
        size_t n = valid_prefix(text + at, n_bytes - at, &ascii);
        if (n && (ascii || !p->nfc))
            status = split_in_place(&r, text + at, n);
        else if (n)
            status = streams(p) ? split_streamed(&r, text + at, n) : split_whole(&r, text + at, n);
        at += n;
        if (!status && at < n_bytes && oct_utf8_length(text + at, n_bytes - at) == 0)
            status = sink(user, text + at++, 1, err);
        r.continued = true;
    }
    return status == OCT_NO_MEMORY ? oct_fail_memory(err) : status;
}
