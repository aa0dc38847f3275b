/* All that is wrong with a job, told together: a user mends a file once, not once a run.
 *
 * Invariant: what was refused is as if it weren't there: the row holds its default, so that checks
 * of other keys go on, and what they then say of a default isn't told. */
#ifndef OCT_CONFIG_REFUSALS_H
#define OCT_CONFIG_REFUSALS_H

#include "config/settings.h"

/* What is told before all else: a model that isn't here, then a file for another program. */
typedef enum oct_refusal_class {
    OCT_REFUSED_MODEL,
    OCT_REFUSED_FILE,
    OCT_REFUSED_BY_PLACE /* by line of the file, then defaults, then the command line */
} oct_refusal_class;

/* Takes an OCT_INVALID failure, whose message is the builder's error, into the list and clears that
 * error. Returns OCT_OK, or any other status as it came. */
oct_status oct_loader_refuse(oct_loader *l, oct_status status, oct_refusal_class kind);
/* The same for one item of a list: of a key only the first failure is told, of a list each item's.
 */
oct_status oct_loader_refuse_item(oct_loader *l, oct_status status);
/* Refuses an unknown key or section, with its nearest neighbour. */
oct_status oct_loader_unknown(oct_loader *l, const char *place, const char *name, const char *what);
bool oct_loader_refused_model(const oct_loader *l);
/* OCT_OK where nothing was refused; else OCT_INVALID with the first in the builder's error, and the
 * others, a line each, in *others (NULL: there are none), which is the caller's to oct_free. */
oct_status oct_loader_conclude(oct_loader *l, char **others);

#endif
