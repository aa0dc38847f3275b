/* Token data sets: see dataset.h. A data set is a list of packed files read as one stream. */
#include "data/dataset.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/fs.h"
#include "base/rng.h"
#include "data/pack_texts.h"
#include "data/packed_file.h"
#include "text/documents.h"

#define CACHE_RULE 1 /* raised when packing changes, so that older cache files aren't taken */
#define MAX_PACKED_FILES 4096
#define END_BYTES 65536 /* of a text's start and end that enter the cache key */
#define FEISTEL_ROUNDS 6
#define READ_TOKENS 4096

typedef struct segment {
    oct_packed packed;
    int64_t start; /* in the whole stream */
} segment;

struct oct_dataset {
    segment *segments;
    size_t n_segments;
    int64_t total;         /* tokens of all segments */
    int64_t first, tokens; /* of its part */
    int64_t seq_len, n_sequences;
    int64_t vocab_size;
};

/* ---- the cache ---- */

/* The first and last bytes of the file, which change with most edits that keep size and time. */
static oct_status hash_ends(XXH64_state_t *state, const char *path, oct_error *err) {
    oct_mapping mapping;
    oct_status status = oct_file_map(path, &mapping, err);
    if (status || !mapping.n_bytes)
        return status;
    size_t n = mapping.n_bytes < END_BYTES ? mapping.n_bytes : END_BYTES;
    const char *bytes = mapping.data;
    XXH64_update(state, bytes, n);
    XXH64_update(state, bytes + mapping.n_bytes - n, n);
    oct_file_unmap(&mapping);
    return OCT_OK;
}

static oct_status cache_key(const oct_file_list *list, const oct_tokenizer *tokenizer,
                            uint64_t *key, oct_error *err) {
    XXH64_state_t *state = XXH64_createState();
    if (!state)
        return oct_fail_memory(err);
    XXH64_reset(state, CACHE_RULE);
    int64_t of_tokenizer[] = {(int64_t)oct_tokenizer_hash(tokenizer), oct_tokenizer_bos(tokenizer),
                              oct_tokenizer_eos(tokenizer)};
    XXH64_update(state, of_tokenizer, sizeof of_tokenizer);
    oct_status status = OCT_OK;
    for (size_t i = 0; i < list->n && !status; i++) {
        const oct_text_file *file = &list->files[i];
        int64_t of_file[] = {file->n_bytes, file->mtime_ns, file->kind};
        XXH64_update(state, file->path, strlen(file->path) + 1);
        XXH64_update(state, of_file, sizeof of_file);
        status = hash_ends(state, file->path, err);
    }
    *key = XXH64_digest(state);
    XXH64_freeState(state);
    return status;
}

/* CACHE/NAME-KEY.tokens, NAME being the last part of the path. */
static char *cache_path(const char *folder, const char *path, uint64_t key) {
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--;
    size_t start = end;
    while (start > 0 && path[start - 1] != '/')
        start--;
    char name[128];
    snprintf(name, sizeof name, "%.*s-%016" PRIx64 ".tokens",
             (int)(end - start < 64 ? end - start : 64), path + start, key);
    return oct_path_join(folder, name);
}

/* A new name for a file that is gone once the data set is open. */
static char *temporary_path(oct_error *err) {
    const char *folder = getenv("TMPDIR");
    char *path = oct_path_join(folder && folder[0] ? folder : "/tmp", "octet-tokens-XXXXXX");
    int fd = path ? mkostemp(path, O_CLOEXEC) : -1;
    if (fd >= 0) {
        close(fd);
        return path;
    }
    oct_fail(err, OCT_FAILED, "%s: a temporary file can't be made", path ? path : "TMPDIR");
    oct_free(path);
    return NULL;
}

static oct_status add_segment(oct_dataset *d, const char *path, oct_dataset_verify verify,
                              oct_error *err) {
    segment *s = &d->segments[d->n_segments];
    oct_status status = oct_packed_open(path, verify, &s->packed, err);
    if (status)
        return status;
    s->start = d->total;
    d->n_segments++;
    d->total += s->packed.n_tokens;
    d->vocab_size = oct_max_i64(d->vocab_size, s->packed.vocab_size);
    return OCT_OK;
}

static oct_status pack_unnamed(oct_dataset *d, const oct_file_list *list,
                               const oct_tokenizer *tokenizer, const oct_dataset_options *o,
                               oct_error *err) {
    char *file = temporary_path(err);
    if (!file)
        return OCT_FAILED;
    oct_status status =
        oct_pack_files(list, tokenizer, file, o->progress, o->progress_user, NULL, NULL, err);
    if (!status)
        status = add_segment(d, file, OCT_VERIFY_HEADER, err);
    unlink(file);
    oct_free(file);
    return status;
}

static oct_status open_texts(oct_dataset *d, const char *path, const oct_file_list *list,
                             const oct_tokenizer *tokenizer, const oct_dataset_options *o,
                             oct_error *err) {
    if (!tokenizer)
        return oct_fail(err, OCT_INVALID, "%s: a text needs a tokenizer; got none", path);
    if (!o->cache_folder)
        return pack_unnamed(d, list, tokenizer, o, err);
    uint64_t key = 0;
    size_t n_kept = oct_path_existing(o->cache_folder);
    oct_status status = cache_key(list, tokenizer, &key, err);
    if (!status)
        status = oct_make_folders(o->cache_folder, err);
    if (status)
        return status;
    char *file = cache_path(o->cache_folder, path, key);
    if (!file)
        return oct_fail_memory(err);
    /* A damaged cache file is made again. */
    bool cached = oct_path_exists(file) && add_segment(d, file, o->verify, NULL) == OCT_OK;
    if (!cached) {
        status =
            oct_pack_files(list, tokenizer, file, o->progress, o->progress_user, NULL, NULL, err);
        if (!status)
            status = add_segment(d, file, OCT_VERIFY_HEADER, err);
    }
    if (status)
        oct_remove_folders(o->cache_folder, n_kept);
    oct_free(file);
    return status;
}

static oct_status open_packed(oct_dataset *d, const oct_file_list *list,
                              const oct_tokenizer *tokenizer, const oct_dataset_options *o,
                              oct_error *err) {
    for (size_t i = 0; i < list->n; i++) {
        const char *path = list->files[i].path;
        oct_status status = add_segment(d, path, o->verify, err);
        if (status)
            return status;
        uint64_t made_by = d->segments[i].packed.tokenizer_hash;
        if (tokenizer && made_by && made_by != oct_tokenizer_hash(tokenizer))
            return oct_fail(err, OCT_INVALID,
                            "%s: packed with another tokenizer; expected hash %016" PRIx64
                            "; got %016" PRIx64,
                            path, oct_tokenizer_hash(tokenizer), made_by);
    }
    return OCT_OK;
}

static oct_status open_segments(oct_dataset *d, const char *path, const oct_tokenizer *tokenizer,
                                const oct_dataset_options *o, oct_error *err) {
    oct_file_list list = {0};
    oct_status status = oct_file_list_add(&list, path, OCT_READ_BY_NAME, err);
    const char *packed = oct_file_list_first_packed(&list), *text = oct_file_list_first_text(&list);
    if (!status && packed && text)
        status = oct_fail(err, OCT_INVALID,
                          "%s: texts and packed files in one folder; expected one kind; got %s "
                          "and %s",
                          path, packed, text);
    if (!status && packed && list.n > MAX_PACKED_FILES)
        status = oct_fail(err, OCT_INVALID, "%s: too many packed files; expected at most %d", path,
                          MAX_PACKED_FILES);
    if (!status) {
        d->segments = oct_calloc_array(packed ? list.n : 1, sizeof *d->segments);
        if (!d->segments) {
            oct_fail_memory(err);
            status = OCT_NO_MEMORY;
        }
    }
    if (!status)
        status = packed ? open_packed(d, &list, tokenizer, o, err)
                        : open_texts(d, path, &list, tokenizer, o, err);
    oct_file_list_free(&list);
    return status;
}

/* ---- parts ---- */

static oct_status choose_part(oct_dataset *d, const char *path, const oct_dataset_options *o,
                              oct_error *err) {
    int64_t held_out = o->held_out_tokens;
    if (o->part == OCT_DATASET_WHOLE)
        held_out = 0;
    else if (held_out == 0 && o->held_out_fraction > 0 && o->held_out_fraction < 1)
        held_out = (int64_t)ceil((double)d->total * o->held_out_fraction);
    if (o->part != OCT_DATASET_WHOLE && (held_out < 1 || held_out > d->total))
        return oct_fail(err, OCT_INVALID,
                        "%s: held-out part out of range; expected 1 to %" PRId64
                        " tokens; got %" PRId64,
                        path, d->total, held_out);
    d->first = o->part == OCT_DATASET_HELD_OUT ? d->total - held_out : 0;
    d->tokens = o->part == OCT_DATASET_HELD_OUT ? held_out : d->total - held_out;
    d->seq_len = o->seq_len;
    d->n_sequences = (d->tokens - 1) / d->seq_len;
    if (d->n_sequences < 1)
        return oct_fail(err, OCT_INVALID,
                        "%s: text%s is shorter than one sequence; expected at least %" PRId64
                        " tokens; got %" PRId64,
                        path,
                        o->part == OCT_DATASET_HELD_OUT ? "'s held-out part"
                        : o->part == OCT_DATASET_TRAIN  ? " without its held-out part"
                                                        : "",
                        d->seq_len + 1, d->tokens);
    return OCT_OK;
}

oct_status oct_dataset_open(const char *path, const oct_tokenizer *tokenizer,
                            const oct_dataset_options *options, oct_dataset **dataset,
                            oct_error *err) {
    *dataset = NULL;
    if (options->seq_len < 1 || options->seq_len >= INT32_MAX)
        return oct_fail(err, OCT_INVALID, "seq_len: out of range; expected 1 to %d; got %" PRId64,
                        INT32_MAX - 1, options->seq_len);
    if (tokenizer && options->vocab_size &&
        oct_tokenizer_vocab_size(tokenizer) > options->vocab_size)
        return oct_fail(
            err, OCT_INVALID,
            "%s: the tokenizer's ids exceed the model's vocabulary; expected at most %" PRId64
            " entries; got %" PRId64,
            path, options->vocab_size, oct_tokenizer_vocab_size(tokenizer));
    oct_dataset *d = oct_calloc_array(1, sizeof *d);
    if (!d)
        return oct_fail_memory(err);
    oct_status status = open_segments(d, path, tokenizer, options, err);
    if (!status && options->vocab_size && d->vocab_size > options->vocab_size)
        status = oct_fail(err, OCT_INVALID,
                          "%s: its tokens exceed the model's vocabulary; expected at most %" PRId64
                          " entries; got %" PRId64,
                          path, options->vocab_size, d->vocab_size);
    if (!status)
        status = choose_part(d, path, options, err);
    if (status)
        oct_dataset_close(d);
    else
        *dataset = d;
    return status;
}

void oct_dataset_close(oct_dataset *d) {
    if (!d)
        return;
    for (size_t i = 0; i < d->n_segments; i++)
        oct_packed_close(&d->segments[i].packed);
    oct_free(d->segments);
    oct_free(d);
}

int64_t oct_dataset_n_sequences(const oct_dataset *d) {
    return d->n_sequences;
}

int64_t oct_dataset_n_tokens(const oct_dataset *d) {
    return d->tokens;
}

int64_t oct_dataset_n_total(const oct_dataset *d) {
    return d->total;
}

int64_t oct_dataset_seq_len(const oct_dataset *d) {
    return d->seq_len;
}

int64_t oct_dataset_vocab_size(const oct_dataset *d) {
    return d->vocab_size;
}

uint64_t oct_dataset_hash(const oct_dataset *d) {
    uint64_t hash = 0;
    for (size_t i = 0; i < d->n_segments; i++) {
        const oct_packed *packed = &d->segments[i].packed;
        uint64_t of_file[] = {hash, packed->ids_hash, (uint64_t)packed->n_tokens,
                              (uint64_t)packed->id_bytes};
        hash = XXH64(of_file, sizeof of_file, 0);
    }
    return hash;
}

/* ---- reading ---- */

/* The last segment that starts at or before the token. */
static size_t find_segment(const oct_dataset *d, int64_t at) {
    size_t low = 0, high = d->n_segments;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (d->segments[middle].start <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Tokens of the part, checked against the vocabulary. */
static oct_status read_tokens(const oct_dataset *d, int64_t first, int64_t n, int32_t *tokens,
                              oct_error *err) {
    int64_t at = d->first + first;
    for (size_t s = find_segment(d, at); n > 0; s++) {
        const segment *part = &d->segments[s];
        int64_t offset = at - part->start;
        int64_t here = oct_min_i64(n, part->packed.n_tokens - offset);
        oct_packed_read(&part->packed, offset, here, tokens);
        for (int64_t i = 0; i < here; i++)
            if (tokens[i] < 0 || tokens[i] >= d->vocab_size)
                return oct_fail(err, OCT_INVALID,
                                "data set: token %" PRId64
                                " isn't in the vocabulary; expected 0 to %" PRId64
                                "; got %d: the packed file is damaged",
                                at + i, d->vocab_size - 1, (int)tokens[i]);
        at += here;
        tokens += here;
        n -= here;
    }
    return OCT_OK;
}

oct_status oct_dataset_sequence(const oct_dataset *d, int64_t index, int32_t *tokens,
                                oct_error *err) {
    if (index < 0 || index >= d->n_sequences)
        return oct_fail(err, OCT_INVALID,
                        "data set: no such sequence; expected 0 to %" PRId64 "; got %" PRId64,
                        d->n_sequences - 1, index);
    return read_tokens(d, index * d->seq_len, d->seq_len + 1, tokens, err);
}

/* One pass of a Feistel network over `bits` bits (even): a permutation of 0 .. 2^bits - 1. */
static uint64_t permute(uint64_t seed, uint64_t epoch, int bits, uint64_t x) {
    int half = bits / 2;
    uint64_t mask = ((uint64_t)1 << half) - 1, left = x >> half, right = x & mask;
    for (uint64_t round = 0; round < FEISTEL_ROUNDS; round++) {
        oct_rng_block drawn = oct_rng_draw(seed, epoch * FEISTEL_ROUNDS + round, right);
        uint64_t next = left ^ (drawn.word[0] & mask);
        left = right;
        right = next;
    }
    return left << half | right;
}

int64_t oct_dataset_shuffled_index(const oct_dataset *d, uint64_t seed, int64_t position) {
    uint64_t n = (uint64_t)d->n_sequences;
    uint64_t epoch = (uint64_t)position / n, x = (uint64_t)position % n;
    if (n == 1)
        return 0;
    int bits = 64 - __builtin_clzll(n - 1);
    bits += bits & 1;
    /* At most 4 n values are permuted; walking along the cycle of x from a value below n must come
     * to a value below n again, and different x to different ones. */
    seed ^= oct_rng_stream("dataset.shuffle");
    do
        x = permute(seed, epoch, bits, x);
    while (x >= n);
    return (int64_t)x;
}

oct_status oct_dataset_unigram_entropy(const oct_dataset *d, int64_t first, int64_t n, double *nats,
                                       oct_error *err) {
    if (first < 0 || n < 1 || n > d->tokens - first)
        return oct_fail(err, OCT_INVALID,
                        "data set: tokens out of range; expected a part of %" PRId64
                        "; got %" PRId64 " from %" PRId64 " on",
                        d->tokens, n, first);
    int64_t *counts = oct_calloc_array((size_t)d->vocab_size, sizeof *counts);
    if (!counts)
        return oct_fail_memory(err);
    int32_t tokens[READ_TOKENS];
    oct_status status = OCT_OK;
    for (int64_t done = 0; done < n && !status; done += READ_TOKENS) {
        int64_t here = oct_min_i64(n - done, READ_TOKENS);
        status = read_tokens(d, first + done, here, tokens, err);
        for (int64_t i = 0; i < here && !status; i++)
            counts[tokens[i]]++;
    }
    double sum = 0;
    for (int64_t v = 0; v < d->vocab_size; v++)
        if (counts[v])
            sum += (double)counts[v] * log((double)n / (double)counts[v]);
    oct_free(counts);
    if (!status)
        *nats = sum / (double)n;
    return status;
}
