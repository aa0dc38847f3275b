/* Reading of tokenizer.json: vocabulary, merges and added tokens; see tokenizer.h and
 * tokenizer_reader.h. */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/count.h"
#include "base/fs.h"
#include "base/nearest.h"
#include "file/json.h"
#include "text/tokenizer_impl.h"
#include "text/tokenizer_reader.h"

#define MAX_ADDED 65536

static oct_status read_root(const char *path, json_t **root, uint32_t *nul, oct_error *err) {
    char *text;
    size_t n_bytes;
    oct_status status = oct_file_read(path, OCT_MAX_TOKENIZER_BYTES, &text, &n_bytes, err);
    if (status)
        return status;
    status = oct_json_parse_with_nul(text, n_bytes, path, root, nul, err);
    oct_free(text);
    return status;
}

/* ---- model ---- */

/* Puts NUL back where a character stands for it; the length after that. */
static size_t restore_nul(const oct_tokenizer_reader *r, char *text, size_t n) {
    if (!r->nul)
        return n;
    const char mark[3] = {(char)0xef, (char)0xb7, (char)(0x80 | (r->nul & 0x3f))};
    size_t used = 0;
    for (size_t i = 0; i < n; used++) {
        bool is_mark = n - i >= sizeof mark && memcmp(text + i, mark, sizeof mark) == 0;
        text[used] = is_mark ? '\0' : text[i];
        i += is_mark ? sizeof mark : 1;
    }
    return used;
}

/* A token's text as bytes; `spelt` tells whether it's spelt with the 256 characters. */
static oct_status add_spelt(oct_tokenizer_reader *r, int32_t id, const char *text, size_t n,
                            bool *spelt) {
    oct_bpe *bpe = &r->tokenizer->bpe;
    char stack[256], *bytes = n <= sizeof stack ? stack : oct_malloc(n);
    if (!bytes)
        return oct_fail_memory(r->err);
    int64_t n_bytes = r->tokenizer->pieces.used ? -1 : oct_bpe_unspell(text, n, bytes);
    *spelt = n_bytes > 0;
    if (!*spelt) {
        memcpy(bytes, text, n);
        n_bytes = (int64_t)restore_nul(r, bytes, n);
    }
    *spelt |= r->tokenizer->pieces.used;
    oct_status status = oct_bpe_add_token(bpe, id, bytes, (size_t)n_bytes, *spelt);
    if (bytes != stack)
        oct_free(bytes);
    return status;
}

static oct_status read_vocab(oct_tokenizer_reader *r, json_t *vocab) {
    if (!json_is_object(vocab))
        return oct_reader_wrong_type(r, "model.vocab", "an object of token: id", vocab);
    const char *text;
    json_t *value;
    json_object_foreach(vocab, text, value) {
        if (!json_is_integer(value) || json_integer_value(value) < 0 ||
            json_integer_value(value) >= OCT_BPE_MAX_IDS)
            return oct_fail(
                r->err, OCT_INVALID,
                "%s: model.vocab: \"%s\": wrong id; expected an integer from 0 to %" PRId64
                "; got %s %" PRId64,
                r->path, oct_show(text).text, OCT_BPE_MAX_IDS - 1, oct_json_kind(value),
                (int64_t)json_integer_value(value));
        bool spelt;
        oct_status status =
            add_spelt(r, (int32_t)json_integer_value(value), text, strlen(text), &spelt);
        if (status == OCT_INVALID)
            return oct_fail(r->err, status,
                            "%s: model.vocab: \"%s\": id %" PRId64 " is taken by another token",
                            r->path, oct_show(text).text, (int64_t)json_integer_value(value));
        if (status)
            return oct_fail_memory(r->err);
    }
    if (oct_bpe_finish(&r->tokenizer->bpe))
        return oct_fail_memory(r->err);
    if (r->tokenizer->pieces.used || r->tokenizer->bpe.byte_id['a'] >= 0 ||
        r->tokenizer->bpe.byte_id[' '] >= 0)
        return OCT_OK;
    return oct_fail(
        r->err, OCT_INVALID,
        "%s: model.vocab: not a byte-level vocabulary; expected tokens of single bytes, "
        "\"a\" or a space among them",
        r->path);
}

static int32_t find_spelt(const oct_bpe *bpe, const char *text, size_t n) {
    char bytes[1024];
    if (bpe->by_character)
        return oct_bpe_find(bpe, text, n);
    int64_t n_bytes = n <= sizeof bytes ? oct_bpe_unspell(text, n, bytes) : -1;
    return n_bytes > 0 ? oct_bpe_find(bpe, bytes, (size_t)n_bytes) : -1;
}

/* A merge is "left right" or ["left", "right"]. */
static bool split_merge(const json_t *merge, const char *part[2], size_t n[2]) {
    if (json_is_string(merge)) {
        const char *space = strchr(json_string_value(merge), ' ');
        if (!space || strchr(space + 1, ' '))
            return false;
        part[0] = json_string_value(merge);
        n[0] = (size_t)(space - part[0]);
        part[1] = space + 1;
        n[1] = strlen(part[1]);
        return true;
    }
    if (json_array_size(merge) != 2)
        return false;
    for (size_t i = 0; i < 2; i++) {
        part[i] = json_string_value(json_array_get(merge, i));
        n[i] = json_string_length(json_array_get(merge, i));
    }
    return part[0] && part[1];
}

static oct_shown show_part(const char *text, size_t n) {
    char part[96];
    snprintf(part, sizeof part, "%.*s", (int)(n < sizeof part ? n : sizeof part - 1), text);
    return oct_show(part);
}

static oct_status read_merges(oct_tokenizer_reader *r, json_t *merges) {
    oct_bpe *bpe = &r->tokenizer->bpe;
    if (!json_is_array(merges))
        return oct_reader_wrong_type(r, "model.merges", "a list", merges);
    size_t i;
    json_t *merge;
    json_array_foreach(merges, i, merge) {
        const char *part[2];
        size_t n[2];
        if (!split_merge(merge, part, n))
            return oct_fail(r->err, OCT_INVALID,
                            "%s: model.merges[%zu]: wrong form; expected \"left right\" or "
                            "[\"left\", \"right\"]; got %s",
                            r->path, i, oct_json_kind(merge));
        oct_status status =
            oct_bpe_add_merge(bpe, find_spelt(bpe, part[0], n[0]), find_spelt(bpe, part[1], n[1]));
        if (status == OCT_INVALID)
            return oct_fail(r->err, status,
                            "%s: model.merges[%zu]: can't be used; expected a pair of tokens "
                            "whose joined text is in model.vocab; got \"%s\" and \"%s\"",
                            r->path, i, show_part(part[0], n[0]).text,
                            show_part(part[1], n[1]).text);
        if (status)
            return oct_fail_memory(r->err);
    }
    return OCT_OK;
}

/* Whether the token was spelt so in the file. */
static bool is_text_of(const oct_bpe *bpe, int64_t id, const char *text, size_t n) {
    char bytes[256];
    const oct_bpe_token *token = &bpe->tokens[id];
    int64_t n_bytes =
        n <= sizeof bytes && !bpe->by_character ? oct_bpe_unspell(text, n, bytes) : -1;
    if (!token->present)
        return false;
    if (n_bytes > 0)
        return token->n_bytes == (size_t)n_bytes &&
               memcmp(bpe->pool + token->offset, bytes, (size_t)n_bytes) == 0;
    return token->n_bytes == n && memcmp(bpe->pool + token->offset, text, n) == 0;
}

static bool is_set(const json_t *value) {
    return value && !json_is_null(value) && !json_is_false(value) &&
           !(json_is_string(value) && !json_string_length(value)) &&
           !(json_is_number(value) && json_number_value(value) == 0);
}

static bool has_every_byte(const oct_bpe *bpe) {
    for (int byte = 0; byte < 256; byte++)
        if (bpe->byte_id[byte] < 0)
            return false;
    return true;
}

/* The token that stands for bytes without one. */
static oct_status read_unk(oct_tokenizer_reader *r, const json_t *name) {
    oct_bpe *bpe = &r->tokenizer->bpe;
    bpe->unk = -1;
    if (!name || json_is_null(name))
        return OCT_OK;
    if (!json_is_string(name))
        return oct_reader_wrong_type(r, "model.unk_token", "a token or null", name);
    for (int64_t id = 0; id < bpe->n_ids && bpe->unk < 0; id++)
        if (is_text_of(bpe, id, json_string_value(name), json_string_length(name)))
            bpe->unk = (int32_t)id;
    if (bpe->unk >= 0 || !json_string_length(name) || has_every_byte(bpe))
        return OCT_OK;
    return oct_fail(r->err, OCT_INVALID,
                    "%s: model.unk_token: no such token; expected one of model.vocab; got \"%s\"",
                    r->path, oct_show(json_string_value(name)).text);
}

static oct_status read_model(oct_tokenizer_reader *r, const json_t *root) {
    static const char *const unsupported[] = {"dropout", "continuing_subword_prefix",
                                              "end_of_word_suffix", "byte_fallback"};
    size_t n_unsupported = OCT_COUNT(unsupported) - (r->tokenizer->pieces.used ? 1 : 0);
    const json_t *model = json_object_get(root, "model");
    if (!json_is_object(model))
        return oct_reader_wrong_type(r, "model", "an object", model);
    const char *type = oct_reader_type(model);
    if (type[0] && strcmp(type, "BPE") != 0)
        return oct_fail(r->err, OCT_INVALID,
                        "%s: model.type: not supported; expected \"BPE\"; got \"%s\"", r->path,
                        oct_show(type).text);
    for (size_t i = 0; i < n_unsupported; i++)
        if (is_set(json_object_get(model, unsupported[i])))
            return oct_fail(
                r->err, OCT_INVALID, "%s: model.%s: not supported in a %s; expected null", r->path,
                unsupported[i], r->tokenizer->pieces.used ? "BPE of pieces" : "byte-level BPE");
    oct_bpe *bpe = &r->tokenizer->bpe;
    oct_status status = oct_reader_bool(r, model, "ignore_merges", false, &bpe->ignore_merges);
    if (!status)
        status = oct_reader_bool(r, model, "fuse_unk", false, &bpe->fuse_unk);
    if (!status)
        status = read_vocab(r, json_object_get(model, "vocab"));
    if (!status)
        status = read_unk(r, json_object_get(model, "unk_token"));
    if (!status)
        status = read_merges(r, json_object_get(model, "merges"));
    return status || !r->tokenizer->pieces.used ? status : oct_reader_piece_bytes(r, model);
}

/* ---- added tokens ---- */

/* Ids are given as the reference library gives them, which pays no heed to those of the file: a
 * token that the vocabulary has keeps its id, one that was added before as well; others are counted
 * on from the number of entries of the vocabulary, or from the largest added id where that is
 * larger. */

/* The id of a text that is an entry of the vocabulary as it stands in the file; -1: it's none. */
static int32_t id_in_vocab(const oct_tokenizer_reader *r, const char *text) {
    const json_t *id = json_object_get(r->vocab, text);
    return json_is_integer(id) ? (int32_t)json_integer_value(id) : -1;
}

static oct_status read_flags(oct_tokenizer_reader *r, const json_t *item, oct_added_token *a) {
    oct_status status = oct_reader_bool(r, item, "special", false, &a->special);
    if (!status)
        status = oct_reader_bool(r, item, "lstrip", false, &a->strip_left);
    if (!status)
        status = oct_reader_bool(r, item, "rstrip", false, &a->strip_right);
    if (!status)
        status = oct_reader_bool(r, item, "single_word", false, &a->between_spaces);
    return status ? status : oct_reader_bool(r, item, "normalized", !a->special, &a->normalized);
}

/* Gives the last of the added tokens, which is new, its id; `place` is its key, for messages. */
static oct_status number_token(oct_tokenizer_reader *r, const char *place, oct_added_token *a,
                               const char *text) {
    oct_bpe *bpe = &r->tokenizer->bpe;
    size_t n_taken;
    a->id = id_in_vocab(r, text);
    if (a->id >= 0)
        return OCT_OK;
    if (r->next_id >= OCT_BPE_MAX_IDS)
        return oct_fail(r->err, OCT_INVALID, "%s: %s: no id left; expected ids below %" PRId64,
                        r->path, place, OCT_BPE_MAX_IDS);
    a->id = r->next_id++;
    if (oct_tokenizer_token(r->tokenizer, a->id, &n_taken))
        return oct_fail(r->err, OCT_INVALID,
                        "%s: %s: \"%s\" would get id %d, which another token has (ids of added "
                        "tokens count on from the %zu entries of model.vocab, whose ids have gaps)",
                        r->path, place, oct_show(text).text, (int)a->id,
                        json_object_size(r->vocab));
    bool spelt =
        false; /* text doesn't become it but by its content, so it isn't among what merges make */
    char *bytes = oct_malloc(a->n_bytes);
    if (!bytes)
        return oct_fail_memory(r->err);
    int64_t n_bytes = bpe->by_character ? -1 : oct_bpe_unspell(a->content, a->n_bytes, bytes);
    spelt = n_bytes > 0; /* decoded as the spelling of bytes where it can be read so */
    oct_status status = oct_bpe_add_token(bpe, a->id, spelt ? bytes : a->content,
                                          spelt ? (size_t)n_bytes : a->n_bytes, false);
    oct_free(bytes);
    return status ? oct_fail_memory(r->err) : OCT_OK;
}

/* Adds one; `place` is its key, for messages. */
static oct_status add_token(oct_tokenizer_reader *r, const char *place, const json_t *item) {
    oct_tokenizer *t = r->tokenizer;
    const json_t *content = json_object_get(item, "content");
    const char *text = json_string_value(content);
    oct_added_token a = {0};
    if (!text)
        return oct_fail(r->err, OCT_INVALID,
                        "%s: %s: wrong form; expected an object with an id and a content", r->path,
                        place);
    oct_status status = read_flags(r, item, &a);
    if (status || !text[0]) /* an empty one is never found */
        return status;
    oct_added_token *grown =
        oct_grow_array(t->added, t->n_added, &t->added_capacity, sizeof *grown);
    if (grown)
        t->added = grown;
    a.content = grown ? oct_strdup(text) : NULL;
    if (!a.content)
        return oct_fail_memory(r->err);
    a.n_bytes = restore_nul(r, a.content, strlen(text));
    int32_t at = -1;
    status = oct_added_tree_add(r->known, a.content, a.n_bytes, (int32_t)t->n_added, &at);
    if (status == OCT_NO_MEMORY) {
        oct_free(a.content);
        return oct_fail_memory(r->err);
    }
    if (status == OCT_INVALID) { /* the later flags count, but once special it stays so */
        oct_added_token *known = &t->added[at];
        oct_free(a.content);
        a.content = known->content;
        a.id = known->id;
        a.special |= known->special;
        *known = a;
        return OCT_OK;
    }
    status = number_token(r, place, &a, text);
    t->added[t->n_added++] = a;
    return status;
}

static void start_counting(oct_tokenizer_reader *r) {
    const oct_tokenizer *t = r->tokenizer;
    r->next_id = (int32_t)json_object_size(r->vocab);
    for (size_t i = 0; i < t->n_added; i++)
        if (t->added[i].id >= r->next_id)
            r->next_id = t->added[i].id + 1;
}

static oct_status read_added_tokens(oct_tokenizer_reader *r, const json_t *root) {
    json_t *list = json_object_get(root, "added_tokens");
    if (!list || json_is_null(list))
        return OCT_OK;
    if (!json_is_array(list) || json_array_size(list) > MAX_ADDED)
        return oct_reader_wrong_type(r, "added_tokens", "a list of at most 65536", list);
    size_t i;
    json_t *item;
    oct_status status = OCT_OK;
    start_counting(r);
    json_array_foreach(list, i, item) {
        char place[64];
        snprintf(place, sizeof place, "added_tokens[%zu]", i);
        const json_t *id = json_object_get(item, "id");
        status = json_is_integer(id) && json_integer_value(id) >= 0
                     ? add_token(r, place, item)
                     : oct_fail(r->err, OCT_INVALID,
                                "%s: %s: wrong form; expected an object with an id and a content",
                                r->path, place);
        if (status)
            break;
    }
    return status;
}

typedef struct numbered_token {
    int64_t id;
    const json_t *item;
} numbered_token;

static int compare_ids(const void *one, const void *other) {
    int64_t a = ((const numbered_token *)one)->id, b = ((const numbered_token *)other)->id;
    return (a > b) - (a < b);
}

static oct_status collect_decoder_tokens(oct_tokenizer_reader *r, json_t *list,
                                         numbered_token *tokens) {
    const char *key;
    json_t *item;
    size_t n = 0;
    json_object_foreach(list, key, item) {
        char *end;
        long long id = strtoll(key, &end, 10);
        if (!*key || *end || id < 0 || !json_is_string(json_object_get(item, "content")))
            return oct_fail(r->err, OCT_INVALID,
                            "%s: added_tokens_decoder.%.20s: wrong form; expected an id, and an "
                            "object with a content",
                            r->path, oct_show(key).text);
        tokens[n++] = (numbered_token){id, item};
    }
    return OCT_OK;
}

/* transformers adds what tokenizer_config.json lists, in the order of the ids there: what
 * tokenizer.json has as well gets the flags of that. */
static oct_status read_decoder_tokens(oct_tokenizer_reader *r, const json_t *config) {
    json_t *list = json_object_get(config, "added_tokens_decoder");
    if (!list || json_is_null(list))
        return OCT_OK;
    if (!json_is_object(list) || json_object_size(list) > MAX_ADDED)
        return oct_reader_wrong_type(r, "added_tokens_decoder", "an object of at most 65536", list);
    size_t n = json_object_size(list);
    numbered_token *tokens = oct_calloc_array(n + 1, sizeof *tokens);
    if (!tokens)
        return oct_fail_memory(r->err);
    oct_status status = collect_decoder_tokens(r, list, tokens);
    if (!status)
        qsort(tokens, n, sizeof *tokens, compare_ids);
    bool last = false;
    for (size_t i = 0; i < n && !status; i++) {
        bool special = json_is_true(json_object_get(tokens[i].item, "special"));
        char place[64];
        snprintf(place, sizeof place, "added_tokens_decoder.%" PRId64, tokens[i].id);
        if (i == 0 || special != last) /* they are added in runs of special and other tokens */
            start_counting(r);
        last = special;
        status = add_token(r, place, tokens[i].item);
    }
    oct_free(tokens);
    return status;
}

static oct_status read_config_tokens(oct_tokenizer_reader *r, const char *folder) {
    json_t *config = NULL;
    char *path = folder ? oct_path_join(folder, "tokenizer_config.json") : NULL;
    if (!path)
        return folder ? oct_fail_memory(r->err) : OCT_OK;
    oct_tokenizer_reader side = {.path = path,
                                 .tokenizer = r->tokenizer,
                                 .vocab = r->vocab,
                                 .known = r->known,
                                 .err = r->err};
    oct_status status =
        oct_path_exists(path) ? read_root(path, &config, &side.nul, r->err) : OCT_OK;
    if (!status && side.nul && r->nul && side.nul != r->nul)
        status = oct_fail(r->err, OCT_INVALID,
                          "%s: \\u0000 and noncharacters: not supported together", path);
    if (!status)
        status = read_decoder_tokens(&side, config);
    json_decref(config);
    oct_free(path);
    return status;
}

/* ---- the whole ---- */

/* The file, and its folder if the files beside it belong to it (else NULL). */
static oct_status find_files(const char *path, char **file, char **folder, oct_error *err) {
    *file = *folder = NULL;
    if (oct_path_is_folder(path)) {
        *folder = oct_strdup(path);
        *file = oct_path_join(path, "tokenizer.json");
        return *folder && *file ? OCT_OK : oct_fail_memory(err);
    }
    *file = oct_strdup(path);
    const char *slash = strrchr(path, '/');
    if (strcmp(slash ? slash + 1 : path, "tokenizer.json") != 0)
        return *file ? OCT_OK : oct_fail_memory(err);
    *folder =
        slash ? oct_strndup(path, slash == path ? 1 : (size_t)(slash - path)) : oct_strdup(".");
    return *file && *folder ? OCT_OK : oct_fail_memory(err);
}

/* As the reference library has it: no other parts, and one version of the format. */
static oct_status check_root(oct_tokenizer_reader *r, const json_t *root) {
    static const char *const parts[] = {"version",        "truncation", "padding",
                                        "added_tokens",   "normalizer", "pre_tokenizer",
                                        "post_processor", "decoder",    "model"};
    const char *key;
    const json_t *part, *version = json_object_get(root, "version");
    json_object_foreach((json_t *)(uintptr_t)root, key, part) {
        bool known = false;
        for (size_t i = 0; i < OCT_COUNT(parts); i++)
            known = known || strcmp(key, parts[i]) == 0;
        const char *near = known ? NULL : oct_nearest_name(key, parts, OCT_COUNT(parts));
        if (!known)
            return oct_fail(r->err, OCT_INVALID, "%s: %s: unknown key%s%s", r->path,
                            oct_show(key).text, near ? "; did you mean " : "", near ? near : "");
    }
    if (version && (!json_is_string(version) || strcmp(json_string_value(version), "1.0") != 0))
        return oct_fail(r->err, OCT_INVALID, "%s: version: expected \"1.0\"; got %s", r->path,
                        json_is_string(version) ? oct_show(json_string_value(version)).text
                                                : oct_json_kind(version));
    return OCT_OK;
}

oct_status oct_tokenizer_load(const char *path, oct_tokenizer **tokenizer, oct_error *err) {
    char *file, *folder;
    json_t *root = NULL;
    *tokenizer = NULL;
    oct_tokenizer *t = oct_calloc_array(1, sizeof *t);
    if (!t)
        return oct_fail_memory(err);
    oct_status status = find_files(path, &file, &folder, err);
    oct_added_tree known = {0};
    oct_tokenizer_reader r = {.path = file, .tokenizer = t, .known = &known, .err = err};
    if (!status)
        status = read_root(file, &root, &r.nul, err);
    t->pieces.used = t->bpe.by_character = !oct_reader_spells_bytes(root);
    if (!status)
        status = check_root(&r, root);
    if (!status)
        status = read_model(&r, root);
    r.vocab = json_object_get(json_object_get(root, "model"), "vocab");
    if (!status)
        status = read_added_tokens(&r, root);
    if (!status)
        status = read_config_tokens(&r, folder);
    if (!status)
        status = oct_reader_pipeline(&r, root);
    if (!status)
        status = oct_reader_post_processing(&r, root);
    if (!status)
        status = oct_reader_ends(&r, folder);
    if (!status)
        status = oct_tokenizer_finish(t, file, err);
    json_decref(root);
    oct_added_tree_free(&known);
    oct_free(file);
    oct_free(folder);
    if (status) {
        oct_tokenizer_free(t);
        return status;
    }
    *tokenizer = t;
    return OCT_OK;
}
