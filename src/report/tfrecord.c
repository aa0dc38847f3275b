/* TFRecord frames and Event messages: see tfrecord.h. */
#include "report/tfrecord.h"

#include <string.h>

/* ---- frames ---- */

uint32_t oct_crc32c(const void *bytes, size_t n_bytes) {
    const uint8_t *from = bytes;
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < n_bytes; i++) {
        crc ^= from[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0); /* a few hundred bytes a step: no table */
    }
    return ~crc;
}

uint32_t oct_crc32c_mask(uint32_t crc) {
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void put_little(oct_strbuf *to, uint64_t value, int n_bytes) {
    uint8_t bytes[8];
    for (int i = 0; i < n_bytes; i++)
        bytes[i] = (uint8_t)(value >> 8 * i);
    oct_strbuf_append(to, bytes, (size_t)n_bytes);
}

void oct_tfrecord_put(oct_strbuf *to, const void *data, size_t n_bytes) {
    size_t start = to->length;
    put_little(to, n_bytes, 8);
    if (to->failed)
        return;
    put_little(to, oct_crc32c_mask(oct_crc32c(to->text + start, 8)), 4);
    oct_strbuf_append(to, data, n_bytes);
    put_little(to, oct_crc32c_mask(oct_crc32c(data, n_bytes)), 4);
}

/* ---- protobuf ---- */

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

static void put_varint(oct_strbuf *to, uint64_t value) {
    do {
        uint8_t byte = (uint8_t)(value & 127) | (value > 127 ? 128 : 0);
        oct_strbuf_append(to, &byte, 1);
        value >>= 7;
    } while (value);
}

static void put_key(oct_strbuf *to, uint32_t field, uint32_t wire) {
    put_varint(to, field << 3 | wire);
}

static void put_bytes(oct_strbuf *to, uint32_t field, const void *bytes, size_t n_bytes) {
    put_key(to, field, WIRE_BYTES);
    put_varint(to, n_bytes);
    oct_strbuf_append(to, bytes, n_bytes);
}

static size_t varint_bytes(uint64_t value) {
    size_t n = 1;
    while (value >>= 7)
        n++;
    return n;
}

static void put_double(oct_strbuf *to, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_little(to, bits, 8);
}

static void put_double_field(oct_strbuf *to, uint32_t field, double value) {
    put_key(to, field, WIRE_64);
    put_double(to, value);
}

static void put_wall_time(oct_strbuf *to, double wall_time) {
    put_double_field(to, 1, wall_time);
}

static void put_step(oct_strbuf *to, int64_t step) {
    put_key(to, 2, WIRE_VARINT);
    put_varint(to, (uint64_t)step);
}

void oct_event_put_version(oct_strbuf *to, double wall_time) {
    static const char version[] = "brain.Event:2";
    put_wall_time(to, wall_time);
    put_bytes(to, 3, version, sizeof version - 1);
}

void oct_event_put_start(oct_strbuf *to, double wall_time, int64_t step) {
    static const uint8_t start[] = {1 << 3 | WIRE_VARINT, 1}; /* status = START */
    put_wall_time(to, wall_time);
    put_step(to, step);
    put_bytes(to, 7, start, sizeof start);
}

/* Bytes of a Value: tag with key and length, and the float with its key. */
static size_t value_bytes(size_t n_tag) {
    return 1 + varint_bytes(n_tag) + n_tag + 5;
}

static void put_value(oct_strbuf *to, const char *tag, float value) {
    size_t n_tag = strlen(tag);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(to, 1, WIRE_BYTES);
    put_varint(to, value_bytes(n_tag));
    put_bytes(to, 1, tag, n_tag);
    put_key(to, 2, WIRE_32);
    put_little(to, bits, 4);
}

void oct_event_put_scalars(oct_strbuf *to, double wall_time, int64_t step,
                           const oct_metric *metrics, size_t n_metrics) {
    size_t n_summary = 0;
    for (size_t i = 0; i < n_metrics; i++) {
        size_t n = value_bytes(strlen(metrics[i].name));
        if (metrics[i].kind == OCT_METRIC_REAL || metrics[i].kind == OCT_METRIC_INTEGER)
            n_summary += 1 + varint_bytes(n) + n;
    }
    put_wall_time(to, wall_time);
    put_step(to, step);
    put_key(to, 5, WIRE_BYTES);
    put_varint(to, n_summary);
    for (size_t i = 0; i < n_metrics; i++) {
        const oct_metric *m = &metrics[i];
        if (m->kind == OCT_METRIC_REAL)
            put_value(to, m->name, (float)m->value.real);
        else if (m->kind == OCT_METRIC_INTEGER)
            put_value(to, m->name, (float)m->value.integer);
    }
}

static void put_doubles(oct_strbuf *to, uint32_t field, const double *values, size_t n) {
    put_key(to, field, WIRE_BYTES);
    put_varint(to, 8 * n);
    for (size_t i = 0; i < n; i++)
        put_double(to, values[i]);
}

/* The HistogramProto of bins first .. last. */
static void put_bins(oct_strbuf *to, const double *limits, const double *counts, size_t first,
                     size_t last) {
    double num = 0, sum = 0, squares = 0;
    for (size_t i = first; i <= last; i++) {
        const double below = i > 0 ? limits[i - 1] : limits[0] - (limits[1] - limits[0]);
        const double middle = below / 2 + limits[i] / 2;
        num += counts[i];
        sum += counts[i] * middle;
        squares += counts[i] * middle * middle;
    }
    put_double_field(to, 1, first > 0 ? limits[first - 1] : 2 * limits[0] - limits[1]);
    put_double_field(to, 2, limits[last]);
    put_double_field(to, 3, num);
    put_double_field(to, 4, sum);
    put_double_field(to, 5, squares);
    put_doubles(to, 6, limits + first, last - first + 1);
    put_doubles(to, 7, counts + first, last - first + 1);
}

void oct_event_put_histogram(oct_strbuf *to, double wall_time, int64_t step, const char *tag,
                             const double *limits, const double *counts, size_t n) {
    size_t first = 0, last = n - 1, n_tag = strlen(tag);
    while (first < last && counts[first] == 0)
        first++;
    while (last > first && counts[last] == 0)
        last--;
    const size_t n_doubles = 8 * (last - first + 1);
    const size_t n_bins = 5 * 9 + 2 * (1 + varint_bytes(n_doubles) + n_doubles);
    const size_t n_value = 1 + varint_bytes(n_tag) + n_tag + 1 + varint_bytes(n_bins) + n_bins;
    put_wall_time(to, wall_time);
    put_step(to, step);
    put_key(to, 5, WIRE_BYTES);
    put_varint(to, 1 + varint_bytes(n_value) + n_value);
    put_key(to, 1, WIRE_BYTES);
    put_varint(to, n_value);
    put_bytes(to, 1, tag, n_tag);
    put_key(to, 5, WIRE_BYTES);
    put_varint(to, n_bins);
    put_bins(to, limits, counts, first, last);
}
