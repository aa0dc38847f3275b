/* Structs of callers that were compiled with another version's headers: their first field, a
 * size_t, is their size there. */
#ifndef OCT_BASE_STRUCT_SIZE_H
#define OCT_BASE_STRUCT_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Copies `given` to *own, whose fields that `given` hasn't got are zeros. False: NULL, smaller than
 * `least` (that of API 1), or with fields that are set and not known here. */
static inline bool oct_read_struct(const void *given, void *own, size_t own_size, size_t least) {
    size_t size;
    if (!given)
        return false;
    memcpy(&size, given, sizeof size);
    if (size < least || size > 4096)
        return false;
    for (size_t i = own_size; i < size; i++)
        if (((const unsigned char *)given)[i] != 0)
            return false;
    memset(own, 0, own_size);
    memcpy(own, given, size < own_size ? size : own_size);
    return true;
}

/* Copies what a result's caller knows of *own to it. */
static inline void oct_write_struct(const void *own, size_t own_size, void *given) {
    size_t size;
    memcpy(&size, given, sizeof size);
    memcpy((char *)given + sizeof size, (const char *)own + sizeof size,
           (size < own_size ? size : own_size) - sizeof size);
}

#endif
