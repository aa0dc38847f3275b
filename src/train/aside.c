/* Checkpoints that a run leaves behind: see aside.h. */
#include "train/aside.h"

#include "base/alloc.h"
#include "base/fs.h"
#include "checkpoint/checkpoint.h"

static oct_status keep_metrics(const char *dump_folder, const char *aside, oct_error *err) {
    oct_status status = OCT_OK;
    char *text = NULL, *from = oct_path_join(dump_folder, "metrics.jsonl");
    char *to = oct_path_join(aside, "metrics.jsonl");
    size_t n_bytes = 0;
    if (!from || !to)
        status = oct_fail_memory(err);
    else if (oct_path_exists(from))
        status = oct_file_read(from, SIZE_MAX - 1, &text, &n_bytes, err);
    if (!status && text)
        status = oct_file_write(to, text, n_bytes, err);
    oct_free(text);
    oct_free(from);
    oct_free(to);
    return status;
}

oct_status oct_aside_move(const char *dump_folder, const char *folder, int64_t step, char **aside,
                          size_t *n, oct_error *err) {
    oct_status status = oct_checkpoint_set_aside(folder, step, aside, n, err);
    if (!status && *aside)
        status = keep_metrics(dump_folder, *aside, err);
    if (status) {
        oct_free(*aside);
        *aside = NULL;
    }
    return status;
}
