/* A zip archive of stored entries, small ones and then one of data that is written apart. Source of
 * the format: APPNOTE.TXT 6.3.10, of PKWARE. Internal to the room. */
#ifndef OCT_EXPORT_ZIP_H
#define OCT_EXPORT_ZIP_H

#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"

/* Zero-initialise; free both buffers. head, the data's bytes and tail together are the archive. */
typedef struct oct_zip {
    oct_strbuf head, tail;
    int n_entries;
} oct_zip;

/* A small entry; names and the archive with its data stay below 4 GiB. */
void oct_zip_put(oct_zip *zip, const char *name, const void *bytes, size_t n);
/* The entry of the data, whose bytes begin at a multiple of 64 in the archive; call it once, last
 * but for the end. */
void oct_zip_put_data(oct_zip *zip, const char *name, uint32_t crc, size_t n);
void oct_zip_end(oct_zip *zip, size_t n_data);

#endif
