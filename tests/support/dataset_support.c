/* See dataset_support.h. */
#include "dataset_support.h"

oct_tokenizer *byte_tokenizer(const char *others) {
    FILE *f = fopen("bytes.json", "wb");
    assert_non_null(f);
    fprintf(f,
            "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},%s"
            "\"model\":{\"type\":\"BPE\",\"vocab\":{",
            others);
    for (int byte = 0; byte < 256; byte++)
        fprintf(f, "%s\"\\u%04x\":%d", byte ? "," : "", oct_bpe_char_of_byte((uint8_t)byte), byte);
    fprintf(f, "},\"merges\":[]}}");
    assert_int_equal(fclose(f), 0);
    oct_tokenizer *t;
    oct_error err = {0};
    if (oct_tokenizer_load("bytes.json", &t, &err))
        fail_msg("%s", err.message);
    /* So that what a tokenizer keeps from call to call is there before memory is counted. */
    oct_token_list ids = {0};
    assert_int_equal(oct_tokenizer_encode(t, "ab cd", 5, OCT_ADDED_TOKENS_FOUND, &ids, NULL),
                     OCT_OK);
    oct_token_list_free(&ids);
    return t;
}

oct_dataset *open_good(const char *path, const oct_tokenizer *t,
                       const oct_dataset_options *options) {
    oct_dataset *d = NULL;
    oct_error err = {0};
    if (oct_dataset_open(path, t, options, &d, &err))
        fail_msg("%s", err.message);
    return d;
}

void assert_refused(const char *path, const oct_tokenizer *t, const oct_dataset_options *options,
                    const char *word) {
    oct_dataset *d = NULL;
    oct_error err = {0};
    size_t live = oct_alloc_live_bytes();
    assert_int_equal(oct_dataset_open(path, t, options, &d, &err), OCT_INVALID);
    assert_null(d);
    assert_contains(err.message, word);
    assert_one_line(err.message);
    assert_int_equal(oct_alloc_live_bytes(), live);
}

void assert_sequence(const oct_dataset *d, int64_t index, const int32_t *expected) {
    int32_t tokens[64];
    size_t n = (size_t)oct_dataset_seq_len(d) + 1;
    assert_true(n <= 64);
    assert_int_equal(oct_dataset_sequence(d, index, tokens, NULL), OCT_OK);
    assert_memory_equal(tokens, expected, n * sizeof *tokens);
}

void put_counting(const char *path, int64_t n, int64_t vocab_size) {
    oct_packed_writer *w;
    assert_int_equal(oct_packed_create(path, vocab_size, 0, &w, NULL), OCT_OK);
    for (int64_t i = 0; i < n; i++) {
        int32_t id = (int32_t)(i % vocab_size);
        assert_int_equal(oct_packed_append(w, &id, 1, NULL), OCT_OK);
    }
    assert_int_equal(oct_packed_finish(w, 1, NULL, NULL), OCT_OK);
}

int count_files(const char *folder) {
    char command[128];
    int n = -1;
    snprintf(command, sizeof command, "ls -A %s | wc -l", folder);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%d", &n), 1);
    pclose(f);
    return n;
}
