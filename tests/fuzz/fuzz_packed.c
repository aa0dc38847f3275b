/* Any bytes as a packed token file or, without its magic, as a JSONL file: refused in one line, or
 * every sequence is inside the file and the vocabulary. The header's own checksum is made right, so
 * that what lies behind it is reached. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "data/dataset.h"
#include "data/packed_file.h"
#include "text/documents.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

static void put_file(const char *path, const uint8_t *bytes, size_t n_bytes) {
    uint8_t *copy = malloc(n_bytes + 1);
    FILE *f = fopen(path, "wb");
    if (!copy || !f)
        abort();
    memcpy(copy, bytes, n_bytes);
    if (n_bytes >= OCT_PACKED_HEADER_BYTES) {
        uint64_t sum = XXH3_64bits(copy, 56);
        memcpy(copy + 56, &sum, sizeof sum);
    }
    if (fwrite(copy, 1, n_bytes, f) != n_bytes || fclose(f))
        abort();
    free(copy);
}

static void check(oct_status status, const oct_error *err) {
    if (status && (!err->message[0] || strchr(err->message, '\n')))
        abort();
}

static void read_all(const oct_dataset *d) {
    int32_t tokens[4];
    for (int64_t i = 0; i < oct_dataset_n_sequences(d); i++) {
        int64_t at = oct_dataset_shuffled_index(d, 1, i);
        if (oct_dataset_sequence(d, at, tokens, NULL))
            continue;
        for (int k = 0; k < 4; k++)
            if (tokens[k] < 0 || tokens[k] >= oct_dataset_vocab_size(d))
                abort();
    }
}

static oct_status ignore_document(void *user, const char *text, size_t n, oct_error *err) {
    (void)err;
    volatile size_t *total = user;
    *total += n && text[n - 1] ? n : 1;
    return OCT_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes) {
    static char path[64];
    if (!path[0])
        snprintf(path, sizeof path, "/tmp/octet-fuzz-%ld.jsonl", (long)getpid());
    put_file(path, bytes, n_bytes);
    for (int verify = 0; verify < 2; verify++) {
        oct_dataset_options options = {.seq_len = 3, .verify = (oct_dataset_verify)verify};
        oct_dataset *d;
        oct_error err = {0};
        check(oct_dataset_open(path, NULL, &options, &d, &err), &err);
        if (d)
            read_all(d);
        oct_dataset_close(d);
    }
    oct_file_list list = {0};
    oct_error err = {0};
    size_t total = 0;
    oct_status status = oct_file_list_add(&list, path, OCT_READ_BY_NAME, &err);
    if (!status && list.files[0].kind == OCT_FILE_JSONL)
        status = oct_documents_walk(&list.files[0], ignore_document, &total, &err);
    check(status, &err);
    oct_file_list_free(&list);
    unlink(path);
    return 0;
}
