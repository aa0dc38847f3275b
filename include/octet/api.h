/* What the library gives away. Everything else in the shared library is hidden. */
#ifndef OCTET_API_H
#define OCTET_API_H

#define OCT_API __attribute__((visibility("default")))

#endif
