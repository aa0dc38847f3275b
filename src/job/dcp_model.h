/* A model's parameters from a folder of torch.distributed.checkpoint, as torchtitan saves them. */
#ifndef OCT_JOB_DCP_MODEL_H
#define OCT_JOB_DCP_MODEL_H

#include <octet/status.h>

#include "model/model.h"

/* Reads every parameter and the routers' biases, by torchtitan's names, which are octet's. The
 * tensors must be the model's, of their shapes: OCT_INVALID names the first that is missing,
 * another, or too much. Only these may be left over: a tied head's copy of the table, and with a
 * log line what else a whole checkpoint holds (optimizer, lr_scheduler, dataloader, train_state).
 * In sharded training every rank reads, and keeps its part. */
oct_status oct_setup_parameters_from_dcp(const char *folder, oct_model *model, oct_error *err);

#endif
