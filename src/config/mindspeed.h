/* From the keys of a MindSpeed MM job to the fields of oct_job that mean the same.
 *
 * Invariant: afterwards the fields that the TOML form names hold what the YAML file means, so that
 * nobody downstream asks which form a job came in, except for the plan and the lists of module
 * patterns, which have no TOML counterpart. */
#ifndef OCT_CONFIG_MINDSPEED_H
#define OCT_CONFIG_MINDSPEED_H

#include "config/settings.h"

/* Before rows are filled: a key that MindSpeed has in several spellings goes to one row. */
oct_status oct_loader_merge_spellings(oct_loader *l);
/* After all keys are collected and those with members of their own are stored. */
oct_status oct_loader_finish_mindspeed(oct_loader *l);
/* After the command line replaced what it sets: what the file asks for and can't be. All three
 * refuse what is wrong; their status is of other failures. */
oct_status oct_loader_check_mindspeed(oct_loader *l);

#endif
