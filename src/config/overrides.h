/* The command line's part of a job: `--section.key=value`, `--section.key value`, `--section.flag`
 * and `--section.no-flag`. */
#ifndef OCT_CONFIG_OVERRIDES_H
#define OCT_CONFIG_OVERRIDES_H

#include "config/settings.h"

/* Sets what the n arguments say, over what is set already. */
oct_status oct_loader_apply_overrides(oct_loader *l, const char *const *overrides, int n);
/* The path after `--job.config_file`, or NULL. */
const char *oct_override_config_file(const char *const *overrides, int n);

#endif
