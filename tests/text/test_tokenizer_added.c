/* Tests of added tokens: which ids they get, and what becomes of neighbours that take the same
 * white space. The expected ids were worked out by hand from the reference library's rules
 * (AddedVocabulary::add_tokens and find_matches); tests/peers compares with the library itself. */
#include "story.h"

#include "base/count.h"
#include "file_support.h"
#include "tokenizer_support.h"

#define ADDED(list) "\"added_tokens\":[" list "]," BYTE_LEVEL

static void given_ids_with_gaps_added_tokens_are_counted_on_from_the_vocabulary(void **state) {
    (void)state;
    put_tokenizer("t.json", ",\"ab\":256", "\"a b\"",
                  ADDED("{\"id\":300,\"content\":\"<a>\"},{\"id\":280,\"content\":\"<b>\"},"
                        "{\"id\":280,\"content\":\"<c>\"},{\"id\":7,\"content\":\"<d>\"}"));
    oct_tokenizer *t = load("t.json");
    assert_int_equal(oct_tokenizer_vocab_size(t), 261);
    assert_ids(t, "<a><b><c><d>ab", 257, 258, 259, 260, 256);
    oct_tokenizer_free(t);
}

static void given_an_entry_of_the_vocabulary_the_added_token_has_its_id(void **state) {
    (void)state;
    put_tokenizer("t.json", ",\"<e>\":256,\"\\u65e5\":257,\"\\u0120x\":258", "",
                  ADDED("{\"id\":999,\"content\":\"\\u65e5\"},{\"id\":5,\"content\":\"<e>\"},"
                        "{\"id\":258,\"content\":\" x\"},{\"id\":259,\"content\":\"\\u0120x\"}"));
    oct_tokenizer *t = load("t.json");
    assert_ids(t, "\xe6\x97\xa5<e>", 257, 256);
    assert_ids(t, "\xc4\xa0x", 258); /* a token's spelling is its text */
    assert_ids(t, " x", 259);        /* ... and no other entry's */
    oct_tokenizer_free(t);
}

static void given_a_token_twice_the_later_flags_count_but_special_stays(void **state) {
    (void)state;
    put_tokenizer("t.json", "", "",
                  ADDED("{\"id\":256,\"content\":\"<a>\",\"special\":true,\"lstrip\":true},"
                        "{\"id\":257,\"content\":\"<b>\"},{\"id\":258,\"content\":\"\"},"
                        "{\"id\":300,\"content\":\"<a>\",\"rstrip\":true}"));
    oct_tokenizer *t = load("t.json");
    oct_strbuf text = {0};
    assert_ids(t, " <a> <b>", ' ', 256, 257);
    const int32_t ids[] = {256, 'x', 257};
    assert_int_equal(oct_tokenizer_decode(t, ids, 3, OCT_SPECIAL_TOKENS_SKIP, &text, NULL), OCT_OK);
    assert_string_equal(text.text, "x<b>");
    oct_strbuf_free(&text);
    oct_tokenizer_free(t);
}

static void given_tokens_of_the_config_they_come_in_the_order_of_their_ids(void **state) {
    (void)state;
    assert_int_equal(oct_make_folders("order", NULL), OCT_OK);
    put_tokenizer("order/tokenizer.json", "", "",
                  ADDED("{\"id\":256,\"content\":\"<a>\",\"normalized\":false}"));
    put_text(
        "order/tokenizer_config.json",
        "{\"added_tokens_decoder\":{\"1000\":{\"content\":\"<c>\"},\"300\":{\"content\":\"<b>\"},"
        "\"256\":{\"content\":\"<a>\",\"lstrip\":true}}}");
    oct_tokenizer *t = load("order");
    assert_ids(t, " <b> <a><c>", ' ', 257, 256, 258);
    oct_tokenizer_free(t);
}

static void given_neighbours_that_take_the_same_space_each_is_there_once(void **state) {
    (void)state;
    put_tokenizer("t.json", "", "",
                  ADDED("{\"id\":256,\"content\":\"<r>\",\"rstrip\":true},"
                        "{\"id\":257,\"content\":\"<l>\",\"lstrip\":true},"
                        "{\"id\":258,\"content\":\"\\t\"},"
                        "{\"id\":259,\"content\":\"\\n\",\"lstrip\":true}"));
    oct_tokenizer *t = load("t.json");
    assert_ids(t, "<r>  <l>x", 256, 257, 'x');
    assert_ids(t, "<r> <r>  x", 256, 256, 'x');
    /* a tab that was taken is a token all the same, and the space behind it is text again */
    assert_ids(t, "<r>\t x", 256, 258, ' ', 'x');
    assert_ids(t, "<r> \nx", 256, 'x'); /* nothing is left of a token that strips to the left */
    assert_ids(t, "<r>\n<l>", 256, 257);
    oct_token_list ids = {0};
    oct_error err = {0};
    assert_int_equal(oct_tokenizer_encode(t, "<r> \n x", 7, OCT_ADDED_TOKENS_FOUND, &ids, &err),
                     OCT_INVALID); /* the reference library has no answer either */
    assert_contains(err.message, "(id 259)");
    assert_one_line(err.message);
    oct_token_list_free(&ids);
    oct_tokenizer_free(t);
}

typedef struct bad_list {
    const char *more, *list, *word;
} bad_list;

static void given_ids_that_cannot_be_given_the_error_names_the_token(void **state) {
    (void)state;
    const bad_list cases[] = {
        {",\"ab\":257", "{\"id\":258,\"content\":\"<a>\"}", "\"<a>\" would get id 257"},
        {",\"ab\":257", "{\"id\":258,\"content\":\"ab\"},{\"id\":259,\"content\":\"<b>\"}",
         "\"<b>\" would get id 257"},
        {"", "{\"id\":256,\"content\":\"e\\u0301\"},{\"id\":257,\"content\":\"\\u00e9\"}",
         "the same after normalising"},
    };
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        oct_error err = {0};
        oct_tokenizer *t = NULL;
        oct_strbuf others = {0};
        oct_strbuf_printf(&others, "\"normalizer\":{\"type\":\"NFC\"},\"added_tokens\":[%s],%s",
                          cases[i].list, BYTE_LEVEL);
        put_tokenizer("bad.json", cases[i].more, "", others.text);
        assert_int_equal(oct_tokenizer_load("bad.json", &t, &err), OCT_INVALID);
        assert_contains(err.message, "bad.json: added_tokens");
        assert_contains(err.message, cases[i].word);
        assert_one_line(err.message);
        oct_strbuf_free(&others);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_ids_with_gaps_added_tokens_are_counted_on_from_the_vocabulary),
        cmocka_unit_test(given_an_entry_of_the_vocabulary_the_added_token_has_its_id),
        cmocka_unit_test(given_a_token_twice_the_later_flags_count_but_special_stays),
        cmocka_unit_test(given_tokens_of_the_config_they_come_in_the_order_of_their_ids),
        cmocka_unit_test(given_neighbours_that_take_the_same_space_each_is_there_once),
        cmocka_unit_test(given_ids_that_cannot_be_given_the_error_names_the_token),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
