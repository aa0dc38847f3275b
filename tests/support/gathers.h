/* Gathered codes and scales against those that one process makes, and the recipes to try. */
#ifndef OCT_TESTS_GATHERS_H
#define OCT_TESTS_GATHERS_H

#include "sharded.h"

#include <string.h>

#include "nn/experts.h"
#include "nn/linear.h"

enum { N_RECIPES = 8 };
extern const char *const recipes[N_RECIPES];

extern const oct_fsdp_config low; /* everything in 8 bits that can be */

oct_fsdp_config with(oct_gather_mode mode, oct_reshard reshard);

void before(replica *r, int64_t unit, oct_phase phase);
void after(replica *r, int64_t unit, oct_phase phase);

/* Walks a step as a model does, without computing. */
void check_gathers(const setup *s);

#endif
