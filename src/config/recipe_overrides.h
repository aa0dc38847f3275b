/* [[quantize.linear.mx.override]]: recipes of some linears of their own. */
#ifndef OCT_CONFIG_RECIPE_OVERRIDES_H
#define OCT_CONFIG_RECIPE_OVERRIDES_H

#include "config/settings.h"

/* Reads the key's list of tables, `fqns` and `recipe_name` each, into *overrides. OCT_INVALID names
 * the table's place and what is wrong in it. */
oct_status oct_loader_store_overrides(oct_loader *l, const oct_key *key, const oct_value *value,
                                      const char *place, oct_job_overrides *overrides);

#endif
