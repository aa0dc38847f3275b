/* A folder that appears whole: see folder.h. */
#include "export/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"

#define MARK ".tmp-"

static bool is_there(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0; /* a link that leads nowhere is there too */
}

static oct_status fail_taken(const char *path, oct_error *err) {
    return oct_fail(err, OCT_INVALID, "%s: expected a name that is free; it exists already", path);
}

/* The last name of a path without slashes at its end. */
static const char *last_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void free_names(oct_new_folder *f) {
    oct_free(f->path);
    oct_free(f->parent);
    oct_free(f->temporary);
    *f = (oct_new_folder){0};
}

static oct_status set_names(const char *path, oct_new_folder *f, oct_error *err) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    f->path = oct_strndup(path, n);
    if (!f->path)
        return oct_fail_memory(err);
    const char *name = last_name(f->path);
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return oct_fail(err, OCT_INVALID, "'%s': expected the name of a new folder", path);
    size_t size = n + 32, n_parent = (size_t)(name - f->path);
    f->parent = n_parent ? oct_strndup(f->path, n_parent > 1 ? n_parent - 1 : 1) : oct_strdup(".");
    f->temporary = oct_malloc(size);
    if (!f->parent || !f->temporary)
        return oct_fail_memory(err);
    snprintf(f->temporary, size, "%s" MARK "%ld", f->path, (long)getpid());
    f->n_kept = oct_path_existing(f->parent);
    return OCT_OK;
}

/* Only names that this file makes, and only of processes that are gone. */
static bool is_left_over(const char *name, const char *of) {
    size_t n = strlen(of);
    if (strncmp(name, of, n) != 0 || strncmp(name + n, MARK, strlen(MARK)) != 0)
        return false;
    const char *digits = name + n + strlen(MARK);
    size_t n_digits = strspn(digits, "0123456789");
    if (n_digits == 0 || n_digits > 9 || digits[n_digits])
        return false;
    long pid = strtol(digits, NULL, 10);
    return pid == (long)getpid() || (pid > 0 && kill((pid_t)pid, 0) != 0 && errno == ESRCH);
}

static void sweep(const oct_new_folder *f) {
    const char *name = last_name(f->path);
    DIR *directory = opendir(f->parent);
    for (struct dirent *e; directory && (e = readdir(directory));) {
        oct_error why = {0};
        if (!is_left_over(e->d_name, name))
            continue;
        char *path = oct_path_join(f->parent, e->d_name);
        if (path && oct_remove_tree(path, &why) == OCT_OK)
            oct_log_info("%s is removed: an export that didn't come to its end left it", path);
        else if (path)
            oct_log_warning("%s", why.message);
        oct_free(path);
    }
    if (directory)
        closedir(directory);
}

static oct_status make_temporary(oct_new_folder *f, oct_error *err) {
    oct_status status = oct_make_folders(f->parent, err);
    if (!status)
        sweep(f);
    if (status)
        return status;
    f->made = mkdir(f->temporary, 0777) == 0;
    if (!f->made)
        status = oct_fail(err, oct_status_of_write_errno(errno), "%s: the folder can't be made: %s",
                          f->path, strerror(errno));
    return status;
}

oct_status oct_new_folder_check(const char *path, oct_error *err) {
    oct_new_folder f = {0};
    oct_status status = set_names(path, &f, err);
    if (!status && is_there(f.path))
        status = fail_taken(f.path, err);
    free_names(&f);
    return status;
}

oct_status oct_new_folder_begin(const char *path, oct_new_folder *f, oct_error *err) {
    *f = (oct_new_folder){0};
    oct_status status = set_names(path, f, err);
    if (!status && is_there(f->path))
        status = fail_taken(f->path, err);
    if (!status)
        status = make_temporary(f, err);
    if (status)
        oct_new_folder_end(f);
    return status;
}

oct_status oct_new_folder_publish(oct_new_folder *f, oct_error *err) {
    oct_status status = oct_folder_sync(f->temporary, err);
    if (status)
        return status;
    int failed = renameat2(AT_FDCWD, f->temporary, AT_FDCWD, f->path, RENAME_NOREPLACE);
    if (failed && errno == EINVAL && !is_there(f->path)) /* a file system that can't promise it */
        failed = rename(f->temporary, f->path);
    if (failed && errno == EEXIST)
        return fail_taken(f->path, err);
    if (failed)
        return oct_fail(err, OCT_FAILED, "%s: can't be renamed to %s: %s", f->temporary, f->path,
                        strerror(errno));
    oct_free(f->temporary);
    f->temporary = NULL;
    return oct_folder_sync(f->parent, err);
}

void oct_new_folder_end(oct_new_folder *f) {
    oct_error why = {0};
    if (f->made && f->temporary && oct_remove_tree(f->temporary, &why) != OCT_OK)
        oct_log_warning("%s", why.message);
    if (f->temporary && f->parent)
        oct_remove_folders(f->parent, f->n_kept);
    free_names(f);
}
