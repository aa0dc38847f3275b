/* Tests of vocabularies of pieces, as Llama 2, Mistral and Gemma have them. The expected ids were
 * worked out by hand from the reference library's rules (models::bpe, normalizers, Metaspace,
 * decoders); tests/peers compares random ones with the library itself. */
#include "story.h"

#include "base/count.h"
#include "file_support.h"
#include "tokenizer_support.h"

#define M "\\u2581" /* in JSON */
#define BYTE(b) (3 + (b))
enum { UNK, BOS, EOS, MARK = 259, A, B, MARK_A, AB, MARK_AB, DAY, TWO_DAYS };

#define LLAMA_NORMALIZER                                                                           \
    "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"" M "\"},"        \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" M "\"}]}"
#define LLAMA_DECODER                                                                              \
    "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"" M      \
    "\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"                      \
    "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}"
#define METASPACE(scheme, split)                                                                   \
    "{\"type\":\"Metaspace\",\"replacement\":\"" M "\",\"prepend_scheme\":\"" scheme               \
    "\",\"split\":" split "}"

#define REPLACES(pattern, content)                                                                 \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"" pattern "\"},\"content\":\"" content "\"}"

typedef struct pieces_file {
    const char *normalizer, *pre_tokenizer, *decoder, *model, *more_merges;
    int n_bytes; /* tokens of the first bytes; 0: of all, -1: of none */
} pieces_file;

static const pieces_file llama = {.normalizer = LLAMA_NORMALIZER};

static void put_pieces(const char *path, pieces_file file) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fprintf(f, "{\"normalizer\":%s,\"pre_tokenizer\":%s,\"decoder\":%s,",
            file.normalizer ? file.normalizer : "null",
            file.pre_tokenizer ? file.pre_tokenizer : "null",
            file.decoder ? file.decoder : LLAMA_DECODER);
    fprintf(f, "\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\",\"special\":true},"
               "{\"id\":1,\"content\":\"<s>\",\"special\":true},"
               "{\"id\":2,\"content\":\"</s>\",\"special\":true}],");
    fprintf(f, "\"model\":{\"type\":\"BPE\",%s,\"vocab\":{\"<unk>\":0,\"<s>\":1,\"</s>\":2",
            file.model ? file.model
                       : "\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"byte_fallback\":true");
    for (int byte = 0; byte < 256; byte++)
        if (file.n_bytes == 0 || byte < file.n_bytes)
            fprintf(f, ",\"<0x%02X>\":%d", (unsigned)byte, BYTE(byte));
    fprintf(f,
            ",\"" M "\":%d,\"a\":%d,\"b\":%d,\"" M "a\":%d,\"ab\":%d,\"" M
            "ab\":%d,\"\\u65e5\":%d,\"\\u65e5\\u65e5\":%d,\"<0x41>a\":%d},",
            MARK, A, B, MARK_A, AB, MARK_AB, DAY, TWO_DAYS, TWO_DAYS + 1);
    fprintf(f, "\"merges\":[\"a b\",\"" M " ab\",\"" M " a\",[\"\\u65e5\",\"\\u65e5\"]%s]}}",
            file.more_merges ? file.more_merges : "");
    assert_int_equal(fclose(f), 0);
}

static oct_tokenizer *load_pieces(pieces_file file) {
    put_pieces("pieces.json", file);
    return load("pieces.json");
}

static void assert_decoded(const oct_tokenizer *t, const char *expected, const int32_t *ids,
                           size_t n) {
    oct_strbuf text = {0};
    assert_int_equal(oct_tokenizer_decode(t, ids, n, OCT_SPECIAL_TOKENS_SKIP, &text, NULL), OCT_OK);
    assert_string_equal(text.text, expected);
    oct_strbuf_free(&text);
}

#define assert_text(t, expected, ...)                                                              \
    assert_decoded(t, expected, (int32_t[]){__VA_ARGS__},                                          \
                   sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

static void given_a_file_as_llama_2_has_it_words_begin_with_marks(void **state) {
    (void)state;
    oct_tokenizer *t = load_pieces(llama);
    assert_ids(t, "ab a", MARK_AB, MARK_A);
    assert_ids(t, "a<s>ab", MARK_A, BOS, MARK_AB); /* what follows an added token gets one too */
    assert_ids(t, " b", MARK, MARK, B);
    assert_text(t, "ab a", BOS, MARK_AB, MARK_A, EOS);
    assert_text(t, " b", MARK, MARK, B);
    assert_round_trip(t, " ab  a\nx\xc3\xa9 \xf0\x9f\x98\x80", 16);
    oct_tokenizer_free(t);
}

static void given_a_character_without_a_token_its_bytes_stand_for_it(void **state) {
    (void)state;
    oct_tokenizer *t = load_pieces(llama);
    assert_ids(t, "a\xc3\xa9\n", MARK_A, BYTE(0xC3), BYTE(0xA9), BYTE('\n'));
    assert_ids(t, "\xff", MARK, BYTE(0xFF)); /* nor is it UTF-8 */
    assert_ids(t, "<0x41>", MARK, BYTE('<'), BYTE('0'), BYTE('x'), BYTE('4'), BYTE('1'), BYTE('>'));
    assert_text(t, "\xc3\xa9\n", BYTE(0xC3), BYTE(0xA9), BYTE('\n'));
    oct_tokenizer_free(t);
}

static void given_no_bytes_the_unknown_token_stands_for_characters(void **state) {
    (void)state;
    oct_tokenizer *fused = load_pieces((pieces_file){.n_bytes = -1});
    assert_ids(fused, "axyb z", A, UNK, B, UNK); /* a space has no token either */
    oct_tokenizer_free(fused);
    oct_tokenizer *single =
        load_pieces((pieces_file){.model = "\"unk_token\":\"<unk>\",\"byte_fallback\":false"});
    assert_ids(single, "axyb", A, UNK, UNK, B);
    oct_tokenizer_free(single);
}

static void given_no_token_for_a_character_the_error_names_it(void **state) {
    (void)state;
    oct_error err = {0};
    oct_token_list ids = {0};
    oct_tokenizer *t = load_pieces((pieces_file){.model = "\"byte_fallback\":false"});
    assert_int_equal(oct_tokenizer_encode(t, "ax", 2, OCT_ADDED_TOKENS_FOUND, &ids, &err),
                     OCT_INVALID);
    assert_non_null(strstr(err.message, "\"x\" (first byte 0x78)"));
    oct_token_list_free(&ids);
    oct_tokenizer_free(t);
}

static void given_metaspace_its_scheme_says_where_marks_are_put(void **state) {
    (void)state;
    oct_tokenizer *t = load_pieces((pieces_file){.pre_tokenizer = METASPACE("first", "false")});
    assert_ids(t, "ab<s>ab a", MARK_AB, BOS, AB, MARK_A);
    assert_ids(t, " ab", MARK_AB);
    oct_tokenizer_free(t);
    t = load_pieces((pieces_file){.pre_tokenizer = METASPACE("always", "true")});
    assert_ids(t, "ab<s>ab", MARK_AB, BOS, MARK_AB);
    oct_tokenizer_free(t);
    t = load_pieces((pieces_file){.pre_tokenizer = METASPACE("never", "true")});
    assert_ids(t, "ab<s>ab a", AB, BOS, AB, MARK_A);
    oct_tokenizer_free(t);
}

static void given_a_metaspace_decoder_marks_of_the_first_token_go(void **state) {
    (void)state;
    oct_tokenizer *t = load_pieces((pieces_file){.decoder = METASPACE("always", "true")});
    assert_text(t, "ab a", BOS, MARK_AB, MARK_A);
    oct_tokenizer_free(t);
    t = load_pieces((pieces_file){.decoder = METASPACE("never", "true")});
    assert_text(t, " ab a", MARK_AB, MARK_A);
    oct_tokenizer_free(t);
}

static void given_a_text_without_words_it_is_merged_part_by_part(void **state) {
    (void)state;
    enum { N = 5001 };
    char *text = malloc(3 * N);
    int32_t expected[N / 2 + 2] = {MARK};
    assert_non_null(text);
    for (int i = 0; i < N; i++)
        memcpy(text + 3 * i, "\xe6\x97\xa5", 3);
    for (int i = 0; i < N / 2; i++)
        expected[1 + i] = TWO_DAYS;
    expected[N / 2 + 1] = DAY;
    oct_tokenizer *t = load_pieces(llama);
    assert_ids_n(t, text, 3 * N, OCT_ADDED_TOKENS_FOUND, expected, N / 2 + 2);
    oct_tokenizer_free(t);
    free(text);
}

static void given_parts_that_are_not_known_here_one_line_names_them(void **state) {
    (void)state;
    static const struct {
        pieces_file file;
        const char *expected;
    } cases[] = {
        {{.n_bytes = 100}, "got 100 of them, without <0x64>"},
        {{.more_merges = ",[\"<0x41>\",\"a\"]"}, "model.merges[4]: not supported"},
        {{.normalizer = LLAMA_NORMALIZER, .pre_tokenizer = METASPACE("first", "true")},
         "behind a normalizer that prepends"},
        {{.pre_tokenizer = METASPACE("last", "true")}, "prepend_scheme: unknown"},
        {{.decoder = "{\"type\":\"WordPiece\"}"}, "decoder: not supported"},
        {{.decoder = "null"}, "decoder: not supported"},
        {{.normalizer = "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a+\"},\"content\":\"b\"}"},
         "got a regular expression"},
        {{.normalizer = REPLACES("a", "bbbbbbbbb")}, "at most 8 times longer"},
        {{.normalizer = "{\"type\":\"Sequence\",\"normalizers\":[" REPLACES(
              "a", "bbb") "," REPLACES("b", "aaa") "]}"},
         "at most 8 times longer"},
        {{.decoder = REPLACES("a", "bbbbbbbbb")}, "decoder: not supported"},
        {{.normalizer = "{\"type\":\"NFKC\"}"}, "NFC, Prepend, Replace"},
        {{.pre_tokenizer = "{\"type\":\"Whitespace\"}"}, "Metaspace"},
    };
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        oct_error err = {0};
        oct_tokenizer *t = NULL;
        put_pieces("wrong.json", cases[i].file);
        assert_int_equal(oct_tokenizer_load("wrong.json", &t, &err), OCT_INVALID);
        if (!strstr(err.message, cases[i].expected))
            fail_msg("expected \"%s\" in \"%s\"", cases[i].expected, err.message);
        assert_null(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_a_file_as_llama_2_has_it_words_begin_with_marks),
        cmocka_unit_test(given_a_character_without_a_token_its_bytes_stand_for_it),
        cmocka_unit_test(given_no_bytes_the_unknown_token_stands_for_characters),
        cmocka_unit_test(given_no_token_for_a_character_the_error_names_it),
        cmocka_unit_test(given_metaspace_its_scheme_says_where_marks_are_put),
        cmocka_unit_test(given_a_metaspace_decoder_marks_of_the_first_token_go),
        cmocka_unit_test(given_a_text_without_words_it_is_merged_part_by_part),
        cmocka_unit_test(given_parts_that_are_not_known_here_one_line_names_them),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
