/* The nearest known name to a misspelt one, for error messages. */
#ifndef OCT_BASE_NEAREST_H
#define OCT_BASE_NEAREST_H

#include <octet/status.h>
#include <stddef.h>

/* Edit distance with transpositions (optimal string alignment), case-insensitive; `-` equals `_`.
 */
size_t oct_edit_distance(const char *a, const char *b);

/* The closest of `names`, or NULL when none is near: a slip for each three characters of the
 * shorter name is near, and one slip in a shorter name that keeps a character. */
const char *oct_nearest_name(const char *name, const char *const *names, size_t n_names);

/* OCT_INVALID: "KEY: unknown, did you mean "NEAREST"?; expected one of ...; got "GOT"". */
oct_status oct_fail_unknown(oct_error *err, const char *key, const char *got,
                            const char *const *names, size_t n_names);

#endif
