/* Packed token files: see packed_file.h. */
#define XXH_STATIC_LINKING_ONLY /* the size of XXH3_state_t */
#include "data/packed_file.h"

#include <inttypes.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/fs.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "packed token files are mapped as they are: this needs a little-endian machine"
#endif

#define VERSION 1
#define BUFFER_BYTES ((size_t)1 << 20)

static void put(uint8_t *header, size_t at, uint64_t value, size_t n_bytes) {
    memcpy(header + at, &value, n_bytes);
}

static uint64_t get(const uint8_t *header, size_t at, size_t n_bytes) {
    uint64_t value = 0;
    memcpy(&value, header + at, n_bytes);
    return value;
}

/* ---- reading ---- */

static oct_status corrupted(const char *path, const char *what, uint64_t expected, uint64_t got,
                            oct_error *err) {
    return oct_fail(err, OCT_INVALID,
                    "%s: corrupted packed file: %s; expected %" PRIu64 "; got %" PRIu64, path, what,
                    expected, got);
}

static oct_status check_header(const char *path, const uint8_t *header, size_t n_bytes,
                               oct_error *err) {
    if (n_bytes < OCT_PACKED_HEADER_BYTES)
        return corrupted(path, "bytes of the header", OCT_PACKED_HEADER_BYTES, n_bytes, err);
    if (memcmp(header, OCT_PACKED_MAGIC, 8) != 0)
        return oct_fail(err, OCT_INVALID, "%s: not a packed token file", path);
    if (get(header, 8, 4) != VERSION)
        return oct_fail(err, OCT_INVALID, "%s: unknown version; expected %d; got %" PRIu64, path,
                        VERSION, get(header, 8, 4));
    if (get(header, 56, 8) != XXH3_64bits(header, 56))
        return corrupted(path, "checksum of the header", XXH3_64bits(header, 56),
                         get(header, 56, 8), err);
    uint64_t id_bytes = get(header, 12, 4), n_tokens = get(header, 16, 8);
    if (id_bytes != 2 && id_bytes != 4)
        return corrupted(path, "bytes of an id (2 or 4)", 2, id_bytes, err);
    if (get(header, 48, 4) < 1 || get(header, 48, 4) > INT32_MAX || get(header, 52, 4) != 0)
        return corrupted(path, "vocabulary size", INT32_MAX, get(header, 48, 8), err);
    uint64_t present = (n_bytes - OCT_PACKED_HEADER_BYTES) / id_bytes;
    if (n_tokens != present || (n_bytes - OCT_PACKED_HEADER_BYTES) % id_bytes)
        return corrupted(path, "bytes of ids", n_tokens * id_bytes,
                         n_bytes - OCT_PACKED_HEADER_BYTES, err);
    return OCT_OK;
}

oct_status oct_packed_open(const char *path, oct_dataset_verify verify, oct_packed *packed,
                           oct_error *err) {
    oct_mapping mapping;
    *packed = (oct_packed){0};
    oct_status status = oct_file_map(path, &mapping, err);
    if (status)
        return status;
    const uint8_t *header = mapping.data;
    status = check_header(path, header, mapping.n_bytes, err);
    if (!status && verify == OCT_VERIFY_CHECKSUM) {
        uint64_t sum = XXH3_64bits(header + OCT_PACKED_HEADER_BYTES,
                                   mapping.n_bytes - OCT_PACKED_HEADER_BYTES);
        if (sum != get(header, 32, 8))
            status = corrupted(path, "checksum of the ids", get(header, 32, 8), sum, err);
    }
    if (status) {
        oct_file_unmap(&mapping);
        return status;
    }
    *packed = (oct_packed){.mapping = mapping,
                           .ids = header + OCT_PACKED_HEADER_BYTES,
                           .n_tokens = (int64_t)get(header, 16, 8),
                           .n_documents = (int64_t)get(header, 40, 8),
                           .vocab_size = (int64_t)get(header, 48, 4),
                           .id_bytes = (int)get(header, 12, 4),
                           .tokenizer_hash = get(header, 24, 8),
                           .ids_hash = get(header, 32, 8)};
    return OCT_OK;
}

void oct_packed_close(oct_packed *packed) {
    oct_file_unmap(&packed->mapping);
    *packed = (oct_packed){0};
}

void oct_packed_read(const oct_packed *packed, int64_t first, int64_t n, int32_t *ids) {
    if (packed->id_bytes == 4) {
        memcpy(ids, packed->ids + 4 * first, 4 * (size_t)n);
        return;
    }
    const uint16_t *from = (const uint16_t *)packed->ids + first; /* 64 bytes into a page */
    for (int64_t i = 0; i < n; i++)
        ids[i] = from[i];
}

/* ---- writing ---- */

struct oct_packed_writer {
    char *path, *temporary;
    int fd;
    int id_bytes;
    int64_t vocab_size, n_tokens;
    uint64_t tokenizer_hash;
    uint8_t *buffer;
    size_t n_buffered;
    XXH3_state_t *sum; /* 64-byte aligned, as oct_malloc gives */
};

void oct_packed_abandon(oct_packed_writer *w) {
    if (!w)
        return;
    if (w->fd >= 0) {
        close(w->fd);
        unlink(w->temporary);
    }
    oct_free(w->path);
    oct_free(w->temporary);
    oct_free(w->buffer);
    oct_free(w->sum);
    oct_free(w);
}

static oct_status cannot_write(const oct_packed_writer *w, int number, oct_error *err) {
    return oct_fail(err, oct_status_of_write_errno(number), "%s: can't be written: %s", w->path,
                    strerror(number));
}

static oct_status write_bytes(oct_packed_writer *w, const uint8_t *from, size_t n, oct_error *err) {
    while (n) {
        ssize_t written = write(w->fd, from, n);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return cannot_write(w, errno, err);
        from += written;
        n -= (size_t)written;
    }
    return OCT_OK;
}

static oct_status write_buffer(oct_packed_writer *w, oct_error *err) {
    XXH3_64bits_update(w->sum, w->buffer, w->n_buffered);
    oct_status status = write_bytes(w, w->buffer, w->n_buffered, err);
    w->n_buffered = 0;
    return status;
}

oct_status oct_packed_create(const char *path, int64_t vocab_size, uint64_t tokenizer_hash,
                             oct_packed_writer **writer, oct_error *err) {
    *writer = NULL;
    if (vocab_size < 1 || vocab_size > INT32_MAX)
        return oct_fail(err, OCT_INVALID, "%s: vocabulary size out of range; got %" PRId64, path,
                        vocab_size);
    size_t length = strlen(path) + 80;
    oct_packed_writer *w = oct_calloc_array(1, sizeof *w);
    if (!w)
        return oct_fail_memory(err);
    *w = (oct_packed_writer){.path = oct_strdup(path),
                             .temporary = oct_malloc(length),
                             .fd = -1,
                             .id_bytes = vocab_size <= 65536 ? 2 : 4,
                             .vocab_size = vocab_size,
                             .tokenizer_hash = tokenizer_hash,
                             .buffer = oct_malloc(BUFFER_BYTES),
                             .sum = oct_malloc(sizeof(XXH3_state_t))};
    oct_status status = OCT_OK;
    if (!w->path || !w->temporary || !w->buffer || !w->sum) {
        status = oct_fail_memory(err);
        goto cleanup;
    }
    status = oct_path_check_target(path, err);
    if (status)
        goto cleanup;
    XXH3_64bits_reset(w->sum);
    /* Processes of several machines may pack the same text into one folder. */
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(w->temporary, length, "%s.tmp.%ld.%lx%09lx", path, (long)getpid(), (long)now.tv_sec,
             now.tv_nsec);
    w->fd = open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (w->fd < 0) {
        status = cannot_write(w, errno, err);
        goto cleanup;
    }
    uint8_t header[OCT_PACKED_HEADER_BYTES] = {0};
    status = write_bytes(w, header, sizeof header, err);
cleanup:
    if (status)
        oct_packed_abandon(w);
    else
        *writer = w;
    return status;
}

oct_status oct_packed_append(oct_packed_writer *w, const int32_t *ids, size_t n, oct_error *err) {
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= w->vocab_size)
            return oct_fail(err, OCT_INVALID,
                            "%s: id outside the vocabulary; expected 0 to %" PRId64 "; got %d",
                            w->path, w->vocab_size - 1, (int)ids[i]);
        memcpy(w->buffer + w->n_buffered, &ids[i], (size_t)w->id_bytes);
        w->n_buffered += (size_t)w->id_bytes;
        if (w->n_buffered == BUFFER_BYTES) {
            oct_status status = write_buffer(w, err);
            if (status)
                return status;
        }
    }
    w->n_tokens += (int64_t)n;
    return OCT_OK;
}

static oct_status write_header(oct_packed_writer *w, int64_t n_documents, oct_error *err) {
    uint8_t header[OCT_PACKED_HEADER_BYTES] = {0};
    memcpy(header, OCT_PACKED_MAGIC, sizeof OCT_PACKED_MAGIC); /* the version covers its NUL */
    put(header, 8, VERSION, 4);
    put(header, 12, (uint64_t)w->id_bytes, 4);
    put(header, 16, (uint64_t)w->n_tokens, 8);
    put(header, 24, w->tokenizer_hash, 8);
    put(header, 32, XXH3_64bits_digest(w->sum), 8);
    put(header, 40, (uint64_t)n_documents, 8);
    put(header, 48, (uint64_t)w->vocab_size, 4);
    put(header, 56, XXH3_64bits(header, 56), 8);
    if (lseek(w->fd, 0, SEEK_SET) != 0)
        return cannot_write(w, errno, err);
    return write_bytes(w, header, sizeof header, err);
}

oct_status oct_packed_finish(oct_packed_writer *w, int64_t n_documents, int64_t *n_tokens,
                             oct_error *err) {
    oct_status status = write_buffer(w, err);
    if (!status)
        status = write_header(w, n_documents, err);
    if (!status && (fsync(w->fd) != 0 || rename(w->temporary, w->path) != 0))
        status = cannot_write(w, errno, err);
    if (!status) {
        if (n_tokens)
            *n_tokens = w->n_tokens;
        close(w->fd);
        w->fd = -1; /* the name is final: abandon leaves it */
    }
    oct_packed_abandon(w);
    return status;
}
