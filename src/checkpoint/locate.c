/* From the path that a user types to a checkpoint: see locate.h. */
#include "checkpoint/locate.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "checkpoint/step_folder.h"
#include "file/json.h"

enum {
    MAX_NAMES = 400,    /* bytes of names in a message, which is one line */
    MAX_DEPTH = 5,      /* folders below the one that was named */
    MAX_ENTRIES = 20000 /* looked at in all, lest a search below / takes long */
};
#define CHECKPOINTS "checkpoint" /* the default of checkpoint.folder */
#define MANIFEST "manifest.json"

static bool has_file(const char *folder, const char *name) {
    char *path = oct_path_join(folder, name);
    bool has = path && oct_path_exists(path) && !oct_path_is_folder(path);
    oct_free(path);
    return has;
}

/* ---- looking around ---- */

/* A search for folders that hold checkpoints. Best effort: what can't be read isn't named. */
typedef struct search {
    const char *except; /* a folder of step-N folders that isn't looked for; NULL: none */
    oct_strbuf names;   /* "a/b, a/c" */
    size_t n_found, n_left_out, n_entries;
} search;

static bool holds_checkpoint(const char *folder) {
    int64_t *steps = NULL;
    size_t n = 0;
    bool found = false;
    if (oct_step_folders_list(folder, &steps, &n, NULL) != OCT_OK)
        return false;
    for (size_t i = 0; i < n && !found; i++) {
        char *step = oct_step_folder_path(folder, steps[i], NULL);
        found = step && has_file(step, MANIFEST);
        oct_free(step);
    }
    oct_free(steps);
    return found;
}

/* A run is named by its dump folder, which is shorter than its folder of checkpoints. */
static void add_found(search *s, const char *folder) {
    const char *slash = strrchr(folder, '/');
    bool is_default = slash && slash != folder && strcmp(slash + 1, CHECKPOINTS) == 0;
    int n = (int)(is_default ? (size_t)(slash - folder) : strlen(folder));
    s->n_found++;
    if (s->names.length + (size_t)n > MAX_NAMES)
        s->n_left_out++;
    else
        oct_strbuf_printf(&s->names, "%s%.*s", s->names.length ? ", " : "", n, folder);
}

static int is_visible(const struct dirent *entry) {
    return entry->d_name[0] != '.' && strncmp(entry->d_name, "step-", 5) != 0;
}

static void look_below(search *s, const char *folder, int depth) {
    struct dirent **entries = NULL;
    if (!(s->except && strcmp(folder, s->except) == 0) && holds_checkpoint(folder))
        add_found(s, folder);
    int n = depth < MAX_DEPTH ? scandir(folder, &entries, is_visible, alphasort) : 0;
    for (int i = 0; i < n; i++) {
        struct stat st;
        char *path =
            s->n_entries++ < MAX_ENTRIES ? oct_path_join(folder, entries[i]->d_name) : NULL;
        if (path && lstat(path, &st) == 0 && S_ISDIR(st.st_mode))
            look_below(s, path, depth + 1);
        oct_free(path);
        free(entries[i]);
    }
    free(entries);
}

/* The names of runs with checkpoints below `folder`, "" for none; oct_strbuf_free(&s->names). */
static const char *names_below(search *s, const char *folder) {
    look_below(s, folder, 0);
    if (s->names.length && s->n_left_out)
        oct_strbuf_printf(&s->names, " and %zu more", s->n_left_out);
    return s->names.length && !s->names.failed ? s->names.text : "";
}

/* ---- nothing there ---- */

/* What `path` is instead, for the end of a sentence. */
static const char *kind_of(const char *path) {
    if (!oct_path_exists(path))
        return "it doesn't exist";
    if (!oct_path_is_folder(path))
        return "it's a file";
    return "it has none";
}

/* The longest part of the path that is a folder, or NULL: no more than the current folder. */
static char *existing_folder(const char *path) {
    char *part = oct_strdup(path);
    if (!part)
        return NULL;
    part[oct_path_existing(part)] = '\0';
    for (char *slash; *part && !oct_path_is_folder(part);) {
        slash = strrchr(part, '/');
        *(slash ? slash : part) = '\0';
    }
    for (size_t n = strlen(part); n > 1 && part[n - 1] == '/'; n--)
        part[n - 1] = '\0';
    if (*part && strcmp(part, "/") != 0)
        return part;
    oct_free(part);
    return NULL;
}

static oct_status fail_none(const char *path, oct_error *err) {
    search s = {0};
    char *folder = existing_folder(path);
    bool inside = folder && has_file(folder, MANIFEST); /* a file of a checkpoint was named */
    const char *names = folder && !inside ? names_below(&s, folder) : "";
    oct_status status =
        oct_fail(err, OCT_INVALID,
                 "%s: expected a checkpoint (step-N), a folder of them or a run's dump "
                 "folder; %s%s%s",
                 path, kind_of(path),
                 inside   ? "; did you mean "
                 : *names ? s.n_found == 1 ? "; there is one in " : "; there are some in "
                          : "",
                 inside ? folder : names);
    oct_strbuf_free(&s.names);
    oct_free(folder);
    return status;
}

/* ---- locating ---- */

/* The newest of `folder`/`name`; NULL: none there. *at (oct_free) is that folder. */
static oct_status find_in(const char *folder, const char *name, char **at,
                          oct_checkpoint **checkpoint, oct_error *err) {
    *at = *name ? oct_path_join(folder, name) : oct_strdup(folder);
    if (!*at)
        return oct_fail_memory(err);
    return oct_path_is_folder(*at)
               ? oct_checkpoint_find(*at, OCT_CHECKPOINT_LATEST, checkpoint, err)
               : OCT_OK;
}

static void warn_of_others(const char *path, const char *taken, const oct_checkpoint *checkpoint) {
    search s = {.except = taken};
    const char *names = names_below(&s, path);
    if (*names)
        oct_log_warning("%s: taking %s; there are others in %s", path,
                        oct_checkpoint_path(checkpoint), oct_show(names).text);
    oct_strbuf_free(&s.names);
}

static oct_status locate_in(const char *folder, oct_checkpoint **checkpoint, oct_error *err) {
    static const char *const names[] = {"", CHECKPOINTS};
    oct_status status = OCT_OK;
    for (size_t i = 0; i < 2 && !status && !*checkpoint; i++) {
        char *at = NULL;
        status = find_in(folder, names[i], &at, checkpoint, err);
        if (!status && *checkpoint)
            warn_of_others(folder, at, *checkpoint);
        oct_free(at);
    }
    return !status && !*checkpoint ? fail_none(folder, err) : status;
}

oct_status oct_checkpoint_locate(const char *path, oct_checkpoint **checkpoint, oct_error *err) {
    *checkpoint = NULL;
    if (!oct_path_is_folder(path))
        return fail_none(path, err);
    if (has_file(path, MANIFEST))
        return oct_checkpoint_open(path, checkpoint, err);
    char *folder = existing_folder(path); /* without slashes at its end */
    if (!folder)
        folder = oct_strdup(path);
    oct_status status = folder ? locate_in(folder, checkpoint, err) : oct_fail_memory(err);
    oct_free(folder);
    return status;
}
