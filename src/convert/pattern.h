/* Name patterns of the two job forms. */
#ifndef OCT_CONVERT_PATTERN_H
#define OCT_CONVERT_PATTERN_H

#include <octet/status.h>
#include <stdbool.h>

#include "convert/plan.h"

/* Checks the syntax of a glob: braces hold `*`, or integers and ranges a-b with a <= b, separated
 * by commas. */
oct_status oct_glob_check(const char *pattern, oct_error *err);

/* The same of each glob of a list: OCT_INVALID with the list's place, what is wrong with the first
 * that is, and the others. */
oct_status oct_pattern_list_check(const oct_pattern_list *list, oct_error *err);

/* Whether `pattern` matches the whole of `text`: `*` any characters, dots too; `?` one; `{*}` one
 * integer; `{0-20,22}` an integer of 0 to 20 or 22; all else itself. */
bool oct_glob_matches(const char *pattern, const char *text);

/* Whether the pattern selects the module `name`. Substring: the name contains it. Glob: it matches
 * the name or that of a module above it; one without a dot or wildcard matches a whole last
 * component of either. */
bool oct_pattern_selects(oct_pattern_kind kind, const char *pattern, const char *name);

/* The first pattern of the list that selects `name`, or -1. */
int64_t oct_pattern_list_find(const oct_pattern_list *list, const char *name);

#endif
