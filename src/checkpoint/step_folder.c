/* Checkpoint folders by name: see step_folder.h. */
#include "checkpoint/step_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"

/* Digits without sign or leading zero, below 2^63. `end` is the character after them. */
static bool read_number(const char *text, int64_t *number, const char **end) {
    size_t n = strspn(text, "0123456789");
    if (n == 0 || n > 18 || (n > 1 && text[0] == '0'))
        return false;
    *number = strtoll(text, NULL, 10);
    *end = text + n;
    return true;
}

/* "step-12" gives 12 and an empty rest, "step-12.tmp-7" the rest ".tmp-7". */
static bool read_step(const char *name, int64_t *step, const char **rest) {
    return strncmp(name, "step-", 5) == 0 && read_number(name + 5, step, rest);
}

static int compare_newest_first(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

oct_status oct_step_folders_list(const char *folder, int64_t **steps, size_t *n_steps,
                                 oct_error *err) {
    int64_t *list = NULL;
    size_t n = 0, capacity = 0;
    oct_status status = OCT_OK;
    DIR *directory = opendir(folder);
    if (!directory && errno != ENOENT)
        return oct_fail(err, oct_status_of_errno(errno), "%s: can\'t be read: %s", folder,
                        strerror(errno));
    for (struct dirent *e; directory && !status && (e = readdir(directory));) {
        int64_t step;
        const char *rest;
        if (!read_step(e->d_name, &step, &rest) || *rest)
            continue;
        int64_t *grown = oct_grow_array(list, n, &capacity, sizeof *grown);
        if (!grown) {
            status = oct_fail_memory(err);
            break;
        }
        list = grown;
        list[n++] = step;
    }
    if (directory)
        closedir(directory);
    if (status) {
        oct_free(list);
        return status;
    }
    if (n)
        qsort(list, n, sizeof *list, compare_newest_first);
    *steps = list;
    *n_steps = n;
    return OCT_OK;
}

char *oct_step_folder_path(const char *folder, int64_t step, const char *suffix) {
    char name[80];
    if (suffix)
        snprintf(name, sizeof name, "step-%" PRId64 "%s-%ld", step, suffix, (long)getpid());
    else
        snprintf(name, sizeof name, "step-%" PRId64, step);
    return oct_path_join(folder, name);
}

oct_status oct_step_folder_remove(const char *folder, int64_t step, oct_error *err) {
    oct_status status = OCT_OK;
    char *path = oct_step_folder_path(folder, step, NULL);
    char *away = oct_step_folder_path(folder, step, ".del");
    if (!path || !away)
        status = oct_fail_memory(err);
    else if (rename(path, away) != 0)
        status = oct_fail(err, OCT_FAILED, "%s: can't be renamed: %s", path, strerror(errno));
    if (!status)
        status = oct_folder_sync(folder, err);
    if (!status)
        status = oct_remove_tree(away, err);
    oct_free(path);
    oct_free(away);
    return status;
}

oct_status oct_step_folder_publish(const char *folder, int64_t step, const char *temporary,
                                   oct_error *err) {
    oct_status status = OCT_OK;
    char *path = oct_step_folder_path(folder, step, NULL);
    if (!path)
        return oct_fail_memory(err);
    bool exchanged = renameat2(AT_FDCWD, temporary, AT_FDCWD, path, RENAME_EXCHANGE) == 0;
    if (!exchanged && oct_path_exists(path)) /* a file system without exchange */
        status = oct_step_folder_remove(folder, step, err);
    if (!exchanged && !status && rename(temporary, path) != 0)
        status = oct_fail(err, OCT_FAILED, "%s: can't be renamed to %s: %s", temporary, path,
                          strerror(errno));
    if (!status)
        status = oct_folder_sync(folder, err);
    if (status && exchanged) /* the old one may be all that is durable: it gets its name back */
        renameat2(AT_FDCWD, temporary, AT_FDCWD, path, RENAME_EXCHANGE);
    if (!status && exchanged)
        status = oct_remove_tree(temporary, err);
    oct_free(path);
    return status;
}

/* Only names that this file makes, and only of processes that are gone. */
static bool is_left_over(const char *name) {
    int64_t step, pid;
    const char *rest, *end;
    if (!read_step(name, &step, &rest))
        return false;
    if (strncmp(rest, ".tmp-", 5) != 0 && strncmp(rest, ".del-", 5) != 0)
        return false;
    if (!read_number(rest + 5, &pid, &end) || *end || pid < 1 || pid > INT32_MAX)
        return false;
    return pid == getpid() || (kill((pid_t)pid, 0) != 0 && errno == ESRCH);
}

void oct_step_folders_sweep(const char *folder) {
    DIR *directory = opendir(folder);
    for (struct dirent *e; directory && (e = readdir(directory));) {
        if (!is_left_over(e->d_name))
            continue;
        oct_error why = {0};
        char *path = oct_path_join(folder, e->d_name);
        if (path && oct_remove_tree(path, &why))
            oct_log_warning("%s", why.message);
        oct_free(path);
    }
    if (directory)
        closedir(directory);
}
