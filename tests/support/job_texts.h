/* Jobs loaded from texts: a file and a command line, well or with an error. */
#ifndef OCT_TESTS_JOB_TEXTS_H
#define OCT_TESTS_JOB_TEXTS_H

#include "config/job.h"
#include "file_support.h"

typedef struct wrong_job {
    const char *text, *override, *message;
} wrong_job;

oct_status load_text(const char *path, const char *text, const char *const *overrides, int n,
                     oct_job *job, oct_error *err);
void load_toml(const char *text, const char *const *overrides, int n, oct_job *job);
void load_yaml(const char *text, const char *const *overrides, int n, oct_job *job);
void expect_error(const char *path, const char *text, const char *override, const char *message);

oct_status load_form(oct_job_form form, const char *text, const char *override, oct_job *job,
                     oct_error *err);
void load_form_good(oct_job_form form, const char *text, oct_job *job);

#endif
