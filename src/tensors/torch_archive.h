/* What torch.save writes of one tensor: a zip archive whose entries are stored, `data.pkl` and the
 * storage that it names. Nothing of the pickle is run. */
#ifndef OCT_TENSORS_TORCH_ARCHIVE_H
#define OCT_TENSORS_TORCH_ARCHIVE_H

#include <octet/status.h>
#include <octet/tensor.h>
#include <stddef.h>
#include <stdint.h>

/* Finds the tensor's bytes within the archive: of `dtype` (F32, BF16, F16), of these sizes,
 * contiguous from the storage's first element. Their CRC-32 is checked. OCT_INVALID: anything else,
 * with `name` before it. */
oct_status oct_torch_archive_find(const void *archive, size_t n_bytes, const char *name,
                                  oct_dtype dtype, const int64_t *shape, int n_dims,
                                  const void **data, oct_error *err);

#endif
