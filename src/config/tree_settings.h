/* From a tree of values to settings: each key of it sets a row, or is refused. */
#ifndef OCT_CONFIG_TREE_SETTINGS_H
#define OCT_CONFIG_TREE_SETTINGS_H

#include "config/settings.h"

/* All that `table` holds, which stands at the section `prefix` ("": the file itself). What is wrong
 * with a key is refused; the status is of other failures. Values without a line are the command
 * line's. */
oct_status oct_loader_collect(oct_loader *l, const oct_value *table, const char *prefix);
/* A file that shares no section with a job, not even a misspelt one, is for another program: one
 * line says so, OCT_INVALID, instead of one a key. */
oct_status oct_loader_check_is_job(oct_loader *l, const oct_value *root);

#endif
