/* A folder of torch.distributed.checkpoint: `.metadata` says which chunks of which tensors lie
 * where in the `*.distcp` files, each chunk an archive of torch.save. What isn't a tensor (a
 * scheduler's state, a data loader's) isn't read. Source: torch,
 * distributed/checkpoint/{metadata,filesystem}.py.
 *
 * Invariant: of an open folder each tensor's chunks cover it, every element once, and lie in plain
 * files of the folder; an archive is checked when it is read. Nothing of a pickle is run. */
#ifndef OCT_TENSORS_DCP_H
#define OCT_TENSORS_DCP_H

#include <octet/status.h>
#include <octet/tensor.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { OCT_DCP_MAX_DIMS = 8 };

typedef struct oct_dcp oct_dcp;

typedef struct oct_dcp_tensor {
    const char *name;
    oct_dtype dtype; /* F32, BF16 or F16; OCT_N_DTYPES for another, which can't be read */
    int n_dims;
    int64_t shape[OCT_DCP_MAX_DIMS];
} oct_dcp_tensor;

bool oct_is_dcp_folder(const char *path); /* it holds a `.metadata` */

/* OCT_INVALID: it isn't such a folder, or one that can't be trusted. */
oct_status oct_dcp_open(const char *folder, oct_dcp **dcp, oct_error *err);
void oct_dcp_close(oct_dcp *dcp); /* NULL is fine */

/* Tensors in the order of their names; they live until close. */
size_t oct_dcp_count(const oct_dcp *dcp);
const oct_dcp_tensor *oct_dcp_get(const oct_dcp *dcp, size_t index);
const oct_dcp_tensor *oct_dcp_find(const oct_dcp *dcp, const char *name); /* NULL: none */

/* All elements of a tensor in its dtype, row-major, from whatever chunks there are. OCT_INVALID: a
 * damaged archive, a dtype that can't be read. */
oct_status oct_dcp_read(const oct_dcp *dcp, const oct_dcp_tensor *tensor, void *to, oct_error *err);

#endif
