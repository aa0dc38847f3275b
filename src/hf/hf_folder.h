/* A Hugging Face model folder: model.safetensors, or shards listed by model.safetensors.index.json.
 * (config.json is hf_config.h; how names map to octet's is the model's business.)
 *
 * Invariant: in an open model each tensor has one place. With an index, each name of weight_map
 * lies in the shard it names and each tensor of a shard is in weight_map; shard names are plain
 * file names, so a hostile index can't reach out of the folder. */
#ifndef OCT_HF_HF_FOLDER_H
#define OCT_HF_HF_FOLDER_H

#include <octet/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hf/hf_config.h"
#include "tensors/safetensors.h"

typedef struct oct_hf_model oct_hf_model;

/* `path` is a model folder or one .safetensors file. A folder with both model.safetensors and an
 * index is read from model.safetensors, as transformers does. Wrong input: OCT_INVALID. */
oct_status oct_hf_model_open(const char *path, oct_hf_model **model, oct_error *err);
/* Whether a folder has either file; its config.json may have come alone. */
bool oct_hf_folder_has_weights(const char *folder);
void oct_hf_model_close(oct_hf_model *model); /* NULL is fine */

/* Tensors by shard, then in the order of the file; they live until close. Read-only, thread-safe.
 */
int64_t oct_hf_model_count(const oct_hf_model *model);
const oct_safetensors_tensor *oct_hf_model_get(const oct_hf_model *model, int64_t index);
const oct_safetensors_tensor *oct_hf_model_find(const oct_hf_model *model, const char *name);
/* The index of a name, -1: there is none. */
int64_t oct_hf_model_index(const oct_hf_model *model, const char *name);
/* The file that holds tensor `index`, for messages. */
const char *oct_hf_model_file(const oct_hf_model *model, int64_t index);

/* Writes the tensors into `folder` (made if missing): model.safetensors when they fit into
 * max_shard_bytes (0: 5 GiB), else model-00001-of-0000M.safetensors and, last, the index. Each file
 * appears by rename and an index or single file of an older model goes at the end; on failure the
 * files that this call wrote are removed. Metadata is
 * {"format": "pt"}, which transformers wants. */
oct_status oct_hf_model_write(const char *folder, const oct_safetensors_item *items,
                              int64_t n_items, size_t max_shard_bytes, oct_error *err);

#endif
