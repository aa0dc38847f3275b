/* Products to be checked: operands in guarded memory, filled with friendly or hostile numbers, the
 * C that the definition (kernel/gemm.h) gives, written here once more from the scalar codecs, and
 * the error bound of docs/numerics.md. */
#ifndef OCT_TESTS_KERNELS_GEMM_CASES_H
#define OCT_TESTS_KERNELS_GEMM_CASES_H

#include "harness.h"
#include "kernel/gemm.h"

/* What fills an operand. */
typedef enum filling {
    ORDINARY, /* Gaussian values, codes with no NaN or Inf, scales near 1 */
    HOSTILE,  /* any code, any scale byte (0, 1, 254, 255 often), wide values, NaN, Inf */
    ZERO_BLOCKS,
    WIDE_SCALES /* MX scales from 2^-55 to 2^55 */
} filling;

/* An operand in guarded memory, and its elements decoded. */
typedef struct test_operand {
    guarded data, scales;
    oct_operand operand;
    float *decoded; /* (rows, K) */
} test_operand;

/* What to build. */
typedef struct operand_spec {
    oct_dtype dtype;
    oct_layout layout;
    oct_scaling scaling;
    int64_t block_rows;
} operand_spec;

/* A problem with its operands, its first C and the C that the definition gives. */
typedef struct test_problem {
    test_operand a, b;
    guarded c, bias;
    unsigned char *c_before, *c_expected;
    oct_gemm_problem problem;
} test_problem;

typedef struct problem_spec {
    int64_t M, N, K;
    operand_spec a, b;
    filling fill;
    oct_dtype c_dtype;
    oct_accumulate accumulate;
    bool has_bias;
    oct_dtype sum_dtype;
    placement where;
    uint64_t stream;
} problem_spec;

/* Sums over C of squared errors and squares, against fp64. */
typedef struct error_sums {
    double error, reference, sgemm_error;
} error_sums;

/* Every kind of operand; those with 8-bit elements from the fifth on. */
enum { N_SPECS = 15 };
extern const operand_spec specs[N_SPECS];

/* Values of K around what kernels step by. */
enum { N_DEPTHS = 11 };
extern const int64_t depths[N_DEPTHS];

uint32_t draw(uint64_t stream, uint64_t i);

/* The definition: the element times its scale, rounded once. */
float decode(const oct_operand *x, int64_t r, int64_t k);

test_operand make_operand(operand_spec spec, int64_t rows, int64_t K, filling fill, placement where,
                          uint64_t stream);

void free_operand(test_operand *t);

float load_c(const oct_gemm_problem *p, int64_t i);

test_problem make_problem(const problem_spec *s);

void free_problem(test_problem *t);

/* Puts the first C back, runs all problems in one call, workspace and all outputs guarded. */
void run_problems(test_problem *const *problems, int64_t n, oct_gemm_mode mode);

void check_exact(const test_problem *t, const char *set, int threads);

/* One set for each distinct family of products. */
size_t product_sets(kernel_set sets[MAX_KERNEL_SETS]);

/* |err| <= 4 K 2^-24 sum|ab| + K 2^-149, element by element, and what is added and rounded
 * afterwards; and the sums for the whole. */
error_sums check_bound(const test_problem *t, const char *set);

/* As a whole: at most 4 times the relative Frobenius error of an fp32 product. Tiny sums of errors
 * (few terms, or all exact) say nothing. */
void check_whole(const error_sums *sums, int64_t K, const char *set);

error_sums check_one_bound(const problem_spec *s, oct_gemm_mode mode, const char *set);

void check_mode_bound(oct_gemm_mode mode, const char *name);

/* In turn, each set that has fast products. */
void for_each_fast_set(void (*check)(const char *set));

#endif
