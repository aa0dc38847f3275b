/* Spreads a list of tensors over safetensors files of a bounded size, in the order of the list.
 * Internal to the room: checkpoints and Hugging Face folders share it. */
#ifndef OCT_TENSORS_SHARD_FILES_H
#define OCT_TENSORS_SHARD_FILES_H

#include <octet/status.h>
#include <stddef.h>
#include <stdint.h>

#include "tensors/safetensors.h"

#define OCT_SHARD_DEFAULT_BYTES ((size_t)5 << 30)
#define OCT_SHARD_NAME_SIZE 96
#define OCT_SHARD_MAX 99999 /* what five digits can number */

typedef struct oct_shards {
    const char *prefix;      /* "model" */
    const char *single_name; /* the name when there is one file; NULL: numbered then too */
    int64_t n_shards;
    int64_t *shard_of;          /* by item, ascending */
    oct_file_receipt *receipts; /* by shard, once written */
    size_t total_bytes;         /* of tensor data */
} oct_shards;

/* Plans: a shard takes items until the next would pass max_bytes (0: the default); an item larger
 * than that has a file of its own. Checks the items. Zero items: zero shards. */
oct_status oct_shards_plan(const oct_safetensors_item *items, int64_t n_items, size_t max_bytes,
                           oct_shards *shards, oct_error *err);
void oct_shards_free(oct_shards *shards);

/* "model-00001-of-00003.safetensors" for shard 0 of 3. */
void oct_shards_name(const oct_shards *shards, int64_t shard, char name[OCT_SHARD_NAME_SIZE]);

/* Writes all files into `folder` and fills the receipts. On failure those it wrote are removed. */
oct_status oct_shards_write(oct_shards *shards, const char *folder,
                            const oct_safetensors_item *items, int64_t n_items, oct_error *err);
/* Removes the first n files again. */
void oct_shards_remove(const oct_shards *shards, const char *folder, int64_t n);

#endif
