/* The pieces of an event file, as plain functions of bytes: CRC32C, TFRecord frames and the
 * protobuf messages Event, Summary and SessionLog. Internal to the room. */
#ifndef OCT_REPORT_TFRECORD_H
#define OCT_REPORT_TFRECORD_H

#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"
#include "report/metrics_file.h"

/* CRC32C (Castagnoli, RFC 3720 appendix B.4): reflected polynomial 0x82f63b78. */
uint32_t oct_crc32c(const void *bytes, size_t n_bytes);
/* The rotated and offset form that TFRecord stores, so that a CRC of data with CRCs stays useful.
 */
uint32_t oct_crc32c_mask(uint32_t crc);

/* uint64 length, masked CRC of it, data, masked CRC of the data; all little-endian. */
void oct_tfrecord_put(oct_strbuf *to, const void *data, size_t n_bytes);

/* Event {double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5;
 * SessionLog session_log = 7}, Summary {repeated Value value = 1}, Value {string tag = 1; float
 * simple_value = 2}, SessionLog {Status status = 1}. Each appends one message. */
void oct_event_put_version(oct_strbuf *to, double wall_time);
void oct_event_put_start(oct_strbuf *to, double wall_time, int64_t step);
void oct_event_put_scalars(oct_strbuf *to, double wall_time, int64_t step,
                           const oct_metric *metrics, size_t n_metrics);
/* Summary.Value {string tag = 1; HistogramProto histo = 5}, HistogramProto {double min = 1, max =
 * 2, num = 3, sum = 4, sum_squares = 5; packed double bucket_limit = 6, bucket = 7}: as
 * oct_event_file_append_histogram says. */
void oct_event_put_histogram(oct_strbuf *to, double wall_time, int64_t step, const char *tag,
                             const double *limits, const double *counts, size_t n);

#endif
