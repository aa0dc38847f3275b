/* Overflow-checked integer arithmetic for sizes that come from outside. Each returns true on
 * success and leaves *out untouched on overflow. */
#ifndef OCT_BASE_CHECKED_H
#define OCT_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool oct_mul_size(size_t a, size_t b, size_t *out) {
    size_t result;
    if (__builtin_mul_overflow(a, b, &result))
        return false;
    *out = result;
    return true;
}

static inline bool oct_add_size(size_t a, size_t b, size_t *out) {
    size_t result;
    if (__builtin_add_overflow(a, b, &result))
        return false;
    *out = result;
    return true;
}

static inline bool oct_mul_i64(int64_t a, int64_t b, int64_t *out) {
    int64_t result;
    if (__builtin_mul_overflow(a, b, &result))
        return false;
    *out = result;
    return true;
}

static inline int64_t oct_ceil_div(int64_t a, int64_t b) {
    return a / b + (a % b != 0);
}
/* The next multiple of a cache line, of small sizes. */
static inline size_t oct_align_to_line(size_t n_bytes) {
    const size_t line = 64;
    return (n_bytes + line - 1) / line * line;
}
static inline int64_t oct_min_i64(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static inline int64_t oct_max_i64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

#endif
