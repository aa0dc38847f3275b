/* See tokenizer_support.h. */
#include "tokenizer_support.h"

#include <stdio.h>

void put_tokenizer(const char *path, const char *more, const char *merges, const char *others) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fprintf(f, "{%s,\"model\":{\"type\":\"BPE\",\"vocab\":{", others);
    for (int byte = 0; byte < 256; byte++) {
        unsigned c = oct_bpe_char_of_byte((uint8_t)byte);
        fprintf(f, "%s\"\\u%04x\":%d", byte ? "," : "", c, byte);
    }
    fprintf(f, "%s},\"merges\":[%s]}}", more, merges);
    assert_int_equal(fclose(f), 0);
}

oct_tokenizer *load(const char *path) {
    oct_error err = {0};
    oct_tokenizer *t = NULL;
    if (oct_tokenizer_load(path, &t, &err))
        fail_msg("%s", err.message);
    return t;
}

void assert_ids_n(const oct_tokenizer *t, const char *text, size_t n_bytes, oct_added_tokens added,
                  const int32_t *expected, size_t n) {
    oct_token_list ids = {0};
    assert_int_equal(oct_tokenizer_encode(t, text, n_bytes, added, &ids, NULL), OCT_OK);
    assert_int_equal(ids.n, n);
    if (n)
        assert_memory_equal(ids.ids, expected, n * sizeof *expected);
    oct_token_list_free(&ids);
}

void assert_round_trip(const oct_tokenizer *t, const char *text, size_t n_bytes) {
    oct_token_list ids = {0};
    oct_strbuf back = {0};
    assert_int_equal(oct_tokenizer_encode(t, text, n_bytes, OCT_ADDED_TOKENS_FOUND, &ids, NULL),
                     OCT_OK);
    assert_int_equal(oct_tokenizer_decode(t, ids.ids, ids.n, OCT_SPECIAL_TOKENS_WRITE, &back, NULL),
                     OCT_OK);
    assert_int_equal(back.length, n_bytes);
    if (n_bytes)
        assert_memory_equal(back.text, text, n_bytes);
    oct_strbuf_free(&back);
    oct_token_list_free(&ids);
}
