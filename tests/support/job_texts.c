/* See job_texts.h. */
#include "job_texts.h"

oct_status load_text(const char *path, const char *text, const char *const *overrides, int n,
                     oct_job *job, oct_error *err) {
    put_text(path, text);
    *err = (oct_error){0};
    return oct_job_load(path, overrides, n, job, err);
}

void load_toml(const char *text, const char *const *overrides, int n, oct_job *job) {
    oct_error err;
    oct_status status = load_text("job.toml", text, overrides, n, job, &err);
    if (status)
        fail_msg("%s", err.message);
}

void load_yaml(const char *text, const char *const *overrides, int n, oct_job *job) {
    oct_error err;
    oct_status status = load_text("job.yaml", text, overrides, n, job, &err);
    if (status)
        fail_msg("%s", err.message);
}

void expect_error(const char *path, const char *text, const char *override, const char *message) {
    oct_job job;
    oct_error err;
    oct_status status = load_text(path, text, &override, override ? 1 : 0, &job, &err);
    assert_int_equal(status, OCT_INVALID);
    assert_string_equal(err.message, message);
    assert_null(strchr(err.message, '\n'));
    assert_null(job.state);
    assert_null(job.others); /* one mistake, one line */
    oct_job_free(&job);
}

/* In either form. */
static const char *path_of(oct_job_form form) {
    return form == OCT_JOB_MINDSPEED ? "job.yaml" : "job.toml";
}

oct_status load_form(oct_job_form form, const char *text, const char *override, oct_job *job,
                     oct_error *err) {
    put_text(path_of(form), text);
    *err = (oct_error){0};
    return oct_job_load(path_of(form), &override, override ? 1 : 0, job, err);
}

void load_form_good(oct_job_form form, const char *text, oct_job *job) {
    oct_error err;
    if (load_form(form, text, NULL, job, &err))
        fail_msg("%s\n%s", err.message, text);
}
