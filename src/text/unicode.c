/* Sets of characters by name: see unicode.h. */
#include "text/unicode.h"

#include <pthread.h>
#include <string.h>
#include <strings.h>

#include "base/count.h"
#include "text/unicode_data.h"

enum { CATEGORY_MASK = 0x1f, RECENT = 0x20 };

/* Properties with tables of their own; White_Space is written out. */
enum { ALPHABETIC, UPPERCASE, LOWERCASE, DIGITS, PUNCTUATION, N_TOGGLED };

static const struct {
    const uint32_t *toggles;
    size_t n;
} toggled[N_TOGGLED] = {[ALPHABETIC] = {alphabetic_toggles, OCT_COUNT(alphabetic_toggles)},
                        [UPPERCASE] = {uppercase_toggles, OCT_COUNT(uppercase_toggles)},
                        [LOWERCASE] = {lowercase_toggles, OCT_COUNT(lowercase_toggles)},
                        [DIGITS] = {digit_toggles, OCT_COUNT(digit_toggles)},
                        [PUNCTUATION] = {punctuation_toggles, OCT_COUNT(punctuation_toggles)}};

#define SPACES                                                                                     \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"    \
    "\\x{205f}\\x{3000}"
#define BLANKS "\\x{9}\\x{20}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{202f}\\x{205f}\\x{3000}"

/* ---- names ---- */

static const struct {
    const char *code, *name;
} long_names[] = {{"L", "Letter"},
                  {"LC", "Cased_Letter"},
                  {"Lu", "Uppercase_Letter"},
                  {"Ll", "Lowercase_Letter"},
                  {"Lt", "Titlecase_Letter"},
                  {"Lm", "Modifier_Letter"},
                  {"Lo", "Other_Letter"},
                  {"M", "Mark"},
                  {"Mn", "Nonspacing_Mark"},
                  {"Mc", "Spacing_Mark"},
                  {"Me", "Enclosing_Mark"},
                  {"N", "Number"},
                  {"Nd", "Decimal_Number"},
                  {"Nl", "Letter_Number"},
                  {"No", "Other_Number"},
                  {"P", "Punctuation"},
                  {"Pc", "Connector_Punctuation"},
                  {"Pd", "Dash_Punctuation"},
                  {"Ps", "Open_Punctuation"},
                  {"Pe", "Close_Punctuation"},
                  {"Pi", "Initial_Punctuation"},
                  {"Pf", "Final_Punctuation"},
                  {"Po", "Other_Punctuation"},
                  {"S", "Symbol"},
                  {"Sm", "Math_Symbol"},
                  {"Sc", "Currency_Symbol"},
                  {"Sk", "Modifier_Symbol"},
                  {"So", "Other_Symbol"},
                  {"Z", "Separator"},
                  {"Zs", "Space_Separator"},
                  {"Zl", "Line_Separator"},
                  {"Zp", "Paragraph_Separator"},
                  {"C", "Other"},
                  {"Cc", "Control"},
                  {"Cf", "Format"},
                  {"Cs", "Surrogate"},
                  {"Co", "Private_Use"},
                  {"Cn", "Unassigned"}};

/* A name without what doesn't count in it. */
static void plain_name(const char *name, size_t n, char plain[64]) {
    size_t used = 0;
    for (size_t i = 0; i < n && used < 63; i++)
        if (!strchr(" _-", name[i]))
            plain[used++] = name[i];
    plain[used] = '\0';
}

static bool same_name(const char *plain, const char *name) {
    char other[64];
    plain_name(name, strlen(name), other);
    return strcasecmp(plain, other) == 0;
}

/* Bits of the categories that begin with the code: one of `Lu`, or all of `L`. */
static uint32_t categories_of(const char *code) {
    if (strcmp(code, "LC") == 0)
        return categories_of("Lu") | categories_of("Ll") | categories_of("Lt");
    uint32_t bits = 0;
    for (size_t i = 0; i < OCT_COUNT(category_names); i++)
        if (strncmp(category_names[i], code, strlen(code)) == 0)
            bits |= 1u << i;
    return bits;
}

static oct_char_set categories(const char *codes) {
    oct_char_set set = {0};
    for (; *codes; codes += strcspn(codes, " "), codes += *codes == ' ') {
        char code[3] = {codes[0], codes[1] == ' ' ? '\0' : codes[1], '\0'};
        set.categories |= categories_of(code);
    }
    return set;
}

static oct_char_set with_toggled(oct_char_set set, int property) {
    set.toggled |= 1u << property;
    return set;
}

oct_char_set oct_char_set_of_word(oct_word_place place) {
    oct_char_set set = with_toggled(categories("M Nd Pc"), ALPHABETIC);
    if (place == OCT_WORD_ALONE)
        set.few = "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";
    return set;
}

oct_char_set oct_char_set_of_space(void) {
    return (oct_char_set){.few = SPACES};
}

oct_char_set oct_char_set_of_number(void) {
    return categories("Nd");
}

oct_char_set oct_char_set_of_digits(void) {
    return with_toggled((oct_char_set){0}, DIGITS);
}

oct_char_set oct_char_set_of_punctuation(void) {
    return with_toggled((oct_char_set){0}, PUNCTUATION);
}

static bool find_bracket(const char *plain, oct_char_set *set) {
    const oct_char_set none = {0};
    const struct {
        const char *name;
        oct_char_set set;
    } brackets[] = {
        {"alnum", with_toggled(categories("Nd"), ALPHABETIC)},
        {"alpha", with_toggled(none, ALPHABETIC)},
        {"ascii", {.few = "\\x{0}-\\x{7f}"}},
        {"blank", {.few = BLANKS}},
        {"cntrl", categories("Cc")},
        {"digit", categories("Nd")},
        {"graph", categories("L M N P S Cf Co")},
        {"lower", with_toggled(none, LOWERCASE)},
        {"print", categories("L M N P S Cf Co Zs")},
        {"punct", categories("P S")},
        {"space", oct_char_set_of_space()},
        {"upper", with_toggled(none, UPPERCASE)},
        {"xdigit", {.few = "0-9A-Fa-f"}},
        {"word", oct_char_set_of_word(OCT_WORD_IN_CLASS)},
    };
    for (size_t i = 0; i < OCT_COUNT(brackets); i++) {
        if (strcasecmp(plain, brackets[i].name) == 0) {
            *set = brackets[i].set;
            return true;
        }
    }
    return false;
}

static bool find_property(const char *plain, oct_char_set *set) {
    for (size_t i = 0; i < OCT_COUNT(long_names); i++) {
        if (same_name(plain, long_names[i].code) || same_name(plain, long_names[i].name)) {
            *set = categories(long_names[i].code);
            return true;
        }
    }
    for (size_t i = 0; i < OCT_COUNT(script_names); i++) {
        if (same_name(plain, script_names[i].code) || same_name(plain, script_names[i].name)) {
            *set = (oct_char_set){.script = (int)i + 1};
            return true;
        }
    }
    static const char *const others[][2] = {{"Alphabetic", "alpha"},
                                            {"Uppercase", "upper"},
                                            {"Lowercase", "lower"},
                                            {"WhiteSpace", "space"}};
    for (size_t i = 0; i < OCT_COUNT(others); i++)
        if (strcasecmp(plain, others[i][0]) == 0)
            return find_bracket(others[i][1], set);
    if (strcasecmp(plain, "punct") == 0) { /* without the symbols that the bracket has */
        *set = categories("P");
        return true;
    }
    if (strcasecmp(plain, "any") == 0) {
        *set = (oct_char_set){.few = "\\x{0}-\\x{10ffff}"};
        return true;
    }
    return find_bracket(plain, set);
}

static bool find(const char *name, size_t n, bool (*look)(const char *plain, oct_char_set *set),
                 oct_char_set *set) {
    char plain[64];
    bool complement = n > 0 && name[0] == '^';
    if (n >= sizeof plain)
        return false;
    plain_name(name + complement, n - complement, plain);
    if (!plain[0] || !look(plain, set))
        return false;
    set->complement = complement;
    return true;
}

bool oct_char_set_of_property(const char *name, size_t n_bytes, oct_word_place place,
                              oct_char_set *set) {
    char plain[64];
    if (!find(name, n_bytes, find_property, set))
        return false;
    plain_name(name, n_bytes, plain);
    if (place == OCT_WORD_ALONE && strcasecmp(plain + (plain[0] == '^'), "word") == 0)
        set->few = oct_char_set_of_word(OCT_WORD_ALONE).few;
    return true;
}

bool oct_char_set_of_bracket(const char *name, size_t n_bytes, oct_char_set *set) {
    return find(name, n_bytes, find_bracket, set);
}

/* ---- ranges ---- */

typedef void (*range_sink)(void *user, uint32_t first, uint32_t last);

/* Calls for each run of the table whose value is wanted; neighbours are joined. */
static void walk_categories(uint32_t wanted, bool recent_only, range_sink sink, void *user) {
    uint32_t first = 0, start = 0;
    bool open = false;
    for (size_t i = 0; i < OCT_COUNT(category_runs); i++) {
        uint32_t value = category_runs[i] & 0xff;
        bool in = (wanted >> (value & CATEGORY_MASK) & 1) && (!recent_only || value & RECENT);
        if (open && !in)
            sink(user, first, start - 1);
        if (in && !open)
            first = start;
        open = in;
        start += category_runs[i] >> 8;
    }
    if (open)
        sink(user, first, start - 1);
}

static void walk_script(int script, range_sink sink, void *user) {
    uint32_t start = 0;
    for (size_t i = 0; i < OCT_COUNT(script_runs); i++) {
        uint32_t after = start + (script_runs[i] >> 8);
        if ((int)(script_runs[i] & 0xff) == script)
            sink(user, start, after - 1);
        start = after;
    }
}

static void walk_toggled(int property, range_sink sink, void *user) {
    const uint32_t *toggles = toggled[property].toggles;
    uint32_t at = 0;
    for (size_t i = 0; i + 1 < toggled[property].n; i += 2) {
        uint32_t first = at + toggles[i];
        at = first + toggles[i + 1];
        sink(user, first, at - 1);
    }
}

static void put_range(void *user, uint32_t first, uint32_t last) {
    oct_strbuf *to = user;
    if (first >= 0xD800 && first <= 0xDFFF) /* surrogates are no characters of a text */
        return;
    oct_strbuf_printf(to, "\\x{%x}", (unsigned)first);
    if (last > first)
        oct_strbuf_printf(to, "-\\x{%x}", (unsigned)last);
}

void oct_char_set_put(const oct_char_set *set, oct_strbuf *to) {
    walk_categories(set->categories, false, put_range, to);
    if (set->script)
        walk_script(set->script, put_range, to);
    for (int i = 0; i < N_TOGGLED; i++)
        if (set->toggled >> i & 1)
            walk_toggled(i, put_range, to);
    if (set->few)
        oct_strbuf_puts(to, set->few);
}

void oct_char_set_put_recent(const oct_char_set *set, oct_strbuf *to) {
    walk_categories(set->categories, true, put_range, to);
}

const char *oct_char_set_stable_name(const oct_char_set *set) {
    /* Not M, Mn, Mc: a mark has moved; not C, Cn: later versions take from them. */
    static const char *const names[] = {"L",  "Lu", "Ll", "Lt", "Lm", "Lo", "N",  "Nd", "Nl",
                                        "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po",
                                        "S",  "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp"};
    if (set->script || set->toggled || set->few)
        return NULL;
    for (size_t i = 0; i < OCT_COUNT(names); i++)
        if (set->categories == categories_of(names[i]))
            return names[i];
    return NULL;
}

/* ---- single characters ---- */

typedef struct lookup {
    uint32_t c;
    bool found;
} lookup;

static void look_in_range(void *user, uint32_t first, uint32_t last) {
    lookup *l = user;
    l->found |= l->c >= first && l->c <= last;
}

bool oct_char_is_word(uint32_t c) {
    const uint32_t zero_width_joiners[] = {0x200c, 0x200d};
    lookup l = {c, c == zero_width_joiners[0] || c == zero_width_joiners[1]};
    walk_categories(oct_char_set_of_word(OCT_WORD_IN_CLASS).categories, false, look_in_range, &l);
    walk_toggled(ALPHABETIC, look_in_range, &l);
    return l.found;
}

bool oct_char_is_space(uint32_t c) {
    return (c >= 0x9 && c <= 0xd) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

/* A bit a character: texts ask for every one of theirs. */
enum { UNNORMALIZED_END = 0x1E700 };
static uint64_t unnormalized[UNNORMALIZED_END / 64];
static pthread_once_t unnormalized_once = PTHREAD_ONCE_INIT;

static void fill_unnormalized(void) {
    uint32_t at = 0;
    for (size_t i = 0; i + 1 < OCT_COUNT(unnormalized_toggles); i += 2) {
        at += unnormalized_toggles[i];
        for (uint32_t n = unnormalized_toggles[i + 1]; n > 0; n--, at++)
            unnormalized[at / 64] |= (uint64_t)1 << at % 64;
    }
}

bool oct_char_is_unnormalized(uint32_t c) {
    pthread_once(&unnormalized_once, fill_unnormalized);
    return c < UNNORMALIZED_END && unnormalized[c / 64] >> c % 64 & 1;
}
