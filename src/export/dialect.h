/* How each format says in JSON which weights are in 8 bits, and how. Internal to the room. */
#ifndef OCT_EXPORT_DIALECT_H
#define OCT_EXPORT_DIALECT_H

#include "base/strbuf.h"
#include "export/export.h"

/* What follows a weight's name for its scales: "_scale", "_scale_inv". */
const char *oct_dialect_scale_suffix(oct_export_format format);

/* The value of config.json's quantization_config; `ignored`: modules that stay high. */
void oct_dialect_put_config(oct_export_format format, const char *const *ignored, size_t n_ignored,
                            oct_strbuf *to);
/* The file beside config.json that the format has, NULL: none. */
const char *oct_dialect_file(oct_export_format format);
void oct_dialect_put_file(const char *const *ignored, size_t n_ignored, oct_strbuf *to);

#endif
