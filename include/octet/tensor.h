/* Element types and the tensor view that the whole library passes around. */
#ifndef OCTET_TENSOR_H
#define OCTET_TENSOR_H

#include <octet/api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OCT_MAX_DIMS 4

typedef enum oct_dtype {
    OCT_F32 = 0,
    OCT_BF16 = 1,
    OCT_E4M3 = 2, /* OCP FP8: 4 exponent bits, no Inf, largest 448 */
    OCT_E5M2 = 3, /* OCP FP8: 5 exponent bits, Inf, largest 57344 */
    OCT_HIF8 = 4, /* HiFloat8 (arXiv 2409.16626): tapered precision, largest 32768 */
    OCT_E8M0 = 5, /* OCP MX scale: 2^(code-127), 255 is NaN */
    OCT_F64 = 6,
    OCT_F16 = 7,
    OCT_I64 = 8,
    OCT_I32 = 9,
    OCT_I16 = 10,
    OCT_I8 = 11,
    OCT_U8 = 12,
    OCT_BOOL = 13,
    OCT_N_DTYPES /* grows with versions */
} oct_dtype;

/* 0, and "unknown", for what isn't a dtype. */
OCT_API size_t oct_dtype_bytes(oct_dtype dtype);
OCT_API const char *oct_dtype_name(oct_dtype dtype); /* "float32", "bfloat16", "E4M3", ... */

/* A view: row-major, contiguous, the memory belongs to somebody else (an arena, a parameter, a
 * file). `id` is unique among the tensors that one step context made and 0 for others; it is what
 * shared quantizations are keyed by, since addresses are used again within a step. */
typedef struct oct_tensor {
    oct_dtype dtype;
    int n_dims;
    int64_t shape[OCT_MAX_DIMS];
    void *data;
    uint64_t id;
} oct_tensor;

OCT_API oct_tensor oct_tensor_1d(oct_dtype dtype, int64_t n, void *data);
OCT_API oct_tensor oct_tensor_2d(oct_dtype dtype, int64_t rows, int64_t cols, void *data);
OCT_API int64_t oct_tensor_elements(const oct_tensor *tensor);
OCT_API size_t oct_tensor_bytes(const oct_tensor *tensor);
/* The product of all dimensions but the last, and the last: any tensor read as a matrix. */
OCT_API int64_t oct_tensor_rows(const oct_tensor *tensor);
OCT_API int64_t oct_tensor_cols(const oct_tensor *tensor);

#ifdef __cplusplus
}
#endif
#endif
