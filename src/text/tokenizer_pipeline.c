/* The pre-tokenizer and the decoder of a tokenizer.json: see tokenizer_reader.h. */
#include <string.h>
#include <xxhash.h>

#include "base/count.h"
#include "base/utf8.h"
#include "file/json.h"
#include "text/tokenizer_impl.h"
#include "text/tokenizer_reader.h"
#include "text/unicode.h"

/* Where a step is, for messages. */
static void put_place(const oct_tokenizer_reader *r, const char *key, const char *what,
                      oct_strbuf *place) {
    oct_strbuf_printf(place, "%s: %s%s", r->path, key, what);
}

static oct_status add_split(oct_tokenizer_reader *r, const char *pattern, size_t n,
                            oct_pattern_kind kind, oct_split split, const char *key) {
    oct_tokenizer *t = r->tokenizer;
    oct_strbuf place = {0};
    put_place(r, key, ".pattern", &place);
    oct_status status = place.failed ? oct_fail_memory(r->err)
                                     : oct_pretokenizer_add_split(&t->pretokenizer, pattern, n,
                                                                  kind, split, place.text, r->err);
    oct_strbuf_free(&place);
    t->hash = XXH64(pattern, n,
                    t->hash * 4 + (uint64_t)kind * 2 + (uint64_t)(split.invert) +
                        ((uint64_t)split.behavior << 8));
    return status;
}

static oct_status add_step(oct_tokenizer_reader *r, oct_stage_kind kind, const char *key) {
    oct_tokenizer *t = r->tokenizer;
    oct_strbuf place = {0};
    put_place(r, key, "", &place);
    oct_status status = place.failed
                            ? oct_fail_memory(r->err)
                            : oct_pretokenizer_add_step(&t->pretokenizer, kind, place.text, r->err);
    oct_strbuf_free(&place);
    t->hash = XXH64(kind == OCT_STAGE_SPACE ? " " : "spell", 1, t->hash);
    return status;
}

static oct_status read_byte_level(oct_tokenizer_reader *r, const json_t *part, const char *key) {
    bool leading_space, use_regex;
    oct_status status = oct_reader_bool(r, part, "add_prefix_space", true, &leading_space);
    if (!status)
        status = oct_reader_bool(r, part, "use_regex", true, &use_regex);
    if (!status && leading_space)
        status = add_step(r, OCT_STAGE_SPACE, key);
    if (!status && use_regex)
        status = add_split(r, oct_gpt2_pattern, strlen(oct_gpt2_pattern), OCT_PATTERN_REGEX,
                           (oct_split){.behavior = OCT_SPLIT_ISOLATED}, key);
    r->byte_level = true;
    return status;
}

static oct_status read_behavior(oct_tokenizer_reader *r, const json_t *part, const char *key,
                                bool required, oct_split_behavior *behavior) {
    static const char *const names[] = {[OCT_SPLIT_ISOLATED] = "Isolated",
                                        [OCT_SPLIT_REMOVED] = "Removed",
                                        [OCT_SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
                                        [OCT_SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
                                        [OCT_SPLIT_CONTIGUOUS] = "Contiguous"};
    const char *name = json_string_value(json_object_get(part, "behavior"));
    *behavior = OCT_SPLIT_ISOLATED;
    if (!name && !required)
        return OCT_OK;
    for (size_t i = 0; name && i < OCT_COUNT(names); i++) {
        if (strcmp(name, names[i]) == 0) {
            *behavior = (oct_split_behavior)i;
            return OCT_OK;
        }
    }
    return oct_fail(r->err, OCT_INVALID,
                    "%s: %s.behavior: unknown; expected Isolated, Removed, MergedWithPrevious, "
                    "MergedWithNext or Contiguous; got \"%s\"",
                    r->path, key, oct_show(name ? name : "").text);
}

static oct_status read_split(oct_tokenizer_reader *r, const json_t *part, const char *key) {
    const json_t *pattern = json_object_get(part, "pattern");
    const json_t *regex = json_object_get(pattern, "Regex");
    const json_t *text = regex ? regex : json_object_get(pattern, "String");
    oct_split split = {0};
    oct_status status = oct_reader_bool(r, part, "invert", false, &split.invert);
    if (!status)
        status = read_behavior(r, part, key, true, &split.behavior);
    if (status)
        return status;
    if (!json_is_string(text))
        return oct_fail(
            r->err, OCT_INVALID,
            "%s: %s.pattern: wrong form; expected {\"Regex\": ...} or {\"String\": ...}", r->path,
            key);
    return add_split(r, json_string_value(text), json_string_length(text),
                     regex ? OCT_PATTERN_REGEX : OCT_PATTERN_LITERAL, split, key);
}

/* Cuts at characters of a set, or at runs of them. */
static oct_status add_set(oct_tokenizer_reader *r, const oct_char_set *set, bool runs,
                          oct_split_behavior behavior, const char *key) {
    oct_strbuf pattern = {0};
    oct_strbuf_puts(&pattern, "[");
    oct_char_set_put(set, &pattern);
    oct_strbuf_puts(&pattern, runs ? "]+" : "]");
    oct_status status = pattern.failed
                            ? oct_fail_memory(r->err)
                            : add_split(r, pattern.text, pattern.length, OCT_PATTERN_REGEX,
                                        (oct_split){.behavior = behavior}, key);
    oct_strbuf_free(&pattern);
    return status;
}

static oct_status read_digits(oct_tokenizer_reader *r, const json_t *part, const char *key) {
    const oct_char_set digits = oct_char_set_of_digits();
    bool individual;
    oct_status status = oct_reader_bool(r, part, "individual_digits", false, &individual);
    return status ? status : add_set(r, &digits, !individual, OCT_SPLIT_ISOLATED, key);
}

static oct_status read_punctuation(oct_tokenizer_reader *r, const json_t *part, const char *key) {
    const oct_char_set punctuation = oct_char_set_of_punctuation();
    oct_split_behavior behavior;
    oct_status status = read_behavior(r, part, key, false, &behavior);
    return status ? status : add_set(r, &punctuation, false, behavior, key);
}

static oct_status add_mark(oct_tokenizer_reader *r, const char *mark, oct_mark_before before,
                           const char *key) {
    oct_tokenizer *t = r->tokenizer;
    oct_strbuf place = {0};
    put_place(r, key, "", &place);
    oct_status status = place.failed ? oct_fail_memory(r->err)
                                     : oct_pretokenizer_add_mark(&t->pretokenizer, mark, before,
                                                                 place.text, r->err);
    oct_strbuf_free(&place);
    t->hash = XXH64(mark, strlen(mark), t->hash * 4 + (uint64_t)before);
    return status;
}

static oct_status read_mark_before(oct_tokenizer_reader *r, const json_t *part, const char *key,
                                   oct_mark_before *before) {
    static const char *const names[] = {[OCT_MARK_BEFORE_ALL] = "always",
                                        [OCT_MARK_BEFORE_FIRST] = "first",
                                        [OCT_MARK_BEFORE_NONE] = "never"};
    const json_t *value = json_object_get(part, "prepend_scheme");
    const char *name = value ? json_string_value(value) : "always";
    for (size_t i = 0; name && i < OCT_COUNT(names); i++) {
        if (strcmp(name, names[i]) == 0) {
            *before = (oct_mark_before)i;
            return OCT_OK;
        }
    }
    return oct_fail(r->err, OCT_INVALID,
                    "%s: %s.prepend_scheme: unknown; expected always, first or never; got \"%s\"",
                    r->path, key, oct_show(name ? name : "").text);
}

static bool has_prepend(const oct_normalizer *n) {
    for (int i = 0; i < n->n_steps; i++)
        if (n->steps[i].content && !n->steps[i].pattern)
            return true;
    return false;
}

static oct_status read_metaspace(oct_tokenizer_reader *r, const json_t *part, const char *key) {
    const char *mark = json_string_value(json_object_get(part, "replacement"));
    oct_mark_before before = OCT_MARK_BEFORE_ALL;
    bool splits, prefixed;
    if (!mark || !mark[0] || oct_utf8_length(mark, strlen(mark)) != strlen(mark))
        return oct_fail(r->err, OCT_INVALID,
                        "%s: %s.replacement: expected one character; got \"%s\"", r->path, key,
                        oct_show(mark ? mark : "").text);
    oct_status status = read_mark_before(r, part, key, &before);
    if (!status)
        status = oct_reader_bool(r, part, "split", true, &splits);
    if (!status)
        status = oct_reader_bool(r, part, "add_prefix_space", true, &prefixed);
    if (status)
        return status;
    if (!prefixed && before != OCT_MARK_BEFORE_NONE)
        return oct_fail(
            r->err, OCT_INVALID,
            "%s: %s: add_prefix_space is false; expected prepend_scheme \"never\" with it", r->path,
            key);
    if (before == OCT_MARK_BEFORE_FIRST && has_prepend(&r->tokenizer->normalizer))
        return oct_fail(r->err, OCT_INVALID,
                        "%s: %s.prepend_scheme: \"first\" isn't supported behind a normalizer that "
                        "prepends; expected always or never",
                        r->path, key);
    status = add_mark(r, mark, before, key);
    return status || !splits ? status
                             : add_split(r, mark, strlen(mark), OCT_PATTERN_LITERAL,
                                         (oct_split){.behavior = OCT_SPLIT_MERGED_WITH_NEXT}, key);
}

static oct_status read_pre_tokenizer(oct_tokenizer_reader *r, const json_t *part, const char *key) {
    static const struct {
        const char *type;
        oct_part_reader read;
    } kinds[] = {{"ByteLevel", read_byte_level},
                 {"Split", read_split},
                 {"Digits", read_digits},
                 {"Punctuation", read_punctuation},
                 {"Metaspace", read_metaspace}};
    size_t n_kinds = OCT_COUNT(kinds) - (r->tokenizer->pieces.used ? 0 : 1);
    oct_status status = OCT_OK;
    if (r->byte_level && strcmp(oct_reader_type(part), "ByteLevel") == 0)
        return oct_fail(r->err, OCT_INVALID, "%s: %s: not supported; expected one ByteLevel part",
                        r->path, key);
    if (r->byte_level && !r->spelt) { /* parts behind it see the spelling of bytes */
        r->spelt = true;
        status = add_step(r, OCT_STAGE_SPELL, key);
    }
    if (status)
        return status;
    for (size_t i = 0; i < n_kinds; i++)
        if (strcmp(oct_reader_type(part), kinds[i].type) == 0)
            return kinds[i].read(r, part, key);
    return oct_reader_unsupported_type(r, part, key,
                                       "ByteLevel, Split, Digits, Punctuation, without ByteLevel "
                                       "Metaspace, or a Sequence of them");
}

static oct_status read_decoder(oct_tokenizer_reader *r, const json_t *part, const char *key) {
    return strcmp(oct_reader_type(part), "ByteLevel") == 0
               ? OCT_OK
               : oct_reader_unsupported_type(r, part, key, "ByteLevel");
}

oct_status oct_reader_pipeline(oct_tokenizer_reader *r, const json_t *root) {
    const json_t *pre_tokenizer = json_object_get(root, "pre_tokenizer"),
                 *decoder = json_object_get(root, "decoder");
    oct_status status = oct_reader_normalizer(r, root);
    if (!status && pre_tokenizer && !json_is_null(pre_tokenizer))
        status = oct_reader_parts(r, pre_tokenizer, "pre_tokenizer", "pretokenizers",
                                  read_pre_tokenizer);
    if (!status && r->tokenizer->pieces.used)
        return oct_reader_piece_decoder(r, root);
    if (!status && decoder && !json_is_null(decoder))
        status = oct_reader_parts(r, decoder, "decoder", "decoders", read_decoder);
    return status;
}
