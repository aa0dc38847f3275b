/* From a text that a user typed to a value.
 *
 * Invariant: a text becomes a value by its row's type, never by its looks (a description of "12" is
 * a text); only entries of free tables, which have no row, and rows that take any value go by their
 * looks, the latter by YAML's rules. */
#ifndef OCT_CONFIG_TEXT_H
#define OCT_CONFIG_TEXT_H

#include "config/settings.h"

/* The value of `text` for `key`; NULL with the error filled. A text that isn't what the row takes
 * stays one: storing it says so. */
const oct_value *oct_loader_parse_text(oct_loader *l, const oct_key *key, const char *text);
/* A scalar by its looks; NULL with the error filled. */
const oct_value *oct_loader_parse_scalar(oct_loader *l, const char *text);
/* Whether the text is one of true and false, in any case; then *truth is which. */
bool oct_text_is_bool(const char *text, bool *truth);

#endif
