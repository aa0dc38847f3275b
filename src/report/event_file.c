/* TensorBoard event files: see event_file.h. */
#include "report/event_file.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/strbuf.h"
#include "file/append_file.h"
#include "report/tfrecord.h"

struct oct_event_file {
    oct_append file;
    oct_strbuf event, record; /* kept, so that a step allocates nothing once they have grown */
};

static double wall_time_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Frames what is in `event` and appends it. */
static oct_status write_event(oct_event_file *f, oct_error *err) {
    f->record.length = 0;
    if (!f->event.failed)
        oct_tfrecord_put(&f->record, f->event.text, f->event.length);
    if (f->event.failed || f->record.failed) {
        oct_strbuf_free(&f->event);
        oct_strbuf_free(&f->record);
        return oct_fail_memory(err);
    }
    return oct_append_write(&f->file, f->record.text, f->record.length, err);
}

/* TIME.HOST.PID.N as TensorBoard's own writers name theirs; it reads a folder's files in the order
 * of their names. */
static char *new_path(const char *folder) {
    static atomic_int n_files;
    char name[256], host[128] = "";
    if (gethostname(host, sizeof host - 1) != 0 || !host[0])
        snprintf(host, sizeof host, "localhost");
    for (char *c = host; *c; c++)
        if (*c == '/')
            *c = '_';
    snprintf(name, sizeof name, "events.out.tfevents.%010" PRId64 ".%s.%ld.%d", time(NULL), host,
             (long)getpid(), atomic_fetch_add(&n_files, 1));
    return oct_path_join(folder, name);
}

oct_status oct_event_file_create(const char *folder, int64_t last_step, oct_event_file **file,
                                 oct_error *err) {
    oct_status status = oct_make_folders(folder, err);
    if (status)
        return status;
    oct_event_file *f = oct_calloc_array(1, sizeof *f);
    char *path = new_path(folder);
    if (!f || !path) {
        oct_free(f);
        oct_free(path);
        return oct_fail_memory(err);
    }
    status = oct_append_open(&f->file, path, 0, err);
    oct_free(path);
    if (!status) {
        oct_event_put_version(&f->event, wall_time_now());
        status = write_event(f, err);
    }
    if (!status && last_step >= 0) {
        f->event.length = 0;
        oct_event_put_start(&f->event, wall_time_now(), last_step + 1); /* drops steps >= this */
        status = write_event(f, err);
    }
    if (status)
        oct_event_file_close(f);
    else
        *file = f;
    return status;
}

oct_status oct_event_file_append(oct_event_file *f, int64_t step, const oct_metric *metrics,
                                 size_t n_metrics, oct_error *err) {
    f->event.length = 0;
    oct_event_put_scalars(&f->event, wall_time_now(), step, metrics, n_metrics);
    return write_event(f, err);
}

oct_status oct_event_file_append_histogram(oct_event_file *f, int64_t step, const char *tag,
                                           const double *limits, const double *counts, size_t n,
                                           oct_error *err) {
    f->event.length = 0;
    oct_event_put_histogram(&f->event, wall_time_now(), step, tag, limits, counts, n);
    return write_event(f, err);
}

const char *oct_event_file_path(const oct_event_file *f) {
    return f->file.path;
}

void oct_event_file_close(oct_event_file *f) {
    if (!f)
        return;
    oct_append_close(&f->file);
    oct_strbuf_free(&f->event);
    oct_strbuf_free(&f->record);
    oct_free(f);
}
