/* Checkpoints that survive crashes: the folder <dump_folder>/checkpoint/step-N/ holds
 *
 *   model-00001-of-0000M.safetensors      parameters, by the trainer's names
 *   optimizer-00001-of-0000M.safetensors  optimizer state, "<parameter>.exp_avg" and so on
 *   state.json                            a JSON object of the trainer's: data position, seed, ...
 *   config.toml (or another name)         the job's text, as the run read it
 *   further files                         that the caller gives: config.json, tokenizer.json
 *   manifest.json                         written last
 *
 * manifest.json: {"format": "octet-checkpoint", "version": 1, "step": N, "kernel_set": "avx2",
 *   "gemm": "fast", "config": "config.toml", "files": {NAME: {"bytes": n, "xxh3": "16 hex
 *   digits"}}, "tensors": {"model": {TENSOR: {"dtype": "F32", "shape": [global shape], "pieces":
 *   [{"file": NAME, "row": first row, "rows": n}]}}, "optimizer": {...}}}
 *
 * A tensor may lie in several pieces, each a range of rows (dimension 0) in a shard of its own, as
 * FSDP ranks write them; pieces are listed by row and cover the tensor without gap or overlap. The
 * shape in the manifest is the global one, so a reader takes any range of rows whatever the world
 * size was. This writer makes one piece a tensor; the reader takes any number.
 *
 * Invariant: a folder named step-N either holds a complete checkpoint or was damaged from outside.
 * It is written as step-N.tmp-PID, each file and folder fsynced, then renamed; removal renames it
 * to step-N.del-PID first. A folder whose manifest is missing or doesn't fit its files (sizes,
 * checksums, tensors) is not a checkpoint. */
#ifndef OCT_CHECKPOINT_CHECKPOINT_H
#define OCT_CHECKPOINT_CHECKPOINT_H

#include <octet/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tensors/safetensors.h"

typedef enum oct_checkpoint_group {
    OCT_CHECKPOINT_MODEL,
    OCT_CHECKPOINT_OPTIMIZER,
    OCT_CHECKPOINT_N_GROUPS
} oct_checkpoint_group;

/* ---- saving ---- */

typedef struct oct_checkpoint_file {
    const char *name; /* a plain file name, of no other file of the checkpoint */
    const char *bytes;
    size_t n_bytes;
} oct_checkpoint_file;

typedef struct oct_checkpoint_contents {
    int64_t step; /* >= 0 */
    const oct_safetensors_item *tensors[OCT_CHECKPOINT_N_GROUPS];
    int64_t n_tensors[OCT_CHECKPOINT_N_GROUPS]; /* 0 is fine: no file then */
    const char *state_json;                     /* an object; free of form; must parse */
    const char *config_name;                    /* a plain file name; NULL: no copy */
    const char *config_text;
    const oct_checkpoint_file *files; /* further ones */
    size_t n_files;
    const char *kernel_set; /* "ref", "avx2", ... */
    const char *gemm;       /* "exact", "fast" */
    size_t max_shard_bytes; /* of tensor data in a file; 0: 5 GiB. A larger tensor is a file */
} oct_checkpoint_contents;

/* Writes `folder`/step-N (the folder and its parents are made). An older step-N is replaced, and
 * stays as it was until the new one is durable. Then steps older than the newest `keep_latest_k`
 * that training could go on from are removed (0: keep all; the step just written always stays);
 * trouble there is a warning. Temporary folders of dead processes of this host are swept. Failure:
 * OCT_FAILED with the reason (disk full, ...), earlier checkpoints intact, nothing temporary left;
 * OCT_INVALID for contents that can't be stored. Call it in one process; not thread-safe for the
 * same folder. */
oct_status oct_checkpoint_save(const char *folder, const oct_checkpoint_contents *contents,
                               int64_t keep_latest_k, oct_error *err);

/* ---- loading ---- */

/* What follows the name of a step's folder in the name of its export, which lies beside it. */
#define OCT_CHECKPOINT_EXPORT_ENDING "-hf"

/* Moves the checkpoints above `step`, and exports of them, from `folder` to `folder`/aside-K, K the
 * first free number, newest first; a run that goes back leaves them behind. *n: how many; *aside
 * (oct_free): where to, NULL where there were none. Call it in one process. */
oct_status oct_checkpoint_set_aside(const char *folder, int64_t step, char **aside, size_t *n,
                                    oct_error *err);

#define OCT_CHECKPOINT_LATEST (-1)

typedef struct oct_checkpoint oct_checkpoint;

/* Opens and verifies, checksums included. LATEST: the newest valid step; each newer folder that
 * isn't one is named in a warning with the reason. Without any step-N (or without the folder):
 * OCT_OK and *checkpoint NULL; with some, none of them valid: OCT_INVALID, lest a run begins anew
 * among them. A step >= 0 that is missing or invalid is OCT_INVALID. */
oct_status oct_checkpoint_find(const char *folder, int64_t step, oct_checkpoint **checkpoint,
                               oct_error *err);
/* The newest valid one below `step`; the rest is as for LATEST. */
oct_status oct_checkpoint_find_before(const char *folder, int64_t step, oct_checkpoint **checkpoint,
                                      oct_error *err);
/* The same for one checkpoint's own folder, whatever its name. */
oct_status oct_checkpoint_open(const char *step_folder, oct_checkpoint **checkpoint,
                               oct_error *err);
void oct_checkpoint_close(oct_checkpoint *checkpoint); /* NULL is fine */

/* What a checkpoint says about a tensor. Strings live until close. */
typedef struct oct_checkpoint_tensor {
    const char *name;
    oct_dtype dtype;
    int n_dims;
    int64_t shape[OCT_SAFETENSORS_MAX_DIMS]; /* global */
} oct_checkpoint_tensor;

int64_t oct_checkpoint_step(const oct_checkpoint *checkpoint);
const char *oct_checkpoint_path(const oct_checkpoint *checkpoint);
const char *oct_checkpoint_state(const oct_checkpoint *checkpoint);  /* JSON text of an object */
const char *oct_checkpoint_config(const oct_checkpoint *checkpoint); /* NULL: none was saved */
const char *oct_checkpoint_config_name(const oct_checkpoint *checkpoint);
/* Whether a file of that name belongs to it: complete, by its checksum. */
bool oct_checkpoint_has_file(const oct_checkpoint *checkpoint, const char *name);
const char *oct_checkpoint_kernel_set(const oct_checkpoint *checkpoint);
const char *oct_checkpoint_gemm(const oct_checkpoint *checkpoint);

int64_t oct_checkpoint_count(const oct_checkpoint *checkpoint, oct_checkpoint_group group);
const oct_checkpoint_tensor *oct_checkpoint_get(const oct_checkpoint *checkpoint,
                                                oct_checkpoint_group group, int64_t index);
const oct_checkpoint_tensor *oct_checkpoint_tensor_find(const oct_checkpoint *checkpoint,
                                                        oct_checkpoint_group group,
                                                        const char *name); /* NULL: missing */

/* Copies the tensor `name` into `to`, which has `to`'s dtype and shape; a missing name (its nearest
 * is named), another dtype or shape is OCT_INVALID. Threads may copy different tensors at once. */
oct_status oct_checkpoint_copy(const oct_checkpoint *checkpoint, oct_checkpoint_group group,
                               const char *name, const oct_tensor *to, oct_error *err);

/* Copies rows row .. row+n_rows-1 of dimension 0 into `to` (n_rows * bytes of a row). The tensor
 * must have a dimension 0, and the range lie inside it. */
oct_status oct_checkpoint_copy_rows(const oct_checkpoint *checkpoint, oct_checkpoint_group group,
                                    const char *name, int64_t row, int64_t n_rows, void *to,
                                    oct_error *err);

#endif
