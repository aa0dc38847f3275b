/* Status codes and the caller-owned error message that every fallible call may fill.
 *
 * Convention of the whole library: a function that can fail returns oct_status; one that reads the
 * outside world (files, configuration, the command line) also takes a last parameter `oct_error
 * *err`, which may be NULL. The library never prints, exits or aborts. */
#ifndef OCTET_STATUS_H
#define OCTET_STATUS_H

#include <octet/api.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OCT_ERROR_SIZE 1024

typedef enum oct_status {
    OCT_OK = 0,
    OCT_FAILED = 1,    /* the run failed: I/O, a non-finite loss, another rank's failure */
    OCT_INVALID = 2,   /* the input is wrong: usage, configuration, data */
    OCT_NO_MEMORY = 3, /* an allocation was refused */
} oct_status;

/* One clear message: place, what is wrong, what was expected, what was got. It is one line: control
 * characters in it become '?'. */
typedef struct oct_error {
    oct_status status;
    char message[OCT_ERROR_SIZE]; /* always NUL-terminated; of a longer one both ends */
} oct_error;

/* Fills *err (if not NULL) and returns `status`, so that callers write `return oct_fail(err, ...)`.
 * The first failure is the cause: a message already in *err is kept. */
OCT_API oct_status oct_fail(oct_error *err, oct_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* "out of memory", for callers that allocate. */
OCT_API oct_status oct_fail_memory(oct_error *err);

/* The process exit status that belongs to a status: 0, 1 or 2 (no memory is a failed run, 1). */
OCT_API int oct_status_exit_code(oct_status status);

#ifdef __cplusplus
}
#endif
#endif
