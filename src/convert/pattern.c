/* Name patterns: see pattern.h. */
#include "convert/pattern.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define MAX_NAME 512
#define MAX_DIGITS 9 /* larger layer numbers don't exist; keeps arithmetic in 32 bits */

/* Reads digits at *text; -1 when there are none or too many. */
static int64_t read_integer(const char **text) {
    int64_t value = 0;
    int n = 0;
    for (; isdigit((unsigned char)**text); (*text)++, n++) {
        if (n == MAX_DIGITS)
            return -1;
        value = value * 10 + (**text - '0');
    }
    return n ? value : -1;
}

static void skip_spaces(const char **text) {
    *text += strspn(*text, " ");
}

/* Reads "low" or "low-high"; false when it is neither. */
static bool read_range(const char **text, int64_t *low, int64_t *high) {
    skip_spaces(text);
    *low = *high = read_integer(text);
    skip_spaces(text);
    if (**text == '-') {
        (*text)++;
        skip_spaces(text);
        *high = read_integer(text);
        skip_spaces(text);
    }
    return *low >= 0 && *high >= *low;
}

/* Parses "{*}" or "{a-b,c,...}" at `pattern`; *holds says whether `value` is one of these. Returns
 * what follows it, or NULL. */
static const char *read_brace(const char *pattern, int64_t value, bool *holds) {
    int64_t low, high;
    *holds = value >= 0;
    if (pattern[1] == '*')
        return pattern[2] == '}' ? pattern + 3 : NULL;
    *holds = false;
    do {
        pattern++; /* the brace, or a comma */
        if (!read_range(&pattern, &low, &high))
            return NULL;
        *holds |= value >= low && value <= high;
    } while (*pattern == ',');
    return *pattern == '}' ? pattern + 1 : NULL;
}

oct_status oct_glob_check(const char *pattern, oct_error *err) {
    if (!*pattern || strlen(pattern) >= MAX_NAME)
        return oct_fail(err, OCT_INVALID,
                        "pattern \"%.100s\": expected 1 to %d characters; got %zu", pattern,
                        MAX_NAME - 1, strlen(pattern));
    for (const char *p = pattern; *p;) {
        bool ignored;
        const char *next = *p == '{' ? read_brace(p, 0, &ignored) : p + 1;
        if (!next || *p == '}')
            return oct_fail(
                err, OCT_INVALID,
                "pattern \"%s\": malformed brace at \"%s\"; expected {*} or {a-b,c,...} "
                "with integers a <= b",
                pattern, p);
        p = next;
    }
    return OCT_OK;
}

oct_status oct_pattern_list_check(const oct_pattern_list *list, oct_error *err) {
    oct_error first = {0}, ignored;
    char others[MAX_NAME] = "";
    size_t n = 0;
    for (int64_t i = 0; i < list->n && list->kind == OCT_PATTERN_GLOB; i++) {
        if (!first.status)
            oct_glob_check(list->patterns[i], &first);
        else if (oct_glob_check(list->patterns[i], &ignored) && n < sizeof others)
            n += (size_t)snprintf(others + n, sizeof others - n, "%s \"%s\"",
                                  n ? "," : "; wrong as well:", list->patterns[i]);
    }
    return first.status
               ? oct_fail(err, first.status, "%s: %s%s", list->where, first.message, others)
               : OCT_OK;
}

/* Bitset matching: reach[i] says that the pattern so far can end before text[i]. Linear in both
 * lengths, so that no pattern is slow. */
bool oct_glob_matches(const char *pattern, const char *text) {
    size_t n = strnlen(text, MAX_NAME);
    bool reach[MAX_NAME + 1] = {true}, next[MAX_NAME + 1];
    while (*pattern) {
        bool holds;
        const char *after = *pattern == '{' ? read_brace(pattern, 0, &holds) : pattern + 1;
        memset(next, 0, sizeof next);
        if (!after)
            return false;
        bool any = false;
        for (size_t i = 0; i <= n; i++) {
            any = any || reach[i];
            if (*pattern == '*') {
                next[i] = any;
            } else if (*pattern == '{') {
                const char *end = text + i;
                read_brace(pattern, reach[i] ? read_integer(&end) : -1, &holds);
                if (holds)
                    next[end - text] = true;
            } else if (i < n && reach[i] && (*pattern == '?' || *pattern == text[i])) {
                next[i + 1] = true;
            }
        }
        memcpy(reach, next, sizeof reach);
        pattern = after;
    }
    return n == strlen(text) && reach[n];
}

static bool glob_selects(const char *pattern, const char *name) {
    bool bare = !strpbrk(pattern, ".*?{");
    char prefix[MAX_NAME];
    size_t n = strlen(name);
    if (n >= MAX_NAME)
        return false;
    for (size_t end = 1; end <= n; end++) {
        if (name[end] != '.' && name[end] != '\0')
            continue;
        memcpy(prefix, name, end);
        prefix[end] = '\0';
        const char *dot = strrchr(prefix, '.');
        if (bare ? strcmp(pattern, dot ? dot + 1 : prefix) == 0 : oct_glob_matches(pattern, prefix))
            return true;
    }
    return false;
}

bool oct_pattern_selects(oct_pattern_kind kind, const char *pattern, const char *name) {
    return kind == OCT_PATTERN_SUBSTRING ? strstr(name, pattern) != NULL
                                         : glob_selects(pattern, name);
}

int64_t oct_pattern_list_find(const oct_pattern_list *list, const char *name) {
    for (int64_t i = 0; i < list->n; i++)
        if (oct_pattern_selects(list->kind, list->patterns[i], name))
            return i;
    return -1;
}
