/* Packed token files, whole and damaged. */
#include "story.h"

#include "base/count.h"
#include "dataset_support.h"

#include <xxhash.h>

static void given_packed_texts_they_read_like_the_texts(void **state) {
    (void)state;
    oct_tokenizer *t = byte_tokenizer(END_ONLY);
    const char *const paths[] = {"p.txt", "q.txt"};
    int64_t n_tokens, n_documents;
    put_text("p.txt", "abc");
    put_text("q.txt", "de");
    assert_int_equal(oct_data_pack(paths, 2, OCT_READ_BY_NAME, t, "pq.tokens", NULL, NULL,
                                   &n_tokens, &n_documents, NULL),
                     OCT_OK);
    assert_int_equal(n_tokens, 7);
    assert_int_equal(n_documents, 2);
    oct_dataset_options o = {.seq_len = 6};
    oct_dataset *d = open_good("pq.tokens", NULL, &o);
    assert_sequence(d, 0, (int32_t[]){'a', 'b', 'c', 256, 'd', 'e', 256});
    oct_dataset_close(d);
    oct_dataset_close(open_good("pq.tokens", t, &o));
    const char *packed = "pq.tokens";
    oct_error err = {0};
    assert_int_equal(
        oct_data_pack(&packed, 1, OCT_READ_BY_NAME, t, "x.tokens", NULL, NULL, NULL, NULL, &err),
        OCT_INVALID);
    assert_contains(err.message, "packed already");
    oct_tokenizer_free(t);
    t = byte_tokenizer(BEGIN_AND_END);
    assert_refused("pq.tokens", t, &o, "another tokenizer");
    oct_tokenizer_free(t);
    o.vocab_size = 256;
    assert_refused("pq.tokens", NULL, &o, "exceed the model's vocabulary");
}

static void given_two_or_four_bytes_a_token_all_ids_come_back(void **state) {
    (void)state;
    const int64_t sizes[] = {1, 256, 65536, 65537, 200000};
    for (size_t k = 0; k < OCT_COUNT(sizes); k++) {
        put_counting("v.tokens", 70001, sizes[k]);
        oct_dataset_options o = {.seq_len = 7000};
        oct_dataset *d = open_good("v.tokens", NULL, &o);
        int32_t *tokens = oct_malloc_array(7001, sizeof *tokens);
        assert_int_equal(oct_dataset_n_sequences(d), 10);
        for (int64_t s = 0; s < 10; s++) {
            assert_int_equal(oct_dataset_sequence(d, s, tokens, NULL), OCT_OK);
            for (int64_t i = 0; i <= 7000; i++)
                assert_int_equal(tokens[i], (s * 7000 + i) % sizes[k]);
        }
        oct_free(tokens);
        oct_dataset_close(d);
    }
}

static void given_a_folder_of_packed_files_windows_go_across_them(void **state) {
    (void)state;
    assert_int_equal(oct_make_folders("packed", NULL), OCT_OK);
    put_counting("packed/1.tokens", 5, 100);
    put_counting("packed/2.tokens", 1, 100);
    put_counting("packed/3.bin", 4, 70000);
    oct_dataset_options o = {.seq_len = 9};
    oct_dataset *d = open_good("packed", NULL, &o);
    assert_sequence(d, 0, (int32_t[]){0, 1, 2, 3, 4, 0, 0, 1, 2, 3});
    assert_int_equal(oct_dataset_vocab_size(d), 70000);
    oct_dataset_close(d);
    put_text("packed/4.txt", "text");
    assert_refused("packed", NULL, &o, "one kind");
}

static void given_any_damage_a_packed_file_is_refused(void **state) {
    (void)state;
    put_counting("whole.tokens", 30, 300);
    size_t n;
    char *bytes = get_file("whole.tokens", &n);
    oct_dataset_options o = {.seq_len = 3};
    for (size_t i = 0; i < n; i++) { /* without its magic it's a text, which needs a tokenizer */
        bytes[i] ^= 0x10;
        put_file("damaged.tokens", bytes, n);
        assert_refused("damaged.tokens", NULL, &o, "damaged.tokens");
        bytes[i] ^= 0x10;
        put_file("damaged.tokens", bytes, i);
        assert_refused("damaged.tokens", NULL, &o, "damaged.tokens");
    }
    oct_free(bytes);
}

/* A header with right checksums of its own and wrong contents. */
static void put_crafted(size_t at, uint64_t value, size_t n_value) {
    size_t n;
    char *bytes = get_file("whole.tokens", &n);
    memcpy(bytes + at, &value, n_value);
    uint64_t sum = XXH3_64bits(bytes, 56);
    memcpy(bytes + 56, &sum, 8);
    put_file("crafted.tokens", bytes, n);
    oct_free(bytes);
}

static void given_a_crafted_header_nothing_outside_the_file_is_read(void **state) {
    (void)state;
    put_counting("whole.tokens", 30, 300);
    oct_dataset_options o = {.seq_len = 3, .verify = OCT_VERIFY_HEADER};
    const uint64_t numbers[] = {0, 29, 31, UINT64_MAX, (uint64_t)1 << 63, ((uint64_t)1 << 63) + 30};
    for (size_t i = 0; i < OCT_COUNT(numbers); i++) {
        put_crafted(16, numbers[i], 8);
        assert_refused("crafted.tokens", NULL, &o, "bytes of ids");
    }
    put_crafted(12, 3, 4);
    assert_refused("crafted.tokens", NULL, &o, "bytes of an id");
    put_crafted(12, 4, 4);
    assert_refused("crafted.tokens", NULL, &o, "bytes of ids");
    put_crafted(8, 2, 4);
    assert_refused("crafted.tokens", NULL, &o, "version");
    put_crafted(48, 0, 4);
    assert_refused("crafted.tokens", NULL, &o, "vocabulary size");
    put_crafted(48, 0xffffffff, 4);
    assert_refused("crafted.tokens", NULL, &o, "vocabulary size");
    /* Ids above the vocabulary are found when they're read. */
    put_crafted(48, 20, 4);
    oct_dataset *d = open_good("crafted.tokens", NULL, &o);
    int32_t tokens[4];
    oct_error err = {0};
    assert_int_equal(oct_dataset_sequence(d, 0, tokens, &err), OCT_OK);
    assert_int_equal(oct_dataset_sequence(d, 8, tokens, &err), OCT_INVALID);
    assert_contains(err.message, "token 24");
    double nats;
    assert_int_equal(oct_dataset_unigram_entropy(d, 0, 30, &nats, NULL), OCT_INVALID);
    oct_dataset_close(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(given_packed_texts_they_read_like_the_texts),
        cmocka_unit_test(given_two_or_four_bytes_a_token_all_ids_come_back),
        cmocka_unit_test(given_a_folder_of_packed_files_windows_go_across_them),
        cmocka_unit_test(given_any_damage_a_packed_file_is_refused),
        cmocka_unit_test(given_a_crafted_header_nothing_outside_the_file_is_read),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
