/* Rules that concern the words inside a value, or more than one key. What needs to know models,
 * recipes, module names or the number of ranks is checked where those are known. */
#ifndef OCT_CONFIG_CHECK_H
#define OCT_CONFIG_CHECK_H

#include "config/settings.h"

/* Of a job that is filled. */
oct_status oct_loader_check(oct_loader *l);

#endif
