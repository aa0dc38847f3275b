/* An export as octet itself reads it: the same model. */
#ifndef OCT_EXPORT_EXPORT_CHECK_H
#define OCT_EXPORT_EXPORT_CHECK_H

#include "export/export.h"

/* Reads the tensors as when a model is opened, by names, order of rows and quantization of the
 * folder itself, and compares: each value is the model's, rounded to the dtype that it left in, or
 * of a weight in 8 bits what training's codes and scales mean. OCT_FAILED names the first that is
 * another. (config.json was held against the model when it was made.) */
oct_status oct_export_check_folder(const oct_export *e, const char *folder, oct_error *err);

#endif
