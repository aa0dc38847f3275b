/* Reading of tokenizer.json and of the files beside it: see tokenizer.h. Every file is hostile: all
 * sizes are bounded, and each thing that isn't understood is an error with its key, since a part
 * left out silently would give other ids. */
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "io/json.h"
#include "io/tokenizer_impl.h"

#define MAX_FILE_BYTES ((size_t)128 << 20)
#define MAX_ADDED 65536
#define MAX_SEQUENCE 16

typedef struct reader {
    const char *path;
    oct_tokenizer *tokenizer;
    bool byte_level; /* the pre-tokenizer spells bytes */
    oct_error *err;
} reader;

static oct_status read_json(const char *path, json_t **root, oct_error *err) {
    char *text;
    size_t n_bytes;
    oct_status status = oct_file_read(path, MAX_FILE_BYTES, &text, &n_bytes, err);
    if (status)
        return status;
    status = oct_json_parse(text, n_bytes, path, root, err);
    oct_free(text);
    return status;
}

static oct_status wrong_type(reader *r, const char *key, const char *expected,
                             const json_t *value) {
    return oct_fail(r->err, OCT_INVALID, "%s: %s: wrong type; expected %s; got %s", r->path, key,
                    expected, oct_json_kind(value));
}

/* Optional booleans: absent or null is `fallback`. */
static oct_status get_bool(reader *r, const json_t *object, const char *key, bool fallback,
                           bool *out) {
    const json_t *value = json_object_get(object, key);
    *out = fallback;
    if (!value || json_is_null(value))
        return OCT_OK;
    if (!json_is_boolean(value))
        return wrong_type(r, key, "true or false", value);
    *out = json_is_true(value);
    return OCT_OK;
}

static const char *type_of(const json_t *object) {
    const char *type = json_string_value(json_object_get(object, "type"));
    return type ? type : "";
}

/* ---- model ---- */

/* A token's text as bytes; `spelt` tells whether it's spelt with the 256 characters. */
static oct_status add_spelt(reader *r, int32_t id, const char *text, size_t n, bool *spelt) {
    oct_bpe *bpe = &r->tokenizer->bpe;
    char stack[256], *bytes = n <= sizeof stack ? stack : oct_malloc(n);
    if (!bytes)
        return oct_fail_memory(r->err);
    int64_t n_bytes = oct_bpe_unspell(text, n, bytes);
    *spelt = n_bytes > 0;
    oct_status status = *spelt ? oct_bpe_add_token(bpe, id, bytes, (size_t)n_bytes, true)
                               : oct_bpe_add_token(bpe, id, text, n, false);
    if (bytes != stack)
        oct_free(bytes);
    return status;
}

static oct_status read_vocab(reader *r, json_t *vocab) {
    if (!json_is_object(vocab))
        return wrong_type(r, "model.vocab", "an object of token: id", vocab);
    const char *text;
    json_t *value;
    json_object_foreach(vocab, text, value) {
        if (!json_is_integer(value) || json_integer_value(value) < 0 ||
            json_integer_value(value) >= OCT_BPE_MAX_IDS)
            return oct_fail(r->err, OCT_INVALID,
                            "%s: model.vocab: \"%s\": wrong id; expected an integer from 0 to "
                            "%lld; got %s %lld",
                            r->path, oct_show(text).text, (long long)OCT_BPE_MAX_IDS - 1,
                            oct_json_kind(value), (long long)json_integer_value(value));
        bool spelt;
        oct_status status =
            add_spelt(r, (int32_t)json_integer_value(value), text, strlen(text), &spelt);
        if (status == OCT_INVALID)
            return oct_fail(r->err, status,
                            "%s: model.vocab: \"%s\": id %lld is taken by another token", r->path,
                            oct_show(text).text, (long long)json_integer_value(value));
        if (status)
            return oct_fail_memory(r->err);
    }
    int missing = oct_bpe_finish(&r->tokenizer->bpe);
    if (missing >= 0)
        return oct_fail(r->err, OCT_INVALID,
                        "%s: model.vocab: not a byte-level vocabulary; expected a token for each "
                        "of the 256 bytes; got none for byte 0x%02x",
                        r->path, (unsigned)missing);
    return OCT_OK;
}

static int32_t find_spelt(const oct_bpe *bpe, const char *text, size_t n) {
    char bytes[1024];
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

static oct_status read_merges(reader *r, json_t *merges) {
    oct_bpe *bpe = &r->tokenizer->bpe;
    if (!json_is_array(merges))
        return wrong_type(r, "model.merges", "a list", merges);
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
                            "%s: model.merges[%zu]: can't be used; expected a new pair of tokens "
                            "whose joined text is in model.vocab; got \"%s\" and \"%s\"",
                            r->path, i, show_part(part[0], n[0]).text,
                            show_part(part[1], n[1]).text);
        if (status)
            return oct_fail_memory(r->err);
    }
    return OCT_OK;
}

static bool is_set(const json_t *value) {
    return value && !json_is_null(value) && !json_is_false(value) &&
           !(json_is_string(value) && !json_string_length(value)) &&
           !(json_is_number(value) && json_number_value(value) == 0);
}

static oct_status read_model(reader *r, const json_t *root) {
    static const char *const unsupported[] = {"dropout", "continuing_subword_prefix",
                                              "end_of_word_suffix", "byte_fallback"};
    const json_t *model = json_object_get(root, "model");
    if (!json_is_object(model))
        return wrong_type(r, "model", "an object", model);
    const char *type = type_of(model);
    if (type[0] && strcmp(type, "BPE") != 0)
        return oct_fail(r->err, OCT_INVALID,
                        "%s: model.type: not supported; expected \"BPE\"; got \"%s\"", r->path,
                        oct_show(type).text);
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++)
        if (is_set(json_object_get(model, unsupported[i])))
            return oct_fail(r->err, OCT_INVALID,
                            "%s: model.%s: not supported in a byte-level BPE; expected null",
                            r->path, unsupported[i]);
    oct_status status =
        get_bool(r, model, "ignore_merges", false, &r->tokenizer->bpe.ignore_merges);
    if (!status)
        status = read_vocab(r, json_object_get(model, "vocab"));
    if (!status)
        status = read_merges(r, json_object_get(model, "merges"));
    return status;
}

/* ---- added tokens ---- */

static oct_status read_added_token(reader *r, size_t i, const json_t *item) {
    oct_tokenizer *t = r->tokenizer;
    const json_t *id_value = json_object_get(item, "id"),
                 *content = json_object_get(item, "content");
    json_int_t id = json_is_integer(id_value) ? json_integer_value(id_value) : -1;
    if (!json_string_length(content) || id < 0 || id >= OCT_BPE_MAX_IDS)
        return oct_fail(r->err, OCT_INVALID,
                        "%s: added_tokens[%zu]: wrong form; expected an object with an id below "
                        "%lld and a content",
                        r->path, i, (long long)OCT_BPE_MAX_IDS);
    const char *text = json_string_value(content);
    oct_added_token *a = &t->added[t->n_added];
    oct_status status = get_bool(r, item, "special", false, &a->special);
    if (!status)
        status = get_bool(r, item, "lstrip", false, &a->strip_left);
    if (!status)
        status = get_bool(r, item, "rstrip", false, &a->strip_right);
    if (!status)
        status = get_bool(r, item, "single_word", false, &a->between_spaces);
    if (status)
        return status;
    a->id = (int32_t)id;
    a->n_bytes = strlen(text);
    a->content = oct_strdup(text);
    if (!a->content)
        return oct_fail_memory(r->err);
    t->n_added++;
    /* It may be in the vocabulary already, under the same id. */
    size_t n_known;
    const char *same = oct_tokenizer_token(t, a->id, &n_known);
    int32_t known = find_spelt(&t->bpe, text, a->n_bytes);
    if (known == a->id || (same && n_known == a->n_bytes && memcmp(same, text, n_known) == 0))
        return OCT_OK;
    bool spelt;
    status = known < 0 ? add_spelt(r, a->id, text, a->n_bytes, &spelt) : OCT_INVALID;
    if (status == OCT_INVALID)
        return oct_fail(r->err, status,
                        "%s: added_tokens[%zu]: \"%s\" with id %d contradicts model.vocab", r->path,
                        i, oct_show(text).text, (int)a->id);
    return status ? oct_fail_memory(r->err) : OCT_OK;
}

static oct_status read_added_tokens(reader *r, const json_t *root) {
    json_t *list = json_object_get(root, "added_tokens");
    if (!list || json_is_null(list))
        return OCT_OK;
    if (!json_is_array(list) || json_array_size(list) > MAX_ADDED)
        return wrong_type(r, "added_tokens", "a list of at most 65536", list);
    r->tokenizer->added = oct_calloc_array(json_array_size(list), sizeof *r->tokenizer->added);
    if (!r->tokenizer->added)
        return oct_fail_memory(r->err);
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item) {
        oct_status status = read_added_token(r, i, item);
        if (status)
            return status;
    }
    return OCT_OK;
}

/* ---- normalizer, pre-tokenizer, decoder ---- */

typedef oct_status (*part_reader)(reader *r, const json_t *part, const char *key);

/* Reads one part or each part of a Sequence. */
static oct_status read_parts(reader *r, const json_t *part, const char *key, const char *list_key,
                             part_reader read) {
    if (!json_is_object(part))
        return wrong_type(r, key, "an object", part);
    if (strcmp(type_of(part), "Sequence") != 0)
        return read(r, part, key);
    json_t *list = json_object_get(part, list_key);
    if (!json_is_array(list) || json_array_size(list) > MAX_SEQUENCE)
        return wrong_type(r, list_key, "a list of at most 16", list);
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item) {
        char place[96];
        snprintf(place, sizeof place, "%s.%s[%zu]", key, list_key, i);
        oct_status status =
            json_is_object(item) ? read(r, item, place) : wrong_type(r, place, "an object", item);
        if (status)
            return status;
    }
    return OCT_OK;
}

static oct_status unsupported_type(reader *r, const json_t *part, const char *key,
                                   const char *expected) {
    return oct_fail(r->err, OCT_INVALID, "%s: %s.type: not supported; expected %s; got \"%s\"",
                    r->path, key, expected, oct_show(type_of(part)).text);
}

static oct_status read_normalizer(reader *r, const json_t *part, const char *key) {
    if (strcmp(type_of(part), "NFC") != 0)
        return unsupported_type(r, part, key, "NFC or a Sequence of it");
    r->tokenizer->pretokenizer.nfc = true;
    return OCT_OK;
}

static oct_status add_split(reader *r, const char *pattern, size_t n, oct_pattern_kind kind,
                            oct_gap_rule gaps, const char *key) {
    oct_tokenizer *t = r->tokenizer;
    oct_strbuf place = {0};
    oct_strbuf_printf(&place, "%s: %s.pattern", r->path, key);
    oct_status status = place.failed ? oct_fail_memory(r->err)
                                     : oct_pretokenizer_add_split(&t->pretokenizer, pattern, n,
                                                                  kind, gaps, place.text, r->err);
    oct_strbuf_free(&place);
    t->hash = XXH64(pattern, n, t->hash * 4 + (uint64_t)kind * 2 + (uint64_t)gaps);
    return status;
}

static oct_status read_byte_level(reader *r, const json_t *part, const char *key) {
    bool leading_space, use_regex;
    oct_status status = get_bool(r, part, "add_prefix_space", true, &leading_space);
    if (!status)
        status = get_bool(r, part, "use_regex", true, &use_regex);
    if (status)
        return status;
    oct_pretokenizer *p = &r->tokenizer->pretokenizer;
    if (leading_space && p->n_splits)
        return oct_fail(r->err, OCT_INVALID,
                        "%s: %s.add_prefix_space: not supported after a Split; expected false",
                        r->path, key);
    p->leading_space |= leading_space;
    r->byte_level = true;
    return use_regex ? add_split(r, oct_gpt2_pattern, strlen(oct_gpt2_pattern), OCT_PATTERN_REGEX,
                                 OCT_GAPS_KEPT, key)
                     : OCT_OK;
}

static oct_status read_split(reader *r, const json_t *part, const char *key) {
    const json_t *pattern = json_object_get(part, "pattern");
    const json_t *regex = json_object_get(pattern, "Regex");
    const json_t *text = regex ? regex : json_object_get(pattern, "String");
    const char *behavior = json_string_value(json_object_get(part, "behavior"));
    bool invert;
    oct_status status = get_bool(r, part, "invert", false, &invert);
    if (status)
        return status;
    if (!json_is_string(text))
        return oct_fail(
            r->err, OCT_INVALID,
            "%s: %s.pattern: wrong form; expected {\"Regex\": ...} or {\"String\": ...}", r->path,
            key);
    bool isolated = behavior && strcmp(behavior, "Isolated") == 0;
    bool matches_only = behavior && strcmp(behavior, "Removed") == 0 && invert;
    if (!isolated && !matches_only)
        return oct_fail(r->err, OCT_INVALID,
                        "%s: %s.behavior: not supported; expected Isolated, or Removed with "
                        "invert; got \"%s\"",
                        r->path, key, oct_show(behavior ? behavior : "").text);
    return add_split(r, json_string_value(text), json_string_length(text),
                     regex ? OCT_PATTERN_REGEX : OCT_PATTERN_LITERAL,
                     isolated ? OCT_GAPS_KEPT : OCT_GAPS_DROPPED, key);
}

static oct_status read_pre_tokenizer(reader *r, const json_t *part, const char *key) {
    if (r->byte_level) /* later parts would see the spelling of bytes, not the text */
        return oct_fail(r->err, OCT_INVALID,
                        "%s: %s: not supported; expected ByteLevel to be the last part", r->path,
                        key);
    if (strcmp(type_of(part), "ByteLevel") == 0)
        return read_byte_level(r, part, key);
    if (strcmp(type_of(part), "Split") == 0)
        return read_split(r, part, key);
    return unsupported_type(r, part, key, "ByteLevel, Split or a Sequence of them");
}

static oct_status read_decoder(reader *r, const json_t *part, const char *key) {
    return strcmp(type_of(part), "ByteLevel") == 0 ? OCT_OK
                                                   : unsupported_type(r, part, key, "ByteLevel");
}

static oct_status read_pipeline(reader *r, const json_t *root) {
    const json_t *normalizer = json_object_get(root, "normalizer"),
                 *pre_tokenizer = json_object_get(root, "pre_tokenizer"),
                 *decoder = json_object_get(root, "decoder");
    oct_status status = OCT_OK;
    if (normalizer && !json_is_null(normalizer))
        status = read_parts(r, normalizer, "normalizer", "normalizers", read_normalizer);
    if (!status)
        status = read_parts(r, pre_tokenizer, "pre_tokenizer", "pretokenizers", read_pre_tokenizer);
    if (!status && !r->byte_level)
        status =
            oct_fail(r->err, OCT_INVALID,
                     "%s: pre_tokenizer: not a byte-level BPE; expected a ByteLevel part", r->path);
    if (!status && decoder && !json_is_null(decoder))
        status = read_parts(r, decoder, "decoder", "decoders", read_decoder);
    return status;
}

/* ---- begin and end of text ---- */

typedef struct end_rule {
    const char *token_key, *id_key; /* in tokenizer_config.json, generation_config.json */
    const char *names[5];
} end_rule;

static const end_rule bos_rule = {
    "bos_token", "bos_token_id", {"<|begin_of_text|>", "<s>", "<｜begin▁of▁sentence｜>", NULL}};
static const end_rule eos_rule = {
    "eos_token",
    "eos_token_id",
    {"<|end_of_text|>", "<|endoftext|>", "</s>", "<｜end▁of▁sentence｜>", NULL}};

static oct_status pick_by_name(reader *r, const json_t *config, const end_rule *rule, int32_t *id) {
    const json_t *value = json_object_get(config, rule->token_key);
    if (json_is_object(value)) /* a serialised AddedToken */
        value = json_object_get(value, "content");
    if (!json_is_string(value))
        return json_is_null(value) ? OCT_OK
                                   : wrong_type(r, rule->token_key, "a token or null", value);
    *id = oct_tokenizer_find(r->tokenizer, json_string_value(value), json_string_length(value));
    if (*id >= 0)
        return OCT_OK;
    return oct_fail(r->err, OCT_INVALID,
                    "%s: %s: no such token; expected one of tokenizer.json; got \"%s\"", r->path,
                    rule->token_key, oct_show(json_string_value(value)).text);
}

static oct_status pick_by_id(reader *r, const json_t *config, const end_rule *rule, int32_t *id) {
    const json_t *value = json_object_get(config, rule->id_key);
    if (json_is_array(value))
        value = json_array_get(value, 0);
    if (!json_is_integer(value))
        return json_is_null(value) ? OCT_OK : wrong_type(r, rule->id_key, "an id or null", value);
    size_t n_bytes;
    json_int_t number = json_integer_value(value);
    if (number < 0 || number >= OCT_BPE_MAX_IDS ||
        !oct_tokenizer_token(r->tokenizer, (int32_t)number, &n_bytes))
        return oct_fail(r->err, OCT_INVALID,
                        "%s: %s: no such token; expected an id of tokenizer.json; got %lld",
                        r->path, rule->id_key, (long long)number);
    *id = (int32_t)number;
    return OCT_OK;
}

static void pick_by_known_names(reader *r, const end_rule *rule, int32_t *id) {
    const oct_tokenizer *t = r->tokenizer;
    for (int k = 0; rule->names[k] && *id < 0; k++)
        for (size_t i = 0; i < t->n_added && *id < 0; i++)
            if (strcmp(t->added[i].content, rule->names[k]) == 0)
                *id = t->added[i].id;
}

typedef oct_status (*end_picker)(reader *r, const json_t *config, const end_rule *rule,
                                 int32_t *id);

/* Lets `pick` choose from the file `name` beside the tokenizer, for the ends not yet `said`. */
static oct_status read_side_file(reader *r, const char *folder, const char *name, end_picker pick,
                                 const char *const keys[2], bool said[2]) {
    char *path = oct_path_join(folder, name);
    if (!path)
        return oct_fail_memory(r->err);
    json_t *config = NULL;
    reader side = {path, r->tokenizer, false, r->err};
    oct_status status = oct_path_exists(path) ? read_json(path, &config, r->err) : OCT_OK;
    const end_rule *rules[2] = {&bos_rule, &eos_rule};
    int32_t *ids[2] = {&r->tokenizer->bos, &r->tokenizer->eos};
    for (int i = 0; i < 2 && config && !status; i++) {
        if (said[i] || !json_object_get(config, keys[i]))
            continue;
        said[i] = true;
        status = pick(&side, config, rules[i], ids[i]);
    }
    json_decref(config);
    oct_free(path);
    return status;
}

static oct_status find_ends(reader *r, const char *folder) {
    static const char *const token_keys[2] = {"bos_token", "eos_token"};
    static const char *const id_keys[2] = {"bos_token_id", "eos_token_id"};
    oct_tokenizer *t = r->tokenizer;
    bool said[2] = {false, false};
    t->bos = t->eos = -1;
    oct_status status = OCT_OK;
    if (folder)
        status = read_side_file(r, folder, "tokenizer_config.json", pick_by_name, token_keys, said);
    if (!status && folder)
        status = read_side_file(r, folder, "generation_config.json", pick_by_id, id_keys, said);
    if (status)
        return status;
    if (!said[0])
        pick_by_known_names(r, &bos_rule, &t->bos);
    if (!said[1])
        pick_by_known_names(r, &eos_rule, &t->eos);
    return OCT_OK;
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

oct_status oct_tokenizer_load(const char *path, oct_tokenizer **tokenizer, oct_error *err) {
    char *file, *folder;
    json_t *root = NULL;
    *tokenizer = NULL;
    oct_tokenizer *t = oct_calloc_array(1, sizeof *t);
    if (!t)
        return oct_fail_memory(err);
    oct_status status = find_files(path, &file, &folder, err);
    reader r = {file, t, false, err};
    if (!status)
        status = read_json(file, &root, err);
    if (!status)
        status = read_model(&r, root);
    if (!status)
        status = read_added_tokens(&r, root);
    if (!status)
        status = read_pipeline(&r, root);
    if (!status)
        status = find_ends(&r, folder);
    if (!status)
        status = oct_tokenizer_finish(t, err);
    json_decref(root);
    oct_free(file);
    oct_free(folder);
    if (status) {
        oct_tokenizer_free(t);
        return status;
    }
    *tokenizer = t;
    return OCT_OK;
}
