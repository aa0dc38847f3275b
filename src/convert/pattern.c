/* Name patterns: see pattern.h. */
#include "convert/pattern.h"

#include <ctype.h>
#include <stdint.h>
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

/* Parses "{*}" or "{a-b}" at `pattern`; returns what follows it, or NULL. */
static const char *read_brace(const char *pattern, int64_t *low, int64_t *high) {
    pattern++;
    *low = 0;
    *high = INT64_MAX;
    if (*pattern == '*')
        return pattern[1] == '}' ? pattern + 2 : NULL;
    *low = read_integer(&pattern);
    if (*low < 0 || *pattern++ != '-')
        return NULL;
    *high = read_integer(&pattern);
    return *high >= *low && *pattern == '}' ? pattern + 1 : NULL;
}

oct_status oct_glob_check(const char *pattern, oct_error *err) {
    if (!*pattern || strlen(pattern) >= MAX_NAME)
        return oct_fail(err, OCT_INVALID,
                        "pattern \"%.100s\": expected 1 to %d characters; got %zu", pattern,
                        MAX_NAME - 1, strlen(pattern));
    for (const char *p = pattern; *p;) {
        int64_t low, high;
        const char *next = *p == '{' ? read_brace(p, &low, &high) : p + 1;
        if (!next || *p == '}')
            return oct_fail(err, OCT_INVALID,
                            "pattern \"%s\": malformed brace at \"%s\"; expected {*} or {a-b} with "
                            "integers a <= b",
                            pattern, p);
        p = next;
    }
    return OCT_OK;
}

/* Bitset matching: reach[i] says that the pattern so far can end before text[i]. Linear in both
 * lengths, so that no pattern is slow. */
bool oct_glob_matches(const char *pattern, const char *text) {
    size_t n = strnlen(text, MAX_NAME);
    bool reach[MAX_NAME + 1] = {true}, next[MAX_NAME + 1];
    while (*pattern) {
        int64_t low = 0, high = -1; /* an empty range unless a brace sets it */
        const char *after = *pattern == '{' ? read_brace(pattern, &low, &high) : pattern + 1;
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
                int64_t value = reach[i] ? read_integer(&end) : -1;
                if (value >= low && value <= high)
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
