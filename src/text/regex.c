/* Regular expressions: see regex.h. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include <limits.h>
#include <oniguruma.h>
#include <pcre2.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "text/regex_dialect.h"

#define MATCH_LIMIT 200000000u /* steps; a stretch of spaces is walked back once, so > 16 Mi */
#define JIT_STACK_BYTES (1u << 20)
/* The versions of Unicode between which unicode.h knows what is new. */
#define OLDEST_UNICODE 14
#define NEWEST_UNICODE 16

/* One of the two is there. */
struct oct_regex {
    pcre2_code *pcre2;
    size_t lookbehind_bytes;
    regex_t *oniguruma;
};

/* ---- compiling ---- */

static void *pcre_malloc(size_t n_bytes, void *user) {
    (void)user;
    return oct_malloc(n_bytes);
}

static void pcre_free(void *block, void *user) {
    (void)user;
    oct_free(block);
}

static oct_status compile_pcre2(const oct_strbuf *pattern, uint32_t options, const char *place,
                                pcre2_code **code, oct_error *err) {
    pcre2_general_context *memory = pcre2_general_context_create(pcre_malloc, pcre_free, NULL);
    pcre2_compile_context *context = memory ? pcre2_compile_context_create(memory) : NULL;
    oct_status status = OCT_OK;
    int number = PCRE2_ERROR_HEAP_FAILED;
    PCRE2_SIZE at;
    *code = context ? pcre2_compile((PCRE2_SPTR)pattern->text, pattern->length, options, &number,
                                    &at, context)
                    : NULL;
    if (!*code && number == PCRE2_ERROR_HEAP_FAILED) {
        status = oct_fail_memory(err);
    } else if (!*code) {
        PCRE2_UCHAR reason[256];
        pcre2_get_error_message(number, reason, sizeof reason);
        status = oct_fail(err, OCT_INVALID, "%s: not a usable regular expression: %s", place,
                          (const char *)reason);
    } else {
        /* Without a JIT compiler for this machine the interpreter gives the same matches. */
        pcre2_jit_compile(*code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
    }
    pcre2_compile_context_free(context);
    pcre2_general_context_free(memory);
    return status;
}

static pthread_once_t oniguruma_once = PTHREAD_ONCE_INIT;

static void initialize_oniguruma(void) {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    onig_initialize(encodings, 1);
}

static oct_status compile_oniguruma(const oct_strbuf *pattern, const char *place, regex_t **code,
                                    oct_error *err) {
    OnigErrorInfo why;
    const OnigUChar *text = (const OnigUChar *)pattern->text;
    pthread_once(&oniguruma_once, initialize_oniguruma);
    int number = onig_new(code, text, text + pattern->length, ONIG_OPTION_NONE, ONIG_ENCODING_UTF8,
                          ONIG_SYNTAX_ONIGURUMA, &why);
    if (number == ONIG_NORMAL)
        return OCT_OK;
    *code = NULL;
    if (number == ONIGERR_MEMORY)
        return oct_fail_memory(err);
    OnigUChar reason[ONIG_MAX_ERROR_MESSAGE_LEN];
    onig_error_code_to_str(reason, number, &why);
    return oct_fail(err, OCT_INVALID, "%s: not a usable regular expression: %s", place,
                    (const char *)reason);
}

static bool pcre2_knows_its_unicode(void) {
    char version[32];
    if (pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, NULL) > (int)sizeof version)
        return false;
    pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, version);
    int major = atoi(version);
    return major >= OLDEST_UNICODE && major <= NEWEST_UNICODE;
}

/* A pattern that can match nothing cuts between characters, by a rule of Oniguruma's users. */
static bool matches_empty(const pcre2_code *code) {
    uint32_t empty = 0;
    pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &empty);
    return empty != 0;
}

static oct_status compile(oct_regex *regex, const char *pattern, size_t n_bytes,
                          oct_pattern_kind kind, const char *place, oct_error *err) {
    oct_strbuf text = {0};
    oct_status status = OCT_OK;
    if (kind == OCT_PATTERN_LITERAL) {
        oct_strbuf_append(&text, pattern, n_bytes);
        status = text.failed
                     ? OCT_NO_MEMORY
                     : compile_pcre2(&text, PCRE2_UTF | PCRE2_LITERAL, place, &regex->pcre2, err);
    } else if (pcre2_knows_its_unicode() && oct_regex_for_pcre2(pattern, n_bytes, &text)) {
        status = text.failed
                     ? OCT_NO_MEMORY
                     : compile_pcre2(&text, PCRE2_UTF | PCRE2_UCP, place, &regex->pcre2, err);
    }
    if (!status && regex->pcre2 && matches_empty(regex->pcre2)) {
        pcre2_code_free(regex->pcre2);
        regex->pcre2 = NULL;
    }
    oct_strbuf_free(&text);
    if (status || regex->pcre2)
        return status;
    status = oct_regex_for_oniguruma(pattern, n_bytes, place, &text, err);
    if (!status)
        status =
            text.failed ? OCT_NO_MEMORY : compile_oniguruma(&text, place, &regex->oniguruma, err);
    oct_strbuf_free(&text);
    return status;
}

oct_status oct_regex_compile(const char *pattern, size_t n_bytes, oct_pattern_kind kind,
                             const char *place, oct_regex **regex, oct_error *err) {
    *regex = oct_calloc_array(1, sizeof **regex);
    if (!*regex)
        return oct_fail_memory(err);
    oct_status status = compile(*regex, pattern, n_bytes, kind, place, err);
    uint32_t lookbehind = 0;
    if (!status && (*regex)->pcre2)
        pcre2_pattern_info((*regex)->pcre2, PCRE2_INFO_MAXLOOKBEHIND, &lookbehind);
    (*regex)->lookbehind_bytes = 4 * (size_t)lookbehind;
    if (!status)
        return status;
    oct_regex_free(*regex);
    *regex = NULL;
    return status == OCT_NO_MEMORY ? oct_fail_memory(err) : status;
}

void oct_regex_free(oct_regex *regex) {
    if (!regex)
        return;
    pcre2_code_free(regex->pcre2);
    if (regex->oniguruma)
        onig_free(regex->oniguruma);
    oct_free(regex);
}

bool oct_regex_streams(const oct_regex *regex) {
    return regex->pcre2 != NULL;
}

size_t oct_regex_lookbehind_bytes(const oct_regex *regex) {
    return regex->lookbehind_bytes;
}

/* ---- searching ---- */

void oct_regex_scratch_free(oct_regex_scratch *s) {
    pcre2_match_data_free(s->match);
    pcre2_match_context_free(s->context);
    pcre2_jit_stack_free(s->stack);
    if (s->region)
        onig_region_free(s->region, 1);
    *s = (oct_regex_scratch){0};
}

static oct_status prepare_pcre2(oct_regex_scratch *s) {
    if (s->context)
        return OCT_OK;
    pcre2_general_context *memory = pcre2_general_context_create(pcre_malloc, pcre_free, NULL);
    if (!memory)
        return OCT_NO_MEMORY;
    if (!s->match)
        s->match = pcre2_match_data_create(1, memory);
    if (!s->stack) /* NULL where there is no JIT: then none is needed */
        s->stack = pcre2_jit_stack_create(32768, JIT_STACK_BYTES, memory);
    if (s->match)
        s->context = pcre2_match_context_create(memory);
    pcre2_general_context_free(memory);
    if (!s->context)
        return OCT_NO_MEMORY;
    pcre2_set_match_limit(s->context, MATCH_LIMIT);
    if (s->stack)
        pcre2_jit_stack_assign(s->context, NULL, s->stack);
    return OCT_OK;
}

static oct_status fail_search(const char *reason, oct_error *err) {
    return oct_fail(err, OCT_INVALID, "tokenizer: the text can't be split: %s", reason);
}

static oct_status search_pcre2(const oct_regex *regex, oct_regex_scratch *s, const char *text,
                               size_t n_bytes, size_t from, oct_text_end ends,
                               oct_regex_result *result, oct_regex_match *match, oct_error *err) {
    uint32_t options =
        PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY | (ends == OCT_TEXT_GOES_ON ? PCRE2_PARTIAL_HARD : 0);
    oct_status status = prepare_pcre2(s);
    if (status)
        return status;
    int code =
        pcre2_match(regex->pcre2, (PCRE2_SPTR)text, n_bytes, from, options, s->match, s->context);
    if (code == PCRE2_ERROR_NOMATCH || code == PCRE2_ERROR_PARTIAL) {
        *result = ends == OCT_TEXT_GOES_ON ? OCT_REGEX_MORE : OCT_REGEX_NOT_FOUND;
        return OCT_OK;
    }
    if (code == PCRE2_ERROR_NOMEMORY)
        return OCT_NO_MEMORY;
    if (code < 0) {
        PCRE2_UCHAR reason[256];
        pcre2_get_error_message(code, reason, sizeof reason);
        return fail_search((const char *)reason, err);
    }
    const PCRE2_SIZE *range = pcre2_get_ovector_pointer(s->match);
    *match = (oct_regex_match){range[0], range[1]};
    *result = OCT_REGEX_FOUND;
    return OCT_OK;
}

static oct_status search_oniguruma(const oct_regex *regex, oct_regex_scratch *s, const char *text,
                                   size_t n_bytes, size_t from, oct_regex_result *result,
                                   oct_regex_match *match, oct_error *err) {
    const OnigUChar *start = (const OnigUChar *)text, *end = start + n_bytes;
    if (n_bytes > INT_MAX)
        return fail_search("this pattern needs a text in one piece; expected less than 2 GiB", err);
    if (!s->region)
        s->region = onig_region_new();
    if (!s->region)
        return OCT_NO_MEMORY;
    int at =
        onig_search(regex->oniguruma, start, end, start + from, end, s->region, ONIG_OPTION_NONE);
    if (at == ONIG_MISMATCH) {
        *result = OCT_REGEX_NOT_FOUND;
        return OCT_OK;
    }
    if (at == ONIGERR_MEMORY)
        return OCT_NO_MEMORY;
    if (at < 0) {
        OnigUChar reason[ONIG_MAX_ERROR_MESSAGE_LEN];
        onig_error_code_to_str(reason, at);
        return fail_search((const char *)reason, err);
    }
    *match = (oct_regex_match){(size_t)s->region->beg[0], (size_t)s->region->end[0]};
    *result = OCT_REGEX_FOUND;
    return OCT_OK;
}

oct_status oct_regex_search(const oct_regex *regex, oct_regex_scratch *scratch, const char *text,
                            size_t n_bytes, size_t from, oct_text_end ends,
                            oct_regex_result *result, oct_regex_match *match, oct_error *err) {
    oct_status status =
        regex->pcre2 ? search_pcre2(regex, scratch, text, n_bytes, from, ends, result, match, err)
                     : search_oniguruma(regex, scratch, text, n_bytes, from, result, match, err);
    if (!status && *result == OCT_REGEX_FOUND &&
        (match->start < from || match->end < match->start)) /* \K can move a match's start */
        return fail_search("a match begins before the end of the one before", err);
    return status == OCT_NO_MEMORY ? oct_fail_memory(err) : status;
}
