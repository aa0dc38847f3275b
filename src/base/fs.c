/* Files: see fs.h. */
#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

oct_status oct_status_of_errno(int error) {
    switch (error) {
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOSPC:
    case EDQUOT:
    case EIO:
        return OCT_FAILED;
    default:
        return OCT_INVALID;
    }
}

oct_status oct_status_of_write_errno(int error) {
    return error == ENAMETOOLONG ? OCT_INVALID : OCT_FAILED;
}

static oct_status open_regular(const char *path, int *fd, size_t *n_bytes, oct_error *err) {
    struct stat st;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO without a writer must not hang */
    if (*fd < 0)
        return oct_fail(err, oct_status_of_errno(errno), "%s: can't be read: %s", path,
                        strerror(errno));
    if (fstat(*fd, &st) == 0 && S_ISREG(st.st_mode)) {
        *n_bytes = (size_t)st.st_size;
        return OCT_OK;
    }
    close(*fd);
    return oct_fail(err, OCT_INVALID, "%s: expected a regular file; got %s", path,
                    S_ISDIR(st.st_mode) ? "a folder" : "something else");
}

static bool read_all(int fd, char *to, size_t n_bytes) {
    while (n_bytes) {
        ssize_t n = read(fd, to, n_bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        to += n;
        n_bytes -= (size_t)n;
    }
    return true;
}

oct_status oct_file_read(const char *path, size_t max_bytes, char **text, size_t *n_bytes,
                         oct_error *err) {
    int fd;
    size_t size;
    oct_status status = open_regular(path, &fd, &size, err);
    if (status)
        return status;
    char *block = NULL;
    if (size > max_bytes)
        status = oct_fail(err, OCT_INVALID, "%s: expected at most %zu bytes; got %zu", path,
                          max_bytes, size);
    else if (!(block = oct_malloc(size + 1)))
        status = oct_fail_memory(err);
    else if (!read_all(fd, block, size))
        status = oct_fail(err, OCT_FAILED, "%s: reading stopped early: %s", path,
                          errno ? strerror(errno) : "the file shrank");
    close(fd);
    if (status) {
        oct_free(block);
        return status;
    }
    block[size] = '\0';
    *text = block;
    if (n_bytes)
        *n_bytes = size;
    return OCT_OK;
}

static bool write_all(int fd, const char *from, size_t n_bytes) {
    while (n_bytes) {
        ssize_t n = write(fd, from, n_bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        from += n;
        n_bytes -= (size_t)n;
    }
    return true;
}

oct_status oct_path_check_target(const char *path, oct_error *err) {
    struct stat st;
    if (stat(path, &st) != 0 || S_ISREG(st.st_mode))
        return OCT_OK;
    return oct_fail(err, OCT_INVALID, "%s: expected a regular file or none; got %s", path,
                    S_ISDIR(st.st_mode) ? "a folder" : "a device or the like");
}

oct_status oct_file_write(const char *path, const void *bytes, size_t n_bytes, oct_error *err) {
    oct_status target = oct_path_check_target(path, err);
    if (target)
        return target;
    size_t length = strlen(path);
    char *temporary = oct_malloc(length + 32);
    if (!temporary)
        return oct_fail_memory(err);
    snprintf(temporary, length + 32, "%s.tmp.%ld", path, (long)getpid());
    oct_status status = OCT_OK;
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        status = oct_fail(err, oct_status_of_write_errno(errno), "%s: can't be written: %s", path,
                          strerror(errno));
        goto cleanup;
    }
    bool good = write_all(fd, bytes, n_bytes) && fsync(fd) == 0;
    int saved = errno;
    if (close(fd) != 0 && good) {
        good = false;
        saved = errno;
    }
    if (good && rename(temporary, path) != 0) {
        good = false;
        saved = errno;
    }
    if (!good) {
        unlink(temporary);
        status = oct_fail(err, OCT_FAILED, "%s: can't be written: %s", path, strerror(saved));
    }
cleanup:
    oct_free(temporary);
    return status;
}

oct_status oct_file_map(const char *path, oct_mapping *mapping, oct_error *err) {
    int fd;
    size_t size;
    *mapping = (oct_mapping){0};
    oct_status status = open_regular(path, &fd, &size, err);
    if (status)
        return status;
    if (size) {
        void *data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED)
            status = oct_fail(err, OCT_FAILED, "%s: can't be mapped: %s", path, strerror(errno));
        else
            *mapping = (oct_mapping){data, size};
    }
    close(fd);
    return status;
}

void oct_file_unmap(oct_mapping *mapping) {
    if (mapping->data)
        munmap((void *)mapping->data, mapping->n_bytes);
    *mapping = (oct_mapping){0};
}

static bool make_one(const char *path) {
    if (mkdir(path, 0777) == 0)
        return true;
    if (errno == EEXIST && oct_path_is_folder(path))
        return true;
    if (errno == EEXIST)
        errno = ENOTDIR; /* what is wrong, said better */
    return false;
}

oct_status oct_make_folders(const char *path, oct_error *err) {
    char *copy = oct_strdup(path);
    if (!copy)
        return oct_fail_memory(err);
    bool good = true;
    for (char *slash = strchr(copy + 1, '/'); slash && good; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        good = make_one(copy);
        *slash = '/';
    }
    good = good && make_one(copy);
    int saved = errno;
    oct_free(copy);
    return good ? OCT_OK
                : oct_fail(err, oct_status_of_write_errno(saved),
                           "%s: the folder can't be made: %s", path, strerror(saved));
}

/* Where the name before `end` begins, without the slashes before it; 0: it's the first. */
static size_t parent_length(const char *path, size_t end) {
    while (end > 0 && path[end - 1] == '/')
        end--;
    while (end > 0 && path[end - 1] != '/')
        end--;
    return end;
}

size_t oct_path_existing(const char *path) {
    size_t n = strlen(path);
    char *copy = oct_strdup(path);
    while (copy && n > 0 && !oct_path_exists(copy)) {
        n = parent_length(path, n);
        copy[n] = '\0';
    }
    oct_free(copy);
    return n;
}

void oct_remove_folders(const char *path, size_t n_kept) {
    char *copy = oct_strdup(path);
    for (size_t n = strlen(path); copy && n > n_kept; n = parent_length(path, n)) {
        copy[n] = '\0';
        rmdir(copy);
    }
    oct_free(copy);
}

oct_status oct_folder_sync(const char *path, oct_error *err) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool good = fd >= 0 && fsync(fd) == 0;
    int saved = errno;
    if (fd >= 0)
        close(fd);
    return good ? OCT_OK
                : oct_fail(err, OCT_FAILED, "%s: can't be synced: %s", path, strerror(saved));
}

bool oct_path_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0;
}

bool oct_path_is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

char *oct_path_join(const char *folder, const char *name) {
    if (name[0] == '/' || !folder[0])
        return oct_strdup(name);
    size_t a = strlen(folder), b = strlen(name);
    while (a > 1 && folder[a - 1] == '/')
        a--;
    char *joined = oct_malloc(a + b + 2);
    if (!joined)
        return NULL;
    memcpy(joined, folder, a);
    joined[a] = '/';
    memcpy(joined + a + 1, name, b + 1);
    return joined;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *place) {
    (void)st;
    (void)kind;
    (void)place;
    return remove(path);
}

oct_status oct_remove_tree(const char *path, oct_error *err) {
    if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT)
        return oct_fail(err, OCT_FAILED, "%s: can't be removed: %s", path, strerror(errno));
    return OCT_OK;
}

static bool has_file(const char *folder, const char *name) {
    char *path = oct_path_join(folder, name);
    bool has = path && oct_path_exists(path);
    oct_free(path);
    return has;
}

bool oct_path_is_hf_folder(const char *path) {
    return oct_path_is_folder(path) && has_file(path, "config.json") &&
           !has_file(path, "manifest.json");
}
