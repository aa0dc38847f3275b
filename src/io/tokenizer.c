/* The use of a tokenizer: see tokenizer.h.
 *
 * A call of encode borrows an encoder (scratch memory and word cache) from the tokenizer's pool, or
 * makes one, and gives it back: so calls from several threads don't meet, and a single thread
 * finds its cache warm. What an encoder remembers never changes what it answers. */
#include "io/tokenizer.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "io/tokenizer_impl.h"

#define OUT_IDS 8192 /* handed to the sink at a time, about */

struct oct_encoder {
    oct_bpe_scratch bpe;
    oct_pretokenizer_scratch pretokenizer;
    oct_token_list out;
    oct_encoder *next;
};

/* ---- the object ---- */

static int longest_first(const void *a, const void *b) {
    const oct_added_token *left = a, *right = b;
    if (left->n_bytes != right->n_bytes)
        return left->n_bytes > right->n_bytes ? -1 : 1;
    return strcmp(left->content, right->content);
}

static void hash_number(XXH64_state_t *state, uint64_t number) {
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(number >> 8 * i);
    XXH64_update(state, bytes, sizeof bytes);
}

static void hash_bytes(XXH64_state_t *state, const char *bytes, size_t n) {
    hash_number(state, n);
    XXH64_update(state, bytes, n);
}

/* The sum over merges doesn't depend on their order in the table. */
static uint64_t hash_merges(const oct_bpe *bpe) {
    uint64_t sum = 0;
    for (size_t i = 0; i < bpe->n_merge_slots; i++) {
        const oct_bpe_merge *m = &bpe->merges[i];
        uint64_t key[2] = {m->pair, (uint64_t)m->rank << 32 | (uint32_t)m->id};
        if (m->pair != UINT64_MAX)
            sum += XXH64(key, sizeof key, 0);
    }
    return sum;
}

static oct_status compute_hash(oct_tokenizer *t) {
    XXH64_state_t *state = XXH64_createState();
    if (!state)
        return OCT_NO_MEMORY;
    XXH64_reset(state, t->hash); /* so far: what the reader saw of normalizer and splits */
    for (int64_t id = 0; id < t->bpe.n_ids; id++) {
        const oct_bpe_token *token = &t->bpe.tokens[id];
        hash_number(state, (uint64_t)token->present << 1 | token->found);
        hash_bytes(state, t->bpe.pool + token->offset, token->n_bytes);
    }
    for (size_t i = 0; i < t->n_added; i++) {
        const oct_added_token *a = &t->added[i];
        hash_bytes(state, a->content, a->n_bytes);
        hash_number(state, (uint64_t)a->id << 3 | (uint64_t)a->strip_left << 2 |
                               (uint64_t)a->strip_right << 1 | a->between_spaces);
    }
    hash_number(state, hash_merges(&t->bpe));
    hash_number(state, (uint64_t)t->bpe.ignore_merges << 2 | (uint64_t)t->pretokenizer.nfc << 1 |
                           t->pretokenizer.leading_space);
    t->hash = XXH64_digest(state);
    t->hash += t->hash == 0;
    XXH64_freeState(state);
    return OCT_OK;
}

oct_status oct_tokenizer_finish(oct_tokenizer *t, oct_error *err) {
    if (t->n_added)
        qsort(t->added, t->n_added, sizeof *t->added, longest_first);
    for (size_t i = 0; i < t->n_added; i++)
        t->starts_added[(uint8_t)t->added[i].content[0]] = true;
    t->pool = oct_calloc_array(1, sizeof *t->pool);
    if (!t->pool)
        return oct_fail_memory(err);
    pthread_mutex_init(&t->pool->lock, NULL);
    if (compute_hash(t))
        return oct_fail_memory(err);
    return OCT_OK;
}

static void encoder_free(oct_encoder *encoder) {
    oct_bpe_scratch_free(&encoder->bpe);
    oct_pretokenizer_scratch_free(&encoder->pretokenizer);
    oct_token_list_free(&encoder->out);
    oct_free(encoder);
}

void oct_tokenizer_free(oct_tokenizer *t) {
    if (!t)
        return;
    while (t->pool && t->pool->idle) {
        oct_encoder *encoder = t->pool->idle;
        t->pool->idle = encoder->next;
        encoder_free(encoder);
    }
    if (t->pool)
        pthread_mutex_destroy(&t->pool->lock);
    oct_free(t->pool);
    for (size_t i = 0; i < t->n_added; i++)
        oct_free(t->added[i].content);
    oct_free(t->added);
    oct_bpe_free(&t->bpe);
    oct_pretokenizer_free(&t->pretokenizer);
    oct_free(t);
}

static oct_encoder *borrow_encoder(const oct_tokenizer *t) {
    pthread_mutex_lock(&t->pool->lock);
    oct_encoder *encoder = t->pool->idle;
    if (encoder)
        t->pool->idle = encoder->next;
    pthread_mutex_unlock(&t->pool->lock);
    return encoder ? encoder : oct_calloc_array(1, sizeof *encoder);
}

static void return_encoder(const oct_tokenizer *t, oct_encoder *encoder) {
    encoder->out.n = 0;
    pthread_mutex_lock(&t->pool->lock);
    encoder->next = t->pool->idle;
    t->pool->idle = encoder;
    pthread_mutex_unlock(&t->pool->lock);
}

int64_t oct_tokenizer_vocab_size(const oct_tokenizer *t) {
    return t->bpe.n_ids;
}

int32_t oct_tokenizer_bos(const oct_tokenizer *t) {
    return t->bos;
}

int32_t oct_tokenizer_eos(const oct_tokenizer *t) {
    return t->eos;
}

uint64_t oct_tokenizer_hash(const oct_tokenizer *t) {
    return t->hash;
}

const char *oct_tokenizer_token(const oct_tokenizer *t, int32_t id, size_t *n_bytes) {
    if (id < 0 || id >= t->bpe.n_ids || !t->bpe.tokens[id].present)
        return NULL;
    *n_bytes = t->bpe.tokens[id].n_bytes;
    return t->bpe.pool + t->bpe.tokens[id].offset;
}

int32_t oct_tokenizer_find(const oct_tokenizer *t, const char *bytes, size_t n_bytes) {
    for (size_t i = 0; i < t->n_added; i++)
        if (t->added[i].n_bytes == n_bytes && memcmp(t->added[i].content, bytes, n_bytes) == 0)
            return t->added[i].id;
    return oct_bpe_find(&t->bpe, bytes, n_bytes);
}

/* ---- added tokens in a text ---- */

typedef struct found_token {
    size_t start, end; /* with the white space it takes along */
    int32_t id;
} found_token;

/* The character at `at`, and the one that ends before `at`; 0 at the ends and for invalid bytes. */
static int32_t char_at(const char *text, size_t at, size_t n) {
    utf8proc_int32_t c = 0;
    return at < n &&
                   utf8proc_iterate((const uint8_t *)text + at, (utf8proc_ssize_t)(n - at), &c) > 0
               ? c
               : 0;
}

static size_t start_of_char_before(const char *text, size_t at) {
    size_t start = at - 1;
    while (start > 0 && at - start < 4 && ((uint8_t)text[start] & 0xC0) == 0x80)
        start--;
    return start;
}

static bool is_word_char(int32_t c) {
    utf8proc_category_t k = utf8proc_category(c);
    return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_NO) || k == UTF8PROC_CATEGORY_PC;
}

static bool is_space(int32_t c) {
    return (c >= 9 && c <= 13) || c == 0x85 ||
           (utf8proc_category(c) >= UTF8PROC_CATEGORY_ZS &&
            utf8proc_category(c) <= UTF8PROC_CATEGORY_ZP);
}

static bool fits_at(const oct_added_token *a, const char *text, size_t at, size_t n) {
    if (a->n_bytes > n - at || memcmp(text + at, a->content, a->n_bytes) != 0)
        return false;
    if (!a->between_spaces)
        return true;
    return !(at && is_word_char(char_at(text, start_of_char_before(text, at), n))) &&
           !is_word_char(char_at(text, at + a->n_bytes, n));
}

static found_token strip_around(const oct_added_token *a, const char *text, size_t from, size_t at,
                                size_t n) {
    found_token found = {at, at + a->n_bytes, a->id};
    while (a->strip_left && found.start > from) {
        size_t before = start_of_char_before(text, found.start);
        if (before < from || !is_space(char_at(text, before, n)))
            break;
        found.start = before;
    }
    while (a->strip_right && found.end < n && is_space(char_at(text, found.end, n)))
        found.end += oct_utf8_length(text + found.end, n - found.end);
    return found;
}

/* The first added token in text[from..n), else id -1 and start = n. */
static found_token find_added(const oct_tokenizer *t, const char *text, size_t from, size_t n) {
    for (size_t at = from; at < n; at++) {
        if (!t->starts_added[(uint8_t)text[at]])
            continue;
        for (size_t i = 0; i < t->n_added; i++)
            if (fits_at(&t->added[i], text, at, n))
                return strip_around(&t->added[i], text, from, at, n);
    }
    return (found_token){n, n, -1};
}

/* ---- encode ---- */

typedef struct encoding {
    const oct_tokenizer *tokenizer;
    oct_encoder *encoder;
    oct_token_sink sink;
    void *user;
} encoding;

static oct_status flush(encoding *e, oct_error *err) {
    oct_token_list *out = &e->encoder->out;
    oct_status status = out->n ? e->sink(e->user, out->ids, out->n, err) : OCT_OK;
    out->n = 0;
    return status;
}

static oct_status encode_word(void *user, const char *word, size_t n_bytes, oct_error *err) {
    encoding *e = user;
    oct_token_list *out = &e->encoder->out;
    oct_status status =
        oct_bpe_encode_word(&e->tokenizer->bpe, &e->encoder->bpe, word, n_bytes, out);
    if (!status && out->n >= OUT_IDS)
        return flush(e, err);
    return status;
}

oct_status oct_tokenizer_encode_stream(const oct_tokenizer *t, const char *text, size_t n_bytes,
                                       oct_added_tokens added, oct_token_sink sink, void *user,
                                       oct_error *err) {
    encoding e = {t, borrow_encoder(t), sink, user};
    if (!e.encoder)
        return oct_fail_memory(err);
    oct_status status = OCT_OK;
    for (size_t at = 0; at < n_bytes && !status;) {
        found_token found = added == OCT_ADDED_TOKENS_FOUND ? find_added(t, text, at, n_bytes)
                                                            : (found_token){n_bytes, n_bytes, -1};
        status = oct_pretokenize(&t->pretokenizer, &e.encoder->pretokenizer, text + at,
                                 found.start - at, encode_word, &e, err);
        if (!status && found.id >= 0)
            status = oct_token_list_append(&e.encoder->out, &found.id, 1);
        at = found.end;
    }
    if (!status)
        status = flush(&e, err);
    return_encoder(t, e.encoder);
    return status == OCT_NO_MEMORY ? oct_fail_memory(err) : status;
}

static oct_status append_to_list(void *user, const int32_t *ids, size_t n, oct_error *err) {
    oct_token_list *list = user;
    return oct_token_list_append(list, ids, n) ? oct_fail_memory(err) : OCT_OK;
}

oct_status oct_tokenizer_encode(const oct_tokenizer *t, const char *text, size_t n_bytes,
                                oct_added_tokens added, oct_token_list *ids, oct_error *err) {
    return oct_tokenizer_encode_stream(t, text, n_bytes, added, append_to_list, ids, err);
}

/* ---- decode ---- */

static bool is_special(const oct_tokenizer *t, int32_t id) {
    for (size_t i = 0; i < t->n_added; i++)
        if (t->added[i].id == id)
            return t->added[i].special;
    return false;
}

oct_status oct_tokenizer_decode(const oct_tokenizer *t, const int32_t *ids, size_t n,
                                oct_special_tokens special, oct_strbuf *text, oct_error *err) {
    for (size_t i = 0; i < n; i++) {
        size_t n_bytes;
        const char *bytes = oct_tokenizer_token(t, ids[i], &n_bytes);
        if (!bytes)
            return oct_fail(err, OCT_INVALID,
                            "token %zu: no such id; expected one of the tokenizer's, below %lld; "
                            "got %d",
                            i, (long long)t->bpe.n_ids, (int)ids[i]);
        if (special == OCT_SPECIAL_TOKENS_WRITE || !is_special(t, ids[i]))
            oct_strbuf_append(text, bytes, n_bytes);
    }
    return text->failed ? oct_fail_memory(err) : OCT_OK;
}
