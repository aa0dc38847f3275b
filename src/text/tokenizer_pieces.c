/* Vocabularies of pieces, as SentencePiece trains them (Llama 2, Mistral, Gemma): see
 * tokenizer_impl.h and tokenizer_reader.h. Text is merged from characters; one without a token
 * becomes the tokens of its bytes, or the unknown token. Neither ever merges, which the reader sees
 * to, so a word is cut there. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "file/json.h"
#include "text/tokenizer_impl.h"
#include "text/tokenizer_reader.h"

#define MAX_REPLACES 8
#define MANY_IDS 8192 /* are handed on */

void oct_pieces_free(oct_pieces *p) {
    oct_free(p->decoded);
    oct_free(p->decoded_at);
    *p = (oct_pieces){0};
}

bool oct_reader_spells_bytes(const json_t *root) {
    const json_t *part = json_object_get(root, "pre_tokenizer");
    const json_t *list = json_object_get(part, "pretokenizers"), *item;
    size_t i;
    if (strcmp(oct_reader_type(part), "ByteLevel") == 0)
        return true;
    json_array_foreach(list, i, item) {
        if (strcmp(oct_reader_type(item), "ByteLevel") == 0)
            return true;
    }
    return false;
}

/* ---- bytes ---- */

/* The bytes that occur in UTF-8. */
static bool is_in_texts(int byte) {
    return byte < 0xC0 || (byte > 0xC1 && byte < 0xF5);
}

static int32_t find_byte_token(const oct_bpe *bpe, int byte) {
    char name[8];
    int n = snprintf(name, sizeof name, "<0x%02X>", (unsigned)byte);
    return oct_bpe_find(bpe, name, (size_t)n);
}

/* Byte tokens for all bytes, or for none, where they never serve. */
static oct_status read_byte_tokens(oct_tokenizer_reader *r) {
    oct_tokenizer *t = r->tokenizer;
    int n_found = 0, missing = -1;
    for (int byte = 0; byte < 256; byte++) {
        t->pieces.byte_id[byte] = find_byte_token(&t->bpe, byte);
        n_found += t->pieces.byte_id[byte] >= 0;
        if (t->pieces.byte_id[byte] < 0 && missing < 0 && is_in_texts(byte))
            missing = byte;
    }
    t->pieces.byte_fallback = n_found > 0;
    if (n_found == 0 || missing < 0)
        return OCT_OK;
    return oct_fail(r->err, OCT_INVALID,
                    "%s: model.byte_fallback: expected tokens of all bytes in model.vocab, <0x00> "
                    "to <0xFF>, or of none; got %d of them, without <0x%02X>",
                    r->path, n_found, (unsigned)missing);
}

static bool stands_for_others(const oct_tokenizer *t, int32_t id) {
    if (id == t->bpe.unk)
        return true;
    for (int byte = 0; t->pieces.byte_fallback && byte < 256; byte++)
        if (t->pieces.byte_id[byte] == id)
            return true;
    return false;
}

static oct_status check_merges(oct_tokenizer_reader *r) {
    const oct_tokenizer *t = r->tokenizer;
    for (size_t i = 0; i < t->bpe.n_merge_slots; i++) {
        const oct_bpe_merge *m = &t->bpe.merges[i];
        if (m->pair == UINT64_MAX || !(stands_for_others(t, (int32_t)(m->pair >> 32)) ||
                                       stands_for_others(t, (int32_t)(uint32_t)m->pair)))
            continue;
        return oct_fail(r->err, OCT_INVALID,
                        "%s: model.merges[%u]: not supported; expected no merge of the unknown "
                        "token or of a token that stands for a byte",
                        r->path, (unsigned)m->rank);
    }
    return OCT_OK;
}

oct_status oct_reader_piece_bytes(oct_tokenizer_reader *r, const json_t *model) {
    oct_tokenizer *t = r->tokenizer;
    bool fallback;
    oct_status status = oct_reader_bool(r, model, "byte_fallback", false, &fallback);
    if (!status && fallback)
        status = read_byte_tokens(r);
    t->pieces.ignore_merges = t->bpe.ignore_merges;
    t->bpe.ignore_merges = false; /* for it's of whole words, and those are cut */
    return status ? status : check_merges(r);
}

/* ---- encoding ---- */

typedef struct word_encoding {
    const oct_tokenizer *tokenizer;
    oct_bpe_scratch *scratch;
    oct_token_list *ids;
    oct_status (*flush)(void *user, oct_error *err);
    void *user;
    oct_error *err;
    bool after_unknown;
} word_encoding;

static size_t character_length(const char *text, size_t n) {
    size_t length = oct_utf8_length(text, n);
    return length ? length : 1;
}

static bool has_token(const oct_bpe *bpe, const char *character, size_t length) {
    return length == 1 ? bpe->byte_id[(uint8_t)character[0]] >= 0
                       : oct_bpe_find(bpe, character, length) >= 0;
}

static oct_status flush_many(word_encoding *w) {
    return w->ids->n >= MANY_IDS ? w->flush(w->user, w->err) : OCT_OK;
}

static oct_status encode_known(word_encoding *w, const char *text, size_t n) {
    const oct_bpe *bpe = &w->tokenizer->bpe;
    oct_status status = OCT_OK;
    if (!oct_bpe_goes_in_parts(bpe, text, n))
        return oct_bpe_encode_word(bpe, w->scratch, text, n, w->ids);
    for (size_t at = 0, used; at < n && !status; at += used) {
        status = oct_bpe_encode_part(bpe, w->scratch, text + at, n - at, 0, w->ids, &used);
        if (!status)
            status = flush_many(w);
    }
    return status;
}

static oct_status fail_unknown(const word_encoding *w, const char *character, size_t length) {
    char text[OCT_MARK_BYTES];
    snprintf(text, sizeof text, "%.*s", (int)length, character);
    return oct_fail(w->err, OCT_INVALID,
                    "the tokenizer has no token of the character \"%s\" (first byte 0x%02x), none "
                    "of its bytes, and none for unknown ones",
                    oct_show(text).text, (unsigned)(uint8_t)character[0]);
}

static oct_status encode_unknown(word_encoding *w, const char *character, size_t length) {
    const oct_tokenizer *t = w->tokenizer;
    bool fused = w->after_unknown && t->bpe.fuse_unk, has_bytes = t->pieces.byte_fallback;
    int32_t ids[4];
    for (size_t i = 0; i < length; i++) {
        ids[i] = t->pieces.byte_id[(uint8_t)character[i]];
        has_bytes = has_bytes && ids[i] >= 0;
    }
    if (has_bytes)
        return oct_token_list_append(w->ids, ids, length);
    if (t->bpe.unk < 0)
        return fail_unknown(w, character, length);
    w->after_unknown = true;
    return fused ? OCT_OK : oct_token_list_append(w->ids, &t->bpe.unk, 1);
}

oct_status oct_pieces_encode_word(const oct_tokenizer *t, oct_bpe_scratch *scratch,
                                  const char *word, size_t n_bytes, oct_token_list *ids,
                                  oct_status (*flush)(void *user, oct_error *err), void *user,
                                  oct_error *err) {
    word_encoding w = {t, scratch, ids, flush, user, err, false};
    oct_status status = OCT_OK;
    int32_t whole = t->pieces.ignore_merges && n_bytes <= t->bpe.longest
                        ? oct_bpe_find(&t->bpe, word, n_bytes)
                        : -1;
    if (whole >= 0)
        return oct_token_list_append(ids, &whole, 1);
    for (size_t at = 0, from = 0, length; at <= n_bytes && !status; at += length) {
        length = at < n_bytes ? character_length(word + at, n_bytes - at) : 1;
        bool ends = at == n_bytes;
        if (!ends && has_token(&t->bpe, word + at, length))
            continue;
        if (at > from) {
            w.after_unknown = false;
            status = encode_known(&w, word + from, at - from);
        }
        if (!ends && !status)
            status = encode_unknown(&w, word + at, length);
        if (!status)
            status = flush_many(&w);
        from = at + length;
    }
    return status;
}

/* ---- reading of the decoder ---- */

/* What a decoder of pieces can be: replacements in tokens, bytes of byte tokens, all joined, and
 * then a number of characters taken from the front. */
typedef struct piece_decoder {
    const char *patterns[MAX_REPLACES], *contents[MAX_REPLACES];
    int n_replaces;
    double growth; /* how many times longer they may make a token, together */
    bool bytes, fused, done;
} piece_decoder;

static oct_status fail_decoder(oct_tokenizer_reader *r, const char *key, const char *got) {
    return oct_fail(r->err, OCT_INVALID,
                    "%s: %s: not supported; expected, as no pre_tokenizer is ByteLevel, Metaspace, "
                    "or a Sequence of Replace (of a String, at most %d times longer), "
                    "ByteFallback, Fuse and Strip (at the "
                    "start, after Fuse) in this order; got %s",
                    r->path, key, OCT_MAX_GROWTH, got);
}

static bool is_character(const char *text) {
    return text && text[0] && oct_utf8_length(text, strlen(text)) == strlen(text);
}

static bool add_replace(piece_decoder *d, const char *pattern, const char *content) {
    if (!pattern || !pattern[0] || !content || strlen(content) > OCT_MAX_CONTENT_BYTES ||
        d->n_replaces == MAX_REPLACES || d->bytes || d->fused)
        return false;
    if (strlen(content) > strlen(pattern))
        d->growth *= (double)strlen(content) / (double)strlen(pattern);
    if (d->growth > OCT_MAX_GROWTH)
        return false;
    d->patterns[d->n_replaces] = pattern;
    d->contents[d->n_replaces++] = content;
    return true;
}

static bool read_strip(oct_pieces *p, piece_decoder *d, const json_t *part) {
    const char *content = json_string_value(json_object_get(part, "content"));
    const json_t *start = json_object_get(part, "start"), *stop = json_object_get(part, "stop");
    if (!d->fused || !is_character(content) || !json_is_integer(start) ||
        json_integer_value(start) < 0 || !json_is_integer(stop) || json_integer_value(stop) != 0)
        return false;
    p->n_strip = (size_t)json_integer_value(start);
    snprintf(p->strip, sizeof p->strip, "%s", content);
    d->done = true;
    return true;
}

static bool read_metaspace(oct_pieces *p, piece_decoder *d, const json_t *part) {
    const char *mark = json_string_value(json_object_get(part, "replacement"));
    const char *scheme = json_string_value(json_object_get(part, "prepend_scheme"));
    if (!is_character(mark) || d->n_replaces || d->bytes || d->fused)
        return false;
    if (!scheme || strcmp(scheme, "never") != 0)
        snprintf(p->mark, sizeof p->mark, "%s", mark);
    d->done = true;
    return add_replace(d, mark, " ");
}

static bool read_decoder_part(oct_pieces *p, piece_decoder *d, const json_t *part) {
    const char *type = oct_reader_type(part);
    if (d->done)
        return false;
    if (strcmp(type, "Replace") == 0)
        return add_replace(
            d, json_string_value(json_object_get(json_object_get(part, "pattern"), "String")),
            json_string_value(json_object_get(part, "content")));
    if (strcmp(type, "ByteFallback") == 0)
        return !d->fused && (d->bytes = true);
    if (strcmp(type, "Fuse") == 0)
        return d->fused = true;
    return strcmp(type, "Strip") == 0       ? read_strip(p, d, part)
           : strcmp(type, "Metaspace") == 0 ? read_metaspace(p, d, part)
                                            : false;
}

static oct_status read_decoder(oct_tokenizer_reader *r, const json_t *part, piece_decoder *d) {
    oct_pieces *p = &r->tokenizer->pieces;
    if (!json_is_object(part))
        return fail_decoder(r, "decoder", oct_json_kind(part));
    const json_t *list = json_object_get(part, "decoders"), *item;
    size_t i;
    if (strcmp(oct_reader_type(part), "Sequence") != 0)
        return read_decoder_part(p, d, part)
                   ? OCT_OK
                   : fail_decoder(r, "decoder", oct_show(oct_reader_type(part)).text);
    json_array_foreach(list, i, item) {
        char key[48];
        snprintf(key, sizeof key, "decoder.decoders[%zu]", i);
        if (!read_decoder_part(p, d, item))
            return fail_decoder(r, key, oct_show(oct_reader_type(item)).text);
    }
    return OCT_OK;
}

/* ---- what each token decodes to ---- */

static int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The byte that a token's text names; -1: none. */
static int named_byte(const oct_strbuf *text) {
    if (text->length != 6 || memcmp(text->text, "<0x", 3) != 0 || text->text[5] != '>')
        return -1;
    int high = hex_digit(text->text[3]), low = hex_digit(text->text[4]);
    return high < 0 || low < 0 ? -1 : 16 * high + low;
}

static void replace_all(oct_strbuf *text, const char *pattern, const char *content) {
    oct_strbuf to = {0};
    size_t n = strlen(pattern);
    for (size_t at = 0; at < text->length;) {
        bool found = text->length - at >= n && memcmp(text->text + at, pattern, n) == 0;
        oct_strbuf_append(&to, found ? content : text->text + at, found ? strlen(content) : 1);
        at += found ? n : 1;
    }
    text->length = 0;
    oct_strbuf_append(text, to.text, to.length);
    text->failed |= to.failed;
    oct_strbuf_free(&to);
}

static void decode_token(const oct_bpe *bpe, int64_t id, const piece_decoder *d, oct_strbuf *text) {
    text->length = 0;
    if (!bpe->tokens[id].present)
        return;
    oct_strbuf_append(text, bpe->pool + bpe->tokens[id].offset, bpe->tokens[id].n_bytes);
    for (int i = 0; i < d->n_replaces; i++)
        replace_all(text, d->patterns[i], d->contents[i]);
    int byte = d->bytes && !text->failed ? named_byte(text) : -1;
    if (byte < 0)
        return;
    text->length = 0;
    oct_strbuf_append(text, &(char){(char)byte}, 1);
}

oct_status oct_reader_piece_decoder(oct_tokenizer_reader *r, const json_t *root) {
    oct_tokenizer *t = r->tokenizer;
    piece_decoder d = {.growth = 1};
    oct_strbuf text = {0}, all = {0};
    oct_status status = read_decoder(r, json_object_get(root, "decoder"), &d);
    if (status)
        return status;
    t->pieces.decoded_at = oct_calloc_array((size_t)t->bpe.n_ids + 1, sizeof(size_t));
    if (!t->pieces.decoded_at)
        return oct_fail_memory(r->err);
    for (int64_t id = 0; id < t->bpe.n_ids; id++) {
        decode_token(&t->bpe, id, &d, &text);
        oct_strbuf_append(&all, text.text, text.length);
        t->pieces.decoded_at[id + 1] = all.length;
    }
    bool failed = text.failed || all.failed;
    oct_strbuf_free(&text);
    t->pieces.decoded = all.text;
    return failed ? oct_fail_memory(r->err) : OCT_OK;
}
