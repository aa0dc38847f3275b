/* The normalizer of a tokenizer: see tokenizer_impl.h and tokenizer_reader.h. */
#include <string.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/count.h"
#include "file/json.h"
#include "text/tokenizer_impl.h"
#include "text/tokenizer_reader.h"

/* ---- reading ---- */

static oct_status add_step(oct_tokenizer_reader *r, const char *pattern, const char *content,
                           const char *key) {
    oct_normalizer *n = &r->tokenizer->normalizer;
    if (n->n_steps == OCT_MAX_NORMAL_STEPS)
        return oct_fail(r->err, OCT_INVALID, "%s: %s: too many steps; expected at most %d", r->path,
                        key, OCT_MAX_NORMAL_STEPS);
    if (content && strlen(content) > OCT_MAX_CONTENT_BYTES)
        return oct_fail(r->err, OCT_INVALID, "%s: %s: too long; expected at most %d bytes; got %zu",
                        r->path, key, OCT_MAX_CONTENT_BYTES, strlen(content));
    oct_normal_step *step = &n->steps[n->n_steps++];
    step->pattern = pattern ? oct_strdup(pattern) : NULL;
    step->content = content ? oct_strdup(content) : NULL;
    if ((pattern && !step->pattern) || (content && !step->content))
        return oct_fail_memory(r->err);
    return OCT_OK;
}

static oct_status read_string(oct_tokenizer_reader *r, const json_t *part, const char *name,
                              const char *key, const char **text) {
    const json_t *value = json_object_get(part, name);
    *text = json_string_value(value);
    return *text ? OCT_OK
                 : oct_fail(r->err, OCT_INVALID, "%s: %s.%s: wrong type; expected a string; got %s",
                            r->path, key, name, oct_json_kind(value));
}

static oct_status read_nfc(oct_tokenizer_reader *r, const json_t *part, const char *key) {
    (void)part;
    return add_step(r, NULL, NULL, key);
}

static oct_status read_prepend(oct_tokenizer_reader *r, const json_t *part, const char *key) {
    const char *text;
    oct_status status = read_string(r, part, "prepend", key, &text);
    return status ? status : add_step(r, NULL, text, key);
}

static oct_status read_replace(oct_tokenizer_reader *r, const json_t *part, const char *key) {
    const json_t *pattern = json_object_get(part, "pattern");
    const char *content, *text = json_string_value(json_object_get(pattern, "String"));
    oct_status status = read_string(r, part, "content", key, &content);
    if (status)
        return status;
    if (!text || !text[0])
        return oct_fail(r->err, OCT_INVALID,
                        "%s: %s.pattern: not supported; expected {\"String\": ...} that isn't "
                        "empty; got %s",
                        r->path, key,
                        json_object_get(pattern, "Regex") ? "a regular expression"
                                                          : oct_json_kind(pattern));
    return add_step(r, text, content, key);
}

static oct_status read_part(oct_tokenizer_reader *r, const json_t *part, const char *key) {
    static const struct {
        const char *type;
        oct_part_reader read;
    } kinds[] = {{"NFC", read_nfc}, {"Prepend", read_prepend}, {"Replace", read_replace}};
    for (size_t i = 0; i < OCT_COUNT(kinds); i++)
        if (strcmp(oct_reader_type(part), kinds[i].type) == 0)
            return kinds[i].read(r, part, key);
    return oct_reader_unsupported_type(r, part, key, "NFC, Prepend, Replace or a Sequence of them");
}

static bool is_nfc_alone(const oct_normalizer *n) {
    for (int i = 0; i < n->n_steps; i++)
        if (n->steps[i].content)
            return false;
    return n->n_steps > 0;
}

/* How many times longer replacements may make a text, together. */
static double growth_of(const oct_normalizer *n) {
    double growth = 1;
    for (int i = 0; i < n->n_steps; i++) {
        const oct_normal_step *step = &n->steps[i];
        if (step->pattern && strlen(step->content) > strlen(step->pattern))
            growth *= (double)strlen(step->content) / (double)strlen(step->pattern);
    }
    return growth;
}

static void hash_steps(oct_tokenizer *t) {
    for (int i = 0; i < t->normalizer.n_steps; i++) {
        const oct_normal_step *step = &t->normalizer.steps[i];
        const char *texts[2] = {step->pattern, step->content};
        for (int k = 0; k < 2; k++)
            t->hash = XXH64(texts[k] ? texts[k] : "", texts[k] ? strlen(texts[k]) : 0,
                            t->hash + (texts[k] ? 1 : 2));
    }
}

oct_status oct_reader_normalizer(oct_tokenizer_reader *r, const json_t *root) {
    oct_tokenizer *t = r->tokenizer;
    const json_t *part = json_object_get(root, "normalizer");
    if (!part || json_is_null(part))
        return OCT_OK;
    oct_status status = oct_reader_parts(r, part, "normalizer", "normalizers", read_part);
    if (!status && is_nfc_alone(&t->normalizer)) {
        t->pretokenizer.nfc = true;
        oct_normalizer_free(&t->normalizer);
    }
    hash_steps(t);
    if (!status && growth_of(&t->normalizer) > OCT_MAX_GROWTH)
        return oct_fail(r->err, OCT_INVALID,
                        "%s: normalizer: replacements make a text too long; expected at most %d "
                        "times longer",
                        r->path, OCT_MAX_GROWTH);
    return status;
}

void oct_normalizer_free(oct_normalizer *n) {
    for (int i = 0; i < n->n_steps; i++) {
        oct_free(n->steps[i].pattern);
        oct_free(n->steps[i].content);
    }
    *n = (oct_normalizer){0};
}

/* ---- use ---- */

static const char *find(const char *text, size_t n, const char *pattern, size_t n_pattern) {
    const char *end = text + n;
    while ((size_t)(end - text) >= n_pattern) {
        const char *at = memchr(text, pattern[0], (size_t)(end - text) - n_pattern + 1);
        if (!at || memcmp(at, pattern, n_pattern) == 0)
            return at;
        text = at + 1;
    }
    return NULL;
}

static void replace(const oct_normal_step *step, const char *text, size_t n, oct_strbuf *to) {
    size_t n_pattern = strlen(step->pattern);
    const char *end = text + n, *at;
    for (; (at = find(text, (size_t)(end - text), step->pattern, n_pattern));
         text = at + n_pattern) {
        oct_strbuf_append(to, text, (size_t)(at - text));
        oct_strbuf_puts(to, step->content);
    }
    oct_strbuf_append(to, text, (size_t)(end - text));
}

static oct_status do_step(const oct_normal_step *step, oct_pretokenizer_scratch *scratch,
                          const char *text, size_t n, oct_strbuf *to) {
    static const oct_pretokenizer nfc = {.nfc = true};
    if (!step->content)
        return oct_pretokenizer_normalize(&nfc, scratch, text, n, to);
    if (step->pattern) {
        replace(step, text, n, to);
        return OCT_OK;
    }
    if (n)
        oct_strbuf_puts(to, step->content);
    oct_strbuf_append(to, text, n);
    return OCT_OK;
}

oct_status oct_tokenizer_normalize(const oct_tokenizer *t, oct_pretokenizer_scratch *scratch,
                                   const char *text, size_t n_bytes, oct_strbuf *to) {
    const oct_normalizer *n = &t->normalizer;
    oct_strbuf halves[2] = {{0}, {0}};
    oct_status status = OCT_OK;
    if (n->n_steps == 0)
        return oct_pretokenizer_normalize(&t->pretokenizer, scratch, text, n_bytes, to);
    for (int i = 0; i < n->n_steps && !status; i++) {
        oct_strbuf *next = i + 1 == n->n_steps ? to : &halves[i % 2];
        if (next != to)
            next->length = 0;
        status = do_step(&n->steps[i], scratch, text, n_bytes, next);
        if (!status && next->failed)
            status = OCT_NO_MEMORY;
        text = next->text;
        n_bytes = next->length;
    }
    oct_strbuf_free(&halves[0]);
    oct_strbuf_free(&halves[1]);
    return status;
}
