/* Data sets: texts to packed files, sequences, shuffling, parts, and what is refused. */
#include "story.h"

#include "base/count.h"
#include "dataset_support.h"

#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* ---- texts ---- */

static void given_a_text_windows_overlap_by_the_token_that_is_a_label(void **state) {
    (void)state;
    oct_tokenizer *t = byte_tokenizer(END_ONLY);
    put_text("a.txt", "abcdefg");
    oct_dataset_options o = {.seq_len = 3};
    oct_dataset *d = open_good("a.txt", t, &o);
    assert_int_equal(oct_dataset_n_tokens(d), 8);
    assert_int_equal(oct_dataset_n_sequences(d), 2);
    assert_int_equal(oct_dataset_vocab_size(d), 257);
    assert_sequence(d, 0, (int32_t[]){'a', 'b', 'c', 'd'});
    assert_sequence(d, 1, (int32_t[]){'d', 'e', 'f', 'g'});
    int32_t tokens[4];
    assert_int_equal(oct_dataset_sequence(d, 2, tokens, NULL), OCT_INVALID);
    assert_int_equal(oct_dataset_sequence(d, -1, tokens, NULL), OCT_INVALID);
    oct_dataset_close(d);
    oct_tokenizer_free(t);
}

static void given_jsonl_each_line_is_a_document_between_its_ends(void **state) {
    (void)state;
    oct_tokenizer *t = byte_tokenizer(BEGIN_AND_END);
    put_text("a.jsonl", "{\"text\":\"ab\"}\n\n  \r\n{\"id\":1,\"text\":\"\\u0000\\u00e9\"}\r\n"
                        "{\"text\":\"\"}\n{\"text\":\"c\"}");
    oct_dataset_options o = {.seq_len = 11};
    oct_dataset *d = open_good("a.jsonl", t, &o);
    assert_int_equal(oct_dataset_n_tokens(d), 12);
    assert_sequence(d, 0, (int32_t[]){257, 'a', 'b', 256, 257, 0, 0xc3, 0xa9, 256, 257, 'c', 256});
    oct_dataset_close(d);
    oct_tokenizer_free(t);
}

static void given_lines_as_other_programs_write_them_each_is_a_document(void **state) {
    (void)state;
    oct_tokenizer *t = byte_tokenizer(END_ONLY);
    put_text("d.json", "\xef\xbb\xbf{\"id\": 18446744073709551615, \"text\": \"a\"}\n"
                       "{\"score\": NaN, \"text\": \"b\"}\n{\"x\": 1e999, \"text\": \"c\"}\n");
    oct_dataset_options o = {.seq_len = 5};
    oct_dataset *d = open_good("d.json", t, &o);
    assert_int_equal(oct_dataset_n_tokens(d), 6);
    assert_sequence(d, 0, (int32_t[]){'a', 256, 'b', 256, 'c', 256});
    oct_dataset_close(d);
    oct_tokenizer_free(t);
}

static void given_json_that_is_no_lines_it_is_refused_with_what_to_do(void **state) {
    (void)state;
    oct_tokenizer *t = byte_tokenizer(END_ONLY);
    oct_dataset_options o = {.seq_len = 1};
    put_text("array.json", " \n[{\"text\": \"a\"}, {\"text\": \"b\"}]\n");
    assert_refused("array.json", t, &o, "array.json: one JSON array; expected");
    assert_refused("array.json", t, &o, "array.json array.jsonl` makes it");
    put_text("object.json", "{\n  \"text\": \"a\"\n}\n");
    assert_refused("object.json", t, &o, "object.json:1: not valid JSON");
    assert_refused("object.json", t, &o, "a whole object a line");
    put_text("columns.json", "{\"text\": [\"a\", \"b\"]}\n");
    assert_refused("columns.json", t, &o, "columns.json:1: text: wrong type");
    oct_tokenizer_free(t);
}

static void given_files_of_another_structure_they_are_refused_by_name_and_content(void **state) {
    (void)state;
    oct_tokenizer *t = byte_tokenizer(END_ONLY);
    oct_dataset_options o = {.seq_len = 1};
    static const char *const names[] = {"a.csv", "a.TSV",  "a.parquet", "a.arrow", "a.feather",
                                        "a.orc", "a.xlsx", "a.avro",    "a.pkl",   "a.db"};
    for (size_t i = 0; i < OCT_COUNT(names); i++) {
        put_text(names[i], "text\nab\n");
        assert_refused(names[i], t, &o, "; expected plain text, a packed file, or JSONL");
    }
    put_text("no ending", "PAR1\x15\x04\x15 and no NUL");
    assert_refused("no ending", t, &o, "a Parquet file");
    assert_refused("no ending", t, &o, "'no ending' 'no ending.jsonl'` makes it");
    static const char *const texts[] = {"a.md", "a.py", "a.c", "a"};
    for (size_t i = 0; i < OCT_COUNT(texts); i++) {
        put_text(texts[i], "ab");
        oct_dataset *d = open_good(texts[i], t, &o);
        assert_int_equal(oct_dataset_n_tokens(d), 3);
        oct_dataset_close(d);
    }
    oct_tokenizer_free(t);
}

static int64_t packed_tokens(const char *path, oct_read_as as, const oct_tokenizer *t) {
    int64_t n = 0;
    oct_error err = {0};
    if (oct_data_pack(&path, 1, as, t, "as.tokens", NULL, NULL, &n, NULL, &err))
        fail_msg("%s", err.message);
    return n;
}

static void given_what_to_read_files_as_their_names_say_nothing(void **state) {
    (void)state;
    oct_tokenizer *t = byte_tokenizer(END_ONLY);
    assert_int_equal(oct_make_folders("insist", NULL), OCT_OK);
    put_text("insist/a.csv", "ab");
    put_text("insist/b.jsonl", "{\"text\":\"c\"}");
    assert_int_equal(packed_tokens("insist/a.csv", OCT_READ_AS_TEXT, t), 3);
    assert_int_equal(packed_tokens("insist/b.jsonl", OCT_READ_AS_TEXT, t), 13);
    assert_int_equal(packed_tokens("insist", OCT_READ_BY_NAME, t), 2);
    assert_int_equal(packed_tokens("insist", OCT_READ_AS_TEXT, t), 16);
    put_text("lines.data", "{\"text\":\"c\"}");
    assert_int_equal(packed_tokens("lines.data", OCT_READ_AS_JSONL, t), 2);
    oct_tokenizer_free(t);
}

static void given_a_bad_line_its_number_is_named_and_nothing_is_left(void **state) {
    (void)state;
    oct_tokenizer *t = byte_tokenizer(END_ONLY);
    const char *const lines[] = {
        "{\"text\":\"a\"",     "{\"text\":5}",      "[]", "{\"txt\":\"a\"}", "a",
        "{\"text\":\"\xff\"}", "{\"text\":\"a\"}{}"};
    assert_int_equal(oct_make_folders("tidy", NULL), OCT_OK);
    for (size_t i = 0; i < OCT_COUNT(lines); i++) {
        char text[128];
        snprintf(text, sizeof text, "{\"text\":\"fine\"}\n\n%s\n", lines[i]);
        put_text("bad.jsonl", text);
        oct_dataset_options o = {.seq_len = 1, .cache_folder = "tidy"};
        assert_refused("bad.jsonl", t, &o, "bad.jsonl:3: ");
        assert_int_equal(count_files("tidy"), 0);
    }
    oct_tokenizer_free(t);
}

static void given_a_folder_its_texts_are_read_in_order_of_their_names(void **state) {
    (void)state;
    oct_tokenizer *t = byte_tokenizer(END_ONLY);
    assert_int_equal(oct_make_folders("texts/sub", NULL), OCT_OK);
    put_text("texts/b.txt", "B");
    put_text("texts/a.jsonl", "{\"text\":\"A\"}\n");
    put_text("texts/c.TXT", "C");
    put_text("texts/.hidden.txt", "no");
    put_text("texts/readme.md", "no");
    oct_dataset_options o = {.seq_len = 5};
    oct_dataset *d = open_good("texts/", t, &o);
    assert_sequence(d, 0, (int32_t[]){'A', 256, 'B', 256, 'C', 256});
    oct_dataset_close(d);
    oct_tokenizer_free(t);
}

static void given_nothing_that_can_be_read_one_line_says_why(void **state) {
    (void)state;
    oct_tokenizer *t = byte_tokenizer(END_ONLY);
    oct_dataset_options o = {.seq_len = 4};
    assert_refused("missing.txt", t, &o, "missing.txt");
    assert_int_equal(oct_make_folders("empty", NULL), OCT_OK);
    assert_refused("empty", t, &o, "nothing to read");
    put_text("short.txt", "abc");
    assert_refused("short.txt", t, &o,
                   "shorter than one sequence; expected at least 5 tokens; got 4");
    put_text("none.txt", "");
    assert_refused("none.txt", t, &o, "shorter than one sequence");
    put_file("zipped.txt", "\x1f\x8b\x08\x00", 4);
    assert_refused("zipped.txt", t, &o, "compressed");
    assert_refused("/dev/null", t, &o, "/dev/null");
    assert_refused("short.txt", NULL, &o, "needs a tokenizer");
    o.seq_len = 0;
    assert_refused("short.txt", t, &o, "seq_len");
    o = (oct_dataset_options){.seq_len = 1, .vocab_size = 256};
    assert_refused("short.txt", t, &o, "exceed the model's vocabulary");
    if (geteuid() != 0) {
        put_text("locked.txt", "abc");
        assert_int_equal(chmod("locked.txt", 0), 0);
        o.vocab_size = 0;
        assert_refused("locked.txt", t, &o, "can't be read");
    }
    oct_tokenizer_free(t);
}

/* ---- the cache ---- */

static void given_a_cache_folder_a_text_is_tokenized_once_until_it_changes(void **state) {
    (void)state;
    oct_tokenizer *t = byte_tokenizer(END_ONLY);
    oct_dataset_options o = {.seq_len = 1, .cache_folder = "cache/tokens"};
    struct stat first, second;
    put_text("c.txt", "abcd");
    oct_dataset_close(open_good("c.txt", t, &o));
    assert_int_equal(count_files("cache/tokens"), 1);
    assert_int_equal(system("mv cache/tokens/* cache/tokens/keep && cp cache/tokens/keep kept"), 0);
    oct_dataset_close(open_good("c.txt", t, &o)); /* made again under the same name */
    assert_int_equal(system("rm cache/tokens/keep; ls cache/tokens/c.txt-*.tokens > name"), 0);
    size_t n;
    char *name = get_file("name", &n);
    name[strcspn(name, "\n")] = '\0';
    assert_int_equal(stat(name, &first), 0);
    oct_dataset_close(open_good("c.txt", t, &o));
    assert_int_equal(stat(name, &second), 0);
    assert_int_equal(first.st_ino, second.st_ino); /* taken as it was */
    /* A damaged one is made again. */
    char *bytes = get_file(name, &n);
    bytes[n - 1] ^= 1;
    put_file(name, bytes, n);
    oct_free(bytes);
    oct_dataset *d = open_good("c.txt", t, &o);
    assert_sequence(d, 3, (int32_t[]){'d', 256});
    oct_dataset_close(d);
    /* Another text, another tokenizer: other names. */
    put_text("c.txt", "abce");
    d = open_good("c.txt", t, &o);
    assert_sequence(d, 3, (int32_t[]){'e', 256});
    oct_dataset_close(d);
    assert_int_equal(count_files("cache/tokens"), 2);
    oct_tokenizer_free(t);
    t = byte_tokenizer(BEGIN_AND_END);
    oct_dataset_close(open_good("c.txt", t, &o));
    assert_int_equal(count_files("cache/tokens"), 3);
    oct_tokenizer_free(t);
    oct_free(name);
}

static void given_a_full_disk_packing_fails_and_leaves_nothing(void **state) {
    (void)state;
    oct_tokenizer *t = byte_tokenizer(END_ONLY);
    struct rlimit before, small = {1000, RLIM_INFINITY};
    oct_error err = {0};
    char *text = oct_malloc(100000);
    memset(text, 'x', 100000);
    put_file("large.txt", text, 100000);
    oct_free(text);
    assert_int_equal(oct_make_folders("full", NULL), OCT_OK);
    const char *path = "large.txt";
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    setrlimit(RLIMIT_FSIZE, &small);
    oct_status status = oct_data_pack(&path, 1, OCT_READ_BY_NAME, t, "full/out.tokens", NULL, NULL,
                                      NULL, NULL, &err);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, handler);
    assert_int_equal(status, OCT_FAILED);
    assert_contains(err.message, "full/out.tokens: can't be written");
    assert_int_equal(count_files("full"), 0);
    oct_tokenizer_free(t);
}

/* ---- sampling ---- */

static void given_any_number_of_sequences_an_epoch_visits_each_once(void **state) {
    (void)state;
    bool seen[300];
    for (int64_t n = 1; n < 300; n += n < 40 ? 1 : 37) {
        put_counting("n.tokens", n + 1, 10);
        oct_dataset_options o = {.seq_len = 1};
        oct_dataset *d = open_good("n.tokens", NULL, &o);
        assert_int_equal(oct_dataset_n_sequences(d), n);
        for (int64_t epoch = 0; epoch < 4; epoch++) {
            memset(seen, 0, sizeof seen);
            for (int64_t i = 0; i < n; i++) {
                int64_t index = oct_dataset_shuffled_index(d, 7, epoch * n + i);
                assert_in_range(index, 0, n - 1);
                assert_false(seen[index]);
                seen[index] = true;
            }
        }
        oct_dataset_close(d);
    }
}

static void given_shuffling_orders_differ_by_seed_and_epoch_and_look_random(void **state) {
    (void)state;
    enum { N = 1000 };
    put_counting("n.tokens", N + 1, 10);
    oct_dataset_options o = {.seq_len = 1};
    oct_dataset *d = open_good("n.tokens", NULL, &o);
    int same_epoch = 0, same_seed = 0, in_place = 0, ascending = 0;
    for (int64_t i = 0; i < N; i++) {
        int64_t here = oct_dataset_shuffled_index(d, 1, i);
        same_epoch += here == oct_dataset_shuffled_index(d, 1, N + i);
        same_seed += here == oct_dataset_shuffled_index(d, 2, i);
        in_place += here == i;
        ascending += here < oct_dataset_shuffled_index(d, 1, (i + 1) % N);
    }
    /* Each of the first three is Poisson with mean 1; the last is 500 with a deviation of 9. */
    assert_in_range(same_epoch, 0, 9);
    assert_in_range(same_seed, 0, 9);
    assert_in_range(in_place, 0, 9);
    assert_in_range(ascending, 450, 550);
    oct_dataset_close(d);
}

/* A step's positions are taken once each, and those of a micro-batch by one rank, in order. */
static void check_positions(int64_t B, int n_ranks) {
    enum { BATCH = 12 };
    int taker[3 * BATCH];
    int64_t order[3 * BATCH];
    memset(taker, -1, sizeof taker);
    for (int64_t step = 0; step < 3; step++)
        for (int rank = 0; rank < n_ranks; rank++)
            for (int64_t i = 0; i < BATCH / n_ranks; i++) {
                int64_t p = oct_dataset_rank_position(step * BATCH, i, B, rank, n_ranks);
                assert_in_range(p, step * BATCH, (step + 1) * BATCH - 1);
                assert_int_equal(taker[p], -1);
                taker[p] = rank;
                order[p] = i;
            }
    for (int p = 0; p < 3 * BATCH; p++) {
        assert_int_equal(taker[p], p % BATCH / B % n_ranks);
        if (p % B)
            assert_int_equal(order[p], order[p - 1] + 1);
    }
}

static void given_several_ranks_together_they_take_what_one_takes(void **state) {
    (void)state;
    for (int n_ranks = 1; n_ranks <= 12; n_ranks++)
        for (int64_t B = 1; B <= 12; B++)
            if (12 % (n_ranks * B) == 0)
                check_positions(B, n_ranks);
}

static void given_a_held_out_part_it_shares_no_token_with_training(void **state) {
    (void)state;
    put_counting("h.tokens", 103, 200);
    oct_dataset_options o = {.seq_len = 4, .part = OCT_DATASET_TRAIN, .held_out_fraction = 0.2};
    oct_dataset *train = open_good("h.tokens", NULL, &o);
    o.part = OCT_DATASET_HELD_OUT;
    oct_dataset *held_out = open_good("h.tokens", NULL, &o);
    assert_int_equal(oct_dataset_n_tokens(train), 82);
    assert_int_equal(oct_dataset_n_tokens(held_out), 21);
    assert_int_equal(oct_dataset_n_sequences(train), 20);
    assert_int_equal(oct_dataset_n_sequences(held_out), 5);
    assert_sequence(train, 19, (int32_t[]){76, 77, 78, 79, 80});
    assert_sequence(held_out, 0, (int32_t[]){82, 83, 84, 85, 86});
    assert_sequence(held_out, 4, (int32_t[]){98, 99, 100, 101, 102});
    oct_dataset_close(train);
    oct_dataset_close(held_out);
    o.held_out_tokens = 5;
    held_out = open_good("h.tokens", NULL, &o);
    assert_sequence(held_out, 0, (int32_t[]){98, 99, 100, 101, 102});
    oct_dataset_close(held_out);
    o.held_out_tokens = 4;
    assert_refused("h.tokens", NULL, &o, "held-out part is shorter than one sequence");
    o.held_out_tokens = 104;
    assert_refused("h.tokens", NULL, &o, "held-out part out of range");
    o = (oct_dataset_options){.seq_len = 4, .part = OCT_DATASET_TRAIN, .held_out_tokens = 103};
    assert_refused("h.tokens", NULL, &o, "without its held-out part");
    o.held_out_tokens = 0;
    assert_refused("h.tokens", NULL, &o, "held-out part out of range");
}

static void given_token_counts_the_unigram_entropy_is_theirs(void **state) {
    (void)state;
    double nats;
    put_counting("e.tokens", 8000, 8);
    oct_dataset_options o = {.seq_len = 4};
    oct_dataset *d = open_good("e.tokens", NULL, &o);
    assert_int_equal(oct_dataset_unigram_entropy(d, 0, 8000, &nats, NULL), OCT_OK);
    assert_true(fabs(nats - log(8)) < 1e-12);
    assert_int_equal(oct_dataset_unigram_entropy(d, 7, 3, &nats, NULL), OCT_OK); /* 7, 0, 1 */
    assert_true(fabs(nats - log(3)) < 1e-12);
    assert_int_equal(oct_dataset_unigram_entropy(d, 8, 1, &nats, NULL), OCT_OK);
    assert_true(nats == 0);
    assert_int_equal(oct_dataset_unigram_entropy(d, 0, 8001, &nats, NULL), OCT_INVALID);
    assert_int_equal(oct_dataset_unigram_entropy(d, 0, 0, &nats, NULL), OCT_INVALID);
    assert_int_equal(oct_dataset_unigram_entropy(d, -1, 2, &nats, NULL), OCT_INVALID);
    oct_dataset_close(d);
}

static const oct_tokenizer *sweep_tokenizer;

static oct_status open_and_close(oct_error *err) {
    oct_dataset_options o = {.seq_len = 1, .cache_folder = "swept"};
    oct_dataset *d;
    oct_status status = oct_dataset_open("s.jsonl", sweep_tokenizer, &o, &d, err);
    if (!status)
        oct_dataset_close(d);
    return status;
}

static void given_a_heap_that_refuses_opening_gives_all_back(void **state) {
    (void)state;
    oct_tokenizer *t = byte_tokenizer(END_ONLY);
    put_text("s.jsonl", "{\"text\":\"abc\"}\n{\"text\":\"d\"}\n");
    sweep_tokenizer = t;
    sweep_allocations(open_and_close);
    oct_tokenizer_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_a_text_windows_overlap_by_the_token_that_is_a_label),
        cmocka_unit_test(given_jsonl_each_line_is_a_document_between_its_ends),
        cmocka_unit_test(given_lines_as_other_programs_write_them_each_is_a_document),
        cmocka_unit_test(given_json_that_is_no_lines_it_is_refused_with_what_to_do),
        cmocka_unit_test(given_files_of_another_structure_they_are_refused_by_name_and_content),
        cmocka_unit_test(given_what_to_read_files_as_their_names_say_nothing),
        cmocka_unit_test(given_a_bad_line_its_number_is_named_and_nothing_is_left),
        cmocka_unit_test(given_a_folder_its_texts_are_read_in_order_of_their_names),
        cmocka_unit_test(given_nothing_that_can_be_read_one_line_says_why),
        cmocka_unit_test(given_a_cache_folder_a_text_is_tokenized_once_until_it_changes),
        cmocka_unit_test(given_a_full_disk_packing_fails_and_leaves_nothing),
        cmocka_unit_test(given_any_number_of_sequences_an_epoch_visits_each_once),
        cmocka_unit_test(given_shuffling_orders_differ_by_seed_and_epoch_and_look_random),
        cmocka_unit_test(given_several_ranks_together_they_take_what_one_takes),
        cmocka_unit_test(given_a_held_out_part_it_shares_no_token_with_training),
        cmocka_unit_test(given_token_counts_the_unigram_entropy_is_theirs),
        cmocka_unit_test(given_a_heap_that_refuses_opening_gives_all_back),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
