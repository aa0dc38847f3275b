/* Text to words: patterns and behaviours as the reference library has them, windows, stray bytes.
 */
#include "story.h"

#include <jansson.h>

#include "file_support.h"

#include "base/count.h"
#include "text/pretokenize.h"

static const char *pieces_path; /* tests/text/pieces.jsonl */

static const oct_split isolated = {.behavior = OCT_SPLIT_ISOLATED};
static const oct_split matches_only = {.behavior = OCT_SPLIT_REMOVED, .invert = true};

/* ---- splitting ---- */

typedef struct pieces {
    char text[512]; /* words with a | before each */
    size_t n, words, longest;
} pieces;

static oct_status add_piece(void *user, const char *word, size_t n, oct_error *err) {
    (void)err;
    pieces *p = user;
    p->words++;
    p->longest = n > p->longest ? n : p->longest;
    if (p->n + n + 2 < sizeof p->text) {
        p->text[p->n++] = '|';
        memcpy(p->text + p->n, word, n);
        p->n += n;
    }
    return OCT_OK;
}

static void split_text(const char *pattern, oct_split split, const char *text, size_t n,
                       pieces *found) {
    oct_pretokenizer p = {0};
    oct_pretokenizer_scratch scratch = {0};
    *found = (pieces){0};
    assert_int_equal(oct_pretokenizer_add_split(&p, pattern, strlen(pattern), OCT_PATTERN_REGEX,
                                                split, "t", NULL),
                     OCT_OK);
    assert_int_equal(oct_pretokenize(&p, &scratch, text, n, true, add_piece, found, NULL), OCT_OK);
    oct_pretokenizer_scratch_free(&scratch);
    oct_pretokenizer_free(&p);
}

static void assert_pieces(const char *pattern, const char *text, const char *expected) {
    pieces found;
    split_text(pattern, isolated, text, strlen(text), &found);
    assert_string_equal(found.text, expected);
}

static void given_text_gpt2_words_are_these(void **state) {
    (void)state;
    assert_pieces(oct_gpt2_pattern, "I've 'RE 123456!?\n", "|I|'ve| '|RE| 123456|!?|\n");
    assert_pieces(oct_gpt2_pattern, "a  b   \n\nc  ", "|a| | b|   \n|\n|c|  ");
    assert_pieces(oct_gpt2_pattern, "x\xe3\x80\x80y", "|x|\xe3\x80\x80|y");  /* U+3000: a space */
    assert_pieces(oct_gpt2_pattern, "x \xe1\xa0\x8e!", "|x| \xe1\xa0\x8e!"); /* U+180E: none */
}

static void given_text_llama3_words_are_these(void **state) {
    (void)state;
    assert_pieces(oct_llama3_pattern, "I've 'RE 1234567!?\n\n", "|I|'ve| '|RE| |123|456|7|!?\n\n");
    assert_pieces(oct_llama3_pattern, "We'RE (so)  \n x\r\n", "|We|'RE| (|so|)|  \n| x|\r\n");
}

static void given_dropped_gaps_only_matches_are_words(void **state) {
    (void)state;
    pieces found;
    split_text("\\w+", matches_only, "a, b; c", 7, &found);
    assert_string_equal(found.text, "|a|b|c");
    split_text("[^\\S\\n]+", isolated, "a \tb\nc", 6, &found);
    assert_string_equal(found.text, "|a| \t|b\nc");
}

static void given_stray_bytes_each_is_a_word(void **state) {
    (void)state;
    const char *const stray[] = {"a\x80"
                                 "b",
                                 "a\xc3",
                                 "a\xed\xa0\x80",
                                 "a\xf4\x90\x80\x80",
                                 "a\xc0\xaf",
                                 "a\xe0\x80\x80",
                                 "a\xf8",
                                 NULL};
    for (int i = 0; stray[i]; i++) {
        pieces found;
        split_text("\\p{L}+", isolated, stray[i], strlen(stray[i]), &found);
        assert_int_equal(found.words, strlen(stray[i]));
        assert_int_equal(found.longest, 1);
    }
}

/* Longer than what is looked at in one go, so that words lie across every seam. */
static void given_a_large_text_its_words_do_not_depend_on_the_windows(void **state) {
    (void)state;
    static const char line[] = "the quick brown fox, 12 jumps\n";
    const size_t n_line = sizeof line - 1, n_lines = OCT_STRETCH_BYTES / n_line + 4000;
    char *text = oct_malloc(n_line * n_lines);
    assert_non_null(text);
    for (size_t i = 0; i < n_lines; i++)
        memcpy(text + i * n_line, line, n_line);
    pieces found;
    split_text(oct_gpt2_pattern, isolated, text, n_line * n_lines, &found);
    assert_int_equal(found.words, 8 * n_lines);
    assert_int_equal(found.longest, 6);
    memset(text, ' ', n_line * n_lines); /* no word ends in the first stretch: it's cut */
    split_text(oct_llama3_pattern, isolated, text, n_line * n_lines, &found);
    assert_int_equal(found.words, 2);
    assert_int_equal(found.longest, OCT_STRETCH_BYTES);
    oct_free(text);
}

static void given_a_large_text_in_another_form_it_is_normalised_piece_by_piece(void **state) {
    (void)state;
    static const char line[] = "cafe\xcc\x81 d\xc3\xa9j\xc3\xa0\n"; /* "café", decomposed */
    const size_t n_line = sizeof line - 1, n_lines = 3000000 / n_line;
    char *text = oct_malloc(n_line * n_lines);
    assert_non_null(text);
    for (size_t i = 0; i < n_lines; i++)
        memcpy(text + i * n_line, line, n_line);
    oct_pretokenizer p = {.nfc = true};
    oct_pretokenizer_scratch scratch = {0};
    pieces found = {0};
    assert_int_equal(oct_pretokenizer_add_split(&p, oct_gpt2_pattern, strlen(oct_gpt2_pattern),
                                                OCT_PATTERN_REGEX, isolated, "t", NULL),
                     OCT_OK);
    assert_int_equal(
        oct_pretokenize(&p, &scratch, text, n_line * n_lines, true, add_piece, &found, NULL),
        OCT_OK);
    assert_int_equal(found.words, 3 * n_lines);
    assert_int_equal(found.longest, 7);
    assert_memory_equal(found.text, "|caf\xc3\xa9| d\xc3\xa9j\xc3\xa0|\n", 16);
    oct_pretokenizer_scratch_free(&scratch);
    oct_pretokenizer_free(&p);
    oct_free(text);
}

static void given_a_pattern_that_explodes_the_text_is_refused(void **state) {
    (void)state;
    oct_pretokenizer p = {0};
    oct_pretokenizer_scratch scratch = {0};
    oct_error err = {0};
    pieces found = {0};
    const char *pattern = "(a|aa|aaa)+(b|c)\\1$|x";
    char text[64];
    memset(text, 'a', sizeof text);
    assert_int_equal(oct_pretokenizer_add_split(&p, pattern, strlen(pattern), OCT_PATTERN_REGEX,
                                                isolated, "t", &err),
                     OCT_OK);
    assert_int_equal(
        oct_pretokenize(&p, &scratch, text, sizeof text, true, add_piece, &found, &err),
        OCT_INVALID);
    assert_contains(err.message, "can't be split");
    oct_pretokenizer_scratch_free(&scratch);
    oct_pretokenizer_free(&p);
}

/* ---- the reference library's pieces ---- */

static json_t *pieces_list;

static oct_status collect_piece(void *user, const char *word, size_t n, oct_error *err) {
    (void)err;
    json_array_append_new(user, json_stringn(word, n));
    return OCT_OK;
}

static oct_split_behavior behavior_of(const json_t *entry) {
    static const char *const names[] = {"isolated", "removed", "merged_with_previous",
                                        "merged_with_next", "contiguous"};
    const char *name = json_string_value(json_object_get(entry, "behavior"));
    for (int i = 0; i < 5; i++)
        if (strcmp(name, names[i]) == 0)
            return (oct_split_behavior)i;
    fail_msg("unknown behavior %s", name);
    return OCT_SPLIT_ISOLATED;
}

static void check_entry(const json_t *entry) {
    const char *pattern = json_string_value(json_object_get(entry, "pattern"));
    const char *text = json_string_value(json_object_get(entry, "text"));
    const json_t *expected = json_object_get(entry, "pieces");
    oct_pretokenizer p = {0};
    oct_pretokenizer_scratch scratch = {0};
    oct_error err = {0};
    oct_split split = {behavior_of(entry), json_is_true(json_object_get(entry, "invert"))};
    pieces_list = json_array();
    if (oct_pretokenizer_add_split(&p, pattern, strlen(pattern), OCT_PATTERN_REGEX, split, "t",
                                   &err))
        fail_msg("%s: %s", pattern, err.message);
    assert_int_equal(
        oct_pretokenize(&p, &scratch, text, strlen(text), true, collect_piece, pieces_list, &err),
        OCT_OK);
    if (!json_equal(pieces_list, expected))
        fail_msg("%s on \"%s\": %s; expected %s", pattern, text, json_dumps(pieces_list, 0),
                 json_dumps(expected, 0));
    json_decref(pieces_list);
    oct_pretokenizer_scratch_free(&scratch);
    oct_pretokenizer_free(&p);
}

static void given_a_pattern_its_pieces_are_the_reference_librarys(void **state) {
    (void)state;
    char line[8192];
    int n = 0;
    FILE *f = fopen(pieces_path, "r");
    assert_non_null(f);
    for (; fgets(line, sizeof line, f); n++) {
        json_t *entry = json_loads(line, 0, NULL);
        assert_non_null(entry);
        check_entry(entry);
        json_decref(entry);
    }
    fclose(f);
    assert_true(n > 20);
}

static void given_a_name_that_is_not_known_the_pattern_is_refused(void **state) {
    (void)state;
    const char *const patterns[] = {"\\p{Nonesuch}", "[\\p{Age=6.0}a]", "[[:nonesuch:]]", "(",
                                    "\\X"};
    for (size_t i = 0; i < OCT_COUNT(patterns); i++) {
        oct_pretokenizer p = {0};
        oct_error err = {0};
        assert_int_equal(oct_pretokenizer_add_split(&p, patterns[i], strlen(patterns[i]),
                                                    OCT_PATTERN_REGEX, isolated, "t.pattern", &err),
                         OCT_INVALID);
        assert_contains(err.message, "t.pattern");
        oct_pretokenizer_free(&p);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_text_gpt2_words_are_these),
        cmocka_unit_test(given_text_llama3_words_are_these),
        cmocka_unit_test(given_dropped_gaps_only_matches_are_words),
        cmocka_unit_test(given_stray_bytes_each_is_a_word),
        cmocka_unit_test(given_a_large_text_its_words_do_not_depend_on_the_windows),
        cmocka_unit_test(given_a_large_text_in_another_form_it_is_normalised_piece_by_piece),
        cmocka_unit_test(given_a_pattern_that_explodes_the_text_is_refused),
        cmocka_unit_test(given_a_pattern_its_pieces_are_the_reference_librarys),
        cmocka_unit_test(given_a_name_that_is_not_known_the_pattern_is_refused),
    };
    if (argc != 2)
        return 2;
    pieces_path = argv[1];
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
