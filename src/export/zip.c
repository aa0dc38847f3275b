/* A zip archive of stored entries: see zip.h. */
#include "export/zip.h"

#include <string.h>

#include "base/crc32.h"

enum { LOCAL_BYTES = 30, ALIGNMENT = 64 };

static void put(oct_strbuf *to, uint32_t value, int n_bytes) {
    unsigned char bytes[4];
    for (int i = 0; i < n_bytes; i++)
        bytes[i] = (unsigned char)(value >> 8 * i);
    oct_strbuf_append(to, bytes, (size_t)n_bytes);
}

/* What a local header and one of the central directory have in common. */
static void put_common(oct_strbuf *to, uint32_t crc, size_t n, size_t n_name, size_t n_extra) {
    put(to, 0, 2);    /* flags */
    put(to, 0, 2);    /* stored */
    put(to, 0, 2);    /* time: none */
    put(to, 0x21, 2); /* date: 1980-01-01 */
    put(to, crc, 4);
    put(to, (uint32_t)n, 4);
    put(to, (uint32_t)n, 4);
    put(to, (uint32_t)n_name, 2);
    put(to, (uint32_t)n_extra, 2);
}

static void put_entry(oct_zip *zip, const char *name, uint32_t crc, size_t n, size_t n_extra) {
    uint32_t place = (uint32_t)zip->head.length;
    size_t n_name = strlen(name);
    oct_strbuf_puts(&zip->head, "PK\x03\x04");
    put(&zip->head, 20, 2); /* version that is needed */
    put_common(&zip->head, crc, n, n_name, n_extra);
    oct_strbuf_puts(&zip->head, name);
    if (n_extra) { /* a field of zeros, as torch fills up */
        oct_strbuf_puts(&zip->head, "FB");
        put(&zip->head, (uint32_t)n_extra - 4, 2);
        for (size_t i = 4; i < n_extra; i++)
            put(&zip->head, 0, 1);
    }
    oct_strbuf_puts(&zip->tail, "PK\x01\x02");
    put(&zip->tail, 20, 2); /* version that wrote it */
    put(&zip->tail, 20, 2);
    put_common(&zip->tail, crc, n, n_name, 0);
    put(&zip->tail, 0, 2); /* comment */
    put(&zip->tail, 0, 2); /* disk */
    put(&zip->tail, 0, 2); /* attributes */
    put(&zip->tail, 0, 4);
    put(&zip->tail, place, 4);
    oct_strbuf_puts(&zip->tail, name);
    zip->n_entries++;
}

void oct_zip_put(oct_zip *zip, const char *name, const void *bytes, size_t n) {
    put_entry(zip, name, oct_crc32(bytes, n), n, 0);
    oct_strbuf_append(&zip->head, bytes, n);
}

void oct_zip_put_data(oct_zip *zip, const char *name, uint32_t crc, size_t n) {
    size_t begin = zip->head.length + LOCAL_BYTES + strlen(name) + 4;
    put_entry(zip, name, crc, n, 4 + (ALIGNMENT - begin % ALIGNMENT) % ALIGNMENT);
}

void oct_zip_end(oct_zip *zip, size_t n_data) {
    uint32_t n = (uint32_t)zip->tail.length, place = (uint32_t)(zip->head.length + n_data);
    oct_strbuf_puts(&zip->tail, "PK\x05\x06");
    put(&zip->tail, 0, 4); /* disks */
    put(&zip->tail, (uint32_t)zip->n_entries, 2);
    put(&zip->tail, (uint32_t)zip->n_entries, 2);
    put(&zip->tail, n, 4);
    put(&zip->tail, place, 4);
    put(&zip->tail, 0, 2); /* comment */
}
