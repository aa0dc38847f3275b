/* A job file of any bytes: loading it gives a job or one line that says what is wrong; nothing
 * crashes, hangs or leaks. Built once a form, with JOB_SUFFIX ".toml" or ".yaml". */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/strbuf.h"
#include "config/job.h"

static char path[64];

static void remove_file(void) {
    unlink(path);
}

/* A memory-backed folder where there is one: a run writes many thousand files a second. */
static void choose_path(void) {
    if (path[0])
        return;
    snprintf(path, sizeof path, "%s/octet-fuzz-%ld" JOB_SUFFIX,
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", (long)getpid());
    atexit(remove_file);
}

static void write_file(const uint8_t *data, size_t size) {
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t before = oct_alloc_live_bytes();
    oct_error err = {0};
    oct_job job;
    choose_path();
    write_file(data, size);
    if (oct_job_load(path, NULL, 0, &job, &err) == OCT_OK) {
        oct_strbuf text = {0};
        oct_job_render(&job, &text);
        oct_strbuf_free(&text);
    } else if (!err.message[0]) {
        abort();
    }
    oct_job_free(&job);
    if (oct_alloc_live_bytes() != before)
        abort();
    return 0;
}
