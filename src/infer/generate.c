/* Texts that a trained model goes on with: see generate.h. */
#include "infer/generate.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/strbuf.h"
#include "job/setup.h"

/* ---- one text ---- */

typedef struct text {
    size_t which;
    oct_token_list ids; /* the prompt's, then those that were drawn */
    oct_strbuf bytes;   /* of those that were drawn */
    size_t n_sent;
    bool ended;
    oct_generated *result;
} text;

typedef struct batch {
    oct_inference *inference;
    const oct_generation *generation;
    oct_text_sink sink;
    void *user;
    text *texts;
    size_t n;
    int64_t V;
    oct_kv_cache *cache;
    float *logits;   /* (n, V) */
    uint8_t *seen;   /* (V), zeros */
    int32_t *tokens; /* (n, tokens at a time) */
} batch;

/* Where the first stop string begins at or after `from`; the length of the text: nowhere. */
static size_t find_stop(const oct_generation *g, const oct_strbuf *b, size_t from) {
    size_t first = b->length;
    for (size_t i = 0; i < g->n_stops; i++) {
        size_t n = strlen(g->stops[i]);
        const char *at =
            from < b->length ? memmem(b->text + from, b->length - from, g->stops[i], n) : NULL;
        if (at && (size_t)(at - b->text) < first)
            first = (size_t)(at - b->text);
    }
    return first;
}

/* How many bytes at the end may be the beginning of a stop string. */
static size_t count_waiting(const oct_generation *g, const oct_strbuf *b, size_t from) {
    size_t longest = 0;
    for (size_t i = 0; i < g->n_stops; i++) {
        size_t n = strlen(g->stops[i]) - 1, there = b->length - from;
        for (n = n < there ? n : there; n > longest; n--)
            if (memcmp(b->text + b->length - n, g->stops[i], n) == 0)
                longest = n;
    }
    return longest;
}

static void send_until(const batch *b, text *t, size_t end) {
    if (end > t->n_sent)
        b->sink(b->user, t->which, t->bytes.text + t->n_sent, end - t->n_sent);
    t->n_sent = end;
}

static void end_text(text *t, oct_generation_end end) {
    t->ended = true;
    t->result->end = end;
}

/* Nothing before n_sent can belong to a stop string: that was decided when it was sent. */
static oct_status put_token(const batch *b, text *t, int32_t id, oct_error *err) {
    size_t n_bytes = 0;
    const char *bytes = oct_tokenizer_token(b->inference->tokenizer, id, &n_bytes);
    if (bytes)
        oct_strbuf_append(&t->bytes, bytes, n_bytes);
    if (t->bytes.failed || oct_token_list_append(&t->ids, &id, 1))
        return oct_fail_memory(err);
    t->result->n_tokens++;
    size_t stop = find_stop(b->generation, &t->bytes, t->n_sent);
    if (stop < t->bytes.length) {
        send_until(b, t, stop);
        end_text(t, OCT_END_BY_STOP);
        return OCT_OK;
    }
    send_until(b, t, t->bytes.length - count_waiting(b->generation, &t->bytes, t->n_sent));
    if (t->result->n_tokens == b->generation->max_new)
        end_text(t, OCT_END_BY_LENGTH);
    return OCT_OK;
}

static bool is_end(const oct_inference *inference, int32_t id) {
    for (int64_t i = 0; i < inference->n_ends; i++)
        if (inference->ends[i] == id)
            return true;
    return id == oct_tokenizer_eos(inference->tokenizer);
}

static oct_status draw_token(const batch *b, text *t, float *logits, oct_error *err) {
    const oct_sampling *sampling = &b->generation->sampling;
    if (sampling->repeat_penalty > 0)
        oct_penalize_repeats(logits, t->ids.ids, t->ids.n, sampling->repeat_penalty, b->seen);
    int32_t id = oct_sample(logits, b->V, sampling, b->cache->length);
    oct_status status = OCT_OK;
    if (id < 0)
        return oct_fail(err, OCT_FAILED, "the logits are not finite: no token can be drawn");
    if (is_end(b->inference, id))
        end_text(t, OCT_END_BY_TOKEN);
    else
        status = put_token(b, t, id, err);
    if (!status && t->ended && t->result->end != OCT_END_BY_STOP)
        send_until(b, t, t->bytes.length);
    return status;
}

/* ---- all of them ---- */

/* Feeds `n` tokens of each text from the cache's position on; those that have ended repeat their
 * last one, whose results nobody looks at. */
static oct_status feed(const batch *b, size_t n, oct_error *err) {
    size_t position = (size_t)b->cache->length;
    for (size_t i = 0; i < b->n; i++)
        for (size_t k = 0; k < n; k++) {
            const oct_token_list *ids = &b->texts[i].ids;
            b->tokens[i * n + k] = ids->ids[position + k < ids->n ? position + k : ids->n - 1];
        }
    oct_status status = oct_model_generate(b->inference->model, b->inference->step, b->cache,
                                           (int64_t)n, b->tokens, b->logits);
    if (status == OCT_NO_MEMORY)
        return oct_fail_memory(err);
    return status ? oct_fail(err, status, "the model refused %zu tokens", n) : OCT_OK;
}

static bool all_ended(const batch *b) {
    for (size_t i = 0; i < b->n; i++)
        if (!b->texts[i].ended)
            return false;
    return true;
}

/* The shortest prompt goes in at once, what is longer of others with its continuation. */
static oct_status run(const batch *b, size_t shortest, oct_error *err) {
    oct_status status = OCT_OK;
    for (size_t n = shortest; !all_ended(b) && !status; n = 1) {
        status = feed(b, n, err);
        for (size_t i = 0; i < b->n && !status; i++) {
            text *t = &b->texts[i];
            if (!t->ended && t->ids.n == (size_t)b->cache->length)
                status = draw_token(b, t, b->logits + i * (size_t)b->V, err);
        }
    }
    return status;
}

static oct_status encode_all(batch *b, const char *const *prompts, oct_generated *results,
                             size_t *shortest, size_t *longest, oct_error *err) {
    oct_status status = OCT_OK;
    *shortest = SIZE_MAX;
    *longest = 0;
    for (size_t i = 0; i < b->n && !status; i++) {
        text *t = &b->texts[i];
        t->which = i;
        t->result = &results[i];
        results[i] = (oct_generated){0};
        status = oct_inference_encode(b->inference, prompts[i], &t->ids, err);
        *shortest = t->ids.n < *shortest ? t->ids.n : *shortest;
        *longest = t->ids.n > *longest ? t->ids.n : *longest;
    }
    return status;
}

static oct_status allocate(batch *b, size_t shortest, size_t longest, oct_error *err) {
    const oct_model *model = b->inference->model;
    int64_t most = oct_model_get_args(model)->max_seq_len, max_new = b->generation->max_new;
    if ((int64_t)longest + max_new > most)
        return oct_fail(err, OCT_INVALID,
                        "prompt (%zu tokens) and continuation (%" PRId64 ") exceed the %" PRId64
                        " positions that the model was opened for",
                        longest, max_new, most);
    b->logits = oct_malloc_array(b->n * (size_t)b->V, sizeof *b->logits);
    b->seen = oct_calloc_array((size_t)b->V, sizeof *b->seen);
    b->tokens = oct_malloc_array(b->n * shortest, sizeof *b->tokens);
    if (!b->logits || !b->seen || !b->tokens ||
        oct_model_create_cache(model, oct_setup_activation(&b->inference->source->job),
                               (int64_t)b->n, (int64_t)longest + max_new, &b->cache))
        return oct_fail_memory(err);
    return OCT_OK;
}

static void free_batch(batch *b) {
    for (size_t i = 0; i < b->n && b->texts; i++) {
        oct_token_list_free(&b->texts[i].ids);
        oct_strbuf_free(&b->texts[i].bytes);
    }
    oct_free(b->texts);
    oct_kv_cache_destroy(b->cache);
    oct_free(b->logits);
    oct_free(b->seen);
    oct_free(b->tokens);
}

oct_status oct_inference_generate(oct_inference *inference, const char *const *prompts, size_t n,
                                  const oct_generation *generation, oct_text_sink sink, void *user,
                                  oct_generated *results, oct_error *err) {
    size_t shortest = 0, longest = 0;
    batch b = {.inference = inference,
               .generation = generation,
               .sink = sink,
               .user = user,
               .n = n,
               .V = oct_model_get_args(inference->model)->vocab_size,
               .texts = oct_calloc_array(n, sizeof *b.texts)};
    oct_status status =
        b.texts ? encode_all(&b, prompts, results, &shortest, &longest, err) : oct_fail_memory(err);
    if (!status)
        status = allocate(&b, shortest, longest, err);
    if (!status)
        status = run(&b, shortest, err);
    free_batch(&b);
    return status;
}
