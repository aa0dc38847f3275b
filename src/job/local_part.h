/* Reading what a parameter, or its optimizer state, has here. In sharded training that's a part of
 * what a file holds: the whole is read to memory of its own, then this rank's elements are kept. */
#ifndef OCT_JOB_LOCAL_PART_H
#define OCT_JOB_LOCAL_PART_H

#include <octet/status.h>

#include "model/model.h"

/* Where the whole is to be read to: `to` itself where all of it is here, else memory of its own
 * (NULL: refused). oct_local_keep copies this rank's elements to `to` and frees that memory. */
float *oct_local_buffer(const oct_param *param, float *to);
void oct_local_keep(const oct_param *param, float *to, float *whole);

/* Fills param->value, which holds the whole meanwhile. */
typedef oct_status (*oct_local_reader)(const void *from, oct_param *param, oct_error *err);
oct_status oct_local_read(oct_param *param, oct_local_reader read, const void *from,
                          oct_error *err);

/* Fills the routers' biases, which every rank has whole: `read` is called for each layer with
 * experts, by the name of its bias, with the n values to fill. */
typedef oct_status (*oct_bias_reader)(const void *from, const char *name, int64_t n, float *values,
                                      oct_error *err);
oct_status oct_local_read_biases(oct_model *model, oct_bias_reader read, const void *from,
                                 oct_error *err);

#endif
