/* Ids of many texts, for tokenizer_peers.py: reads a JSON list of texts a line from standard input
 * and prints a JSON list of lists of ids a line; null for a text that can't be encoded.
 *
 * usage: tokenizer_dump TOKENIZER */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/tokenizer.h"

static oct_status append(void *user, const int32_t *ids, size_t n, oct_error *err) {
    (void)err;
    for (size_t i = 0; i < n; i++)
        json_array_append_new(user, json_integer(ids[i]));
    return OCT_OK;
}

int main(int argc, char **argv) {
    oct_error err = {0};
    oct_tokenizer *tokenizer = NULL;
    if (argc != 2 || oct_tokenizer_load(argv[1], &tokenizer, &err) != OCT_OK) {
        fprintf(stderr, "tokenizer_dump: %s\n", err.message);
        return 1;
    }
    char *line = NULL;
    size_t capacity = 0, i;
    for (ssize_t n; (n = getline(&line, &capacity, stdin)) > 0;) {
        json_t *texts = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, NULL), *all = json_array(),
               *text;
        json_array_foreach(texts, i, text) {
            json_t *ids = json_array();
            oct_status status = oct_tokenizer_encode_whole(
                tokenizer, json_string_value(text), json_string_length(text),
                OCT_ADDED_TOKENS_FOUND, append, ids, NULL);
            json_array_append_new(all, status == OCT_OK ? json_incref(ids) : json_null());
            json_decref(ids);
        }
        json_dumpf(all, stdout, JSON_COMPACT);
        printf("\n");
        json_decref(texts);
        json_decref(all);
    }
    free(line);
    oct_tokenizer_free(tokenizer);
    return 0;
}
