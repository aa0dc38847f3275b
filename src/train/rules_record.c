/* The rules in a checkpoint: see rules_record.h. */
#include "train/rules_record.h"

#include <jansson.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/log.h"
#include "io/step_folder.h"

enum { MAX_STATE_BYTES = 64 << 20 };

oct_status oct_rules_read(const char *state, const char *path, const oct_rules **rules,
                          bool *recorded, oct_error *err) {
    json_t *root = json_loads(state, 0, NULL);
    const json_t *entry = json_object_get(root, "rules");
    const char *name = json_string_value(entry);
    oct_status status = OCT_OK;
    *recorded = entry != NULL;
    *rules = name ? oct_rules_find(name) : entry ? NULL : oct_rules_of(OCT_RULES_OCTET);
    if (!root || !*rules)
        status =
            oct_fail(err, OCT_INVALID,
                     "%s: rules: %s; expected rules that this version knows; got \"%.100s\"", path,
                     root ? "another version wrote them" : "not a JSON object", name ? name : "");
    json_decref(root);
    return status;
}

/* The text of state.json in the folder of a checkpoint, or NULL; oct_free. */
static char *read_state(const char *folder, char **path) {
    oct_error ignored = {0};
    char *text = NULL;
    *path = oct_path_join(folder, "state.json");
    if (*path && oct_path_exists(*path) &&
        oct_file_read(*path, MAX_STATE_BYTES, &text, NULL, &ignored) != OCT_OK)
        text = NULL;
    return text;
}

/* That of the newest checkpoint of the job's folder, or of load_step. */
static char *read_own_state(const oct_job *job, char **path) {
    char *folder = oct_path_join(job->job.dump_folder, job->checkpoint.folder), *text = NULL;
    oct_error ignored = {0};
    int64_t *steps = NULL;
    size_t n = 0;
    if (folder && oct_step_folders_list(folder, &steps, &n, &ignored) != OCT_OK)
        n = 0;
    for (size_t i = 0; i < n && !text; i++) {
        if (job->checkpoint.load_step >= 0 && steps[i] != job->checkpoint.load_step)
            continue;
        char *step = oct_step_folder_path(folder, steps[i], NULL);
        oct_free(*path);
        *path = NULL;
        text = step ? read_state(step, path) : NULL;
        oct_free(step);
    }
    oct_free(steps);
    oct_free(folder);
    return text;
}

static oct_status adopt(oct_job *job, const char *state, const char *path, oct_error *err) {
    const oct_rules *rules;
    bool recorded;
    oct_status status = oct_rules_read(state, path, &rules, &recorded, err);
    if (status || rules == oct_job_rules(job))
        return status;
    oct_log_warning("%s: this run goes on with quantize.rules = %s, by which it %s; give "
                    "--quantize.rules=framework to go on by %s",
                    path, rules->name,
                    recorded ? "was trained" : "was trained by a version that knew no others",
                    oct_job_rules(job)->name);
    oct_job_set_rules(job, rules);
    return OCT_OK;
}

oct_status oct_rules_adopt(oct_job *job, oct_error *err) {
    char *path = NULL, *state = NULL;
    if (oct_job_is_set(job, "quantize.rules"))
        return OCT_OK;
    if (job->checkpoint.enable)
        state = read_own_state(job, &path);
    if (!state && job->checkpoint.initial_load_path && !job->checkpoint.initial_load_model_only &&
        !job->checkpoint.initial_load_in_hf) {
        oct_free(path);
        state = read_state(job->checkpoint.initial_load_path, &path);
    }
    oct_status status = state ? adopt(job, state, path, err) : OCT_OK;
    oct_free(state);
    oct_free(path);
    return status;
}
