/* Failures of a loaded job: see together.h. */
#include "config/together.h"

#include <string.h>

#include "config/settings.h"

/* Length of "PLACE: KEY: " in a message; 0: it has none. */
static size_t key_length(const char *message) {
    const char *key = strstr(message, ": "), *what = key ? strstr(key + 2, ": ") : NULL;
    return what ? (size_t)(what - message) + 2 : 0;
}

/* Whether the key of the message is told of already: the first that is wrong with it says enough.
 */
static bool is_told(const oct_together *t, const char *message) {
    size_t n = key_length(message);
    if (n == 0)
        return false;
    if (strncmp(t->first.message, message, n) == 0)
        return true;
    const char *line = oct_job_more_refusals(t->job);
    for (; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (strncmp(line, message, n) == 0)
            return true;
    return false;
}

oct_status oct_together_add(oct_together *t, oct_status status, oct_error *cause) {
    if (status != OCT_INVALID)
        return status;
    oct_strbuf *more = t->job->state ? &t->job->state->more : NULL;
    if (!oct_together_failed(t))
        t->first = *cause;
    else if (more && !is_told(t, cause->message))
        oct_strbuf_printf(more, "%s%s", more->length ? "\n" : "", cause->message);
    *cause = (oct_error){0};
    return more && more->failed ? oct_fail_memory(cause) : OCT_OK;
}

oct_status oct_together_conclude(const oct_together *t, oct_error *err) {
    return oct_together_failed(t) ? oct_fail(err, t->first.status, "%s", t->first.message) : OCT_OK;
}

const char *oct_job_more_refusals(const oct_job *job) {
    const char *text = job->state ? job->state->more.text : NULL;
    return text ? text : "";
}
