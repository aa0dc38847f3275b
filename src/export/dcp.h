/* torch.distributed.checkpoint's folder: `.metadata`, a pickle that says where each chunk of each
 * tensor is, and `__0_N.distcp`, in which each chunk is an archive of torch.save. Source: torch,
 * distributed/checkpoint/{metadata,filesystem}.py and serialization.py. Internal to the room. */
#ifndef OCT_EXPORT_DCP_H
#define OCT_EXPORT_DCP_H

#include "export/export.h"

/* Writes it to an existing folder, as torchtitan saves a model alone: octet's names are its names,
 * a tied head is there beside the table, routers' biases are buffers. Chunks are cut between rows
 * where a tensor is beyond a file's size, or 1 GiB. Reads everything back and compares. */
oct_status oct_dcp_write(const oct_export *e, const char *folder, oct_export_summary *summary,
                         oct_error *err);

#endif
