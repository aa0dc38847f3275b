/* Text to words: see pretokenize.h. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "io/pretokenize.h"

#include <pcre2.h>
#include <string.h>
#include <utf8proc.h>

#include "base/alloc.h"
#include "base/strbuf.h"
#include "base/utf8.h"

#define MAX_PATTERN_BYTES 65536
#define MATCH_LIMIT 200000000u /* steps; a stretch of spaces is walked back once, so > 16 Mi */
#define JIT_STACK_BYTES (1u << 20)
#define PIECE_BYTES ((size_t)1 << 20) /* normalised at a time */

/* What follows is data of the formats, as in the published tokenizers. */
const char *const oct_gpt2_pattern =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const char *const oct_llama3_pattern =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

/* Unicode's White_Space. PCRE2's own \s has U+180E too, which left that property in Unicode 6.3. */
#define SPACES                                                                                     \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"    \
    "\\x{205f}\\x{3000}"
#define NOT_SPACES                                                                                 \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-"         \
    "\\x{1fff}\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}"        \
    "\\x{3001}-\\x{10ffff}"

/* ---- patterns ---- */

static void *pcre_malloc(size_t n_bytes, void *user) {
    (void)user;
    return oct_malloc(n_bytes);
}

static void pcre_free(void *block, void *user) {
    (void)user;
    oct_free(block);
}

/* Writes every \s and \S as explicit ranges. */
static void translate(const char *pattern, size_t n, oct_strbuf *out) {
    bool in_class = false;
    for (size_t i = 0; i < n; i++) {
        char c = pattern[i];
        if (c == '\\' && i + 1 < n) {
            char next = pattern[++i];
            if (next == 's' || next == 'S')
                oct_strbuf_printf(out, in_class ? "%s" : "[%s]", next == 's' ? SPACES : NOT_SPACES);
            else
                oct_strbuf_append(out, pattern + i - 1, 2);
            continue;
        }
        oct_strbuf_append(out, &c, 1);
        if (c == '[' && !in_class) {
            in_class = true;
            if (i + 1 < n && pattern[i + 1] == '^')
                oct_strbuf_append(out, &pattern[++i], 1);
            if (i + 1 < n && pattern[i + 1] == ']') /* a first ] is itself */
                oct_strbuf_append(out, &pattern[++i], 1);
        } else if (c == ']') {
            in_class = false;
        }
    }
}

static oct_status compile(const oct_strbuf *pattern, oct_pattern_kind kind, pcre2_code **code,
                          const char *place, oct_error *err) {
    pcre2_general_context *memory = pcre2_general_context_create(pcre_malloc, pcre_free, NULL);
    pcre2_compile_context *context = memory ? pcre2_compile_context_create(memory) : NULL;
    oct_status status = OCT_OK;
    *code = NULL;
    if (!context) {
        status = oct_fail_memory(err);
        goto cleanup;
    }
    uint32_t options =
        PCRE2_UTF |
        (kind == OCT_PATTERN_LITERAL ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C);
    int number;
    PCRE2_SIZE at;
    *code = pcre2_compile((PCRE2_SPTR)(pattern->text ? pattern->text : ""), pattern->length,
                          options, &number, &at, context);
    if (!*code && number == PCRE2_ERROR_HEAP_FAILED) {
        status = oct_fail_memory(err);
        goto cleanup;
    }
    if (!*code) {
        PCRE2_UCHAR reason[256];
        pcre2_get_error_message(number, reason, sizeof reason);
        status = oct_fail(err, OCT_INVALID, "%s: not a usable regular expression: %s", place,
                          (const char *)reason);
        goto cleanup;
    }
    /* Without a JIT compiler for this machine the interpreter gives the same matches. */
    pcre2_jit_compile(*code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
cleanup:
    pcre2_compile_context_free(context);
    pcre2_general_context_free(memory);
    return status;
}

oct_status oct_pretokenizer_add_split(oct_pretokenizer *p, const char *pattern, size_t n_bytes,
                                      oct_pattern_kind kind, oct_gap_rule gaps, const char *place,
                                      oct_error *err) {
    if (p->n_splits == OCT_MAX_SPLITS)
        return oct_fail(err, OCT_INVALID, "%s: too many splits; expected at most %d", place,
                        OCT_MAX_SPLITS);
    if (n_bytes == 0 || n_bytes > MAX_PATTERN_BYTES)
        return oct_fail(err, OCT_INVALID,
                        "%s: wrong length of a pattern; expected 1 to %d bytes; got %zu", place,
                        MAX_PATTERN_BYTES, n_bytes);
    oct_strbuf text = {0};
    if (kind == OCT_PATTERN_REGEX)
        translate(pattern, n_bytes, &text);
    else
        oct_strbuf_append(&text, pattern, n_bytes);
    pcre2_code *code = NULL;
    oct_status status =
        text.failed ? oct_fail_memory(err) : compile(&text, kind, &code, place, err);
    oct_strbuf_free(&text);
    if (status)
        return status;
    uint32_t lookbehind = 0;
    pcre2_pattern_info(code, PCRE2_INFO_MAXLOOKBEHIND, &lookbehind);
    p->splits[p->n_splits++] = (oct_split){code, 4 * (size_t)lookbehind, gaps};
    return OCT_OK;
}

void oct_pretokenizer_free(oct_pretokenizer *p) {
    for (int i = 0; i < p->n_splits; i++)
        pcre2_code_free(p->splits[i].code);
    *p = (oct_pretokenizer){0};
}

void oct_pretokenizer_scratch_free(oct_pretokenizer_scratch *s) {
    for (int i = 0; i < OCT_MAX_SPLITS; i++)
        pcre2_match_data_free(s->matches[i]);
    pcre2_match_context_free(s->context);
    pcre2_jit_stack_free(s->stack);
    oct_free(s->window);
    oct_free(s->code_points);
    *s = (oct_pretokenizer_scratch){0};
}

static oct_status prepare(const oct_pretokenizer *p, oct_pretokenizer_scratch *s) {
    if (s->context)
        return OCT_OK;
    oct_status status = OCT_NO_MEMORY;
    pcre2_general_context *memory = pcre2_general_context_create(pcre_malloc, pcre_free, NULL);
    if (!memory)
        return status;
    for (int i = 0; i < p->n_splits; i++) {
        if (!s->matches[i])
            s->matches[i] = pcre2_match_data_create(1, memory);
        if (!s->matches[i])
            goto cleanup;
    }
    if (!s->stack) /* NULL where there is no JIT: then none is needed */
        s->stack = pcre2_jit_stack_create(32768, JIT_STACK_BYTES, memory);
    s->context = pcre2_match_context_create(memory);
    if (!s->context)
        goto cleanup;
    pcre2_set_match_limit(s->context, MATCH_LIMIT);
    if (s->stack)
        pcre2_jit_stack_assign(s->context, NULL, s->stack);
    status = OCT_OK;
cleanup:
    pcre2_general_context_free(memory);
    return status;
}

/* ---- splitting ---- */

typedef struct splitter {
    const oct_pretokenizer *p;
    oct_pretokenizer_scratch *scratch;
    oct_word_sink sink;
    void *user;
    oct_error *err;
} splitter;

/* Whether the end of what is in memory is the end of the text. */
typedef enum text_end { TEXT_ENDS, TEXT_GOES_ON } text_end;

static oct_status match_failed(splitter *r, int code) {
    PCRE2_UCHAR reason[256];
    pcre2_get_error_message(code, reason, sizeof reason);
    return oct_fail(r->err, code == PCRE2_ERROR_NOMEMORY ? OCT_NO_MEMORY : OCT_INVALID,
                    "tokenizer: the text can't be split: %s", (const char *)reason);
}

static oct_status split(splitter *r, int stage, const char *text, size_t start, size_t end,
                        text_end ends, size_t *stop);

static oct_status pass_on(splitter *r, int stage, const char *piece, size_t n_bytes) {
    size_t stop;
    return n_bytes ? split(r, stage, piece, 0, n_bytes, TEXT_ENDS, &stop) : OCT_OK;
}

/* Splits text[start..end) from stage on; what lies before start may be looked back at. Where the
 * text goes on, *stop tells how far pieces are certain; else it's `end`. */
static oct_status split(splitter *r, int stage, const char *text, size_t start, size_t end,
                        text_end ends, size_t *stop) {
    *stop = start;
    if (stage == r->p->n_splits) {
        if (ends == TEXT_GOES_ON)
            return OCT_OK;
        *stop = end;
        return r->sink(r->user, text + start, end - start, r->err);
    }
    const oct_split *rule = &r->p->splits[stage];
    pcre2_match_data *match = r->scratch->matches[stage];
    uint32_t options =
        PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY | (ends == TEXT_GOES_ON ? PCRE2_PARTIAL_HARD : 0);
    while (*stop < end) {
        int code = pcre2_match(rule->code, (PCRE2_SPTR)text, end, *stop, options, match,
                               r->scratch->context);
        size_t from = end, to = end;
        if (code >= 0) {
            const PCRE2_SIZE *range = pcre2_get_ovector_pointer(match);
            from = range[0];
            to = range[1];
            if (from < *stop || to <= from) /* \K can move a match's start */
                return match_failed(r, PCRE2_ERROR_INTERNAL);
        } else if (code != PCRE2_ERROR_NOMATCH && code != PCRE2_ERROR_PARTIAL) {
            return match_failed(r, code);
        } else if (ends == TEXT_GOES_ON) {
            return OCT_OK;
        }
        oct_status status = OCT_OK;
        if (rule->gaps == OCT_GAPS_KEPT)
            status = pass_on(r, stage + 1, text + *stop, from - *stop);
        if (!status)
            status = pass_on(r, stage + 1, text + from, to - from);
        if (status)
            return status;
        *stop = to;
    }
    return OCT_OK;
}

/* ---- windows ---- */

static bool continues_character(char c) {
    return ((uint8_t)c & 0xC0) == 0x80;
}

/* The text is matched where it lies. */
static oct_status split_in_place(splitter *r, const char *text, size_t n_bytes) {
    for (size_t at = 0; at < n_bytes;) {
        size_t end = n_bytes;
        if (n_bytes - at > OCT_STRETCH_BYTES) {
            end = at + OCT_STRETCH_BYTES;
            while (continues_character(text[end]))
                end--;
        }
        size_t stop;
        oct_status status =
            split(r, 0, text, at, end, end == n_bytes ? TEXT_ENDS : TEXT_GOES_ON, &stop);
        if (!status && stop == at)
            status = split(r, 0, text, at, end, TEXT_ENDS, &stop);
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

/* Appends the piece's form C to the window. */
static oct_status append_normalised(oct_pretokenizer_scratch *s, size_t *used, const char *piece,
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

static oct_status append_plain(oct_pretokenizer_scratch *s, size_t *used, const char *piece,
                               size_t n_bytes) {
    oct_status status = reserve_window(s, *used + n_bytes);
    if (status)
        return status;
    memcpy(s->window + *used, piece, n_bytes);
    *used += n_bytes;
    return OCT_OK;
}

/* Drops what is split already, but for what a pattern may look back at. */
static void slide_window(const splitter *r, size_t *at, size_t *used) {
    char *window = r->scratch->window;
    size_t keep = r->p->n_splits ? r->p->splits[0].lookbehind_bytes : 0;
    if (*at <= keep)
        return;
    size_t from = *at - keep;
    while (from < *at && continues_character(window[from]))
        from++;
    memmove(window, window + from, *used - from);
    *at -= from;
    *used -= from;
}

/* The text is copied piece by piece into a window and matched there. */
static oct_status split_copied(splitter *r, const char *text, size_t n_bytes, bool lead) {
    oct_pretokenizer_scratch *s = r->scratch;
    size_t used = 0, at = 0;
    oct_status status = lead ? append_plain(s, &used, " ", 1) : OCT_OK;
    for (size_t next = 0; next < n_bytes && !status;) {
        size_t end = piece_end(text, next, n_bytes);
        status = r->p->nfc ? append_normalised(s, &used, text + next, end - next)
                           : append_plain(s, &used, text + next, end - next);
        next = end;
        if (status)
            break;
        text_end ends = next == n_bytes ? TEXT_ENDS : TEXT_GOES_ON;
        size_t stop;
        status = split(r, 0, s->window, at, used, ends, &stop);
        if (!status && stop == at && used - at >= OCT_STRETCH_BYTES)
            status = split(r, 0, s->window, at, used, TEXT_ENDS, &stop);
        at = stop;
        slide_window(r, &at, &used);
    }
    return status;
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

oct_status oct_pretokenize(const oct_pretokenizer *p, oct_pretokenizer_scratch *scratch,
                           const char *text, size_t n_bytes, oct_word_sink sink, void *user,
                           oct_error *err) {
    splitter r = {p, scratch, sink, user, err};
    oct_status status = prepare(p, scratch);
    bool lead = p->leading_space && n_bytes && text[0] != ' ';
    for (size_t at = 0; at < n_bytes && !status;) {
        bool ascii;
        size_t n = valid_prefix(text + at, n_bytes - at, &ascii);
        if (n && !lead && (ascii || !p->nfc))
            status = split_in_place(&r, text + at, n);
        else if (n)
            status = split_copied(&r, text + at, n, lead);
        lead = false;
        at += n;
        if (!status && at < n_bytes && oct_utf8_length(text + at, n_bytes - at) == 0)
            status = sink(user, text + at++, 1, err);
    }
    return status == OCT_NO_MEMORY ? oct_fail_memory(err) : status;
}
