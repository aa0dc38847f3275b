/* The use of a tokenizer: see tokenizer.h.
 *
 * A call of encode borrows an encoder (scratch memory and word cache) from the tokenizer's pool, or
 * makes one, and gives it back: so calls from several threads don't meet, and a single thread
 * finds its cache warm. What an encoder remembers never changes what it answers. */
#include "text/tokenizer.h"

#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "file/json.h"
#include "text/tokenizer_impl.h"

#define OUT_IDS 8192 /* handed to the sink at a time, about */

struct oct_encoder {
    oct_bpe_scratch bpe;
    oct_pretokenizer_scratch pretokenizer;
    oct_token_list out;
    oct_encoder *next;
};

/* ---- the object ---- */

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

static void hash_whole(XXH64_state_t *state, const oct_whole_text *whole) {
    hash_number(state, whole->n_before);
    for (size_t i = 0; i < whole->n_before; i++)
        hash_number(state, (uint64_t)whole->before[i]);
    hash_number(state, whole->n_after);
    for (size_t i = 0; i < whole->n_after; i++)
        hash_number(state, (uint64_t)whole->after[i]);
    if (whole->truncates)
        hash_number(state, (uint64_t)whole->max_length << 1 | whole->truncates_left);
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
        hash_number(state, (uint64_t)a->id << 4 | (uint64_t)a->normalized << 3 |
                               (uint64_t)a->strip_left << 2 | (uint64_t)a->strip_right << 1 |
                               a->between_spaces);
    }
    hash_number(state, hash_merges(&t->bpe));
    hash_number(state, (uint64_t)t->bpe.ignore_merges << 2 | (uint64_t)t->bpe.fuse_unk << 1 |
                           t->pretokenizer.nfc);
    hash_number(state, (uint64_t)(int64_t)t->bpe.unk);
    if (t->pieces.used)
        hash_number(state, (uint64_t)t->pieces.byte_fallback << 1 | t->pieces.ignore_merges);
    hash_whole(state, &t->whole);
    t->hash = XXH64_digest(state);
    t->hash += t->hash == 0;
    XXH64_freeState(state);
    return OCT_OK;
}

static oct_status fail_same(const oct_tokenizer *t, const char *path, int32_t one, int32_t other,
                            oct_error *err) {
    return oct_fail(
        err, OCT_INVALID,
        "%s: added_tokens: \"%s\" and \"%s\" (ids %d and %d) are the same after normalising; "
        "expected tokens that differ there",
        path, oct_show(t->added[one].content).text, oct_show(t->added[other].content).text,
        (int)t->added[one].id, (int)t->added[other].id);
}

static bool normalizes(const oct_tokenizer *t) {
    return t->pretokenizer.nfc || t->normalizer.n_steps;
}

/* Added tokens into their trees: those that are looked for in normalised text by what they are
 * there. */
static oct_status plant_added(oct_tokenizer *t, const char *path, oct_error *err) {
    oct_pretokenizer_scratch scratch = {0};
    oct_strbuf normal = {0};
    oct_status status = OCT_OK;
    t->special_of = oct_calloc_array((size_t)t->bpe.n_ids, sizeof *t->special_of);
    if (t->bpe.n_ids && !t->special_of)
        return oct_fail_memory(err);
    for (size_t i = 0; i < t->n_added && !status; i++) {
        int32_t taken = -1;
        const oct_added_token *a = &t->added[i];
        const char *bytes = a->content;
        size_t n_bytes = a->n_bytes;
        normal.length = 0;
        if (a->normalized && normalizes(t)) {
            status = oct_tokenizer_normalize(t, &scratch, a->content, a->n_bytes, &normal);
            bytes = normal.text;
            n_bytes = normal.length;
        }
        if (!status)
            status = oct_added_tree_add(&t->added_trees[a->normalized], bytes, n_bytes, (int32_t)i,
                                        &taken);
        if (status == OCT_INVALID)
            status = fail_same(t, path, taken, (int32_t)i, err);
        else if (status)
            status = oct_fail_memory(err);
        t->special_of[a->id] = a->special;
    }
    oct_strbuf_free(&normal);
    oct_pretokenizer_scratch_free(&scratch);
    return status;
}

oct_status oct_tokenizer_finish(oct_tokenizer *t, const char *path, oct_error *err) {
    oct_status status = plant_added(t, path, err);
    if (status)
        return status;
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
    for (int i = 0; i < 2; i++)
        oct_added_tree_free(&t->added_trees[i]);
    oct_free(t->special_of);
    oct_free(t->whole.before);
    oct_free(t->whole.after);
    oct_pieces_free(&t->pieces);
    oct_normalizer_free(&t->normalizer);
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
    if (t->pieces.decoded_at) {
        *n_bytes = t->pieces.decoded_at[id + 1] - t->pieces.decoded_at[id];
        return t->pieces.decoded + t->pieces.decoded_at[id];
    }
    *n_bytes = t->bpe.tokens[id].n_bytes;
    return t->bpe.pool + t->bpe.tokens[id].offset;
}

int32_t oct_tokenizer_find(const oct_tokenizer *t, const char *bytes, size_t n_bytes) {
    for (size_t i = 0; i < t->n_added; i++)
        if (t->added[i].n_bytes == n_bytes && memcmp(t->added[i].content, bytes, n_bytes) == 0)
            return t->added[i].id;
    return oct_bpe_find(&t->bpe, bytes, n_bytes);
}

/* ---- encode ---- */

typedef struct encoding {
    const oct_tokenizer *tokenizer;
    oct_encoder *encoder;
    oct_token_sink sink;
    void *user;
    bool at_start; /* the text at hand begins the whole one */
} encoding;

static oct_status flush(encoding *e, oct_error *err) {
    oct_token_list *out = &e->encoder->out;
    oct_status status = out->n ? e->sink(e->user, out->ids, out->n, err) : OCT_OK;
    out->n = 0;
    return status;
}

static oct_status fail_byte(const encoding *e, const char *word, size_t n_bytes, oct_error *err) {
    return oct_fail(err, OCT_INVALID,
                    "the tokenizer has no token of the byte 0x%02x and none for unknown bytes",
                    (unsigned)oct_bpe_missing_byte(&e->tokenizer->bpe, word, n_bytes));
}

/* Hands ids on as they are found, so that memory doesn't grow with the word. */
static oct_status encode_parts(encoding *e, const char *word, size_t n_bytes, oct_error *err) {
    oct_token_list *out = &e->encoder->out;
    oct_status status = OCT_OK;
    for (size_t at = 0, used; at < n_bytes && !status; at += used) {
        status = oct_bpe_encode_part(&e->tokenizer->bpe, &e->encoder->bpe, word + at, n_bytes - at,
                                     0, out, &used);
        if (!status && out->n >= OUT_IDS)
            status = flush(e, err);
    }
    return status;
}

static oct_status flush_encoding(void *user, oct_error *err) {
    return flush(user, err);
}

static oct_status encode_word(void *user, const char *word, size_t n_bytes, oct_error *err) {
    encoding *e = user;
    oct_token_list *out = &e->encoder->out;
    if (e->tokenizer->pieces.used)
        return oct_pieces_encode_word(e->tokenizer, &e->encoder->bpe, word, n_bytes, out,
                                      flush_encoding, e, err);
    if (oct_bpe_goes_in_parts(&e->tokenizer->bpe, word, n_bytes))
        return encode_parts(e, word, n_bytes, err);
    oct_status status =
        oct_bpe_encode_word(&e->tokenizer->bpe, &e->encoder->bpe, word, n_bytes, out);
    if (status == OCT_INVALID)
        return fail_byte(e, word, n_bytes, err);
    if (!status && out->n >= OUT_IDS)
        return flush(e, err);
    return status;
}

typedef oct_status (*text_encoder)(encoding *e, const char *text, size_t n_bytes, oct_error *err);

/* The id of a match; none where the token before took all of it. */
static oct_status append_match(encoding *e, const oct_added_match *m, oct_error *err) {
    const oct_added_token *token = &e->tokenizer->added[m->index];
    if (m->start > m->end)
        return oct_fail(err, OCT_INVALID,
                        "the added token \"%s\" (id %d) stands inside the white space that the "
                        "added token before it takes along, where it has no place",
                        oct_show(token->content).text, (int)token->id);
    return m->start < m->end ? oct_token_list_append(&e->encoder->out, &token->id, 1) : OCT_OK;
}

/* Cuts text at the added tokens of one tree and hands the rest to `encode_rest`. As in the
 * reference library the tokens are those of the text, whatever white space they take: two
 * neighbours may take the same, and what a token gives back is text again. */
static oct_status encode_around(encoding *e, const oct_added_tree *tree, const char *text,
                                size_t n_bytes, text_encoder encode_rest, oct_error *err) {
    const oct_added_token *added = e->tokenizer->added;
    oct_status status = OCT_OK;
    bool at_start = e->at_start;
    size_t done = 0;
    for (size_t next = 0; (done < n_bytes || next < n_bytes) && !status;) {
        oct_added_match m = oct_added_tree_find(tree, added, text, next, done, n_bytes);
        e->at_start = at_start && done == 0;
        if (m.start > done)
            status = encode_rest(e, text + done, m.start - done, err);
        if (!status && m.index >= 0)
            status = append_match(e, &m, err);
        done = m.end;
        next = m.next;
        if (m.index < 0)
            break;
    }
    e->at_start = at_start;
    return status;
}

static oct_status encode_plain(encoding *e, const char *text, size_t n_bytes, oct_error *err) {
    return oct_pretokenize(&e->tokenizer->pretokenizer, &e->encoder->pretokenizer, text, n_bytes,
                           e->at_start, encode_word, e, err);
}

static oct_status encode_normalized(encoding *e, const char *text, size_t n_bytes, bool finds_added,
                                    oct_error *err) {
    const oct_tokenizer *t = e->tokenizer;
    oct_strbuf normal = {0};
    oct_status status =
        oct_tokenizer_normalize(t, &e->encoder->pretokenizer, text, n_bytes, &normal);
    if (!status &&
        finds_added) /* parts of normalised text are normal, so they stay what they are */
        status =
            encode_around(e, &t->added_trees[true], normal.text, normal.length, encode_plain, err);
    else if (!status)
        status = encode_plain(e, normal.text, normal.length, err);
    oct_strbuf_free(&normal);
    return status;
}

/* Added tokens are text like any other. */
static oct_status encode_all_as_text(encoding *e, const char *text, size_t n_bytes,
                                     oct_error *err) {
    return e->tokenizer->normalizer.n_steps ? encode_normalized(e, text, n_bytes, false, err)
                                            : encode_plain(e, text, n_bytes, err);
}

/* What lies between the tokens that are looked for in the text as it is: those that are looked for
 * in normalised text come next. */
static oct_status encode_between(encoding *e, const char *text, size_t n_bytes, oct_error *err) {
    const oct_tokenizer *t = e->tokenizer;
    const oct_added_tree *tree = &t->added_trees[true];
    if (!tree->n_nodes)
        return encode_all_as_text(e, text, n_bytes, err);
    return normalizes(t) ? encode_normalized(e, text, n_bytes, true, err)
                         : encode_around(e, tree, text, n_bytes, encode_plain, err);
}

oct_status oct_tokenizer_encode_stream(const oct_tokenizer *t, const char *text, size_t n_bytes,
                                       oct_added_tokens added, oct_token_sink sink, void *user,
                                       oct_error *err) {
    encoding e = {t, borrow_encoder(t), sink, user, true};
    if (!e.encoder)
        return oct_fail_memory(err);
    oct_status status =
        added == OCT_ADDED_TOKENS_FOUND
            ? encode_around(&e, &t->added_trees[false], text, n_bytes, encode_between, err)
            : encode_all_as_text(&e, text, n_bytes, err);
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

/* Appends the first token, without the marks that its decoder drops there. */
static void append_without_marks(const oct_tokenizer *t, int32_t id, oct_strbuf *text) {
    const oct_bpe_token *token = &t->bpe.tokens[id];
    const char *bytes = t->bpe.pool + token->offset;
    size_t n_mark = strlen(t->pieces.mark);
    for (size_t at = 0; at < token->n_bytes;) {
        bool is_mark =
            token->n_bytes - at >= n_mark && memcmp(bytes + at, t->pieces.mark, n_mark) == 0;
        if (!is_mark)
            oct_strbuf_append(text, bytes + at, 1);
        at += is_mark ? n_mark : 1;
    }
}

/* Takes what a decoder strips from the front of a text, which begins at `from`. */
static void strip_front(const oct_pieces *p, oct_strbuf *text, size_t from) {
    size_t n = strlen(p->strip), n_gone = 0;
    while (n_gone < p->n_strip * n && text->length - from - n_gone >= n &&
           memcmp(text->text + from + n_gone, p->strip, n) == 0)
        n_gone += n;
    if (n_gone == 0)
        return;
    memmove(text->text + from, text->text + from + n_gone, text->length - from - n_gone + 1);
    text->length -= n_gone;
}

oct_status oct_tokenizer_decode(const oct_tokenizer *t, const int32_t *ids, size_t n,
                                oct_special_tokens special, oct_strbuf *text, oct_error *err) {
    size_t from = text->length;
    bool is_first = true;
    for (size_t i = 0; i < n; i++) {
        size_t n_bytes;
        const char *bytes = oct_tokenizer_token(t, ids[i], &n_bytes);
        if (!bytes)
            return oct_fail(err, OCT_INVALID,
                            "token %zu: no such id; expected one of the tokenizer's, below %" PRId64
                            "; got %d",
                            i, t->bpe.n_ids, (int)ids[i]);
        if (special == OCT_SPECIAL_TOKENS_SKIP && t->special_of[ids[i]])
            continue;
        if (is_first && t->pieces.mark[0])
            append_without_marks(t, ids[i], text);
        else
            oct_strbuf_append(text, bytes, n_bytes);
        is_first = false;
    }
    if (t->pieces.n_strip && !text->failed)
        strip_front(&t->pieces, text, from);
    return text->failed ? oct_fail_memory(err) : OCT_OK;
}
