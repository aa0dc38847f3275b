/* The only door to the heap. Every block is 64-byte aligned (a cache line and a vector register)
 * and counted, so that tests find what is lost and can make the n-th allocation fail. All
 * functions are thread-safe. A request of 0 bytes gives a unique non-NULL block. */
#ifndef OCT_BASE_ALLOC_H
#define OCT_BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

void *oct_malloc(size_t n_bytes);                            /* uninitialised; NULL when refused */
void *oct_malloc_array(size_t n, size_t size);               /* NULL too when n * size overflows */
void *oct_calloc_array(size_t n, size_t size);               /* zeroed */
void *oct_realloc_array(void *block, size_t n, size_t size); /* NULL leaves `block` valid */
/* `array` with room for one more than its n elements: itself while n < *capacity, else one of twice
 * the capacity, at least 16. NULL leaves `array` and *capacity as they are. */
void *oct_grow_array(void *array, size_t n, size_t *capacity, size_t size);
char *oct_strdup(const char *text);
char *oct_strndup(const char *text, size_t length);
void oct_free(void *block); /* NULL is fine */

/* Bytes in live blocks, headers not counted. */
size_t oct_alloc_live_bytes(void);

/* Tests: the n-th allocation from now (1 = the next) and all later ones fail; 0 turns it off. */
void oct_alloc_fail_at(int64_t n);

#endif
