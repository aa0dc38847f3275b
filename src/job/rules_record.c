/* The rules in a checkpoint: see rules_record.h. */
#include "job/rules_record.h"

#include <jansson.h>

#include "base/log.h"

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

oct_status oct_rules_adopt(oct_job *job, const oct_checkpoint *from, oct_error *err) {
    const char *path = oct_checkpoint_path(from);
    const oct_rules *rules;
    bool recorded;
    if (oct_job_is_set(job, "quantize.rules"))
        return OCT_OK;
    oct_status status = oct_rules_read(oct_checkpoint_state(from), path, &rules, &recorded, err);
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
