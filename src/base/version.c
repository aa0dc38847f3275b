/* The library's version: octet/version.h. */
#include <octet/version.h>

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

int oct_api_version(void) {
    return OCT_API_VERSION;
}

const char *oct_version(void) {
    return TEXT(OCT_VERSION_MAJOR) "." TEXT(OCT_VERSION_MINOR) "." TEXT(OCT_VERSION_PATCH);
}
