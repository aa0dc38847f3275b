/* The heap: see alloc.h. A 64-byte header before each block holds its size, which keeps the payload
 * aligned and lets free and realloc count. */
#include "base/alloc.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/checked.h"

#define OCT_ALIGNMENT 64
#define HUGE_PAGE ((size_t)2 << 20)

typedef struct header {
    size_t n_bytes;
    char padding[OCT_ALIGNMENT - sizeof(size_t)];
} header;

static atomic_size_t live_bytes;
static _Atomic int64_t fail_countdown;

static bool told_to_fail(void) {
    if (atomic_load_explicit(&fail_countdown, memory_order_relaxed) == 0)
        return false;
    int64_t left = atomic_load(&fail_countdown);
    while (left > 1 && !atomic_compare_exchange_weak(&fail_countdown, &left, left - 1)) {
    }
    return left == 1;
}

/* A large block asks for huge pages, which Linux gives by default only to those that ask: matrix
 * kernels walk many rows at once, and with pages of 4 KiB each row costs a translation. Only whole
 * huge pages inside the block are asked for, so it takes no more memory. */
static void *allocate(size_t total) {
    if (total < HUGE_PAGE)
        return aligned_alloc(OCT_ALIGNMENT, total);
    void *block;
    if (posix_memalign(&block, HUGE_PAGE, total) != 0)
        return NULL;
#ifdef MADV_HUGEPAGE
    madvise(block, total - total % HUGE_PAGE, MADV_HUGEPAGE); /* refusal does no harm */
#endif
    return block;
}

void *oct_malloc(size_t n_bytes) {
    size_t total;
    if (told_to_fail() || !oct_add_size(n_bytes, sizeof(header) + OCT_ALIGNMENT, &total))
        return NULL;
    total -= total % OCT_ALIGNMENT; /* aligned_alloc wants a multiple */
    header *h = allocate(total);
    if (!h)
        return NULL;
    h->n_bytes = n_bytes;
    atomic_fetch_add(&live_bytes, n_bytes);
    return h + 1;
}

void *oct_malloc_array(size_t n, size_t size) {
    size_t n_bytes;
    return oct_mul_size(n, size, &n_bytes) ? oct_malloc(n_bytes) : NULL;
}

void *oct_calloc_array(size_t n, size_t size) {
    void *block = oct_malloc_array(n, size);
    if (block)
        memset(block, 0, n * size);
    return block;
}

void *oct_realloc_array(void *block, size_t n, size_t size) {
    void *grown = oct_malloc_array(n, size);
    if (!grown || !block)
        return grown;
    size_t old = ((header *)block - 1)->n_bytes;
    memcpy(grown, block, old < n * size ? old : n * size);
    oct_free(block);
    return grown;
}

void *oct_grow_array(void *array, size_t n, size_t *capacity, size_t size) {
    size_t doubled = *capacity ? 2 * *capacity : 16;
    if (n < *capacity)
        return array;
    void *grown = oct_realloc_array(array, doubled, size);
    if (grown)
        *capacity = doubled;
    return grown;
}

char *oct_strndup(const char *text, size_t length) {
    char *copy = oct_malloc(length + 1);
    if (!copy)
        return NULL;
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

char *oct_strdup(const char *text) {
    return oct_strndup(text, strlen(text));
}

void oct_free(void *block) {
    if (!block)
        return;
    header *h = (header *)block - 1;
    atomic_fetch_sub(&live_bytes, h->n_bytes);
    free(h);
}

size_t oct_alloc_live_bytes(void) {
    return atomic_load(&live_bytes);
}

void oct_alloc_fail_at(int64_t n) {
    atomic_store(&fail_countdown, n);
}
