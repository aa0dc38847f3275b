/* Python's pickle, as far as torch's checkpoints need it: opcodes put one after the other, without
 * a memo. Source: Lib/pickletools.py. Internal to the room. */
#ifndef OCT_EXPORT_PICKLE_H
#define OCT_EXPORT_PICKLE_H

#include <stdint.h>

#include "base/strbuf.h"

/* Opcodes without an argument. */
#define OCT_PICKLE_MARK "("
#define OCT_PICKLE_TUPLE "t"
#define OCT_PICKLE_EMPTY_TUPLE ")"
#define OCT_PICKLE_TUPLE1 "\x85"
#define OCT_PICKLE_EMPTY_DICT "}"
#define OCT_PICKLE_SET_ITEMS "u"
#define OCT_PICKLE_EMPTY_LIST "]"
#define OCT_PICKLE_APPENDS "e"
#define OCT_PICKLE_REDUCE "R"
#define OCT_PICKLE_NEW "\x81"
#define OCT_PICKLE_BUILD "b"
#define OCT_PICKLE_FALSE "\x89"
#define OCT_PICKLE_NONE "N"
#define OCT_PICKLE_PERSISTENT "Q"
#define OCT_PICKLE_STOP "."

void oct_pickle_begin(oct_strbuf *to); /* protocol 2, which torch's weights_only reader takes */
void oct_pickle_put_text(oct_strbuf *to, const char *text);
void oct_pickle_put_int(oct_strbuf *to, int64_t value); /* >= 0 */
void oct_pickle_put_global(oct_strbuf *to, const char *module, const char *name);
/* A tuple of n sizes. */
void oct_pickle_put_sizes(oct_strbuf *to, const int64_t *sizes, int n);

#endif
