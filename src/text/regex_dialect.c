/* Patterns in the words of the libraries that run them: see regex_dialect.h. */
#include "text/regex_dialect.h"

#include <ctype.h>
#include <string.h>

#include "base/count.h"
#include "file/json.h"
#include "text/unicode.h"

#define MAX_GROUPS 32

typedef struct cursor {
    const char *text;
    size_t n, at;
    oct_strbuf *to;
    bool folds; /* some of the pattern may ignore case, but no set outside a class does */
} cursor;

static char peek(const cursor *c, size_t ahead) {
    return c->at + ahead < c->n ? c->text[c->at + ahead] : '\0';
}

static bool looking_at(const cursor *c, const char *word) {
    size_t n = strlen(word);
    return n <= c->n - c->at && memcmp(c->text + c->at, word, n) == 0;
}

static void copy(cursor *c, size_t n) {
    n = n < c->n - c->at ? n : c->n - c->at;
    oct_strbuf_append(c->to, c->text + c->at, n);
    c->at += n;
}

/* The set that the \p{...} or \P{...} here names; *n its length in the pattern. */
static bool read_property(const cursor *c, oct_word_place place, oct_char_set *set, size_t *n) {
    const char *start = c->text + c->at + 3;
    const char *end = peek(c, 2) == '{' ? memchr(start, '}', c->n - c->at - 3) : NULL;
    if (!end || !oct_char_set_of_property(start, (size_t)(end - start), place, set))
        return false;
    *n = (size_t)(end - start) + 4;
    set->complement ^= peek(c, 1) == 'P';
    return true;
}

/* ---- PCRE2 ---- */

/* A property for PCRE2: by its name, with the characters that are newer than its tables. */
static bool put_stable(cursor *c, bool in_class) {
    oct_char_set set;
    size_t n;
    if (!read_property(c, OCT_WORD_ALONE, &set, &n) || (in_class && set.complement))
        return false;
    const char *name = oct_char_set_stable_name(&set);
    if (!name)
        return false;
    if (!in_class)
        oct_strbuf_puts(c->to, set.complement ? "[^" : "[");
    oct_strbuf_printf(c->to, "\\p{%s}", name);
    oct_char_set_put_recent(&set, c->to);
    if (!in_class)
        oct_strbuf_puts(c->to, "]");
    c->at += n;
    return true;
}

/* An escape that means the same to both. */
static bool put_plain_escape(cursor *c, bool in_class) {
    char next = peek(c, 1);
    const oct_char_set spaces = oct_char_set_of_space();
    if (next == 'p' || next == 'P')
        return put_stable(c, in_class);
    if (next == 's' || (next == 'S' && !in_class)) {
        if (!in_class)
            oct_strbuf_puts(c->to, next == 'S' ? "[^" : "[");
        oct_char_set_put(&spaces, c->to);
        if (!in_class)
            oct_strbuf_puts(c->to, "]");
        c->at += 2;
        return true;
    }
    if (next == 'x' && peek(c, 2) == '{') {
        size_t n = 3 + strspn(c->text + c->at + 3, "0123456789abcdefABCDEF");
        bool closed = peek(c, n) == '}' && n > 3;
        copy(c, n + 1);
        return closed;
    }
    if (!strchr("rnt", next) && !(next > 0 && ispunct((unsigned char)next)))
        return false;
    copy(c, 2);
    return next != '\0';
}

static bool put_plain_class(cursor *c) {
    copy(c, 1);
    if (peek(c, 0) == '^')
        copy(c, 1);
    if (peek(c, 0) == ']' || peek(c, 0) == '-') /* the libraries differ in what these mean there */
        return false;
    while (c->at < c->n && peek(c, 0) != ']') {
        if (peek(c, 0) == '[' || looking_at(c, "&&"))
            return false;
        bool set = looking_at(c, "\\p") || looking_at(c, "\\s");
        if (peek(c, 0) != '\\')
            copy(c, 1);
        else if (!put_plain_escape(c, true))
            return false;
        if (set && peek(c, 0) == '-') { /* not a range */
            if (peek(c, 1) != ']')
                return false;
            oct_strbuf_puts(c->to, "\\");
        }
    }
    if (c->at == c->n)
        return false;
    copy(c, 1);
    return true;
}

/* A repeat behind an item: `*`, `+`, `?`, lazy or possessive, or `{m}`, `{m,}`, `{m,n}`. */
static bool put_repeat(cursor *c) {
    if (peek(c, 0) && strchr("*+?", peek(c, 0))) {
        copy(c, 1);
        if (peek(c, 0) && strchr("?+", peek(c, 0)))
            copy(c, 1);
    } else if (peek(c, 0) == '{') {
        size_t n = 1, digits = strspn(c->text + c->at + 1, "0123456789");
        if (digits == 0 || digits > 4)
            return false;
        n += digits;
        if (peek(c, n) == ',')
            n += 1 + strspn(c->text + c->at + n + 1, "0123456789");
        if (peek(c, n) != '}' || n > 12)
            return false;
        copy(c, n + 1);
    }
    return !peek(c, 0) || !strchr("*+?{", peek(c, 0)); /* a repeat of a repeat isn't plain */
}

/* Whether without regard to case two letters in a row could be one character (ss is ß), or the
 * character has foldings beyond its own two cases that the libraries needn't agree on. */
static bool folds_apart(const cursor *c) {
    static const char *const pairs[] = {"ss", "st", "ff", "fi", "fl"};
    char two[3] = {(char)tolower((unsigned char)peek(c, 0)),
                   (char)tolower((unsigned char)peek(c, 1)), '\0'};
    for (size_t i = 0; i < OCT_COUNT(pairs); i++)
        if (strcmp(two, pairs[i]) == 0)
            return true;
    return (unsigned char)peek(c, 0) >= 0x80;
}

/* Opens the group here; *ignores_case and *looks_ahead tell what it is. */
static bool put_group(cursor *c, bool *ignores_case, bool *looks_ahead) {
    *looks_ahead = looking_at(c, "(?!") || looking_at(c, "(?=");
    if (looking_at(c, "(?i:")) {
        *ignores_case = true;
        copy(c, 4);
    } else if (looking_at(c, "(?:") || *looks_ahead) {
        copy(c, 3);
    } else {
        return false;
    }
    return true;
}

bool oct_regex_for_pcre2(const char *pattern, size_t n_bytes, oct_strbuf *to) {
    cursor cursor_at_start = {.text = pattern, .n = n_bytes, .to = to}, *c = &cursor_at_start;
    bool ignores_case[MAX_GROUPS + 1] = {false}, looks_ahead[MAX_GROUPS + 1] = {false};
    int depth = 0;
    while (c->at < c->n) {
        char here = peek(c, 0);
        if (here == '\0' || strchr("*+?{}].^$", here))
            return false;
        if (here == '|') {
            copy(c, 1);
            continue;
        }
        if (here == '(') {
            if (depth == MAX_GROUPS)
                return false;
            depth++;
            ignores_case[depth] = ignores_case[depth - 1];
            if (!put_group(c, &ignores_case[depth], &looks_ahead[depth]))
                return false;
            continue;
        }
        if (here == ')') {
            copy(c, 1);
            if (depth-- == 0 ||
                (looks_ahead[depth + 1] && peek(c, 0) && strchr("*+?{", peek(c, 0))))
                return false;
        } else if (here == '[') {
            size_t start = c->at;
            if (!put_plain_class(c))
                return false;
            for (size_t i = start; ignores_case[depth] && i < c->at; i++)
                if ((unsigned char)pattern[i] >= 0x80 || pattern[i] == '\\')
                    return false;
        } else if (here == '\\') {
            if (ignores_case[depth] || !put_plain_escape(c, false))
                return false;
        } else {
            if (ignores_case[depth] && folds_apart(c))
                return false;
            copy(c, 1);
            while ((peek(c, 0) & 0xC0) == 0x80) /* the rest of one character */
                copy(c, 1);
        }
        if (!put_repeat(c))
            return false;
    }
    return depth == 0;
}

/* ---- Oniguruma ---- */

static void put_set(cursor *c, const oct_char_set *set, bool in_class) {
    bool guard = c->folds && !in_class;
    oct_strbuf_puts(c->to, guard ? "(?-i:" : "");
    oct_strbuf_puts(c->to, set->complement ? "[^" : "[");
    oct_char_set_put(set, c->to);
    oct_strbuf_puts(c->to, guard ? "])" : "]");
}

/* Whether some option group, `(?i)` or `(?im-x:`, turns case off. */
static bool may_ignore_case(const char *pattern, size_t n) {
    for (size_t i = 0; i + 2 < n; i++) {
        if (pattern[i] != '(' || pattern[i + 1] != '?')
            continue;
        for (size_t k = i + 2; k < n && (isalpha((unsigned char)pattern[k]) || pattern[k] == '-');
             k++)
            if (pattern[k] == 'i')
                return true;
    }
    return false;
}

/* \b and \B, which ask for the characters of \w. */
static void put_word_boundary(cursor *c, bool inside_words) {
    const oct_char_set word = oct_char_set_of_word(OCT_WORD_ALONE);
    const char *const parts[2][4] = {{"(?:(?<=", ")(?!", ")|(?<!", ")(?="},
                                     {"(?:(?<=", ")(?=", ")|(?<!", ")(?!"}};
    for (size_t i = 0; i < 4; i++) {
        oct_strbuf_puts(c->to, parts[inside_words][i]);
        put_set(c, &word, true);
    }
    oct_strbuf_puts(c->to, "))");
}

/* A set by one letter: \w \W \d \D \s \S. */
static bool set_of_letter(char letter, bool in_class, oct_char_set *set) {
    switch (tolower((unsigned char)letter)) {
    case 'w':
        *set = oct_char_set_of_word(in_class ? OCT_WORD_IN_CLASS : OCT_WORD_ALONE);
        break;
    case 'd':
        *set = oct_char_set_of_number();
        break;
    case 's':
        *set = oct_char_set_of_space();
        break;
    default:
        return false;
    }
    set->complement = isupper((unsigned char)letter);
    return true;
}

static oct_status fail_name(const cursor *c, const char *what, const char *place, oct_error *err) {
    char name[40] = "";
    size_t n = c->n - c->at < sizeof name ? c->n - c->at : sizeof name - 1;
    memcpy(name, c->text + c->at, n);
    return oct_fail(err, OCT_INVALID,
                    "%s: %s; expected a general category, a script or a POSIX name; got \"%s\"",
                    place, what, oct_show(name).text);
}

/* After a set `-` stands for itself, but not after the ranges that now spell it. */
static void guard_hyphen(cursor *c) {
    if (peek(c, 0) == '-' && peek(c, 1) != ']')
        oct_strbuf_puts(c->to, "\\");
}

static oct_status put_escape(cursor *c, bool in_class, const char *place, oct_error *err) {
    oct_char_set set;
    size_t n = 2;
    char next = peek(c, 1);
    bool named = (next == 'p' || next == 'P') && peek(c, 2) == '{';
    if (named && !read_property(c, in_class ? OCT_WORD_IN_CLASS : OCT_WORD_ALONE, &set, &n))
        return fail_name(c, "an unknown property", place, err);
    if (next == 'X')
        return fail_name(c, "\\X isn't supported, as libraries cut text differently", place, err);
    if (!in_class && (next == 'b' || next == 'B')) {
        put_word_boundary(c, next == 'B');
        c->at += 2;
        return OCT_OK;
    }
    if (!named && !set_of_letter(next, in_class, &set)) {
        copy(c, 2);
        return OCT_OK;
    }
    put_set(c, &set, in_class);
    c->at += n;
    if (in_class)
        guard_hyphen(c);
    return OCT_OK;
}

/* [:name:] inside a class; false: it isn't one. */
static bool put_bracket(cursor *c, const char *place, oct_status *status, oct_error *err) {
    const char *start = c->text + c->at + 2, *end = NULL;
    oct_char_set set;
    for (size_t i = 2; c->at + i + 1 < c->n && i < 20 && !end; i++)
        if (peek(c, i) == ':' && peek(c, i + 1) == ']')
            end = c->text + c->at + i;
    if (!looking_at(c, "[:") || !end)
        return false;
    *status = OCT_OK;
    if (!oct_char_set_of_bracket(start, (size_t)(end - start), &set)) {
        *status = fail_name(c, "an unknown POSIX bracket", place, err);
        return true;
    }
    put_set(c, &set, true);
    c->at += (size_t)(end - start) + 4;
    guard_hyphen(c);
    return true;
}

static void open_class(cursor *c) {
    copy(c, 1);
    if (peek(c, 0) == '^')
        copy(c, 1);
    if (peek(c, 0) == ']') /* a first ] is itself */
        copy(c, 1);
}

oct_status oct_regex_for_oniguruma(const char *pattern, size_t n_bytes, const char *place,
                                   oct_strbuf *to, oct_error *err) {
    cursor cursor_at_start = {pattern, n_bytes, 0, to, may_ignore_case(pattern, n_bytes)};
    cursor *c = &cursor_at_start;
    int class_depth = 0;
    oct_status status = OCT_OK;
    while (c->at < c->n && !status) {
        char here = peek(c, 0);
        if (here == '\\') {
            status = put_escape(c, class_depth > 0, place, err);
        } else if (here == '[') {
            if (class_depth == 0 || !put_bracket(c, place, &status, err)) {
                open_class(c);
                class_depth++;
            }
        } else if (here == ']' && class_depth > 0) {
            copy(c, 1);
            class_depth--;
        } else if (class_depth == 0 && looking_at(c, "(?#")) {
            const char *end = memchr(c->text + c->at, ')', c->n - c->at);
            copy(c, end ? (size_t)(end - c->text) - c->at + 1 : c->n - c->at);
        } else {
            copy(c, 1);
        }
    }
    return status;
}
