/* Helpers of the operators' tests: tensors of random values, read and compared in fp64. */
#ifndef OCT_TESTS_OP_SUPPORT_H
#define OCT_TESTS_OP_SUPPORT_H

#include "story.h"

#include <math.h>
#include <octet/format.h>
#include <octet/tensor.h>
#include <string.h>

#include "base/alloc.h"
#include "base/arena.h"
#include "base/thread.h"

double test_get(const oct_tensor *x, int64_t i);
void test_set(oct_tensor *x, int64_t i, double value);
oct_tensor test_tensor(oct_arena *arena, oct_dtype dtype, int64_t rows, int64_t cols);
oct_tensor test_random(oct_arena *arena, oct_dtype dtype, int64_t rows, int64_t cols,
                       uint64_t seed);
oct_tensor test_copy(oct_arena *arena, const oct_tensor *x);

/* The tensor's values in fp64. */
double *test_values(oct_arena *arena, const oct_tensor *x);
double *test_zeros(oct_arena *arena, int64_t n);

/* A result rounded once differs from `expected` by an ulp of its dtype and `slack` of fp32 sums. */
void test_close(const oct_tensor *x, const double *expected, double slack);
void test_same_bytes(const oct_tensor *a, const oct_tensor *b);

#endif
