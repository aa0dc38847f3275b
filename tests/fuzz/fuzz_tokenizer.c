/* Any bytes as a tokenizer.json: refused in one line, or it encodes and decodes. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/count.h"
#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

/* Words, bytes that aren't UTF-8, and a word that is merged part by part. */
static size_t make_text(char text[4096]) {
    static const char short_words[] =
        "It's 12 caf\xc3\xa9s,\r\n e\xcc\x81 \xff<|endoftext|> ab\xe2\x96\x81\xe4\xb8\xad <s>  ";
    static const char parts[][4] = {"a", "b", "ab", "\xe4\xb8\xad", "c", "aa"};
    size_t n = sizeof short_words - 1;
    memcpy(text, short_words, n);
    for (unsigned random = 1; n + 4 < 4096;) {
        random = random * 1103515245u + 12345u;
        const char *part = parts[(random >> 16) % (OCT_COUNT(parts))];
        memcpy(text + n, part, strlen(part));
        n += strlen(part);
    }
    return n;
}

static void use(const oct_tokenizer *tokenizer) {
    char text[4096];
    size_t n_text = make_text(text);
    oct_token_list ids = {0};
    oct_strbuf back = {0};
    oct_error err = {0};
    oct_status status =
        oct_tokenizer_encode(tokenizer, text, n_text, OCT_ADDED_TOKENS_FOUND, &ids, &err);
    for (size_t i = 0; i < ids.n; i++)
        if (ids.ids[i] < 0 || ids.ids[i] >= oct_tokenizer_vocab_size(tokenizer))
            abort();
    if (!status &&
        oct_tokenizer_decode(tokenizer, ids.ids, ids.n, OCT_SPECIAL_TOKENS_WRITE, &back, &err))
        abort();
    oct_strbuf_free(&back);
    oct_token_list_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes) {
    char path[64];
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, bytes, n_bytes) != (ssize_t)n_bytes)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    oct_tokenizer *tokenizer;
    oct_error err = {0};
    if (oct_tokenizer_load(path, &tokenizer, &err) == OCT_OK)
        use(tokenizer);
    else if (!err.message[0] || strchr(err.message, '\n'))
        abort();
    oct_tokenizer_free(tokenizer);
    close(fd);
    return 0;
}
