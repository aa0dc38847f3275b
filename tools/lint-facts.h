/* What clang's analyzer can't see from the other files: these functions return the status that they are given, never OCT_OK.
 * tools/lint includes it first. */
#include "octet/status.h"

#define oct_fail(err, status, ...) ((void)oct_fail(err, status, __VA_ARGS__), (status))
#define oct_fail_memory(err) ((void)oct_fail_memory(err), OCT_NO_MEMORY)
