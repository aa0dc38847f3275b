/* What the checks of golden rows share: the verdict on a row, and what is expected of the public
 * functions (public.c). */
#ifndef OCT_TESTS_GOLDEN_EXPECT_H
#define OCT_TESTS_GOLDEN_EXPECT_H

#include <octet/quantize.h>
#include <stdbool.h>
#include <string.h>

#include "golden.h"
#include "levels.h"

enum {
    COPIES = 67,  /* of a single value: whole vectors of any width and a tail */
    LINES = 19,   /* equal rows or columns of a matrix */
    POISON = 0x5a /* bytes of an fp32 that is no result of these tests */
};

static inline float to_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t to_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* The verdict on one row. */
typedef struct verdict {
    const golden_row *row;
    FILE *log;
    bool agrees;
} verdict;

/* Compares one value; says who disagrees, once a row. */
void expect(verdict *v, oct_dtype format, uint32_t expected, uint32_t got, const char *who,
            const char *what);

/* The kernel sets that this CPU can run. */
size_t golden_sets(const kernel_set **out);

/* A block row as the file gives it and room for what is made of LINES copies of it. */
typedef struct mx_case {
    oct_dtype format;
    oct_scale_mode mode;
    int64_t n, n_blocks;
    uint32_t *bits, *scales, *codes;
    float *x;                        /* n, then LINES x n or n x LINES */
    uint8_t *out_codes, *out_scales; /* LINES of them */
} mx_case;

void lay_in_rows(const mx_case *c);
void lay_in_columns(const mx_case *c);
void poison_mx(const mx_case *c);
void expect_mx_lines(verdict *v, const mx_case *c, const char *who, const char *what);

/* ---- the public functions (octet/quantize.h), in every kernel set ---- */

void expect_mx_dequantized(verdict *v, oct_dtype format, uint8_t code, uint8_t scale,
                           uint32_t expected);
void expect_tensor_dequantized(verdict *v, oct_dtype format, uint8_t code, float scale,
                               uint32_t expected);
/* One element: of a matrix whose scale is 1, if x leaves it so. */
void expect_mx_quantized(verdict *v, oct_dtype format, float x, uint32_t expected);
void expect_tensor_quantized(verdict *v, oct_dtype format, float x, uint32_t expected);
void expect_public_scale(verdict *v, oct_dtype format, oct_scale_mode mode, float amax,
                         uint32_t expected);
void expect_public_mx(verdict *v, const mx_case *c);
void expect_public_tensor(verdict *v, const float *x, int64_t n, float target, uint32_t scale,
                          const uint32_t *codes, uint8_t *out);

#endif
