/* The kernel sets that this CPU can run, for tests that compare them. */
#ifndef OCT_TESTS_LEVELS_H
#define OCT_TESTS_LEVELS_H

#include <stddef.h>

#include "kernel/select.h"

typedef struct kernel_set {
    const char *name;
    oct_kernels kernels;
} kernel_set;

enum { MAX_KERNEL_SETS = 8 };

/* Every level up to this CPU's, and AVX512 with each subset of its extensions; returns how many. */
size_t kernel_sets(kernel_set sets[MAX_KERNEL_SETS]);

#endif
