/* The golden vectors (tests/golden/vectors-data) as part of the program; tools/embed-files writes
 * the table. */
#ifndef OCT_CLI_VECTORS_DATA_H
#define OCT_CLI_VECTORS_DATA_H

#include <stddef.h>

typedef struct embedded_file {
    const char *name; /* NULL behind the last */
    const unsigned char *bytes;
    size_t n_bytes;
} embedded_file;

extern const embedded_file embedded_files[];

#endif
