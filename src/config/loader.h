/* What the files that together load a job share: the settings on their way into an oct_job.
 *
 * Invariant: a setting is what the user wrote, the file's or, where there is one, the command
 * line's; fields of the job are filled from settings and defaults in one pass, after all were
 * collected, so that a bad value in the file that the command line replaces doesn't matter. */
#ifndef OCT_CONFIG_LOADER_H
#define OCT_CONFIG_LOADER_H

#include "config/schema.h"

typedef struct oct_setting {
    const oct_value *value; /* NULL: not set */
    const char *place;      /* "FILE:LINE" or "command line" */
    const char *name;       /* by which a YAML job calls the TOML key of this row; else NULL */
} oct_setting;

struct oct_job_state {
    oct_arena *arena;
    oct_setting *titan;     /* one a row of oct_schema_titan */
    oct_setting *mindspeed; /* one a row of oct_schema_mindspeed; NULL for a TOML job */
};

#define OCT_COMMAND_LINE "command line"

typedef struct oct_loader {
    oct_value_builder builder;
    oct_job *job;
    struct oct_job_state *state;
    oct_error unknown; /* the first unknown key: told after the checks that explain it better */
} oct_loader;

/* The row `name` of the file's own form or, in a YAML job, of the TOML form too; *setting is its
 * slot. NULL when unknown. */
const oct_key *oct_loader_find(oct_loader *l, const char *name, size_t length,
                               oct_setting **setting);
/* Like oct_loader_find, but the row may be a free table that holds the name. */
const oct_key *oct_loader_find_table(oct_loader *l, const char *name, oct_setting **setting,
                                     const char **rest);
/* Records an unknown key or section, with its nearest neighbour. */
void oct_loader_unknown(oct_loader *l, const char *place, const char *name, const char *what);

/* The value a user typed for `key` as text; NULL with the error filled. */
const oct_value *oct_loader_parse_text(oct_loader *l, const oct_key *key, const char *text);
oct_status oct_loader_apply_overrides(oct_loader *l, const char *const *overrides, int n);
/* The path after `--job.config_file`, or NULL. */
const char *oct_override_config_file(const char *const *overrides, int n);

/* Checks a value against its row, and stores it if the row has a member. */
oct_status oct_loader_store(oct_loader *l, const oct_key *key, const oct_value *value,
                            const char *place);
/* What stands before a key that was set at `place`: the dashes of an option, or nothing. */
const char *oct_loader_dashes(const char *place);
/* "KEY at PLACE is wrong" in the form of every configuration error. */
oct_status oct_loader_fail(oct_loader *l, const char *place, const char *name, const char *what,
                           const char *expected, const oct_value *got);
oct_status oct_loader_fail_text(oct_loader *l, const char *key, const char *what,
                                const char *expected, const char *got);

/* Rules that concern more than one key, or the words inside a value. */
oct_status oct_loader_check(oct_loader *l);
/* Turns the keys of a MindSpeed MM job into those fields that mean the same. */
oct_status oct_loader_finish_mindspeed(oct_loader *l);

#endif
