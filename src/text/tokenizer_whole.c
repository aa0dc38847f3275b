/* What is done to the ids of a whole text: the post-processor's tokens around it, and truncation;
 * see oct_tokenizer_encode_whole. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/count.h"
#include "file/json.h"
#include "text/bpe.h"
#include "text/tokenizer_impl.h"
#include "text/tokenizer_reader.h"

#define MAX_AROUND 64 /* tokens on either side */

/* ---- reading ---- */

/* Puts ids before what is there already (front), or behind it. */
static oct_status add_ids(oct_tokenizer_reader *r, const int32_t *ids, size_t n, bool front,
                          const char *key) {
    oct_whole_text *w = &r->tokenizer->whole;
    int32_t **list = front ? &w->before : &w->after;
    size_t *n_list = front ? &w->n_before : &w->n_after;
    if (*n_list + n > MAX_AROUND)
        return oct_fail(r->err, OCT_INVALID, "%s: %s: expected at most %d tokens around a text",
                        r->path, key, MAX_AROUND);
    int32_t *grown = oct_realloc_array(*list, *n_list + n + 1, sizeof *grown);
    if (!grown)
        return oct_fail_memory(r->err);
    *list = grown;
    memmove(grown + (front ? n : 0), grown, (front ? *n_list : 0) * sizeof *grown);
    memcpy(grown + (front ? 0 : *n_list), ids, n * sizeof *ids);
    *n_list += n;
    return OCT_OK;
}

static oct_status read_id(oct_tokenizer_reader *r, const json_t *value, const char *key,
                          int32_t *id) {
    size_t n_bytes;
    json_int_t number = json_is_integer(value) ? json_integer_value(value) : -1;
    if (number < 0 || number >= OCT_BPE_MAX_IDS ||
        !oct_tokenizer_token(r->tokenizer, (int32_t)number, &n_bytes))
        return oct_fail(r->err, OCT_INVALID,
                        "%s: %s: no such token; expected an id of the vocabulary; got %s %" PRId64,
                        r->path, key, oct_json_kind(value), (int64_t)json_integer_value(value));
    *id = (int32_t)number;
    return OCT_OK;
}

/* The ids of a template's special token. */
static oct_status read_template_ids(oct_tokenizer_reader *r, const json_t *part,
                                    const json_t *token, const char *key, int32_t ids[MAX_AROUND],
                                    size_t *n) {
    const char *name = json_string_value(json_object_get(token, "id"));
    const json_t *entry =
        name ? json_object_get(json_object_get(part, "special_tokens"), name) : NULL;
    const json_t *list = json_object_get(entry, "ids");
    *n = json_array_size(list);
    if (*n == 0 || *n > MAX_AROUND)
        return oct_fail(r->err, OCT_INVALID,
                        "%s: %s.special_tokens: expected ids of \"%s\", which the template names",
                        r->path, key, oct_show(name ? name : "").text);
    oct_status status = OCT_OK;
    for (size_t i = 0; i < *n && !status; i++)
        status = read_id(r, json_array_get(list, i), key, &ids[i]);
    return status;
}

/* Tokens before the text are collected and put before what earlier processors put there. */
static oct_status read_template(oct_tokenizer_reader *r, const json_t *part, const char *key) {
    const json_t *list = json_object_get(part, "single"), *item;
    int32_t before[MAX_AROUND + 1], ids[MAX_AROUND];
    size_t n_before = 0, n, i, n_sequences = 0;
    oct_status status = OCT_OK;
    json_array_foreach(list, i, item) {
        const json_t *token = json_object_get(item, "SpecialToken");
        if (!token) {
            const char *id =
                json_string_value(json_object_get(json_object_get(item, "Sequence"), "id"));
            n_sequences += id && strcmp(id, "A") == 0;
            continue;
        }
        status = read_template_ids(r, part, token, key, ids, &n);
        if (!status && n_sequences)
            status = add_ids(r, ids, n, false, key);
        else if (!status && n_before + n <= MAX_AROUND)
            memcpy(before + n_before, ids, n * sizeof *ids);
        n_before += n_sequences ? 0 : n;
        if (status || n_before > MAX_AROUND)
            break;
    }
    if (status)
        return status;
    if (n_sequences != 1 || n_before > MAX_AROUND)
        return oct_fail(
            r->err, OCT_INVALID,
            "%s: %s.single: not supported; expected the text, \"A\", once, with at most %d "
            "special tokens on either side",
            r->path, key, MAX_AROUND);
    return add_ids(r, before, n_before, true, key);
}

/* ["</s>", 2] */
static oct_status read_pair(oct_tokenizer_reader *r, const json_t *part, const char *name,
                            const char *key, bool front) {
    int32_t id;
    oct_status status = read_id(r, json_array_get(json_object_get(part, name), 1), key, &id);
    return status ? status : add_ids(r, &id, 1, front, key);
}

static oct_status read_roberta(oct_tokenizer_reader *r, const json_t *part, const char *key) {
    oct_status status = read_pair(r, part, "cls", key, true);
    return status ? status : read_pair(r, part, "sep", key, false);
}

static oct_status read_nothing(oct_tokenizer_reader *r, const json_t *part, const char *key) {
    (void)r, (void)part, (void)key; /* ByteLevel: it changes offsets alone */
    return OCT_OK;
}

static oct_status read_post_processor(oct_tokenizer_reader *r, const json_t *part,
                                      const char *key) {
    static const struct {
        const char *type;
        oct_part_reader read;
    } kinds[] = {{"ByteLevel", read_nothing},
                 {"TemplateProcessing", read_template},
                 {"RobertaProcessing", read_roberta},
                 {"BertProcessing", read_roberta}};
    for (size_t i = 0; i < OCT_COUNT(kinds); i++)
        if (strcmp(oct_reader_type(part), kinds[i].type) == 0)
            return kinds[i].read(r, part, key);
    return oct_reader_unsupported_type(
        r, part, key,
        "ByteLevel, TemplateProcessing, RobertaProcessing, BertProcessing or a Sequence of them");
}

static oct_status read_truncation(oct_tokenizer_reader *r, const json_t *part) {
    oct_whole_text *w = &r->tokenizer->whole;
    const json_t *length = json_object_get(part, "max_length");
    const char *direction = json_string_value(json_object_get(part, "direction"));
    const char *strategy = json_string_value(json_object_get(part, "strategy"));
    if (!json_is_object(part))
        return oct_reader_wrong_type(r, "truncation", "an object or null", part);
    if (!json_is_integer(length) || json_integer_value(length) < 0)
        return oct_reader_wrong_type(r, "truncation.max_length", "a length", length);
    if (strategy && strcmp(strategy, "OnlySecond") == 0)
        return oct_fail(
            r->err, OCT_INVALID,
            "%s: truncation.strategy: OnlySecond cuts a second text, and there is none; "
            "expected LongestFirst or OnlyFirst",
            r->path);
    if (direction && strcmp(direction, "Left") != 0 && strcmp(direction, "Right") != 0)
        return oct_fail(r->err, OCT_INVALID,
                        "%s: truncation.direction: expected Left or Right; got \"%s\"", r->path,
                        oct_show(direction).text);
    w->truncates = true;
    w->truncates_left = direction && strcmp(direction, "Left") == 0;
    w->max_length = (size_t)json_integer_value(length);
    return OCT_OK;
}

/* Padding to the longest of a batch does nothing to one text. */
static oct_status check_padding(oct_tokenizer_reader *r, const json_t *part) {
    const json_t *strategy = json_object_get(part, "strategy");
    const json_t *multiple = json_object_get(part, "pad_to_multiple_of");
    const char *name = json_string_value(strategy);
    if (name && strcmp(name, "BatchLongest") == 0 && (!multiple || json_is_null(multiple)))
        return OCT_OK;
    return oct_fail(r->err, OCT_INVALID,
                    "%s: padding: not supported, as texts aren't padded here; expected null",
                    r->path);
}

oct_status oct_reader_post_processing(oct_tokenizer_reader *r, const json_t *root) {
    const json_t *processor = json_object_get(root, "post_processor"),
                 *truncation = json_object_get(root, "truncation"),
                 *padding = json_object_get(root, "padding");
    oct_status status = OCT_OK;
    if (processor && !json_is_null(processor))
        status =
            oct_reader_parts(r, processor, "post_processor", "processors", read_post_processor);
    if (!status && truncation && !json_is_null(truncation))
        status = read_truncation(r, truncation);
    if (!status && padding && !json_is_null(padding))
        status = check_padding(r, padding);
    return status;
}

/* ---- encoding ---- */

typedef struct whole {
    oct_token_sink sink;
    void *user;
    size_t left;         /* ids of the text that may still come */
    oct_token_list last; /* truncated on the left: the ids so far */
} whole;

static oct_status pass_some(void *user, const int32_t *ids, size_t n, oct_error *err) {
    whole *w = user;
    n = n < w->left ? n : w->left;
    w->left -= n;
    return n ? w->sink(w->user, ids, n, err) : OCT_OK;
}

static oct_status collect(void *user, const int32_t *ids, size_t n, oct_error *err) {
    whole *w = user;
    return oct_token_list_append(&w->last, ids, n) ? oct_fail_memory(err) : OCT_OK;
}

oct_status oct_tokenizer_encode_whole(const oct_tokenizer *t, const char *text, size_t n_bytes,
                                      oct_added_tokens added, oct_token_sink sink, void *user,
                                      oct_error *err) {
    const oct_whole_text *rule = &t->whole;
    size_t n_around = rule->n_before + rule->n_after;
    whole w = {.sink = sink, .user = user, .left = SIZE_MAX};
    if (rule->truncates)
        w.left = rule->max_length > n_around ? rule->max_length - n_around : 0;
    oct_status status = rule->n_before ? sink(user, rule->before, rule->n_before, err) : OCT_OK;
    if (!status)
        status = oct_tokenizer_encode_stream(t, text, n_bytes, added,
                                             rule->truncates_left ? collect : pass_some, &w, err);
    if (!status && w.last.n) {
        size_t from = w.last.n > w.left ? w.last.n - w.left : 0;
        status = w.last.n > from ? sink(user, w.last.ids + from, w.last.n - from, err) : OCT_OK;
    }
    if (!status && rule->n_after)
        status = sink(user, rule->after, rule->n_after, err);
    oct_token_list_free(&w.last);
    return status;
}

size_t oct_tokenizer_ids_before(const oct_tokenizer *t, const int32_t **ids) {
    *ids = t->whole.before;
    return t->whole.n_before;
}

size_t oct_tokenizer_ids_after(const oct_tokenizer *t, const int32_t **ids) {
    *ids = t->whole.after;
    return t->whole.n_after;
}
