/* Packed token files: a 64-byte header, then the ids. Everything is little-endian.
 *
 *   0  8 bytes  magic "OCTOKENS"
 *   8  uint32   version, 1
 *  12  uint32   bytes of an id: 2 (ids below 65536) or 4
 *  16  uint64   number of ids
 *  24  uint64   hash of the tokenizer (oct_tokenizer_hash), 0: not known
 *  32  uint64   XXH3 (64 bit, seed 0) of the ids' bytes
 *  40  uint64   number of documents
 *  48  uint32   vocabulary size: every id is below it
 *  52  uint32   0
 *  56  uint64   XXH3 of the 56 bytes before
 *
 * Invariant: a file under its final name is complete; it's written under a temporary one. */
#ifndef OCT_DATA_PACKED_FILE_H
#define OCT_DATA_PACKED_FILE_H

#include <octet/status.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fs.h"
#include "data/dataset.h"
#include "text/documents.h"

#define OCT_PACKED_HEADER_BYTES 64

typedef struct oct_packed {
    oct_mapping mapping;
    const uint8_t *ids;
    int64_t n_tokens, n_documents, vocab_size;
    int id_bytes;
    uint64_t tokenizer_hash;
    uint64_t ids_hash; /* as the header says */
} oct_packed;

/* OCT_INVALID names what is wrong with the file. */
oct_status oct_packed_open(const char *path, oct_dataset_verify verify, oct_packed *packed,
                           oct_error *err);
void oct_packed_close(oct_packed *packed);
/* Ids first .. first+n-1, which must exist; ids that aren't below 2^31 come out negative. */
void oct_packed_read(const oct_packed *packed, int64_t first, int64_t n, int32_t *ids);

typedef struct oct_packed_writer oct_packed_writer;
oct_status oct_packed_create(const char *path, int64_t vocab_size, uint64_t tokenizer_hash,
                             oct_packed_writer **writer, oct_error *err);
oct_status oct_packed_append(oct_packed_writer *writer, const int32_t *ids, size_t n,
                             oct_error *err);
/* Completes the file and gives it its name. Ends the writer in any case. */
oct_status oct_packed_finish(oct_packed_writer *writer, int64_t n_documents, int64_t *n_tokens,
                             oct_error *err);
/* Removes what was written. NULL is fine. */
void oct_packed_abandon(oct_packed_writer *writer);

#endif
