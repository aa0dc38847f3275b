/* Tokenizers: reading tokenizer.json, splitting, encoding, decoding, training. */
#include "story.h"

#include "file_support.h"
#include "tokenizer_support.h"

#include "base/count.h"
#include "base/rng.h"
#include "base/thread.h"
#include "text/bpe.h"
#include "text/pretokenize.h"
#include "text/tokenizer.h"

static oct_tokenizer *train(const char *text, int64_t vocab_size, oct_split_rule split,
                            int64_t *n_tokens) {
    oct_error err = {0};
    const char *path = "text.txt";
    oct_tokenizer_train_options options = {.vocab_size = vocab_size, .split = split};
    put_text(path, text);
    if (oct_tokenizer_train(&path, 1, &options, "trained.json", n_tokens, &err))
        fail_msg("%s", err.message);
    return load("trained.json");
}

static const char *const sample =
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age "
    "of foolishness, it was the epoch of belief, it was the epoch of incredulity, it was the "
    "season "
    "of Light, it was the season of Darkness, it was the spring of hope, it was the winter of "
    "despair.\n\nWe had everything before us, we had nothing before us; 1775, 1776, 177512.\n"
    "\xc3\x9c\x62\x65r \xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e \xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e\n";

/* ---- training ---- */

static void given_a_tiny_text_training_gives_the_merges_made_by_hand(void **state) {
    (void)state;
    int64_t n;
    /* Words: "ab" once, " ab" twice. (a,b) occurs 3 times, then (" ","ab") twice. */
    oct_tokenizer *t = train("ab ab ab", 300, OCT_SPLIT_GPT2, &n);
    assert_int_equal(n, 259);
    assert_int_equal(oct_tokenizer_vocab_size(t), 259);
    assert_int_equal(oct_tokenizer_find(t, "ab", 2), 257);
    assert_int_equal(oct_tokenizer_find(t, " ab", 3), 258);
    assert_ids(t, "ab ab ab", 257, 258, 258);
    assert_int_equal(oct_tokenizer_eos(t), 0);
    assert_int_equal(oct_tokenizer_bos(t), -1);
    oct_tokenizer_free(t);
}

static void given_equally_frequent_pairs_the_lower_ids_merge_first(void **state) {
    (void)state;
    oct_tokenizer *t = train("cd\nab\ncd\nab\n", 259, OCT_SPLIT_GPT2, NULL);
    assert_int_equal(oct_tokenizer_find(t, "ab", 2), 257);
    assert_int_equal(oct_tokenizer_find(t, "cd", 2), 258);
    oct_tokenizer_free(t);
}

static void given_a_run_of_one_letter_overlapping_pairs_are_merged_from_the_left(void **state) {
    (void)state;
    oct_tokenizer *t = train("aaaaa aaaaa", 400, OCT_SPLIT_GPT2, NULL);
    /* Both words end as aa aa a. Then (aa,aa) and (aa,a) both occur twice; a has the lower id. */
    int32_t aa = oct_tokenizer_find(t, "aa", 2);
    assert_int_equal(aa, 257);
    int32_t aaa = oct_tokenizer_find(t, "aaa", 3);
    assert_int_equal(aaa, 258);
    assert_round_trip(t, "aaaaaaaaaaa", 11);
    oct_tokenizer_free(t);
}

static void given_the_same_text_twice_the_tokenizer_files_are_identical(void **state) {
    (void)state;
    size_t n_first, n_second;
    for (int split = 0; split < 2; split++) {
        oct_tokenizer *first = train(sample, 320, (oct_split_rule)split, NULL);
        char *a = get_file("trained.json", &n_first);
        oct_tokenizer *second = train(sample, 320, (oct_split_rule)split, NULL);
        char *b = get_file("trained.json", &n_second);
        assert_int_equal(n_first, n_second);
        assert_memory_equal(a, b, n_first);
        assert_true(oct_tokenizer_hash(first) == oct_tokenizer_hash(second));
        oct_free(a);
        oct_free(b);
        oct_tokenizer_free(first);
        oct_tokenizer_free(second);
    }
}

static void given_other_rules_or_texts_the_hash_is_another(void **state) {
    (void)state;
    oct_tokenizer *gpt2 = train(sample, 300, OCT_SPLIT_GPT2, NULL);
    oct_tokenizer *llama3 = train(sample, 300, OCT_SPLIT_LLAMA3, NULL);
    oct_tokenizer *larger = train(sample, 301, OCT_SPLIT_GPT2, NULL);
    assert_true(oct_tokenizer_hash(gpt2) != oct_tokenizer_hash(llama3));
    assert_true(oct_tokenizer_hash(gpt2) != oct_tokenizer_hash(larger));
    oct_tokenizer_free(gpt2);
    oct_tokenizer_free(llama3);
    oct_tokenizer_free(larger);
}

static void given_impossible_training_input_one_line_says_so(void **state) {
    (void)state;
    const char *missing = "missing.txt", *empty = "empty.txt";
    oct_tokenizer_train_options options = {.vocab_size = 300};
    oct_error err = {0};
    put_text(empty, "");
    assert_int_equal(oct_tokenizer_train(&missing, 1, &options, "o.json", NULL, &err), OCT_INVALID);
    assert_contains(err.message, "missing.txt");
    err = (oct_error){0};
    assert_int_equal(oct_tokenizer_train(&empty, 1, &options, "o.json", NULL, &err), OCT_INVALID);
    assert_contains(err.message, "no text");
    err = (oct_error){0};
    options.vocab_size = 256;
    assert_int_equal(oct_tokenizer_train(&empty, 1, &options, "o.json", NULL, &err), OCT_INVALID);
    assert_contains(err.message, "257");
    err = (oct_error){0};
    options.vocab_size = 300;
    put_text(empty, "some text");
    assert_int_equal(oct_tokenizer_train(&empty, 1, &options, "no/o.json", NULL, &err), OCT_FAILED);
    assert_contains(err.message, "no/o.json");
    assert_false(oct_path_exists("o.json"));
}

/* ---- encoding ---- */

static void given_any_bytes_decoding_gives_them_back(void **state) {
    (void)state;
    for (int split = 0; split < 2; split++) {
        oct_tokenizer *t = train(sample, 400, (oct_split_rule)split, NULL);
        char text[64];
        assert_round_trip(t, sample, strlen(sample));
        for (uint64_t k = 0; k < 3000; k++) {
            size_t n = oct_rng_below(1, 1, k, sizeof text + 1);
            for (size_t i = 0; i < n; i++) { /* all bytes, or mostly those of UTF-8 and spaces */
                uint8_t byte = (uint8_t)oct_rng_below(2, k, i, 256);
                text[i] = k % 2 ? (char)byte : " \n'sab1\xc3\x9c\xe6\x97\xa5"[byte % 13];
            }
            assert_round_trip(t, text, n);
        }
        oct_tokenizer_free(t);
    }
}

static void given_every_byte_alone_its_token_is_one(void **state) {
    (void)state;
    put_tokenizer("t.json", "", "", BYTE_LEVEL);
    oct_tokenizer *t = load("t.json");
    for (int byte = 0; byte < 256; byte++) {
        char c = (char)byte;
        int32_t expected = byte;
        assert_ids_n(t, &c, 1, OCT_ADDED_TOKENS_FOUND, &expected, 1);
    }
    oct_tokenizer_free(t);
}

/* All pairs are looked at anew for each merge. */
static size_t merge_naively(const oct_bpe *bpe, int32_t *ids, size_t n) {
    for (;;) {
        const oct_bpe_merge *best = NULL;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            const oct_bpe_merge *m = oct_bpe_find_merge(bpe, ids[i], ids[i + 1]);
            if (m && (!best || m->rank < best->rank)) {
                best = m;
                at = i;
            }
        }
        if (!best)
            return n;
        ids[at] = best->id;
        memmove(ids + at + 1, ids + at + 2, (n - at - 2) * sizeof *ids);
        n--;
    }
}

static void given_random_merges_the_heap_agrees_with_looking_at_all_pairs(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        oct_bpe bpe = {0};
        oct_bpe_scratch scratch = {0};
        for (int byte = 0; byte < 256; byte++)
            assert_int_equal(oct_bpe_add_token(&bpe, byte, &(char){(char)byte}, 1, true), OCT_OK);
        assert_int_equal(oct_bpe_finish(&bpe), OCT_OK);
        bpe.unk = -1;
        for (uint64_t k = 0; k < 200; k++) { /* joins of any two tokens made of a, b, c */
            int32_t part[2];
            char joined[512];
            size_t n = 0;
            for (uint64_t i = 0; i < 2; i++) {
                uint64_t pick = oct_rng_below(seed, k, i, 3 + (uint64_t)bpe.n_ids - 256);
                part[i] = pick < 3 ? 'a' + (int32_t)pick : 256 + (int32_t)pick - 3;
                memcpy(joined + n, bpe.pool + bpe.tokens[part[i]].offset,
                       bpe.tokens[part[i]].n_bytes);
                n += bpe.tokens[part[i]].n_bytes;
            }
            if (n > 12)
                continue;
            if (oct_bpe_find(&bpe, joined, n) < 0)
                assert_int_equal(oct_bpe_add_token(&bpe, (int32_t)bpe.n_ids, joined, n, true),
                                 OCT_OK);
            if (!oct_bpe_find_merge(&bpe, part[0], part[1]))
                assert_int_equal(oct_bpe_add_merge(&bpe, part[0], part[1]), OCT_OK);
        }
        assert_int_equal(oct_bpe_finish(&bpe), OCT_OK); /* again, with what was added since */
        for (uint64_t k = 0; k < 100; k++) {
            char word[200];
            int32_t expected[200];
            oct_token_list ids = {0};
            size_t n = 1 + oct_rng_below(seed, 1000, k, sizeof word);
            for (size_t i = 0; i < n; i++) {
                word[i] = "abc"[oct_rng_below(seed, 2000 + k, i, 3)];
                expected[i] = word[i];
            }
            size_t n_expected = merge_naively(&bpe, expected, n);
            for (int again = 0; again < 2; again++) { /* the second time from the cache */
                ids.n = 0;
                assert_int_equal(oct_bpe_encode_word(&bpe, &scratch, word, n, &ids), OCT_OK);
                assert_int_equal(ids.n, n_expected);
                assert_memory_equal(ids.ids, expected, n_expected * sizeof *expected);
            }
            oct_token_list_free(&ids);
        }
        for (uint64_t k = 0; k < 20; k++) { /* a long word gives the same in parts */
            char word[1500];
            int32_t expected[1500];
            oct_token_list ids = {0};
            for (size_t i = 0; i < sizeof word; i++) {
                uint64_t letter = oct_rng_below(seed, 4000 + k, i, 30);
                word[i] = k % 2 ? "abc"[letter % 3] : "aaaaaaaab"[letter % 9]; /* long runs too */
                expected[i] = word[i];
            }
            size_t n_expected = merge_naively(&bpe, expected, sizeof word);
            size_t window = 16 + 8 * (size_t)(k % 5), n_parts = 0;
            for (size_t at = 0, used; at < sizeof word; at += used, n_parts++)
                assert_int_equal(oct_bpe_encode_part(&bpe, &scratch, word + at, sizeof word - at,
                                                     window, &ids, &used),
                                 OCT_OK);
            assert_in_range(n_parts, 2, sizeof word - 1);
            assert_int_equal(ids.n, n_expected);
            assert_memory_equal(ids.ids, expected, n_expected * sizeof *expected);
            oct_token_list_free(&ids);
        }
        oct_bpe_scratch_free(&scratch);
        oct_bpe_free(&bpe);
    }
}

static void given_merges_as_text_or_as_pairs_ids_are_equal(void **state) {
    (void)state;
    const char *more = ",\"ab\":256,\"abc\":257";
    put_tokenizer("text.json", more, "\"a b\",\"ab c\"", BYTE_LEVEL);
    put_tokenizer("pairs.json", more, "[\"a\",\"b\"],[\"ab\",\"c\"]", BYTE_LEVEL);
    oct_tokenizer *text = load("text.json"), *pairs = load("pairs.json");
    assert_ids(text, "abcab", 257, 256);
    assert_ids(pairs, "abcab", 257, 256);
    assert_true(oct_tokenizer_hash(text) == oct_tokenizer_hash(pairs));
    oct_tokenizer_free(text);
    oct_tokenizer_free(pairs);
}

static void given_ignore_merges_a_word_that_is_a_token_stays_whole(void **state) {
    (void)state;
    const char *more = ",\"ab\":256,\"abc\":257";
    put_tokenizer("t.json", more, "\"a b\"],\"ignore_merges\":true,\"x\":[", BYTE_LEVEL);
    oct_tokenizer *t = load("t.json");
    assert_ids(t, "abc", 257); /* no merge makes it */
    assert_ids(t, "abcd", 256, 99, 100);
    oct_tokenizer_free(t);
}

/* DeepSeek V3's chain: numbers, then Chinese and Japanese, then the rest. */
static void given_a_chain_of_splits_each_cuts_the_pieces_of_the_one_before(void **state) {
    (void)state;
    put_tokenizer(
        "t.json", ",\"12\":256,\"ab\":257,\"1a\":258,\"\\u0120x\":259",
        "\"1 2\",\"a b\",\"1 a\",\"\\u0120 x\"",
        "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
        "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\p{N}{1,2}\"},\"behavior\":\"Isolated\"},"
        "{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"Isolated\"},"
        "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\d+|\\\\s+|x+\"},\"behavior\":\"Removed\","
        "\"invert\":true},"
        "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]}");
    oct_tokenizer *t = load("t.json");
    /* 12|1|a|b x after two of them; the last drops what it doesn't match and parts " " from "x". */
    assert_ids(t, "121ab x", 256, '1', ' ', 'x');
    oct_tokenizer_free(t);
}

static void given_form_c_composed_and_decomposed_text_are_equal(void **state) {
    (void)state;
    put_tokenizer("t.json", "", "", "\"normalizer\":{\"type\":\"NFC\"}," BYTE_LEVEL);
    oct_tokenizer *t = load("t.json");
    assert_ids(t, "e\xcc\x81!", 0xc3, 0xa9, '!');
    assert_ids(t, "\xc3\xa9!", 0xc3, 0xa9, '!');
    assert_ids(t,
               "\xff"
               "e\xcc\x81",
               0xff, 0xc3, 0xa9); /* around a stray byte too */
    oct_tokenizer_free(t);
}

static void given_add_prefix_space_each_piece_of_text_starts_with_one(void **state) {
    (void)state;
    put_tokenizer("t.json", ",\"\\u0120a\":256", "\"\\u0120 a\"",
                  "\"added_tokens\":[{\"id\":257,\"content\":\"<x>\"}],"
                  "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true}");
    oct_tokenizer *t = load("t.json");
    assert_ids(t, "a", 256);
    assert_ids(t, " a", 256);
    assert_ids(t, "a<x>a", 256, 257, 256);
    oct_tokenizer_free(t);
}

static void given_added_tokens_the_leftmost_longest_is_found(void **state) {
    (void)state;
    put_tokenizer(
        "t.json", "", "",
        "\"added_tokens\":[{\"id\":256,\"content\":\"<a>\",\"special\":true,\"normalized\":true},"
        "{\"id\":257,\"content\":\"<a>b\"},"
        "{\"id\":258,\"content\":\"[m]\",\"lstrip\":true,\"rstrip\":true},"
        "{\"id\":259,\"content\":\"ww\",\"single_word\":true}]," BYTE_LEVEL);
    oct_tokenizer *t = load("t.json");
    int32_t as_text[] = {'<', 'a', '>'};
    assert_int_equal(oct_tokenizer_vocab_size(t), 260);
    assert_ids(t, "<a><a>b<a", 256, 257, '<', 'a');
    assert_ids(t, "x \t[m]\xe3\x80\x80y", 'x', 258, 'y');
    assert_ids(t, "ww aww (ww)", 259, ' ', 'a', 'w', 'w', ' ', '(', 259, ')');
    assert_ids_n(t, "<a>", 3, OCT_ADDED_TOKENS_AS_TEXT, as_text, 3);
    int32_t ids[] = {256, 'x', 257};
    oct_strbuf text = {0};
    assert_int_equal(oct_tokenizer_decode(t, ids, 3, OCT_SPECIAL_TOKENS_SKIP, &text, NULL), OCT_OK);
    assert_string_equal(text.text, "x<a>b");
    oct_strbuf_free(&text);
    oct_tokenizer_free(t);
}

static void given_an_unknown_id_decoding_is_refused(void **state) {
    (void)state;
    put_tokenizer("t.json", ",\"ab\":300", "", BYTE_LEVEL);
    oct_tokenizer *t = load("t.json");
    const int32_t wrong[] = {-1, 256, 299, 301, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < OCT_COUNT(wrong); i++) {
        oct_strbuf text = {0};
        oct_error err = {0};
        assert_int_equal(
            oct_tokenizer_decode(t, &wrong[i], 1, OCT_SPECIAL_TOKENS_WRITE, &text, &err),
            OCT_INVALID);
        assert_contains(err.message, "no such id");
        oct_strbuf_free(&text);
    }
    oct_tokenizer_free(t);
}

typedef struct shared_encoding {
    const oct_tokenizer *tokenizer;
    oct_token_list ids[16];
} shared_encoding;

static void encode_one(void *context, int64_t task, int thread) {
    (void)thread;
    shared_encoding *e = context;
    for (int k = 0; k < 20; k++) {
        e->ids[task].n = 0;
        oct_tokenizer_encode(e->tokenizer, sample, strlen(sample), OCT_ADDED_TOKENS_FOUND,
                             &e->ids[task], NULL);
    }
}

static void given_several_threads_each_gets_the_same_ids(void **state) {
    (void)state;
    shared_encoding e = {.tokenizer = train(sample, 350, OCT_SPLIT_LLAMA3, NULL)};
    int before = oct_threads();
    oct_threads_set(4);
    oct_parallel(16, encode_one, &e);
    oct_threads_set(before);
    for (int i = 0; i < 16; i++) {
        assert_true(e.ids[i].n > 0);
        assert_int_equal(e.ids[i].n, e.ids[0].n);
        assert_memory_equal(e.ids[i].ids, e.ids[0].ids, e.ids[0].n * sizeof(int32_t));
    }
    for (int i = 0; i < 16; i++)
        oct_token_list_free(&e.ids[i]);
    oct_tokenizer_free((oct_tokenizer *)e.tokenizer);
}

/* ---- files ---- */

static void given_a_folder_the_files_in_it_say_where_texts_end(void **state) {
    (void)state;
    const char *added = "\"added_tokens\":[{\"id\":256,\"content\":\"<|endoftext|>\"},{\"id\":257,"
                        "\"content\":\"<e>\"},{\"id\":258,\"content\":\"<|begin_of_text|>\"}],";
    oct_strbuf others = {0};
    oct_strbuf_printf(&others, "%s%s", added, BYTE_LEVEL);
    assert_int_equal(oct_make_folders("model", NULL), OCT_OK);
    put_tokenizer("model/tokenizer.json", "", "", others.text);
    oct_strbuf_free(&others);
    oct_tokenizer *t = load("model"); /* by name */
    assert_int_equal(oct_tokenizer_bos(t), 258);
    assert_int_equal(oct_tokenizer_eos(t), 256);
    oct_tokenizer_free(t);
    put_text("model/generation_config.json", "{\"eos_token_id\":[257,256]}");
    t = load("model");
    assert_int_equal(oct_tokenizer_bos(t), 258);
    assert_int_equal(oct_tokenizer_eos(t), 257);
    oct_tokenizer_free(t);
    put_text("model/tokenizer_config.json",
             "{\"bos_token\":null,\"eos_token\":{\"content\":\"<|endoftext|>\"}}");
    t = load("model/tokenizer.json");
    assert_int_equal(oct_tokenizer_bos(t), -1);
    assert_int_equal(oct_tokenizer_eos(t), 256);
    oct_tokenizer_free(t);
    oct_error err = {0};
    put_text("model/tokenizer_config.json", "{\"eos_token\":\"<none>\"}");
    assert_int_equal(oct_tokenizer_load("model", &t, &err), OCT_INVALID);
    assert_contains(err.message, "model/tokenizer_config.json: eos_token");
}

typedef struct bad_file {
    const char *more, *merges, *others, *word; /* what the message must hold */
} bad_file;

static void given_a_wrong_tokenizer_file_one_line_names_the_key(void **state) {
    (void)state;
    const bad_file cases[] = {
        {"", "", "\"decoder\":null", "pre_tokenizer"},
        {"", "", "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}", "got \"BertPreTokenizer\""},
        {"", "",
         "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Metaspace\"},"
         "{\"type\":\"ByteLevel\"}]}",
         "got \"Metaspace\""},
        {"", "", "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[]}", "ByteLevel"},
        {"", "", "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":3}", "pretokenizers"},
        {"", "",
         "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":"
         "\"Isolated\"}",
         "regular expression"},
        {"", "",
         "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":"
         "\"Contagious\"}",
         "Contagious"},
        {"", "", "\"normalizer\":{\"type\":\"Lowercase\"}," BYTE_LEVEL, "Lowercase"},
        {"", "", "\"decoder\":{\"type\":\"WordPiece\"},\"pre_tokenizer\":{\"type\":\"ByteLevel\"}",
         "WordPiece"},
        {",\"ab\":255", "", BYTE_LEVEL, "is taken"},
        {",\"ab\":-1", "", BYTE_LEVEL, "wrong id"},
        {",\"ab\":4194304", "", BYTE_LEVEL, "wrong id"},
        {",\"ab\":1.5", "", BYTE_LEVEL, "wrong id"},
        {",\"ab\":\"x\"", "", BYTE_LEVEL, "wrong id"},
        {",\"ab\":256,\"ab\":257", "", BYTE_LEVEL, "a key is there twice"},
        {"", "],\"unk_token\":5,\"x\":[", BYTE_LEVEL, "unk_token"},
        {"", "", "\"post_processor\":{\"type\":\"X\"}," BYTE_LEVEL, "post_processor.type"},
        {"", "", "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[]}," BYTE_LEVEL,
         "post_processor.single"},
        {"", "", "\"post_processor\":{\"type\":\"RobertaProcessing\"}," BYTE_LEVEL,
         "no such token"},
        {"", "", "\"truncation\":{\"max_length\":-1}," BYTE_LEVEL, "truncation.max_length"},
        {"", "", "\"padding\":{\"strategy\":{\"Fixed\":8}}," BYTE_LEVEL, "padding"},
        {"", "\"a b\"", BYTE_LEVEL, "merges[0]"},
        {"", "\"ab\"", BYTE_LEVEL, "merges[0]"},
        {"", "\"a b c\"", BYTE_LEVEL, "merges[0]"},
        {"", "[\"a\"]", BYTE_LEVEL, "merges[0]"},
        {"", "[\"a\",5]", BYTE_LEVEL, "merges[0]"},
        {"", "\"\\n \\n\"", BYTE_LEVEL, "merges[0]"},
        {"", "],\"dropout\":0.1,\"x\":[", BYTE_LEVEL, "dropout"},
        {"", "],\"end_of_word_suffix\":\"</w>\",\"x\":[", BYTE_LEVEL, "end_of_word_suffix"},
        {"", "],\"ignore_merges\":5,\"x\":[", BYTE_LEVEL, "ignore_merges"},
        {"", "", "\"added_tokens\":[{\"id\":\"x\",\"content\":\"<a>\"}]," BYTE_LEVEL,
         "added_tokens[0]"},
        {"", "", "\"added_tokens\":[{\"id\":-1,\"content\":\"<a>\"}]," BYTE_LEVEL,
         "added_tokens[0]"},
        {"", "", "\"added_tokens\":[{\"id\":256}]," BYTE_LEVEL, "added_tokens[0]"},
        {"", "", "\"added_tokens\":{}," BYTE_LEVEL, "added_tokens"},
    };
    for (size_t i = 0; i < OCT_COUNT(cases); i++) {
        oct_error err = {0};
        oct_tokenizer *t = NULL;
        size_t live = oct_alloc_live_bytes();
        put_tokenizer("bad.json", cases[i].more, cases[i].merges, cases[i].others);
        assert_int_equal(oct_tokenizer_load("bad.json", &t, &err), OCT_INVALID);
        assert_null(t);
        assert_contains(err.message, "bad.json");
        assert_contains(err.message, cases[i].word);
        assert_one_line(err.message);
        assert_int_equal(oct_alloc_live_bytes(), live);
    }
}

static void given_a_file_that_is_no_tokenizer_one_line_says_so(void **state) {
    (void)state;
    const char *const texts[] = {"",
                                 "{}",
                                 "[]",
                                 "{\"model\":5}",
                                 "{\"model\":{\"vocab\":[]}}",
                                 "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}",
                                 "{\"model\":{\"type\":\"Unigram\"}}",
                                 "\xff\xfe",
                                 "{\"a\":\"\\ud800\"}"};
    for (size_t i = 0; i < OCT_COUNT(texts); i++) {
        oct_error err = {0};
        oct_tokenizer *t = NULL;
        put_text("bad.json", texts[i]);
        assert_int_equal(oct_tokenizer_load("bad.json", &t, &err), OCT_INVALID);
        assert_contains(err.message, "bad.json");
        assert_one_line(err.message);
    }
    oct_error err = {0};
    oct_tokenizer *t = NULL;
    assert_int_equal(oct_tokenizer_load("missing.json", &t, &err), OCT_INVALID);
    assert_contains(err.message, "missing.json");
    err = (oct_error){0};
    assert_int_equal(oct_make_folders("hollow", NULL), OCT_OK);
    assert_int_equal(oct_tokenizer_load("hollow", &t, &err), OCT_INVALID);
    assert_contains(err.message, "hollow/tokenizer.json");
}

static void given_a_damaged_file_reading_never_crashes(void **state) {
    (void)state;
    oct_tokenizer *t = train(sample, 270, OCT_SPLIT_LLAMA3, NULL);
    oct_tokenizer_free(t);
    size_t n;
    char *text = get_file("trained.json", &n);
    for (uint64_t k = 0; k < 400; k++) {
        size_t at = oct_rng_below(5, 0, k, n);
        char before = text[at];
        text[at] = (char)oct_rng_below(5, 1, k, 256);
        put_file("damaged.json", text, k % 4 ? n : at);
        oct_error err = {0};
        if (oct_tokenizer_load("damaged.json", &t, &err) == OCT_OK)
            oct_tokenizer_free(t);
        else
            assert_one_line(err.message);
        text[at] = before;
    }
    oct_free(text);
}

static oct_status load_and_encode(oct_error *err) {
    oct_tokenizer *t;
    oct_token_list ids = {0};
    oct_status status = oct_tokenizer_load("t.json", &t, err);
    if (status)
        return status;
    status = oct_tokenizer_encode(t, "abc e\xcc\x81", 7, OCT_ADDED_TOKENS_FOUND, &ids, err);
    oct_token_list_free(&ids);
    oct_tokenizer_free(t);
    return status;
}

static void given_a_heap_that_refuses_loading_and_encoding_give_all_back(void **state) {
    (void)state;
    put_tokenizer("t.json", ",\"ab\":256", "\"a b\"",
                  "\"added_tokens\":[{\"id\":300,\"content\":\"<a>\"}],"
                  "\"normalizer\":{\"type\":\"NFC\"}," BYTE_LEVEL);
    sweep_allocations(load_and_encode);
}

static oct_status train_small(oct_error *err) {
    const char *path = "small.txt";
    oct_tokenizer_train_options options = {.vocab_size = 262};
    return oct_tokenizer_train(&path, 1, &options, "small.json", NULL, err);
}

static void given_a_heap_that_refuses_training_gives_all_back(void **state) {
    (void)state;
    put_text("small.txt", "ab abc abcd ab abc");
    sweep_allocations(train_small);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_a_tiny_text_training_gives_the_merges_made_by_hand),
        cmocka_unit_test(given_equally_frequent_pairs_the_lower_ids_merge_first),
        cmocka_unit_test(given_a_run_of_one_letter_overlapping_pairs_are_merged_from_the_left),
        cmocka_unit_test(given_the_same_text_twice_the_tokenizer_files_are_identical),
        cmocka_unit_test(given_other_rules_or_texts_the_hash_is_another),
        cmocka_unit_test(given_impossible_training_input_one_line_says_so),
        cmocka_unit_test(given_any_bytes_decoding_gives_them_back),
        cmocka_unit_test(given_every_byte_alone_its_token_is_one),
        cmocka_unit_test(given_random_merges_the_heap_agrees_with_looking_at_all_pairs),
        cmocka_unit_test(given_merges_as_text_or_as_pairs_ids_are_equal),
        cmocka_unit_test(given_ignore_merges_a_word_that_is_a_token_stays_whole),
        cmocka_unit_test(given_a_chain_of_splits_each_cuts_the_pieces_of_the_one_before),
        cmocka_unit_test(given_form_c_composed_and_decomposed_text_are_equal),
        cmocka_unit_test(given_add_prefix_space_each_piece_of_text_starts_with_one),
        cmocka_unit_test(given_added_tokens_the_leftmost_longest_is_found),
        cmocka_unit_test(given_an_unknown_id_decoding_is_refused),
        cmocka_unit_test(given_several_threads_each_gets_the_same_ids),
        cmocka_unit_test(given_a_folder_the_files_in_it_say_where_texts_end),
        cmocka_unit_test(given_a_wrong_tokenizer_file_one_line_names_the_key),
        cmocka_unit_test(given_a_file_that_is_no_tokenizer_one_line_says_so),
        cmocka_unit_test(given_a_damaged_file_reading_never_crashes),
        cmocka_unit_test(given_a_heap_that_refuses_loading_and_encoding_give_all_back),
        cmocka_unit_test(given_a_heap_that_refuses_training_gives_all_back),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
