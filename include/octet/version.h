/* Which liboctet this is. API 1 only grows: functions, enumerators and fields at the end of the
 * structs that begin with their size are added, nothing is changed or taken away. */
#ifndef OCTET_VERSION_H
#define OCTET_VERSION_H

#include <octet/api.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OCT_API_VERSION 1
#define OCT_VERSION_MAJOR 0
#define OCT_VERSION_MINOR 1
#define OCT_VERSION_PATCH 0

/* Of the library at run time, which may be newer than these headers. */
OCT_API int oct_api_version(void);
OCT_API const char *oct_version(void); /* "0.1.0" */

#ifdef __cplusplus
}
#endif
#endif
