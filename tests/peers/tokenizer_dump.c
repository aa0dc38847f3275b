/* Ids of many texts, for tokenizer_peers.py: reads a JSON list of texts a line from standard input
 * and prints a JSON list of lists of ids a line; null for a text that can't be encoded. A list of
 * ids in the place of a text is decoded, to a list of bytes.
 *
 * usage: tokenizer_dump TOKENIZER */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"

static oct_status append(void *user, const int32_t *ids, size_t n, oct_error *err) {
    (void)err;
    for (size_t i = 0; i < n; i++)
        json_array_append_new(user, json_integer(ids[i]));
    return OCT_OK;
}

static json_t *encode(const oct_tokenizer *tokenizer, const json_t *text) {
    json_t *ids = json_array();
    oct_status status =
        oct_tokenizer_encode_whole(tokenizer, json_string_value(text), json_string_length(text),
                                   OCT_ADDED_TOKENS_FOUND, append, ids, NULL);
    if (!status)
        return ids;
    json_decref(ids);
    return json_null();
}

static json_t *decode(const oct_tokenizer *tokenizer, const json_t *list) {
    oct_token_list ids = {0};
    oct_strbuf text = {0};
    json_t *bytes = json_array();
    for (size_t i = 0; i < json_array_size(list); i++)
        oct_token_list_append(&ids,
                              &(int32_t){(int32_t)json_integer_value(json_array_get(list, i))}, 1);
    oct_tokenizer_decode(tokenizer, ids.ids, ids.n, OCT_SPECIAL_TOKENS_SKIP, &text, NULL);
    for (size_t i = 0; i < text.length; i++)
        json_array_append_new(bytes, json_integer((uint8_t)text.text[i]));
    oct_token_list_free(&ids);
    oct_strbuf_free(&text);
    return bytes;
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
            json_array_append_new(all, json_is_array(text) ? decode(tokenizer, text)
                                                           : encode(tokenizer, text));
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
