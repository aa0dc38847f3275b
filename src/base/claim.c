/* Folders that one run at a time writes to: see claim.h. */
#include "base/claim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"

enum { HOLDER_SIZE = 400 };

static oct_status fail_unwritable(const oct_claim *c, oct_error *err) {
    return oct_fail(err, oct_status_of_write_errno(errno), "%s: can't be written to: %s", c->folder,
                    strerror(errno));
}

/* What the holder wrote: "process 12 on host since ..."; nothing yet if it has just come. */
static oct_status fail_held(const oct_claim *c, oct_error *err) {
    char holder[HOLDER_SIZE] = "";
    ssize_t n = pread(c->fd, holder, sizeof holder - 1, 0);
    holder[n > 0 ? n : 0] = '\0';
    holder[strcspn(holder, "\n")] = '\0';
    return oct_fail(err, OCT_FAILED,
                    "%s: another run writes there: %s; wait until it ends, or give this one "
                    "another folder",
                    c->folder, holder[0] ? holder : "one that has just begun");
}

static void write_holder(const oct_claim *c) {
    char host[256] = "an unknown host", since[64], text[HOLDER_SIZE];
    time_t now = time(NULL);
    struct tm local;
    gethostname(host, sizeof host - 1);
    localtime_r(&now, &local);
    strftime(since, sizeof since, "%Y-%m-%d %H:%M:%S %z", &local);
    int n =
        snprintf(text, sizeof text, "process %ld on %s since %s\n", (long)getpid(), host, since);
    /* A full disk loses the words for another run's message, not the lock. */
    if (ftruncate(c->fd, 0) != 0 || pwrite(c->fd, text, (size_t)n, 0) != n)
        return;
}

/* False when the file that was locked is no longer the one that has the name: its holder was about
 * to end and has removed it. */
static bool is_current(const oct_claim *c) {
    struct stat mine, named;
    return fstat(c->fd, &mine) == 0 && stat(c->path, &named) == 0 && mine.st_dev == named.st_dev &&
           mine.st_ino == named.st_ino;
}

static bool try_lock(int fd) {
    int result;
    do
        result = flock(fd, LOCK_EX | LOCK_NB);
    while (result != 0 && errno == EINTR);
    return result == 0;
}

static oct_status lock_file(oct_claim *c, oct_error *err) {
    for (;;) {
        struct stat st;
        c->fd = open(c->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
        if (c->fd < 0)
            return fail_unwritable(c, err);
        if (fstat(c->fd, &st) != 0 || !S_ISREG(st.st_mode))
            return oct_fail(err, OCT_FAILED, "%s: expected a regular file or none", c->path);
        if (!try_lock(c->fd)) {
            if (errno == EWOULDBLOCK || errno == EACCES)
                return fail_held(c, err);
            oct_log_warning("%s: its file system has no locks (%s): see to it that no other run "
                            "writes there",
                            c->folder, strerror(errno));
            return OCT_OK;
        }
        if (is_current(c)) {
            write_holder(c);
            return OCT_OK;
        }
        close(c->fd);
    }
}

/* Without the lock the file isn't ours to remove. */
static void drop(oct_claim *c) {
    if (c->fd >= 0)
        close(c->fd);
    if (c->folder)
        oct_remove_folders(c->folder, c->n_kept);
    oct_free(c->folder);
    oct_free(c->path);
    *c = (oct_claim){.fd = -1};
}

oct_status oct_claim_take(const char *folder, oct_claim *claim, oct_error *err) {
    *claim = (oct_claim){.folder = oct_strdup(folder),
                         .path = oct_path_join(folder, ".octet.lock"),
                         .n_kept = oct_path_existing(folder),
                         .fd = -1};
    oct_status status =
        claim->folder && claim->path ? oct_make_folders(folder, err) : oct_fail_memory(err);
    if (!status)
        status = lock_file(claim, err);
    if (status)
        drop(claim);
    return status;
}

bool oct_claim_covers(const oct_claim *claim, const char *folder) {
    struct stat mine, other;
    return claim->folder && stat(claim->folder, &mine) == 0 && stat(folder, &other) == 0 &&
           mine.st_dev == other.st_dev && mine.st_ino == other.st_ino;
}

void oct_claim_release(oct_claim *c) {
    if (!c->folder)
        return;
    unlink(c->path); /* before the lock goes: whoever gets it then sees that the name is gone */
    drop(c);
}
