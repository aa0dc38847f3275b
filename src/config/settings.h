/* What a user wrote of a job, and where: the settings on their way into an oct_job, and the words
 * in which every configuration error is told.
 *
 * Invariant: a setting is what the user wrote, the file's or, where there is one, the command
 * line's; fields of the job are filled from settings and defaults in one pass, after all were
 * collected, so that a bad value in the file that the command line replaces doesn't matter. */
#ifndef OCT_CONFIG_SETTINGS_H
#define OCT_CONFIG_SETTINGS_H

#include "config/schema.h"

typedef struct oct_setting {
    const oct_value *value; /* NULL: not set */
    const char *place;      /* "FILE:LINE" or "command line" */
    const char *name;       /* by which the user calls it, where that isn't the row's; else NULL */
} oct_setting;

struct oct_job_state {
    oct_arena *arena;
    oct_setting *titan;     /* one a row of oct_schema_titan */
    oct_setting *mindspeed; /* one a row of oct_schema_mindspeed; NULL for a TOML job */
    oct_strbuf more;        /* see together.h */
    oct_strbuf unused;      /* what the file says and nothing uses, a line each: see options.h */
};

#define OCT_COMMAND_LINE "command line"

/* Whether the command line asks for something; none and false ask for what is so already. */
bool oct_setting_is_asked_for(const oct_setting *setting);

typedef struct oct_refusal oct_refusal;

typedef struct oct_loader {
    oct_value_builder builder;
    oct_job *job;
    struct oct_job_state *state;
    oct_job_reading reading;
    oct_refusal *refusals; /* what is wrong, in the order in which it is told: see refusals.h */
    size_t n_refusals, n_untold;
} oct_loader;

/* The sections of a YAML job's data sets, and what of their basic_parameters decides the loss of
 * chat data; plain text doesn't use it. */
enum { OCT_N_DATASETS = 2, OCT_N_CHAT_KEYS = 6 };
extern const char *const oct_datasets[OCT_N_DATASETS];
extern const char *const oct_chat_keys[OCT_N_CHAT_KEYS];

/* The row `name` of the file's own form or, in a YAML job, of the TOML form too; *setting is its
 * slot. NULL when unknown. */
const oct_key *oct_loader_find(oct_loader *l, const char *name, size_t length,
                               oct_setting **setting);
/* Like oct_loader_find, but the row may be a free table that holds the name. */
const oct_key *oct_loader_find_table(oct_loader *l, const char *name, oct_setting **setting,
                                     const char **rest);
/* The schema of the file's form. */
const oct_schema *oct_loader_schema(const oct_loader *l);

/* What stands before a key that was set at `place`: the dashes of an option, or nothing. */
const char *oct_loader_dashes(const char *place);
/* "FILE:LINE" in the loader's arena, or NULL with the error filled. */
const char *oct_loader_place(oct_loader *l, int line);
/* "KEY at PLACE is wrong" in the form of every configuration error. */
oct_status oct_loader_fail(oct_loader *l, const char *place, const char *name, const char *what,
                           const char *expected, const oct_value *got);
oct_status oct_loader_fail_text(oct_loader *l, const char *key, const char *what,
                                const char *expected, const char *got);

#endif
