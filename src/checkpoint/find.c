/* Finding a checkpoint among a run's, see checkpoint.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "checkpoint/format.h"
#include "checkpoint/step_folder.h"

/* Opens the newest valid one of `steps`; *n_bad: how many before it aren't, each with its reason.
 */
static oct_status open_newest(const char *folder, const int64_t *steps, size_t n,
                              oct_checkpoint **checkpoint, oct_error *why, size_t *n_bad,
                              oct_error *err) {
    for (*n_bad = 0; *n_bad < n; (*n_bad)++) {
        oct_error *reason = &why[*n_bad];
        oct_status status = oct_checkpoint_open_step(folder, steps[*n_bad], OCT_CHECKSUMS_OF_ALL,
                                                     checkpoint, reason);
        if (status == OCT_NO_MEMORY || status == OCT_FAILED) /* says nothing about the folder */
            return oct_fail(err, status, "%s", reason->message);
        if (!status)
            return OCT_OK;
    }
    return OCT_OK;
}

/* The newest valid one of those below step `limit`. */
static oct_status find_newest(const char *folder, int64_t limit, oct_checkpoint **checkpoint,
                              oct_error *err) {
    int64_t *all = NULL;
    size_t n_all = 0, n_bad = 0;
    oct_error *why = NULL;
    oct_status status = oct_step_folders_list(folder, &all, &n_all, err);
    const int64_t *steps = all;
    size_t n = n_all;
    for (; n > 0 && *steps >= limit; steps++) /* newest first */
        n--;
    if (status || n == 0)
        goto cleanup;
    why = oct_calloc_array(n, sizeof *why);
    status =
        why ? open_newest(folder, steps, n, checkpoint, why, &n_bad, err) : oct_fail_memory(err);
    if (!status && n_bad == n)
        status =
            oct_fail(err, OCT_INVALID, "%s: none of its %zu checkpoints is valid; the newest: %s",
                     folder, n, why[0].message);
    for (size_t i = 0; i < n_bad && !status; i++)
        oct_log_warning("checkpoint step-%" PRId64 " is skipped: %s", steps[i], why[i].message);
cleanup:
    oct_free(why);
    oct_free(all);
    return status;
}

/* Says which steps there are instead, the newest of them where they are many. */
static oct_status fail_missing(const char *folder, int64_t step, const int64_t *steps, size_t n,
                               oct_error *err) {
    enum { MOST = 8 };
    oct_strbuf names = {0};
    for (size_t i = 0; i < n && i < MOST; i++)
        oct_strbuf_printf(&names, "%sstep-%" PRId64, i ? ", " : "", steps[i]);
    if (n > MOST)
        oct_strbuf_printf(&names, " and %zu older ones", n - MOST);
    if (names.failed)
        oct_fail_memory(err);
    else
        oct_fail(err, OCT_INVALID, "%s: there is no checkpoint step-%" PRId64 "; there %s %s",
                 folder, step, n == 1 ? "is" : "are", n ? names.text : "none at all");
    oct_status status = names.failed ? OCT_NO_MEMORY : OCT_INVALID;
    oct_strbuf_free(&names);
    return status;
}

static oct_status find_step(const char *folder, int64_t step, oct_checkpoint **checkpoint,
                            oct_error *err) {
    int64_t *steps = NULL;
    size_t n = 0, i = 0;
    oct_status status = oct_step_folders_list(folder, &steps, &n, err);
    while (i < n && steps[i] != step)
        i++;
    if (!status && i == n)
        status = fail_missing(folder, step, steps, n, err);
    else if (!status)
        status = oct_checkpoint_open_step(folder, step, OCT_CHECKSUMS_OF_ALL, checkpoint, err);
    oct_free(steps);
    return status;
}

oct_status oct_checkpoint_find(const char *folder, int64_t step, oct_checkpoint **checkpoint,
                               oct_error *err) {
    *checkpoint = NULL;
    return step >= 0 ? find_step(folder, step, checkpoint, err)
                     : find_newest(folder, INT64_MAX, checkpoint, err);
}

oct_status oct_checkpoint_find_before(const char *folder, int64_t step, oct_checkpoint **checkpoint,
                                      oct_error *err) {
    *checkpoint = NULL;
    return find_newest(folder, step, checkpoint, err);
}

/* ---- setting aside ---- */

/* Makes `folder`/aside-K for the first K that isn't there. */
static oct_status make_aside(const char *folder, char **aside, oct_error *err) {
    for (int k = 1;; k++) {
        char name[32];
        snprintf(name, sizeof name, "aside-%d", k);
        char *path = oct_path_join(folder, name);
        if (!path)
            return oct_fail_memory(err);
        if (mkdir(path, 0777) == 0) {
            *aside = path;
            return OCT_OK;
        }
        oct_status status = errno == EEXIST ? OCT_OK
                                            : oct_fail(err, OCT_FAILED, "%s: can't be made: %s",
                                                       path, strerror(errno));
        oct_free(path);
        if (status)
            return status;
    }
}

static oct_status move(const char *folder, const char *name, const char *to, oct_error *err) {
    oct_status status = OCT_OK;
    char *old = oct_path_join(folder, name), *new = oct_path_join(to, name);
    if (!old || !new)
        status = oct_fail_memory(err);
    else if (oct_path_exists(old) && rename(old, new) != 0)
        status =
            oct_fail(err, OCT_FAILED, "%s: can't be renamed to %s: %s", old, new, strerror(errno));
    oct_free(old);
    oct_free(new);
    return status;
}

static oct_status move_step(const char *folder, int64_t step, const char *to, oct_error *err) {
    char name[64];
    snprintf(name, sizeof name, "step-%" PRId64, step);
    oct_status status = move(folder, name, to, err);
    strcat(name, OCT_CHECKPOINT_EXPORT_ENDING);
    return status ? status : move(folder, name, to, err);
}

oct_status oct_checkpoint_set_aside(const char *folder, int64_t step, char **aside, size_t *n,
                                    oct_error *err) {
    int64_t *steps = NULL;
    size_t n_all = 0;
    *aside = NULL;
    *n = 0;
    oct_status status = oct_step_folders_list(folder, &steps, &n_all, err);
    if (!status && n_all > 0 && steps[0] > step)
        status = make_aside(folder, aside, err);
    while (!status && *n < n_all && steps[*n] > step) {
        status = move_step(folder, steps[*n], *aside, err);
        *n += !status;
    }
    if (!status && *aside)
        status = oct_folder_sync(*aside, err);
    if (!status && *aside)
        status = oct_folder_sync(folder, err);
    oct_free(steps);
    if (status) {
        oct_free(*aside);
        *aside = NULL;
    }
    return status;
}
