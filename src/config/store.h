/* From a value to a member of oct_job: type, range and choice are checked against the row.
 *
 * Invariant: nothing is written to a member unless the value is good. */
#ifndef OCT_CONFIG_STORE_H
#define OCT_CONFIG_STORE_H

#include "config/settings.h"

/* Checks a value, set at `place`, against its row, and stores it if the row has a member. */
oct_status oct_loader_store(oct_loader *l, const oct_key *key, const oct_value *value,
                            const char *place);

#endif
