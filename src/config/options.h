/* Options of the command line that this job has no use for: a user who types a key of a recipe
 * believes that the run has it. In a file such tables are legal, as they are in torchtitan. */
#ifndef OCT_CONFIG_OPTIONS_H
#define OCT_CONFIG_OPTIONS_H

#include "config/settings.h"

/* Refuses what the command line sets of quantize.*.mx and can't act: the table's converter isn't
 * there, or its recipe has no such thing; not where the loader is lenient. Also a scale rule beside
 * a recipe whose name says another one, wherever they are set. For oct_loader_check. */
oct_status oct_loader_check_options(oct_loader *l);

#endif
