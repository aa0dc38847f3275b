/* Files that grow by whole records: see append_file.h. */
#include "file/append_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"

oct_status oct_append_open(oct_append *file, const char *path, size_t kept, oct_error *err) {
    char *copy = oct_strdup(path);
    if (!copy)
        return oct_fail_memory(err);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || ftruncate(fd, (off_t)kept) != 0) {
        oct_fail(err, OCT_FAILED, "%s: can't be written: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        oct_free(copy);
        return OCT_FAILED;
    }
    *file = (oct_append){copy, fd, kept};
    return OCT_OK;
}

oct_status oct_append_write(oct_append *file, const void *record, size_t n_bytes, oct_error *err) {
    const char *from = record;
    size_t done = 0;
    while (done < n_bytes) {
        ssize_t n = pwrite(file->fd, from + done, n_bytes - done, (off_t)(file->n_bytes + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            oct_fail(err, OCT_FAILED, "%s: can't be written: %s", file->path, strerror(errno));
            if (ftruncate(file->fd, (off_t)file->n_bytes) != 0)
                errno = 0; /* the next record goes over the part, from the same place */
            return OCT_FAILED;
        }
        done += (size_t)n;
    }
    file->n_bytes += n_bytes;
    return OCT_OK;
}

void oct_append_close(oct_append *file) {
    if (file->path)
        close(file->fd);
    oct_free(file->path);
    file->path = NULL;
}
