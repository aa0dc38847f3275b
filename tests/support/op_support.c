/* See op_support.h. */
#include "op_support.h"

#include <inttypes.h>

/* Deterministic values in (-1, 1). */
static double test_uniform(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)(*state >> 11) / (double)(1ull << 52) - 1.0;
}

double test_get(const oct_tensor *x, int64_t i) {
    if (x->dtype == OCT_F32)
        return ((const float *)x->data)[i];
    return oct_bf16_decode(((const uint16_t *)x->data)[i]);
}

void test_set(oct_tensor *x, int64_t i, double value) {
    if (x->dtype == OCT_F32)
        ((float *)x->data)[i] = (float)value;
    else
        ((uint16_t *)x->data)[i] = oct_bf16_encode((float)value);
}

oct_tensor test_tensor(oct_arena *arena, oct_dtype dtype, int64_t rows, int64_t cols) {
    void *data = oct_arena_alloc(arena, (size_t)(rows * cols) * (dtype == OCT_F32 ? 4 : 2));
    assert_non_null(data);
    return oct_tensor_2d(dtype, rows, cols, data);
}

oct_tensor test_random(oct_arena *arena, oct_dtype dtype, int64_t rows, int64_t cols,
                       uint64_t seed) {
    oct_tensor x = test_tensor(arena, dtype, rows, cols);
    for (int64_t i = 0; i < rows * cols; i++)
        test_set(&x, i, test_uniform(&seed));
    return x;
}

oct_tensor test_copy(oct_arena *arena, const oct_tensor *x) {
    oct_tensor y = test_tensor(arena, x->dtype, oct_tensor_rows(x), oct_tensor_cols(x));
    memcpy(y.data, x->data, oct_tensor_bytes(x));
    return y;
}

double *test_values(oct_arena *arena, const oct_tensor *x) {
    int64_t n = oct_tensor_elements(x);
    double *values = oct_arena_alloc_array(arena, (size_t)n, sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < n; i++)
        values[i] = test_get(x, i);
    return values;
}

double *test_zeros(oct_arena *arena, int64_t n) {
    double *values = oct_arena_alloc_array(arena, (size_t)n, sizeof *values);
    assert_non_null(values);
    memset(values, 0, (size_t)n * sizeof *values);
    return values;
}

void test_close(const oct_tensor *x, const double *expected, double slack) {
    double ulp = x->dtype == OCT_F32 ? 0x1p-22 : 0x1p-8;
    for (int64_t i = 0; i < oct_tensor_elements(x); i++) {
        double got = test_get(x, i);
        if (!(fabs(got - expected[i]) <= slack + ulp * fabs(expected[i])))
            fail_msg("element %" PRId64 ": expected %.9g, got %.9g", i, expected[i], got);
    }
}

void test_same_bytes(const oct_tensor *a, const oct_tensor *b) {
    assert_memory_equal(a->data, b->data, oct_tensor_bytes(a));
}
