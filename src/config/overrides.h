/* The command line's part of a job: `--section.key=value`, `--section.key value`, `--section.flag`,
 * `--section.no-flag` and `--no-section.flag`. */
#ifndef OCT_CONFIG_OVERRIDES_H
#define OCT_CONFIG_OVERRIDES_H

#include "config/settings.h"

/* Sets what the n arguments say, over what is set already. What is wrong with one is refused. */
oct_status oct_loader_apply_overrides(oct_loader *l, const char *const *overrides, int n);
/* *path is the one after `--job.config_file`, or NULL. */
oct_status oct_override_config_file(const char *const *overrides, int n, const char **path,
                                    oct_error *err);
/* What is said of two job files; OCT_INVALID. */
oct_status oct_override_two_files(const char *a, const char *b, oct_error *err);

#endif
