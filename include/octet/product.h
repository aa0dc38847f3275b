/* Products of quantized matrices, alone and many at once. Conventions: octet/matrix.h. */
#ifndef OCTET_PRODUCT_H
#define OCTET_PRODUCT_H

#include <octet/api.h>
#include <octet/matrix.h>
#include <octet/status.h>
#include <octet/tensor.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum oct_product_mode {
    OCT_PRODUCT_AUTO = 0,  /* fast where this CPU has it for the operands, else exact */
    OCT_PRODUCT_EXACT = 1, /* defined to the bit, the same on every CPU (docs/numerics.md) */
    OCT_PRODUCT_FAST = 2   /* OCT_INVALID where this CPU hasn't got it */
} oct_product_mode;

/* c (M, N) = a (M, K) b (N, K)^T [+ c] [+ bias]. */
typedef struct oct_product {
    size_t struct_size;     /* sizeof(oct_product) */
    const oct_coded *a, *b; /* any layout, blocks and scales; F32 and BF16 without scales */
    void *c;                /* rows are ld_c elements apart; overlaps no operand */
    oct_dtype c_dtype;      /* OCT_F32 or OCT_BF16 */
    int64_t ld_c;
    int accumulate;    /* not 0: the sum is added to what c holds */
    const float *bias; /* (N); NULL: none */
} oct_product;

/* n products, threads over the tiles of all. Each c has the bits that its product gives alone.
 * `fast` is for codes with K contiguous or 32x32 tiles or one scale; codes of other layouts and
 * blocks are decoded to fp32 first, which changes no bit of `exact`; AUTO is exact there. */
OCT_API oct_status oct_multiply(const oct_product *products, int64_t n, oct_product_mode mode,
                                int threads);

#ifdef __cplusplus
}
#endif
#endif
