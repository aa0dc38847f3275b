/* TensorBoard event files: TFRecord frames (length, masked CRC32C of the length, data, masked
 * CRC32C of the data) around Event messages in protobuf encoding. Sources:
 * tensorflow/core/lib/io/record_writer.cc, tensorflow/core/util/event.proto,
 * framework/summary.proto.
 *
 * Invariant: the file always ends with a whole frame; each goes out by one write. */
#ifndef OCT_REPORT_EVENT_FILE_H
#define OCT_REPORT_EVENT_FILE_H

#include <octet/status.h>
#include <stddef.h>
#include <stdint.h>

#include "report/metrics_file.h"

typedef struct oct_event_file oct_event_file;

/* Makes `folder` if missing and a new file events.out.tfevents.TIME.HOST.PID.N in it, opened with
 * the version event. `last_step` >= 0 (a resumed run) adds the session start that makes TensorBoard
 * drop what earlier files say about later steps; -1: a fresh run. */
oct_status oct_event_file_create(const char *folder, int64_t last_step, oct_event_file **file,
                                 oct_error *err);
/* One Event at `step` with a value for each number (texts are left out), tagged by its name;
 * rounded to fp32, non-finite ones as they are. The wall time is now. One thread at a time. */
oct_status oct_event_file_append(oct_event_file *file, int64_t step, const oct_metric *metrics,
                                 size_t n_metrics, oct_error *err);
/* One Event with a histogram: counts (n) of values up to limits (n), each above the one before it,
 * the first from `limits[0] - (limits[1] - limits[0])` on; n >= 2. Its sums take a bin's middle for
 * its values. Only the bins from the first to the last that aren't empty are written. */
oct_status oct_event_file_append_histogram(oct_event_file *file, int64_t step, const char *tag,
                                           const double *limits, const double *counts, size_t n,
                                           oct_error *err);
const char *oct_event_file_path(const oct_event_file *file);
void oct_event_file_close(oct_event_file *file); /* NULL is fine */

#endif
