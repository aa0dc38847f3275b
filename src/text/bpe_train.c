/* Training of a byte-level BPE: see tokenizer.h.
 *
 * Texts become a table of distinct words with counts; each pair of adjacent tokens knows its count
 * and the words it was seen in. A step takes the most frequent pair from a heap, merges it in those
 * words and corrects the counts of the pairs around, so that a step costs what it changes.
 *
 * Invariant: pair.count is the number of adjacent occurrences in all words (counted with overlaps);
 * a heap entry is stale when its count isn't its pair's. A list of words may name a word twice or
 * one that no longer has the pair, never miss one that has. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/count.h"
#include "base/fs.h"
#include "text/bpe.h"
#include "text/documents.h"
#include "text/pretokenize.h"
#include "text/tokenizer.h"

#define END_TOKEN "<|endoftext|>"
#define MAX_VOCAB 1048576

typedef struct word {
    size_t first; /* of its symbols; while counting, of its bytes */
    uint32_t n;
    int64_t count;
} word;

typedef struct pair {
    int32_t left, right;
    int64_t count;
    uint32_t *words;
    uint32_t n_words, capacity;
    bool touched; /* counted up in this step */
    bool merged;  /* has its rank */
} pair;

typedef struct heap_entry {
    int64_t count;
    int32_t left, right;
    size_t pair;
} heap_entry;

typedef struct index_table { /* open addressing: positions in an array, -1 empty */
    int64_t *slots;
    size_t n_slots;
} index_table;

typedef struct trainer {
    const oct_tokenizer_train_options *options;
    oct_pretokenizer pretokenizer;
    oct_pretokenizer_scratch scratch;
    char *bytes; /* of all words */
    size_t n_bytes, bytes_capacity;
    int32_t *symbols; /* of all words, in place of each of its bytes */
    word *words;
    size_t n_words, words_capacity;
    pair *pairs;
    size_t n_pairs, pairs_capacity;
    index_table word_table, pair_table;
    heap_entry *heap;
    size_t n_heap, heap_capacity;
    size_t *touched;
    size_t n_touched, touched_capacity;
    oct_bpe bpe;
    oct_strbuf merges; /* written as they're found */
    int64_t done_bytes, total_bytes;
} trainer;

/* Makes room for one more element. */
static bool grow(void **array, size_t n, size_t *capacity, size_t size) {
    void *grown = oct_grow_array(*array, n, capacity, size);
    *array = grown ? grown : *array;
    return grown != NULL;
}

static void report(trainer *t, const char *what, int64_t done, int64_t total) {
    if (t->options->progress)
        t->options->progress(t->options->progress_user, what, done, total);
}

/* ---- counting words ---- */

static uint64_t hash_word(const trainer *t, const word *w) {
    return XXH3_64bits(t->bytes + w->first, w->n);
}

static uint64_t hash_pair(const trainer *t, size_t i) {
    uint64_t key = (uint64_t)(uint32_t)t->pairs[i].left << 32 | (uint32_t)t->pairs[i].right;
    key *= 0x9E3779B97F4A7C15u;
    return key ^ key >> 32;
}

/* A table with room for one more than n, rehashed by `hash_of` when it grows. */
typedef enum table_kind { TABLE_OF_WORDS, TABLE_OF_PAIRS } table_kind;
static bool grow_table(trainer *t, index_table *table, size_t n, table_kind kind) {
    if (2 * (n + 1) <= table->n_slots)
        return true;
    size_t n_slots = table->n_slots ? 2 * table->n_slots : 4096;
    int64_t *slots = oct_malloc_array(n_slots, sizeof *slots);
    if (!slots)
        return false;
    memset(slots, 0xff, n_slots * sizeof *slots);
    for (size_t i = 0; i < n; i++) {
        uint64_t hash = kind == TABLE_OF_WORDS ? hash_word(t, &t->words[i]) : hash_pair(t, i);
        size_t slot = hash & (n_slots - 1);
        while (slots[slot] >= 0)
            slot = (slot + 1) & (n_slots - 1);
        slots[slot] = (int64_t)i;
    }
    oct_free(table->slots);
    *table = (index_table){slots, n_slots};
    return true;
}

static bool append_bytes(trainer *t, const char *bytes, size_t n) {
    size_t capacity = t->bytes_capacity ? t->bytes_capacity : 1 << 16;
    while (capacity < t->n_bytes + n)
        capacity *= 2;
    if (capacity != t->bytes_capacity) {
        char *grown = oct_realloc_array(t->bytes, capacity, 1);
        if (!grown)
            return false;
        t->bytes = grown;
        t->bytes_capacity = capacity;
    }
    memcpy(t->bytes + t->n_bytes, bytes, n);
    t->n_bytes += n;
    return true;
}

static oct_status count_word(void *user, const char *bytes, size_t n, oct_error *err) {
    trainer *t = user;
    if (!grow_table(t, &t->word_table, t->n_words, TABLE_OF_WORDS))
        return oct_fail_memory(err);
    index_table *table = &t->word_table;
    size_t slot = XXH3_64bits(bytes, n) & (table->n_slots - 1);
    for (; table->slots[slot] >= 0; slot = (slot + 1) & (table->n_slots - 1)) {
        word *known = &t->words[table->slots[slot]];
        if (known->n == n && memcmp(t->bytes + known->first, bytes, n) == 0) {
            known->count++;
            return OCT_OK;
        }
    }
    if (t->n_words == UINT32_MAX)
        return oct_fail(err, OCT_INVALID, "too many different words in the texts");
    word fresh = {t->n_bytes, (uint32_t)n, 1};
    if (!grow((void **)&t->words, t->n_words, &t->words_capacity, sizeof *t->words) ||
        !append_bytes(t, bytes, n))
        return oct_fail_memory(err);
    table->slots[slot] = (int64_t)t->n_words;
    t->words[t->n_words++] = fresh;
    return OCT_OK;
}

static oct_status count_document(void *user, const char *text, size_t n, oct_error *err) {
    trainer *t = user;
    t->done_bytes += (int64_t)n;
    oct_status status =
        oct_pretokenize(&t->pretokenizer, &t->scratch, text, n, true, count_word, t, err);
    report(t, "counting words", t->done_bytes, t->total_bytes);
    return status;
}

static oct_status count_texts(trainer *t, const char *const *paths, size_t n_paths,
                              oct_error *err) {
    oct_file_list list = {0};
    oct_status status = OCT_OK;
    for (size_t i = 0; i < n_paths && !status; i++)
        status = oct_file_list_add(&list, paths[i], t->options->as, err);
    t->total_bytes = list.n_bytes;
    const char *packed = oct_file_list_first_packed(&list);
    if (!status && packed)
        status =
            oct_fail(err, OCT_INVALID, "%s: a packed token file; expected text or JSONL", packed);
    for (size_t i = 0; i < list.n && !status; i++)
        status = oct_documents_walk(&list.files[i], count_document, t, err);
    if (!status && t->n_words == 0)
        status = oct_fail(err, OCT_INVALID, "%s: no text to train a tokenizer on",
                          n_paths ? paths[0] : "(no file)");
    oct_file_list_free(&list);
    return status;
}

/* ---- pairs ---- */

static bool comes_before(const heap_entry *a, const heap_entry *b) {
    if (a->count != b->count)
        return a->count > b->count;
    return a->left != b->left ? a->left < b->left : a->right < b->right;
}

static bool heap_push(trainer *t, size_t index) {
    if (!grow((void **)&t->heap, t->n_heap, &t->heap_capacity, sizeof *t->heap))
        return false;
    const pair *p = &t->pairs[index];
    heap_entry entry = {p->count, p->left, p->right, index};
    size_t i = t->n_heap++;
    for (; i > 0 && comes_before(&entry, &t->heap[(i - 1) / 2]); i = (i - 1) / 2)
        t->heap[i] = t->heap[(i - 1) / 2];
    t->heap[i] = entry;
    return true;
}

static heap_entry heap_pop(trainer *t) {
    heap_entry top = t->heap[0], last = t->heap[--t->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < t->n_heap; i = child) {
        if (child + 1 < t->n_heap && comes_before(&t->heap[child + 1], &t->heap[child]))
            child++;
        if (!comes_before(&t->heap[child], &last))
            break;
        t->heap[i] = t->heap[child];
    }
    t->heap[i] = last;
    return top;
}

/* The pair's record, made at need; NULL when memory is refused. */
static pair *get_pair(trainer *t, int32_t left, int32_t right) {
    if (!grow_table(t, &t->pair_table, t->n_pairs, TABLE_OF_PAIRS) ||
        !grow((void **)&t->pairs, t->n_pairs, &t->pairs_capacity, sizeof *t->pairs))
        return NULL;
    index_table *table = &t->pair_table;
    t->pairs[t->n_pairs] = (pair){.left = left, .right = right};
    size_t slot = hash_pair(t, t->n_pairs) & (table->n_slots - 1);
    for (; table->slots[slot] >= 0; slot = (slot + 1) & (table->n_slots - 1)) {
        pair *known = &t->pairs[table->slots[slot]];
        if (known->left == left && known->right == right)
            return known;
    }
    table->slots[slot] = (int64_t)t->n_pairs;
    return &t->pairs[t->n_pairs++];
}

static bool count_up(trainer *t, int32_t left, int32_t right, uint32_t in_word) {
    pair *p = get_pair(t, left, right);
    if (!p)
        return false;
    p->count += t->words[in_word].count;
    if (!p->touched) {
        if (!grow((void **)&t->touched, t->n_touched, &t->touched_capacity, sizeof *t->touched))
            return false;
        t->touched[t->n_touched++] = (size_t)(p - t->pairs);
        p->touched = true;
    }
    if (p->n_words && p->words[p->n_words - 1] == in_word)
        return true;
    size_t capacity = p->capacity;
    if (p->n_words == p->capacity) {
        capacity = capacity ? 2 * capacity : 4;
        uint32_t *grown = oct_realloc_array(p->words, capacity, sizeof *grown);
        if (!grown)
            return false;
        p->words = grown;
        p->capacity = (uint32_t)capacity;
    }
    p->words[p->n_words++] = in_word;
    return true;
}

static bool count_down(trainer *t, int32_t left, int32_t right, uint32_t in_word) {
    pair *p = get_pair(t, left, right);
    if (!p)
        return false;
    p->count -= t->words[in_word].count;
    return true;
}

/* Pairs whose count rose get a fresh entry in the heap; the others' stale entries are corrected
 * when they come up. */
static bool queue_touched(trainer *t) {
    for (size_t i = 0; i < t->n_touched; i++) {
        pair *p = &t->pairs[t->touched[i]];
        p->touched = false;
        if (p->count > 1 && !heap_push(t, t->touched[i]))
            return false;
    }
    t->n_touched = 0;
    return true;
}

static bool merge_in_word(trainer *t, uint32_t index, int32_t left, int32_t right, int32_t id) {
    word *w = &t->words[index];
    int32_t *s = t->symbols + w->first;
    uint32_t n = 0; /* symbols written */
    for (uint32_t i = 0; i < w->n; i++) {
        if (i + 1 == w->n || s[i] != left || s[i + 1] != right) {
            s[n++] = s[i];
            continue;
        }
        if (n && (!count_down(t, s[n - 1], left, index) || !count_up(t, s[n - 1], id, index)))
            return false;
        if (i + 2 < w->n &&
            (!count_down(t, right, s[i + 2], index) || !count_up(t, id, s[i + 2], index)))
            return false;
        s[n++] = id;
        i++;
    }
    w->n = n;
    return true;
}

/* ---- the vocabulary ---- */

static oct_status start_vocab(trainer *t) {
    oct_status status = oct_bpe_add_token(&t->bpe, 0, END_TOKEN, strlen(END_TOKEN), false);
    int32_t id = 1;
    for (uint32_t c = 0; c < 512 && !status; c++) {
        int byte = oct_bpe_byte_of_char(c);
        char as_char = (char)byte;
        if (byte >= 0)
            status = oct_bpe_add_token(&t->bpe, id++, &as_char, 1, true);
    }
    return status ? status : oct_bpe_finish(&t->bpe);
}

static oct_status start_pairs(trainer *t) {
    t->symbols = oct_malloc_array(t->n_bytes, sizeof *t->symbols);
    if (!t->symbols)
        return OCT_NO_MEMORY;
    for (size_t i = 0; i < t->n_bytes; i++)
        t->symbols[i] = t->bpe.byte_id[(uint8_t)t->bytes[i]];
    for (size_t i = 0; i < t->n_words; i++) {
        const int32_t *s = t->symbols + t->words[i].first;
        for (uint32_t k = 1; k < t->words[i].n; k++)
            if (!count_up(t, s[k - 1], s[k], (uint32_t)i))
                return OCT_NO_MEMORY;
    }
    return queue_touched(t) ? OCT_OK : OCT_NO_MEMORY;
}

/* A token as its spelling inside a JSON string. */
static void write_spelt(const oct_bpe *bpe, int32_t id, oct_strbuf *out) {
    const oct_bpe_token *token = &bpe->tokens[id];
    for (uint32_t i = 0; i < token->n_bytes; i++) {
        uint32_t c = oct_bpe_char_of_byte((uint8_t)bpe->pool[token->offset + i]);
        uint8_t utf8[4];
        if (c == '"' || c == '\\')
            oct_strbuf_append(out, "\\", 1);
        oct_strbuf_append(out, utf8, (size_t)utf8proc_encode_char((utf8proc_int32_t)c, utf8));
    }
}

/* The token of the joined bytes: another pair may have made it already. */
static oct_status make_token(trainer *t, int32_t left, int32_t right, int32_t *id) {
    oct_bpe *bpe = &t->bpe;
    size_t a = bpe->tokens[left].n_bytes, b = bpe->tokens[right].n_bytes;
    char *joined = oct_malloc(a + b);
    if (!joined)
        return OCT_NO_MEMORY;
    memcpy(joined, bpe->pool + bpe->tokens[left].offset, a);
    memcpy(joined + a, bpe->pool + bpe->tokens[right].offset, b);
    *id = oct_bpe_find(bpe, joined, a + b);
    oct_status status = OCT_OK;
    if (*id < 0) {
        *id = (int32_t)bpe->n_ids;
        status = oct_bpe_add_token(bpe, *id, joined, a + b, true);
    }
    oct_free(joined);
    return status;
}

static oct_status merge_pair(trainer *t, size_t index) {
    pair *p = &t->pairs[index];
    int32_t left = p->left, right = p->right, id;
    oct_status status = make_token(t, left, right, &id);
    if (status)
        return status;
    if (!p->merged) {
        oct_strbuf_puts(&t->merges, t->merges.length ? ",\n      \"" : "\n      \"");
        write_spelt(&t->bpe, left, &t->merges);
        oct_strbuf_puts(&t->merges, " ");
        write_spelt(&t->bpe, right, &t->merges);
        oct_strbuf_puts(&t->merges, "\"");
        p->merged = true;
    }
    uint32_t *words = p->words, n_words = p->n_words;
    p->words = NULL;
    p->n_words = p->capacity = 0;
    for (uint32_t i = 0; i < n_words && !status; i++)
        status = merge_in_word(t, words[i], left, right, id) ? OCT_OK : OCT_NO_MEMORY;
    oct_free(words);
    t->pairs[index].count = 0; /* the list of pairs may have moved; overlaps are gone too */
    return status || !queue_touched(t) ? OCT_NO_MEMORY : OCT_OK;
}

static oct_status merge_all(trainer *t, oct_error *err) {
    while (t->n_heap && t->bpe.n_ids < t->options->vocab_size) {
        heap_entry top = heap_pop(t);
        const pair *p = &t->pairs[top.pair];
        if (p->count < 2)
            continue;
        if (p->count != top.count) {
            if (p->count < top.count && !heap_push(t, top.pair))
                return oct_fail_memory(err);
            continue; /* had it grown, a fresher entry would be there */
        }
        if (merge_pair(t, top.pair) || t->merges.failed)
            return oct_fail_memory(err);
        if (t->bpe.n_ids % 256 == 0)
            report(t, "merging pairs", t->bpe.n_ids, t->options->vocab_size);
    }
    return OCT_OK;
}

/* ---- the file ---- */

/* A pattern inside a JSON string. */
static void write_escaped(const char *text, oct_strbuf *out) {
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            oct_strbuf_append(out, "\\", 1);
        oct_strbuf_append(out, text, 1);
    }
}

static void write_pre_tokenizer(const trainer *t, oct_strbuf *out) {
    if (t->options->split == OCT_SPLIT_GPT2) {
        oct_strbuf_puts(out, "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                             "\"trim_offsets\": true, \"use_regex\": true}");
        return;
    }
    oct_strbuf_puts(out, "{\"type\": \"Sequence\", \"pretokenizers\": [\n    {\"type\": \"Split\", "
                         "\"pattern\": {\"Regex\": \"");
    write_escaped(oct_llama3_pattern, out);
    oct_strbuf_puts(out, "\"}, \"behavior\": \"Isolated\", \"invert\": false},\n    {\"type\": "
                         "\"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
                         "\"use_regex\": false}]}");
}

static oct_status write_tokenizer(const trainer *t, const char *out_path, oct_error *err) {
    oct_strbuf out = {0};
    oct_strbuf_puts(&out, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": "
                          "null,\n  \"added_tokens\": [{\"id\": 0, \"content\": \"" END_TOKEN
                          "\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                          "\"normalized\": false, \"special\": true}],\n  \"normalizer\": null,\n  "
                          "\"pre_tokenizer\": ");
    write_pre_tokenizer(t, &out);
    oct_strbuf_puts(&out, ",\n  \"post_processor\": null,\n  \"decoder\": {\"type\": "
                          "\"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
                          "\"use_regex\": true},\n  \"model\": {\n    \"type\": \"BPE\",\n    "
                          "\"dropout\": null,\n    \"unk_token\": null,\n    "
                          "\"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,"
                          "\n    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n    "
                          "\"ignore_merges\": false,\n    \"vocab\": {");
    for (int64_t id = 0; id < t->bpe.n_ids; id++) {
        oct_strbuf_puts(&out, id ? ",\n      \"" : "\n      \"");
        write_spelt(&t->bpe, (int32_t)id, &out);
        oct_strbuf_printf(&out, "\": %" PRId64, id);
    }
    oct_strbuf_puts(&out, "\n    },\n    \"merges\": [");
    oct_strbuf_append(&out, t->merges.text ? t->merges.text : "", t->merges.length);
    oct_strbuf_puts(&out, "\n    ]\n  }\n}\n");
    oct_status status =
        out.failed ? oct_fail_memory(err) : oct_file_write(out_path, out.text, out.length, err);
    oct_strbuf_free(&out);
    return status;
}

static void trainer_free(trainer *t) {
    for (size_t i = 0; i < t->n_pairs; i++)
        oct_free(t->pairs[i].words);
    void *blocks[] = {t->bytes, t->symbols,          t->words,
                      t->pairs, t->word_table.slots, t->pair_table.slots,
                      t->heap,  t->touched};
    for (size_t i = 0; i < OCT_COUNT(blocks); i++)
        oct_free(blocks[i]);
    oct_bpe_free(&t->bpe);
    oct_strbuf_free(&t->merges);
    oct_pretokenizer_free(&t->pretokenizer);
    oct_pretokenizer_scratch_free(&t->scratch);
}

oct_status oct_tokenizer_train(const char *const *paths, size_t n_paths,
                               const oct_tokenizer_train_options *options, const char *out_path,
                               int64_t *n_tokens, oct_error *err) {
    if (options->vocab_size < 257 || options->vocab_size > MAX_VOCAB)
        return oct_fail(err, OCT_INVALID,
                        "vocabulary size out of range; expected 257 (256 bytes and the end of "
                        "text) to %d; got %" PRId64,
                        MAX_VOCAB, options->vocab_size);
    trainer t = {.options = options};
    const char *pattern = options->split == OCT_SPLIT_GPT2 ? oct_gpt2_pattern : oct_llama3_pattern;
    oct_status status =
        oct_pretokenizer_add_split(&t.pretokenizer, pattern, strlen(pattern), OCT_PATTERN_REGEX,
                                   (oct_split){.behavior = OCT_SPLIT_ISOLATED}, "tokenizer", err);
    if (!status)
        status = count_texts(&t, paths, n_paths, err);
    if (!status && (start_vocab(&t) || start_pairs(&t)))
        status = oct_fail_memory(err);
    if (!status)
        status = merge_all(&t, err);
    if (!status)
        status = write_tokenizer(&t, out_path, err);
    if (!status && n_tokens)
        *n_tokens = t.bpe.n_ids;
    trainer_free(&t);
    return status;
}
