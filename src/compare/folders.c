/* The folders of the runs of `octet compare`: see folders.h. */
#include "compare/folders.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/claim.h"
#include "base/fs.h"
#include "base/log.h"
#include "train/aside.h"

static bool has_parent_part(const char *path) {
    while (*path) {
        size_t n = strcspn(path, "/");
        if (n == 2 && strncmp(path, "..", 2) == 0)
            return true;
        path += n + (path[n] == '/');
    }
    return false;
}

/* Whether `path`, as far as it exists, is `folder` or below it once links are followed. What isn't
 * there yet is made where its name says. */
static bool resolves_below(const char *path, const char *folder) {
    char *part = oct_strdup(path), *real_folder = realpath(folder, NULL), *real_path = NULL;
    bool below = part && !real_folder;
    if (part && real_folder) {
        part[oct_path_existing(part)] = '\0';
        real_path = realpath(*part ? part : ".", NULL);
    }
    if (real_path) {
        size_t n = strlen(real_folder);
        below = strncmp(real_path, real_folder, n) == 0 &&
                (real_path[n] == '/' || !real_path[n] || strcmp(real_folder, "/") == 0);
    }
    oct_free(part);
    free(real_folder);
    free(real_path);
    return below;
}

/* Whether checkpoint.folder is `folder`'s own; *checkpoints (oct_free): its path. */
static oct_status look(const oct_job *job, const char *folder, char **checkpoints, bool *own,
                       oct_error *err) {
    const char *name = job->checkpoint.folder;
    *checkpoints = oct_path_join(folder, name);
    if (!*checkpoints)
        return oct_fail_memory(err);
    *own = name[0] != '/' && !has_parent_part(name) && resolves_below(*checkpoints, folder);
    return OCT_OK;
}

oct_status oct_compare_folder_check(const oct_job *job, const char *folder, oct_error *err) {
    const char *initial = job->checkpoint.initial_load_path;
    char *checkpoints = NULL;
    bool own = false;
    oct_status status = look(job, folder, &checkpoints, &own, err);
    if (!status && !own && oct_job_saves(job))
        status = oct_fail(err, OCT_INVALID,
                          "%s: it leads out of %s, and recipes would save over each other and over "
                          "what is there; expected a folder below each recipe's own, such as "
                          "--checkpoint.folder=checkpoint; got \"%s\"",
                          oct_job_at(job, "checkpoint.folder"), folder, job->checkpoint.folder);
    if (!status && own && initial && oct_path_is_folder(checkpoints) && oct_path_exists(initial) &&
        resolves_below(initial, checkpoints))
        status = oct_fail(err, OCT_INVALID,
                          "%s: compare sets the checkpoints of %s aside before it trains; expected "
                          "one that lies elsewhere, so move it first; got \"%s\"",
                          oct_job_at(job, "checkpoint.initial_load_path"), checkpoints, initial);
    oct_free(checkpoints);
    return status;
}

static oct_status set_aside(const oct_job *job, const char *folder, oct_error *err) {
    char *checkpoints = NULL, *aside = NULL;
    size_t n = 0;
    bool own = false;
    oct_status status = look(job, folder, &checkpoints, &own, err);
    if (!status && own)
        status = oct_aside_move(folder, checkpoints, -1, &aside, &n, err);
    if (!status && aside)
        oct_log_warning("%s begins anew: %zu checkpoint%s moved to %s", folder, n,
                        n == 1 ? " of an earlier compare was" : "s of an earlier compare were",
                        aside);
    oct_free(aside);
    oct_free(checkpoints);
    return status;
}

oct_status oct_compare_folder_set_aside(const oct_job *job, const char *folder, bool claimed,
                                        oct_error *err) {
    oct_claim claim = {0};
    oct_status status = claimed ? OCT_OK : oct_claim_take(folder, &claim, err);
    if (!status)
        status = set_aside(job, folder, err);
    if (!claimed)
        oct_claim_release(&claim);
    return status;
}
