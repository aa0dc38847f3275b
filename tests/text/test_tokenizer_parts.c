/* Parts of tokenizer.json files as the reference library has them; the ids are by hand from its
 * rules. */
#include "story.h"

#include "base/count.h"
#include "file_support.h"
#include "tokenizer_support.h"

static void given_numbers_beyond_json_a_tokenizer_loads(void **state) {
    (void)state;
    assert_int_equal(oct_make_folders("big", NULL), OCT_OK);
    put_tokenizer("big/tokenizer.json", "", "", BYTE_LEVEL);
    put_text("big/tokenizer_config.json",
             "\xef\xbb\xbf{\"model_max_length\": 1000000000000000019884624838656, \"eos_token\": "
             "\"a\", \"x\":[NaN,-Infinity,1e999,-12345678901234567890]}");
    oct_tokenizer *t = load("big");
    assert_int_equal(oct_tokenizer_eos(t), 'a');
    oct_tokenizer_free(t);
}

static void given_nul_in_a_key_the_token_is_there(void **state) {
    (void)state;
    put_tokenizer("t.json", ",\"\\u0000\":256,\"x\\u0000\":257", "", BYTE_LEVEL);
    oct_tokenizer *t = load("t.json");
    size_t n;
    assert_memory_equal(oct_tokenizer_token(t, 257, &n), "x\0", 2);
    assert_int_equal(n, 2);
    assert_int_equal(*oct_tokenizer_token(t, 256, &n), 0);
    assert_ids_n(t, "\0", 1, OCT_ADDED_TOKENS_FOUND, (int32_t[]){0}, 1); /* the byte, not the key */
    oct_tokenizer_free(t);
}

/* A vocabulary of a, b and what `more` adds. */
static void put_small(const char *path, const char *more, const char *merges, const char *others) {
    oct_strbuf text = {0};
    oct_strbuf_printf(
        &text, "{%s,\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1%s},\"merges\":[%s]}}",
        others, more, merges);
    put_text(path, text.text);
    oct_strbuf_free(&text);
}

static void given_a_byte_without_a_token_the_unknown_one_stands_for_it(void **state) {
    (void)state;
    put_small("t.json", ",\"<unk>\":2", "],\"unk_token\":\"<unk>\",\"x\":[", BYTE_LEVEL);
    oct_tokenizer *t = load("t.json");
    assert_ids(t, "acdb", 0, 2, 2, 1);
    oct_tokenizer_free(t);
    put_small("t.json", ",\"<unk>\":2", "],\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"x\":[",
              BYTE_LEVEL);
    t = load("t.json");
    assert_ids(t, "acdbc", 0, 2, 1, 2);
    oct_tokenizer_free(t);
}

static void given_a_byte_without_any_token_the_error_names_it(void **state) {
    (void)state;
    oct_error err = {0};
    oct_token_list ids = {0};
    put_small("t.json", "", "", BYTE_LEVEL);
    oct_tokenizer *t = load("t.json");
    assert_ids(t, "abba", 0, 1, 1, 0);
    assert_int_equal(oct_tokenizer_encode(t, "ab\xc3\xa9", 4, OCT_ADDED_TOKENS_FOUND, &ids, &err),
                     OCT_INVALID);
    assert_contains(err.message, "0xc3");
    oct_token_list_free(&ids);
    oct_tokenizer_free(t);
}

static void given_a_merge_twice_the_later_rank_counts(void **state) {
    (void)state;
    put_tokenizer("t.json", ",\"ab\":256,\"bc\":257", "\"a b\",\"b c\",\"a b\"", BYTE_LEVEL);
    oct_tokenizer *t = load("t.json");
    assert_ids(t, "abc", 'a', 257);
    oct_tokenizer_free(t);
}

static void given_digits_and_punctuation_they_cut(void **state) {
    (void)state;
    const char *more = ",\"12\":256,\"!!\":257,\"a1\":258,\"a!\":259";
    const char *merges = "\"1 2\",\"! !\",\"a 1\",\"a !\"";
    const char *const parts[] = {"{\"type\":\"Digits\",\"individual_digits\":true}",
                                 "{\"type\":\"Digits\",\"individual_digits\":false}",
                                 "{\"type\":\"Punctuation\",\"behavior\":\"Contiguous\"}",
                                 "{\"type\":\"Punctuation\"}",
                                 "{\"type\":\"Split\",\"pattern\":{\"String\":\"!\"},\"behavior\":"
                                 "\"MergedWithPrevious\",\"invert\":false}"};
    const int32_t expected[][7] = {{'a', '1', '2', 257, 259, -1},
                                   {'a', 256, 257, 259, -1},
                                   {'a', 256, 257, 'a', '!', -1},
                                   {'a', 256, '!', '!', 'a', '!', -1},
                                   {'a', 256, '!', '!', 259, -1}};
    for (size_t i = 0; i < 5; i++) {
        oct_strbuf others = {0};
        size_t n = 0;
        oct_strbuf_printf(
            &others,
            "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[%s,{\"type\":"
            "\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]}",
            parts[i]);
        put_tokenizer("t.json", more, merges, others.text);
        oct_tokenizer *t = load("t.json");
        while (expected[i][n] >= 0)
            n++;
        assert_ids_n(t, "a12!!a!", 7, OCT_ADDED_TOKENS_FOUND, expected[i], n);
        oct_tokenizer_free(t);
        oct_strbuf_free(&others);
    }
}

static oct_status append_ids(void *user, const int32_t *ids, size_t n, oct_error *err) {
    (void)err;
    return oct_token_list_append(user, ids, n);
}

static void assert_whole(const char *others, const char *text, const int32_t *expected, size_t n) {
    oct_token_list ids = {0};
    put_tokenizer("t.json", ",\"<s>\":256,\"</s>\":257", "", others);
    oct_tokenizer *t = load("t.json");
    assert_int_equal(oct_tokenizer_encode_whole(t, text, strlen(text), OCT_ADDED_TOKENS_FOUND,
                                                append_ids, &ids, NULL),
                     OCT_OK);
    assert_int_equal(ids.n, n);
    assert_memory_equal(ids.ids, expected, n * sizeof *expected);
    oct_token_list_free(&ids);
    oct_tokenizer_free(t);
}

#define TEMPLATE                                                                                   \
    "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":"  \
    "0}},{"                                                                                        \
    "\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[],\"special_tokens\":{\"<s>\":{\"id\":" \
    "\"<s>\","                                                                                     \
    "\"ids\":[256],\"tokens\":[\"<s>\"]}}}"

static void given_a_post_processor_its_tokens_stand_around_a_whole_text(void **state) {
    (void)state;
    assert_whole("\"post_processor\":" TEMPLATE "," BYTE_LEVEL, "ab", (int32_t[]){256, 'a', 'b'},
                 3);
    assert_whole("\"post_processor\":{\"type\":\"RobertaProcessing\",\"sep\":[\"</"
                 "s>\",257],\"cls\":[\"<s>\",256]}," BYTE_LEVEL,
                 "ab", (int32_t[]){256, 'a', 'b', 257}, 4);
    assert_whole("\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{\"type\":"
                 "\"ByteLevel\"}," TEMPLATE "]}," BYTE_LEVEL,
                 "ab", (int32_t[]){256, 'a', 'b'}, 3);
}

static void given_truncation_a_whole_text_is_cut_with_its_tokens_counted(void **state) {
    (void)state;
    const char *right =
        "\"truncation\":{\"direction\":\"Right\",\"max_length\":3,\"strategy\":\"LongestFirst\","
        "\"stride\":0},\"post_processor\":" TEMPLATE "," BYTE_LEVEL;
    const char *left =
        "\"truncation\":{\"direction\":\"Left\",\"max_length\":2,\"strategy\":\"OnlyFirst\","
        "\"stride\":0}," BYTE_LEVEL;
    assert_whole(right, "abcdef", (int32_t[]){256, 'a', 'b'}, 3);
    assert_whole(left, "abcdef", (int32_t[]){'e', 'f'}, 2);
}

static void given_a_normalized_added_token_it_is_found_in_normalised_text(void **state) {
    (void)state;
    put_tokenizer("t.json", "", "",
                  "\"added_tokens\":[{\"id\":256,\"content\":\"caf\xc3\xa9\",\"normalized\":true},{"
                  "\"id\":257,"
                  "\"content\":\"e\xcc\x81!\",\"normalized\":false}],\"normalizer\":{\"type\":"
                  "\"NFC\"}," BYTE_LEVEL);
    oct_tokenizer *t = load("t.json");
    assert_ids(t, "x cafe\xcc\x81", 'x', ' ', 256);
    assert_ids(t, "caf\xc3\xa9", 256);
    assert_ids(t, "cafe\xcc\x81!", 'c', 'a', 'f', 257); /* tokens of the text as it is come first */
    oct_tokenizer_free(t);
}

static void
given_a_longer_token_that_may_not_stand_there_the_shorter_one_is_not_tried(void **state) {
    (void)state;
    put_tokenizer("t.json", "", "",
                  "\"added_tokens\":[{\"id\":256,\"content\":\"ab\",\"normalized\":false},{\"id\":"
                  "257,\"content\":"
                  "\"abc\",\"single_word\":true,\"normalized\":false}]," BYTE_LEVEL);
    oct_tokenizer *t = load("t.json");
    assert_ids(t, "ab abc", 256, ' ', 257);
    assert_ids(t, "abcd", 'a', 'b', 'c', 'd');
    oct_tokenizer_free(t);
}

static void given_thousands_of_added_tokens_each_is_found(void **state) {
    (void)state;
    oct_strbuf others = {0}, text = {0};
    oct_token_list ids = {0};
    oct_strbuf_puts(&others, "\"added_tokens\":[");
    for (int i = 0; i < 20000; i++) {
        oct_strbuf_printf(&others, "%s{\"id\":%d,\"content\":\"<extra_%d>\"}", i ? "," : "",
                          256 + i, i);
        oct_strbuf_printf(&text, "<extra_%d>", 19999 - i);
    }
    oct_strbuf_puts(&others, "]," BYTE_LEVEL);
    put_tokenizer("t.json", "", "", others.text);
    oct_tokenizer *t = load("t.json");
    assert_int_equal(
        oct_tokenizer_encode(t, text.text, text.length, OCT_ADDED_TOKENS_FOUND, &ids, NULL),
        OCT_OK);
    assert_int_equal(ids.n, 20000);
    for (int i = 0; i < 20000; i++)
        assert_int_equal(ids.ids[i], 256 + 19999 - i);
    oct_token_list_free(&ids);
    oct_strbuf_free(&others);
    oct_strbuf_free(&text);
    oct_tokenizer_free(t);
}

static void assert_ends(const char *path, int32_t bos, int32_t eos) {
    oct_tokenizer *t = load(path);
    assert_int_equal(oct_tokenizer_bos(t), bos);
    assert_int_equal(oct_tokenizer_eos(t), eos);
    oct_tokenizer_free(t);
}

static void given_a_special_tokens_map_it_names_the_ends(void **state) {
    (void)state;
    assert_int_equal(oct_make_folders("map", NULL), OCT_OK);
    put_tokenizer("map/tokenizer.json", ",\"<x>\":256,\"<y>\":257", "", BYTE_LEVEL);
    put_text("map/tokenizer_config.json", "{\"bos_token\":\"\"}");
    put_text("map/special_tokens_map.json",
             "{\"eos_token\":{\"content\":\"<y>\"},\"bos_token\":\"<x>\"}");
    /* Without added_tokens_decoder, what older folders are, the map wins: transformers 4.57, 5.24.
     */
    assert_ends("map", 256, 257);
    put_text("map/tokenizer_config.json", "{\"bos_token\":\"<y>\",\"eos_token\":null}");
    assert_ends("map", 256, 257);
    put_text("map/tokenizer_config.json", "{\"added_tokens_decoder\":{},\"bos_token\":\"\"}");
    assert_ends("map", -1, 257); /* "" says that there is none */
    put_text("map/special_tokens_map.json", "{\"eos_token\":\"<x>\"}");
    put_text("map/tokenizer_config.json", "{\"bos_token\":\"<y>\",\"eos_token\":\"<y>\"}");
    assert_ends("map", 257, 256);
}

/* As the reference library (0.23): one version, no other parts, whatever they hold. */
static void given_parts_or_a_version_that_are_unknown_the_file_is_refused(void **state) {
    (void)state;
    static const char *const wrong[][2] = {
        {"\"normalizers\":{\"type\":\"NFKC\"},",
         "normalizers: unknown key; did you mean normalizer"},
        {"\"x\":1,", "x: unknown key"},
        {"\"version\":\"2.0\",", "version: expected \"1.0\"; got 2.0"},
        {"\"version\":null,", "version: expected \"1.0\"; got null"}};
    for (size_t i = 0; i < OCT_COUNT(wrong); i++) {
        char more[512];
        oct_tokenizer *t = NULL;
        oct_error err = {0};
        snprintf(more, sizeof more, "%s" BYTE_LEVEL, wrong[i][0]);
        put_tokenizer("t.json", "", "", more);
        assert_int_equal(oct_tokenizer_load("t.json", &t, &err), OCT_INVALID);
        assert_contains(err.message, wrong[i][1]);
    }
    put_tokenizer("t.json", "", "", "\"version\":\"1.0\"," BYTE_LEVEL);
    oct_tokenizer_free(load("t.json"));
}

static void given_tokens_in_the_config_beside_it_they_are_added(void **state) {
    (void)state;
    assert_int_equal(oct_make_folders("decoder", NULL), OCT_OK);
    put_tokenizer("decoder/tokenizer.json", "", "",
                  "\"added_tokens\":[{\"id\":256,\"content\":\"<a>\"}]," BYTE_LEVEL);
    put_text("decoder/tokenizer_config.json", "{\"added_tokens_decoder\":{\"256\":{\"content\":\"<"
                                              "a>\"},\"400\":{\"content\":\"<b>\",\"special\":true,"
                                              "\"normalized\":false}},\"bos_token\":\"<b>\"}");
    oct_tokenizer *t = load("decoder");
    assert_ids(t, "<a>x<b>", 256, 'x', 257);
    assert_int_equal(oct_tokenizer_bos(t), 257);
    oct_tokenizer_free(t);
    oct_error err = {0};
    put_text("decoder/tokenizer_config.json",
             "{\"added_tokens_decoder\":{\"x\":{\"content\":\"<b>\"}}}");
    assert_int_equal(oct_tokenizer_load("decoder", &t, &err), OCT_INVALID);
    assert_contains(err.message, "tokenizer_config.json: added_tokens_decoder.x");
}

/* U+1ACE is a mark of a class below U+0E4A's, but newer than the reference library's NFC. */
static void given_a_mark_that_its_nfc_does_not_know_it_stays_where_it_is(void **state) {
    (void)state;
    put_tokenizer("t.json", "", "", "\"normalizer\":{\"type\":\"NFC\"}," BYTE_LEVEL);
    oct_tokenizer *t = load("t.json");
    assert_ids(t, "\xe0\xb9\x8a\xe1\xab\x8e", 0xe0, 0xb9, 0x8a, 0xe1, 0xab, 0x8e);
    assert_ids(t, "e\xcc\x81\xdf\xbd", 0xc3, 0xa9, 0xdf, 0xbd); /* what is before it is composed */
    oct_tokenizer_free(t);
}

/* As Falcon has it: digits and a pattern behind ByteLevel cut what bytes are spelt as. */
static void given_parts_behind_byte_level_they_cut_the_spelling(void **state) {
    (void)state;
    put_tokenizer(
        "t.json", ",\"12\":256,\"34\":257,\"45\":258", "\"1 2\",\"4 5\",\"3 4\"",
        "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\","
        "\"add_prefix_space\":false,\"use_regex\":false},{\"type\":\"Digits\",\"individual_"
        "digits\":"
        "false},{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[0-9][0-9][0-9]\"},\"behavior\":"
        "\"Isolated\",\"invert\":false}]}");
    oct_tokenizer *t = load("t.json");
    assert_ids(t, "12345 x", 256, '3', 258, ' ', 'x'); /* 123 | 45 |  x */
    oct_tokenizer_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_numbers_beyond_json_a_tokenizer_loads),
        cmocka_unit_test(given_nul_in_a_key_the_token_is_there),
        cmocka_unit_test(given_a_byte_without_a_token_the_unknown_one_stands_for_it),
        cmocka_unit_test(given_a_byte_without_any_token_the_error_names_it),
        cmocka_unit_test(given_a_merge_twice_the_later_rank_counts),
        cmocka_unit_test(given_digits_and_punctuation_they_cut),
        cmocka_unit_test(given_a_post_processor_its_tokens_stand_around_a_whole_text),
        cmocka_unit_test(given_truncation_a_whole_text_is_cut_with_its_tokens_counted),
        cmocka_unit_test(given_a_normalized_added_token_it_is_found_in_normalised_text),
        cmocka_unit_test(
            given_a_longer_token_that_may_not_stand_there_the_shorter_one_is_not_tried),
        cmocka_unit_test(given_thousands_of_added_tokens_each_is_found),
        cmocka_unit_test(given_a_special_tokens_map_it_names_the_ends),
        cmocka_unit_test(given_parts_or_a_version_that_are_unknown_the_file_is_refused),
        cmocka_unit_test(given_tokens_in_the_config_beside_it_they_are_added),
        cmocka_unit_test(given_a_mark_that_its_nfc_does_not_know_it_stays_where_it_is),
        cmocka_unit_test(given_parts_behind_byte_level_they_cut_the_spelling),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
