/* Files that appear whole or not at all: see file_sink.h. */
#define XXH_STATIC_LINKING_ONLY /* the state's size, so that oct_malloc gives it its memory */
#include "file/file_sink.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/fs.h"

#define BUFFER_BYTES ((size_t)256 << 10) /* gathers small tensors into one write */

struct oct_file_sink {
    XXH3_state_t hash; /* first: it wants 64-byte alignment, which oct_malloc gives */
    char *path, *temporary, *folder;
    int fd; /* -1 once closed */
    bool exists;
    size_t n_buffered, n_bytes;
    char buffer[BUFFER_BYTES];
};

static char *folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash)
        return oct_strdup(".");
    return oct_strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

oct_status oct_file_sink_open(const char *path, oct_file_sink **sink, oct_error *err) {
    oct_file_sink *s = oct_malloc(sizeof *s);
    if (!s)
        return oct_fail_memory(err);
    memset(s, 0, offsetof(oct_file_sink, buffer));
    s->exists = false; /* said once more for clang's analyzer, which loses it in a part's memset */
    s->fd = -1;
    oct_status status = OCT_OK;
    size_t size = strlen(path) + 32;
    s->path = oct_strdup(path);
    s->temporary = oct_malloc(size);
    s->folder = folder_of(path);
    if (!s->path || !s->temporary || !s->folder) {
        status = oct_fail_memory(err);
        goto cleanup;
    }
    status = oct_path_check_target(path, err);
    if (status)
        goto cleanup;
    snprintf(s->temporary, size, "%s.tmp.%ld", path, (long)getpid());
    s->fd = open(s->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (s->fd < 0) {
        status = oct_fail(err, oct_status_of_write_errno(errno), "%s: can't be written: %s", path,
                          strerror(errno));
        goto cleanup;
    }
    s->exists = true;
    XXH3_64bits_reset(&s->hash);
    *sink = s;
    return OCT_OK;
cleanup:
    oct_file_sink_close(s);
    return status;
}

static oct_status write_out(oct_file_sink *s, const char *bytes, size_t n_bytes, oct_error *err) {
    while (n_bytes) {
        ssize_t n = write(s->fd, bytes, n_bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return oct_fail(err, OCT_FAILED, "%s: can't be written: %s", s->path, strerror(errno));
        bytes += n;
        n_bytes -= (size_t)n;
    }
    return OCT_OK;
}

static oct_status flush(oct_file_sink *s, oct_error *err) {
    size_t n = s->n_buffered;
    s->n_buffered = 0;
    return write_out(s, s->buffer, n, err);
}

oct_status oct_file_sink_write(oct_file_sink *s, const void *bytes, size_t n_bytes,
                               oct_error *err) {
    if (!n_bytes)
        return OCT_OK;
    XXH3_64bits_update(&s->hash, bytes, n_bytes);
    s->n_bytes += n_bytes;
    if (n_bytes > BUFFER_BYTES - s->n_buffered) {
        oct_status status = flush(s, err);
        if (status || n_bytes >= BUFFER_BYTES)
            return status ? status : write_out(s, bytes, n_bytes, err);
    }
    memcpy(s->buffer + s->n_buffered, bytes, n_bytes);
    s->n_buffered += n_bytes;
    return OCT_OK;
}

oct_status oct_file_sink_commit(oct_file_sink *s, oct_file_receipt *receipt, oct_error *err) {
    oct_status status = flush(s, err);
    if (status)
        return status;
    bool good = fsync(s->fd) == 0;
    int saved = errno;
    if (close(s->fd) != 0 && good) {
        good = false;
        saved = errno;
    }
    s->fd = -1;
    if (good && rename(s->temporary, s->path) != 0) {
        good = false;
        saved = errno;
    }
    if (!good)
        return oct_fail(err, OCT_FAILED, "%s: can't be written: %s", s->path, strerror(saved));
    s->exists = false;
    if (receipt)
        *receipt = (oct_file_receipt){s->n_bytes, XXH3_64bits_digest(&s->hash)};
    return oct_folder_sync(s->folder, err);
}

void oct_file_sink_close(oct_file_sink *s) {
    if (!s)
        return;
    if (s->fd >= 0)
        close(s->fd);
    if (s->exists)
        unlink(s->temporary);
    oct_free(s->path);
    oct_free(s->temporary);
    oct_free(s->folder);
    oct_free(s);
}

oct_status oct_file_sink_put(const char *path, const void *bytes, size_t n_bytes,
                             oct_file_receipt *receipt, oct_error *err) {
    oct_file_sink *sink = NULL;
    oct_status status = oct_file_sink_open(path, &sink, err);
    if (!status)
        status = oct_file_sink_write(sink, bytes, n_bytes, err);
    if (!status)
        status = oct_file_sink_commit(sink, receipt, err);
    oct_file_sink_close(sink);
    return status;
}
